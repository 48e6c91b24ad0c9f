"""Every kernel and copy of a report as columns, so that tens of thousands stay small in a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrace.model.report import Report
from foretrace.model.roofline import RooflinePlot
from foretrace.report.html.work_tables import NOWHERE, Picks
from foretrace.report.text import clean
from foretrace.report.work import no_share

__all__ = ["kernel_columns", "transfer_columns"]

Item = TypeVar("Item")


def kernel_columns(report: Report, picks: Picks, plot: RooflinePlot) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The document (distinct words) and columns (numbers, NaN where unknown; positions of words) of a data block."""
    kernels = report.kernels
    document: dict[str, Any] = {}
    columns: dict[str, NDArray[Any]] = {}

    def word(key: str, value: Callable[[Any], str | None]) -> None:
        document[key], columns[key] = _words(kernels, value)

    def numbers(key: str, value: Callable[[Any], float | None]) -> None:
        columns[key] = _numbers(kernels, value)

    labels = {step.index: step.label for step in report.steps}
    columns["event"] = np.array([kernel.event for kernel in kernels], dtype=np.int64)
    word("short", lambda kernel: kernel.short_name)
    word("kind", lambda kernel: kernel.kind)
    word("op", lambda kernel: kernel.op)
    word("module", lambda kernel: kernel.module)
    word("phase", lambda kernel: kernel.phase)
    word("step", lambda kernel: None if kernel.step is None else labels.get(kernel.step, str(kernel.step)))
    word("bound", lambda kernel: None if kernel.bound == "unknown" else kernel.bound)
    word("peak", lambda kernel: kernel.peak)
    word("grid", lambda kernel: _sizes(kernel.grid))
    word("block", lambda kernel: _sizes(kernel.block))
    numbers("start", lambda kernel: kernel.start_us)
    numbers("duration", lambda kernel: kernel.duration_us)
    numbers("stream", lambda kernel: kernel.stream)
    numbers("registers", lambda kernel: kernel.registers)
    numbers("shared", lambda kernel: kernel.shared_memory_bytes)
    numbers("flops", lambda kernel: kernel.flops)
    numbers("bytes", lambda kernel: kernel.bytes)
    numbers("tflops", lambda kernel: kernel.achieved_tflops)
    numbers("gbps", lambda kernel: kernel.achieved_gbps)
    # A share that is none says why in its table; a point's details leave it out.
    numbers("of_peak", lambda kernel: None if no_share(kernel.of_peak, kernel.cache_assisted) else kernel.of_peak)
    columns["assisted"] = np.array([kernel.cache_assisted for kernel in kernels], dtype=np.uint8)
    columns["place"] = plot.place
    columns["intensity"] = plot.intensity
    columns["group"], columns["product"], columns["mover"] = picks.group, picks.product, picks.mover
    return document, columns


def transfer_columns(report: Report, picks: Picks) -> dict[str, NDArray[Any]]:
    """Events of the copies and memsets, and the row of their table that counts each."""
    return {
        "event": np.array([row.event for row in report.transfers], dtype=np.int64),
        "transfer": picks.transfer,
    }


def _sizes(sizes: Sequence[int] | None) -> str | None:
    return None if sizes is None else " × ".join(map(str, sizes))


def _words(items: Sequence[Item], value: Callable[[Item], str | None]) -> tuple[list[str], NDArray[np.uint32]]:
    """The distinct words in order of appearance, and the position of each item's; ``NOWHERE`` for none."""
    place: dict[str, int] = {}
    found = np.full(len(items), NOWHERE, dtype=np.uint32)
    for at, item in enumerate(items):
        said = value(item)
        if said is not None:
            found[at] = place.setdefault(said, len(place))
    return [clean(each) for each in place], found


def _numbers(items: Sequence[Item], value: Callable[[Item], float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if (each := value(item)) is None else each for item in items], dtype=np.float64)
