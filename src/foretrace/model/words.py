"""Quantities in words, on every screen and in every sentence alike: three significant digits and their unit.

What is unknown is a dash. Prefixes are decimal (1 MB = 10⁶ bytes), as in datasheets and in GB/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from foretrace.knowledge.limits import SHOWN_KINDS

__all__ = [
    "BOUND_WORDS",
    "UNKNOWN",
    "breakdown",
    "bytes_of",
    "count",
    "first_of",
    "flop",
    "listed",
    "many_of",
    "mebibytes",
    "number",
    "owner_of",
    "percent",
    "scale_of_times",
    "share_of",
    "time",
    "whole",
]

UNKNOWN = "–"

# How a verdict is said in one word.
BOUND_WORDS = {
    "overhead": "overhead-bound",
    "compute": "compute-bound",
    "memory": "memory-bound",
    "mixed": "mixed",
    "unknown": "unknown",
}


# Of µs that is a nanosecond: the last digit of a trace.
LEAST_TOLD = 0.001


def number(value: float | None, digits: int = 3) -> str:
    """A number with ``digits`` significant digits, fewer only where it is a whole number.

    Digits before the decimal point are never replaced by zeros: 1234.5 is "1234" (round half to even), not
    "1230". ``None`` and what is no number are a dash, and a value that is not zero never prints as "0".
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    if isinstance(value, int):
        return str(value)
    magnitude = math.floor(math.log10(abs(value)))
    text = f"{value:.{max(0, digits - 1 - magnitude)}f}"
    # 99.96 rounds up to one digit more than asked for.
    if "." in text and len(text.lstrip("-").replace(".", "").lstrip("0")) > digits:
        text = f"{value:.{max(0, digits - 2 - magnitude)}f}"
    return text


def whole(value: float | None) -> str:
    """A count that may be an average: "2", "0.667"."""
    integral = value is not None and math.isfinite(value) and value == int(value)
    return number(int(value) if value is not None and integral else value)


def count(how_many: int | float | None, one: str, many: str | None = None) -> str:
    """A counted noun: "1 kernel", "5 kernels", "– kernels"."""
    noun = one if how_many == 1 else many or one + "s"
    return f"{number(how_many)} {noun}"


_TIMES = ((1e6, "s"), (1e3, "ms"), (0.0, "µs"))
_DIVISOR = {"s": 1e6, "ms": 1e3, "µs": 1.0}


def time(us: float | None) -> str:
    """A time in the unit that suits it, from µs: "31.8 µs", "4.20 ms", "1.75 s"."""
    if us is None or not math.isfinite(us):
        return UNKNOWN
    unit = next(unit for least, unit in _TIMES if abs(us) >= least)
    return f"{duration(us / _DIVISOR[unit])} {unit}"


def duration(value: float | None) -> str:
    """The number of a time; below a thousandth, which no clock tells, only that: "<0.001"."""
    return f"<{LEAST_TOLD}" if value is not None and 0 < value < LEAST_TOLD else number(value)


def scale_of_times(values: Iterable[float | None]) -> tuple[float, str]:
    """One divisor and unit for a column of times in µs: µs up to five digits, then ms, then s."""
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    unit = "µs" if largest < 1e5 else "ms" if largest < 1e8 else "s"
    return _DIVISOR[unit], unit


def _prefixed(value: float | None, unit: str, digits: int) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{number(value / factor, digits)} {prefix}{unit}"
    return f"{number(value, digits)} {unit}"


def bytes_of(value: float | None) -> str:
    """A size: "50.3 MB"."""
    return _prefixed(value, "B", 3)


def mebibytes(value: float | None) -> str:
    """A size in the allocator's own units, which are binary: "200 MiB", "27.9 MiB", "512 B".

    Always MiB from 1 MiB on, so that sums can be checked by eye and match what torch prints.
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    unit, factor = next(((u, f) for u, f in (("MiB", 1 << 20), ("KiB", 1 << 10)) if abs(value) >= f), ("B", 1))
    text = number(value / factor, 4)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def owner_of(stream: int, pool: Sequence[int]) -> str:
    """Whose memory it is, for the allocator lends nothing across: "the default stream", "stream 0x2b19, pool 0.1"."""
    name = "the default stream" if stream == 0 else f"stream {stream:#x}"
    return name if tuple(pool) == (0, 0) else f"{name}, pool {pool[0]}.{pool[1]}"


def rate_of(gigabytes: float | None) -> str:
    """A rate of memory, always in GB/s as its columns and datasheets are: "0.480 GB/s", "3650 GB/s"."""
    return f"{number(gigabytes)} GB/s"


def flop(value: float | None) -> str:
    """An amount of work, exact by formula and so with four digits: "38.65 GFLOP"."""
    return _prefixed(value, "FLOP", 4)


def many_of(how_many: int) -> str:
    """A large count in short, before its noun: "12.6 M", "68"."""
    return _prefixed(how_many, "", 3).rstrip()


def percent(part: float | None) -> str:
    """A share (0..1) as the digits of a percentage: "41.4". Neither end is reached by rounding."""
    if part is None or not math.isfinite(part):
        return UNKNOWN
    if 0 < part < 0.001:
        return "<0.1"
    if 0.999 < part < 1:
        return ">99.9"
    if part == 1:
        return "100"
    return f"{part * 100:.1f}" if part else "0"


def share_of(part: float | None) -> str:
    """A share (0..1) with its sign: "41.4 %"."""
    return UNKNOWN if part is None else f"{percent(part)} %"


def signed(change: float) -> str:
    """A relative change: "-12.4 %"; from ten times on as a factor, "18.6×"."""
    return f"{100 * change:+.1f} %" if abs(change) < 10 else f"{number(1 + change)}×"


def breakdown(parts: Sequence[tuple[str, float]]) -> str:
    """Named times (µs), most first: "a 24 µs, b 14 µs, the other 3 together 2.10 µs"."""
    shown = [f"{name} {time(us)}" for name, us in parts[:SHOWN_KINDS]]
    rest = parts[SHOWN_KINDS:]
    if len(rest) == 1:
        shown.append(f"{rest[0][0]} {time(rest[0][1])}")
    elif rest:
        shown.append(f"the other {len(rest)} together {time(sum(us for _, us in rest))}")
    return ", ".join(shown)


def listed(words: Iterable[str], last: str = "and") -> str:
    """Words as a sentence lists them: "a", "a and b", "a, b and c"."""
    items = list(words)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def first_of(words: Sequence[str], most: int) -> str:
    """The first ``most`` of the words, and how many more there are: "a, b and 3 more"."""
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")
