"""The one way a health check is written down."""

from __future__ import annotations

from typing import cast

from foretrace.model.report import CheckState, Health

__all__ = ["ORDER", "judged"]

# States by what is to be read first.
ORDER: dict[CheckState, int] = {"bad": 0, "suspect": 1, "ok": 2}


def judged(check: str, state: str, detail: str, count: int | None) -> Health:
    """A check with its verdict; ``count`` is how many rows show it."""
    return Health(check=check, state=cast(CheckState, state), detail=detail, count=count)
