"""What all suites share: the device, the time left, the result file, and one case measured from end to end."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fused_bench.case import Case
from fused_bench.contest import Rounds, capture, memory, time_calls, wall
from fused_bench.deadline import Deadline
from fused_bench.device import Device
from fused_bench.document import Document, ratios
from fused_bench.entrants import Entrant
from fused_bench.load import Reading, reader_for, show_load
from fused_bench.operands import make_operands
from fused_bench.prepare import Prepared, prepare_all, said
from fused_bench.tables import case_table

__all__ = ["CLOCKS", "Session", "measure_case"]

# In the order in which a table shows them; the first one there is the one that ratios are shown for.
CLOCKS = ("graph", "events", "wall", "host")
# They measure which code is fastest; beside other processes they would leave bad choices in the caches.
_MEASURING = ("max-autotune", "max-autotune-tma", "quack", "liger-fused")
# A back-to-back loop should take some 10 ms, so that its one synchronisation does not count.
_LOOP_US = 10_000.0
_MOST_ITERATIONS = 50


@dataclass
class Session:
    """``only``: names of the entrants wanted, all if empty; ``without``: those not wanted.

    ``part``: this process's share of the cases, (number, of how many). ``preparing``: its share of the entrants, in a
    process that fills the compilers' caches and times nothing.
    """

    device: Device
    document: Document
    deadline: Deadline
    rounds: Rounds
    dtype: str = "bf16"
    seed: int = 0
    shapes: list[tuple[int, int, int]] | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()
    variants: bool = False
    part: tuple[int, int] = (0, 1)
    preparing: tuple[int, int] | None = None
    say: Callable[[str], None] = print
    read: Callable[[], Reading] | None = field(default=None)

    def __post_init__(self) -> None:
        if self.read is None:
            self.read = reader_for(self.device.name)

    def wanted(self, case: Case, entrants: Sequence[Entrant]) -> list[Entrant]:
        """Those asked for, and eager, since the limit of errors is its; in a process that prepares, its share."""
        asked = [one for one in entrants if one.name == "eager" or self._wants(one.name)]
        if self.preparing is None:
            return asked
        number, of = self.preparing
        return [one for one in asked if _owner(one, case) % of == number and one.name not in _MEASURING]

    def _wants(self, name: str) -> bool:
        return name not in self.without and (not self.only or name in self.only)

    def share(self, cases: Sequence[Case]) -> list[Case]:
        """This process's part of the cases."""
        index, of = self.part
        return list(cases)[index::of]

    def each(self, suite: str, cases: Sequence[Case], run: Callable[[Case], dict[str, Any] | None]) -> None:
        """Run every case while time is left. One that fails as a whole is recorded as skipped, and the rest goes on."""
        for case in self.share(cases):
            if self.deadline.over:
                self.document.skip(suite, case.name, "the time budget was spent")
                continue
            self.say(f"{case.name}, begun after {self.deadline.spent_s:.0f} s")
            try:
                record = run(case)
            except Exception as error:  # out of memory for the operands or the reference
                self.say(f"{case.name}: {said(error)}")
                self.document.skip(suite, case.name, said(error))
                record = None
            if record is not None:
                self.document.add(suite, record)
            self.device.release()


def _owner(entrant: Entrant, case: Case) -> int:
    """A number that entrants which compile the same kernels share, so that one process compiles each of them once.

    torch.compile makes code for every case anew; our kernels are the same for many shapes.
    """
    what = case.name if entrant.compiles else f"{case.operation} {case.activation} {case.mode} {case.dtype}"
    return zlib.crc32(f"{entrant.name} {what}".encode())


def measure_case(
    session: Session,
    case: Case,
    entrants: Sequence[Entrant],
    *,
    clocks: Sequence[str] = ("graph", "events"),
    with_memory: bool = False,
    wall_only: Sequence[str] | None = None,
    show: bool = True,
) -> dict[str, Any] | None:
    """Check and time all entrants of one case; ``None`` in a process that only fills the compilers' caches.

    ``wall_only``: entrants for which the back-to-back loop is worth its time.
    """
    device, rounds = session.device, session.rounds
    wanted = session.wanted(case, entrants)
    if not wanted:
        return None
    operands = make_operands(case, device.name, session.seed)
    prepared = prepare_all(wanted, case, operands, device, check=session.preparing is None)
    if session.preparing:
        return None
    record: dict[str, Any] = {
        "name": case.name,
        **case.as_dict(),
        "flops": case.flops,
        "entrants": {one.name: one.result for one in prepared},
        "load": {},
    }
    if with_memory:
        memory(prepared, device)
    steps = {one.name: one.step for one in prepared if one.step is not None}
    if "events" in clocks:
        _time(record, "events", *time_calls(steps, device, rounds, read=session.read))
    if "graph" in clocks:
        replays = capture(prepared, device)
        _time(record, "graph", *time_calls(replays, device, rounds, read=session.read))
        del replays
    if "wall" in clocks:
        chosen = {name: step for name, step in steps.items() if wall_only is None or name in wall_only}
        _time(record, "wall", wall(chosen, device, rounds, _iterations(record, device, chosen)), None)
    record["ratios"] = ratios(record["entrants"], "foretrace", CLOCKS)
    _forget(prepared)
    if show:
        running = [f"{clock}: {show_load(load)}" for clock, load in record["load"].items() if load is not None]
        session.say("\n".join([case_table(record), *running, ""]))
    return record


def _time(record: dict[str, Any], clock: str, timings: dict[str, dict[str, Any]], load: dict[str, Any] | None) -> None:
    for name, timing in timings.items():
        record["entrants"][name][clock] = timing
    record["load"][clock] = load


def _iterations(record: dict[str, Any], device: Device, steps: Mapping[str, Callable[[], object]]) -> int:
    """How many calls make a loop long enough, by what one is known to take on the GPU, or takes now."""
    timings = [result.get(clock) for result in record["entrants"].values() for clock in ("events", "graph")]
    known = [timing["median_us"] for timing in timings if timing]
    if not known and steps:
        device.synchronize()
        start = time.perf_counter()
        next(iter(steps.values()))()
        device.synchronize()
        known = [max((time.perf_counter() - start) * 1e6, 1.0)]
    return int(min(_MOST_ITERATIONS, max(3, _LOOP_US / min(known)))) if known else _MOST_ITERATIONS


def _forget(prepared: Sequence[Prepared]) -> None:
    """Let go of gradients, graphs' inputs and weights, so that the next case has the memory."""
    for one in prepared:
        one.drop_gradients()
        one.step, one.leaves = None, ()
