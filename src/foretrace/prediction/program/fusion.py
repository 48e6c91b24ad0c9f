"""Which pieces share a kernel: Inductor's scheduler, imitated.

The scheduler fuses pairs of nodes that share memory, those that share most first, as long as both iterate over the same
space, what one hands the other is read as it was written, and nothing would have to wait for itself. Library calls fuse
with nothing. Source: ``torch/_inductor/scheduler.py`` and ``SIMDScheduling.can_fuse`` in ``codegen/simd.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from foretrace.knowledge.lowering.inductor import MAX_FUSED, may_join_mixed, mixes_orders, turns_loops
from foretrace.prediction.program.loops import Buffer, Piece, Read

__all__ = ["Kernel", "fuse"]

_ROUNDS = 10


@dataclass(slots=True, eq=False)
class Kernel:
    """One launch: a library call, or generated code of one or more pieces.

    ``mixed``: the sums along columns that a kernel of mixed order leaves in parts, to be joined by a sum each.
    """

    pieces: list[Piece]
    mixed: list[Piece] = field(default_factory=list)

    @property
    def extern(self) -> bool:
        """Whether it is a library call."""
        return self.pieces[0].kind == "extern"

    @property
    def reduction(self) -> Piece | None:
        """The reduction that sets its iteration space."""
        return next((piece for piece in self.pieces if piece.kind == "reduction"), None)

    @property
    def space(self) -> tuple[int, int]:
        """Results and elements of one, as the scheduler groups them."""
        leader = self.reduction
        return (leader.outer, leader.inner) if leader is not None else (self.pieces[0].outer, 1)

    def written(self) -> dict[str, Piece]:
        """Buffer → the piece that writes it, those included that are complete only after the sums of ``mixed``."""
        return {buffer.name: piece for piece in (*self.pieces, *self.mixed) for buffer in piece.writes}

    def reads(self) -> list[Read]:
        """What it reads from outside."""
        own = self.written()
        return [read for piece in self.pieces for read in piece.reads if read.buffer not in own]

    def writes(self) -> list[Buffer]:
        """What its own code writes."""
        left = {buffer.name for piece in self.mixed for buffer in piece.writes}
        return [buffer for piece in self.pieces for buffer in piece.writes if buffer.name not in left]


def fuse(pieces: Sequence[Piece], torch_version: tuple[int, int]) -> list[Kernel]:
    """The launches of a graph, in an order that respects who needs whom."""
    if not turns_loops(torch_version):
        for piece in pieces:
            piece.by_two = False
    groups = [Kernel([piece]) for piece in pieces]
    for _ in range(_ROUNDS):
        before = len(groups)
        groups = _one_round(groups, torch_version)
        if len(groups) == before:
            break
    return _ordered(_second_parts_summed(groups))


def _one_round(groups: list[Kernel], torch_version: tuple[int, int]) -> list[Kernel]:
    current = {id(group): group for group in groups}
    position = {id(group): index for index, group in enumerate(groups)}
    candidates = []
    for first, second in _neighbours(groups):
        score = _shared(first, second)
        mixed = _mixed(first, second, torch_version)
        if not score and not mixed:
            continue
        same = (first.reduction is None) == (second.reduction is None)
        distance = abs(position[id(first)] - position[id(second)])
        candidates.append((same, score, -distance, first, second))
    candidates.sort(key=lambda item: item[:3], reverse=True)
    for *_, first, second in candidates:
        one, other = current[id(first)], current[id(second)]
        if one is other or len(one.pieces) + len(other.pieces) > MAX_FUSED:
            continue
        alive = list(dict.fromkeys(current.values()))
        if not _may_fuse(one, other, alive, torch_version):
            continue
        joined = _join(one, other, torch_version)
        for key, group in current.items():
            if group is one or group is other:
                current[key] = joined
    return list(dict.fromkeys(current.values()))


def _neighbours(groups: Sequence[Kernel]) -> Iterator[tuple[Kernel, Kernel]]:
    """Pairs that touch a common buffer, each once."""
    users: dict[str, list[Kernel]] = {}
    for group in groups:
        if group.extern:
            continue
        names = {read.buffer for piece in group.pieces for read in piece.reads} | set(group.written())
        for name in names:
            users.setdefault(name, []).append(group)
    seen: set[tuple[int, int]] = set()
    for sharing in users.values():
        for first, second in combinations(sharing, 2):
            key = (id(first), id(second))
            if key not in seen and (key[1], key[0]) not in seen:
                seen.add(key)
                yield first, second


def _shared(first: Kernel, second: Kernel) -> int:
    """Bytes of the accesses both have, read alike, or alike once the loops of one are exchanged."""
    turned = _turned(first, second)
    theirs = _accesses(second, turned)
    return sum(size for key, size in _accesses(first, turned).items() if key in theirs)


def _turned(first: Kernel, second: Kernel) -> bool:
    """Whether one sums along columns, in one part, and the other's loops over the same matrix can be exchanged."""
    for summing, plain in ((first, second), (second, first)):
        leader = summing.reduction
        if leader is None or plain.reduction is not None or plain.space[0] != leader.outer * leader.inner:
            continue
        if all(_can_turn(leader, piece) for piece in plain.pieces):
            return True
    return False


