"""Watch a step run on the meta device: the operator tree a trace would show, and every call below autograd.

The tree comes from the dispatcher's own record (what the profiler's CPU rows are made of), so composite operators,
autograd nodes and their numbers are those of a real trace. A dispatch mode adds what the record lacks: storages,
results, scalar arguments. Both are joined by a marker that the mode leaves around each call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.utils._python_dispatch import TorchDispatchMode

from foretrace.errors import ProfilerActiveError
from foretrace.knowledge.dtypes import dtype as element_type
from foretrace.prediction.program.fused_operators import NAMESPACE as FUSED_NAMESPACE
from foretrace.prediction.program.operands import Call, Operand
from foretrace.prediction.program.rms import LIBRARY
from foretrace.prediction.work import Tensor

__all__ = [
    "GRAPH",
    "MARK",
    "RENAMED",
    "Event",
    "ModulePath",
    "Recorder",
    "Storages",
    "dtype_of",
    "observe",
    "without_modes",
]

MARK = "foretrace#"  # a call of the dispatch mode, by number
GRAPH = "foretrace graph#"  # a call of a compiled graph, by number
_LOG_LEVEL = "KINETO_LOG_LEVEL"
RENAMED = "foretrace="  # an operator that a GPU would dispatch and the meta device does not


@dataclass(slots=True)
class Event:
    """One row of the dispatcher's record; its tensors have no storages yet."""

    name: str
    inputs: tuple[Tensor | None, ...]
    sequence: int | None
    annotation: bool
    children: list[Event] = field(default_factory=list)


_weak_reference: Any = reductions.StorageWeakRef


