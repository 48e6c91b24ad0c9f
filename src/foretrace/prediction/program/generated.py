"""The rows of one call of a compiled graph: library calls and generated kernels, with names as Inductor gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from foretrace.knowledge.dtypes import itemsize
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.lowering.inductor import EXTERN, RANDOM, is_persistent
from foretrace.prediction.program.fusion import Kernel
from foretrace.prediction.program.fx_nodes import Node
from foretrace.prediction.program.loops import Piece
from foretrace.prediction.program.lower import Lowering, lower
from foretrace.prediction.program.operands import Call, Operand, held_bytes, merged
from foretrace.prediction.program.tree import operator_row
from foretrace.prediction.work import Access, Operator, Tensor, Work

__all__ = ["kernel_rows"]


def kernel_rows(
    nodes: Sequence[Node],
    kernels: Sequence[Kernel],
    given: Sequence[Operand | None],
    returned: Sequence[Operand | None],
    fresh: Callable[[], int],
    unknown: dict[str, str],
    phase: str,
) -> list[Operator]:
    """A row for each kernel of a call with these arguments and results, in launch order."""
    storages = _storages(nodes, given, returned)
    needed = _needed(nodes, kernels)
    sizes = {node.name: held_bytes(node.tensor) for node in nodes if node.results}
    rows = []
    drawing = [node for node in nodes if node.base in RANDOM]
    if drawing:
        rows.append(_seeds(len(drawing), fresh, phase))
    numbers: dict[tuple[object, ...], int] = {}
    for kernel in kernels:
        if kernel.extern:
            rows.append(_library(kernel.pieces[0], storages, fresh, unknown, phase))
            continue
        # Code that is the same twice is one kernel with one name.
        number = numbers.setdefault(_code(kernel), len(numbers))
        rows.append(_generated(kernel, number, storages, needed, sizes, fresh, phase))
        rows.extend(_joined(piece, storages, fresh, phase) for piece in kernel.mixed)
    return rows


# Nodes that are gone before kernels get their names.
_UNNAMED = frozenset({"detach", "alias"})


def _seeds(count: int, fresh: Callable[[], int], phase: str) -> Operator:
    """The draw of a graph's seeds, 64 bits for each place that needs random numbers."""
    work = Work("elementwise", "aten::randint", "int64", (), (Access(fresh(), 8 * count),), count)
    return Operator("aten::randint", (), [], [work], phase=phase)


def _code(kernel: Kernel) -> tuple[object, ...]:
    """What makes generated code the same: operators, sizes and types of all it does."""
    return tuple(
        (
            piece.kind,
            piece.outer,
            piece.inner,
            tuple((node.base, node.tensor.shape, node.tensor.dtype) for node in piece.nodes if node.results),
            tuple((read.size, read.spread, read.way) for read in piece.reads),
        )
        for piece in kernel.pieces
    )


class _Storages(dict[str, int]):
    """Buffer → storage number; buffers of the call itself get theirs when they are first seen."""

    def of(self, name: str, fresh: Callable[[], int]) -> int:
        if name not in self:
            self[name] = fresh()
        return self[name]


def _storages(nodes: Sequence[Node], given: Sequence[Operand | None], returned: Sequence[Operand | None]) -> _Storages:
    found = _Storages()
    inputs = [node for node in nodes if node.base == "placeholder"]
    for node, operand in zip(inputs, given, strict=False):
        if operand is not None:
            found[node.name] = operand.tensor.storage
    output = next((node for node in nodes if node.kind == "output"), None)
    for value, operand in zip(output.values[0] if output is not None else (), returned, strict=False):
        if isinstance(value, Node) and operand is not None:
            found.setdefault(_origin(value), operand.tensor.storage)
    for node in nodes:  # what is written into is the same memory afterwards
        if node.kind == "scatter" or node.base == "copy_":
            base = _origin(node.reads()[0])
            if base in found:
                found.setdefault(node.name, found[base])
    return found


def _origin(node: Node) -> str:
    """The buffer a node lies in, through views."""
    while node.kind in ("view", "item") and node.reads():
        if node.kind == "item":
            index = node.values[1]
            source = node.reads()[0]
            if source.kind != "view":
                return source.name if index == 0 else f"{source.name}.{index}"
        node = node.reads()[0]
    return node.name


def _part(node: Node) -> object:
    """What tells apart the views that a split or slices make of one buffer."""
    if node.kind == "item":
        return node.values[1]
    if node.kind == "view" and node.reads():
        below = _part(node.reads()[0])
        return (below, *map(str, node.values[1:])) if node.base in ("slice", "select", "as_strided") else below
    return None


