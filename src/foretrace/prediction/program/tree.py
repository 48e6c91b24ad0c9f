"""From the dispatcher's record and the calls seen below autograd to the operator tree of a `Program`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from foretrace.knowledge.lowering.eager import NESTED
from foretrace.prediction.program.lower import Lowering, lower
from foretrace.prediction.program.lower_gemm import GEMMS
from foretrace.prediction.program.observe import GRAPH, MARK, RENAMED, Event
from foretrace.prediction.program.operands import Call, Operand, contiguous_strides, held_bytes, tensors_in
from foretrace.prediction.work import Operator, Tensor, Work

__all__ = ["build_tree", "operator_row"]

_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step#"
_COPY = "aten::copy_"
_TRANSPARENT = frozenset({"PythonDispatchMode", "PythonSubclass"})


def build_tree(
    events: Sequence[Event],
    calls: Sequence[Call],
    context: Lowering,
    graph: Callable[[int], list[Operator]] | None = None,
) -> list[Operator]:
    """The operators of a step with the work each launches. ``graph``: the rows of a compiled graph's call."""
    builder = _Builder(calls, context, graph)
    roots = builder.children(events, "forward", None)
    _name_modules(roots)
    return roots


def operator_row(call: Call, name: str, work: list[Work], phase: str) -> Operator:
    """The row of a call with the rows that its own code adds below it; the innermost of them does the work."""
    arguments = (*call.args, *call.keywords.values())
    inputs = tuple(item.tensor if isinstance(item, Operand) else None for item in arguments)
    concrete = tuple(_written(item) for item in arguments)
    node = Operator(
        name, inputs, _nested(call.op, inputs, phase), work, phase=phase, module=call.module, concrete=concrete
    )
    if call.base in GEMMS:
        node.children.extend(row for item in work if item.op == _COPY for row in _copied(call, item, phase))
        node.work = [item for item in work if item.op != _COPY]
        return node
    below = _deepest(node)
    if below is not node:
        below.work = [replace(item, op=below.name) if item.op == call.op else item for item in work]
        node.work = []
    return node


def _copied(call: Call, work: Work, phase: str) -> list[Operator]:
    """The rows of a copy that a product needs: of a factor a clone, of a matrix to add to one into the result."""
    read, write = work.reads[0].storage, work.writes[0].storage
    operands = (*call.operands(), *call.outputs)
    source = next(item for item in operands if item.tensor.storage == read).tensor
    result = next((item.tensor for item in operands if item.tensor.storage == write), None)
    target = result or replace(source, strides=contiguous_strides(source.shape), storage=write)
    copy = Operator(
        _COPY, (target, source, None), work=[work], phase=phase, module=call.module, concrete=("", "", "False")
    )
    if result is not None:
        return [copy]
    empty = Operator("aten::empty_like", (source,), [Operator("aten::empty", phase=phase)], phase=phase)
    inputs, concrete = (source, None), ("", "0")
    return [
        Operator("aten::clone", inputs, [empty, copy], phase=phase, module=call.module, concrete=concrete),
    ]


class _Builder:
    def __init__(self, calls: Sequence[Call], context: Lowering, graph: Callable[[int], list[Operator]] | None) -> None:
        self._calls = calls
        self._context = context
        self._graph = graph

    def children(self, events: Sequence[Event], phase: str, parent: str | None) -> list[Operator]:
        found: list[Operator] = []
        for event in events:
            found.extend(self.convert(event, phase, parent))
        return found

    def convert(self, event: Event, phase: str, parent: str | None) -> list[Operator]:
        if event.name in _TRANSPARENT:
            return self.children(event.children, phase, parent)
        if event.name.startswith(GRAPH) and self._graph is not None:
            return self._graph(int(event.name.removeprefix(GRAPH)))
        if event.name.startswith(MARK):
            call = self._calls[int(event.name.removeprefix(MARK))]
            return [self._leaf(call, None, phase)]
        if event.name.startswith(_BACKWARD):
            phase = "backward"
        elif event.name.startswith(_OPTIMIZER):
            phase = "optimizer"
        number = _marker(event)
        if number is not None and self._calls[number].op.removeprefix("aten::") == event.name.removeprefix("aten::"):
            # The autograd layer writes some operators' rows without their namespace (detach).
            return [self._leaf(self._calls[number], event, phase)]
        renamed = event.name.startswith(RENAMED)
        name = event.name.removeprefix(RENAMED)
        node = Operator(
            name,
            event.inputs,
            self.children(event.children, phase, name),
            phase=phase,
            annotation=event.annotation and not renamed,
            sequence=event.sequence,
        )
        seen = [item for number in _markers(event) for item in tensors_in(self._calls[number].args)]
        node.inputs = tuple(self._with_storage(item, seen) if item is not None else None for item in node.inputs)
        if not node.annotation:
            node.module = next((self._calls[number].module for number in _markers(event)), None)
        return [node]

    def _leaf(self, call: Call, event: Event | None, phase: str) -> Operator:
        name = event.name if event is not None else call.op
        node = operator_row(call, name, lower(call, self._context), phase)
        node.sequence = event.sequence if event is not None else None
        return node

    def _with_storage(self, tensor: Tensor, seen: Sequence[Operand]) -> Tensor:
        """A composite operator's tensor, with the storage of what its parts were given: the same memory, if any is."""
        size = held_bytes(tensor)
        for item in seen:
            if item.dtype == tensor.dtype and item.access.bytes == size:
                return replace(tensor, storage=item.tensor.storage)
        return replace(tensor, storage=self._context.fresh())


def _marker(event: Event) -> int | None:
    for child in event.children:
        if child.name in _TRANSPARENT:
            return _marker(child)
        if child.name.startswith(MARK):
            return int(child.name.removeprefix(MARK))
    return None


def _markers(event: Event) -> Iterator[int]:
    for child in event.children:
        if child.name.startswith(MARK):
            yield int(child.name.removeprefix(MARK))
        else:
            yield from _markers(child)


def _nested(op: str, inputs: tuple[Tensor | None, ...], phase: str) -> list[Operator]:
    """The rows that the operator's own code adds below it."""
    return [Operator(name, inputs, _nested(name, inputs, phase), phase=phase) for name in NESTED.get(op, ())]


def _deepest(node: Operator) -> Operator:
    while node.children:
        node = node.children[-1]
    return node


def _written(value: object) -> str:
    if isinstance(value, Operand) or value is None:
        return ""
    if isinstance(value, (bool, int, float, str)):
        return str(value)
    if isinstance(value, tuple) and all(isinstance(item, (bool, int, float)) for item in value):
        return str(list(value))
    return ""


def _name_modules(roots: list[Operator]) -> None:
    """Backward rows belong to the module of the forward operator with their number, with all that is below them."""
    by_number: dict[int, str] = {}
    pending = list(roots)
    while pending:
        node = pending.pop()
        pending.extend(node.children)
        if node.sequence is not None and node.module is not None and node.phase == "forward":
            by_number[node.sequence] = node.module
    for root in roots:
        if root.phase == "backward" and root.sequence is not None:
            _assign(root, by_number.get(root.sequence))


def _assign(node: Operator, module: str | None) -> None:
    node.module = node.module or module
    for child in node.children:
        _assign(child, module)
