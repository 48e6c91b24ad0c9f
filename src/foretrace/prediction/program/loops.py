"""Which values of a graph Inductor writes to memory, and what each piece of generated code reads.

Inductor keeps pointwise values as expressions and repeats them in whoever reads them. They are written to memory
("realised") where something needs them there: a library call, the caller, a scatter, or too many readers of too long an
expression. Reductions are always written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from foretrace.knowledge.dtypes import itemsize
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.lowering.inductor import (
    NOTHING,
    REALIZE_OPS,
    REALIZE_READS,
    REALIZE_REUSED_READS,
    UNROLL_BELOW,
    split_factor,
)
from foretrace.prediction.program.fx_nodes import Node
from foretrace.prediction.work import Tensor

__all__ = ["Buffer", "Piece", "Read", "realise"]


@dataclass(frozen=True, slots=True)
class Read:
    """``size`` bytes of one buffer. ``way``: through which views; ``spread``: how it is repeated over the reader."""

    buffer: str
    size: int
    way: tuple[Any, ...] = ()
    spread: str = "full"  # full, rows (one value a row), columns (one value a column), other


@dataclass(frozen=True, slots=True)
class Buffer:
    """Something in memory: an input, or what a piece writes. ``root``: the input it overwrites, if it does."""

    name: str
    size: int
    shape: tuple[int, ...]


@dataclass(slots=True)
class Piece:
    """One node of Inductor's scheduler: a library call, or a loop nest before fusion."""

    name: str
    kind: str  # pointwise, reduction, extern, scatter
    node: Node
    outer: int  # results of a reduction, else points
    inner: int  # elements of one result, else 1
    reads: list[Read]
    writes: list[Buffer]
    nodes: list[Node] = field(default_factory=list)  # all graph nodes it computes, for its name
    along_rows: bool = True  # a reduction along contiguous memory
    split_from: tuple[int, int] | None = None  # outer and inner of the reduction this is the first part of
    mutates: str | None = None  # buffer it changes in place
    sums: bool = False
    by_two: bool = False  # a reduction of a matrix, not of more dimensions

    @property
    def turnable(self) -> bool:
        """Whether its loops can be exchanged: two of them, over a whole matrix."""
        return self.kind == "pointwise" and len([size for size in self.node.tensor.shape if size > 1]) == 2


@dataclass(slots=True)
class _Value:
    """What a graph node is while code is generated: a view of a buffer, or an expression over reads."""

    reads: dict[tuple[str, tuple[Any, ...], str], Read]
    shape: tuple[int, ...]
    buffer: str | None = None
    nodes: list[Node] = field(default_factory=list)
    operations: int = 0


def realise(nodes: Sequence[Node], gpu: Gpu | None) -> list[Piece]:
    """The pieces of a graph in order."""
    return _Lowering(gpu).run(nodes)


