"""Tuned tables: what whole operations were measured to take, by the choice made for their steps.

A table is a JSON file ``tables/sm_90_h200.json``::

    {
      "schema": 1,
      "architecture": "sm_90",
      "device": "NVIDIA H200",
      "versions": {"torch": "2.11.0", "triton": "3.6.0", "foretrace": "0.1.0"},
      "rows": [
        {"operation": "gated_mlp", "training": false, "m": 8192, "n": 3072, "k": 768, "out": 768,
         "dtype": "bfloat16", "activation": "gelu_tanh", "precision": "exact", "packing": "separate", "bias": false,
         "best": "expand=hopper project=plain",
         "costs": {"expand=hopper project=plain": 172.4, "expand=plain project=plain": 243.0}}
      ]
    }

``costs``: median GPU µs of the whole operation, forward, or forward and backward when ``training``; each choice in
the words of `foretrace.fused.dispatch.choice`. ``best`` repeats the cheapest for the reader. Several tables of one
architecture may lie side by side.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_args

from foretrace.errors import InputError
from foretrace.fused.dispatch.candidates import SMALL_ROWS
from foretrace.fused.dispatch.choice import parse_choice
from foretrace.fused.dispatch.files import write_atomically
from foretrace.fused.plan import Operation, Packing, Precision, Problem

__all__ = ["Row", "Table", "nearest", "read_table", "shipped", "write_table"]

SCHEMA: Final = 1
FOLDER: Final = Path(__file__).parent / "tables"
# A row answers for up to 1.4 times as many or few rows of input, and for features whose log2 distances from its own
# (n, k and out together) add up to at most a quarter. Beyond that the model errs less than the nearest row: left out of
# the table, shapes of 11 models were served 0.4 % from their best by either, but 5 % at worst by the model, and 14 % by
# a row half an octave away.
MAX_ROWS_APART: Final = 0.5
MAX_SHAPE_APART: Final = 0.25
# How far apart, in the same unit, a different setting of the same sizes counts. Each changes times by a few percent,
# and which choice wins more rarely than another shape does; a different precision changes what the epilogue hides.
_APART: Final = {"precision": 0.3, "activation": 0.1, "dtype": 0.05, "packing": 0.05, "bias": 0.05}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured problem. ``costs``: choice and its µs, cheapest first, equal ones by name."""

    operation: Operation
    training: bool
    m: int
    n: int
    k: int
    out: int
    dtype: str
    activation: str
    precision: Precision
    packing: Packing
    bias: bool
    costs: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, problem: Problem, costs: Mapping[str, float]) -> Row:
        """Return the row of a measured problem; raises `InputError` for a cost that is none or a choice unknown."""
        for choice, cost in costs.items():
            parse_choice(choice)
            if not (isinstance(cost, int | float) and math.isfinite(cost) and cost > 0):
                raise InputError(f"{choice!r} costs {cost!r} µs; give a number above zero, or leave the choice out")
        if not costs:
            raise InputError("a row without costs says nothing; leave it out")
        ordered = tuple(sorted(((name, float(cost)) for name, cost in costs.items()), key=lambda item: item[::-1]))
        return cls(costs=ordered, **{name: getattr(problem, name) for name in _PROBLEM_FIELDS})


_PROBLEM_FIELDS: Final = tuple(field.name for field in fields(Row) if field.name != "costs")


@dataclass(frozen=True, slots=True)
class Table:
    """``name``: of the file, without its suffix. ``device``: as its driver names it."""

    name: str
    architecture: str
    device: str
    rows: tuple[Row, ...]


