"""The JSON Schema of a bench, generated from its Structs and kept as a file next to the report's.

``python -m foretrace.model.bench_schema`` prints the schema; a test asserts that the committed file equals it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.model.bench import SCHEMA, Bench

__all__ = ["BENCH_SCHEMA", "bench_schema", "bench_schema_text"]

BENCH_SCHEMA = Path(__file__).with_name("schemas") / "bench-1.schema.json"


def bench_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``foretrace.bench/1``; documents may hold more than it names."""
    generated = msgspec.json.schema(Bench)
    root = generated["$defs"][Bench.__name__]
    root["required"] = ["schema", *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "Variants of one program timed against each other. Unknown values are null, never zero.",
        **generated,
    }


def bench_schema_text() -> str:
    """The schema as the committed file has it."""
    return msgspec.json.format(msgspec.json.encode(bench_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(bench_schema_text(), end="")
