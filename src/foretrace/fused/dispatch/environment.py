"""What this process can run: the versions of torch and Triton, found without importing Triton."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from typing import Final

from foretrace.errors import InputError
from foretrace.fused.dispatch.releases import LATER_TRITON, TRITON_OF_TORCH

__all__ = ["Environment", "capability", "current", "elsewhere", "named_architecture"]

# The GPUs whose names say it best, by their datasheets; of all others the compute capability is asked for.
_NAMED: Final[dict[str, str]] = {
    "a10": "sm_86",
    "a100": "sm_80",
    "a30": "sm_80",
    "a40": "sm_86",
    "b200": "sm_100",
    "gb200": "sm_100",
    "gh200": "sm_90",
    "h100": "sm_90",
    "h20": "sm_90",
    "h200": "sm_90",
    "h800": "sm_90",
    "l4": "sm_89",
    "l40": "sm_89",
    "l40s": "sm_89",
    "rtx 3090": "sm_86",
    "rtx 4090": "sm_89",
    "rtx 5090": "sm_120",
    "t4": "sm_75",
    "v100": "sm_70",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """``torch``, ``triton``: (major, minor), or ``None`` where it is not installed."""

    torch: tuple[int, int] | None
    triton: tuple[int, int] | None


@functools.cache
def current() -> Environment:
    """Return the versions of this process, looked up once."""
    return Environment(_version("torch"), _version("triton"))


def elsewhere(release: tuple[int, int] | None) -> tuple[Environment, str]:
    """Return the versions of another machine, and what was assumed of them.

    ``release``: of the torch that runs there, by default this one's. What is installed here says nothing of its Triton.
    """
    here = current()
    release = release or here.torch
    if release is None:
        return here, "it is not known which torch will run there"
    known = TRITON_OF_TORCH.get(release)
    triton = known or (LATER_TRITON if release > max(TRITON_OF_TORCH) else None)
    versions = f"torch {release[0]}.{release[1]}"
    if triton is None:
        return Environment(release, None), f"{versions} is older than any that the fused modules run with"
    if known is None:
        return Environment(release, triton), f"assumed: a Triton later than 3.7, as {versions} is expected to bring"
    return Environment(release, triton), f"assumed: Triton {triton[0]}.{triton[1]}, which {versions} brings"


def capability(architecture: str) -> tuple[int, int] | None:
    """Return compute capability of ``"sm_90"`` and the like, (9, 0); ``None`` for what is not an NVIDIA GPU."""
    matched = re.fullmatch(r"sm_(\d+)(\d)[af]?", architecture)
    return (int(matched[1]), int(matched[2])) if matched else None


def named_architecture(text: str) -> str:
    """Return ``"sm_90"`` for that, for ``"sm90"``, ``"sm_90a"`` and ``"H200"``; ``"gfx942"`` and ``"cpu"`` as they are.

    Raises `InputError` for anything else: of a GPU that is not known nothing can be said.
    """
    plain = text.strip().lower().removeprefix("nvidia ").removeprefix("geforce ") if isinstance(text, str) else ""
    matched = re.fullmatch(r"sm_?(\d{2,3})[af]?", plain)
    if matched:
        return f"sm_{matched[1]}"
    if plain == "cpu" or re.fullmatch(r"gfx[0-9a-f]{3,4}", plain):
        return plain
    if plain in _NAMED:
        return _NAMED[plain]
    raise InputError(
        f"architecture {text!r} is not known; give a compute capability as 'sm_90', 'gfx942' for AMD, 'cpu', or one of "
        f"{', '.join(name.upper() for name in _NAMED)}"
    )


def _version(name: str) -> tuple[int, int] | None:
    if importlib.util.find_spec(name) is None:
        return None
    # Triton's wheels go by several names (triton, pytorch-triton, …), all of which hold the module "triton".
    for distribution in (name, f"pytorch-{name}", f"{name}-nightly"):
        try:
            text = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        numbers = re.match(r"(\d+)\.(\d+)", text)
        return (int(numbers[1]), int(numbers[2])) if numbers else None
    return None