def read_table(path: Path) -> Table:
    """Read a table; raises `InputError` when the file is none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise InputError(f"{path} has schema {document['schema']}, this version reads {SCHEMA}; measure it again")
        rows = tuple(_row(row) for row in document["rows"])
        return Table(path.stem, str(document["architecture"]), str(document["device"]), rows)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a tuned table ({type(error).__name__}: {error}); measure it again") from error


def write_table(
    path: Path,
    architecture: str,
    device: str,
    versions: Mapping[str, str],
    measured: Iterable[tuple[Problem, Mapping[str, float]]],
) -> Table:
    """Write measured problems as a table, atomically, and return it.

    ``measured``: each problem with the median µs of its choices (`Choice.label`). A problem that comes twice keeps
    its last costs. Raises `InputError` for costs that cannot be.
    """
    rows = {_identity(row): row for row in (Row.of(problem, costs) for problem, costs in measured)}
    ordered = [rows[key] for key in sorted(rows)]
    document = {
        "schema": SCHEMA,
        "architecture": architecture,
        "device": device,
        "versions": dict(sorted(versions.items())),
    }
    lines = ",\n".join(f"    {json.dumps(_record(row), ensure_ascii=False)}" for row in ordered)
    head = json.dumps(document, indent=2, ensure_ascii=False).removesuffix("\n}")
    body = f"[\n{lines}\n  ]" if lines else "[]"
    write_atomically(path, f'{head},\n  "rows": {body}\n}}\n')
    return Table(path.stem, architecture, device, tuple(ordered))


@functools.cache
def shipped(architecture: str) -> tuple[Table, ...]:
    """Return the tables that come with foretrace for an architecture; none is no error."""
    return tuple(read_table(path) for path in sorted(FOLDER.glob(f"{architecture}_*.json")))


def nearest(tables: Iterable[Table], problem: Problem) -> list[tuple[Table, Row, float]]:
    """Return the rows that may answer for a problem, and how far they are from it, nearest first.

    Sizes of features count most: a row of the same n, k and out comes before any other. Equal distances are
    ordered by table and row, so that the answer is always the same.
    """
    # What was measured lay on 16-byte boundaries.
    if min(problem.m, problem.n) < 1 or not problem.aligned:
        return []
    found = [
        (shape, rest, table.name, number, table, row)
        for table in tables
        for number, row in enumerate(table.rows)
        if (apart := _apart(problem, row)) is not None
        for shape, rest in (apart,)
    ]
    found.sort(key=lambda item: item[:4])
    return [(table, row, shape + rest) for shape, rest, _, _, table, row in found]


def _apart(problem: Problem, row: Row) -> tuple[float, float] | None:
    """Distance of the features, and of all else; ``None``: the row does not answer for the problem."""
    if row.operation != problem.operation or row.training != problem.training:
        return None
    # Up to 16 rows other kernels serve, and a single one others still.
    if (row.m <= SMALL_ROWS) != (problem.m <= SMALL_ROWS) or (row.m == 1) != (problem.m == 1):
        return None
    if (row.dtype == "float32") != (problem.dtype == "float32"):
        return None
    rows = _octaves(row.m, problem.m)
    shape = _octaves(row.n, problem.n) + _octaves(row.k, problem.k) + _octaves(row.out, problem.out)
    if rows > MAX_ROWS_APART or shape > MAX_SHAPE_APART:
        return None
    other = sum(apart for name, apart in _APART.items() if getattr(row, name) != getattr(problem, name))
    return shape, rows + other


def _octaves(a: int, b: int) -> float:
    return 0.0 if a == b else abs(math.log2(max(a, 1) / max(b, 1)))


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in _PROBLEM_FIELDS)


def _record(row: Row) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in _PROBLEM_FIELDS}
    return record | {"best": row.costs[0][0], "costs": {name: round(cost, 2) for name, cost in row.costs}}


def _row(record: Mapping[str, Any]) -> Row:
    values = {name: record[name] for name in _PROBLEM_FIELDS}
    for name, allowed in (("operation", Operation), ("precision", Precision), ("packing", Packing)):
        if values[name] not in get_args(allowed):
            raise InputError(f"a row's {name} is {values[name]!r}; it must be one of {', '.join(get_args(allowed))}")
    problem = Problem(**values, architecture="")
    return Row.of(problem, record["costs"])
