"""Memory as `torch.cuda.memory_summary()` and `torch.cuda.memory_stats()` tell it: the allocator's own counters.

Counters say how much, not where: there are no blocks, no streams and no stacks. What they leave open is None, with
the reason in `Memory.health`. The text is made of the same counters, each cut to the unit of its column.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from foretrace.errors import InputError
from foretrace.knowledge.memory_texts import (
    COUNTER_RULES,
    COUNTERS_BEYOND,
    COUNTS,
    MOST_BYTES,
    NO_COUNTERS,
    NO_SUCH_DEVICE,
    NO_SUMMARY,
    NOT_IN_COUNTERS,
    ROWS,
    SUMMARY_HEAD,
    SUMMARY_UNITS,
    UNREADABLE_COUNTERS,
)
from foretrace.memory.finding import finding, much
from foretrace.model.memory import DeviceTotals, Fragmentation, Free, Memory, MemoryFinding, Peak, Source, Totals
from foretrace.model.report import Health
from foretrace.model.words import count, listed, mebibytes, share_of

__all__ = ["parse_stats", "read_stats", "read_summary"]

# "Allocated memory      |   4332 MiB |   6798 MiB | 288308 MiB | 283976 MiB |": sizes have a unit, counts K or M.
_CELL: Final = r"\s*\|\s*-?\d+\s*[A-Za-z]*\s*"
_ROW: Final = re.compile(rf"({'|'.join(map(re.escape, ROWS))})((?:{_CELL}){{4}})")
_CELLS: Final = re.compile(r"(-?\d+)\s*([A-Za-z]*)")
_COUNT: Final = re.compile(rf"({'|'.join(map(re.escape, COUNTS))}):\s*(\d+)")
_COLUMNS: Final = ("current", "peak", "allocated", "freed")
_SHOWN: Final = (".current", ".peak", *COUNTS.values())
_THOUSANDS: Final = {"": 1, "K": 1000, "M": 1_000_000}
_DICTIONARY: Final = re.compile(r"(?:collections\.)?(?:OrderedDict|defaultdict)\(")
_POOLS: Final = "reserved_bytes_by_private_pools"


@dataclass(slots=True)
class _Counters:
    """One device's counters, by the key of memory_stats(); ``unit``: what sizes are cut to."""

    device: int | None
    values: dict[str, int] = field(default_factory=dict)
    unit: int = 1

    def now(self, name: str) -> int | None:
        return self.values.get(f"{name}.all.current")

    def most(self, name: str) -> int | None:
        return self.values.get(f"{name}.all.peak")


def read_summary(text: str, path: str, device: int | None = None) -> Memory:
    """The last memory summary of a device in a text, which may be a log with other lines before, after and between.

    Without ``device`` it is the device with most memory reserved. `Source.resolution_bytes` is the unit to which the
    sizes that count now are cut. Raises `InputError` where there is none, or none of that device.
    """
    heads = list(SUMMARY_HEAD.finditer(text))
    found: dict[int | None, _Counters] = {}
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=False):
        counters = _table(int(head[1]), text[head.end() : end])
        if counters.now("allocated_bytes") is not None:
            found[counters.device] = counters
    if not found:
        raise InputError(NO_SUMMARY.format(path=path))
    return _document(found, path, "summary", device)


def read_stats(data: object, path: str, device: int | None = None) -> Memory:
    """The counters of `torch.cuda.memory_stats()`, or of its nested form, as JSON or `parse_stats` reads them.

    Also a list with one such dictionary a device, or a dictionary of them by device ("0", "cuda:0"). A file of a
    single dictionary does not say its device, which is then ``device``. Raises `InputError` where nothing of the
    kind is in it, or nothing of that device.
    """
    found: dict[int | None, _Counters] = {}
    for number, one in _devices(data):
        values = dict(_flat("", one))
        if "allocated_bytes.all.current" in values:
            found[number] = _Counters(number, values)
    if not found:
        raise InputError(NO_COUNTERS.format(path=path))
    if list(found) == [None]:
        found = {device: _Counters(device, found[None].values)}
    return _document(found, path, "stats", device)


