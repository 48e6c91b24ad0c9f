"""Typed answers: what every tool returns, and how it is made fit for a language model's context.

Text from files is data: control characters are spelled out, long texts are cut with a mark that says how much is
missing, and numbers that are none become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Literal

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, ConfigDict, Field

from foretrace.integrations.mcp.paging import Piece
from foretrace.knowledge.agents import MOST_NAME, MOST_TEXT
from foretrace.model.report import Evidence, Health, Report
from foretrace.report.text import clean

__all__ = [
    "Alarm",
    "Answer",
    "EventRow",
    "Paged",
    "TimedRow",
    "alarms_of",
    "evidence_row",
    "facts_of",
    "failed",
    "finished",
    "first",
    "name_of",
    "paged",
    "said",
    "short",
    "short_names",
]


def _untitled(schema: dict[str, Any]) -> None:
    """Leave out the titles that Pydantic makes of names: they say the same again, and a client may show them all."""
    schema.pop("title", None)
    for part in schema.get("properties", {}).values():
        part.pop("title", None)


_MOST_FACTS = 16


class Answer(BaseModel):
    """Base of all answers and their parts; a field that is not declared is a mistake."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_untitled)


class Paged(Answer):
    """What an answer with rows says of them."""

    total: int = Field(description="rows in all")
    offset: int = Field(description="position of the first row of this answer")
    more: bool
    next_offset: int | None = Field(description="offset of the next piece; null at the end")


class EventRow(Answer):
    """An event in one line; the tool event says all about it."""

    event: int
    name: str
    start_us: float


class TimedRow(EventRow):
    """An event in one line, with how long it took."""

    duration_us: float


class Alarm(Answer):
    """A health check that is not ok: ``bad`` withholds what rests on it."""

    check: str
    state: Literal["suspect", "bad"]
    detail: str


def paged(piece: Piece[Any]) -> dict[str, Any]:
    """The fields of `Paged`."""
    end = piece.next_offset
    return {"total": piece.total, "offset": piece.offset, "more": end is not None, "next_offset": end}


def alarms_of(health: list[Health]) -> list[Alarm]:
    """The checks that are not ok, the bad ones first."""
    wrong = [
        Alarm(check=one.check, state=one.state, detail=short(one.detail, 400)) for one in health if one.state != "ok"
    ]
    return sorted(wrong, key=lambda alarm: alarm.state != "bad")


def evidence_row(evidence: Evidence, names: Mapping[str, str]) -> EventRow:
    """A row a statement rests on; ``names``: the short ones of kernels (`short_names`)."""
    name = names.get(evidence.name, evidence.name)
    return EventRow(event=evidence.event, name=name_of(name), start_us=evidence.start_us)


def short_names(report: Report) -> dict[str, str]:
    """The kernels' names as the tables show them, by their full names."""
    return {group.name: group.short_name for group in report.groups}


def short(text: str, most: int = MOST_TEXT) -> str:
    """The text without control characters, cut to ``most`` characters with a mark that says how many are missing."""
    text = clean(text)
    if len(text) <= most:
        return text
    mark = f"… (+{len(text) - most} characters)"
    return text[:most] + mark


def first(texts: Collection[str], most: int, length: int = MOST_NAME) -> list[str]:
    """The first ``most`` texts, each cut to ``length`` characters; where there are more, a last one says how many."""
    shown = [short(text, length) for text in islice(texts, most)]
    return [*shown, f"and {len(texts) - most} more"] if len(texts) > most else shown


def name_of(text: str) -> str:
    """A name as rows show it."""
    return short(text, MOST_NAME)


def facts_of(decoded: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a decoded kernel name; a name may list hundreds of operators."""
    return {
        name: first([str(item) for item in value], _MOST_FACTS)
        if isinstance(value, list | tuple)
        else name_of(value)
        if isinstance(value, str)
        else value
        for name, value in list(decoded.items())[: 2 * _MOST_FACTS]
    }


def said(text: str | None, most: int = MOST_NAME) -> str | None:
    """`short`, or None for what is not known."""
    return None if text is None else short(text, most)


def finished(answer: Answer) -> CallToolResult:
    """The answer as structured content, and as one line of JSON for clients that show text only."""
    content = _tidy(answer.model_dump(mode="python"))
    for name in [name for name in Paged.model_fields if name in content]:
        content[name] = content.pop(name)  # last: what it says of rows is read after them
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)


def failed(sentence: str) -> CallToolResult:
    """A tool error: one sentence that says what is wrong and what to do."""
    text = short(" ".join(sentence.split()), 1_000)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _tidy(value: Any) -> Any:
    """Plain JSON: clean text of bounded length, numbers to the nanosecond or six digits, no number that is none."""
    if isinstance(value, str):
        # A text that was cut before may be longer than the bound by its mark.
        return clean(value) if len(value) <= MOST_TEXT + 40 else short(value)
    if isinstance(value, bool) or value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, dict):
        return {short(str(key), MOST_NAME): _tidy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tidy(item) for item in value]
    return short(str(value))


def _rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    if value == 0 or abs(value) >= 1000:
        return round(value, 3)
    return float(f"{value:.6g}")
