"""The memory timeline of `torch.profiler`: what tensors held over time, by category.

`torch.profiler.profile.export_memory_timeline` writes three forms. Raw (``.raw.json.gz``): a list of entries, each
its time in ns, what it does, the bytes it adds (fewer than none where it takes away) and the category. Sums
(``.json``, ``.json.gz``): the times in µs, and for each the bytes of every category, with a 0 before them. And a
picture (``.html``), which holds no numbers. None of them names its device.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np
import numpy.typing as npt

from foretrace.errors import InputError
from foretrace.knowledge.memory_texts import (
    MOST_BYTES,
    TIMELINE_BEFORE,
    TIMELINE_CATEGORIES,
    TIMELINE_CHANGE,
    TIMELINE_CREATE,
    TIMELINE_DESTROY,
    TIMELINE_EMPTY,
    TIMELINE_IMAGE,
    TIMELINE_MALFORMED,
    TIMELINE_PREEXISTING,
    TIMELINE_SAYS,
)
from foretrace.model.memory import Alive, Fragmentation, Free, Memory, Peak, Source, Totals
from foretrace.model.report import Health
from foretrace.model.words import listed, share_of

__all__ = ["read_timeline"]

Ints = npt.NDArray[np.int64]

_GZIP: Final = b"\x1f\x8b"
_MANY: Final = len(TIMELINE_CATEGORIES)
_GIVES: Final = (TIMELINE_PREEXISTING, TIMELINE_CREATE)
_UNKNOWN: Final = TIMELINE_CATEGORIES.index("unknown")


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What each category held, a row a moment; ``tensors`` likewise, where the form tells. A time of 0 is unknown."""

    time_us: Ints
    bytes: Ints
    tensors: Ints | None


def read_timeline(data: bytes | str | Sequence[object], path: str, device: int | None = None) -> Memory:
    """The peak of a memory timeline, and what was held at it by category; the first such moment.

    ``data``: the file, gzipped or not, or the JSON in it. ``device``: the device that it is of, which the file does not
    say. Sizes add up: the categories' bytes are the peak. Raises `InputError` where it is no timeline, one
    without entries, or the picture.
    """
    parsed = _parsed(data, path) if isinstance(data, bytes | str) else data
    held = _read(parsed, path)
    total = held.bytes.sum(axis=1)
    place = int(np.argmax(total))
    peak = int(total[place])
    if peak < 0:
        raise _malformed(path, "it frees more than was ever held")
    time, last = int(held.time_us[place]) or None, int(held.time_us[-1]) or None
    alive = [
        Alive(
            where=name,
            stack=[],
            bytes=int(held.bytes[place, number]),
            blocks=None if held.tensors is None else int(held.tensors[place, number]),
        )
        for number, name in enumerate(TIMELINE_CATEGORIES)
        if held.bytes[place, number]
    ]
    alive.sort(key=lambda one: (-one.bytes, one.where))
    return Memory(
        source=Source(path=path, format="timeline", device=device, settings={}, repairs=[]),
        totals=Totals(requested_bytes=None, allocated_bytes=None, active_bytes=None, reserved_bytes=None),
        free=Free(whole_segments_bytes=None, holes_bytes=None, largest_hole_bytes=None),
        fragmentation=Fragmentation(hard_bytes=None, soft_bytes=None, stream_bytes=None, rounding_bytes=None),
        segments=[],
        blocks=[],
        pinned_by=[],
        health=_health(held, place, device),
        devices=[],
        findings=[],
        peak=Peak(
            requested_bytes=peak,
            time_us=time,
            ago_us=None if time is None or last is None else max(last, time) - time,
            complete=False,  # the profiler saw what happened while it ran
            during=None,
            unexplained_bytes=0,
            alive=alive,
        ),
    )


def _parsed(data: bytes | str, path: str) -> object:
    try:
        if isinstance(data, bytes):
            data = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
    except (OSError, EOFError, zlib.error):
        raise _malformed(path, "its compressed data is damaged or cut off") from None
    except UnicodeDecodeError:
        raise _malformed(path, "it is not text") from None
    if data.lstrip()[:5].lower() == "<html" and "data:image/png" in data:
        raise InputError(TIMELINE_IMAGE.format(path=path))
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _malformed(path, "it is not JSON, or cut off") from None


