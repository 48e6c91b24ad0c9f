"""The lines at the end of a run: how many tests held, broke and were skipped, and what became more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foretrace.model.words import count

__all__ = ["summary_lines"]

# What is counted → how the sum says it; baselines apart, for "2 baselines written" has another form.
_COUNTED = {
    "held": "held",
    "broken": "broken",
    "reported": "more than the baseline (reported)",
    "unjudged": "not judged",
    "skipped": "skipped (no GPU)",
}


def summary_lines(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a remark, and ``foretrace: 12 held, 1 broken, 3 skipped (no GPU), 2 baselines written`` last."""
    lines = [f"foretrace: {one['test']}: {text}" for one in told for text in one["notes"]]
    lines += [
        f"foretrace: {one['test']}: more than in the baseline: {text} (--foretrace-fail-on-increase fails on it)"
        for one in told
        for text in one["increases"]
    ]
    lines += [
        f"foretrace: {one['test']}: not as in the baseline, and no increase: {'; '.join(one['changes'])} "
        "(--foretrace-update accepts it)"
        for one in told
        if one["changes"]
    ]
    sums = [f"{number} {words}" for key, words in _COUNTED.items() if (number := sum(bool(one[key]) for one in told))]
    written = sum(bool(one["written"]) for one in told)
    if written:
        sums.append(f"{count(written, 'baseline')} written")
    return [*lines, f"foretrace: {', '.join(sums)}"] if sums else lines
