"""Mending the text of one event.

Everything here works on a few hundred bytes that are known to be broken, so that care may cost what it likes: a
healthy event never gets here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from foretrace.trace.event import RawEvent

__all__ = [
    "EVENT_START",
    "TYPES",
    "LooseEvent",
    "decode_lenient",
    "exact",
    "first_event",
    "loosened",
    "mend",
    "object_end",
    "typed",
    "typed_or_deep",
]

# Keys an entry of traceEvents begins with; Kineto writes "ph" or "name" first, other writers sort them.
_KEYS = (b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"id", b"args", b"s", b"bp")
# Where an event may begin: a brace with a key of an event behind it. What stands before decides.
EVENT_START = re.compile(rb"\{\s*\"(?:" + b"|".join(_KEYS) + rb")\"\s*:")

# An event is a few hundred bytes, with deep stacks some ten thousand; what is larger is no single event.
_LARGEST = 1 << 18
_CLOSINGS = (b"}", b"}}", b"]}}")

# A float64 of µs holds the nanosecond up to here.
_EXACT_US = 2**43

_decode_event = msgspec.json.Decoder(RawEvent).decode

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
# A backslash with what it escapes; the second group is a valid escape.
_ESCAPE = re.compile(rb'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_NOT_A_NUMBER = re.compile(rb"(?<![\w\"])[-+]?(?:NaN|nan|NAN|Infinity|infinity|Inf|inf|INF|1\.#\w+)(?![\w\"])")
_PYTHON_LITERAL = re.compile(rb"(?<![\w\"])(None|True|False)(?![\w\"])")
_BAD_NUMBER = re.compile(rb"(?<=[:\[,\s])[-+]?(?:0+(?=[1-9])\d*(?:\.\d*)?|\.\d+|\d+\.(?!\d)|\+\d[\d.]*)(?=[\s,\]}])")
_SURPLUS_COMMA = re.compile(rb",(?=\s*[,}\]])|(?<=[{\[])\s*,")
_MISSING_COMMA = re.compile(rb'(?<=[\d"}\]el])(?=\s*\n?\s*"[A-Za-z ]+"\s*:)')

NOT_NUMBERS = "NaN or Infinity where JSON wants a number, read as missing"
CONTROLS = "control characters inside strings, escaped"
ESCAPES = "backslashes that escape nothing, kept as written"
SURROGATES = "half a surrogate pair inside strings, replaced"
COMMAS = "missing or surplus commas inside events, mended"
NUMBERS = "numbers in a notation JSON does not know, rewritten"
QUOTES = "events with unescaped quotes inside a name, mended"
BRACES = "events with a missing closing brace, closed"
TYPES = "events with a field of an unexpected type (a number as text, a null name), converted"


def mend(text: bytes, done: Counter[str], decode: Callable[[bytes], Any], *, close: bool = True) -> Any:
    """Mend the text step by step until ``decode`` takes it; returns its result or None.

    ``done`` counts what was mended, by the words for it; it stays as it was when nothing helps. With ``close`` a
    missing closing brace is added where everything else of an event is there. Text that nests too deeply is given up.
    """
    if len(text) > _LARGEST:
        return None
    for closings in ((b"",), _CLOSINGS) if close else ((b"",),):
        for steps in _PLANS:
            made: Counter[str] = Counter()
            mended = text
            for step in steps:
                mended = step(mended, made)
                try:
                    result = _closed(mended, closings, decode)
                except RecursionError:  # no mending makes it flatter
                    return None
                if result is not None:
                    if closings is _CLOSINGS:
                        made[BRACES] += 1
                    done.update(made)
                    return result
    return None


def _closed(text: bytes, closings: tuple[bytes, ...], decode: Callable[[bytes], Any]) -> Any:
    if closings is _CLOSINGS:
        text = text.rstrip(b", \t\r\n")
        # Without its name and time it is no event but the place where the text was cut.
        if b'"ph"' not in text or not (b'"ts"' in text or b'"M"' in text):
            return None
    for closing in closings:
        try:
            return decode(text + closing)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return None


def object_end(text: bytes) -> int:
    """Position after the first JSON object or array in ``text``, -1 where it does not close."""
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token.group()[:1]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth <= 0:
                return token.end()
    return -1


def typed(piece: bytes) -> RawEvent | None:
    """One sound event; None where it is none."""
    return typed_or_deep(piece)[0]


def typed_or_deep(piece: bytes) -> tuple[RawEvent | None, bool]:
    """One sound event or None, and whether it nests too deeply for the decoder."""
    try:
        return _decode_event(piece), False
    except RecursionError:
        return None, True
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None, False


def first_event(text: bytes) -> RawEvent:
    """Decode an event whatever its types; raises ``msgspec.DecodeError`` so that mending goes on.

    A time that a float64 would round is the ``Decimal`` that is written.
    """
    event = exact(typed(text), text) or decode_lenient(text)
    if event is None:
        end = object_end(text)
        event = decode_lenient(text[:end]) if end > 0 else None
    if event is None:
        raise msgspec.DecodeError("no event")
    return event


def exact(event: RawEvent | None, text: bytes) -> RawEvent | None:
    """The event of a sound text, with those of its times as ``Decimal`` that a float64 would round."""
    if event is not None and any(isinstance(time, float) and abs(time) > _EXACT_US for time in (event.ts, event.dur)):
        lenient = decode_lenient(text)
        if lenient is not None:
            event.ts, event.dur = lenient.ts, lenient.dur
    return event


class LooseEvent(msgspec.Struct, gc=False):
    """An event whose fields may have any type; ``loosened`` turns it into what the columns expect."""

    ph: Any = ""
    cat: Any = None
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: msgspec.Raw = msgspec.Raw(b"")


def loosened(loose: LooseEvent) -> tuple[RawEvent, bool]:
    """The event with its fields converted, and whether anything had to be converted."""
    event = RawEvent(
        ph=_label("ph", loose.ph),
        cat=_label("cat", loose.cat),
        name=_label("name", loose.name),
        pid=_label("pid", loose.pid),
        tid=_label("tid", loose.tid),
        ts=loose.ts if isinstance(loose.ts, float) else _number(loose.ts),
        dur=loose.dur if isinstance(loose.dur, float) else _number(loose.dur),
        id=_label("id", loose.id),
        args=loose.args if bytes(loose.args)[:1] == b"{" else msgspec.Raw(b""),
    )
    odd = isinstance(loose.ts, str) or isinstance(loose.dur, str)
    odd |= any(getattr(event, key) != getattr(loose, key) for key in ("ph", "cat", "name", "pid", "tid", "id"))
    return event, odd


def decode_lenient(text: bytes) -> RawEvent | None:
    """Decode one event whatever types its fields have; None where it is no JSON object.

    Raises nothing: numbers that cannot be read are missing.
    """
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    fields: dict[str, Any] = {}
    for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id"):
        if key in raw:
            value = _value(raw[key])
            fields[key] = _number(value) if key in ("ts", "dur") else _label(key, value)
    event = RawEvent(**fields)
    args = raw.get("args")
    if args is not None and bytes(args)[:1] == b"{":
        event.args = args
    return event


def _value(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    try:
        if text[:1] in b"-0123456789":
            return Decimal(text.decode())
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidOperation):
        return None


def _number(value: Any) -> Any:
    """A time as float, or as Decimal where a float64 would lose the nanoseconds."""
    if isinstance(value, bool):  # Decimal would read it as 0 or 1
        return None
    try:
        number = value if isinstance(value, Decimal) else Decimal(value)
    except (InvalidOperation, TypeError, ValueError):
        return None
    if not number.is_finite() or abs(number) > Decimal(10) ** 30:
        return None
    return number if abs(number) > _EXACT_US else float(number)


def _label(key: str, value: Any) -> Any:
    if isinstance(value, float):
        value = Decimal(value)
    if isinstance(value, Decimal):
        whole = int(value) if value.is_finite() and abs(value) < Decimal(10) ** 30 else None
        value = whole if whole is not None and whole == value else str(value)
    if isinstance(value, list):
        value = ",".join(str(part) for part in value)
    if key in ("ph", "name"):
        return "" if value is None else str(value)
    if key == "cat":
        return None if value is None else str(value)
    if value is None or (isinstance(value, (int, str)) and not isinstance(value, bool)):
        return value
    return str(value)


def _inside_strings(text: bytes, made: Counter[str]) -> bytes:
    def fix(found: re.Match[bytes]) -> bytes:
        string = found.group()
        if b"\\" in string:
            string = _escapes(string, made)
        if _CONTROL.search(string):
            string, count = _CONTROL.subn(lambda c: b"\\u%04x" % c.group()[0], string)
            made[CONTROLS] += count
        return string

    return _STRING.sub(fix, text)


def _escapes(string: bytes, made: Counter[str]) -> bytes:
    def escape(found: re.Match[bytes]) -> bytes:
        if found.group(1) is not None:
            return found.group()
        made[ESCAPES] += 1
        return b"\\\\"

    def surrogate(found: re.Match[bytes]) -> bytes:
        if found.group(1) is None:
            return found.group()
        made[SURROGATES] += 1
        return b"\\ufffd"

    body = _ESCAPE.sub(escape, string[:-1])
    return _SURROGATE.sub(surrogate, body) + b'"'


def _outside_strings(text: bytes, made: Counter[str]) -> bytes:
    """Rewrite literals JSON does not know, in the stretches between strings."""
    parts: list[bytes] = []
    at = 0
    for string in _STRING.finditer(text):
        parts.append(_literals(text[at : string.start()], made))
        parts.append(string.group())
        at = string.end()
    parts.append(_literals(text[at:], made))
    return b"".join(parts)


def _literals(text: bytes, made: Counter[str]) -> bytes:
    if len(text) < 3:
        return text
    text, count = _NOT_A_NUMBER.subn(b"null", text)
    if count:
        made[NOT_NUMBERS] += count
    words = {b"None": b"null", b"True": b"true", b"False": b"false"}
    text, count = _PYTHON_LITERAL.subn(lambda w: words[w.group(1)], text)
    more = 0
    if _BAD_NUMBER.search(text):
        text, more = _BAD_NUMBER.subn(_rewrite_number, text)
    if count + more:
        made[NUMBERS] += count + more
    return text


def _rewrite_number(found: re.Match[bytes]) -> bytes:
    try:
        return format(Decimal(found.group().decode()), "f").encode()
    except InvalidOperation:
        return b"null"


def _commas(text: bytes, made: Counter[str]) -> bytes:
    parts: list[bytes] = []
    count = 0
    at = 0
    for string in _STRING.finditer(text):
        between, n = _SURPLUS_COMMA.subn(b"", text[at : string.start()])
        parts.append(between)
        parts.append(string.group())
        count += n
        at = string.end()
    tail, n = _SURPLUS_COMMA.subn(b"", text[at:])
    joined = b"".join([*parts, tail])
    joined, missing = _MISSING_COMMA.subn(b",", joined) if _lacks_comma(joined) else (joined, 0)
    if count + n + missing:
        made[COMMAS] += count + n + missing
    return joined


def _lacks_comma(text: bytes) -> bool:
    """Whether a value is directly followed by the next key, strings counted as units."""
    previous_end = -1
    for string in _STRING.finditer(text):
        if previous_end >= 0:
            between = text[previous_end : string.start()].strip()
            if between == b"" or (between[:1] == b":" and between[-1:] not in b",[{:"):
                return True
            if between[:1] in (b"}", b"]") and between[-1:] in (b"}", b"]"):
                return True
        previous_end = string.end()
    return False


_BARE_QUOTE = re.compile(rb'(?<!\\)((?:\\\\)*)"')
_AFTER_KEY = re.compile(rb"\s*:")
_AFTER_VALUE = re.compile(rb"\s*(?:,\s*\"[^\"\\\n]{1,64}\"\s*:|,?\s*[}\]])")
_AFTER_ELEMENT = re.compile(rb"\s*(?:,\s*[\"\[{\d\-ntf]|\])")


def _requote(text: bytes, made: Counter[str]) -> bytes:
    """Escape quotes that stand inside a string: one closes it only if what follows fits JSON's grammar."""
    out: list[bytes] = []
    brackets: list[int] = []
    at, changed = 0, False
    previous = 0  # the last significant byte outside strings
    while at < len(text):
        byte = text[at]
        if byte != 0x22:
            if byte in b"{[":
                brackets.append(byte)
            elif byte in b"}]" and brackets:
                brackets.pop()
            if byte not in b" \t\r\n":
                previous = byte
            out.append(text[at : at + 1])
            at += 1
            continue
        is_key = bool(brackets) and brackets[-1] == 0x7B and previous in (0x7B, 0x2C, 0)
        end = _closing_quote(text, at + 1, is_key, bool(brackets) and brackets[-1] == 0x5B)
        if end < 0:
            return text
        inner = text[at + 1 : end]
        escaped = _BARE_QUOTE.sub(rb'\1\\"', inner)
        changed |= escaped != inner
        if _odd_backslashes(inner, len(inner)):
            escaped += b"\\"
            made[ESCAPES] += 1
        out.append(b'"' + escaped + b'"')
        previous = 0x22
        at = end + 1
    if changed:
        made[QUOTES] += 1
    return b"".join(out)


def _odd_backslashes(text: bytes, end: int) -> bool:
    """Whether an odd number of backslashes stands right before ``end``."""
    at = end
    while at and text[at - 1] == 0x5C:
        at -= 1
    return (end - at) % 2 == 1


def _closing_quote(text: bytes, at: int, is_key: bool, in_list: bool) -> int:
    while True:
        at = text.find(b'"', at)
        if at < 0:
            return -1
        fits = _AFTER_KEY if is_key else _AFTER_ELEMENT if in_list else _AFTER_VALUE
        # A backslash before the quote of a last Windows path part escapes nothing if the next key follows.
        if fits.match(text, at + 1) and (fits is _AFTER_VALUE or not _odd_backslashes(text, at)):
            return at
        at += 1


_PLAIN = (_inside_strings, _outside_strings, _commas)
# Quotes out of balance mislead everything that looks at strings, so they come first in the second plan.
_PLANS = (_PLAIN, (_requote, *_PLAIN))
