"""How a report is to be shown: width, colour, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.report.text import PLAIN_COLUMNS

__all__ = ["SECTIONS", "View"]

# name → heading; the order in which --all shows them
SECTIONS = {
    "health": "Health: may these numbers be trusted",
    "findings": "Findings",
    "steps": "Steps",
    "phases": "Forward, backward, optimizer",
    "idle": "GPU idle time and its causes",
    "kernels": "Kernels, grouped by name",
    "gemms": "Matrix products",
    "elementwise": "Elementwise, reductions and copies on the GPU",
    "transfers": "Memory copies and sets",
    "memory": "Memory by step",
    "chain": "Dispatch chain",
    "operators": "Operators",
    "metadata-only": "Operators that launch nothing",
}

DETAIL_ROWS = 20


@dataclass(frozen=True)
class View:
    """What to show and how wide.

    Attributes:
        width: terminal cells.
        color: with escape sequences, for a terminal only.
        html: as a fragment of HTML, for a notebook; goes before ``color``.
        everything: the first screen and every section, every row, names in full.
        sections: only these sections (names of ``SECTIONS``).
        top: rows a table shows at most; ``None`` leaves it to each table.
        brief: the first screen without its footer, for showing several reports under each other.
    """

    width: int = PLAIN_COLUMNS
    color: bool = False
    html: bool = False
    everything: bool = False
    sections: tuple[str, ...] = ()
    top: int | None = None
    brief: bool = False

    def rows(self, default: int = DETAIL_ROWS) -> int | None:
        """How many rows a table shows; ``None`` is all of them."""
        if self.top is not None:
            return self.top
        return None if self.everything else default
