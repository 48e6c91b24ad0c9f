"""The Python form: ``expect(kernels=5, gemm=3)``; and the one-line form: ``mlp_fwd: gemm == 3``.

Both, and the TOML form of ``toml_reader``, make the same clauses; ``clause_text`` writes one as a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from foretrace.errors import InputError
from foretrace.knowledge.kernels import KINDS
from foretrace.model.expectations import EVERYWHERE, Clause, Expectation, Range, Scope
from foretrace.model.report import Bound, KernelBound
from foretrace.prediction.expect.places import ambiguous, not_one_place, one_place, quoted, unquoted
from foretrace.prediction.expect.quantities import FIELDS, QUANTITIES, SCOPES, find, ratio_of, suggestion
from foretrace.prediction.expect.sense import problems
from foretrace.prediction.expect.values import range_text, range_value

__all__ = [
    "clause_text",
    "clauses_of",
    "expect",
    "parse_line",
    "pattern_of",
]

_LONGEST_LINE = 2_000
_BOUNDS = tuple(bound for bound in get_args(Bound) if bound != "unknown")
TRANSFERS = ("memcpy", "memset")
# Fields of a pattern with a closed set of values; globs and regular expressions are left alone.
_FIELD_VALUES: Mapping[str, tuple[str, ...]] = {
    "kind": KINDS,
    "phase": ("forward", "backward", "optimizer"),
    "bound": get_args(KernelBound),
}

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_ITEM = rf'(?:(?:step|region|module|op)\s+)?(?:{_QUOTED}|[^",]+?)'
_CLAUSE = (
    rf"(?P<subject>kernel\[(?:{_QUOTED}|[^\"\]])*\]|[A-Za-z]\w*(?:\s*/\s*[A-Za-z]\w*)?)\s*(?P<rest>(?:[=<>~!≥≤]).+)"
)
_LINE = re.compile(rf"(?:(?P<scope>{_ITEM}(?:,\s+{_ITEM})*):\s+)?{_CLAUSE}", re.DOTALL)
_SCOPE_ITEM = re.compile(rf'(?:(?P<kind>step|region|module|op)\s+)?(?P<name>{_QUOTED}|[^",]+)(?:,\s+|\Z)')
_FIELD = re.compile(rf"\s*(?P<field>\w+)\s*=\s*(?P<value>{_QUOTED}|[^,\"]+?)\s*(?:,|\Z)")


def expect(
    *lines: str | Expectation,
    step: int | str | None = None,
    region: str | None = None,
    module: str | None = None,
    op: str | None = None,
    kernel: Mapping[str, Any] | Iterable[Mapping[str, Any]] = (),
    **quantities: Any,
) -> Expectation:
    """Say what a trace should hold; ``a & b`` joins two expectations.

    ::

        foretrace.expect(kernels=5, gemm=3, elementwise=2, memcpys=0, bound="memory")
        foretrace.expect("gemm == 3", region="mlp_fwd", gpu_busy_us="236 us ± 10%")
        foretrace.expect(kernel={"tile": "256x128", "layout": "TN", "count": 2})

    Args:
        lines: clauses in the one-line form of the command line, or other expectations.
        step: where the quantities are looked at: a step, by its position or its label such as ``"#3"``. Without any
            of these four, every active step must hold them.
        region: likewise, a ``record_function`` label; this name and the next two may be globs. A name that reads like
            two places (``mlp: op aten::mm``) is refused; a label that is so called stands in double quotes.
        module: likewise, an ``nn.Module`` frame.
        op: likewise, an operator.
        kernel: patterns over the fields of kernels (``name``, ``tile``, ``layout``, ``parts``, …), each with a
            ``count`` (at least one, if none is given).
        quantities: any of the names in ``docs/concepts/expectations.md``: a number, a text such as ``">= 2"``,
            ``"220..260"`` or ``"236 us ± 10%"``, or a pair ``(low, high)`` in which ``None`` is no limit.

    Raises:
        InputError: an unknown name, a value of the wrong type, or clauses that cannot all hold.
    """
    given = {"step": step, "region": region, "module": module, "op": op}
    scope = _scope({kind: one_place(kind, name) for kind, name in given.items()})
    found: list[Clause] = []
    for line in lines:
        if isinstance(line, Expectation):
            found += [_moved(clause, scope) for clause in line.clauses]
        else:
            found.append(_moved(parse_line(line), scope))
    patterns = [kernel] if isinstance(kernel, Mapping) else list(kernel)
    for pattern in patterns:
        found.append(pattern_of(pattern, scope))
    for name, value in quantities.items():
        found += clauses_of(name, value, scope)
    result = Expectation() & Expectation(tuple(found))
    for _, sentence in problems(result.clauses):
        raise InputError(sentence)
    return result


def parse_line(text: str) -> Clause:
    """The clause of one line, such as ``gemm == 3`` or ``mlp_fwd: gpu_busy_us <= 250``.

    Raises ``InputError`` that quotes the line.
    """
    if not isinstance(text, str):
        raise InputError(f"{text!r} is no expectation: give a text such as 'gemm == 3'")
    match = _LINE.fullmatch(text.strip()) if len(text) <= _LONGEST_LINE else None
    if match is None:
        raise InputError(
            f"{text[:80]!r} is no expectation: write QUANTITY == VALUE (or >=, <=, >, <), "
            "as in 'gemm == 3' or 'mlp_fwd: gpu_busy_us <= 250'"
        )
    try:
        scope = _scope(_scope_parts(match["scope"]))
        subject, rest = match["subject"], match["rest"].strip()
        if subject.startswith("kernel["):
            return pattern_of(_fields(subject[len("kernel[") : -1]), scope, rest)
        name = re.sub(r"\s*/\s*", " / ", subject)
        quantity = find(name)
        if quantity is not None and quantity.unit == "words":
            return clauses_of(name, _unsigned(name, rest), scope)[0]
        return clauses_of(name, _compared(rest), scope)[0]
    except InputError as error:
        raise InputError(f"{text[:80]!r}: {error}") from None


def clauses_of(name: str, value: object, scope: Scope = EVERYWHERE) -> list[Clause]:
    """The clause that a name and a value of the Python or TOML form make (several for a list of ranges).

    Raises ``InputError`` without a place.
    """
    parts = ratio_of(name)
    if parts is not None:
        name = " / ".join(parts)
    quantity = find(name)
    if quantity is None:
        raise InputError(_unknown(name))
    if name == "kernel":
        raise InputError('kernel is a pattern: give it fields, as in [[kernel]] with tile = "256x128" and a count')
    _check_place(name, quantity.where, scope)
    if quantity.unit == "words":
        several = isinstance(value, list) and value and all(isinstance(item, list | Mapping) for item in value)
        return [
            Clause(quantity=name, scope=scope, words=_words(name, item))
            for item in (value if several and isinstance(value, list) else [value])
        ]
    try:
        return [
            Clause(quantity=name, scope=scope, range=range_value(item, quantity.unit))
            for item in (value if isinstance(value, list) and value else [value])
        ]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def pattern_of(pattern: Mapping[str, Any], scope: Scope = EVERYWHERE, count: object = None) -> Clause:
    """The clause of a kernel pattern: its fields, and ``count`` (here or as an argument; default at least one).

    Raises ``InputError`` without a place.
    """
    if not isinstance(pattern, Mapping):
        raise InputError(f"a kernel pattern is a table of fields, not {type(pattern).__name__}")
    fields = dict(pattern)
    wanted = fields.pop("count", count)
    if not fields:
        raise InputError("a kernel pattern needs a field, such as tile or name")
    for field in fields:
        if field not in FIELDS:
            raise InputError(
                f"{field} is no field of a kernel{suggestion(field, FIELDS)} ({', '.join(FIELDS[:12])}, …)"
            )
    chosen = tuple(sorted((field, _field_text(field, value)) for field, value in fields.items()))
    try:
        amount = Range(low=1) if wanted is None else range_value(_compared(wanted), "count")
    except InputError as error:
        raise InputError(f"count: {error}") from None
    return Clause(quantity="kernel", scope=scope, range=amount, pattern=chosen)


def clause_text(clause: Clause) -> str:
    """The clause as one line that ``parse_line`` reads."""
    scope = _scope_text(clause.scope)
    subject = clause.quantity
    if clause.pattern:
        subject = f"kernel[{_pattern_text(clause.pattern)}]"
    if clause.range is not None:
        said = range_text(clause.range)
        value = said if said[0] in "<>" else f"== {said}"
    else:
        value = "== " + (" | " if clause.quantity == "bound" else ", ").join(quoted(word) for word in clause.words)
    return f"{scope}: {subject} {value}" if scope else f"{subject} {value}"


def _scope_text(scope: Scope) -> str:
    """``step #3, region mlp_fwd``; empty for every step."""
    parts = [(kind, getattr(scope, kind)) for kind in SCOPES]
    return ", ".join(f"{kind} {quoted(name)}" for kind, name in parts if name is not None)


