"""Expectations as a TOML file that ``read_toml`` reads back to the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from foretrace.model.expectations import Clause, Expectation, Scope
from foretrace.prediction.expect.quantities import SCOPES
from foretrace.prediction.expect.values import number_text, range_text

__all__ = ["to_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def to_toml(
    expectation: Expectation, *, heading: str | None = None, remarks: Mapping[Clause, str] | None = None
) -> str:
    """The expectation as TOML text.

    Args:
        expectation: what to write; clauses of one scope stand together, in their order.
        heading: text for the top of the file, as a comment.
        remarks: clause → a comment for the line above it.
    """
    remarks = remarks or {}
    blocks: list[str] = ["\n".join(_comment(heading))] if heading else []
    by_scope: dict[Scope, list[Clause]] = {}
    for clause in expectation.clauses:
        by_scope.setdefault(clause.scope, []).append(clause)
    # Keys without a table must come first.
    for scope in sorted(by_scope, key=lambda scope: scope != Scope()):
        blocks += _scope_blocks(scope, by_scope[scope], remarks)
    return "\n\n".join(blocks) + "\n"


def _scope_blocks(scope: Scope, clauses: list[Clause], remarks: Mapping[Clause, str]) -> list[str]:
    name = ".".join(f"{kind}.{_key(value)}" for kind in SCOPES if (value := getattr(scope, kind)) is not None)
    lines = [f"[{name}]"] if name else []
    by_quantity: dict[str, list[Clause]] = {}
    for clause in clauses:
        if not clause.pattern:
            by_quantity.setdefault(clause.quantity, []).append(clause)
    for quantity, same in by_quantity.items():
        for clause in same:
            lines += _comment(remarks.get(clause))
        # TOML has each key once: what is asked twice of one quantity becomes a list.
        values = [_value(clause, alone=len(same) == 1) for clause in same]
        lines.append(f"{_key(quantity)} = {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}")
    blocks = ["\n".join(lines)] if lines and lines != [f"[{name}]"] else []
    for clause in clauses:
        if clause.pattern:
            head = f"[[{name}.kernel]]" if name else "[[kernel]]"
            fields = [f"{_key(field)} = {_text(value)}" for field, value in clause.pattern]
            blocks.append("\n".join([*_comment(remarks.get(clause)), head, *fields, f"count = {_value(clause)}"]))
    return blocks


def _value(clause: Clause, *, alone: bool = True) -> str:
    if clause.range is not None:
        exact = clause.range.exact
        return number_text(exact) if exact is not None else _text(range_text(clause.range))
    if clause.quantity == "same_kernels_as" and len(clause.words) == 2:
        return f"{{ trace = {_text(clause.words[0])}, kind = {_text(clause.words[1])} }}"
    if len(clause.words) == 1 and alone:
        return _text(clause.words[0])
    return f"[{', '.join(_text(word) for word in clause.words)}]"


def _key(name: str) -> str:
    return name if _BARE.match(name) else _text(name)


def _text(text: str) -> str:
    """A basic string; what TOML forbids bare (controls, DEL, half surrogates) is escaped or replaced."""
    safe = text.encode("utf-8", "replace").decode()
    return json.dumps(safe, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str | None) -> list[str]:
    return [f"# {row}".rstrip() for row in (text or "").splitlines()]
