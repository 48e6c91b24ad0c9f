"""``decode_kernel``: what kernel names say."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, facts_of, first, name_of, short
from foretrace.integrations.mcp.library import Library
from foretrace.knowledge.kernels import decode, describe

__all__ = ["DecodedKernel", "DecodedNames", "decode_kernel"]

KernelName = Annotated[str, Field(min_length=1, max_length=20_000)]


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
    kernels = []
    for name in names:
        decoded = decode(name.encode("utf-8", "replace").decode(), op=op)
        kernels.append(
            DecodedKernel(
                name=name_of(name),
                kind=decoded.kind,
                family=decoded.family,
                words=short(describe(decoded), 600),
                decoded=facts_of(decoded.decoded),
                unknown=first(decoded.unknown, 20),
            )
        )
    return DecodedNames(kernels=kernels)
