"""Write what the committed results of `benchmarks/fused.py` say into their README; run it after a measurement.

A test holds the README against the files, so that no figure there can outlive the run it came from.
"""

from __future__ import annotations

import json
import statistics
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["FOLDER", "rewritten", "summary"]

FOLDER = Path(__file__).parent / "results" / "fused"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
# In this order; others are left to the files.
_SHOWN = (
    "eager", "compile", "max-autotune", "max-autotune-tma", "liger", "liger-fused", "quack", "quack-untuned",
    "addmm_activation", "foretrace", "foretrace-module", "foretrace-stacked", "foretrace-compiled", "foretrace-fast",
    "foretrace-recompute", "foretrace-input", "cublas",
)  # fmt: skip
# Who takes part for what it costs the host; its GPU time is left to the files.
_FOR_THE_HOST = ("quack-untuned", "foretrace-module")
_TIMED = tuple(name for name in _SHOWN if name not in _FOR_THE_HOST)
_ACCURATE = ("eager", "foretrace", "foretrace-fast")
_SUITES = (
    "mlp", "train", "linear", "decode", "never-slower", "held-out", "memory", "host", "first-call", "accuracy",
)  # fmt: skip
_MODES = {"forward": "forward", "train": "forward and backward"}
# Of the grids: what they are called, and where their rows are parted.
_GRIDS = {"never-slower": "gated MLPs", "held-out": "gated MLPs of sizes that are in no table"}
_PARTED = (1, 64, 1024)

Key = TypeVar("Key")


def rewritten(text: str, folder: Path = FOLDER) -> str:
    """The README with the part between its marks made anew from the files beside it."""
    before, rest = text.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    return f"{before}{_BEGIN}\n\n{summary(folder)}\n{_END}{after}"


def summary(folder: Path = FOLDER) -> str:
    """Markdown of everything measured in a folder of result files."""
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    found = {suite: _records(documents, suite) for suite in _SUITES}
    parts = [_case(record) for suite in ("mlp", "train", "linear") for record in found[suite] if _timed(record)]
    parts += _decode(found["decode"])
    parts += [_grid(found[suite], what) for suite, what in _GRIDS.items() if found[suite]]
    parts += _by_case(found["memory"], "peak MB", _peak)
    parts += _by_case(found["host"], "host time of a call, µs", _host)
    parts += _by_case(found["first-call"], "first call with empty caches, s", _first_call)
    parts += _accuracy(found["accuracy"])
    return "\n".join(parts)


def _records(documents: Iterable[dict[str, Any]], suite: str) -> list[dict[str, Any]]:
    """A suite's cases from all files: widths, then rows, activations and modes."""
    records = [record for document in documents for record in document["suites"].get(suite, ())]
    return sorted(records, key=lambda record: [record[key] for key in ("k", "n", "m", "activation", "mode")])


def _case(record: dict[str, Any]) -> str:
    """A table of one case: who took how long, and ours in relation to each."""
    timed = _timed(record)
    with_wall = any(result.get("wall") for result in timed.values())
    with_peak = any(result.get("peak_bytes") for result in timed.values())
    head = ["", "GPU µs", "foretrace / it"]
    head += ["wall µs", "foretrace / it"] if with_wall else []
    head += ["peak MB"] if with_peak else []
    rows = []
    for name, result in timed.items():
        row = [name, f"{result['graph']['median_us']:,.1f}", _ratio(record, "graph", name)]
        if with_wall:
            wall = result.get("wall")
            row += [f"{wall['median_us']:,.0f}" if wall else "", _ratio(record, "wall", name) if wall else ""]
        if with_peak:
            row.append(_peak(result))
        rows.append(row)
    return _section(f"{_operation(record)}, {_conditions(record)}", head, rows)


