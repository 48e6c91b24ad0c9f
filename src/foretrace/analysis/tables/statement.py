"""Whether a text is one SELECT over the tables and nothing else, and which tables and columns it names.

A query runs where no file can be opened (``worker.py``); this reading of it is what gives a refusal its words, and
the second line where a system knows no such limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from foretrace.analysis.tables.headers import Heading, headings, with_headings
from foretrace.errors import InputError
from foretrace.knowledge.sql import (
    BEGINNINGS,
    CHANGING,
    FUNCTIONS,
    OFFERED,
    UNIT_KEEPING,
    UNORDERED,
    is_table_function,
)

__all__ = ["Statement", "read_statement"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`)
    |(?P<number>\d[\w.]*)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_SHOWN = 60
_ARITHMETIC = frozenset("*/%^+-")


@dataclass(frozen=True)
class Token:
    """A word (in small letters), a ``quoted`` name, a text, a number or a sign, at a depth of brackets.

    It stands from character ``at`` to ``end`` of the query.
    """

    kind: str
    text: str
    depth: int
    at: int = 0
    end: int = 0


@dataclass(frozen=True)
class Statement:
    """One query that may run.

    Attributes:
        sql: its text.
        headed: the same with a name for every expression that has none (``headings``).
        names: the words and quoted names in it: of tables, columns and aliases, and the language's own.
        quoted: those that stand in double quotes.
        changed: those that a function or arithmetic makes something of another unit of.
        everything: whether it takes columns without naming them.
        unordered: whether its rows come in no order that is the same every time.
    """

    sql: str
    headed: str
    headings: tuple[Heading, ...]
    names: frozenset[str]
    quoted: frozenset[str]
    changed: frozenset[str]
    everything: bool
    unordered: bool

    def wants(self, columns: Collection[str]) -> bool:
        """Whether its result may need one of the columns: it names one, or takes all there are."""
        return self.everything or not self.names.isdisjoint(columns)

    def tables(self, among: Collection[str]) -> list[str]:
        """Those of the tables that it names."""
        return [name for name in among if name in self.names]


def read_statement(sql: str) -> Statement:
    """Read a query; raises `InputError` for what is not one SELECT (or WITH … SELECT)."""
    tokens = _tokens(sql)
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise InputError('the query is empty; give one SELECT, such as "select * from kernels"')
    if any(token.kind == "sign" and token.text == ";" for token in tokens):
        raise InputError("there is more than one statement; give one SELECT")
    _refuse_beginnings(tokens)
    _refuse_functions(tokens)
    words = {token.text for token in tokens if token.kind == "word"}
    top = {token.text for token in tokens if token.kind == "word" and token.depth == 0}
    quoted = frozenset(token.text for token in tokens if token.kind == "quoted")
    found = headings(sql, tokens)
    return Statement(
        sql=sql,
        headed=with_headings(sql, found),
        headings=tuple(found),
        names=frozenset(words) | {name.lower() for name in quoted},
        quoted=quoted,
        changed=frozenset(_changed(tokens)),
        everything=bool(words & {"columns", "natural"}) or _takes_all(tokens),
        unordered=bool(words & UNORDERED) and "order" not in top,
    )


def _tokens(sql: str) -> list[Token]:
    tokens: list[Token] = []
    at = depth = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None  # the last alternative takes any character
        kind, text = str(found.lastgroup), found.group()
        before = sql[at - 1] if at else " "
        begin, at = at, found.end()
        if kind == "space":
            continue
        if kind == "comment":
            at = _comment_end(sql, at)
            continue
        if kind == "sign" and text in "'\"`":
            raise InputError(f"a quotation mark ({text}) is not closed in {_short(sql)}")
        if (kind == "text" and (before.isalnum() or before in "_$&")) or text == "$":
            # Marks such as E'…' and $$…$$ change where a text ends.
            raise InputError("text stands in plain single quotes here: 'gemm', and '' for a quotation mark in it")
        depth -= text in ")]"
        if kind == "quoted":
            text = text[1:-1].replace('""', '"')
        tokens.append(Token(kind, text.lower() if kind == "word" else text, depth, begin, at))
        depth += kind == "sign" and text in "(["
    return tokens


def _comment_end(sql: str, at: int) -> int:
    """Where a comment that began before ``at`` ends; comments nest."""
    depth = 1
    for mark in re.finditer(r"/\*|\*/", sql[at:]):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return at + mark.end()
    raise InputError(f"a comment (/*) is not closed in {_short(sql)}")


def _refuse_beginnings(tokens: list[Token]) -> None:
    first = next((token for token in tokens if token.text != "("), tokens[0])
    if first.kind != "word" or first.text not in BEGINNINGS:
        raise InputError(_refusal(first.text))
    for before, token in pairwise(tokens):
        if before.text == "(" and token.kind == "word" and token.text in CHANGING and not _is_called(tokens, token):
            raise InputError(_refusal(token.text))


def _is_called(tokens: list[Token], token: Token) -> bool:
    """Whether a word is a function's name: `replace(name, …)` is one, `(replace into …)` is not."""
    place = next(i for i, other in enumerate(tokens) if other is token)
    return place + 1 < len(tokens) and tokens[place + 1].text == "("


def _refusal(word: str) -> str:
    if word in CHANGING:
        return f"{word.upper()} is refused: a trace is only read here; give one SELECT"
    if word in ("show", "describe", "desc", "explain"):
        return f"{word.upper()} is refused: give one SELECT; foretrace sql --schema lists the tables and their columns"
    return f"a query begins with SELECT or WITH, not with {_short(word)}; it can have {OFFERED}"


def _refuse_functions(tokens: list[Token]) -> None:
    for token, after in pairwise(tokens):
        if token.kind in ("word", "quoted") and after.text == "(" and is_table_function(token.text):
            raise InputError(f"{token.text}() is refused: a query can use the tables of the trace and no files")


def _takes_all(tokens: list[Token]) -> bool:
    """Whether there is a star that is not that of `count(*)`; one that multiplies counts, which does no harm."""
    texts = ["", *(token.text for token in tokens), ""]
    return any(
        here == "*" and not (before == "(" and after == ")")
        for before, here, after in zip(texts, texts[1:], texts[2:], strict=False)
    )


def _changed(tokens: list[Token]) -> Iterator[str]:
    """Names beside an arithmetic sign, or inside a function that does not keep the unit of what it is given."""
    inside: list[str] = []  # what stands before each open bracket
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        if token.text == "(":
            inside.append(before)
        elif token.text == ")" and inside:
            inside.pop()
        elif token.kind in ("word", "quoted"):
            called = [word for word in inside if word in FUNCTIONS and word not in UNIT_KEEPING]
            if called or before in _ARITHMETIC or after in _ARITHMETIC:
                yield token.text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
