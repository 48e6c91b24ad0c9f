"""The starts and ends of a snapshot's annotations become ranges of time."""

from __future__ import annotations

from foretrace.knowledge.snapshots import STAGE_END, STAGE_START
from foretrace.memory.reading.notes import Notes, is_time, is_whole, shown, text_of
from foretrace.memory.snapshot import Annotation

__all__ = ["annotations_of"]


def annotations_of(raw: object, doubts: Notes) -> tuple[Annotation, ...]:
    """Ranges by their start; the last that was opened under a name is the first to be closed.

    What is no event, or has no time that a clock could have shown, is left out and said in ``doubts``.
    """
    opened: dict[tuple[str, int | None], list[int]] = {}
    ranges: list[Annotation] = []
    for event in raw if isinstance(raw, list | tuple) else ():
        time = event.get("time_us") if isinstance(event, dict) else None
        if not isinstance(event, dict) or time is None:
            doubts.add("{n} {n:annotation has|annotations have} no time and {n:is|are} left out", shown(event))
            continue
        if not is_time(time):
            doubts.add(
                "{n} {n:annotation has|annotations have} a time that no clock shows and {n:is|are} left out",
                f"time_us {shown(time)}",
            )
            continue
        device = event.get("device")
        key = (text_of(event.get("name")), device if is_whole(device) else None)
        stage = event.get("stage")
        if stage == STAGE_START:
            opened.setdefault(key, []).append(time)
        elif stage != STAGE_END:
            doubts.add("{n} {n:annotation|annotations} neither {n:starts nor ends and is|start nor end and are} left "
                       "out", f"{key[0]:.60}")  # fmt: skip
        elif not opened.get(key):
            doubts.add("{n} {n:annotation ends|annotations end} without a start and {n:is|are} left out",
                       f"{key[0]:.60}")  # fmt: skip
        elif time < opened[key][-1]:
            doubts.add("{n} {n:annotation ends|annotations end} before {n:its|their} start and {n:is|are} left out",
                       f"{key[0]:.60}")  # fmt: skip
            opened[key].pop()
        else:
            ranges.append(Annotation(*key, opened[key].pop(), time))
    ranges += [Annotation(*key, start, None) for key, starts in opened.items() for start in starts]
    return tuple(sorted(ranges, key=lambda one: (one.start_us, one.name)))