def _timed(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Whose GPU time is known, of those shown, and what is known about each."""
    return {name: record["entrants"][name] for name in _TIMED if record["entrants"].get(name, {}).get("graph")}


def _decode(records: Iterable[dict[str, Any]]) -> list[str]:
    """How fast weights are read, by rows; and the time of ours over that of the best of eager and compile."""

    def title(record: dict[str, Any]) -> str:
        what = f"{_operation(record)} in {record['dtype']}, {record['activation']}, {_widths(record)}"
        return f"{what}, {_MODES[record['mode']]}: weights read, TB/s"

    parts = []
    for heading, cases in _grouped(filter(_timed, records), title).items():
        names = [name for name in _TIMED if any(name in _timed(case) for case in cases)]
        rows = []
        for case in cases:
            timed = _timed(case)
            cells = [f"{timed[name]['weights_tb_per_s']:.2f}" if name in timed else "" for name in names]
            rows.append([f"{case['m']:,}", *cells, _against_best(case, ("eager", "compile"))])
        parts.append(_section(heading, ["rows", *names, "time of foretrace / best of eager and compile"], rows))
    return parts


def _against_best(record: dict[str, Any], rivals: Sequence[str]) -> str:
    """Our GPU time over that of the fastest of some, and which that was."""
    times = {name: result["graph"]["median_us"] for name, result in _timed(record).items() if name in rivals}
    best = min(times, key=times.__getitem__, default="")
    ratio = _ratio(record, "graph", best)
    return f"{ratio} ({best})" if ratio else ""


def _by_case(records: Iterable[dict[str, Any]], quantity: str, show: Callable[[dict[str, Any]], str]) -> list[str]:
    """A table for each operation: entrants down, cases across. ``show`` makes a cell, empty where none was measured."""
    parts = []
    titled = _grouped(records, lambda record: f"{_operation(record)} in {record['dtype']}: {quantity}")
    for title, cases in titled.items():
        rows = [[name, *(show(case["entrants"].get(name, {})) for case in cases)] for name in _SHOWN]
        measured = [row for row in rows if any(row[1:])]
        if measured:
            parts.append(_section(title, ["", *map(_conditions, cases)], measured))
    return parts


def _accuracy(records: Iterable[dict[str, Any]]) -> list[str]:
    """Errors of ours beside eager's, of the activation and of its derivative."""

    def title(record: dict[str, Any]) -> str:
        return f"{_operation(record)} in {record['dtype']}: error in ulps at {record['points']:,} points"

    parts = []
    for heading, cases in _grouped(records, title).items():
        names = [name for name in _ACCURATE if any(name in case["entrants"] for case in cases)]
        head = ["activation", "result"]
        for name in names:
            head += [f"{name}: largest", "mean", *([] if name == "eager" else ["worse than eager at"])]
        rows = []
        for case in cases:
            for what in ("value", "slope"):
                row = [case["activation"], what]
                for name in names:
                    errors = case["entrants"].get(name, {}).get(what)
                    row += [_ulps(errors["largest"]), _ulps(errors["mean"])] if errors else ["", ""]
                    if name != "eager":
                        row.append(f"{errors['worse_than_eager']:,}" if errors else "")
                rows.append(row)
        parts.append(_section(heading, head, rows))
    return parts


def _grouped(
    records: Iterable[dict[str, Any]], key: Callable[[dict[str, Any]], Key]
) -> dict[Key, list[dict[str, Any]]]:
    groups: dict[Key, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _operation(record: dict[str, Any]) -> str:
    if record["operation"] == "linear_act":
        return "Linear + bias + activation" if record["bias"] else "Linear + activation"
    return "gated MLP with bias" if record["bias"] else "gated MLP"


def _conditions(record: dict[str, Any]) -> str:
    return f"{record['activation']}, {record['m']:,} rows, {_widths(record)}, {_MODES[record['mode']]}"


def _widths(record: dict[str, Any]) -> str:
    return f"{record['k']:,} → {record['n']:,}"


def _peak(result: dict[str, Any]) -> str:
    peak = result.get("peak_bytes")
    return f"{peak / 1e6:,.0f}" if peak else ""


def _host(result: dict[str, Any]) -> str:
    timing = result.get("host")
    return f"{timing['median_us']:,.1f}" if timing else ""


def _first_call(result: dict[str, Any]) -> str:
    seconds = result.get("first_call_s")
    return "" if seconds is None else f"{seconds:.2f}"


def _ulps(error: float | str) -> str:
    """An infinite error is a word in the files."""
    return error if isinstance(error, str) else f"{error:,.3f}"


def _ratio(record: dict[str, Any], clock: str, name: str) -> str:
    found = record["ratios"].get(clock, {}).get(name)
    if found is None:
        return ""
    interval = found["interval"]
    return f"{found['median']:.3f}" + ("" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]")


def _grid(records: Sequence[dict[str, Any]], what: str) -> str:
    """How the dispatched call compares with the best of eager, compile and Liger, by rows."""

    def line(record: dict[str, Any]) -> tuple[str, int]:
        return _MODES[record["mode"]], bisect_left(_PARTED, record["m"])

    def median(record: dict[str, Any], clock: str) -> float | None:
        """The ratio; None where the case, or its ratio, could not be had."""
        against = record[clock]
        return None if against is None or against["ratio"] is None else float(against["ratio"]["median"])

    rows = []
    for (mode, _), cases in _grouped(sorted(records, key=line), line).items():
        sizes = sorted({case["m"] for case in cases})
        row = [mode, " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1]))), f"{len(cases)}"]
        for clock in ("against_best", "against_best_wall"):
            found = [ratio for case in cases if (ratio := median(case, clock)) is not None]
            row += [f"{statistics.median(found):.3f}", f"{min(found):.3f} to {max(found):.3f}"] if found else ["", ""]
        rows.append(row)
    head = ["", "rows", "cases", "GPU time", "best to worst", "wall time", "best to worst"]
    title = f"{len(records)} {what}: time over that of the best of eager, compile and Liger"
    table = _section(title, head, rows)
    slowest = max(records, key=lambda record: median(record, "against_best") or 0.0)
    if median(slowest, "against_best") is None:
        return table
    return f"{table}\nThe worst in GPU time is {slowest['name']}, against {slowest['against_best']['other']}.\n"


def _section(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    table = "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
    return f"### {title}\n\n{table}\n"


def main() -> int:
    """Rewrite the README."""
    path = FOLDER / "README.md"
    path.write_text(rewritten(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
