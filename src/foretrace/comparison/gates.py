"""Conditions that make a comparison a gate: ``gpu_time > +3%`` fails where the other trace takes over 3 % longer."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from foretrace.comparison.metrics import METRICS, unit_of
from foretrace.errors import InputError
from foretrace.model.comparison import Change, Comparison, Gate, Metric, Pair
from foretrace.model.words import bytes_of, flop, signed, time, whole

__all__ = ["Condition", "judge", "parse_condition"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FACTORS: dict[str, dict[str, float]] = {
    "us": {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6},
    "bytes": {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9},
    "count": {"": 1.0},
}
_FORM = re.compile(
    r"\s*(?P<metric>\w+)\s*(?P<test>>=|<=|==|!=|>|<)\s*(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d+)?|\.\d+)\s*"
    r"(?P<unit>%|[A-Za-zµμ]*)\s*\Z"
)
_HELP = "write METRIC > VALUE, such as 'gpu_time > +3%', 'kernels > +0', 'gpu_time > 300us' or 'memcpys > 0'"


@dataclass(frozen=True)
class Condition:
    """What makes a gate fail: a change (relative or absolute) or the value itself beyond a limit."""

    text: str
    metric: str
    test: str
    limit: float  # µs, bytes, a count, or a share of the baseline where ``relative``
    relative: bool
    of_change: bool


def parse_condition(text: str) -> Condition:
    """Read one condition.

    A value with a sign is the change from the baseline, one without is the value itself; a percentage is always a
    change. Times need a unit (us, ms, s), sizes too (B, kB, MB, GB). Raises ``InputError`` that says how to write it.
    """
    found = _FORM.match(text)
    if found is None:
        raise InputError(f"--fail-on {text!r} cannot be read; {_HELP}")
    metric, test, unit = found["metric"].lower(), found["test"], found["unit"]
    if metric not in METRICS:
        close = difflib.get_close_matches(metric, METRICS, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]!r}?" if close else f"the metrics are: {', '.join(METRICS)}"
        raise InputError(f"--fail-on {text!r}: there is no metric {found['metric']!r}; {hint}")
    number = float(found["number"]) * (-1 if found["sign"] == "-" else 1)
    if unit == "%":
        return Condition(text, metric, test, number / 100, True, True)
    factors = _FACTORS[unit_of(metric)]
    factor = factors.get(unit if unit_of(metric) == "us" else unit.lower())
    if factor is None and number == 0 and not unit:
        factor = 1.0  # nothing is nothing in every unit
    if factor is None:
        allowed = ", ".join(u for u in factors if u and u != "μs") or "none"
        given = f"the unit {unit!r}" if unit else "no unit"
        raise InputError(f"--fail-on {text!r} has {given}; {metric} takes: {allowed}, or % for a change")
    return Condition(text, metric, test, number * factor, False, bool(found["sign"]))


def judge(comparison: Comparison, conditions: list[Condition]) -> list[Gate]:
    """Each condition against each trace but the baseline. ``failed`` where the condition holds.

    A condition on a change fails as well where the traces are unrelated: nothing was held against the baseline.
    """
    metrics = {metric.name: metric for metric in comparison.metrics}
    return [_judge(condition, metrics[condition.metric], pair) for condition in conditions for pair in comparison.pairs]


def _judge(condition: Condition, metric: Metric, pair: Pair) -> Gate:
    side = pair.b

    def gate(state: str, detail: str) -> Gate:
        return Gate(expression=condition.text, side=side, state=state, detail=detail)  # type: ignore[arg-type]

    value = metric.values[side]
    if not condition.of_change:
        if value.median is None:
            return gate("unknown", f"{metric.name} is unknown: {value.reason}")
        failed = _OPERATORS[condition.test](value.median, condition.limit)
        return gate("failed" if failed else "held", f"{metric.name} is {_words(metric, value.median)}")
    if not pair.related:
        return gate("failed", "the traces are unrelated: the change from the baseline cannot be told")
    change = metric.changes[side]
    if change is None or change.direction == "unknown" or change.absolute is None:
        reason = change.reason if change is not None else None
        return gate("unknown", f"the change of {metric.name} is unknown: {reason or 'not measured'}")
    inside = change.direction == "same"
    if inside:
        actual = 0.0
    elif condition.relative:
        actual = change.relative if change.relative is not None else math.copysign(math.inf, change.absolute)
    else:
        actual = change.absolute
    failed = _OPERATORS[condition.test](actual, condition.limit)
    before, after = (_words(metric, metric.values[i].median) for i in (0, side))
    said = f"{metric.name} {before} → {after}{_relative(change)}"
    if inside and change.absolute:
        said += f", a difference {change.reason}"
    elif change.reason:
        said += f" ({change.reason})"
    return gate("failed" if failed else "held", said)


def _relative(change: Change) -> str:
    return "" if not change.relative else f" ({signed(change.relative)})"


def _words(metric: Metric, value: float | None) -> str:
    if value is None:
        return "unknown"
    if metric.unit == "us":
        return time(value)
    if metric.unit == "bytes":
        return bytes_of(value)
    return flop(value) if metric.name == "flops" else whole(value)
