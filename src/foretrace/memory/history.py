"""What the allocator's history says: the most that was held at once and by whom, failed requests, cache flushes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from foretrace.knowledge.memory_texts import MOST_ORIGINS, OTHER_PLACES, RING_LEAST, RING_STEP
from foretrace.knowledge.snapshots import LARGEST_BYTES, LATEST_US
from foretrace.memory.frames import module_of, own_lines, where
from foretrace.memory.replay import NUMBER, Ints, Replay, entries_of, replay
from foretrace.memory.snapshot import NO_STACK, Annotation, Block, History, Snapshot
from foretrace.model.memory import Alive, HistoryInfo, OutOfMemory, Peak

__all__ = ["Flush", "flushes", "history_info", "peak", "replayed"]

_GIVES_BACK: Final = ("segment_free", "segment_unmap")
_TAKES: Final = ("segment_alloc", "segment_map")


@dataclass(frozen=True, slots=True)
class Flush:
    """Segments given back to the device just before more was taken from it, or before a request failed.

    ``certain``: True where both entries have the same stack, which is so when one request emptied the cache; False
    where the stacks differ (`torch.cuda.empty_cache()` and then an allocation); None where none were recorded.
    """

    entry: int
    time_us: int | None
    segments: int
    bytes: int
    wanted_bytes: int
    failed: bool
    certain: bool | None
    stack: list[str]


def replayed(snapshot: Snapshot, device: int) -> Replay | None:
    """The device's history, replayed, for `peak` and `history_info` to share; None where there is none.

    Raises `InputError` for sizes beyond reason.
    """
    history = snapshot.history(device)
    return None if history is None else replay(history, _live(snapshot, device), snapshot.path)


def peak(snapshot: Snapshot, device: int, done: Replay | None = None) -> Peak | None:
    """The most that was held at once within the history, in bytes asked for, and by whom; the first such moment.

    ``alive`` and ``unexplained_bytes`` add up to it. Allocations are joined by the line of the program and the
    innermost annotation that was open when they were made; one from before the history has its live block's stack,
    and is unexplained without one. From the `MOST_ORIGINS`-th on, origins are one item, `OTHER_PLACES`.

    None where the device has no history, or one recorded without allocations or frees. ``done``: what `replayed` gave,
    where it is at hand. Raises `InputError` for sizes beyond reason.
    """
    history = snapshot.history(device)
    done = done or replayed(snapshot, device)
    if history is None or done is None:
        return None
    if done.lost and not (_has(history, "alloc") and _has(history, "free_completed", "free_requested")):
        return None
    place = int(np.argmax(done.held))
    # What was held before the first entry was held up to it.
    time = _time(history, max(place - 1, 0))
    last = _times(history)[1]
    annotations = _Open(snapshot.annotations, device)
    alive, unexplained = _origins(snapshot, history, done, place, annotations)
    reached = NO_STACK if place == 0 else int(history.stack[place - 1])
    return Peak(
        requested_bytes=int(done.held[place]),
        time_us=time,
        ago_us=None if time is None or last is None else last - time,
        complete=_whole(snapshot, history, done),
        during=None if time is None else annotations.name(annotations.at(np.array([time]))[0]),
        unexplained_bytes=unexplained,
        alive=alive,
        reached_by=None if reached == NO_STACK else where(snapshot.stacks.frames(reached)),
        reached_with_bytes=None if place == 0 else int(history.size[place - 1]),
    )


def history_info(snapshot: Snapshot, device: int, done: Replay | None = None) -> HistoryInfo | None:
    """What was recorded of a device's past. None where neither entries nor a live block's stack were.

    ``segment_allocs`` and ``segment_frees`` count mapped and unmapped pages of expandable segments too.

    ``truncated``: the allocator keeps the last `max_entries` and does not record how many that is. False where the
    history begins with nothing reserved; True where a live block or segment has a stack, so that recording was on
    when it was made, and yet no entry, or where the number of entries is as round as such a limit is; else None, as
    a history that began late and one whose beginning was overwritten look alike. ``done``: as for `peak`.
    """
    history = snapshot.history(device)
    live = _live(snapshot, device)
    own_stack = sum(block.stack != NO_STACK for block in live)
    done = done or replayed(snapshot, device)
    if history is None or done is None:
        if not own_stack:
            return None
        return HistoryInfo(
            entries=0, span_us=None, truncated=None, live_blocks=len(live), live_blocks_with_stack=own_stack,
            out_of_memory=[], segment_allocs=0, segment_frees=0,
        )  # fmt: skip
    first, last = _times(history)
    return HistoryInfo(
        entries=len(history),
        span_us=None if first is None or last is None else last - first,
        truncated=_truncated(snapshot, history, done),
        live_blocks=len(live),
        live_blocks_with_stack=done.live_with_stack,
        out_of_memory=[_failed(snapshot, history, int(i)) for i in np.flatnonzero(entries_of(history, "oom"))],
        segment_allocs=int(entries_of(history, *_TAKES).sum()),
        segment_frees=int(entries_of(history, *_GIVES_BACK).sum()),
    )


def flushes(snapshot: Snapshot, device: int) -> list[Flush]:
    """Each time segments were given back right before more was taken, or before a request failed, in order.

    That is what a failing `cudaMalloc` makes the allocator do, and it waits for the device meanwhile; a program that
    empties the cache itself leaves the same entries, but with other stacks. No entry names the reason.
    """
    history = snapshot.history(device)
    if history is None:
        return []
    back = entries_of(history, *_GIVES_BACK)
    edge = np.diff(back.astype(np.int8), prepend=np.int8(0), append=np.int8(0))
    starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
    wants = entries_of(history, *_TAKES, "oom")
    found = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end == len(history) or not wants[end]:
            continue
        stack, asking = int(history.stack[end - 1]), int(history.stack[end])
        recorded = NO_STACK not in (stack, asking)
        found.append(
            Flush(
                entry=start,
                time_us=_time(history, start),
                segments=end - start,
                bytes=sum(history.size[start:end].tolist()),
                wanted_bytes=int(history.size[end]),
                failed=int(history.action[end]) == NUMBER["oom"],
                certain=stack == asking if recorded else None,
                stack=own_lines(snapshot.stacks.frames(asking)),
            )
        )
    return found


def _live(snapshot: Snapshot, device: int) -> list[Block]:
    return [
        block
        for segment in snapshot.segments
        if segment.device == device
        for block in segment.blocks
        if block.state != "free"
    ]


def _has(history: History, *actions: str) -> bool:
    return bool(entries_of(history, *actions).any())


def _time(history: History, entry: int) -> int | None:
    return int(history.time_us[entry]) or None


def _times(history: History) -> tuple[int | None, int | None]:
    """The earliest and the latest time; clocks are set back at times, so that these need not be the outer entries'."""
    known = history.time_us[history.time_us != 0]
    return (int(known.min()), int(known.max())) if len(known) else (None, None)


