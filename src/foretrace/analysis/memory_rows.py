"""The allocator's rows of a trace as blocks: when each was given out, to which operator, and when it came back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.allocator_rows import device_name
from foretrace.knowledge.kineto import RowKind, step_number
from foretrace.knowledge.views import effect
from foretrace.trace.ids import read_args
from foretrace.trace.table import Trace

__all__ = ["Ledger", "Place", "ledgers", "places"]

Int64 = NDArray[np.int64]


# Sizes beyond this (256 TiB) are damage; sums of those below stay within 64 bits.
_MOST = 1 << 48
_Size = Annotated[int, msgspec.Meta(ge=-_MOST, le=_MOST)]


class _Args(msgspec.Struct, gc=False):
    moved: _Size | None = msgspec.field(name="Bytes", default=None)
    address: int | None = msgspec.field(name="Addr", default=None)
    allocated: _Size | None = msgspec.field(name="Total Allocated", default=None)
    reserved: _Size | None = msgspec.field(name="Total Reserved", default=None)
    kind: int | None = msgspec.field(name="Device Type", default=None)
    index: int | None = msgspec.field(name="Device Id", default=None)


_decode = msgspec.json.Decoder(_Args).decode


@dataclass(eq=False)
class Ledger:
    """The rows of one device's allocator in one process, in order of time; one entry of each array a row.

    Attributes:
        device: ``cuda:0``, ``cpu``.
        pid: the process.
        rows: row numbers in the trace.
        moved: bytes given out (positive) or taken back (negative).
        allocated: bytes in use after the row; None where the recording does not say it.
        reserved: bytes the allocator holds after the row; None where it does not say it, or reserves nothing.
        died: for a row that gave memory out, the position of the row that took it back; -1 where none did.
        start: time of each row, ns.
        unread: rows that could not be used.
    """

    device: str
    pid: int | str
    rows: Int64
    moved: Int64
    allocated: Int64 | None
    reserved: Int64 | None
    died: Int64
    start: Int64
    unread: int = 0

    @cached_property
    def jumps(self) -> int:
        """Rows whose total does not follow from the one before: rows were lost between them."""
        if self.allocated is None:
            return 0
        return int((self.allocated[1:] != self.allocated[:-1] + self.moved[1:]).sum())

    def level(self, position: int) -> int | None:
        """Bytes in use just before the row at ``position`` (which may be one past the last)."""
        if self.allocated is None:
            return None
        if position == 0:
            return int(self.allocated[0] - self.moved[0])
        return int(self.allocated[position - 1])

    def alive(self, position: int) -> Int64:
        """Positions of the recorded allocations that are in use right after the row at ``position``."""
        born = np.flatnonzero(self.moved[: position + 1] > 0)
        died = self.died[born]
        return born[(died < 0) | (died > position)].astype(np.int64)


@dataclass
class _Read:
    rows: list[int] = field(default_factory=list)
    args: list[_Args] = field(default_factory=list)
    unread: int = 0


def ledgers(trace: Trace) -> list[Ledger]:
    """The allocators of a trace, the CPU's last; a row without its bytes, its address or its device is left out."""
    found: dict[tuple[int | str, str], _Read] = {}
    unread = 0
    rows = trace.rows(RowKind.MEMORY)
    rows = rows[np.lexsort((trace.event[rows], trace.start[rows]))]
    for row in rows.tolist():
        args = _read(trace.arguments[row])
        if args is None or not args.moved or args.address is None or args.kind is None:
            unread += 1
            continue
        device = device_name(args.kind, -1 if args.index is None else args.index)
        read = found.setdefault((trace.lanes[trace.lane[row]].pid, device), _Read())
        read.rows.append(row)
        read.args.append(args)
    made = [_ledger(trace, device, pid, read) for (pid, device), read in found.items()]
    made.sort(key=lambda ledger: (ledger.device == "cpu", str(ledger.pid), ledger.device))
    if made:
        made[0].unread = unread
    return made


def _read(raw: object) -> _Args | None:
    try:
        return _decode(raw)  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        pass
    decoded = raw if isinstance(raw, dict) else (read_args(raw) if raw else None)
    try:
        return msgspec.convert(decoded, _Args)
    except msgspec.ValidationError:
        return None


def _ledger(trace: Trace, device: str, pid: int | str, read: _Read) -> Ledger:
    rows = np.array(read.rows, dtype=np.int64)
    moved = np.array([args.moved for args in read.args], dtype=np.int64)
    died = np.full(len(rows), -1, dtype=np.int64)
    open_at: dict[int, int] = {}
    for position, args in enumerate(read.args):
        address, size = args.address, args.moved
        assert address is not None
        assert size is not None
        # An address that is given out again was taken back before, even where that row was lost.
        before = open_at.pop(address, None)
        if before is not None:
            died[before] = position
        if size > 0:
            open_at[address] = position
    reserved = _column(args.reserved for args in read.args)
    return Ledger(
        device=device,
        pid=pid,
        rows=rows,
        moved=moved,
        allocated=_column(args.allocated for args in read.args),
        # An allocator that keeps no cache writes zeros (the CPU's).
        reserved=None if reserved is None or not reserved.any() else reserved,
        died=died,
        start=trace.start[rows],
    )


def _column(values: Iterable[int | None]) -> Int64 | None:
    listed = list(values)
    return None if None in listed else np.array(listed, dtype=np.int64)


@dataclass(frozen=True)
class Place:
    """Where an allocator row stands: row numbers of operators, -1 for none.

    ``op``: the innermost operator that computes (not the ``aten::empty`` in it). ``within``: the operator that the
    program called. ``host``: the innermost CPU row of any kind.
    """

    op: int
    within: int
    host: int


def places(trace: Trace, rows: Int64) -> list[Place]:
    """The place of each row, by its thread and time."""
    host = _around(trace, rows)
    known: dict[int, Place] = {-1: Place(-1, -1, -1)}
    found = []
    for row in host.tolist():
        place = known.get(row)
        if place is None:
            place = known[row] = _place(trace, row)
        found.append(place)
    return found


def _around(trace: Trace, rows: Int64) -> Int64:
    """The innermost CPU row of its own thread around each row; -1 for none."""
    around = np.full(len(rows), -1, dtype=np.int64)
    order, parent, end = trace.forest.order, trace.forest.parent, trace.end
    lane_of_host, lane = trace.lane[order], trace.lane[rows]
    for number in np.unique(lane).tolist():
        host = order[lane_of_host == number]  # by start, parents first
        mine = np.flatnonzero(lane == number)
        at = np.searchsorted(trace.start[host], trace.start[rows[mine]], side="right") - 1
        for position, last, row in zip(mine.tolist(), at.tolist(), rows[mine].tolist(), strict=True):
            current = int(host[last]) if last >= 0 else -1
            when = int(trace.start[row])
            while current >= 0 and end[current] < when:
                current = int(parent[current])
            around[position] = current
    return around


def _place(trace: Trace, host: int) -> Place:
    op = within = -1
    parent = trace.forest.parent
    current = host
    while current >= 0:
        name = trace.name(current)
        if trace.kind[current] == RowKind.OPERATOR and step_number(name) is None:
            # Where nothing that computes is around an allocation, the outermost one is what the program called.
            if op < 0 or effect(trace.name(op)) == "allocation":
                op = current
            if not name.startswith("aten::"):
                within = current if within < 0 else within
                break
            within = current
        elif within >= 0 and trace.kind[current] != RowKind.PYTHON:
            break
        current = int(parent[current])
    return Place(op, within, host)
