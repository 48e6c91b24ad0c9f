"""Data inside a page: a document and columns, packed so that no text of a trace is ever HTML."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["data_block"]

# The typed arrays that JavaScript has and pages use; int64 has none that arithmetic with numbers takes.
_TYPES = ("uint8", "uint16", "uint32", "int8", "int16", "int32", "float32", "float64")
_EXACT = 2**53
# Every array begins at a multiple of the largest item, so that the page can look at the bytes without copying them.
_ALIGNMENT = 8


def data_block(id: str, document: object, columns: Mapping[str, NDArray[Any]] | None = None) -> Markup:
    """A ``<script>`` that holds ``document`` and ``columns``; ``foretrace.unpack(id)`` in the page reads it.

    Args:
        id: of the element.
        document: anything that msgspec writes as JSON.
        columns: one-dimensional arrays by name. int64 and uint64 become float64, which holds whole numbers up to 2⁵³.

    Raises:
        ValueError: a column of another type or shape, or a whole number that float64 does not hold.
    """
    from markupsafe import Markup, escape

    layout: dict[str, tuple[str, int]] = {}
    parts: list[bytes] = []
    for name, column in (columns or {}).items():
        ready = _column(name, column)
        layout[name] = ready.dtype.name, len(ready)
        raw = ready.astype(ready.dtype.newbyteorder("<"), copy=False).tobytes()
        parts += [raw, bytes(-len(raw) % _ALIGNMENT)]
    parts.append(_json(document))
    packed = base64.b64encode(gzip.compress(b"".join(parts), compresslevel=6, mtime=0)).decode()
    described = escape(msgspec.json.encode(layout).decode())
    return Markup(
        f'<script type="application/octet-stream" id="{escape(id)}" data-columns="{described}">{packed}</script>'
    )


def _json(document: object) -> bytes:
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        # A name with half a surrogate pair cannot be UTF-8; it is shown with a replacement character.
        return msgspec.json.encode(_replaced(msgspec.to_builtins(document)))


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replaced(key): _replaced(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(one) for one in value]
    return value


def _column(name: str, column: NDArray[Any]) -> NDArray[Any]:
    if column.ndim != 1:
        raise ValueError(f"column {name} has {column.ndim} dimensions, not one")
    if column.dtype == np.bool_:
        return column.astype(np.uint8)
    if column.dtype in (np.int64, np.uint64):
        if len(column) and (int(column.max()) > _EXACT or int(column.min()) < -_EXACT):
            raise ValueError(f"column {name} holds a whole number beyond 2**53, which a page cannot hold exactly")
        return column.astype(np.float64)
    if column.dtype.name not in _TYPES:
        raise ValueError(f"column {name} is of type {column.dtype}; a page takes {', '.join(_TYPES)}")
    return column