def _pattern_text(pattern: tuple[tuple[str, str], ...]) -> str:
    """``layout=TN, tile=256x128``."""
    return ", ".join(f"{field}={quoted(value)}" for field, value in pattern)


# ---- parts ----


def _unknown(name: str) -> str:
    parts = ratio_of(name)
    if parts is not None:
        for part in parts:
            if part not in QUANTITIES:
                return f"{part or 'nothing'} is no quantity{suggestion(part, list(QUANTITIES))}"
        return f"{name} is no ratio of two numbers that are looked at in the same place"
    if name in SCOPES:
        return f"{name} is a place to look at, not a quantity"
    return f"{name} is no quantity{suggestion(name, [*QUANTITIES, *SCOPES])}"


def _check_place(name: str, where: str, scope: Scope) -> None:
    if where == "step" and scope.inner:
        raise InputError(f"{name} is a number of whole steps; it cannot be asked of a region, module or operator")
    if where == "trace" and scope != EVERYWHERE:
        raise InputError(f"{name} is a number of the whole trace; it takes no scope")
    if where == "inner" and not scope.inner:
        raise InputError(f"{name} needs a region, module or operator whose {name} it counts")


def _words(name: str, value: object) -> tuple[str, ...]:
    if name == "same_kernels_as" and isinstance(value, Mapping):
        fields = dict(value)
        path, kind = fields.pop("trace", None), fields.pop("kind", None)
        if fields:
            raise InputError(f"same_kernels_as takes trace and kind, not {next(iter(fields))}")
        value = [path] if kind is None else [path, kind]
    items = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if not items or not all(isinstance(item, str) and item.strip() for item in items):
        example = {"order": '["gemm", "elementwise"]', "same_kernels_as": '"b.json.gz"', "bound": '"memory"'}
        raise InputError(f"{name} takes text, as in {name} = {example.get(name, chr(34) + 'gemm' + chr(34))}")
    words = tuple(str(item).strip() for item in items)
    if name == "bound":
        for word in words:
            if word not in _BOUNDS:
                raise InputError(f"bound: {word} is none of {', '.join(_BOUNDS)}{suggestion(word, _BOUNDS)}")
        return tuple(dict.fromkeys(words))
    if name == "same_kernels_as":
        if len(words) > 2:
            raise InputError("same_kernels_as takes one trace, and a kind of kernels if not all are meant")
        kinds = words[1:]
    elif name == "order":
        kinds = tuple(word for word in words if not _is_field_item(word))
    else:
        kinds = words
        if len(words) > 1:
            raise InputError(f"{name} takes one kind of kernels")
    among = (*KINDS, *TRANSFERS) if name == "order" else KINDS
    for kind in kinds:
        if kind not in among:
            raise InputError(f"{name}: {kind} is no kind of kernels{suggestion(kind, among)} ({', '.join(among)})")
    return words