def parse_stats(text: str, path: str) -> object:
    """The dictionary in a text: JSON, or as Python prints it, also within ``OrderedDict(...)``. Runs nothing.

    Raises `InputError` where it is neither.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(_plain(text.strip()))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise InputError(UNREADABLE_COUNTERS.format(path=path)) from None


def _plain(text: str) -> str:
    """The text without the names of dictionary types: "OrderedDict([(1, 2)])" becomes "([(1, 2)])"."""
    return _DICTIONARY.sub("(", text)


def _table(device: int, text: str) -> _Counters:
    counters = _Counters(device)
    for line in _COUNT.finditer(text):
        counters.values.setdefault(COUNTS[line[1]], int(line[2]))
    for row in _ROW.finditer(text):
        name = ROWS[row[1]]
        if f"{name}.all.current" in counters.values:
            continue
        for column, (digits, unit) in zip(_COLUMNS, _CELLS.findall(row[2]), strict=True):
            factor = (SUMMARY_UNITS if name.endswith("_bytes") else _THOUSANDS).get(unit)
            if factor is None:
                continue
            counters.values[f"{name}.all.{column}"] = int(digits) * factor
            if column == "current" and name.endswith("_bytes"):
                counters.unit = max(counters.unit, factor)
    return counters


def _devices(data: object) -> Iterator[tuple[int | None, object]]:
    """Each device's dictionary in the file, by its number."""
    if isinstance(data, Sequence) and not isinstance(data, str):
        if data and all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in data):
            yield None, data  # the pairs of an OrderedDict
            return
        yield from enumerate(data)
    elif isinstance(data, Mapping):
        numbers = [re.fullmatch(r"(?:cuda:)?(\d{1,4})", str(key)) for key in data]
        if data and all(numbers):
            yield from ((int(number[1]), one) for number, one in zip(numbers, data.values(), strict=True) if number)
        else:
            yield None, data


def _flat(prefix: str, data: object) -> Iterator[tuple[str, int]]:
    """Every whole number of a nested dictionary by its path: "allocated_bytes.all.current"."""
    pairs: list[Sequence[object]]
    if isinstance(data, Mapping):
        pairs = list(data.items())
    elif isinstance(data, Sequence) and not isinstance(data, str):
        pairs = [pair for pair in data if isinstance(pair, Sequence) and len(pair) == 2]
    else:
        if isinstance(data, int) and not isinstance(data, bool):
            yield prefix, data
        return
    for key, value in pairs:
        name = "_".join(map(str, key)) if isinstance(key, tuple) else str(key)
        yield from _flat(f"{prefix}.{name}" if prefix else name, value)


def _document(
    found: Mapping[int | None, _Counters], path: str, form: Literal["summary", "stats"], device: int | None
) -> Memory:
    if device is None:
        counters = max(found.values(), key=lambda one: (one.now("reserved_bytes") or 0, -(one.device or 0)))
    elif device in found:
        counters = found[device]
    else:
        raise InputError(NO_SUCH_DEVICE.format(path=path, device=device, devices=_names(list(found))))
    for one in found.values():
        for name, value in one.values.items():
            # Limits and settings, such as max_split_size, are -1 or the largest number where they are not set.
            if name.endswith(_SHOWN) and not 0 <= value <= MOST_BYTES:
                raise InputError(COUNTERS_BEYOND.format(path=path, name=name, value=value))
    pending = _less(counters.now("active_bytes"), counters.now("allocated_bytes"))
    totals = Totals(
        # Torch's own number counts what is freed and pending as well; how much of it that is, counters do not say.
        requested_bytes=None if pending else counters.now("requested_bytes"),
        allocated_bytes=counters.now("allocated_bytes"),
        active_bytes=counters.now("active_bytes"),
        reserved_bytes=counters.now("reserved_bytes"),
    )
    free, health = _free(counters, totals)
    return Memory(
        source=Source(
            path=path, format=form, device=counters.device, settings={}, repairs=[], resolution_bytes=counters.unit
        ),
        totals=totals,
        free=free,
        fragmentation=Fragmentation(
            hard_bytes=free.holes_bytes,
            soft_bytes=free.whole_segments_bytes,
            stream_bytes=None,
            rounding_bytes=_less(totals.allocated_bytes, totals.requested_bytes),
            pending_bytes=pending,
        ),
        segments=[],
        blocks=[],
        pinned_by=[],
        health=health,
        devices=[one for one in map(_in_short, found.values()) if one is not None],
        findings=list(_findings(counters, totals, free)),
        peak=_peak(counters),
    )


def _names(devices: list[int | None]) -> str:
    known = [str(device) for device in sorted(device for device in devices if device is not None)]
    return f"device {listed(known)}" if known else "no device's number"


