"""A budget of wall-clock time: lent machines are taken back, and a run cut short must have said what it skipped."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Deadline"]


class Deadline:
    """``budget_s`` seconds from now; ``None``: no end."""

    def __init__(self, budget_s: float | None, counter: Callable[[], float] = time.monotonic) -> None:
        self._counter = counter
        self._start = counter()
        self.budget_s = budget_s

    @property
    def spent_s(self) -> float:
        """Seconds since the start."""
        return self._counter() - self._start

    @property
    def left_s(self) -> float:
        """Seconds left, never below zero; infinite without a budget."""
        return float("inf") if self.budget_s is None else max(0.0, self.budget_s - self.spent_s)

    @property
    def over(self) -> bool:
        """Whether nothing new should begin."""
        return self.left_s <= 0.0
