"""The JSON Schemas of the documents, generated from their Structs and kept as files next to this one.

``python -m foretrace.model.schema`` lists the documents; with a name, such as ``report-1``, it prints that schema. A
test asserts that each committed file equals what is generated.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from foretrace.model.baseline import Baseline
from foretrace.model.bench import Bench
from foretrace.model.comparison import Comparison
from foretrace.model.expectations import Checked
from foretrace.model.memory import Memory
from foretrace.model.oom import Oom
from foretrace.model.query import QueryResult
from foretrace.model.report import Report
from foretrace.model.share import Shared
from foretrace.model.slim import Slimmed
from foretrace.model.tables import Described
from foretrace.model.view import Viewed

__all__ = ["DOCUMENTS", "schema_of", "schema_path", "schema_text"]

# what is written with --json → what it is
DOCUMENTS: dict[type[msgspec.Struct], str] = {
    Report: "What foretrace says about one profiler trace.",
    Checked: "Expectations held against one profiler trace: what held, what broke and why, what is unknown.",
    Comparison: "What differs between a baseline trace and others.",
    Bench: "Variants of one program timed against each other.",
    Memory: "What a process's GPU memory is: sizes, fragmentation, what pins it, and whether a request would succeed.",
    QueryResult: "Rows that a SQL query over a trace's tables found.",
    Baseline: "What one test runs, committed beside it: counts per step, by name and place.",
    Described: "The tables that a trace can be asked for in SQL.",
    Slimmed: "What was made of a trace that was slimmed.",
    Viewed: "Traces that are served to the Perfetto UI, and the links that open them.",
    Shared: "What became of a folder that was shared.",
    Oom: "Out-of-memory messages explained: why, whose memory it was, what helps and what cannot.",
}


def schema_of(document: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one of ``DOCUMENTS``.

    Documents may hold more than it names, since fields may be added within a version. A field with a default may be
    absent in a document that an earlier version wrote; this version writes every field.
    """
    generated = msgspec.json.schema(document)
    root = generated["$defs"][document.__name__]
    # The one field with a default that is always there, as it says what the rest means.
    root["required"] = ["schema", *root["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": _name_of(document),
        "description": f"{DOCUMENTS[document]} Unknown values are null, never zero.",
        **generated,
    }


def schema_text(document: type[msgspec.Struct]) -> str:
    """The schema as the committed file has it."""
    return msgspec.json.format(msgspec.json.encode(schema_of(document)), indent=2).decode() + "\n"


def schema_path(document: type[msgspec.Struct]) -> Path:
    """The committed file: ``foretrace.report/1`` is in ``report-1.schema.json``."""
    kind = _name_of(document).removeprefix("foretrace.").replace("/", "-")
    return Path(__file__).with_name("schemas") / f"{kind}.schema.json"


def _name_of(document: type[msgspec.Struct]) -> str:
    """``foretrace.report/1``: what the document's field ``schema`` holds."""
    return next(str(field.default) for field in msgspec.structs.fields(document) if field.name == "schema")


if __name__ == "__main__":
    named = {schema_path(document).name.partition(".")[0]: document for document in DOCUMENTS}
    asked = sys.argv[1:]
    unknown = [name for name in asked if name not in named]
    if unknown or not asked:
        sys.exit(f"the documents are {', '.join(named)}")
    print("".join(schema_text(named[name]) for name in asked), end="")