def _failed(snapshot: Snapshot, history: History, entry: int) -> OutOfMemory:
    free = int(history.address[entry])
    return OutOfMemory(
        bytes=int(history.size[entry]),
        device_free_bytes=None if free > LARGEST_BYTES else free,
        time_us=_time(history, entry),
        stack=own_lines(snapshot.stacks.frames(int(history.stack[entry]))),
    )


def _reserved_before(snapshot: Snapshot, history: History) -> int:
    """What was reserved before the first entry: the final state less what the entries took and gave back."""
    taken: int = sum(history.size[entries_of(history, *_TAKES)].tolist())
    given: int = sum(history.size[entries_of(history, *_GIVES_BACK)].tolist())
    return sum(segment.size for segment in snapshot.segments if segment.device == history.device) - taken + given


def _whole(snapshot: Snapshot, history: History, done: Replay) -> bool:
    nothing_before = not bool((done.began == -1).any()) and _reserved_before(snapshot, history) == 0
    return nothing_before and not done.lost and not done.later


def _truncated(snapshot: Snapshot, history: History, done: Replay) -> bool | None:
    if _whole(snapshot, history, done):
        return False
    if bool(((done.began == -1) & (done.stack != NO_STACK)).any()):
        return True
    made = set(history.address[entries_of(history, *_TAKES)].tolist())
    if any(
        segment.stack != NO_STACK and segment.address not in made
        for segment in snapshot.segments
        if segment.device == history.device and not segment.expandable
    ):
        return True
    entries = len(history)
    round_number = entries % RING_STEP == 0 or entries & (entries - 1) == 0
    return True if entries >= RING_LEAST and round_number else None


