"""SIGTERM and SIGHUP end a command as Ctrl-C does, so that temporary files go and what was started is ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Ended", "heard"]


class Ended(KeyboardInterrupt):
    """A signal asked this process to end; ``exit_code`` is what a shell says of one that it ended."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number


@contextmanager
def heard() -> Iterator[list[int]]:
    """Raise ``Ended`` inside for such a signal, unless the program around us or who started it chose otherwise.

    What it gives holds the number of the signal that came, if one did.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came  # only the main thread may say what is done with signals
        return
    process = os.getpid()
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != process:  # a fork of ours: none of this is its own
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for one in ours:  # what is being cleared away is cleared away once; Ctrl-C still ends that
            if signal.getsignal(one) is end:
                signal.signal(one, signal.SIG_IGN)
        came.append(number)
        raise Ended(number)

    for number in ours:
        signal.signal(number, end)
    try:
        yield came
    finally:
        for number in ours:
            # A command may have set its own, for as long as the process lives.
            if signal.getsignal(number) in (end, signal.SIG_IGN):
                signal.signal(number, signal.SIG_DFL)
