"""The built-in workloads: the programs of the article, with its own shapes and annotations.

``matmul-add``
    ``torch.add(torch.matmul(x, w), b)``, all three ``[size, size]``, annotated ``matmul_add``.
``linear``
    ``nn.Linear(in_dim, out_dim)`` with bias on ``x [batch, in_dim]``, annotated ``linear_fwd``.
``mlp``
    GeGLU: ``down(gelu(gate(x)) * up(x))``, no bias, tanh GELU, ``x [batch, seq, dim]``, annotated
    ``mlp_fwd``.

On a GPU the defaults are the article's. A CPU would take minutes for its MLP, and has no fast bfloat16 as a
rule, so there a smaller MLP and fp32 are the defaults; a value that is given is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foretrace.errors import InputError

__all__ = ["DTYPES", "WORKLOADS", "Program", "Workload", "build", "choose_values"]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@dataclass(frozen=True)
class Program:
    """Something to run in every step: ``function(*inputs, **keywords)``, annotated when it has a name."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    annotation: str | None = None


@dataclass(frozen=True)
class Workload:
    """A built-in workload. ``cpu`` holds the defaults that differ on a CPU."""

    name: str
    help: str
    annotation: str
    defaults: Mapping[str, int]
    cpu: Mapping[str, int]
    make: Callable[[Any, Mapping[str, int], Any], tuple[Callable[..., Any], tuple[Any, ...]]]

    @property
    def flags(self) -> list[str]:
        """The flags it knows, as they are written."""
        return [f"--{name.replace('_', '-')}" for name in (*self.defaults, "dtype")]


def _matmul_add(torch: Any, sizes: Mapping[str, int], options: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    size = sizes["size"]
    x, w, b = (torch.randn(size, size, **options) for _ in range(3))

    def matmul_add(x: Any, w: Any, b: Any) -> Any:
        return torch.add(torch.matmul(x, w), b)

    return matmul_add, (x, w, b)


def _linear(torch: Any, sizes: Mapping[str, int], options: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    layer = torch.nn.Linear(sizes["in_dim"], sizes["out_dim"], **options)
    return layer, (torch.randn(sizes["batch"], sizes["in_dim"], **options),)


def _mlp(torch: Any, sizes: Mapping[str, int], options: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    nn, functional = torch.nn, torch.nn.functional
    dim, hidden = sizes["dim"], sizes["hidden"]

    class GeGLU(nn.Module):  # type: ignore[misc, name-defined]  # torch is loaded only here
        activation = "gelu_tanh"  # for variants that put a fused module in its place

        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(dim, hidden, bias=False, **options)
            self.up = nn.Linear(dim, hidden, bias=False, **options)
            self.down = nn.Linear(hidden, dim, bias=False, **options)

        def forward(self, x: Any) -> Any:
            return self.down(functional.gelu(self.gate(x), approximate="tanh") * self.up(x))

    return GeGLU(), (torch.randn(sizes["batch"], sizes["seq"], dim, **options),)


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            name="matmul-add",
            help="torch.add(torch.matmul(x, w), b), all [size, size]",
            annotation="matmul_add",
            defaults={"size": 64},
            cpu={},
            make=_matmul_add,
        ),
        Workload(
            name="linear",
            help="nn.Linear(in_dim, out_dim) on x [batch, in_dim]",
            annotation="linear_fwd",
            defaults={"batch": 1024, "in_dim": 32, "out_dim": 64},
            cpu={},
            make=_linear,
        ),
        Workload(
            name="mlp",
            help="GeGLU MLP, down(gelu(gate(x)) * up(x)), on x [batch, seq, dim]",
            annotation="mlp_fwd",
            defaults={"batch": 64, "seq": 128, "dim": 768, "hidden": 3072},
            cpu={"batch": 4},
            make=_mlp,
        ),
    )
}


def choose_values(
    workload: Workload, given: Mapping[str, int], dtype: str | None, device: str
) -> tuple[dict[str, int], str, list[str]]:
    """Complete what was given with the defaults for this device.

    Returns the sizes, the dtype's short name, and which defaults are smaller or other than on a GPU, in
    words. Raises :class:`InputError` for a flag this workload does not have, or a size below 1.
    """
    for name, value in given.items():
        if name not in workload.defaults:
            raise InputError(
                f"the workload {workload.name} has no --{name.replace('_', '-')}; it has {', '.join(workload.flags)}"
            )
        if value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    sizes = {**workload.defaults, **given}
    notes = []
    if device == "cpu":
        for name, value in workload.cpu.items():
            if name not in given:
                sizes[name] = value
                notes.append(f"{name} {value} instead of {workload.defaults[name]}")
        if dtype is None:
            notes.append("fp32 instead of bf16")
    return sizes, dtype or ("fp32" if device == "cpu" else "bf16"), notes


def build(workload: Workload, sizes: Mapping[str, int], dtype: str, device: str, *, train: bool) -> Program:
    """Make the modules and inputs on ``device``; with ``train`` the inputs get gradients as well.

    Raises :class:`InputError` for an unknown dtype, and for sizes that do not fit into memory.
    """
    import torch

    if dtype not in DTYPES:
        raise InputError(f"--dtype {dtype} is not known; choose from {', '.join(DTYPES)}")
    options = {"device": device, "dtype": getattr(torch, DTYPES[dtype])}
    try:
        function, inputs = workload.make(torch, sizes, options)
    except (RuntimeError, MemoryError, OverflowError, TypeError, ValueError) as error:
        shown = ", ".join(f"{name} {value}" for name, value in sizes.items())
        raise InputError(
            f"{workload.name} with {shown} in {dtype} cannot be made on {device}; give smaller sizes ({_reason(error)})"
        ) from error
    if train:
        inputs = tuple(tensor.requires_grad_() for tensor in inputs)
    return Program(function, inputs, {}, workload.annotation)


def _reason(error: BaseException) -> str:
    """The first line of torch's message without the place in its source, ``[enforce fail at …] … .``."""
    first = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[enforce fail at [^]]*\] [^.]*\. ", "", first) or type(error).__name__
