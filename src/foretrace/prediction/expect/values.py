"""Numbers as people write them: ``5``, ``>= 2``, ``220..260``, ``236 us ± 10%``, ``1.5 GB``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal, localcontext

from foretrace.errors import InputError
from foretrace.model.expectations import Range

__all__ = ["number_text", "parse_range", "range_text", "range_value"]

# unit of a quantity → the units that may be written behind a number, and what one is
_UNITS: Mapping[str, Mapping[str, float]] = {
    "count": {},
    "us": {"us": 1.0, "µs": 1.0, "μs": 1.0, "ns": 1e-3, "ms": 1e3, "s": 1e6},
    "bytes": {
        "B": 1.0,
        "kB": 1e3,
        "KB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
        "TiB": 2.0**40,
    },
    "flop": {"FLOP": 1.0, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15},
    "share": {"%": 0.01},
    "ratio": {},
}

_NUMBER = r"(?P<{0}>[+-]?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<{0}_unit>[A-Za-zµμ%]*)"
_EXACT = re.compile(_NUMBER.format("a"))
_SPAN = re.compile(_NUMBER.format("a") + r"\s*\.\.\s*" + _NUMBER.format("b"))
_TOLERANCE = re.compile(_NUMBER.format("a") + r"\s*(?:±|\+/?-)\s*" + _NUMBER.format("b"))
_COMPARED = re.compile(r"(?P<sign>>=|<=|>|<|==|=|≥|≤)\s*" + _NUMBER.format("a"))
_LONGEST_NUMBER = 40
_DIGITS = 60  # holds the longest number times the largest unit exactly
_EXAMPLES = {
    "count": "3, '>= 2', '2..4'",
    "us": "'<= 250', '220..260', '236 us ± 10%'",
    "bytes": "'<= 1.5 GB', '100 MB ± 5%'",
    "flop": "'115.96 GFLOP ± 1%'",
    "share": "'>= 80%', '0.5..0.9'",
    "ratio": "'>= 1.5', '1..2'",
}


def range_value(value: object, unit: str) -> Range:
    """The range of a number, a text, a pair of limits (``None``: no limit) or a ``Range``.

    Raises ``InputError``, without a place, where it is none of them.
    """
    if isinstance(value, Range):
        found = value
    elif isinstance(value, str):
        found = parse_range(value, unit)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = Range(low=_finite(value), high=_finite(value))
    elif isinstance(value, tuple) and len(value) == 2 and all(_is_limit(limit) for limit in value):
        low, high = value
        found = Range(low=None if low is None else _finite(low), high=None if high is None else _finite(high))
    else:
        raise InputError(f"{_shown(value)} is no number and no range: write {_EXAMPLES[unit]}")
    if found.low is None and found.high is None:
        raise InputError(f"a range without any limit says nothing: write {_EXAMPLES[unit]}")
    return found


def parse_range(text: str, unit: str) -> Range:
    """The range a text means; comparisons may be joined with commas (``> 2, < 5``).

    Raises ``InputError``, without a place, for a text that is none, or has a unit that is not the quantity's.
    """
    text = text.strip()
    if match := _EXACT.fullmatch(text):
        value = _value(match, "a", unit)
        return Range(low=value, high=value)
    if match := _SPAN.fullmatch(text):
        # "220..260 us": the unit behind the second number is the first one's too.
        low = _value(match, "a", unit, match["b_unit"])
        return Range(low=low, high=_value(match, "b", unit))
    if match := _TOLERANCE.fullmatch(text):
        return _around(match, unit)
    parts = [_COMPARED.fullmatch(part.strip()) for part in text.split(",")]
    found = Range()
    for part in parts:
        if part is None:
            raise InputError(f"{text!r} is no number and no range: write {_EXAMPLES[unit]}")
        found = _narrowed(found, part["sign"], _value(part, "a", unit), text)
    return found


def _around(match: re.Match[str], unit: str) -> Range:
    middle = _value(match, "a", unit)
    if match["b_unit"] == "%" and unit != "share":
        width = _finite(abs(middle) * _finite(float(match["b"])) / 100)
    else:
        width = _value(match, "b", unit, match["a_unit"])
    if width < 0:
        raise InputError(f"a tolerance is not negative: {match[0]!r}")
    # Nothing that is measured here can be negative, so a wide tolerance ends at zero.
    low, high = _finite(middle - width), _finite(middle + width)
    return Range(low=max(0.0, low) if middle >= 0 else low, high=high)


def _narrowed(found: Range, sign: str, value: float, text: str) -> Range:
    low, high = found.low, found.high
    low_open, high_open = found.low_open, found.high_open
    if sign in ("==", "="):
        if (low, high) != (None, None):
            raise InputError(f"{text!r} says two things: one exact number, and limits")
        return Range(low=value, high=value)
    if sign in (">", ">=", "≥"):
        if low is not None:
            raise InputError(f"{text!r} has two lower limits")
        low, low_open = value, sign == ">"
    else:
        if high is not None:
            raise InputError(f"{text!r} has two upper limits")
        high, high_open = value, sign == "<"
    return Range(low=low, high=high, low_open=low_open, high_open=high_open)


def range_text(value: Range) -> str:
    """The range as ``parse_range`` reads it, in the quantity's own unit."""
    low, high = value.low, value.high
    if value.exact is not None:
        return number_text(value.exact)
    if low is not None and high is not None and not value.low_open and not value.high_open:
        return f"{number_text(low)}..{number_text(high)}"
    parts = []
    if low is not None:
        parts.append(f"{'>' if value.low_open else '>='} {number_text(low)}")
    if high is not None:
        parts.append(f"{'<' if value.high_open else '<='} {number_text(high)}")
    return ", ".join(parts)


def number_text(value: float) -> str:
    """A number without a needless fraction; every digit of one that has one."""
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _value(match: re.Match[str], group: str, unit: str, default_unit: str = "") -> float:
    written = match[f"{group}_unit"] or default_unit
    number = match[group].replace("_", "")
    if len(number) > _LONGEST_NUMBER:
        raise InputError(f"a number of {len(number)} digits means nothing here")
    if not written:
        return _finite(float(number) if re.search(r"[.eE]", number) else int(number))
    known = _UNITS[unit]
    if written not in known:
        allowed = ", ".join(known) if known else "none, it is a plain number"
        raise InputError(f"{match[0]!r}: {written} is no unit of this quantity ({allowed})")
    # In decimals: 0.1 ms is 100 µs, not 100.00000000000001 µs, and no digit of a count of FLOPs is lost.
    with localcontext(prec=_DIGITS):
        scaled = Decimal(number) * Decimal(repr(known[written]))
    return _finite(
        int(scaled) if scaled == scaled.to_integral_value() and scaled.adjusted() < _DIGITS else float(scaled)
    )


def _finite(value: float) -> float:
    try:
        if math.isfinite(value):
            return value
    except OverflowError:
        pass
    raise InputError("a number must be finite")


def _is_limit(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:60]
