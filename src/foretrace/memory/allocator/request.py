"""Would an allocation succeed now, from where, and if not, why not: one step of the simulated allocator, in words."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.errors import InputError
from foretrace.knowledge import allocator as known
from foretrace.memory.accounts import busiest_stream
from foretrace.memory.allocator.ranges import Key
from foretrace.memory.allocator.simulated import Allocator, Given
from foretrace.memory.snapshot import DEFAULT_POOL, Snapshot
from foretrace.model.memory import Request, Supply
from foretrace.model.words import count, mebibytes

__all__ = ["simulate"]


def simulate(
    snapshot: Snapshot,
    size: int,
    *,
    device: int,
    stream: int | None = None,
    pool: tuple[int, int] = DEFAULT_POOL,
    device_free_bytes: int | None = None,
    device_total_bytes: int | None = None,
    limit_bytes: int | None = None,
) -> Request:
    """What the allocator would do with a request of ``size`` bytes, as it was at the snapshot.

    ``stream``: None for the one that holds most of the device's memory. ``device_free_bytes``: what the device has
    free beside what is reserved; None where it is not known: then it is found out whether the answer depends on it.
    ``device_total_bytes``: its memory; what is not reserved of it is the most that can be free.
    ``limit_bytes``: what the process may reserve at most (`torch.cuda.set_per_process_memory_fraction`).

    Blocks that wait for another stream count as not yet free, and private pools as still used by somebody.

    Raises:
        InputError: the size is not from 1 byte to 2⁶³ − 1, or the free memory or the limit is negative.
    """
    _check(size, device_free_bytes, limit_bytes)
    if stream is None:
        own = [s for s in snapshot.segments if s.device == device]
        stream = busiest_stream([s for s in own if s.pool == pool] or own)

    def step(free: int | None) -> tuple[Allocator, Given]:
        allocator = Allocator.load(snapshot, device, device_free_bytes=free, limit_bytes=limit_bytes)
        return allocator, allocator.malloc(size, stream, pool)

    before = Allocator.load(snapshot, device, device_free_bytes=device_free_bytes, limit_bytes=limit_bytes)
    allocator, given = step(device_free_bytes)
    source: Supply = given.source
    succeeds: bool | None = given.source != "nowhere"
    says = _Words(before, allocator, given, size, Key(pool, given.rounded <= known.SMALL_REQUEST_BYTES, stream))
    because = says.because()
    most = None if device_total_bytes is None else max(0, device_total_bytes - before.reserved)
    richest, refused = step(most) if device_free_bytes is None and most is not None else (allocator, given)
    if device_free_bytes is None and most is not None and refused.source == "nowhere":
        given, source, succeeds = refused, "nowhere", False
        full = Allocator.load(snapshot, device, device_free_bytes=most, limit_bytes=limit_bytes)
        says = _Words(full, richest, given, size, says.key)
        because = f"even if nobody else used any of the device's {mebibytes(device_total_bytes)}: {says.because()}"
    elif device_free_bytes is None and given.source not in ("block", "nowhere"):
        # With a device that has nothing free, what is given back must do.
        _, poorest = step(0)
        if poorest.source != given.source:
            source = "unknown"
            succeeds = True if poorest.source == "release" else None
            because = says.unknown(poorest)
    return Request(
        bytes=size,
        rounded_bytes=given.rounded,
        stream=stream,
        pool=list(pool),
        succeeds=succeeds,
        from_=source,
        because=because,
        address=given.address if source == "block" else None,
        segment_bytes=given.asked,
        released_bytes=given.released or None,
        device_free_bytes=device_free_bytes,
    )


def _check(size: int, device_free_bytes: int | None, limit_bytes: int | None) -> None:
    if size == 0:
        raise InputError("a request of 0 bytes needs no memory and always succeeds: ask for at least 1 byte")
    if size < 0:
        raise InputError(f"a request cannot have {size} bytes: give a size above 0, such as 200MiB")
    if size > known.MOST_REQUEST_BYTES:
        raise InputError(f"{size} bytes are more than any address space holds (2⁶³ − 1): give a smaller size")
    for name, value in (("free memory of the device", device_free_bytes), ("limit of the process", limit_bytes)):
        if value is not None and value < 0:
            raise InputError(f"the {name} cannot be {value} bytes: leave it out where it is not known")


@dataclass(frozen=True, slots=True)
class _Words:
    """One step in words: the allocator before it and after it."""

    before: Allocator
    after: Allocator
    given: Given
    size: int
    key: Key

    def because(self) -> str:
        start = f"{self._asked()}{self._nothing_fits()}"
        match self.given.source:
            case "block":
                return self._block()
            case "segment":
                return f"{start}, so the device is asked for {self._piece()}{self._free_of()}."
            case "mapping":
                return f"{start}, so {self._piece()} are mapped{self._free_of()}."
            case "release":
                return (
                    f"{start}, and {self._refusal()}; once {self._released()} given back, {self._piece()} can be had."
                )
            case _:
                return f"{self._asked()}{self._account()}: {self._no_way()}."

    def unknown(self, poorest: Given) -> str:
        """Where the device decides: how much it must have free before and after what can be given back."""
        asked, released = self.given.asked or 0, poorest.released
        start = f"{self._asked()}{self._nothing_fits()}"
        text = f"{start}, so the device must give {self._piece()}"
        if poorest.source == "release":
            return (
                f"{text}; whether it has as much free is not known, but {mebibytes(released)} of cached memory can be "
                f"given back first, which is enough: the device joins what it gets back."
            )
        if self.given.source == "release":
            rest = mebibytes(max(0, asked - self.given.released))
            return (
                f"{start}, and {self._refusal()}; once {self._released()} given back, the device must have {rest} free."
            )
        if self.key.pool != DEFAULT_POOL:
            return f"{text}: it must have {mebibytes(asked)} free, for nothing is given back for a private pool."
        if not released:
            return f"{text}: it must have {mebibytes(asked)} free, and no cached memory can be given back for it."
        missing = (poorest.asked or asked) - released
        return (
            f"{text}: it must have {mebibytes(asked)} free, or {mebibytes(missing)} once the {mebibytes(released)} "
            f"that can be given back are."
        )

    def _asked(self) -> str:
        rounded = self.given.rounded
        asked, becomes = mebibytes(self.size), mebibytes(rounded)
        if rounded == self.size:
            return f"asked {asked}; "
        if asked == becomes:  # what it is rounded to shows in bytes only
            asked, becomes = f"{self.size} bytes", f"{rounded} bytes"
        return f"asked {asked}, rounded to {becomes}; "

    def _block(self) -> str:
        given = self.given
        found = next(p for _, p in self.before.blocks("free") if p.address == given.address)
        text = f"{self._asked()}the best fit on {self._where()} is a free block of {mebibytes(found.size)}"
        rest = found.size - given.rounded
        if not rest:
            return f"{text}, exactly as large."
        if given.size == found.size:
            return f"{text}; the other {mebibytes(rest)} are not split off and go with it."
        return f"{text}, of which {mebibytes(rest)} stay free."

    def _where(self) -> str:
        pool = "" if self.key.pool == DEFAULT_POOL else f" in private pool {self.key.pool}"
        return f"stream {self.key.stream}{pool}"

    def _nothing_fits(self) -> str:
        own = [piece.size for at, piece in self.before.blocks("free") if at.key == self.key]
        kind = "small" if self.key.small else "large"
        if not own:
            return f"nothing is free in the {kind} pool of {self._where()}"
        if max(own) >= self.given.rounded:
            # Only these rules pass over a block that is large enough.
            why = (
                "oversize ones (max_split_size) or of expandable segments"
                if self.before.settings.max_split
                else ("of expandable segments, which are switched off")
            )
            return f"the blocks on {self._where()} that are large enough are {why}"
        return f"the largest free block in the {kind} pool of {self._where()} is {mebibytes(max(own))}"

    def _piece(self) -> str:
        asked = mebibytes(self.given.asked or 0)
        return f"{asked} of pages" if self.before.settings.expandable else f"a segment of {asked}"

    def _free_of(self) -> str:
        free = self.before.device_free_bytes
        return "" if free is None else f", of which it has {mebibytes(free)} free" if free else ""

    def _limit_refuses(self, reserved: int) -> bool:
        limit = self.before.limit_bytes
        return limit is not None and reserved + self.before.settings.segment_bytes(self.given.rounded) > limit

    def _refusal(self) -> str:
        if self._limit_refuses(self.before.reserved):
            limit = mebibytes(self.before.limit_bytes or 0)
            return f"with {mebibytes(self.before.reserved)} reserved it would exceed the process's limit of {limit}"
        free = self.before.device_free_bytes
        return f"the device has {mebibytes(free) if free else 'nothing'} free"

    def _released(self) -> str:
        given = self.given
        # Oversize blocks are given back without a wait.
        completed = any(self.before.blocks("pending")) and not any(self.after.blocks("pending"))
        waited = " (waiting for other streams first)" if completed else ""
        if not given.released_segments:
            return f"{mebibytes(given.released)} of whole pages{waited} are"
        pages = " and of whole pages" if self.before.settings.expandable else ""
        return f"{mebibytes(given.released)} in {count(given.released_segments, 'whole segment')}{pages}{waited} are"

    def _account(self) -> str:
        """What is cached and free, by whether it can be given back."""
        pools = DEFAULT_POOL, self.key.pool
        whole = [at for at in self.before.ranges if at.whole and not at.page and at.key.pool == DEFAULT_POOL]
        rest = [(at, p) for at, p in self.before.blocks("free") if not (at.whole and not at.page and at in whole)]
        holes = [p.size for at, p in rest if at.key.pool in pools]
        private = sum(p.size for at, p in rest if at.key.pool not in pools)
        total = sum(at.mapped for at in whole) + sum(holes) + private
        if not total:
            return "nothing of what is reserved is free"
        parts = []
        if whole:
            back = "can be given back" if self.key.pool == DEFAULT_POOL else "not given back for a private pool"
            size = mebibytes(sum(at.mapped for at in whole))
            parts.append(f"{size} in {count(len(whole), 'whole segment')} ({back})")
        if holes:
            parts.append(f"{mebibytes(sum(holes))} in {count(len(holes), 'hole')}, the largest {mebibytes(max(holes))}")
        if private:
            parts.append(f"{mebibytes(private)} in private pools")
        return f"cached free {mebibytes(total)} = {' + '.join(parts)}"

    def _no_way(self) -> str:
        given, after = self.given, self.after
        released = f"even after {self._released()} given back, " if given.released else ""
        if self._limit_refuses(after.reserved):
            asked = self.before.settings.segment_bytes(given.rounded)
            return (
                f"{released}{mebibytes(after.reserved)} stay reserved, and {mebibytes(asked)} more would exceed the "
                f"{mebibytes(after.limit_bytes or 0)} that the process may reserve"
            )
        free = mebibytes(after.device_free_bytes or 0) if after.device_free_bytes else "nothing"
        return f"{released}the device has {free} free of the {mebibytes(given.asked or 0)} that are needed"
