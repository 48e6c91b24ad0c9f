"""The committed JSON Schemas, for tests that write a document."""

from __future__ import annotations

import json

import msgspec
from jsonschema import Draft202012Validator

from foretrace.model.schema import schema_path


def validator(document: type[msgspec.Struct]) -> Draft202012Validator:
    """What holds JSON against the committed schema of ``document`` (``foretrace.model.schema.DOCUMENTS``)."""
    schema = json.loads(schema_path(document).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
