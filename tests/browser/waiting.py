"""Waiting for a page whose policy lets nobody evaluate text in it, Playwright's own waiting included."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["until"]


def until(page: Any, expression: str, *, seconds: float = 10.0) -> None:
    """Ask for a JavaScript expression until it is true."""
    end = time.monotonic() + seconds
    # The value itself may be large: it stays in the page.
    while not page.evaluate(f"Boolean({expression})"):
        assert time.monotonic() < end, f"never true within {seconds} s: {expression}"
        page.wait_for_timeout(15)