class _Lowering:
    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        self._values: dict[int, _Value] = {}
        self._items: dict[tuple[int, int], _Value] = {}
        self.pieces: list[Piece] = []

    def run(self, nodes: Sequence[Node]) -> list[Piece]:
        for node in nodes:
            getattr(self, f"_{node.kind}")(node)
        return self.pieces

    # ---- the kinds of node ----

    def _input(self, node: Node) -> None:
        if node.results:
            self._values[id(node)] = _stored(node.name, node.tensor.shape, _bytes(node.tensor), [])

    def _none(self, _: Node) -> None:
        return

    def _item(self, node: Node) -> None:
        source, index = node.values[0], node.values[1]
        value = self._items.get((id(source), index)) or self._values.get(id(source))
        if value is not None:
            self._values[id(node)] = value

    def _view(self, node: Node) -> None:
        source = self._values.get(id(node.reads()[0])) if node.reads() else None
        if source is None or not node.results:
            return
        if len(node.results) > 1:  # split, unbind: each part is a view
            for index, part in enumerate(node.results):
                self._items[id(node), index] = _seen(source, (node.base, index), part.shape, _bytes(part), node)
            return
        way: tuple[Any, ...] | None = (node.base, *(str(item) for item in node.values[1:]))
        if node.base in NOTHING:
            way = None
        if node.base in ("expand", "slice") and (node.base == "expand" or source.shape == node.tensor.shape):
            way = None
        if node.base == "expand":
            source = _expanded(source, node.tensor.shape)
        self._values[id(node)] = _seen(source, way, node.tensor.shape, _bytes(node.tensor), node)
        if way is not None and source.buffer is None and _needed_in_memory(node):
            # The library reads the view, so what lies in memory is what the view is of.
            base = node.reads()[0]
            self._store(base, source)
            self._values[id(node)] = _seen(self._values[id(base)], way, node.tensor.shape, _bytes(node.tensor), node)

    def _pointwise(self, node: Node) -> None:
        if node.base == "cat":
            self._cat(node)
            return
        value = _Value({}, node.tensor.shape, nodes=[node], operations=1)
        for read in node.reads():
            given = self._values.get(id(read))
            if given is not None:
                self._join(value, given)
        if node.base == "copy_":
            self._overwrite(node, value)
            return
        if node.base in ("clone", "_to_copy", "convert_element_type") and node.reads():
            same = node.reads()[0].tensor == node.tensor
            if same and node.base == "convert_element_type":
                self._values[id(node)] = self._values[id(node.reads()[0])]
                return
        if self._wants_memory(node, value):
            self._store(node, value)
        else:
            self._values[id(node)] = value

    def _cat(self, node: Node) -> None:
        """Parts that are only computed are computed in place; otherwise each part is copied by a loop of its own."""
        parts = [self._values[id(read)] for read in _first_list(node) if id(read) in self._values]
        computed = [part.buffer is None for part in parts]
        pointwise_uses = bool(node.users) and all(user.kind == "pointwise" for user in _through_views(node))
        if len(parts) <= 8 and ((any(computed) and pointwise_uses) or all(computed)):
            value = _Value({}, node.tensor.shape, nodes=[node], operations=1)
            for part in parts:
                self._join(value, part)
            if self._wants_memory(node, value):
                self._store(node, value)
            else:
                self._values[id(node)] = value
            return
        size = _bytes(node.tensor)
        for index, part in enumerate(parts):
            name = f"{node.name}.{index}"
            points = prod(part.shape)
            write = Buffer(node.name, size * points // max(node.numel, 1), part.shape)
            made = Piece(name, "pointwise", node, points, 1, list(part.reads.values()), [write], [*part.nodes, node])
            self.pieces.append(made)
        self._values[id(node)] = _stored(node.name, node.tensor.shape, size, [])

    def _reduction(self, node: Node) -> None:
        source = node.reads()[0]
        given = self._values[id(source)]
        results = prod(node.tensor.shape)
        length = max(prod(source.tensor.shape) // max(results, 1), 1)
        value = _Value({}, source.tensor.shape, nodes=[node], operations=1)
        self._join(value, given)
        if length < UNROLL_BELOW and results > 1:
            value.shape = node.tensor.shape
            if self._wants_memory(node, value):
                self._store(node, value)
            else:
                self._values[id(node)] = value
            return
        rows = _along_rows(node, source)
        parts = split_factor(results, length, self._gpu, inner=rows)
        reads = list(value.reads.values())
        # Mean divides afterwards; the other results of a pair lie beside the first.
        sums = node.base in ("sum", "mean", "prod")
        outputs = [Buffer(_name(node, i), _bytes(r), r.shape) for i, r in enumerate(node.results)]
        if parts > 1:
            partial = Buffer(f"{node.name}.parts", 4 * results * parts, (results, parts))
            first = Piece(
                f"{node.name}.first",
                "reduction",
                node,
                results * parts,
                -(-length // parts),
                reads,
                [partial],
                value.nodes,
                rows,
                (results, length),
                None,
                sums,
            )
            second = Piece(
                node.name,
                "reduction",
                node,
                results,
                parts,
                [Read(partial.name, partial.size)],
                outputs,
                value.nodes,
                False,
                None,
                None,
                sums,
            )
            self.pieces += [first, second]
        else:
            two = len([size for size in source.tensor.shape if size > 1]) == 2
            whole = Piece(node.name, "reduction", node, results, length, reads, outputs, value.nodes, rows)
            whole.sums, whole.by_two = sums, two
            self.pieces.append(whole)
        for index, buffer in enumerate(outputs):
            stored = _stored(buffer.name, buffer.shape, buffer.size, [])
            self._items[id(node), index] = stored
            if index == 0:
                self._values[id(node)] = stored

    def _extern(self, node: Node) -> None:
        reads = [self._in_memory(read) for read in node.reads()]
        writes = [Buffer(_name(node, i), _bytes(item), item.shape) for i, item in enumerate(node.results)]
        self.pieces.append(
            Piece(node.name, "extern", node, node.numel, 1, [r for part in reads for r in part], writes, [node])
        )
        for index, buffer in enumerate(writes):
            stored = _stored(buffer.name, buffer.shape, buffer.size, [])
            self._items[id(node), index] = stored
            if index == 0:
                self._values[id(node)] = stored

    def _scatter(self, node: Node) -> None:
        """What is written into is in memory first, and a loop over the places then changes it."""
        reads = node.reads()
        self._in_memory(reads[0])
        base = self._values[id(reads[0])]
        value = _Value({}, node.tensor.shape, nodes=[node], operations=1)
        points = 1
        for read in reads[1:]:
            given = self._values.get(id(read))
            if given is not None:
                self._join(value, given)
                points = max(points, prod(given.shape))
        touched = Buffer(
            node.name, min(_bytes(node.tensor), points * (itemsize(node.tensor.dtype) or 1)), node.tensor.shape
        )
        piece = Piece(node.name, "scatter", node, points, 1, list(value.reads.values()), [touched], value.nodes)
        piece.mutates = base.buffer
        self.pieces.append(piece)
        self._values[id(node)] = _stored(node.name, node.tensor.shape, _bytes(node.tensor), [])

    def _output(self, node: Node) -> None:
        for read in node.reads():
            if id(read) in self._values:
                self._in_memory(read)

    # ---- expressions and memory ----

    def _join(self, value: _Value, given: _Value) -> None:
        for read in given.reads.values():
            spread = read.spread if read.spread != "full" else _spread(given.shape, value.shape)
            key = (read.buffer, read.way, spread)
            value.reads[key] = Read(read.buffer, read.size, read.way, spread)
        if given.buffer is None:
            value.operations += given.operations
        known = {id(item) for item in value.nodes}
        value.nodes += [item for item in given.nodes if id(item) not in known]

    def _wants_memory(self, node: Node, value: _Value) -> bool:
        if _needed_in_memory(node):
            return True
        reads = len({(read.buffer, read.way) for read in value.reads.values()})
        operations = len(value.nodes) + reads
        if len(node.users) > 1 and (reads > REALIZE_REUSED_READS or operations > REALIZE_OPS):
            return True
        return reads > REALIZE_READS

    def _store(self, node: Node, value: _Value) -> None:
        size = _bytes(node.tensor)
        shape = value.shape
        write = Buffer(node.name, size, node.tensor.shape)
        self.pieces.append(
            Piece(node.name, "pointwise", node, prod(shape), 1, list(value.reads.values()), [write], value.nodes)
        )
        self._values[id(node)] = _stored(node.name, node.tensor.shape, size, [])

    def _in_memory(self, node: Node) -> list[Read]:
        value = self._values.get(id(node))
        if value is None:
            return []
        spread_out = value.buffer is not None and any(read.spread != "full" for read in value.reads.values())
        used_by_library = any(user.kind == "extern" for user in node.users)
        if value.buffer is None or (spread_out and used_by_library and node.numel > 1):
            self._store(node, value)
            value = self._values[id(node)]
        return list(value.reads.values())

    def _overwrite(self, node: Node, value: _Value) -> None:
        """``copy_`` into an input: the value is written there."""
        target = node.reads()[0]
        reads = [read for read in value.reads.values() if read.buffer != target.name or read.way]
        write = Buffer(node.name, _bytes(node.tensor), node.tensor.shape)
        piece = Piece(node.name, "pointwise", node, node.numel, 1, reads, [write], value.nodes)
        piece.mutates = target.name
        self.pieces.append(piece)
        self._values[id(node)] = _stored(node.name, node.tensor.shape, write.size, [])


def _stored(name: str, shape: tuple[int, ...], size: int, nodes: list[Node]) -> _Value:
    read = Read(name, size)
    return _Value({(name, (), "full"): read}, shape, name, nodes)


def _seen(source: _Value, way: tuple[Any, ...] | None, shape: tuple[int, ...], size: int, node: Node) -> _Value:
    reads = {}
    for read in source.reads.values():
        path = read.way if way is None else (*read.way, way)
        smaller = min(read.size, size) if source.buffer is not None else read.size
        reads[read.buffer, path, read.spread] = Read(read.buffer, smaller, path, read.spread)
    return _Value(reads, shape, source.buffer, [*source.nodes, node], source.operations)


def _expanded(source: _Value, shape: tuple[int, ...]) -> _Value:
    """The value repeated over a larger shape: what it reads stays where it is."""
    reads = {}
    for read in source.reads.values():
        spread = read.spread if read.spread != "full" else _spread(source.shape, shape)
        reads[read.buffer, read.way, spread] = Read(read.buffer, read.size, read.way, spread)
    return _Value(reads, shape, source.buffer, source.nodes, source.operations)


def _needed_in_memory(node: Node) -> bool:
    for user in node.users:
        if user.kind in ("extern", "output", "scatter"):
            if user.kind == "scatter" and user.reads()[0] is not node:
                continue
            return True
        if user.kind in ("view", "item") and _needed_in_memory(user):
            return True
    return False


def _through_views(node: Node) -> list[Node]:
    found = []
    for user in node.users:
        found += _through_views(user) if user.kind in ("view", "item") else [user]
    return found


def _first_list(node: Node) -> list[Node]:
    first = node.values[0]
    return [item for item in first if isinstance(item, Node)] if isinstance(first, tuple) else []


def _spread(shape: tuple[int, ...], target: tuple[int, ...]) -> str:
    """How a value of ``shape`` is repeated over ``target``, after broadcasting."""
    if prod(shape) == prod(target):
        return "full"
    aligned = (1,) * (len(target) - len(shape)) + tuple(shape)
    if len(aligned) != len(target):
        return "other"
    kept = [a == t for a, t in zip(aligned, target, strict=True) if t != 1]
    if not any(kept):
        return "rows"  # a single value
    first = kept.index(True)
    last = len(kept) - 1 - kept[::-1].index(True)
    if all(kept[: last + 1]):
        return "rows"
    return "columns" if all(kept[first:]) else "other"


def _along_rows(node: Node, source: Node) -> bool:
    """Whether a reduction goes along the dimension that is contiguous in memory."""
    dims = node.values[1] if len(node.values) > 1 else None
    if isinstance(dims, int):
        dims = (dims,)
    rank = len(source.tensor.shape)
    if not isinstance(dims, tuple) or not dims or not rank:
        return True
    reduced = {dim % rank for dim in dims if isinstance(dim, int)}
    strides = [
        (stride, index)
        for index, (size, stride) in enumerate(zip(source.tensor.shape, source.tensor.strides, strict=True))
        if size > 1
    ]
    return not strides or min(strides)[1] in reduced


def _name(node: Node, index: int) -> str:
    return node.name if index == 0 else f"{node.name}.{index}"


def _bytes(tensor: Tensor) -> int:
    return int(prod(tensor.shape)) * (itemsize(tensor.dtype) or 1)