def _can_turn(leader: Piece, plain: Piece) -> bool:
    """Whether loops over a matrix can be exchanged to run along with a sum of its columns."""
    whole = leader.by_two and not leader.along_rows and leader.split_from is None
    return whole and plain.turnable and plain.node.tensor.shape[-1] == leader.outer


def _accesses(group: Kernel, turned: bool) -> dict[tuple[object, ...], int]:
    found: dict[tuple[object, ...], int] = {}
    for piece in group.pieces:
        order = piece.kind == "reduction" and not piece.along_rows and not turned
        for read in piece.reads:
            found[read.buffer, read.way, _direction(read.spread, order)] = read.size
        for buffer in piece.writes:
            found[buffer.name, (), _direction("full", order and piece.inner == 1)] = buffer.size
    return found


def _direction(spread: str, by_columns: bool) -> str:
    """Whole matrices are walked row by row, or column by column; vectors lie the same way for both."""
    return f"{spread} by columns" if by_columns and spread == "full" else "full" if spread != "other" else "other"


def _may_fuse(one: Kernel, other: Kernel, groups: Sequence[Kernel], torch_version: tuple[int, int]) -> bool:
    if (
        one.extern
        or other.extern
        or any(piece.mutates for piece in (*one.pieces, *other.pieces) if piece.kind == "scatter")
    ):
        return False
    if _mixed(one, other, torch_version):
        return not _waits(one, other, groups) and not _waits(other, one, groups)
    if one.mixed and other.mixed:
        return False
    if one.mixed or other.mixed:
        reads = {read.buffer for group in (one, other) for piece in group.pieces for read in piece.reads}
        if not may_join_mixed(len(reads), torch_version):
            return False
    if not _same_space(one, other):
        return False
    hands_over = _depends(other, one), _depends(one, other)
    if hands_over == (True, True):
        return False
    if hands_over[1]:
        one, other = other, one
    if any(hands_over):
        return _reads_as_written(one, other) and not _between(one, other, groups)
    return _shared(one, other) > 0 and not _waits(one, other, groups) and not _waits(other, one, groups)


def _same_space(one: Kernel, other: Kernel) -> bool:
    first, second = one.reduction, other.reduction
    if first is not None and second is not None:
        return one.space == other.space and first.along_rows == second.along_rows
    if first is None and second is None:
        return one.space == other.space
    reducing, plain = (one, other) if first is not None else (other, one)
    leader = reducing.reduction
    assert leader is not None
    outer, inner = reducing.space
    points = plain.space[0]
    # A loop over the whole matrix walks rows; a reduction of columns walks the other way.
    return points == outer or (points == outer * inner and (leader.along_rows or _turned(one, other)))


def _reads_as_written(producer: Kernel, consumer: Kernel) -> bool:
    """Whether all the consumer takes from the producer is read in the order in which it is written."""
    written = producer.written()
    spaces = [group.space for group in (producer, consumer) if group.reduction is not None]
    outer = spaces[0][0] if spaces else None
    for piece in consumer.pieces:
        for read in piece.reads:
            source = written.get(read.buffer)
            if source is None:
                continue
            if read.way or read.spread in ("other", "columns"):
                return False
            results = source.outer
            if read.spread == "rows" and results != outer:
                return False
            if read.spread == "full" and results != piece.outer * piece.inner:
                return False
            by_columns = piece.kind == "reduction" and not piece.along_rows and piece.inner > 1
            if read.spread == "full" and by_columns and source.kind == "pointwise" and not _can_turn(piece, source):
                return False
    return True


def _depends(later: Kernel, earlier: Kernel) -> bool:
    written = earlier.written()
    return any(read.buffer in written for read in later.reads()) or any(
        piece.mutates in written for piece in later.pieces if piece.mutates
    )


