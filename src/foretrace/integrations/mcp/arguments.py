"""Arguments that several tools take, declared once with what they mean and their bounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = ["Label", "Number", "Steps", "TracePath"]

TracePath = Annotated[
    str,
    Field(
        description="A profiler trace (or a report that explain --json wrote), by its path from the root.",
        max_length=4096,
        examples=["traces/mlp.trace.json.gz"],
    ),
]
Label = Annotated[str, Field(max_length=200)]
Steps = Annotated[
    list[Label] | None,
    Field(
        description="Only these steps, each by its position ('0' is the first) or label ('#3'). Without it, all.",
        max_length=20,
        examples=[["#3"]],
    ),
]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
