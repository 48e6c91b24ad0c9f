"""The ids inside ``args`` that become columns: correlation, external id, stream, device, sequence number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np

from foretrace.knowledge.kineto import RowKind
from foretrace.trace.fragment import mend

__all__ = ["link_ids", "operator_ids", "read_args"]

_BATCH = 4096  # args decoded by one call
_NOTHING = b"{}"


class _LinkIds(msgspec.Struct, gc=False):
    correlation: int = 0
    stream: int = -1
    device: int = -1


class _OperatorIds(msgspec.Struct, gc=False):
    """2021 traces spell the external id in lower case."""

    external: int = msgspec.field(name="External id", default=0)
    external_lower: int = msgspec.field(name="external id", default=0)
    sequence: int = msgspec.field(name="Sequence number", default=-1)


_decode_any = msgspec.json.Decoder().decode

# API calls and what runs on streams: their args are short and their ids are always needed.
_LINKED = (
    RowKind.KERNEL,
    RowKind.MEMCPY,
    RowKind.MEMSET,
    RowKind.CALL,
    RowKind.SYNC,
    RowKind.GPU_ANNOTATION,
)
# Python frames and allocator instants have none of these ids and are many.
_OPERATORS = (*_LINKED, RowKind.OPERATOR, RowKind.ANNOTATION)

_Struct = TypeVar("_Struct", _LinkIds, _OperatorIds)


def read_args(raw: Any) -> dict[str, Any] | None:
    """Decode the raw ``args`` of one row, mended if need be; None where they cannot be read."""
    try:
        decoded = _decode_any(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        decoded = mend(bytes(raw), Counter(), _decode_any, close=False)
    return decoded if isinstance(decoded, dict) else None


def link_ids(arguments: list[Any], kind: Any, odd: dict[str, int]) -> tuple[Any, Any, Any]:
    """Columns ``correlation``, ``stream`` and ``device``; ``odd`` counts rows whose args cannot be read."""
    n = len(arguments)
    correlation = np.zeros(n, dtype=np.int64)
    stream = np.full(n, -1, dtype=np.int32)
    device = np.full(n, -1, dtype=np.int32)
    for some, found in _batches(arguments, kind, _LINKED, _LinkIds, odd):
        correlation[some] = _int64(found, "correlation")
        stream[some] = _int32(found, "stream")
        device[some] = _int32(found, "device")
    return correlation, stream, device


def operator_ids(arguments: list[Any], kind: Any) -> tuple[Any, Any]:
    """Columns of the external id (0: none) and of the sequence number (-1: none), int64.

    Most of a file's ``args`` are the shapes of operators, so this costs as much as all other ids together.
    """
    external = np.zeros(len(arguments), dtype=np.int64)
    sequence = np.full(len(arguments), -1, dtype=np.int64)
    for some, found in _batches(arguments, kind, _OPERATORS, _OperatorIds, {}):
        now = _int64(found, "external")
        external[some] = np.where(now == 0, _int64(found, "external_lower"), now)
        sequence[some] = _int64(found, "sequence")
    return external, sequence


def _batches(
    arguments: list[Any], kind: Any, kinds: tuple[RowKind, ...], ids: type[_Struct], odd: dict[str, int]
) -> Iterator[tuple[Any, list[_Struct]]]:
    """Rows of the given kinds in batches, with their decoded ids."""
    decode = msgspec.json.Decoder(list[ids]).decode  # type: ignore[valid-type]
    rows = np.flatnonzero(np.isin(kind, kinds))
    for at in range(0, len(rows), _BATCH):
        some = rows[at : at + _BATCH]
        batch = [arguments[row] or _NOTHING for row in some.tolist()]
        try:
            yield some, decode(b"[%b]" % b",".join(batch))
        except (msgspec.DecodeError, RecursionError):
            yield some, [_lenient(raw, ids, odd) for raw in batch]


def _int64(found: list[Any], name: str) -> Any:
    """One id of each row as int64; ids beyond 64 bits (unsigned hashes) keep their low 63 bits."""
    values = map(attrgetter(name), found)
    try:
        return np.fromiter(values, dtype=np.int64, count=len(found))
    except OverflowError:
        return np.array([getattr(f, name) & 0x7FFF_FFFF_FFFF_FFFF for f in found], dtype=np.int64)


def _int32(found: list[Any], name: str) -> Any:
    """One id of each row as int32; what does not fit (an invalid device of 2**32 - 1) is none."""
    values = _int64(found, name)
    return np.where((values >= -1) & (values < 2**31), values, -1).astype(np.int32)


def _lenient(raw: Any, ids: type[_Struct], odd: dict[str, int]) -> _Struct:
    """Ids from ``args`` that are oddly typed (numbers in strings, null) or broken."""
    args = read_args(raw)
    if args is None:
        odd["args unreadable"] = odd.get("args unreadable", 0) + 1
        return ids()
    found: dict[str, int] = {}
    for field in msgspec.structs.fields(ids):
        value = args.get(field.encode_name)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            try:
                found[field.name] = value if isinstance(value, int) else int(float(value))
            except (ValueError, OverflowError):
                continue
    return ids(**found)
