"""What a result's columns are called where a query does not say: each expression as it is written.

The engine names an expression after the first column in it, so that ``min(x), max(x)`` are told apart by nothing, and
``count(*), count(*)`` is an error. An alias is put behind each expression of a select list that has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from foretrace.knowledge.sql import AFTER_SELECT_LIST, NO_ALIAS, NO_ALIAS_AFTER, UNIT_KEEPING

if TYPE_CHECKING:
    from foretrace.analysis.tables.statement import Token

__all__ = ["Heading", "headings", "with_headings"]

_LONGEST = 120


class Heading(NamedTuple):
    """A name for the expression that ends at character ``end``; ``of``: the one name in it whose unit it keeps."""

    end: int
    name: str
    of: str | None


def headings(sql: str, tokens: list[Token]) -> list[Heading]:
    """The expressions of all select lists that are no plain column and have no name."""
    found = []
    for place, token in enumerate(tokens):
        if token.kind != "word" or token.text != "select":
            continue
        taken: set[str] = set()
        for item in _items(tokens, place + 1, token.depth):
            if _is_named(item):
                continue
            name = base = _written(sql, item)
            number = 0
            while name in taken:
                number += 1
                name = f"{base}:{number}"
            taken.add(name)
            found.append(Heading(item[-1].end, name, _kept(item)))
    return found


def with_headings(sql: str, found: list[Heading]) -> str:
    """The query with these names in it."""
    for one in sorted(found, reverse=True):
        quoted = one.name.replace('"', '""')
        sql = f'{sql[: one.end]} AS "{quoted}"{sql[one.end :]}'
    return sql


def _items(tokens: list[Token], begin: int, depth: int) -> Iterator[list[Token]]:
    """The parts of a select list, cut at its commas."""
    if begin < len(tokens) and tokens[begin].text in ("distinct", "all"):
        begin += 1
        if begin < len(tokens) and tokens[begin].text == "on":
            return
    item: list[Token] = []
    for token in tokens[begin:]:
        over = token.depth < depth or (
            token.depth == depth and token.kind == "word" and token.text in AFTER_SELECT_LIST
        )
        if over:
            break
        if token.depth == depth and token.text == "," and token.kind == "sign":
            if item:
                yield item
            item = []
        else:
            item.append(token)
    if item:
        yield item


def _is_named(item: list[Token]) -> bool:
    """Whether a part of a select list is a plain column or a star, or has a name."""
    depth, last = item[0].depth, item[-1]
    if all(token.kind in ("word", "quoted") or token.text in (".", "*") for token in item) and _is_path(item):
        return True
    if item[0].text == "*" or any(token.kind == "word" and token.text == "columns" for token in item):
        return True
    if any(token.kind == "word" and token.text == "as" and token.depth == depth for token in item):
        return True
    if len(item) < 2 or last.kind not in ("word", "quoted") or last.text in NO_ALIAS:
        return False
    before = item[-2]
    if before.kind == "word":
        return before.text not in NO_ALIAS_AFTER
    return before.kind in ("text", "number", "quoted") or before.text in (")", "]")


def _is_path(item: list[Token]) -> bool:
    """Whether names and dots take turns, as in `k.kind`."""
    if item[0].kind == "word" and item[0].text in NO_ALIAS:
        return False
    return all((token.text == ".") == bool(place % 2) for place, token in enumerate(item)) and len(item) % 2 == 1


def _written(sql: str, item: list[Token]) -> str:
    """The expression in one line, without comments."""
    text, end = "", item[0].at
    for token in item:
        text += " " * (token.at > end) + sql[token.at : token.end]
        end = token.end
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _kept(item: list[Token]) -> str | None:
    """The one column that functions are applied to which keep its unit; None where there is more to it."""
    depth = item[0].depth
    names = []
    for place, token in enumerate(item):
        after = item[place + 1].text if place + 1 < len(item) else ""
        if token.depth == depth and token.text in ("filter", "over") and place:
            break  # which rows are meant, not what is made of them
        if after == ".":
            continue
        if after == "(":
            if token.text not in UNIT_KEEPING and token.text != "(":
                return None
        elif token.kind in ("word", "quoted"):
            if token.text != "distinct":
                names.append(token.text)
        elif token.kind != "number" and token.text not in ("(", ")", ",", "."):
            return None
    return names[0] if len(names) == 1 else None
