"""The JSON Schema of the report, generated from its Structs and kept as a file next to this one.

``python -m foretrace.model.schema`` prints the schema; a test asserts that the committed file equals it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.model.report import SCHEMA, Report

__all__ = ["REPORT_SCHEMA", "report_schema", "report_schema_text"]

REPORT_SCHEMA = Path(__file__).with_name("schemas") / "report-1.schema.json"


def report_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``foretrace.report/1``.

    Documents may hold more than it names, since fields may be added within /1. A field with a default may be
    absent in a document that an earlier version wrote; this version writes every field.
    """
    generated = msgspec.json.schema(Report)
    root = generated["$defs"][Report.__name__]
    # The one field with a default that is always there, as it says what the rest means.
    root["required"] = ["schema", *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "What foretrace says about one profiler trace. Unknown values are null, never zero.",
        **generated,
    }


def report_schema_text() -> str:
    """The schema as the committed file has it."""
    return msgspec.json.format(msgspec.json.encode(report_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(report_schema_text(), end="")
