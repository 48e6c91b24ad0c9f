"""``foretrace.predict``: the predictor, told by the fused modules' own dispatcher what they would run on a GPU.

The dispatcher needs neither the GPU nor Triton: an architecture and two versions are enough.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from foretrace.errors import MissingExtraError
from foretrace.knowledge.gpus import Gpu
from foretrace.prediction import predict as predictor
from foretrace.prediction.dispatch import FusedModules, FusedPlan, FusedProblem
from foretrace.prediction.predict import Prediction, find_gpu
from foretrace.prediction.variants import check_variant
from foretrace.prediction.work import Mode

__all__ = ["architecture_of", "fused_on", "need_torch", "predict"]


def predict(
    function: Callable[..., Any],
    inputs: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    gpu: str | Gpu,
    name: str | None = None,
    variant: str = "eager",
    mode: Mode = "forward",
    annotation: str | None = None,
    release: tuple[int, int] | None = None,
) -> Prediction:
    """Predict one step of ``function(*inputs, **keywords)`` on a GPU that need not be here.

    Args:
        function: a module or a function of tensors. Modules of `foretrace.fused` in it are predicted as their
            dispatcher would run them on that GPU.
        inputs: its arguments; tensors without data (``device="meta"``) do.
        keywords: its arguments by name, likewise.
        gpu: a GPU of the datasheet table, by any of its names (``"H200"``).
        name: what to call the program; by default what it is called in the code.
        variant: ``eager``, ``compile``, ``foretrace`` or ``liger`` (MLPs replaced by fused modules).
        mode: ``forward``, or ``train`` for forward and backward.
        annotation: the ``record_function`` label around the forward pass, if a recording would have one.
        release: the torch that will run there, ``(2, 11)``; by default the one installed here.

    Raises:
        InputError: the GPU or the variant is not known, the GPU's datasheet lacks a rate the program needs, or the
            program cannot run without data.
        MissingExtraError: torch is not installed.
    """
    sheet = find_gpu(gpu) if isinstance(gpu, str) else gpu
    check_variant(variant)
    need_torch()
    return predictor.predict(
        function,
        inputs,
        keywords,
        gpu=sheet,
        name=name,
        variant=variant,
        mode=mode,
        annotation=annotation,
        release=release,
        fused=fused_on(sheet, release),
    )


def need_torch() -> None:
    """Raise `MissingExtraError` where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("predicting traces the program with PyTorch, which is not installed: pip install torch")


def architecture_of(gpu: Gpu) -> str:
    """A GPU's architecture as dispatch calls it, ``sm_90``; the name of one that has no compute capability."""
    if gpu.compute_capability is None:
        return gpu.short
    return f"sm_{gpu.compute_capability.replace('.', '')}"


def fused_on(gpu: Gpu, release: tuple[int, int] | None) -> FusedModules:
    """What the predictor may ask of the fused modules, for a GPU and a release of torch (``None``: the one here).

    What an autotune found on a GPU that is here, and overrides, count for nothing: they belong to this machine.
    """
    from foretrace.fused.dispatch.environment import elsewhere

    environment, assumed = elsewhere(release)
    architecture = architecture_of(gpu)

    def plan(asked: FusedProblem) -> FusedPlan:
        from foretrace.capture.paces import paces_of
        from foretrace.fused.dispatch.choose import choose
        from foretrace.fused.dispatch.plans import coarse_rows
        from foretrace.fused.dispatch.tables import shipped
        from foretrace.fused.plan import Problem

        problem = Problem(**asdict(asked), architecture=architecture)
        problem = replace(problem, m=coarse_rows(problem.m))
        tables = shipped(architecture)
        found = choose(problem, environment, tables)
        names = found.expand.name, found.project.name, found.backward.name
        paces = paces_of(problem, found, tables, gpu)
        return FusedPlan(*names, found.save, found.reason, paces.beside_hopper, paces.expected_us)

    def swap(function: Callable[..., Any]) -> tuple[Callable[..., Any], str | None]:
        from foretrace.capture.swaps import note_of, swap_foretrace

        swapped = swap_foretrace(function)
        return swapped, note_of(swapped)

    return FusedModules(plan, swap, assumed)
