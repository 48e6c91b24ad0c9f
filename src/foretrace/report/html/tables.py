"""Tables of the HTML reports: columns with their units, once as plain HTML and once as data that can be sorted.

Both say every number in the same words (`foretrace.model.words`, and ``assets/words.js`` in the page).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from foretrace.model import words
from foretrace.report.text import clean

__all__ = ["PAPER_ROWS", "STATIC_ROWS", "Column", "Table", "times"]

Form = Literal[
    "text", "name", "count", "average", "number", "duration", "percent", "signed", "bytes", "flop", "mebibytes"
]

# Rows of a table that stand in the page itself, for reading without JavaScript, and how many of them are printed: what
# nobody reads on paper would bury what somebody does.
STATIC_ROWS, PAPER_ROWS = 100, 30

_WORDS: dict[Form, Callable[[Any], str]] = {
    "text": lambda value: words.UNKNOWN if value is None else str(value),
    "name": lambda value: words.UNKNOWN if value is None else str(value),
    "count": words.number,
    "average": words.whole,
    "number": words.number,
    "duration": words.duration,
    "percent": words.percent,
    "signed": lambda value: words.UNKNOWN if value is None else words.signed(value),
    "bytes": words.bytes_of,
    "flop": words.flop,
    "mebibytes": words.mebibytes,
}


@dataclass(frozen=True)
class Column:
    """One column: raw values, and how they are said.

    Attributes:
        key: distinct within its table.
        title: what the head says, without the unit.
        form: how a value is said; ``name`` is text in the typeface of code.
        values: one a row, ``None`` where unknown.
        unit: said in the head; for ``divisor`` other than 1 the unit of what is left after dividing.
        divisor: a value is divided by it before it is said.
        notes: one a row: what stands behind the value, or in its place where it is unknown.
        help: what the column means, in a sentence.
        on_paper: whether it is printed; what is too wide for a sheet, and said shorter beside, is not.
    """

    key: str
    title: str
    form: Form
    values: Sequence[Any]
    unit: str = ""
    divisor: float = 1.0
    notes: Sequence[str] | None = None
    help: str = ""
    on_paper: bool = True

    @property
    def numeric(self) -> bool:
        """Whether it is set flush right and filtered as numbers."""
        return self.form not in ("text", "name")

    @property
    def silent(self) -> bool:
        """Whether it says nothing in any row."""
        return all(value in (None, "") for value in self.values) and not any(self.notes or ())

    def said(self, row: int) -> str:
        """The value of a row in words."""
        value = self.values[row]
        note = self.notes[row] if self.notes is not None else ""
        if value is None and note:
            return note
        if value is not None and self.form in ("number", "duration"):
            value = float(value) / self.divisor
        return _WORDS[self.form](value) + note


@dataclass(frozen=True)
class Table:
    """Rows of one kind; ``picks`` names what a click on a row highlights in the timeline, see ``assets/tables.js``."""

    id: str
    title: str
    columns: Sequence[Column]
    rows: int
    picks: str = ""
    remarks: Sequence[str] = ()

    @property
    def shown(self) -> list[Column]:
        """The columns that say something in some row."""
        return [column for column in self.columns if not column.silent] or list(self.columns[:1])

    @property
    def silent(self) -> list[str]:
        """Titles of the columns that are left out, because no row has anything there."""
        return [column.title for column in self.columns if column not in self.shown]

    @property
    def printed(self) -> int:
        """Rows that stand in the page itself."""
        return min(self.rows, STATIC_ROWS)

    def data(self) -> dict[str, Any]:
        """The table as the document of a data block."""
        return {
            "id": self.id,
            "title": self.title,
            "picks": self.picks,
            "rows": self.rows,
            "columns": [
                {
                    "key": column.key,
                    "title": column.title,
                    "unit": column.unit,
                    "form": column.form,
                    "divisor": column.divisor,
                    "help": column.help,
                    "values": [clean(each) if isinstance(each, str) else each for each in column.values],
                    "notes": None if column.notes is None else list(column.notes),
                }
                for column in self.shown
            ],
        }


def times(key: str, title: str, values: Sequence[float | None], *, help: str = "") -> Column:
    """A column of times (µs) in the one unit that suits them all."""
    divisor, unit = words.scale_of_times(values)
    return Column(key, title, "duration", values, unit=unit, divisor=divisor, help=help)
