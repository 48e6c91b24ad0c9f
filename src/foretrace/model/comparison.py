"""The comparison: what differs between a baseline trace and others, as plain data.

The units are those of the report: times in µs, sizes in bytes, shares 0..1. What could not be told is ``None``, with
the reason beside it, never zero. Fields may be added within ``foretrace.compare/1``, never changed or removed.

Every GPU row of the two compared steps stands in exactly one ``Place`` of a ``Pair``, so the counts and times of
its ``categories`` add up to the step's. Where one trace alone recorded the GPU its rows have no counterpart, and
there are no places.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from foretrace.model.shown import Shown

__all__ = [
    "CATEGORIES",
    "SCHEMA",
    "Category",
    "Change",
    "Comparison",
    "Conclusion",
    "Copy",
    "Gate",
    "Measure",
    "Metric",
    "Module",
    "OperatorChange",
    "Pair",
    "Place",
    "Row",
    "Side",
    "Speedup",
]

SCHEMA: Literal["foretrace.compare/1"] = "foretrace.compare/1"

CategoryName = Literal["identical", "predicted", "replaced", "fused", "split", "removed", "added"]
# In the order in which they are told.
CATEGORIES: tuple[CategoryName, ...] = ("identical", "predicted", "replaced", "fused", "split", "removed", "added")

Direction = Literal["same", "less", "more", "unknown"]
How = Literal["call path", "operator", "kernel name", "work", "parts in the name", "position", "order and kind", "none"]
Unit = Literal["us", "bytes", "count"]


class Measure(msgspec.Struct, kw_only=True):
    """A median with the interval its samples lie in; ``None`` throughout where nothing was measured.

    ``low`` and ``high`` are the quartiles from five samples on, the extremes of two to four, and ``None`` for one
    sample, whose spread is unknown.
    """

    median: float | None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    reason: str | None = None  # why something of it is unknown
    at_least: float | None = None  # the known part of a sum whose whole is unknown


class Change(msgspec.Struct, kw_only=True):
    """From the baseline to another trace. ``same``: equal, or a difference inside the spread over steps."""

    direction: Direction
    absolute: float | None = None
    relative: float | None = None  # of the baseline; 0.03 is 3 % more
    reason: str | None = None


class Metric(msgspec.Struct, kw_only=True):
    """One number a step for every trace, in the order of the files; ``changes`` is ``None`` for the baseline."""

    name: str
    unit: Unit
    values: list[Measure]
    changes: list[Change | None]


class Side(msgspec.Struct, kw_only=True):
    """One of the traces, and which of its steps speak for it."""

    label: str
    path: str
    predicted: bool
    gpus: list[str]
    torch_version: str | None
    rank: int | None
    steps: int
    like_steps: int  # steps that launch the same work as the one compared; kernel times are medians over them
    step: str | None  # label of the step that is compared
    cold: str | None  # label of a first step whose CPU times are left out
    recompiles: str | None  # what shows that it compiled while it was recorded
    warnings: list[str]  # health checks that are bad, and what of the trace is not compared


class Row(msgspec.Struct, kw_only=True):
    """One GPU row of the compared step: a kernel, a copy or a memset."""

    name: str
    short_name: str
    kind: str  # a kernel kind, or memcpy, memset
    op: str | None
    path: list[str]
    module: str | None
    us: float
    bytes: int | None
    flops: int | None
    event: int


class Place(msgspec.Struct, kw_only=True):
    """Rows of the baseline and rows of the other trace that do the same work, folded over ``count`` alike places.

    ``identical``: one name on both sides, but for the number that Inductor gives its kernels in turn. ``predicted``:
    a predicted row and the measured one of its kind, size and place; a predicted name is no more than a guess.

    ``a`` and ``b`` hold the rows of the first of them; ``a_us``, ``b_us``, ``a_bytes`` and ``b_bytes`` are sums over
    all. ``bytes_vanished``: logical bytes that no longer travel through memory; negative where more of them do.
    ``predicted_low_us`` and ``predicted_high_us``: the interval that the predicted side's rows were predicted with, as
    a sum over all. ``off``: on which side of its own interval each measured row of the place lies; ``None`` inside it.
    ``a_events`` and ``b_events``: the events of the rows of all ``count`` places, one place after the other, each as
    many as ``a`` and ``b`` hold rows.
    """

    category: CategoryName
    how: How
    title: str  # "gelu + mul → triton_poi gelu·mul", without the count
    count: int
    a: list[Row]
    b: list[Row]
    a_us: float
    b_us: float
    change: Change
    a_bytes: int | None = None
    b_bytes: int | None = None
    bytes_vanished: int | None = None
    off: Literal["below", "above"] | None = None
    predicted_low_us: float | None = None
    predicted_high_us: float | None = None
    a_events: list[int] = []
    b_events: list[int] = []


class Category(msgspec.Struct, kw_only=True):
    """Rows of the two steps that fall into one category."""

    category: CategoryName
    a_kernels: int
    b_kernels: int
    a_transfers: int  # memcpy and memset rows
    b_transfers: int
    a_us: float
    b_us: float


class OperatorChange(msgspec.Struct, kw_only=True):
    """A CPU operator (or a row of torch.compile) by name; calls and self CPU time of the compared steps."""

    name: str
    role: str  # view | allocation | query | compile | compute
    a_calls: int
    b_calls: int
    a_self_us: float | None
    b_self_us: float | None


class Copy(msgspec.Struct, kw_only=True):
    """Copies that only the other trace makes."""

    name: str
    op: str | None
    count: int
    us: float
    bytes: int | None
    why: str | None


class Module(msgspec.Struct, kw_only=True):
    """GPU time of one ``nn.Module`` in the compared steps; ``None`` where the trace does not name it."""

    name: str
    a_us: float | None
    b_us: float | None


class Speedup(msgspec.Struct, kw_only=True):
    """Baseline over other; ``ratio`` is ``None`` where it must not be quoted, for the reason given.

    Beside a ratio ``reason`` says what is unknown of it (the spread, with a single step).
    """

    of: str
    ratio: float | None
    reason: str | None = None


class Pair(msgspec.Struct, kw_only=True):
    """The baseline (``a``) against one other trace (``b``), both by their position among the files."""

    a: int
    b: int
    related: bool
    same_work: bool | None  # None: cannot be told
    aligned_gpu_share: float | None  # of the GPU time of both steps, what is paired on more than kind and order
    shared_operator_share: float | None
    notes: list[str]  # what a reader must know before any number
    withheld: str | None  # why no change of a time is told
    categories: list[Category]
    places: list[Place]
    operators: list[OperatorChange]
    copies: list[Copy]
    modules: list[Module]
    bytes_vanished: int | None
    speedups: list[Speedup]


class Gate(msgspec.Struct, kw_only=True):
    """One ``--fail-on`` condition against one of the other traces."""

    expression: str
    side: int
    state: Literal["held", "failed", "unknown"]
    detail: str


class Conclusion(msgspec.Struct, kw_only=True):
    """One line of the concluding table."""

    setup: str
    changed: list[str]
    same: list[str]


class Comparison(Shown, msgspec.Struct, kw_only=True):
    """Everything foretrace says about several traces side by side; the first is the baseline."""

    schema: Literal["foretrace.compare/1"] = SCHEMA
    sides: list[Side]
    metrics: list[Metric]
    pairs: list[Pair]
    conclusion: list[Conclusion]
    gates: list[Gate] = []
