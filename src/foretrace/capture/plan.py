"""Which step does what: wait (profiler off), warm up (profiler on, nothing kept), active (recorded), done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from foretrace.errors import InputError, ScheduleError

__all__ = ["DEFAULT_ACTIVE", "DEFAULT_WAIT", "DEFAULT_WARMUP", "CaptureWarning", "Phase", "Plan"]

# The schedule of the profiler recipe in PyTorch's own documentation and of the article foretrace follows.
DEFAULT_WAIT = 1
DEFAULT_WARMUP = 1
DEFAULT_ACTIVE = 3

Phase = Literal["wait", "warmup", "active", "done"]

_LETTER: dict[Phase, str] = {"wait": "-", "warmup": "W", "active": "R", "done": "."}


class CaptureWarning(UserWarning):
    """A recording was made, but something about it should be known before it is trusted."""


@dataclass(frozen=True)
class Plan:
    """One cycle of steps. There is no second cycle: it could only overwrite the first.

    Raises :class:`~foretrace.errors.InputError` for a negative count or fewer than one active step.
    """

    wait: int = DEFAULT_WAIT
    warmup: int = DEFAULT_WARMUP
    active: int = DEFAULT_ACTIVE

    def __post_init__(self) -> None:
        for name in ("wait", "warmup", "active"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{name} must be a whole number of steps, not {value!r}")
        if self.wait < 0 or self.warmup < 0:
            raise InputError("wait and warmup must not be negative")
        if self.active < 1:
            raise InputError("active must be at least 1: with no active step nothing would be recorded")

    @property
    def total(self) -> int:
        """Steps until the recording is complete."""
        return self.wait + self.warmup + self.active

    def phase(self, step: int) -> Phase:
        """What the profiler does during step number ``step`` (from 0)."""
        if step < self.wait:
            return "wait"
        if step < self.wait + self.warmup:
            return "warmup"
        return "active" if step < self.total else "done"

    def is_last_active(self, step: int) -> bool:
        """Whether the recording ends with step number ``step``."""
        return step == self.total - 1

    def recorded(self, steps: int) -> int:
        """How many active steps are complete after ``steps`` steps."""
        return min(max(steps - self.wait - self.warmup, 0), self.active)

    def strip(self, steps: int) -> str:
        """The steps as a strip: ``-`` wait, ``W`` warm-up, ``R`` recorded, ``r`` planned but not reached."""
        shown = ""
        for step in range(self.total):
            letter = _LETTER[self.phase(step)]
            shown += letter if step < steps else letter.lower()
        return shown

    def not_reached(self, steps: int) -> ScheduleError:
        """The error for a recording left after ``steps`` steps, before its first active step ended."""
        what = f"wait {self.wait} + warmup {self.warmup} + active {self.active}"
        got = f"got {steps}" if steps else "got 0: step() was never called"
        advice = (
            "run the loop through `for ... in p.steps(...)`, or call p.step() at the end of every step"
            if not steps
            else "run more steps, or ask for fewer with wait=, warmup= and active="
        )
        return ScheduleError(
            f"the schedule needs {self.total} steps ({what}) and {got}, so nothing was recorded; {advice}"
        )
