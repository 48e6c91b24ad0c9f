"""Read the traces of ``sweep.py`` into one table: a line a point, with the kernels it took and their durations.

    python benchmarks/predictor/rows.py DIRECTORY [DIRECTORY …] --output rows.json.gz

A line is ``[point, cold, warm]``: ``cold`` the GPU rows of the call after the cache was emptied, ``warm`` those of
the calls after it, each row ``[name, µs, [grid x, y, z] or null]``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from pathlib import Path
from typing import Any

import foretrace
from foretrace.knowledge.kineto import RowKind

FLUSH_BYTES = 128 << 20
CALLS = 3
SUM_ROWS = 2  # the sum that empties the cache: a memset and a kernel


def points_of(path: Path) -> list[Any]:
    """The lines of one recording, in its order; raises ValueError where rows and points do not match."""
    asked = json.loads(path.with_name(path.name.replace(".trace.json.gz", ".points.json")).read_text())
    trace = foretrace.load(path)
    segments: list[list[Any]] = []
    for row in trace.gpu_rows.tolist():
        args = trace.args(row)
        if trace.kind[row] == RowKind.MEMCPY and args.get("bytes") == FLUSH_BYTES:
            segments.append([])
        elif segments:
            segments[-1].append([trace.name(row), int(trace.duration[row]) / 1000, args.get("grid")])
    # An operator that copies as much as the flush does looks like one: such a point is left out.
    asked = [point for point in asked for _ in range(1 + CALLS * _like_a_flush(point))]
    if len(segments) != len(asked) + 1:
        raise ValueError(f"{path}: {len(asked)} points and {len(segments) - 1} segments")
    lines = []
    for point, everything in zip(asked, segments[:-1], strict=True):
        rows = everything[SUM_ROWS:]
        size, odd = divmod(len(rows), CALLS)
        names = [name for name, _, _ in rows[:size]]
        if odd or not size or names != [name for name, _, _ in rows[size : 2 * size]]:
            print("left out", point, len(rows), "rows")
            continue
        lines.append([point, rows[:size], [rows[size : 2 * size], rows[2 * size :]]])
    return lines


def _like_a_flush(point: dict[str, Any]) -> bool:
    size = math.prod(point.get("shape", ())) * (4 if point["dtype"] == "fp32" else 2)
    return point["op"] == "clone" and size == FLUSH_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    lines = []
    for directory in args.directories:
        for path in sorted(directory.glob("sweep_*.trace.json.gz")):
            try:
                lines += points_of(path)
            except ValueError as error:
                print(error)
    with gzip.open(args.output, "wt", compresslevel=9) as packed:
        packed.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    print(len(lines), "points", args.output.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
