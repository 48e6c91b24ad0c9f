"""Which events of a file stay, given the rows that do; and what is left of the text of those."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.slimming import LINKING_ARGS, SHAPE_ARGS, STACK_ARGS
from foretrace.knowledge.tracks import TRACK_CATEGORY
from foretrace.trace.table import Trace
from foretrace.view.raw import Mark, RawFile
from foretrace.view.slim_rows import Cut

__all__ = ["ended", "event_mask", "shortener"]

Bool = NDArray[np.bool_]

_ARROWS = ("s", "t", "f")
_METADATA = "M"
_HALVES = ("B", "E")
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
# What an event is: the number of its row's kind, or one of these.
_ARROW, _NAME, _OWN, _MARK, _UNREAD = range(100, 105)
_WORDS = {int(kind): kind.name.lower() for kind in RowKind}
_WORDS |= {_ARROW: "arrow", _NAME: "name", _OWN: "own", _MARK: "mark", _UNREAD: "unread"}


def event_mask(trace: Trace, raw: RawFile, cut: Cut, drop: Sequence[str]) -> tuple[Bool, Counter[str], Counter[str]]:
    """Which events stay (bool, one entry an event), and how many were kept and dropped by kind.

    Kinds are the names of ``RowKind`` in lower case, and the keys of ``MARK_WORDS``.
    """
    whole = not cut.windows
    stays = np.zeros(raw.total, dtype=np.bool_)
    what = np.full(raw.total, _UNREAD, dtype=np.uint8)
    stays[trace.event[cut.rows]] = True
    what[trace.event] = trace.kind
    arrows = []
    halves: defaultdict[tuple[Any, Any], list[int]] = defaultdict(list)
    for mark in raw.marks:
        place = mark.position
        if mark.ph in _HALVES:
            # The reader made one row of a pair, at the place of its first half; the second goes where the first does.
            begun = halves[mark.pid, mark.tid]
            if mark.ph == "B":
                begun.append(place)
            elif begun:
                first = begun.pop()
                stays[place], what[place] = stays[first], what[first]
            continue
        if what[place] != _UNREAD:
            continue  # the allocator's rows
        if mark.ph in _ARROWS:
            what[place] = _ARROW
            arrows.append(mark)
            continue
        name = mark.ph == _METADATA
        what[place] = _NAME if name else _MARK
        stays[place] = name or whole or (mark.ns is not None and cut.during(mark.ns))
    if whole:
        stays[what == _UNREAD] = True
    if "arrows" not in drop:
        kept = arrows if whole else _whole_arrows(trace, cut, arrows)
        stays[[mark.position for mark in kept]] = True
    own = [*raw.own, *(mark.position for mark in raw.marks if mark.cat == TRACK_CATEGORY)]
    stays[own], what[own] = False, _OWN
    return stays, _counted(what[stays]), _counted(what[~stays])


def _counted(what: NDArray[np.uint8]) -> Counter[str]:
    codes, counts = np.unique(what, return_counts=True)
    return Counter({_WORDS[code]: count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)})


def _whole_arrows(trace: Trace, cut: Cut, arrows: list[Mark]) -> list[Mark]:
    """The ends of arrows of which a beginning and an end lie on rows that stay."""
    lanes: dict[tuple[Any, Any], int] = {(lane.pid, lane.tid): number for number, lane in enumerate(trace.lanes)}
    holds = [_Lane.of(trace, cut, rows) for rows in _by_lane(trace)]
    ends: defaultdict[tuple[Any, Any], list[Mark]] = defaultdict(list)
    for mark in arrows:
        lane = lanes.get((-1 if mark.pid is None else mark.pid, -1 if mark.tid is None else mark.tid), -1)
        if lane >= 0 and mark.ns is not None and holds[lane].has(mark.ns):
            ends[mark.cat, mark.id].append(mark)
    return [mark for group in ends.values() if {"s", "f"} <= {mark.ph for mark in group} for mark in group]


def _by_lane(trace: Trace) -> list[NDArray[np.int64]]:
    """The rows of each lane by start."""
    order = np.lexsort((trace.start, trace.lane))
    edges = np.searchsorted(trace.lane[order], np.arange(1, len(trace.lanes)))
    return np.split(order, edges)


@dataclass(frozen=True)
class _Lane:
    """Where an arrow may end on a lane; all arrays by start of row."""

    starts: NDArray[np.int64]  # of all rows, ns
    kept: Bool
    kept_starts: NDArray[np.int64]
    reach: NDArray[np.int64]  # how far any kept row until then reaches

    @classmethod
    def of(cls, trace: Trace, cut: Cut, rows: NDArray[np.int64]) -> _Lane:
        kept = cut.inside[rows] & cut.rows[rows]
        own = rows[kept]
        reach = np.maximum.accumulate(trace.end[own]) if len(own) else trace.end[own]
        return cls(trace.start[rows], kept, trace.start[own], reach)

    def has(self, ns: int) -> bool:
        """Whether what an arrow's end at ``ns`` lies on stays: the row that begins there, else one around it."""
        first, last = (int(np.searchsorted(self.starts, ns, side)) for side in _SIDES)
        if first < last:
            return bool(self.kept[first:last].any())
        at = int(np.searchsorted(self.kept_starts, ns, side="right")) - 1
        return at >= 0 and bool(self.reach[at] >= ns)


def shortener(drop: Sequence[str]) -> Callable[[msgspec.Raw], msgspec.Raw] | None:
    """What takes the parts named out of the ``args`` of one event; None where nothing is to be taken out.

    All that stays is byte for byte as it was.
    """
    lost = [*(STACK_ARGS if "stacks" in drop else ()), *(SHAPE_ARGS if "shapes" in drop else ())]
    linking = frozenset(LINKING_ARGS)
    only = "args" in drop
    if not lost and not only:
        return None
    signs = [key.encode() for key in lost]
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    encode = msgspec.json.Encoder().encode

    def shortened(raw: msgspec.Raw) -> msgspec.Raw:
        text = bytes(raw)
        if not only and not any(sign in text for sign in signs):
            return raw
        event = decode(text)
        try:
            args = decode(event.get("args", msgspec.Raw(b"{}")))
        except msgspec.DecodeError:  # args that are no object
            return raw
        if only and bytes(event.get("ph", b"")) in (b'"X"', b'"B"', b'"E"'):
            left = {key: value for key, value in args.items() if key in linking}
        else:
            left = {key: value for key, value in args.items() if key not in lost}
        if len(left) == len(args):
            return raw
        if left:
            event["args"] = msgspec.Raw(encode(left))
        else:
            del event["args"]
        return msgspec.Raw(encode(event))

    return shortened


def ended(raw: msgspec.Raw) -> msgspec.Raw:
    """The event without its duration."""
    event = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    return msgspec.Raw(msgspec.json.encode({**event, "dur": 0}))
