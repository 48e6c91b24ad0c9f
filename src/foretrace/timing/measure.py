"""Time one call, or several against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from foretrace.timing.clocks import Clock, HostClock, Method
from foretrace.timing.spread import iqr, median

__all__ = ["Measurement", "interleave", "measure"]


@dataclass(frozen=True)
class Measurement:
    """Samples of one call, µs, in the order they were taken."""

    samples_us: tuple[float, ...]
    method: Method
    warmup: int

    @property
    def median_us(self) -> float:
        """The middle sample, µs."""
        return median(self.samples_us)

    @property
    def iqr_us(self) -> float | None:
        """Third minus first quartile, µs; ``None`` with fewer than two samples."""
        return iqr(self.samples_us)

    @property
    def runs(self) -> int:
        """How many samples there are."""
        return len(self.samples_us)


def measure(
    call: Callable[[], object],
    *,
    clock: Clock | None = None,
    warmup: int = 3,
    runs: int = 10,
    budget_s: float = 0.0,
    max_runs: int = 100,
) -> Measurement:
    """Time ``call``: ``warmup`` calls that do not count, then ``runs`` that do.

    With ``budget_s`` more samples are taken, up to ``max_runs``, as long as the expected total stays within
    that many seconds. Raises ``ValueError`` when ``runs`` < 1 or ``warmup`` < 0; what ``call`` raises passes
    through.
    """
    return interleave({"call": call}, clock=clock, warmup=warmup, runs=runs, budget_s=budget_s, max_runs=max_runs)[
        "call"
    ]


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    clock: Clock | None = None,
    warmup: int = 3,
    runs: int = 10,
    budget_s: float = 0.0,
    max_runs: int = 100,
    before: Callable[[], object] | None = None,
) -> dict[str, Measurement]:
    """Time several calls in turn (a, b, a, b, …), so that drifting clocks and heat touch all of them alike.

    Every other round goes backwards: the call that comes second would otherwise always find the caches as the first
    left them. Of more than two calls every second round also has a new order, the same in every run: a GPU at its power
    limit is slow for some time after a call that heats it, and who always comes next would pay for it.

    Arguments and errors as in :func:`measure`; ``budget_s`` covers all calls. ``before`` runs ahead of every timed call
    and is not timed. Sample number i of every call is of round i.
    """
    if runs < 1:
        raise ValueError("runs must be at least 1")
    if warmup < 0:
        raise ValueError("warmup must not be negative")
    host = HostClock()
    if clock is None:
        clock = host
    for call in calls.values():
        for _ in range(warmup):
            call()
    clock.finish()

    marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in calls}

    def one_round(number: int) -> None:
        for name in _order(list(calls), number):
            if before is not None:
                before()
            start = clock.mark()
            calls[name]()
            marks[name].append((start, clock.mark()))

    begin = host.mark()
    for number in range(runs):
        one_round(number)
    clock.finish()  # the spent time must include what the GPU still had queued
    spent_us = host.between_us(begin, host.mark())
    more = 0
    if spent_us > 0:
        more = min(max_runs - runs, int((budget_s * 1e6 - spent_us) * runs / spent_us))
    for number in range(runs, runs + max(more, 0)):
        one_round(number)
    clock.finish()
    return {
        name: Measurement(
            samples_us=tuple(clock.between_us(start, end) for start, end in pairs),
            method=clock.method,
            warmup=warmup,
        )
        for name, pairs in marks.items()
    }


def _order(names: list[str], number: int) -> list[str]:
    """Return who comes when in a round: two rounds are each other's reverse, and the first of them is shuffled."""
    pair, backwards = divmod(number, 2)
    if pair and len(names) > 2:
        Random(pair).shuffle(names)
    return names[::-1] if backwards else names
