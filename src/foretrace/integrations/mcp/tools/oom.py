"""``oom``: out-of-memory messages explained."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, Paged, first, paged, short
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, piece
from foretrace.model.oom import Explanation, Remedy, Size

__all__ = ["OomAnswer", "oom"]

_MOST_TEXT = 200_000
_REMEDIES = 6
_PARTS = 8
_STANCES = ("helps", "may", "cannot")


class RemedyRow(Answer):
    """Something people do about it."""

    stance: str = Field(description="helps, may or cannot")
    title: str
    because: str
    preconditions: list[str]


class PartRow(Answer):
    """A part of the device's memory, as the message has it."""

    what: str
    bytes: int


class MessageRow(Answer):
    """One message explained."""

    verdict: str
    certain: bool
    headline: str
    first: str = Field(description="the one thing to do first")
    because: list[str]
    asked_bytes: int | None = Field(description="asked of the device; printed sizes are rounded")
    free_bytes: int | None
    total_bytes: int | None
    missing_bytes: int | None
    parts: list[PartRow]
    parts_left_out: int
    remedies: list[RemedyRow] = Field(description="what helps, what may, and what cannot though it is often advised")
    remedies_left_out: int
    not_known: list[str]
    snapshot_agrees: bool | None = Field(description="null: no snapshot was given, or it cannot tell")
    snapshot_says: list[str]
    pinned_by: list[str]
    times: int
    line: int


class OomAnswer(Paged):
    """The messages of a text, different ones once."""

    messages: list[MessageRow]


def oom(
    library: Library,
    text: Annotated[
        str, Field(description="The message, or a log or traceback with it.", min_length=1, max_length=_MOST_TEXT)
    ],
    snapshot: Annotated[
        str | None,
        Field(description="An allocator snapshot of the process, by its path from the root.", max_length=4096),
    ] = None,
    alloc_conf: Annotated[
        str | None,
        Field(description="What PYTORCH_ALLOC_CONF was, such as expandable_segments:True.", max_length=1_000),
    ] = None,
    torch_version: Annotated[str | None, Field(description="PyTorch's version, such as 2.4.", max_length=60)] = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> OomAnswer:
    """Explain the out-of-memory messages of a text."""
    from foretrace.memory import explain_text, read_snapshot
    from foretrace.memory.oom.settings import read_conf, read_version
    from foretrace.memory.snapshot import Snapshot

    held: Snapshot | None = None
    if snapshot is not None:
        name = library.root.file(snapshot)

        def read() -> tuple[Snapshot, int]:
            made = read_snapshot(name)
            return made, 100_000 + 1_000 * sum(len(segment.blocks) for segment in made.segments)

        held = library.keep(("snapshot", name), [name], read)
    explained = explain_text(
        text,
        path="the text",
        conf=None if alloc_conf is None else read_conf(alloc_conf),
        version=None if torch_version is None else read_version(torch_version),
        snapshot=held,
    )
    cut = piece(explained.messages, lambda _, one: _row(one), limit=limit, offset=offset)
    return OomAnswer(messages=cut.rows, **paged(cut))


def _row(one: Explanation) -> MessageRow:
    ranked = sorted(one.remedies, key=lambda remedy: _STANCES.index(remedy.stance))
    helping = [remedy for remedy in ranked if remedy.stance != "cannot"][: _REMEDIES - 2]
    vain = [remedy for remedy in ranked if remedy.stance == "cannot"][: _REMEDIES - len(helping)]
    checked = one.snapshot
    return MessageRow(
        verdict=one.verdict,
        certain=one.certain,
        headline=short(one.headline, 400),
        first=short(one.first, 400),
        because=first(one.because, 5, 400),
        asked_bytes=_bytes(one.said.asked),
        free_bytes=_bytes(one.said.free),
        total_bytes=_bytes(one.said.total),
        missing_bytes=_bytes(one.missing),
        parts=[PartRow(what=short(part.what, 120), bytes=part.size.bytes) for part in one.accounts[:_PARTS]],
        parts_left_out=max(0, len(one.accounts) - _PARTS),
        remedies=[_remedy(remedy) for remedy in (*helping, *vain)],
        remedies_left_out=len(one.remedies) - len(helping) - len(vain),
        not_known=first(one.not_known, 4, 240),
        snapshot_agrees=None if checked is None else checked.agrees,
        snapshot_says=[] if checked is None else first(checked.because, 4, 400),
        pinned_by=[] if checked is None else first(checked.pinned_by, 4, 240),
        times=one.count,
        line=one.line,
    )


def _remedy(one: Remedy) -> RemedyRow:
    return RemedyRow(
        stance=one.stance,
        title=short(one.title, 200),
        because=short(one.because, 300),
        preconditions=first(one.preconditions, 2, 200),
    )


def _bytes(size: Size | None) -> int | None:
    return None if size is None else size.bytes
