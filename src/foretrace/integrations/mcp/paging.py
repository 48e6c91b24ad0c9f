"""Long lists in pieces: as many rows as fit, and where the next piece begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from foretrace.knowledge.agents import ANSWER_BYTES, LARGEST_ANSWER_BYTES, MOST_PAGE

__all__ = ["Limit", "Offset", "Piece", "piece"]

Item = TypeVar("Item")
Row = TypeVar("Row", bound=BaseModel)

Limit = Annotated[
    int | None, Field(description="Rows at most. Without it, as many as fit into a small answer.", ge=1, le=MOST_PAGE)
]
Offset = Annotated[int, Field(description="Rows to skip: next_offset of the answer before.", ge=0, le=10**9)]


@dataclass(frozen=True)
class Piece(Generic[Row]):
    """Rows from ``offset`` on, of ``total`` in all."""

    rows: list[Row]
    total: int
    offset: int

    @property
    def next_offset(self) -> int | None:
        """Where the next piece begins; None where this is the last one."""
        end = self.offset + len(self.rows)
        return end if end < self.total else None


def piece(
    items: Sequence[Item], make: Callable[[int, Item], Row], *, limit: int | None, offset: int, room: int | None = None
) -> Piece[Row]:
    """The rows of ``items`` from ``offset`` on, each made by ``make(position, item)``.

    At least one row, then as many as fit into the answer's bytes (``room``, or what suits a call with or without
    ``limit``). An offset beyond the end gives no rows.
    """
    most = MOST_PAGE if limit is None else limit
    budget = room or (ANSWER_BYTES if limit is None else LARGEST_ANSWER_BYTES)
    rows: list[Row] = []
    used = 0
    for position, item in islice(_numbered(items, offset), most):
        row = make(position, item)
        used += len(row.model_dump_json().encode("utf-8", "replace")) + 1
        if rows and used > budget:
            break
        rows.append(row)
    return Piece(rows, len(items), offset)


def _numbered(items: Sequence[Item], offset: int) -> Iterable[tuple[int, Item]]:
    return ((position, items[position]) for position in range(offset, len(items)))
