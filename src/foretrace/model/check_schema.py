"""The JSON Schema of ``foretrace.check/1``, generated from its Structs and kept as a file next to this one.

``python -m foretrace.model.check_schema`` prints the schema; a test asserts that the committed file equals it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.model.expectations import CHECK_SCHEMA_NAME, Checked

__all__ = ["CHECK_SCHEMA", "check_schema", "check_schema_text"]

CHECK_SCHEMA = Path(__file__).with_name("schemas") / "check-1.schema.json"


def check_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``foretrace.check/1``; documents may hold more than it names."""
    generated = msgspec.json.schema(Checked)
    root = generated["$defs"][Checked.__name__]
    root["required"] = ["schema", *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": CHECK_SCHEMA_NAME,
        "description": "Expectations held against one profiler trace: what held, what broke and why, what is unknown.",
        **generated,
    }


def check_schema_text() -> str:
    """The schema as the committed file has it."""
    return msgspec.json.format(msgspec.json.encode(check_schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(check_schema_text(), end="")
