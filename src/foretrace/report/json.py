"""A report as JSON: the schema ``foretrace.report/1``, what is unknown as ``null``."""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["to_json"]

# DEL and the C1 controls (U+0080 to U+009F in UTF-8): JSON allows them bare, some terminals obey them.
_CONTROLS = re.compile(rb"\x7f|\xc2[\x80-\x9f]")


def to_json(report: msgspec.Struct, *, indent: int = 0) -> bytes:
    """A report, or another of the model's documents, as one JSON document in UTF-8, ending in a newline.

    Without ``indent`` it is one line, so that several reports after each other are JSON lines. Numbers that
    are not finite cannot be written in JSON and become ``null``; control characters are escaped; what is no
    character in UTF-8 (half of a surrogate pair, from a file name or a damaged trace) becomes U+FFFD.
    """
    try:
        text = msgspec.json.encode(report)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_encodable(msgspec.to_builtins(report)))
    text = _CONTROLS.sub(lambda match: b"\\u%04x" % ord(match.group().decode()), text)
    if indent:
        text = msgspec.json.format(text, indent=indent)
    return text + b"\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value