def _needed(nodes: Sequence[Node], kernels: Sequence[Kernel]) -> dict[str, int]:
    """Buffer → how many kernels read it from memory; results of the graph count as one."""
    found: dict[str, int] = {}
    for kernel in kernels:
        for name in {read.buffer for read in kernel.reads()}:
            found[name] = found.get(name, 0) + 1
        for piece in kernel.pieces:
            if piece.mutates:
                found[piece.writes[0].name] = 1
    output = next((node for node in nodes if node.kind == "output"), None)
    for value in output.reads() if output is not None else ():
        found[_origin(value)] = found.get(_origin(value), 0) + 1
    return found


def _library(
    piece: Piece, storages: _Storages, fresh: Callable[[], int], unknown: dict[str, str], phase: str
) -> Operator:
    """A library call: what eager code would launch for the operator, with its result passed in."""
    node = piece.node

    def operand(item: Node) -> Operand:
        return Operand(replace(item.tensor, storage=storages.of(_origin(item), fresh)), place=_part(item))

    def value(item: object) -> object:
        if isinstance(item, Node):
            return operand(item) if item.results else None
        return tuple(value(part) for part in item) if isinstance(item, tuple) else item

    outputs = tuple(
        Operand(replace(tensor, storage=storages.of(node.name if i == 0 else f"{node.name}.{i}", fresh)))
        for i, tensor in enumerate(node.results)
    )
    call = Call(
        f"aten::{node.base}",
        tuple(value(item) for item in node.values),
        {key: value(item) for key, item in node.keywords.items()},
        outputs,
        module=node.module,
    )
    row = operator_row(call, call.op, lower(call, Lowering(None, unknown, fresh)), phase)
    if node.base in EXTERN and len(outputs) == 1:
        row.inputs = (*row.inputs, outputs[0].tensor)  # the result is passed in
    return row


def _generated(
    kernel: Kernel,
    number: int,
    storages: _Storages,
    needed: Mapping[str, int],
    sizes: Mapping[str, int],
    fresh: Callable[[], int],
    phase: str,
) -> Operator:
    outer, inner = kernel.space
    origins = {node.origin for piece in kernel.pieces for node in piece.nodes if node.origin}
    names = sorted(origins - _UNNAMED)
    leader = kernel.reduction
    category = "poi"
    if leader is not None:
        category = "per" if is_persistent(inner, inner=leader.along_rows) else "red"
    title = "_".join(["triton", category, "fused", *names, str(number)])
    reads = merged(Access(storages.of(name, fresh), size) for name, size in _read_bytes(kernel, sizes).items())
    kept = [buffer for buffer in kernel.writes() if needed.get(buffer.name)] or kernel.writes()[-1:]
    writes = merged(Access(storages.of(buffer.name, fresh), buffer.size) for buffer in kept)
    points = max(outer * inner, *(piece.outer * piece.inner for piece in kernel.pieces))
    largest = max(kernel.pieces, key=lambda piece: piece.outer * piece.inner)
    dtype = largest.node.tensor.dtype
    work = Work(
        kind=decode(title).kind,
        op=title,
        dtype=dtype,
        reads=reads,
        writes=writes,
        elements=points,
        reduced=inner,
        parts=tuple(names),
        vectorised=leader is None or leader.along_rows,
        generated=True,
    )
    width = itemsize(dtype) or 1
    tensors = [Tensor((access.bytes // width,), (1,), dtype, access.storage) for access in (*reads, *writes)]
    module = next((node.module for piece in kernel.pieces for node in piece.nodes if node.module), None)
    return Operator(title, tuple(tensors), [], [work], phase=phase, module=module)


def _read_bytes(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """Buffer → bytes read of it: its parts, seen through different views, add up, at most to all of it."""
    parts: dict[str, dict[object, int]] = {}
    for read in kernel.reads():
        parts.setdefault(read.buffer, {})[read.way] = read.size
    return {name: min(sum(ways.values()), sizes.get(name, max(ways.values()))) for name, ways in parts.items()}


def _joined(piece: Piece, storages: _Storages, fresh: Callable[[], int], phase: str) -> Operator:
    """The sum over the parts that a kernel of mixed order left."""
    target = piece.writes[0]
    parts = Access(fresh(), target.size)
    work = Work(
        "reduction",
        "aten::sum",
        "fp32",
        (parts,),
        (Access(storages.of(target.name, fresh), target.size),),
        piece.outer * piece.inner,
        reduced=piece.inner,
    )
    return Operator("aten::sum", (), [], [work], phase=phase, module=piece.node.module)