def _less(whole: int | None, part: int | None) -> int | None:
    """The difference of two counters; not below zero, as cut numbers may be."""
    return None if whole is None or part is None else max(0, whole - part)


def _free(counters: _Counters, totals: Totals) -> tuple[Free, list[Health]]:
    """What is reserved and not active, in holes and whole segments: reserved = active + whole + holes."""
    holes, reserved, active = counters.now("inactive_split_bytes"), totals.reserved_bytes, totals.active_bytes
    health = []
    whole = None
    names = ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes")
    missing = [name for name in names if counters.now(name) is None]
    if missing:
        health.append(_check("missing", names=listed(missing)))
        holes = None
    elif reserved is not None and active is not None and holes is not None:
        whole = reserved - active - holes
        if whole < -3 * (counters.unit if counters.unit > 1 else 0):
            health.append(_check("adds_up", state="bad", parts="active memory and holes"))
            whole = holes = None
        elif whole > 0 and active > 0 and not holes and not counters.values.get("inactive_split_bytes.all.allocated"):
            health.append(_check("expandable"))
            whole = holes = None
        else:
            whole = max(0, whole)
            health.append(_check("expandable_unknown", state="ok", name="expandable"))
    health += _asked(counters, totals)
    health += [_check("blocks"), _check("streams")]
    if counters.unit > 1:
        health.append(_check("cut", state="ok", unit=mebibytes(counters.unit).removeprefix("1 ")))
    return (
        Free(
            whole_segments_bytes=whole,
            holes_bytes=holes,
            largest_hole_bytes=0 if holes == 0 and counters.unit == 1 else None,
            holes=None if holes is None else counters.now("inactive_split"),
        ),
        health,
    )


def _asked(counters: _Counters, totals: Totals) -> list[Health]:
    """Why what live tensors asked for is unknown, if it is; and whether what was counted can be."""
    counted, active = counters.now("requested_bytes"), totals.active_bytes
    if counted is None:
        return [_check("requested")]
    # Numbers that are cut may differ by one unit each.
    if active is not None and counted > active + 2 * (counters.unit if counters.unit > 1 else 0):
        return [_check("adds_up_requested", state="bad")]
    return [] if totals.requested_bytes is not None else [_check("requested_pending")]


def _check(
    text: str, *, state: Literal["ok", "suspect", "bad"] = "suspect", name: str | None = None, **places: object
) -> Health:
    return Health(check=name or text, state=state, detail=NOT_IN_COUNTERS[text].format(**places))


def _in_short(counters: _Counters) -> DeviceTotals | None:
    reserved, allocated, segments = map(counters.now, ("reserved_bytes", "allocated_bytes", "segment"))
    if counters.device is None or reserved is None or allocated is None or segments is None:
        return None
    return DeviceTotals(device=counters.device, reserved_bytes=reserved, allocated_bytes=allocated, segments=segments)


def _peak(counters: _Counters) -> Peak | None:
    """The most that was asked for at once, since the start or the last reset of the counter; of no known origin."""
    requested = counters.most("requested_bytes")
    if requested is None:
        return None
    return Peak(
        requested_bytes=requested, time_us=None, ago_us=None, complete=False, during=None,
        unexplained_bytes=requested, alive=[],
    )  # fmt: skip


def _findings(counters: _Counters, totals: Totals, free: Free) -> Iterator[MemoryFinding]:
    failed, retries = counters.values.get("num_ooms"), counters.values.get("num_alloc_retries")
    if failed:
        yield _finding("out_of_memory_counted", None, times=count(failed, "allocation"))
    if retries:
        yield _finding("allocator_retries", None, times=count(retries, "time"))
    holes, reserved = free.holes_bytes, totals.reserved_bytes
    if holes and reserved and much(holes, reserved):
        yield _finding("holes", holes, bytes=mebibytes(holes), share=share_of(holes / reserved))
    pools = {
        key: size
        for key, size in counters.values.items()
        if size > 0 and key.startswith(f"{_POOLS}.") and key.endswith(".all.current")
    }
    if pools:
        size = sum(pools.values())
        yield _finding("private_pools", size, bytes=mebibytes(size), pools=count(len(pools), "private pool"))
    allocated, most = counters.most("allocated_bytes"), counters.most("reserved_bytes")
    if allocated is not None and most is not None:
        yield _finding("peaks", most, allocated=mebibytes(allocated), reserved=mebibytes(most))


def _finding(rule: str, size: int | None, **places: object) -> MemoryFinding:
    return finding(COUNTER_RULES, rule, size, **places)
