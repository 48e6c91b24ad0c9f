"""What a reader must know of two recordings before any number: where they were made, and how far they align."""

from __future__ import annotations

from foretrace.comparison.places import Alignment, total
from foretrace.comparison.subject import Subject
from foretrace.knowledge import gpus
from foretrace.model.report import WHOLE_TRACE, Gpu
from foretrace.model.words import time

__all__ = ["how_aligned", "surroundings"]


def surroundings(a: Subject, b: Subject) -> list[str]:
    """Predicted traces, other GPUs, other versions, other ranks."""
    one, other = a.report.trace, b.report.trace
    notes = _of_which([info.predicted for info in (one, other)], "{} predicted, not measured.", ("is", "are"))
    before, after = ({_model(gpu) for gpu in info.gpus} for info in (one, other))
    if one.has.gpu != other.has.gpu:
        notes.append("Only one of the traces holds GPU work: GPU numbers cannot be compared.")
    elif before and after and before != after:
        names = (", ".join(sorted({gpu.name or "unnamed" for gpu in info.gpus})) for info in (one, other))
        notes.append(f"Different GPUs: {' against '.join(names)}.")
    if one.torch_version and other.torch_version and one.torch_version != other.torch_version:
        notes.append(f"Different torch versions: {one.torch_version} against {other.torch_version}.")
    if one.rank is not None and other.rank is not None and one.rank != other.rank:
        notes.append(
            f"Ranks {one.rank} and {other.rank}: the time of a communication kernel includes waiting for other ranks."
        )
    return notes


def _model(gpu: Gpu) -> str | None:
    """The datasheet's name of a device, so that two spellings of one model are one; else the trace's."""
    sheet = gpus.find(gpu.name, sms=gpu.sms, compute_capability=gpu.compute_capability)
    return gpu.name if sheet is None else sheet.name


def how_aligned(a: Subject, b: Subject, alignment: Alignment) -> list[str]:
    """What of the recordings kept rows from being aligned by call path."""
    both = (a, b)
    stepless = [bool(subject.steps) and subject.steps[0].label == WHOLE_TRACE for subject in both]
    notes = []
    if any(stepless) and not all(stepless):
        notes = _of_which(
            stepless,
            "{} no profiler steps: all of it is compared with one step, however often it ran.",
            ("has", "have"),
        )
    replays = [any(item.graph for item in subject.items) for subject in both]
    shapeless = [bool(subject.items) and not subject.report.trace.has.shapes for subject in both]
    notes += _of_which(
        replays,
        "{} a CUDA graph: its rows have no operators or shapes and are aligned by kernel name, order and kind.",
        ("replays", "replay"),
    )
    notes += _of_which(
        [bare and not replayed for bare, replayed in zip(shapeless, replays, strict=True)],
        "{} recorded without shapes: FLOPs, bytes and sizes are unknown.",
        ("was", "were"),
    )
    by_order = [spot for spot in alignment.spots if spot.how == "order and kind"]
    if by_order:
        us = total(alignment.a[i] for spot in by_order for i in spot.a)
        pairs = "1 pair" if len(by_order) == 1 else f"{len(by_order)} pairs"
        notes.append(f"Aligned on nothing but order and kind: {pairs} of kernels ({time(us)}).")
    return notes


def _of_which(holds: list[bool], sentence: str, verbs: tuple[str, str]) -> list[str]:
    """The sentence about the trace, or the two traces, of which it holds; none where it holds of neither."""
    if all(holds):
        return [sentence.format(f"Both traces {verbs[1]}")]
    which = ("The baseline", "The other trace")
    return [sentence.format(f"{name} {verbs[0]}") for name, true in zip(which, holds, strict=True) if true]
