"""``predict``: what a program would do on a GPU that is not here, as rows, totals, a timeline and an expectation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from foretrace.analysis import explain
from foretrace.errors import InputError
from foretrace.knowledge import gpus
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.limits import COMPUTE_KINDS
from foretrace.model.expectations import Expectation
from foretrace.model.prediction import METADATA_KEY, PredictionInfo
from foretrace.model.report import Report
from foretrace.prediction.dispatch import FusedModules
from foretrace.prediction.plan import Planned
from foretrace.prediction.summary import expectation_of, summarise
from foretrace.prediction.timeline import Timeline, lay_out
from foretrace.prediction.variants import check_variant
from foretrace.prediction.work import Mode, Operator, Program
from foretrace.trace.load import parse
from foretrace.trace.table import Trace
from foretrace.trace.writer import encode_trace, write_trace

__all__ = ["Clock", "Prediction", "find_gpu", "predict", "predict_program"]


class Clock(Protocol):
    """A time model: `foretrace.prediction.clock`, or another one."""

    def schedule(self, program: Program, gpu: Gpu) -> list[list[Planned]]:
        """The rows the GPU would run for each item of ``program.work()``."""

    def host_us(self, operator: Operator) -> float:
        """CPU time of one operator itself, µs."""

    def launch_us(self, gpu: Gpu) -> float:
        """CPU time of one launch call, µs."""


@dataclass(eq=False)
class Prediction:
    """What a program would do on ``gpu``. ``plans``: the rows of each item of ``program.work()``, in its order."""

    program: Program
    gpu: Gpu
    plans: list[list[Planned]]
    timeline: Timeline

    @cached_property
    def info(self) -> PredictionInfo:
        """Rows and totals with their intervals, and what they rest on."""
        return summarise(self.program, self.gpu, self.plans, self.timeline)

    @property
    def name(self) -> str:
        """The prediction in a few words, where a recording has its path."""
        return f"{self.program.name} ({self.program.variant}, {self.program.mode}), predicted for {self.gpu.short}"

    @cached_property
    def meta(self) -> dict[str, Any]:
        """The top-level keys of the timeline's file; one of them says that nothing in it was measured."""
        return {METADATA_KEY: msgspec.to_builtins(self.info), **self.timeline.meta, "traceName": self.name}

    def trace(self) -> Trace:
        """The predicted step as a `Trace`, as reading the written timeline gives it."""
        return parse(encode_trace(self.timeline.events, self.meta), path=self.name)

    @cached_property
    def _report(self) -> Report:
        return explain(self.trace())

    def report(self) -> Report:
        """The explained timeline: ``trace.predicted`` is true, and ``prediction`` holds what `info` does."""
        return self._report

    def expectation(self) -> Expectation:
        """What a recording of this program on this GPU should hold: counts exactly, times within their intervals."""
        return expectation_of(self.info, self.report().verdict.bound)

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the timeline (``.json`` or ``.json.gz``).

        Raises `InputError` where it cannot be written, or the file exists and ``force`` was not given.
        """
        return write_trace(path, self.timeline.events, self.meta, force=force)


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
    fused: FusedModules | None = None,
) -> Prediction:
    """Predict one step of ``function(*inputs, **keywords)`` on a GPU that need not be here.

    Args:
        function: a module or a function of tensors.
        inputs, keywords: its arguments; tensors without data (``device="meta"``) do.
        gpu: a GPU of the datasheet table, by any of its names (``"H200"``).
        name: what to call the program; by default what it is called in the code.
        variant: ``eager``, ``compile``, ``foretrace`` or ``liger`` (gated MLPs replaced by fused modules).
        mode: ``forward``, or ``train`` for forward and backward.
        annotation: the ``record_function`` label around the forward pass, if a recording would have one.
        release: the torch that will run there, ``(2, 11)``; by default the one installed here.
        fused: what to ask about fused modules; `foretrace.predict` gives their own dispatcher.

    Raises:
        InputError: the GPU or the variant is not known, the GPU's datasheet lacks a rate the program needs, or the
            program cannot run without data.
        MissingExtraError: torch is not installed.
    """
    check_variant(variant)
    from foretrace.prediction.program import trace_program

    sheet = find_gpu(gpu) if isinstance(gpu, str) else gpu
    called = name or getattr(function, "__name__", None) or type(function).__name__
    program = trace_program(
        function,
        tuple(inputs),
        dict(keywords or {}),
        name=called,
        variant=variant,
        mode=mode,
        gpu=sheet,
        annotation=annotation,
        release=release,
        fused=fused,
    )
    return predict_program(program, sheet)


def predict_program(program: Program, gpu: Gpu, *, clock: Clock | None = None) -> Prediction:
    """Predict a program that was traced before; ``clock`` is foretrace's own time model unless another one is given.

    Raises `InputError` where the GPU's datasheet lacks a rate that one of the program's products needs.
    """
    if clock is None:
        from foretrace.prediction import clock as own

        clock = cast(Clock, own)
    _refuse_missing_rates(program, gpu)
    plans = clock.schedule(program, gpu)
    timeline = lay_out(program, gpu, plans, host_us=clock.host_us, launch_us=clock.launch_us(gpu))
    return Prediction(program, gpu, plans, timeline)


def find_gpu(name: str) -> Gpu:
    """The datasheet of a GPU by any of its names; raises `InputError` that lists close ones."""
    found = gpus.find(name)
    if found is not None:
        return found
    shorts = list(dict.fromkeys(gpu.short for gpu in gpus.all_gpus()))
    by_key = {_key(short): short for short in shorts}
    close = [by_key[key] for key in get_close_matches(_key(name), by_key, n=5, cutoff=0.5)]
    hint = f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(shorts)}"
    raise InputError(f"no datasheet of a GPU called {name!r} is known; {hint}")


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _refuse_missing_rates(program: Program, gpu: Gpu) -> None:
    for work in program.work():
        # What computes nothing, of an empty batch, needs no rate.
        if work.kind not in COMPUTE_KINDS or work.flops == 0:
            continue
        if not any(gpus.peak_for(gpu, work.dtype, units) for units in (True, False)):
            rates = ", ".join(key for key in gpu.peak_tflops if "_" not in key)
            raise InputError(
                f"the datasheet of {gpu.short} states no {work.dtype} rate, which {work.op} needs; "
                f"predict it in one that it states: {rates}"
            )