class Storages:
    """Numbers for storages that stay valid after a storage is freed and its address used again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}
        self._count = 0

    def fresh(self) -> int:
        """A number for a storage that no tensor shows."""
        self._count += 1
        return self._count

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        found = self._known.get(address)
        if found is None or found[0].expired():
            found = (_weak_reference(storage), self.fresh())
            self._known[address] = found
        return found[1]


class ModulePath:
    """The dotted path of the module that is running, innermost; hooks tell it who begins and ends."""

    def __init__(self, function: Any) -> None:
        modules = function.named_modules() if isinstance(function, torch.nn.Module) else ()
        self._names = {id(module): path for path, module in modules}
        self._stack: list[str] = []

    def current(self) -> str | None:
        """The innermost module that is running; ``None`` outside all and in the outermost."""
        return (self._stack[-1] or None) if self._stack else None

    def enter(self, module: Any, *_: Any) -> None:
        """A module begins."""
        self._stack.append(self._names.get(id(module), type(module).__name__))

    def leave(self, *_: Any) -> None:
        """The innermost module ends."""
        if self._stack:
            self._stack.pop()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow the modules that run meanwhile."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

        hooks = [register_module_forward_pre_hook(self.enter), register_module_forward_hook(self.leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every call below autograd. ``path`` says in which module the program is."""

    def __init__(self, storages: Storages, path: ModulePath | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []
        self.storages = storages
        self._path = path or ModulePath(None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        number = len(self.calls)
        if func.namespace == "profiler":  # the program's own annotations
            return func(*args, **keywords)
        call = Call(_name(func), (), {}, (), module=self._path.current(), node=_node())
        self.calls.append(call)
        call.args = self._record(args)
        call.keywords = self._record(keywords)
        with torch.profiler.record_function(f"{MARK}{number}"):
            result = func(*args, **keywords)
        call.outputs = tuple(_flat(self._record(result)))
        _read_schema(func, call)
        return result

    def operand(self, tensor: torch.Tensor) -> Operand:
        """The record of a tensor."""
        storage = self.storages.number(tensor)
        return Operand(
            Tensor(tuple(tensor.shape), tuple(tensor.stride()), dtype_of(tensor), storage),
            tensor.device.type != "cpu",
            tensor.storage_offset(),
            tensor.untyped_storage().nbytes(),
        )

    def _record(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.operand(value) if value.layout == torch.strided else None
        if isinstance(value, dict):
            return {key: self._record(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._record(item) for item in value)
        return value


def observe(run: Callable[[], Any]) -> list[Event]:
    """Run a step under the dispatcher's record and return its rows as a forest.

    ``run`` enters a `Recorder` where it wants calls to be seen. Raises :class:`ProfilerActiveError` when another
    profiler is running in this process.
    """
    # A process whose first profile leaves the GPU out never sees a kernel in a later one (Kineto registers once).
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profile = torch.profiler.profile(activities=activities, record_shapes=True)
    try:
        with _quiet():
            profile.start()
    except RuntimeError as error:
        raise ProfilerActiveError(
            "predict needs the dispatcher's record, and another profiler is running in this process; stop it first"
        ) from error
    try:
        with _annotations_apart():
            run()
    finally:
        with _quiet():
            profile.stop()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    assert results is not None
    return [_event(item) for item in results.experimental_event_tree()]


def _event(item: Any) -> Event:
    fields = item.extra_fields
    inputs = tuple(_input(value) for value in getattr(fields, "inputs", ()))
    sequence = getattr(fields, "sequence_number", -1)
    scope = str(getattr(fields, "scope", ""))
    return Event(
        _as_traced(item.name),
        inputs,
        sequence if isinstance(sequence, int) and sequence >= 0 else None,
        scope.endswith("USER_SCOPE"),
        [_event(child) for child in item.children],
    )


def _input(value: Any) -> Tensor | None:
    sizes = getattr(value, "sizes", None)
    if sizes is None or not hasattr(value, "strides"):
        return None
    known = element_type(str(value.dtype))
    return Tensor(
        tuple(sizes),
        tuple(value.strides),
        known.name if known is not None else str(value.dtype),
        0,
    )


def dtype_of(tensor: torch.Tensor) -> str:
    """The short name of a tensor's element type, ``bf16``."""
    known = element_type(str(tensor.dtype))
    return known.name if known is not None else str(tensor.dtype)


def _name(func: Any) -> str:
    return _as_traced(str(func._schema.name))


def _as_traced(name: str) -> str:
    """Operators that this package defines stand for those of a CUDA build, and of the fused modules."""
    if name.startswith(f"{FUSED_NAMESPACE}::"):
        return f"foretrace::{name.partition('::')[2]}"
    return f"aten::{name.partition('::')[2]}" if name.startswith(f"{LIBRARY}::") else name


def _node() -> str | None:
    current = getattr(torch._C, "_current_autograd_node", None)
    node = current() if current is not None else None
    return str(node.name()) if node is not None else None


def _flat(value: Any) -> Iterator[Operand]:
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)


def _read_schema(func: Any, call: Call) -> None:
    """Which arguments are written, whether the result aliases them, and what the arguments are called."""
    schema = func._schema
    written: list[Operand] = []
    names: dict[str, int] = {}
    for position, argument in enumerate(schema.arguments):
        names[argument.name] = position
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = call.keywords.get(argument.name)
            if given is None and position < len(call.args):
                given = call.args[position]
            written.extend(_flat(given))
    call.names = names
    call.written = tuple(written)
    call.pointwise = torch.Tag.pointwise in func.tags
    given_storages = {item.tensor.storage for item in _flat((call.args, tuple(call.keywords.values())))}
    call.view = bool(call.outputs) and not written and all(o.tensor.storage in given_storages for o in call.outputs)


@contextmanager
def without_modes() -> Iterator[None]:
    """Without dispatch modes: what happens inside is not recorded as a call."""
    from torch.utils import _python_dispatch

    without = getattr(_python_dispatch, "_disable_current_modes", None)
    if without is None:
        yield
        return
    with without():
        yield


@contextmanager
def _annotations_apart() -> Iterator[None]:
    """Annotations begin and end through the dispatcher; seen by a mode, they would not enclose what they are around."""
    kind: Any = torch.autograd.profiler.record_function
    enter, leave = kind.__enter__, kind.__exit__

    def entered(annotation: Any) -> Any:
        with without_modes():
            return enter(annotation)

    def left(annotation: Any, *error: Any) -> Any:
        with without_modes():
            return leave(annotation, *error)

    kind.__enter__, kind.__exit__ = entered, left
    try:
        yield
    finally:
        kind.__enter__, kind.__exit__ = enter, leave


@contextmanager
def _quiet() -> Iterator[None]:
    """Kineto reports its start and stop on stderr of the process, past Python; nothing was asked for there.

    It reads its level once a process, at its first profile: one that is recorded later is to be as quiet.
    """
    with _without_log_level(), _without_stderr():
        yield


@contextmanager
def _without_log_level() -> Iterator[None]:
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "6"  # above every severity of libkineto/src/Logger.h
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


@contextmanager
def _without_stderr() -> Iterator[None]:
    try:
        kept = os.dup(2)
    except OSError:  # stderr is closed
        yield
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(sink)
