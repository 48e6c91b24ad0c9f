r"""JSON rewritten string by string, as it streams by: everything that is no string stays as it was written.

Numbers keep their digits, rows their order. A string is looked at as what it says, not as how it is spelled, so
``\u0061`` is an ``a``. Text that is not JSON is refused rather than passed on, since a secret could hide in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

from foretrace.knowledge.kineto import GPU_WORK, RowKind, module_name, row_kind
from foretrace.knowledge.sharing import KEPT_VALUES, OPERATOR_NAME, PLACEHOLDERS, Category
from foretrace.trace.stream import LARGEST_EVENT, PIECE
from foretrace.view.sharing.reading import UnreadableError
from foretrace.view.sharing.redaction import TELLING_KEYS, Redactor
from foretrace.view.sharing.trade import known_keys

__all__ = ["learn_json", "rewrite_json", "rewrite_lines"]

_BETWEEN = re.compile(r"[\s,]*")
_STRING = r'"(?:[^"\\]|\\.)*+"'
_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|(?P<mark>[{{}}\[\]:,])|(?P<word>[-+\w.]+)|(?P<space>\s+)|(?P<other>.)", re.S
)
_STRUCTURE = re.compile(rf"(?P<string>{_STRING})(?P<colon>\s*:)?|(?P<mark>[{{}}\[\]])", re.S)
_LITERAL = re.compile(r"[-+]?(?:\d[\d.eE+-]*|true|false|null|nan|-?nan|inf|infinity)", re.I)
# An event as Kineto writes it, at once: three levels of objects at most, of which nothing needs a closer look.
_GAP = r"(?:[\s\d+\-.:,\[\]eE]|true|false|null|NaN|nan|Infinity|inf)"
_INNERMOST = rf"\{{(?:{_GAP}|{_STRING})*+\}}"
_INNER = rf"\{{(?:{_GAP}|{_STRING}|{_INNERMOST})*+\}}"
_EVENT = re.compile(rf"\{{(?:{_GAP}|{_STRING}|{_INNER})*+\}}", re.S)

# The containers that a tail begins in: the list of events, and what holds it.
_WITHIN_LIST = ["{", "["]

# What a row must keep to be that row: its phase and its category.
_ROW_KEYS = frozenset({"ph", "cat"})

# Where the name of a row stands in its event.
_ROW_NAME = ("", "name")
# Rows that torch and the driver name, as far as their names are those of functions.
_NAMED_BY_TORCH = (RowKind.OPERATOR, RowKind.CALL, RowKind.OVERHEAD, RowKind.SYNC, RowKind.MEMORY)

Transform = Callable[[str, tuple[str, ...]], str]


def rewrite_json(source: TextIO, target: TextIO, redactor: Redactor) -> None:
    """Write the JSON text of ``source`` to ``target`` with every string redacted.

    Rows of Python stacks keep their times and say nothing else: that they were recorded slows a program down, which
    must still be known to whoever explains the trace.
    Raises `UnreadableError` for what is not JSON from beginning to end.
    """
    stacks = Category.STACKS in redactor.categories
    first = True
    for kind, text in _parts(source):
        if kind == "event":
            if redactor.is_suspect(text):
                kinds = _row_kinds(text)
                if stacks and RowKind.PYTHON in kinds:
                    redactor.counts[Category.STACKS] += 1
                    text = _blanked(text)
                text = _rewritten(text, redactor, _keeping_work(redactor, kinds), [])
            target.write(text if first else f",\n  {text}")
            first = False
            continue
        if kind == "tail" and stacks and _holds_python_rows(text):
            raise UnreadableError("it holds rows of Python outside its list of events")
        _refuse_other_text(text)
        # The head leaves the list open, the tail closes it.
        target.write(_rewritten(text, redactor, _keeping_work(redactor, []), _WITHIN_LIST if kind == "tail" else []))


def _keeping_work(redactor: Redactor, kinds: Sequence[RowKind]) -> Transform:
    """What redacts the strings of an event whose categories are of these kinds, but not the names of its work."""
    gpu = bool(kinds) and all(kind in GPU_WORK for kind in kinds)
    torch = bool(kinds) and all(kind in _NAMED_BY_TORCH for kind in kinds)

    def kept(text: str, keys: tuple[str, ...]) -> str:
        work = keys == _ROW_NAME and (gpu or (torch and OPERATOR_NAME.fullmatch(text) is not None))
        nearest = next(filter(None, reversed(keys)), "")  # lists have no keys of their own
        return redactor.redact(text, keys, paths_only=work or nearest in KEPT_VALUES)

    return kept


def learn_json(source: TextIO, redactor: Redactor) -> None:
    """Let the redactor see every string of the JSON text that could give a name away. Raises as `rewrite_json`."""

    def seen(text: str, keys: tuple[str, ...]) -> str:
        redactor.learn_value(keys[-1] if keys else "", text)
        return text

    for kind, text in _parts(source):
        if kind != "event" or redactor.is_suspect(text):
            _rewritten(text, redactor, seen, _WITHIN_LIST if kind == "tail" else [])


def rewrite_lines(source: TextIO, target: TextIO | None, redactor: Redactor) -> None:
    """The same for a text that is no JSON, line by line; without ``target`` the redactor only learns."""
    for line in source:
        if target is None:
            redactor.learn(line)
            continue
        body = line.rstrip("\r\n")
        target.write(redactor.redact(body) + line[len(body) :])


def _parts(source: TextIO) -> Iterator[tuple[str, str]]:
    """The text in pieces: ("head", …), then ("event", …) each, then ("tail", …), which may be empty."""
    text = source.read(PIECE).lstrip("\ufeff")
    at = None
    while True:
        # Without the key there is no list, and looking again at each piece would take ever longer.
        at = _list_begin(text) if "traceEvents" in text or text.lstrip()[:1] == "[" else None
        if at is not None:
            break
        more = source.read(PIECE)
        if not more:
            yield "head", text
            return
        text += more
    yield "head", text[:at]
    text = text[at:]
    at = 0
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        end = _element_end(text, at)
        if end is None:
            more = source.read(PIECE)
            if not more or len(text) - at > LARGEST_EVENT:
                raise UnreadableError("its list of events is cut off" if not more else "one of its events has no end")
            text, at = text[at:] + more, 0
            continue
        if end == at:
            break
        yield "event", text[at:end]
        at = end
    rest = [text[at:]]
    while more := source.read(PIECE):
        rest.append(more)
    yield "tail", "".join(rest)


def _list_begin(text: str) -> int | None:
    """Where the first event would stand; None where no list of events begins in this text."""
    depth, key, colon = 0, "", False
    for token in _TOKEN.finditer(text):
        if token["space"]:
            continue
        if token["other"] is not None:  # a string that ends behind this text, or no JSON: whoever reads on finds out
            return None
        mark = token["mark"]
        if mark == "[" and (depth == 0 or (depth == 1 and colon and key == "traceEvents")):
            return token.end()
        if mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
        if token["string"] and depth == 1:
            key = _decoded(token["string"])
        colon = mark == ":"
    return None


def _element_end(text: str, at: int) -> int | None:
    """Where the element that begins here ends: ``at`` itself at the end of the list, None where it is cut off."""
    if at >= len(text):
        return None
    if text[at] == "]":
        return at
    whole = _EVENT.match(text, at)
    if whole:
        return whole.end()
    depth = 0
    for token in _TOKEN.finditer(text, at):
        mark = token["mark"]
        if token.end() == len(text) and not mark:
            return None  # it may go on
        if token["other"] == '"':
            return None
        if token["other"] or (token["word"] and not _LITERAL.fullmatch(token["word"])):
            raise UnreadableError("it is not valid JSON")
        if mark in ("{", "["):
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
            if depth < 0:  # the list ends behind a bare value
                return token.start()
        elif mark == "," and depth == 0:
            return token.start()
        if mark in ("}", "]") and depth == 0:
            return token.end()
    return None


def _rewritten(text: str, redactor: Redactor, transform: Transform, stack: list[str]) -> str:
    """The text with every string transformed, keys as well that no reader knows. ``stack``: where it begins in."""
    out: list[str] = []
    keys: list[str] = [""] * (len(stack) + 1)
    last, known = 0, known_keys()
    for token in _STRUCTURE.finditer(text):
        string, colon, mark = token.group("string", "colon", "mark")
        if mark in ("{", "["):
            keys.append("")
        elif mark:
            if len(keys) > 1:  # a tail closes what the head opened
                keys.pop()
        else:
            if colon:
                keys[-1] = ""  # a key stands under those around it, not under the one before
            if not (redactor.is_clean(string) and TELLING_KEYS.isdisjoint(keys)):
                said = _decoded(string)
                new = said if colon and said in known else transform(said, tuple(keys))
                if new != said:
                    out.append(text[last : token.start()])
                    out.append(json.dumps(new))
                    last = token.end("string")
            if colon:
                keys[-1] = _decoded(string).lower()
    out.append(text[last:])
    return "".join(out)


def _refuse_other_text(text: str) -> None:
    """Raise where something stands outside strings that JSON does not have there."""
    for token in _TOKEN.finditer(text):
        word = token["word"]
        if token["other"] is not None or (word is not None and not _LITERAL.fullmatch(word)):
            raise UnreadableError("it is not valid JSON")


def _decoded(string: str) -> str:
    """What a JSON string says; one with an escape that JSON does not have keeps it as it is."""
    if "\\" not in string:
        return string[1:-1]
    try:
        return str(json.loads(string, strict=False))
    except ValueError:
        return string[1:-1]


def _row_kinds(event: str) -> list[RowKind]:
    """What kind of row an event is: one kind for each category it names, and no more than one where it is sound."""
    depth, key = 0, ""
    kinds = []
    for token in _STRUCTURE.finditer(event):
        string, colon, mark = token.group("string", "colon", "mark")
        if mark:
            depth += 1 if mark in "{[" else -1
        elif depth == 1:
            if colon:
                key = _decoded(string)
            elif key == "cat":
                kinds.append(row_kind(_decoded(string)))
    return kinds


def _blanked(event: str) -> str:
    """A row of Python with no string left in it but those that say what kind of row it is."""
    blank = json.dumps(PLACEHOLDERS["frame"])
    out: list[str] = []
    last, depth, key = 0, 0, ""
    for token in _STRUCTURE.finditer(event):
        string, colon, mark = token.group("string", "colon", "mark")
        if mark:
            depth += 1 if mark in "{[" else -1
        elif colon:
            key = _decoded(string) if depth == 1 else ""
        elif key not in _ROW_KEYS:
            # A row of a module stays one: readers tell by that whether whole stacks were recorded.
            module = key == "name" and depth == 1 and module_name(_decoded(string))
            out += [event[last : token.start()], json.dumps(f"nn.Module: {PLACEHOLDERS['frame']}") if module else blank]
            last = token.end()
    return "".join([*out, event[last:]])


def _holds_python_rows(text: str) -> bool:
    found = re.finditer(rf'"cat"\s*:\s*({_STRING})', text, re.S)
    return any(row_kind(_decoded(match[1])) is RowKind.PYTHON for match in found)
