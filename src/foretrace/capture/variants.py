"""Variants and modes: how one program becomes the step that is timed and recorded."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foretrace.capture.swaps import HUB, Swap, check_hub, check_liger, hub_swap, note_of, swap_foretrace, swap_liger
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, InputError
from foretrace.prediction.program.walk import tensors_of

__all__ = [
    "CXX_COMPILERS",
    "MODES",
    "VARIANTS",
    "Variant",
    "check_variant",
    "compiles",
    "find_variant",
    "graphs_compiled",
    "leaves_of",
    "make_step",
    "refusal_of",
    "replays_graphs",
    "step_of",
    "transform",
]


@dataclass(frozen=True)
class Variant:
    """How a program is changed before it runs.

    ``compile_mode``: the ``mode`` argument of torch.compile; ``None``: it is not compiled. ``swap``: what puts other
    modules in the place of the program's. ``check``: raises where that cannot work on a device.
    """

    compile_mode: str | None = None
    swap: Swap | None = None
    check: Callable[[str], None] | None = None


VARIANTS: dict[str, Variant] = {
    "eager": Variant(),
    "compile": Variant("default"),
    "compile-max-autotune": Variant("max-autotune"),
    "compile-reduce-overhead": Variant("reduce-overhead"),
    "foretrace": Variant(swap=swap_foretrace),
    "foretrace+compile": Variant("default", swap=swap_foretrace),
    "liger": Variant(swap=swap_liger, check=check_liger),
}
MODES = ("forward", "train")

_PLAIN_ON_CPU = "on a CPU no kernel of foretrace can run: its modules compute with PyTorch's own operators there"

# What Inductor looks for on a CPU; torch/_inductor/config.py, cpp.cxx
CXX_COMPILERS = ("g++", "c++", "clang++", "icpx", "cl")


def find_variant(name: str) -> Variant:
    """A variant by its name, or ``hub:OWNER/NAME@VERSION``; raises :class:`InputError` for any other."""
    if name in VARIANTS:
        return VARIANTS[name]
    if name.startswith(HUB):
        check_hub(name)
        return Variant(swap=hub_swap(name))
    raise InputError(f"--variant {name} is not known; choose from {', '.join(VARIANTS)}, {HUB}OWNER/NAME@VERSION")


def compiles(variant: str) -> bool:
    """Whether a variant runs through torch.compile."""
    return find_variant(variant).compile_mode is not None


def check_variant(variant: str, device: str, which: Callable[[str], str | None] = shutil.which) -> str | None:
    """Say why a variant is not what its name promises on this device, if so.

    Raises :class:`InputError` for an unknown name, :class:`CaptureError` when torch.compile lacks its compiler or the
    device is not one it runs on, and :class:`MissingExtraError` when a package is missing.
    """
    found = find_variant(variant)
    if found.check is not None:
        found.check(device)
    if found.compile_mode is None:
        return _PLAIN_ON_CPU if device == "cpu" and found.swap is swap_foretrace else None
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
        if found.swap is swap_foretrace:
            return _PLAIN_ON_CPU
    elif sys.platform != "linux" and not _has_triton():
        raise CaptureError(f"{variant} on a GPU needs Triton, which has wheels for Linux only; use eager")
    elif not _has_triton():
        raise CaptureError(f"{variant} on a GPU needs Triton, which is not installed: pip install triton")
    return None


def _has_triton() -> bool:
    from importlib.util import find_spec

    return find_spec("triton") is not None


def make_step(
    program: Program, variant: str, mode: str, say: Callable[[str], None] = lambda _: None
) -> Callable[[], Any]:
    """Return the call that is one step of this program in this variant, as if no other had been before it.

    ``say`` gets what was replaced in the program, if anything was.
    """
    import torch

    if compiles(variant):
        torch._dynamo.reset()  # a variant must not inherit the graphs of the one before
    function = transform(program.function, variant)
    note = note_of(function)
    if note is not None:
        say(note)
    return step_of(program, function, mode, graphs=replays_graphs(variant))


def transform(function: Callable[..., Any], variant: str) -> Callable[..., Any]:
    """Return what a variant runs in place of ``function``; compiling happens at its first call.

    Raises :class:`InputError` where it should replace modules and finds none.
    """
    import torch

    found = find_variant(variant)
    if found.swap is not None:
        function = found.swap(function)
    if found.compile_mode is None:
        return function
    return torch.compile(function, mode=None if found.compile_mode == "default" else found.compile_mode)


def refusal_of(function: Callable[..., Any], variant: str) -> str | None:
    """Why a variant finds nothing to replace in a program, before anything is timed; ``None``: it does, or need not."""
    if variant not in VARIANTS and not variant.startswith(HUB):
        return None
    swap = find_variant(variant).swap
    if swap is None:
        return None
    try:
        swap(function)
    except InputError as error:
        return str(error)
    return None


def replays_graphs(variant: str) -> bool:
    """Whether a variant replays CUDA graphs by itself, on a GPU (``torch._inductor.list_mode_options()``)."""
    return find_variant(variant).compile_mode in ("reduce-overhead", "max-autotune")


def step_of(program: Program, function: Callable[..., Any], mode: str, *, graphs: bool = False) -> Callable[[], Any]:
    """Return the call that is one step: ``function`` on the inputs of ``program``, which returns its outputs.

    ``forward``: without gradients. ``train``: forward, then backward of the sum of all floating-point
    outputs; gradients are dropped before each step, so that no step pays for adding to those of the one
    before. ``graphs``: ``function`` replays CUDA graphs, and is told where a step begins.
    """
    import torch

    mark_begin = getattr(torch.compiler, "cudagraph_mark_step_begin", None)

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

    leaves = leaves_of(program)

    def training_step() -> Any:
        for leaf in leaves:
            leaf.grad = None
        result = forward()
        outputs = [tensor for tensor in tensors_of(result) if tensor.requires_grad]
        if not outputs:
            raise InputError("--mode train needs an output with gradients, and this program returns none")
        total = outputs[0].sum()
        for tensor in outputs[1:]:
            total = total + tensor.sum()
        total.backward()
        return result

    return training_step


def leaves_of(program: Program) -> list[Any]:
    """The tensors that get gradients: inputs first, then parameters."""
    leaves = [item for item in tensors_of((program.inputs, dict(program.keywords))) if item.requires_grad]
    parameters = getattr(program.function, "parameters", None)
    if callable(parameters):
        leaves += [item for item in parameters() if item.requires_grad]
    return leaves


def graphs_compiled() -> int | None:
    """How many graphs torch.compile made so far in this process; ``None`` if it was not used."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return None
    return int(dynamo.counters["stats"]["unique_graphs"])
