"""Ending queries from another thread: the process of each that runs is killed, and none begins any more."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

__all__ = ["Interrupt", "interrupt_here"]

_current: ContextVar[Interrupt | None] = ContextVar("foretrace_interrupt", default=None)


class Interrupt:
    """What ends the queries that are asked inside ``with interrupt.covering():``; any thread may call ``set``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_set = False

    @property
    def is_set(self) -> bool:
        """Whether they are to end."""
        return self._is_set

    def set(self) -> None:
        """End those that run, and those that are asked later."""
        with self._lock:
            self._is_set = True
            for process in self._processes:
                _kill(process)

    @contextmanager
    def covering(self) -> Iterator[None]:
        """Queries asked inside, by this thread, are ended by ``set``."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process on ``set``; at once where that was called before."""
        with self._lock:
            self._processes.add(process)
            if self._is_set:
                _kill(process)

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        """The process has ended."""
        with self._lock:
            self._processes.discard(process)


def interrupt_here() -> Interrupt:
    """The one that covers this thread; where there is none, one that nobody sets."""
    return _current.get() or Interrupt()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.kill()
