"""What is worth knowing about a device's memory: the rules of `foretrace.knowledge.fragmentation`, applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foretrace.knowledge.fragmentation import LEAST_BYTES, ROUNDING_SHARE
from foretrace.knowledge.rules_snapshot import EXPANDABLE_ADVICE, REFUSED, SNAPSHOT_RULES
from foretrace.memory.accounts import Owner, idle_elsewhere, sparse
from foretrace.memory.finding import finding, much
from foretrace.memory.history import Flush
from foretrace.memory.snapshot import Segment
from foretrace.model.memory import Fragmentation, Free, HistoryInfo, MemoryFinding, Pin, Totals
from foretrace.model.words import count, listed, mebibytes, owner_of, share_of

__all__ = ["Facts", "find"]

_NAMED = 3
# Addresses of a finding's blocks at most: what a reader looks up one by one.
_LISTED = 100
# What failed is told before what may fail.
_FIRST = "out_of_memory_seen"
_ORDER = {"warning": 0, "note": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at."""

    segments: Sequence[Segment]
    owner: Owner
    totals: Totals
    free: Free
    fragmentation: Fragmentation
    pins: Sequence[Pin]
    history: HistoryInfo | None
    flushes: Sequence[Flush]
    expandable: bool
    split_limit_bytes: int | None
    divisions: bool


def find(facts: Facts) -> list[MemoryFinding]:
    """Everything the rules find, warnings first, then by bytes."""
    found = [one for rule in _RULES for one in rule(facts)]
    return sorted(found, key=lambda one: (_ORDER[one.severity], one.rule != _FIRST, -(one.bytes or 0)))


def _finding(rule: str, size: int | None, **places: object) -> MemoryFinding:
    return finding(SNAPSHOT_RULES, rule, size, **places)


def _much(size: int | None, facts: Facts) -> bool:
    return much(size, facts.totals.reserved_bytes)


def _share(size: int | None, facts: Facts) -> str:
    reserved = facts.totals.reserved_bytes
    return f"{share_of(size / reserved)} of what is reserved" if size is not None and reserved else "–"


def _hard(facts: Facts) -> Iterator[MemoryFinding]:
    size = facts.fragmentation.hard_bytes
    if not _much(size, facts):
        return
    named = [f"{pin.where} ({count(pin.blocks, 'block')}, {mebibytes(pin.bytes)})" for pin in facts.pins[:_NAMED]]
    yield _finding(
        "hard_fragmentation",
        size,
        bytes=mebibytes(size),
        share=_share(size, facts),
        largest=mebibytes(facts.free.largest_hole_bytes),
        pins=listed(named) or "blocks of unknown origin",
        expandable=EXPANDABLE_ADVICE[facts.expandable],
    )


def _sparse(facts: Facts) -> Iterator[MemoryFinding]:
    found = sparse(facts.segments)
    size = sum(one.free_bytes for one in found)
    if size < LEAST_BYTES:
        return
    blocks = [block for one in found for block in one.blocks]
    spoken_of = _finding(
        "sparse_segments",
        size,
        blocks=count(len(blocks), "small live block"),
        together=mebibytes(sum(block.size for block in blocks)),
        segments=f"{count(len(found), 'segment')} of {mebibytes(sum(one.segment.size for one in found))}",
        bytes=mebibytes(size),
    )
    spoken_of.addresses = [block.address for block in blocks[:_LISTED]]
    yield spoken_of


def _elsewhere(facts: Facts) -> Iterator[MemoryFinding]:
    size = facts.fragmentation.stream_bytes
    if not _much(size, facts):
        return
    idle = idle_elsewhere(facts.segments, facts.owner)
    owners = [f"{mebibytes(idle[owner])} of {owner_of(*owner)}" for owner in list(idle)[:_NAMED]]
    if len(idle) > _NAMED:
        owners.append(f"{mebibytes(sum(list(idle.values())[_NAMED:]))} of {count(len(idle) - _NAMED, 'other')}")
    yield _finding("idle_in_other_pools", size, bytes=mebibytes(size), share=_share(size, facts), owners=listed(owners))


def _rounding(facts: Facts) -> Iterator[MemoryFinding]:
    size, allocated = facts.fragmentation.rounding_bytes, facts.totals.allocated_bytes
    if size is None or not allocated or size < LEAST_BYTES or size < ROUNDING_SHARE * allocated:
        return
    yield _finding(
        "rounding",
        size,
        bytes=mebibytes(size),
        share=share_of(size / allocated),
        divisions=" and further by roundup_power2_divisions, which is set" if facts.divisions else "",
    )


def _pending(facts: Facts) -> Iterator[MemoryFinding]:
    size = facts.fragmentation.pending_bytes
    if size is not None and size >= LEAST_BYTES:
        yield _finding("pending_frees", size, bytes=mebibytes(size))


def _cached(facts: Facts) -> Iterator[MemoryFinding]:
    size = facts.fragmentation.soft_bytes
    if not _much(size, facts):
        return
    whole = [one.size for one in facts.segments if one.free and (one.stream, one.pool) == facts.owner]
    yield _finding(
        "cached_segments",
        size,
        bytes=mebibytes(size),
        share=_share(size, facts),
        segments=f"{count(len(whole), 'segment')} (the largest {mebibytes(max(whole))})",
    )


def _settings(facts: Facts) -> Iterator[MemoryFinding]:
    if facts.expandable and facts.split_limit_bytes is not None:
        yield _finding("split_limit_with_expandable", None)


def _failed(facts: Facts) -> Iterator[MemoryFinding]:
    if facts.history is None or not facts.history.out_of_memory:
        return
    last = facts.history.out_of_memory[-1]
    yield _finding(
        "out_of_memory_seen",
        last.bytes,
        times=count(len(facts.history.out_of_memory), "allocation"),
        bytes=mebibytes(last.bytes),
        free="an unknown amount of memory" if last.device_free_bytes is None else mebibytes(last.device_free_bytes),
        refused=REFUSED if (last.device_free_bytes or 0) >= last.bytes else "",
        request=_flag(last.bytes),
        flags=" --limit SIZE" if (last.device_free_bytes or 0) >= last.bytes else "",
    )


def _flag(size: int) -> str:
    """A size as a flag takes it, exactly."""
    return f"{size >> 20}MiB" if size % (1 << 20) == 0 else str(size)


def _flushed(facts: Facts) -> Iterator[MemoryFinding]:
    # With other stacks at both ends it was the program that emptied the cache, and knows.
    found = [flush for flush in facts.flushes if flush.certain is not False]
    size = sum(flush.bytes for flush in found)
    if found:
        doubt = (
            "" if all(flush.certain for flush in found) else ", or the program did: without stacks it cannot be told"
        )
        yield _finding("cache_flushed", size, times=count(len(found), "time"), bytes=mebibytes(size), doubt=doubt)


_RULES: tuple[Callable[[Facts], Iterator[MemoryFinding]], ...] = (
    _hard, _sparse, _elsewhere, _rounding, _pending, _cached, _settings, _failed, _flushed,
)  # fmt: skip
