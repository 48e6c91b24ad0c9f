"""The end of a recording that a program entered, never left, and then forgot."""

from __future__ import annotations

import os
import sys

from foretrace.capture.backend import Session
from foretrace.capture.memory import History

__all__ = ["end_dropped"]


def end_dropped(session: Session, history: History | None, process: int) -> None:
    """Stop the profiler of a recording that was entered, never left and then forgotten."""
    if process != os.getpid():
        return
    print(
        "foretrace: a recording was dropped without being left, and nothing was written; "
        "use `with foretrace.profile(...):`",
        file=sys.stderr,
    )
    if history is not None:
        history.stop()
    try:
        session.stop()
    except Exception as error:  # the garbage collector may have called, and nobody could catch it
        print(f"foretrace: its profiler could not be stopped: {error}", file=sys.stderr)