def _waits(later: Kernel, earlier: Kernel, groups: Sequence[Kernel]) -> bool:
    """Whether ``later`` needs ``earlier``, directly or through others."""
    return _reaches(earlier, later, groups, direct=True)


def _between(earlier: Kernel, later: Kernel, groups: Sequence[Kernel]) -> bool:
    """Whether a third group stands between: it needs ``earlier`` and ``later`` needs it."""
    return _reaches(earlier, later, groups, direct=False)


def _reaches(start: Kernel, end: Kernel, groups: Sequence[Kernel], *, direct: bool) -> bool:
    writers: dict[str, Kernel] = {name: group for group in groups for name in group.written()}
    pending = [end]
    seen: set[int] = set()
    while pending:
        group = pending.pop()
        needed = {read.buffer for read in group.reads()} | {p.mutates for p in group.pieces if p.mutates}
        for name in needed:
            source = writers.get(name) if name is not None else None
            if source is None or source is group:
                continue
            if source is start:
                if direct or group is not end:
                    return True
                continue
            if id(source) not in seen:
                seen.add(id(source))
                pending.append(source)
    return False


def _mixed(one: Kernel, other: Kernel, torch_version: tuple[int, int]) -> bool:
    """Whether one reduces rows and the other columns of one large matrix, which both read whole."""
    first, second = one.reduction, other.reduction
    if first is None or second is None or first.along_rows == second.along_rows:
        return False
    by_rows, by_columns = (one, other) if first.along_rows else (other, one)
    leader = by_columns.reduction
    assert leader is not None
    if by_columns.mixed or (by_rows.mixed and not _shares_columns(by_rows, by_columns)):
        return False
    columns, rows = leader.split_from or by_columns.space
    if by_rows.space != (rows, columns) or not mixes_orders(rows, columns, torch_version):
        return False
    if not all(piece.sums for piece in by_columns.pieces if piece.kind == "reduction"):
        return False
    whole = {(read.buffer, read.way) for read in by_rows.reads() if read.spread == "full"}
    return any((read.buffer, read.way) in whole for read in by_columns.reads() if read.spread == "full")


def _shares_columns(mixed: Kernel, by_columns: Kernel) -> bool:
    """Whether more sums along columns read what those of a kernel of mixed order read."""
    summed = {read.buffer for piece in mixed.mixed for read in piece.reads}
    return any(read.buffer in summed for read in by_columns.reads())


def _join(one: Kernel, other: Kernel, torch_version: tuple[int, int]) -> Kernel:
    if not _mixed(one, other, torch_version):
        return Kernel(_in_order([*one.pieces, *other.pieces]), [*one.mixed, *other.mixed])
    first = one.reduction
    by_rows, by_columns = (one, other) if first is not None and first.along_rows else (other, one)
    parts = [piece for piece in by_columns.pieces if piece.kind == "reduction"]
    return Kernel([*by_rows.pieces, *by_columns.pieces], [*by_rows.mixed, *parts])


def _second_parts_summed(groups: Sequence[Kernel]) -> list[Kernel]:
    """Sums that were cut in two: in a kernel of mixed order, the sum over its parts replaces the second half."""
    for kernel in groups:
        for index, first in enumerate(kernel.mixed):
            if first.split_from is None:
                continue
            for group in groups:
                second = next((p for p in group.pieces if p.node is first.node and p.name == first.node.name), None)
                if second is not None:
                    kernel.mixed[index] = second
                    group.pieces.remove(second)
    return [group for group in groups if group.pieces]


def _in_order(pieces: list[Piece]) -> list[Piece]:
    done: list[Piece] = []
    names: set[str] = set()
    writers = {buffer.name for piece in pieces for buffer in piece.writes}
    pending = list(pieces)
    while pending:
        for piece in pending:
            if all(read.buffer in names or read.buffer not in writers for read in piece.reads):
                break
        else:
            return done + pending
        pending.remove(piece)
        done.append(piece)
        names.update(buffer.name for buffer in piece.writes)
    return done


def _ordered(groups: Sequence[Kernel]) -> list[Kernel]:
    """Earliest first, each after what it needs."""
    writers: dict[str, Kernel] = {name: group for group in groups for name in group.written()}
    done: list[Kernel] = []
    placed: set[int] = set()

    def place(group: Kernel) -> None:
        if id(group) in placed:
            return
        placed.add(id(group))
        needed = [read.buffer for read in group.reads()] + [p.mutates for p in group.pieces if p.mutates]
        for name in needed:
            source = writers.get(name) if name is not None else None
            if source is not None and source is not group:
                place(source)
        done.append(group)

    for group in groups:
        place(group)
    return done
