"""``foretrace.profile``: the one way into a recording."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from foretrace.capture.backend import Backend
from foretrace.capture.recording import Recording

__all__ = ["profile"]

P = ParamSpec("P")
R = TypeVar("R")


class _Options(TypedDict, total=False):
    """The keywords of :class:`Recording`, a test holds them equal."""

    wait: int | None
    warmup: int | None
    active: int | None
    shapes: bool
    stacks: bool
    memory: bool
    all_threads: bool
    force: bool
    label: str | None
    backend: Backend | None


@overload
def profile(path: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def profile(path: str | os.PathLike[str] | None = None, **options: Unpack[_Options]) -> Recording: ...


def profile(path: Any = None, **options: Unpack[_Options]) -> Any:
    """Record what runs inside a block, a training loop, or a decorated function.

    As a block::

        with foretrace.profile("traces/mlp", active=3) as p:     # wait=1, warmup=1
            for batch in p.steps(loader):
                train(batch)
        p.explain()

    As a decorator, each call being a step::

        @foretrace.profile("traces/train", active=3)
        def train_step(batch): ...

    Without ``active`` everything in the block is recorded (of a decorated function: its first call). A bare
    ``@foretrace.profile`` does that with the defaults.

    ``path``: the file to write; ``traces/x`` becomes ``traces/x.trace.json.gz`` or has the next free number
    where that exists, and ``None`` becomes ``traces/profile``. ``wait``, ``warmup``, ``active``: steps
    without the profiler, with it but thrown away, and recorded; ``wait`` and ``warmup`` are 1 when only
    ``active`` is given. ``shapes``, ``stacks``, ``memory``: operand shapes, Python stacks, allocator events.
    On a GPU ``memory`` also records the allocator's own history from the block's start on (build the model
    inside of it) and leaves ``x.snapshot.pickle`` for ``foretrace memory``; that slows the block a little.
    ``all_threads``: operators of every thread. ``force``: replace an existing file (with a complete recording
    only). ``label``: free text for the side file.

    Raises on entry, before anything is recorded: :class:`InputError` for a path that is taken or counts that
    make no schedule, :class:`MissingExtraError` without torch, :class:`ProfilerActiveError` when a profiler
    is running. Raises on exit, with what was recorded kept: :class:`ScheduleError` when no active step was
    reached, :class:`EmptyTraceError` when the GPU worked and the trace has no kernel. An exception from
    inside the block passes through; what was traced until then is kept.
    """
    if callable(path):
        return Recording(**options)(path)
    return Recording(path, **options)


# What help() and editors show: the parameters by name.
profile.__signature__ = inspect.signature(Recording).replace(return_annotation=Recording)  # type: ignore[attr-defined]
