"""Sizes as messages print them: intervals, since they are rounded to two decimals."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from foretrace.knowledge import out_of_memory as known

__all__ = ["Amount", "below_zero"]

_WRAPS: Final = 1 << 64
_WRITTEN: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?([A-Za-z]+)")


@dataclass(frozen=True, slots=True)
class Amount:
    """A size that is known to lie between two sizes, both included, in bytes; ``nominal`` is what was written."""

    low: int
    high: int
    nominal: int

    @classmethod
    def exactly(cls, size: int) -> Amount:
        """A size without rounding."""
        size = min(size, known.NOT_REPORTED_BYTES)
        return cls(size, size, size)

    @classmethod
    def read(cls, text: str) -> Amount:
        """A printed size such as ``21.73GiB``: half a unit of its last digit either way, never below zero.

        What is above `knowledge.out_of_memory.NOT_REPORTED_BYTES` is cut to that: no memory is so large.
        """
        return cls(*(min(size, known.NOT_REPORTED_BYTES) for size in _read(text)))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.high + other.high, self.nominal + other.nominal)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.low - other.high, self.high - other.low, self.nominal - other.nominal)

    def at_least(self, other: Amount) -> bool | None:
        """Whether it is the other size or more; None where the rounding hides it."""
        if self.low >= other.high:
            return True
        return False if self.high < other.low else None

    @property
    def unreal(self) -> bool:
        """Whether it is more than any memory has: an overflow, garbage, or how "not known" is written."""
        return self.nominal >= known.NOT_REPORTED_BYTES


def below_zero(text: str) -> Amount | None:
    """How far below zero the size was that 64 bits without a sign show as this one; None where it is no such size."""
    low, high, nominal = _read(text)
    if high < _WRAPS // 2 or low >= _WRAPS:
        return None
    return Amount(*(max(0, _WRAPS - size) for size in (high, low, nominal)))


# Of a log with many messages, most sizes are the same.
@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[int, int, int]:
    match = _WRITTEN.fullmatch(text.replace(" ", ""))
    assert match is not None
    whole, decimals, unit = match[1], match[2] or "", match[3]
    least, most = known.UNITS[unit]
    value = int(whole + decimals)
    if not decimals and most == 1:
        return value, value, value
    scale = 10 ** len(decimals)
    # Twice the value plus or minus one, over twice the scale: integers, so that nothing rounds on the way.
    low = max(0, -(-(2 * value - 1) * least // (2 * scale)))
    high = (2 * value + 1) * most // (2 * scale)
    return low, high, value * most // scale
