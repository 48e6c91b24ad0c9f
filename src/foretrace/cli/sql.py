"""Ask a trace in SQL.

  foretrace sql trace.json.gz "select kind, count(*) as n, sum(duration_us) as us from kernels group by kind"
  foretrace sql --schema                       the tables and their columns; no trace is needed
  foretrace sql --schema kernels               one of them
  foretrace sql trace.json.gz @query.sql       the query from a file, or with - from standard input
  foretrace sql trace.json.gz "…" --json       schema foretrace.sql/1, one line
  foretrace sql trace.json.gz "…" -o rows.parquet   to a file: .csv, .json or .parquet

The tables are events, kernels, transfers, launches, ops and steps; event numbers join them. What is unknown is NULL.
A query is one SELECT: a trace is only read, and no other file.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.explain import STEP_FLAG
from foretrace.cli.files import check_sources, deliver, output_of, reading, view_for
from foretrace.cli.streams import standard_input
from foretrace.errors import InputError
from foretrace.knowledge.tables import TABLES, Table, table_named
from foretrace.model.words import listed
from foretrace.report.text import clean

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.tables.engine import Answer

__all__ = ["add_arguments", "run"]

_ROWS = 40  # that a screen shows
_FORMS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace sql``."""
    parser.add_argument("trace", nargs="?", metavar="TRACE", help="a profiler trace, or - for standard input")
    parser.add_argument(
        "query", nargs="*", metavar="QUERY", help="one SELECT in quotes, @FILE, or - for standard input"
    )
    form = flags.add_output(
        parser,
        json="the result as JSON, one line, every row",
        output="write there; the name ends in .csv, .json or .parquet",
    )
    form.add_argument("--csv", action="store_true", help="the result as CSV, every row; NULL is an empty field")
    flags.add_rows(parser, everything="every row, nothing cut")
    flags.add_steps(parser, what="only rows of this step")
    parser.add_argument(
        "--timeout", type=flags.seconds, metavar="SECONDS", help="end a query after this time (default 60)"
    )
    parser.add_argument(
        *("--schema", "--tables"),
        action="store_true",
        dest="schema",
        help="list the tables and their columns, or those of the tables named",
    )


def run(args: argparse.Namespace) -> int:
    """Run the query and print its rows; exit code 0."""
    words = [word for word in (args.trace, *args.query) if word is not None]
    if args.schema:
        return _describe(words, args)
    query = _query(words)
    target = output_of(args, _files(words))
    form = _form(args, target)
    limit = args.top if form or args.everything or args.top else _ROWS
    answer = _ask(words[0], query, args, limit)
    deliver(_written(answer, form, target, args), target, force=args.force)
    return 0


def _query(words: list[str]) -> str:
    """The text of the query; ``words`` are the trace and what follows it."""
    example = "select name, duration_us from kernels"
    if not words:
        raise InputError(f'give a trace and a query: foretrace sql trace.json.gz "{example}"')
    if len(words) == 1:
        raise InputError(
            f'a query is missing: foretrace sql {clean(words[0])} "{example}"; foretrace sql --schema lists the tables'
        )
    if len(words) > 2:
        raise InputError("the query is more than one word to the shell; put it in quotes, as one argument")
    check_sources([words[0], *(["-"] if words[1] == "-" else [])])
    if words[1] == "-":
        return standard_input().read()
    if words[1].startswith("@"):
        path = words[1][1:]
        try:
            return Path(path).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text in UTF-8"
            raise InputError(f"the query cannot be read from {clean(path) or 'a file without a name'}: {why}") from None
    return words[1]


def _files(words: list[str]) -> list[str]:
    return [words[0], *([words[1][1:]] if words[1].startswith("@") else [])]


def _form(args: argparse.Namespace, target: Path | None) -> str | None:
    """``csv``, ``json`` or ``parquet``; None is a table for a screen."""
    asked = "json" if args.json else "csv" if args.csv else None
    if target is None:
        return asked
    name = target.name.removesuffix(".gz")
    named = _FORMS.get(Path(name).suffix.lower())
    if named == "parquet" and name != target.name:
        raise InputError(f"{target} would be packed twice; a name that ends in .parquet is enough")
    if named is None:
        raise InputError(f"{target} does not say its form; a name ends in {listed(_FORMS, 'or')}")
    if asked is not None and asked != named:
        raise InputError(f"--{asked} asks for another form than the name {target}; leave one of them out")
    return named


def _ask(path: str, query: str, args: argparse.Namespace, limit: int | None) -> Answer:
    from foretrace.analysis.tables import Tables
    from foretrace.analysis.tables.statement import read_statement
    from foretrace.model.sidefile import read_side
    from foretrace.trace import load
    from foretrace.trace.steps import select_steps

    read_statement(query)  # what is no query is said before a large trace is read
    with reading([path]):
        trace = load(path)
    steps = select_steps(trace.steps, args.step, what=STEP_FLAG) if args.step else None
    tables = Tables(trace, steps=steps, side=None if path == "-" else read_side(path))
    return tables.ask(query, limit=limit, timeout=args.timeout)


def _written(answer: Answer, form: str | None, target: Path | None, args: argparse.Namespace) -> bytes:
    from foretrace.analysis.tables.result import flat, result_of

    if form == "csv":
        frame = flat(answer.frame)
        return (_printable(frame) if target is None and sys.stdout.isatty() else frame).write_csv().encode()
    if form == "parquet":
        return _parquet(answer.frame)
    if form == "json":
        from foretrace.report.json import to_json

        return to_json(result_of(answer))
    from foretrace.report.rows import render_rows

    return render_rows(result_of(answer), view_for(target, everything=args.everything)).encode("utf-8", "replace")


def _printable(frame: polars.DataFrame) -> polars.DataFrame:
    """The frame without what a terminal would obey."""
    import polars as pl

    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    cleaned = [
        pl.Series(name, [None if text is None else clean(text) for text in frame[name].to_list()], dtype=pl.String)
        for name in texts
    ]
    return frame.with_columns(cleaned).rename({name: clean(name) for name in frame.columns})


def _parquet(frame: polars.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _describe(words: list[str], args: argparse.Namespace) -> int:
    """List the tables; of ``words`` those that name one (a trace may stand there as well)."""
    tables = [_described(word) for word in words if not Path(word).is_file() and word != "-"] or list(TABLES)
    target = output_of(args)
    from foretrace.report.json import to_json
    from foretrace.report.tables import described, render_tables

    content = to_json(described(tables)) if args.json else render_tables(tables, view_for(target)).encode()
    deliver(content, target, force=args.force)
    return 0


def _described(name: str) -> Table:
    table = table_named(name.lower())
    if table is None:
        raise InputError(f"there is no table {clean(name)!r}; the tables are {listed(t.name for t in TABLES)}")
    return table
