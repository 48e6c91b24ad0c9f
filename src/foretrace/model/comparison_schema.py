"""The JSON Schema of the comparison, generated from its Structs and kept as a file next to the report's.

``python -m foretrace.model.comparison_schema`` prints the schema; a test asserts that the committed file equals it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.model.comparison import SCHEMA, Comparison

__all__ = ["COMPARISON_SCHEMA", "comparison_schema", "comparison_schema_text"]

COMPARISON_SCHEMA = Path(__file__).with_name("schemas") / "compare-1.schema.json"


def comparison_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``foretrace.compare/1``; documents may hold more than it names."""
    generated = msgspec.json.schema(Comparison)
    root = generated["$defs"][Comparison.__name__]
    root["required"] = ["schema", *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "What differs between a baseline trace and others. Unknown values are null, never zero.",
        **generated,
    }


def comparison_schema_text() -> str:
    """The schema as the committed file has it."""
    return msgspec.json.format(msgspec.json.encode(comparison_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(comparison_schema_text(), end="")
