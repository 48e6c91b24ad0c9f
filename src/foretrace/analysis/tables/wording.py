"""The engine's errors in one sentence of ours, with the nearest name where a name is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from foretrace.analysis.tables.statement import Statement
from foretrace.knowledge.sql import FUNCTIONS, MESSAGES, OFFERED, OTHER_NAMES, TYPES
from foretrace.knowledge.tables import TABLES
from foretrace.model.words import listed

if TYPE_CHECKING:
    import polars

    _Frames = Mapping[str, polars.DataFrame]

__all__ = ["explained", "nearest"]

_Facts = dict[str, str]
_LONGEST = 200


def explained(statement: Statement, frames: _Frames, kind: str, message: str) -> str:
    """What went wrong with a query, and what to write instead; ``kind`` is the name of the engine's exception."""
    for key, pattern in MESSAGES:
        found = pattern.search(message)
        if found:
            return _SENTENCES[key](statement, frames, {k: v for k, v in found.groupdict().items() if v is not None})
    if kind == "StructFieldNotFoundError":
        return _alias(statement, frames, {"name": _first_line(message)})
    return f"the query cannot be run: {_first_line(message).rstrip('.') or kind}"


def nearest(name: str, among: Iterable[str]) -> str | None:
    """The name that was most likely meant; None where none is near."""
    known = {candidate.lower(): candidate for candidate in among}
    found = get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def _column(statement: Statement, frames: _Frames, facts: _Facts) -> str:
    name = facts["name"]
    if name in statement.quoted and any(name.lower() in table.names for table in TABLES):
        return f'there is no column {name!r}; between double quotes capital letters count: "{name.lower()}"'
    if name in statement.quoted:
        return f"there is no column {name!r}; text stands in single quotes: '{name}' (double quotes are for names)"
    here = [column for table in TABLES if table.name in frames for column in table.names]
    here += re.findall(r'"(.*?)"', facts.get("valid", ""))
    where = f" in {listed(frames)}" if frames else ""
    near = nearest(name, here)
    if near is not None:
        return f"there is no column {name!r}{where}; did you mean {near!r}?"
    elsewhere = [table.name for table in TABLES if name in table.names and table.name not in frames]
    if elsewhere:
        return f"there is no column {name!r}{where}; {listed(elsewhere)} {'has' if len(elsewhere) == 1 else 'have'} it"
    near = nearest(name, (column for table in TABLES for column in table.names))
    if near is not None:
        owner = next(table.name for table in TABLES if near in table.names)
        return f"there is no column {name!r}{where}; {owner} has {near!r}"
    return f"there is no column {name!r}{where}; foretrace sql --schema lists the columns of every table"


def _relation(_: Statement, __: _Frames, facts: _Facts) -> str:
    near = nearest(facts["name"], (table.name for table in TABLES))
    meant = f"; did you mean {near!r}?" if near else ";"
    return f"there is no table {facts['name']!r}{meant} The tables are {_tables()}".replace("; The", "; the")


def _alias(_: Statement, __: _Frames, facts: _Facts) -> str:
    return f"no table or alias of the query goes with {facts['name']!r}; before a dot stands a table or its alias"


def _function(_: Statement, __: _Frames, facts: _Facts) -> str:
    name = facts["name"].lower()
    near = OTHER_NAMES.get(name) or nearest(name, FUNCTIONS)
    meant = f"; did you mean {near}()?" if near else f"; there are {', '.join(sorted(FUNCTIONS))}"
    return f"the query engine (Polars) has no function {name}(){meant}"


def _syntax(_: Statement, __: _Frames, facts: _Facts) -> str:
    what = re.sub(r" at Line: (\d+), Column: (\d+)", r" (line \1, column \2)", _first_line(facts["what"]))
    return f"the query cannot be read: {what[:1].lower()}{what[1:]}; a query can have {OFFERED}"


def _unsupported(_: Statement, __: _Frames, facts: _Facts) -> str:
    return f"the query engine (Polars) does not know {_first_line(facts['what'])}; a query can have {OFFERED}"


def _arguments(_: Statement, __: _Frames, facts: _Facts) -> str:
    return f"{facts['name']} has other arguments than the function takes"


def _ungrouped(_: Statement, __: _Frames, facts: _Facts) -> str:
    name = facts["name"]
    return f"{name!r} has more than one value in a group; name it in GROUP BY, or take one of them with max({name})"


def _duplicate(_: Statement, __: _Frames, facts: _Facts) -> str:
    return f"two columns of the result are named {facts['name']!r}; name one of them with AS"


def _types(statement: Statement, _: _Frames, __: _Facts) -> str:
    if "step" in statement.names:
        return (
            "text is compared with a number: step is the position of a step (0 is the first); a label such as '#3' "
            "stands in step_label (in the table steps: label, 'ProfilerStep#3')"
        )
    return "text is compared with a number; 'quotes' make text, and cast(column AS DOUBLE) makes a number of a text"


def _zero(_: Statement, __: _Frames, ___: _Facts) -> str:
    return "a number that is written with a point is divided by zero; nullif(x, 0) makes NULL of a zero"


def _operation(_: Statement, __: _Frames, facts: _Facts) -> str:
    types = re.sub(r"\w+", lambda word: TYPES.get(word.group(), word.group()), facts["type"])
    return (
        f"{facts.get('name', 'arithmetic')} cannot be done with the types of its columns ({types}); "
        "foretrace sql --schema lists the type of every column"
    )


def _crossed(_: Statement, __: _Frames, ___: _Facts) -> str:
    return "the query pairs every row with every other, more than four thousand million times; join with ON"


_SENTENCES = {
    "alias": _alias,
    "arguments": _arguments,
    "column": _column,
    "crossed": _crossed,
    "duplicate": _duplicate,
    "function": _function,
    "operation": _operation,
    "relation": _relation,
    "syntax": _syntax,
    "types": _types,
    "ungrouped": _ungrouped,
    "unsupported": _unsupported,
    "zero": _zero,
}


def _tables() -> str:
    return listed(table.name for table in TABLES)


def _first_line(text: str) -> str:
    line = " ".join(text.strip().split("\n")[0].split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
