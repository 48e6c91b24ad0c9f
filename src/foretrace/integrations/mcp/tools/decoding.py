"""``decode_kernel``: what kernel names say."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, facts_of, first, name_of, short
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import piece
from foretrace.knowledge.agents import WHOLE_ANSWER_BYTES
from foretrace.knowledge.kernels import decode, describe

__all__ = ["DecodedKernel", "DecodedNames", "decode_kernel"]

KernelName = Annotated[str, Field(min_length=1, max_length=20_000)]


# Bytes of the answer around its kernels, and those that what is known of one of them may take.
_AROUND = 100
_MOST_FACTS_BYTES = 1_500


class DecodedKernel(Answer):
    """One kernel name."""

    name: str
    kind: str
    family: str
    words: str
    decoded: dict[str, Any]
    unknown: list[str] = Field(description="parts of the name that are not understood; nothing is guessed of them")


class DecodedNames(Answer):
    """In the order of the names."""

    kernels: list[DecodedKernel]
    names_left_out: int = Field(description="names at the end whose answer does not fit: ask for them in another call")


def decode_kernel(
    library: Library,  # noqa: ARG001 (every tool takes it)
    names: Annotated[
        list[KernelName], Field(description="Kernel names, as a trace has them.", min_length=1, max_length=20)
    ],
    op: Annotated[
        str | None, Field(description="The operator that launched them, such as aten::mm, if known.", max_length=200)
    ] = None,
) -> DecodedNames:
    """Decode kernel names."""
    found = piece(names, lambda _, name: _decoded(name, op), limit=None, offset=0, room=WHOLE_ANSWER_BYTES - _AROUND)
    return DecodedNames(kernels=found.rows, names_left_out=len(names) - len(found.rows))


def _decoded(name: str, op: str | None) -> DecodedKernel:
    decoded = decode(name.encode("utf-8", "replace").decode(), op=op)
    return DecodedKernel(
        name=name_of(name),
        kind=decoded.kind,
        family=decoded.family,
        words=short(describe(decoded), 600),
        decoded=_bounded(facts_of(decoded.decoded)),
        unknown=first(decoded.unknown, 8, 80),
    )


def _bounded(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that fit; the names of the others."""
    kept: dict[str, Any] = {}
    used = 0
    for name, value in facts.items():
        used += len(json.dumps({name: value}, ensure_ascii=False, default=str).encode("utf-8", "replace"))
        if used > _MOST_FACTS_BYTES:
            kept["left_out"] = list(facts)[len(kept) :]
            break
        kept[name] = value
    return kept
