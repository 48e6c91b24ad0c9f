"""Variants and modes: how one program becomes the step that is timed and recorded."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, InputError

__all__ = ["CXX_COMPILERS", "MODES", "VARIANTS", "check_variant", "graphs_compiled", "make_step"]

# variant → the `mode` argument of torch.compile; None: not compiled
VARIANTS: dict[str, str | None] = {
    "eager": None,
    "compile": "default",
    "compile-max-autotune": "max-autotune",
    "compile-reduce-overhead": "reduce-overhead",
}
MODES = ("forward", "train")

# What Inductor looks for on a CPU; torch/_inductor/config.py, cpp.cxx
CXX_COMPILERS = ("g++", "c++", "clang++", "icpx", "cl")


def check_variant(variant: str, device: str, which: Callable[[str], str | None] = shutil.which) -> str | None:
    """Say why a variant is not what its name promises on this device, if so.

    Raises :class:`InputError` for an unknown name and :class:`CaptureError` when torch.compile lacks its
    compiler.
    """
    if variant not in VARIANTS:
        raise InputError(f"--variant {variant} is not known; choose from {', '.join(VARIANTS)}")
    if VARIANTS[variant] is None:
        return None
    if device == "cpu":
        compiler = os.environ.get("CXX")
        if not (which(compiler) if compiler else any(which(name) for name in CXX_COMPILERS)):
            looked = f"CXX={compiler}" if compiler else " or ".join(CXX_COMPILERS[:3])
            raise CaptureError(
                f"{variant} on a CPU needs a C++ compiler, and {looked} was not found; install one "
                "(Debian, Ubuntu: apt install g++), point CXX to it, or use --variant eager"
            )
        if variant == "compile-reduce-overhead":
            return "reduce-overhead means CUDA graphs, so on a CPU it compiles as the default mode does"
    elif sys.platform != "linux" and not _has_triton():
        raise CaptureError(f"{variant} on a GPU needs Triton, which has wheels for Linux only; use eager")
    elif not _has_triton():
        raise CaptureError(f"{variant} on a GPU needs Triton, which is not installed: pip install triton")
    return None


def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None


def make_step(program: Program, variant: str, mode: str) -> Callable[[], Any]:
    """Return the call that is one step, on this program.

    ``forward``: without gradients. ``train``: forward, then backward of the sum of all floating-point
    outputs; gradients are dropped before each step, so that no step pays for adding to those of the one
    before.
    """
    import torch

    function = program.function
    compile_mode = VARIANTS[variant]
    if compile_mode is not None:
        torch._dynamo.reset()  # a variant must not inherit the graphs of the one before
        function = torch.compile(function, mode=None if compile_mode == "default" else compile_mode)
    mark_begin = getattr(torch.compiler, "cudagraph_mark_step_begin", None)
    graphs = compile_mode == "reduce-overhead"

    def forward() -> Any:
        if graphs and mark_begin is not None:
            mark_begin()
        if program.annotation is None:
            return function(*program.inputs, **program.keywords)
        with torch.profiler.record_function(program.annotation):
            return function(*program.inputs, **program.keywords)

    if mode == "forward":

        def inference_step() -> Any:
            with torch.no_grad():
                return forward()

        return inference_step

    leaves = _leaves(program)

    def training_step() -> Any:
        for leaf in leaves:
            leaf.grad = None
        outputs = [tensor for tensor in _tensors(forward()) if tensor.requires_grad]
        if not outputs:
            raise InputError("--mode train needs an output with gradients, and this program returns none")
        total = outputs[0].sum()
        for tensor in outputs[1:]:
            total = total + tensor.sum()
        total.backward()
        return total

    return training_step


def _leaves(program: Program) -> list[Any]:
    leaves = [item for item in _tensors((program.inputs, dict(program.keywords))) if item.requires_grad]
    parameters = getattr(program.function, "parameters", None)
    if callable(parameters):
        leaves += [item for item in parameters() if item.requires_grad]
    return leaves


def _tensors(value: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists, dicts and dataclass-like outputs."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def graphs_compiled() -> int | None:
    """How many graphs torch.compile made so far in this process; ``None`` if it was not used."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return None
    return int(dynamo.counters["stats"]["unique_graphs"])
