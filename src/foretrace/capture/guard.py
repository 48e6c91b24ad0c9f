"""The guard at torch's entrance: no other profiler starts while foretrace records.

Kineto has one session a process, so a second profiler ends the first one's without a word. All of torch's
Python profilers (``torch.profiler``, ``torch.autograd.profiler``, ``emit_nvtx``, ``emit_itt``) start
through two functions that ``torch.autograd.profiler`` holds as module globals; while we record, these
refuse every caller but ourselves.

A profiler whose *preparation* was refused must not be enabled either, not even after our recording has ended:
enabling an unprepared Kineto session crashes the process (torch 2.4 and 2.13), and
``torch.profiler.profile`` does just that when it is left in its warm-up. So a profiler that was turned
away is remembered for as long as it lives.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from foretrace.errors import ProfilerActiveError

__all__ = ["Guard", "was_refused"]

_PREPARE = "_prepare_profiler"
_ENABLE = "_enable_profiler"

_REFUSED = (
    "another profiler was started while foretrace records; two at once would empty both. Take one of them "
    "out: either the torch.profiler in the program, whose own trace `foretrace explain` reads just as well, "
    "or the foretrace recording around it"
)


# Profilers whose preparation was refused and which were not prepared since.
_refused: weakref.WeakSet[Any] = weakref.WeakSet()


def was_refused(profiler: Any) -> bool:
    """Whether a ``torch.autograd.profiler.profile`` was turned away, and so only looks armed."""
    return profiler in _refused


class Guard:
    """Stands before the two functions of ``torch.autograd.profiler`` from ``close`` to ``open``."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._own = threading.local()
        self._closed = False
        self._originals: dict[str, Callable[..., Any]] = {}
        self._doors: dict[str, Callable[..., Any]] = {_PREPARE: self._prepare, _ENABLE: self._enable}

    def close(self) -> None:
        """Let nobody in but code inside :meth:`ourselves`."""
        self._closed = True
        for name, door in self._doors.items():
            self._originals[name] = getattr(self._module, name)
            setattr(self._module, name, door)

    def open(self) -> None:
        """Let everybody in again, except a profiler that was turned away before."""
        self._closed = False
        self._remove()

    @contextmanager
    def ourselves(self) -> Iterator[None]:
        """Calls from inside pass the guard, on this thread."""
        self._own.inside = True
        try:
            yield
        finally:
            self._own.inside = False

    def _prepare(self, *args: Any, **kwargs: Any) -> Any:
        # The profiler itself is not among the arguments; it is the method that called.
        caller = sys._getframe(1).f_locals.get("self")
        if self._may_pass():
            _refused.discard(caller)
            self._remove()
            return self._originals[_PREPARE](*args, **kwargs)
        if caller is not None:
            _refused.add(caller)
        raise ProfilerActiveError(_REFUSED)

    def _enable(self, *args: Any, **kwargs: Any) -> Any:
        if self._may_pass() and sys._getframe(1).f_locals.get("self") not in _refused:
            self._remove()
            return self._originals[_ENABLE](*args, **kwargs)
        # The caller has already noted down that a profiler runs; put that right.
        self._module._set_is_profiler_enabled(self._module.torch._C._autograd._profiler_enabled())
        raise ProfilerActiveError(_REFUSED)

    def _may_pass(self) -> bool:
        return not self._closed or bool(getattr(self._own, "inside", False))

    def _remove(self) -> None:
        """Take the doors away, unless they are needed still."""
        if self._closed or _refused:
            return
        for name, door in self._doors.items():
            # Another guard may stand before this one by now; then this one stays and lets everybody through.
            if getattr(self._module, name) is door:
                setattr(self._module, name, self._originals[name])
