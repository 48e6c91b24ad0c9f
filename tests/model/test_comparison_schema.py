"""The committed JSON Schema of a comparison is the one the Structs generate."""

import json

import pytest
from jsonschema import Draft202012Validator

from comparison.comparing import COMPILED, EAGER, program
from foretrace import compare
from foretrace.model.comparison_schema import COMPARISON_SCHEMA, comparison_schema_text
from foretrace.report.json import to_json


@pytest.fixture(scope="module")
def document():
    found = compare([program(EAGER).trace(), program(COMPILED).trace()], fail_on=["kernels > +0"])
    return to_json(found)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(COMPARISON_SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_committed_schema_is_the_generated_one(regolden: bool):
    if regolden:
        COMPARISON_SCHEMA.write_text(comparison_schema_text(), encoding="utf-8")
    assert COMPARISON_SCHEMA.read_text(encoding="utf-8") == comparison_schema_text()


def test_what_we_write_is_valid(validator, document):
    validator.validate(json.loads(document))


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("schema"),
        lambda d: d.update(schema="foretrace.compare/2"),
        lambda d: d["pairs"][0]["places"][0].update(category="similar"),
        lambda d: d["metrics"][0]["values"][0].update(median="fast"),
    ],
    ids=["no schema", "other version", "unknown category", "text for a number"],
)
def test_what_breaks_the_contract_is_not(validator, document, damage):
    broken = json.loads(document)
    damage(broken)
    assert not validator.is_valid(broken)
