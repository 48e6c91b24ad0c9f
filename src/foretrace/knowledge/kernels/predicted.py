"""foretrace's own kernel names: what a predictor writes where no table knows the library's name.

``predicted::gemm<dtype=bf16, layout=TN, tile=128x256, epilogue=bias>``: the kind, then fields as ``key=value``, lists
joined by ``+``. ``spell`` writes such names, ``match`` reads them; every field comes back as it went in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ._base import KINDS, Found

__all__ = ["is_stand_in", "match", "spell"]

_PREFIX = "predicted::"
_NAME = re.compile(r"predicted::(?P<kind>[a-z]+)(?:<(?P<fields>[^<>]*)>)?\Z")
_FIELD = re.compile(r"(?P<key>[a-z_]+)=(?P<value>[\w.+:/ -]+)\Z")
_LISTS = frozenset({"ops", "epilogue"})
_NUMBERS = frozenset({"stages", "vector_width"})
_KEYS = (
    "dtype",
    "layout",
    "tile",
    "stages",
    "splitk",
    "unit",
    "ops",
    "epilogue",
    "role",
    "vector_width",
    "direction",
)


def spell(kind: str, **fields: str | int | bool | Sequence[str] | None) -> str:
    """A predicted kernel's name; fields that are None, False or empty are left out, in a fixed order.

    Keys: ``dtype``, ``layout`` (``TN``), ``tile`` (``128x256``), ``stages``, ``splitk`` (True), ``unit``, ``ops``
    (operators, a list), ``epilogue`` (a list), ``role`` (of a helper kernel: ``split-K reduction``), ``vector_width``,
    ``direction``. Raises ``ValueError`` for another key or kind: what is written must be readable.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind} is no kernel kind")
    if unknown := fields.keys() - set(_KEYS):
        raise ValueError(f"a predicted name has no {', '.join(sorted(unknown))}")
    parts = []
    for key in _KEYS:
        value = fields.get(key)
        if value is None or value is False or value == "" or value == ():
            continue
        text = "+".join(value) if isinstance(value, (list, tuple)) else "yes" if value is True else str(value)
        if not _FIELD.match(f"{key}={text}"):
            raise ValueError(f"{key} {text!r} cannot be part of a name")
        parts.append(f"{key}={text}")
    return f"{_PREFIX}{kind}" + (f"<{', '.join(parts)}>" if parts else "")


def is_stand_in(text: str) -> bool:
    """Whether a name is foretrace's own, standing for one that no table knows."""
    return text.startswith(_PREFIX)


def match(text: str) -> Found | None:
    """Decode a predicted name, or ``None``."""
    if not text.startswith(_PREFIX):
        return None
    found = _NAME.match(text)
    if found is None or found["kind"] not in KINDS:
        return Found("other", "predicted", text, {}, [text.removeprefix(_PREFIX)[:200]], weak=True)
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    for part in (found["fields"] or "").split(","):
        part = part.strip()
        if not part:
            continue
        field = _FIELD.match(part)
        if field is None or field["key"] not in _KEYS:
            unknown.append(part)
            continue
        decoded[field["key"]] = _value(field["key"], field["value"].strip())
    kind = found["kind"]
    said = [decoded.get(key) for key in ("dtype", "layout", "tile")]
    words = [str(word) for word in said if word]
    # The operators of a fused product hold those of its epilogue.
    words += ["·".join(decoded[key]) for key in ("ops", "epilogue") if key in decoded][:1]
    words += [decoded["role"]] if "role" in decoded else []
    return Found(kind, "predicted", f"predicted {kind}" + "".join(f" {word}" for word in words), decoded, unknown)


def _value(key: str, text: str) -> Any:
    if key in _LISTS:
        return text.split("+")
    if key in _NUMBERS and text.isdecimal():
        return int(text)
    return True if text == "yes" else text