def _malformed(path: str, what: str) -> InputError:
    return InputError(TIMELINE_MALFORMED.format(path=path, what=what))


def _read(data: object, path: str) -> _Held:
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise _malformed(path, "it holds no list")
    if not data or list(data) == [[], []]:
        raise InputError(TIMELINE_EMPTY.format(path=path))
    # Sums are two lists, of numbers and of lists of numbers; two raw entries are two lists of numbers.
    first, second = data[0], data[-1]
    if (
        len(data) == 2
        and isinstance(first, list)
        and isinstance(second, list)
        and any(isinstance(s, list) for s in second)
    ):
        times, sums = _numbers([[time] for time in first], 1, path)[:, 0], _numbers(second, _MANY + 1, path)
        if len(times) != len(sums):
            raise _malformed(path, f"it has {len(times)} times and {len(sums)} sums")
        return _Held(np.maximum(times, 0), sums[:, 1:], None)
    return _replayed(_numbers(data, 4, path), path)


def _numbers(rows: Sequence[object], width: int, path: str) -> Ints:
    """Rows of whole numbers, all of one width and together within 64 bits."""
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width or not all(type(value) is int for value in row):
            raise _malformed(path, f"its row {number} is not {width} whole numbers")
    try:
        table = np.array(rows, dtype=np.int64).reshape(-1, width)
    except OverflowError:
        raise _malformed(path, "a number in it is beyond 64 bits") from None
    if width > 1 and np.abs(table[:, 2 if width == 4 else slice(None)].astype(np.float64)).sum() > MOST_BYTES:
        raise _malformed(path, "its sizes are beyond reason")
    return table


def _replayed(entries: Ints, path: str) -> _Held:
    time, action, size, category = entries.T
    gives, takes = np.isin(action, _GIVES), action == TIMELINE_DESTROY
    wrong = ~(gives | takes | (action == TIMELINE_CHANGE)) | (category < 0) | (category >= _MANY)
    wrong |= (gives & (size < 0)) | (takes & (size > 0))
    if wrong.any():
        raise _malformed(path, f"its entry {int(np.argmax(wrong))} does what none does")
    change = np.zeros((len(entries), _MANY), dtype=np.int64)
    rows = np.arange(len(entries))
    change[rows, category] = size
    tensors = np.zeros_like(change)
    # An entry of no bytes is a tensor all the same, but whether it came or went shows only in the action.
    tensors[rows, category] = np.where(gives, 1, np.where(takes, -1, np.sign(size)))
    known = time[time != TIMELINE_BEFORE]
    # What was there before is dated to the first entry with a time, as torch does.
    start = int(known.min()) if len(known) else 0
    time_us = np.where(time == TIMELINE_BEFORE, start, time) // 1000
    return _Held(np.maximum(time_us, 0), np.cumsum(change, axis=0), np.cumsum(tensors, axis=0))


def _health(held: _Held, place: int, device: int | None) -> list[Health]:
    health = []
    negative = [name for name, least in zip(TIMELINE_CATEGORIES, held.bytes.min(axis=0), strict=True) if least < 0]
    if negative:
        health.append(_check("negative", "bad", places=listed(negative)))
    health.append(_check("allocator", "suspect"))
    if device is None:
        health.append(_check("device", "suspect"))
    if held.tensors is None:
        health.append(_check("counts", "suspect"))
    unknown, total = int(held.bytes[place, _UNKNOWN]), int(held.bytes[place].sum())
    if unknown > 0 and total > 0:
        health.append(_check("categories", "suspect", share=share_of(unknown / total)))
    return [*health, _check("places", "ok"), _check("sizes", "ok")]


def _check(name: str, state: str, **places: object) -> Health:
    return Health(
        check=name, state=cast(Literal["ok", "suspect", "bad"], state), detail=TIMELINE_SAYS[name].format(**places)
    )
