"""Write what the committed results of `benchmarks/fused.py` say into their README; run it after a measurement.

A test holds the README against the files, so that no figure there can outlive the run it came from.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "rewritten", "summary"]

FOLDER = Path(__file__).parent / "results" / "fused"
_BEGIN, _END = "<!-- measured: begin -->", "<!-- measured: end -->"
# In this order; others are left to the files.
_SHOWN = (
    "eager", "compile", "max-autotune", "max-autotune-tma", "liger", "liger-fused", "quack", "addmm_activation",
    "foretrace", "foretrace-stacked", "foretrace-compiled", "foretrace-fast", "foretrace-recompute", "foretrace-input",
    "cublas",
)  # fmt: skip
_ROWS = ((1, 1), (16, 16), (128, 512), (2048, 16384))


def rewritten(text: str, folder: Path = FOLDER) -> str:
    """The README with the part between its marks made anew from the files beside it."""
    before, rest = text.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    return f"{before}{_BEGIN}\n\n{summary(folder)}\n{_END}{after}"


def summary(folder: Path = FOLDER) -> str:
    """Markdown of everything measured in a folder of result files."""
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    parts = []
    for suite in ("mlp", "train", "linear"):
        records = sorted(_records(documents, suite), key=lambda record: (record["k"], record["activation"]))
        parts += [_case(record) for record in records]
    grid = _records(documents, "never-slower")
    if grid:
        parts.append(_grid(grid))
    return "\n".join(parts)


def _records(documents: Iterable[dict[str, Any]], suite: str) -> list[dict[str, Any]]:
    return [record for document in documents for record in document["suites"].get(suite, ())]


def _case(record: dict[str, Any]) -> str:
    """A table of one case: who took how long, and ours in relation to each."""
    train = record["mode"] == "train"
    head = ["", "GPU µs", "foretrace / it"]
    if train:
        head += ["wall µs", "foretrace / it", "peak MB"]
    rows = []
    for name in _SHOWN:
        result = record["entrants"].get(name)
        if result is None or not result.get("graph"):
            continue
        row = [name, f"{result['graph']['median_us']:,.1f}", _ratio(record, "graph", name)]
        if train:
            wall, peak = result.get("wall"), result.get("peak_bytes")
            row += [f"{wall['median_us']:,.0f}" if wall else "", _ratio(record, "wall", name) if wall else ""]
            row.append(f"{peak / 1e6:,.0f}" if peak else "")
        rows.append(row)
    sizes = f"{record['m']:,} rows, {record['k']:,} → {record['n']:,}"
    operation = "Linear + bias + activation" if record["operation"] == "linear_act" else "gated MLP"
    what = "forward and backward" if train else "forward"
    return f"### {operation}, {record['activation']}, {sizes}, {what}\n\n{_table(head, rows)}\n"


def _ratio(record: dict[str, Any], clock: str, name: str) -> str:
    found = record["ratios"].get(clock, {}).get(name)
    if found is None:
        return ""
    interval = found["interval"]
    return f"{found['median']:.3f}" + ("" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]")


def _grid(records: Sequence[dict[str, Any]]) -> str:
    """How the dispatched call compares with the best of eager, compile and Liger, by rows."""
    rows = []
    for mode, what in (("forward", "forward"), ("train", "forward and backward")):
        for low, high in _ROWS:
            cases = [record for record in records if record["mode"] == mode and low <= record["m"] <= high]
            row = [what, f"{low:,}" if low == high else f"{low:,} to {high:,}", f"{len(cases)}"]
            for clock in ("against_best", "against_best_wall"):
                found = [record[clock]["ratio"]["median"] for record in cases if record[clock] is not None]
                row += [f"{statistics.median(found):.3f}", f"{min(found):.3f} to {max(found):.3f}"]
            rows.append(row)
    head = ["", "rows", "cases", "GPU time", "best to worst", "wall time", "best to worst"]
    title = f"### {len(records)} gated MLPs: time over that of the best of eager, compile and Liger"
    slowest = max(records, key=lambda record: float(record["against_best"]["ratio"]["median"]))
    worst = f"The worst in GPU time is {slowest['name']}, against {slowest['against_best']['other']}."
    return f"{title}\n\n{_table(head, rows)}\n\n{worst}\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def main() -> int:
    """Rewrite the README."""
    path = FOLDER / "README.md"
    path.write_text(rewritten(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