def _is_field_item(word: str) -> bool:
    """Whether an item of ``order`` is ``field:pattern`` (``op:aten::gelu``); its field and pattern must be right."""
    field, colon, pattern = word.partition(":")
    if not colon:
        return False
    if field not in FIELDS:
        raise InputError(f"order: {field} is no field of a kernel{suggestion(field, FIELDS)}")
    _field_text(field, pattern)
    return True


def _field_text(field: str, value: object) -> str:
    """The text of a pattern field; a pattern between slashes is a regular expression and must be one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) and item.strip() for item in value):
        return ", ".join(str(item).strip() for item in value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{field} takes a text (a glob, or a regular expression between slashes), not {value!r}")
    text = value.strip()
    known = _FIELD_VALUES.get(field)
    if known is not None and text.isidentifier() and text not in known:
        raise InputError(f"{field}: {text} is none of {', '.join(known)}{suggestion(text, known)}")
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            re.compile(text[1:-1])
        except re.error as error:
            raise InputError(f"{field}: {text} is no regular expression: {error}") from None
    return text


def _scope(parts: Mapping[str, object]) -> Scope:
    fields: dict[str, str] = {}
    for kind, name in parts.items():
        if name is None:
            continue
        if kind == "step" and isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{kind} takes a name, not {name!r}")
        fields[kind] = name.strip()
    return Scope(**fields)


def _scope_parts(text: str | None) -> dict[str, object]:
    parts: dict[str, object] = {}
    for match in _SCOPE_ITEM.finditer(text or ""):
        kind, name = match["kind"] or "region", match["name"].strip()
        if not name.startswith('"') and ambiguous(name):
            raise InputError(not_one_place(match["kind"], name))
        if kind in parts:
            raise InputError(f"two scopes of one kind ({kind}) cannot both be meant")
        parts[kind] = unquoted(name)
    return parts


def _fields(text: str) -> dict[str, object]:
    fields: dict[str, object] = {}
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            raise InputError(f"{text[at:].strip()!r} is no FIELD=PATTERN")
        if match["field"] in fields:
            raise InputError(f"{match['field']} is given twice")
        fields[match["field"]] = unquoted(match["value"])
        at = match.end()
    return fields


def _moved(clause: Clause, scope: Scope) -> Clause:
    """The clause inside a further scope."""
    if scope == EVERYWHERE:
        return clause
    fields: dict[str, str | None] = {}
    for kind in SCOPES:
        outer, own = getattr(scope, kind), getattr(clause.scope, kind)
        if outer is not None and own is not None and outer != own:
            raise InputError(f"{clause_text(clause)!r} has a {kind} of its own; it cannot be moved into {outer}")
        fields[kind] = own if own is not None else outer
    place = Scope(**fields)
    quantity = find(clause.quantity)
    if quantity is not None:
        _check_place(clause.quantity, quantity.where, place)
    return Clause(quantity=clause.quantity, scope=place, range=clause.range, words=clause.words, pattern=clause.pattern)


def _compared(value: object) -> object:
    """``== 2..4`` → ``2..4``: two equal signs before what is more than one number."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(?:==?|~)\s*(?![=~])(\S.*)", value, re.DOTALL)
    if match is None:
        if value.lstrip().startswith("!"):
            raise InputError("!= is not understood; write a range, such as '>= 1'")
        return value
    return match[1]


def _unsigned(name: str, rest: str) -> object:
    match = re.fullmatch(r"==?\s*(?!=)(\S.*)", rest, re.DOTALL)
    if match is None:
        raise InputError(f"{name} is a word, not a number: write {name} == …")
    separator = r"\s*\|\s*" if name == "bound" else r"\s*,\s*"
    pieces = re.findall(rf"{_QUOTED}|[^\"]+", match[1])
    items: list[str] = []
    for piece in pieces:
        if piece.startswith('"'):
            items.append(str(unquoted(piece)))
        else:
            items += [part for part in re.split(separator, piece.strip()) if part.strip(" |,")]
    return items