class _Open:
    """Which annotation of a device is the innermost at a time: of those that are open, the one that began last.

    Between two times at which one begins or ends the answer is the same, so that it is worked out once for each.
    """

    def __init__(self, annotations: Sequence[Annotation], device: int) -> None:
        mine = [a for a in annotations if a.device in (None, device) and 0 <= a.start_us <= LATEST_US]
        self.names = [a.name for a in mine]
        never = LATEST_US + 2
        # The µs in which one ends is still its own.
        ends = [never if a.end_us is None else max(0, min(a.end_us + 1, never)) for a in mine]
        self.bounds: list[int] = sorted({a.start_us for a in mine} | set(ends) - {never})
        self.inner: list[int] = [-1]
        starting = sorted(range(len(mine)), key=lambda number: mine[number].start_us, reverse=True)
        opened: list[tuple[int, int, int]] = []
        for bound in self.bounds:
            while starting and mine[starting[-1]].start_us <= bound:
                number = starting.pop()
                heapq.heappush(opened, (-mine[number].start_us, ends[number], number))
            while opened and opened[0][1] <= bound:
                heapq.heappop(opened)
            self.inner.append(opened[0][2] if opened else -1)

    def at(self, times: Ints) -> Ints:
        """The number of the innermost annotation at each time, -1 for none."""
        return np.array(self.inner, dtype=np.int64)[
            np.searchsorted(np.array(self.bounds, dtype=np.int64), times, "right")
        ]

    def name(self, number: int) -> str | None:
        return None if number < 0 else self.names[number]


def _origins(
    snapshot: Snapshot, history: History, done: Replay, place: int, annotations: _Open
) -> tuple[list[Alive], int]:
    """What was held at a place of the replay, by line and annotation, most bytes first; and the bytes of no origin."""
    alive = done.alive(place)
    nameless = alive & (done.began == -1) & (done.stack == NO_STACK)
    unexplained = int(done.size[nameless].sum())
    alive &= ~nameless
    began, size, stack = done.began[alive], done.size[alive], done.stack[alive]
    times = history.time_us[np.maximum(began, 0)]
    open_then = np.where((began == -1) | (times == 0), -1, annotations.at(times))
    # One number for a stack and an annotation: both may be -1.
    notes = len(annotations.names) + 1
    pairs, member, blocks = np.unique((stack + 1) * notes + open_then + 1, return_inverse=True, return_counts=True)
    total = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(total, member, size)
    # Several stacks may share the line that is shown, and several annotations a name: the largest's stack is shown.
    joined: dict[tuple[str, str | None], list[tuple[int, int, int]]] = defaultdict(list)
    for pair, many, count in zip(pairs.tolist(), total.tolist(), blocks.tolist(), strict=True):
        number, note = pair // notes - 1, pair % notes - 1
        joined[where(snapshot.stacks.frames(number)), annotations.name(note)].append((many, count, number))
    groups = [
        Alive(
            where=place_name,
            stack=own_lines(snapshot.stacks.frames(max(parts)[2])),
            bytes=sum(part[0] for part in parts),
            blocks=sum(part[1] for part in parts),
            annotation=annotation,
            module=module_of(snapshot.stacks.frames(max(parts)[2])),
        )
        for (place_name, annotation), parts in joined.items()
    ]
    groups.sort(key=lambda group: (-group.bytes, group.where, group.annotation or ""))
    rest = groups[MOST_ORIGINS - 1 :]
    if len(rest) > 1:
        others = Alive(
            where=OTHER_PLACES.format(places=len(rest)), stack=[],
            bytes=sum(group.bytes for group in rest), blocks=sum(group.blocks or 0 for group in rest),
        )  # fmt: skip
        groups[MOST_ORIGINS - 1 :] = [others]
    return groups, unexplained
