"""Names of compiled kernels, as profilers show them: ``foretrace_tma_gate_up_gelu_tanh_128x128x64_4stages``.

`foretrace.knowledge.kernels.foretrace` reads these names: a change of their grammar is a change there too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["naming"]


def naming(
    implementation: str,
    gated: str,
    single: str | None = None,
    *,
    method: str | None = None,
    tile: tuple[int, int | None, int] | None = None,
) -> Callable[[Any], str]:
    """Return what ``triton.jit(repr=...)`` and ``gluon.jit(repr=...)`` take: a name for each set of constants.

    gated, single: the step with the kernel's constant ``GATED`` and without; one of them, if there is but one. A single
    step whose ``ACTIVATION`` is ``"none"`` is called project. method: vector or dot. tile: rows, columns (``None``: the
    constant ``BLOCK_N``) and inner size where the kernel has no constants ``BLOCK_M`` (without it 1), ``BLOCK_N`` and
    ``BLOCK_K`` (1), or ``BLOCK_ROWS`` and ``BLOCK_COLUMNS``. ``STAGES`` is named where there is such a constant.
    """

    def name(specialization: Any) -> str:
        constants: Mapping[str, Any] = specialization.constants
        step = gated if single is None or constants["GATED"] else single
        activation = constants.get("ACTIVATION")
        if activation == "none":
            step, activation = "project", None
        words = ["foretrace", implementation, step, method, activation, _tile(constants, tile)]
        if "STAGES" in constants:
            words.append(f"{constants['STAGES']}stages")
        return "_".join(word for word in words if word)

    return name


def _tile(constants: Mapping[str, Any], tile: tuple[int, int | None, int] | None) -> str:
    sizes: tuple[int, ...]
    if tile is not None:
        sizes = tile[0], constants["BLOCK_N"] if tile[1] is None else tile[1], tile[2]
    elif "BLOCK_ROWS" in constants:
        sizes = constants["BLOCK_ROWS"], constants["BLOCK_COLUMNS"]
    else:
        sizes = constants.get("BLOCK_M", 1), constants["BLOCK_N"], constants.get("BLOCK_K", 1)
    return "x".join(str(size) for size in sizes)
