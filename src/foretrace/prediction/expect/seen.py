"""One observation: its value or the reason why there is none, and the rows it rests on."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Seen", "unknown"]


@dataclass(frozen=True)
class Seen:
    """What was seen of one quantity in one view.

    Attributes:
        value: the number in the quantity's own unit; None where it could not be measured.
        reason: why not.
        events: event numbers of the GPU rows it counts.
        rows: trace rows of the CPU rows it counts.
    """

    value: float | None
    reason: str | None = None
    events: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()


def unknown(reason: str) -> Seen:
    """An observation that could not be made."""
    return Seen(None, reason)
