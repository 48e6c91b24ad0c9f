"""What two traces ran, as far as side files, predictions and rows say: the same workload, which variant of it."""

from __future__ import annotations

from foretrace.comparison.places import Alignment
from foretrace.comparison.subject import Subject
from foretrace.knowledge.compiled import is_compile_row
from foretrace.model.words import signed, time

__all__ = ["expected_change", "expected_of", "may_drift", "other_parameters", "same_workload", "twins"]

_EAGER, _COMPILED = "eager", "compile"


def same_workload(a: Subject, b: Subject) -> bool:
    """Whether both side files name one workload; False where one of them is missing or names none."""
    return a.side is not None and b.side is not None and a.side.workload is not None and _names(a) == _names(b)


def _names(subject: Subject) -> str | None:
    return None if subject.side is None else subject.side.workload


def other_parameters(a: Subject, b: Subject) -> list[str]:
    """The parameters of one workload that differ, ``batch 4 → 1``; the variant and the seed are none."""
    if not same_workload(a, b) or a.side is None or b.side is None:
        return []
    one, other = ({**side.parameters, "mode": side.mode} for side in (a.side, b.side))
    return [
        f"{name} {one[name]} → {other[name]}"
        for name in one
        if one.get(name) is not None and other.get(name) is not None and one[name] != other[name]
    ]


def may_drift(a: Subject, b: Subject) -> bool:
    """Whether a difference of two unprofiled timings may be no more than two runs: no variant or size differs."""
    variants = [None if subject.side is None else subject.side.variant for subject in (a, b)]
    return (None in variants or variants[0] == variants[1]) and not other_parameters(a, b)


def twins(a: Subject, b: Subject, alignment: Alignment) -> bool:
    """Whether two recordings are known to be of one program: workload, sizes, variant, machine and what it ran."""
    if not same_workload(a, b) or other_parameters(a, b) or a.side is None or b.side is None:
        return False
    one, other = (
        (side.variant, side.device, side.machine, side.software.torch, [gpu.name for gpu in side.gpus])
        for side in (a.side, b.side)
    )
    if one != other or a.side.variant is None:
        return False
    if a.host.calls is None or a.host.calls != b.host.calls:
        return False
    return all(spot.category == "identical" for spot in alignment.spots)


def expected_of(a: Subject, b: Subject, alignment: Alignment) -> str | None:
    """``predicted for compile, recorded eager`` where a prediction is of another variant than the recording.

    The side file and the prediction name their variants. A recording without a side file is compiled where rows of
    torch.compile say so, and another variant as well where kernels of one trace are fused in the other.
    """
    told, seen = (a, b) if a.report.trace.predicted else (b, a)
    if told.report.trace.predicted == seen.report.trace.predicted:
        return None
    guess = (told.report.prediction.variant if told.report.prediction is not None else "") or _shown(told)
    named = seen.side.variant if seen.side is not None else None
    real = named or _shown(seen)
    if named is None and guess != _EAGER and real != _EAGER:
        return None  # of compiled variants the rows do not tell which
    if guess == real:
        fused = any(spot.category in ("fused", "split") for spot in alignment.spots)
        if named is not None or not fused:
            return None
        return f"predicted for {guess}, recorded with other kernels fused"
    return f"predicted for {guess}, recorded {real}"


def _shown(subject: Subject) -> str:
    """The variant that the rows of a step show."""
    compiled = any(is_compile_row(name) for name in subject.host.calls or ())
    return _COMPILED if compiled else _EAGER


def expected_change(a: Subject, b: Subject, expected: str, before: float, after: float) -> str:
    """The change of GPU time (µs) that a prediction for another variant promises, with its interval."""
    said = f"{expected[0].upper()}{expected[1:]}: the expected change of GPU time is "
    said += f"{time(before)} → {time(after)} ({signed(after / before - 1)})"
    told = (a if a.report.trace.predicted else b).report.prediction
    if told is not None:
        said += f"; the predicted time lies between {time(told.gpu_busy_low_us)} and {time(told.gpu_busy_high_us)}"
    return f"{said}."
