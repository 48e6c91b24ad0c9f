"""The top-level keys around the list of events of a damaged file, read as far as they go."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from foretrace.trace.fragment import mend, object_end

__all__ = ["read_metadata"]

_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_KEY = re.compile(rb'(?:\A\s*\{|,|\n)\s*"([^"\\]{1,64})"\s*:\s*')
_PLAIN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+-]*|true|false|null')
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_metadata(head: bytes, mended: Counter[str], notes: list[str]) -> dict[str, Any] | None:
    """The keys of ``{"key": value, …`` (without its closing brace), one by one where it is damaged.

    None where nothing can be read. ``mended`` and ``notes`` take up what had to be done.
    """
    body = head.rstrip(b" \t\r\n\0,") + b"}"
    try:
        raw: dict[str, msgspec.Raw] | None = _decode(body)
    except _ERRORS:
        raw = mend(body, mended, _decode)
    if raw is None:
        raw = _by_key(head)
        if not raw:
            return None
        notes.append("part of the metadata could not be read")
    raw.pop("traceEvents", None)
    found: dict[str, Any] = {}
    for key, value in raw.items():
        try:
            found[key] = msgspec.json.decode(value)
        except _ERRORS:
            found[key] = None
    return found


def _by_key(head: bytes) -> dict[str, msgspec.Raw]:
    found: dict[str, msgspec.Raw] = {}
    for key in _KEY.finditer(head):
        value = head[key.end() :]
        end = object_end(value) if value[:1] in (b"{", b"[") else -1
        plain = _PLAIN.match(value)
        text = value[:end] if end > 0 else plain.group() if plain else b""
        try:
            msgspec.json.decode(text)
        except _ERRORS:
            continue
        found.setdefault(key.group(1).decode(), msgspec.Raw(text))
    return found
