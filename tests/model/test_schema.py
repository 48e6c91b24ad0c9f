"""The committed JSON Schema is the one the Structs generate; it accepts what we write and nothing else."""

import json

import pytest
from jsonschema import Draft202012Validator

from foretrace.model.schema import REPORT_SCHEMA, report_schema, report_schema_text
from foretrace.report import to_json
from report.samples import cpu_report, mlp_report


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(REPORT_SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_committed_schema_is_the_generated_one(regolden: bool):
    if regolden:
        REPORT_SCHEMA.write_text(report_schema_text(), encoding="utf-8")
    assert REPORT_SCHEMA.read_text(encoding="utf-8") == report_schema_text()


@pytest.mark.parametrize("report", [mlp_report(), cpu_report()], ids=["mlp", "cpu"])
def test_what_we_write_is_valid(validator: Draft202012Validator, report):
    validator.validate(json.loads(to_json(report)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document.pop("schema"),
        lambda document: document.update(schema="foretrace.report/2"),
        lambda document: document["verdict"].update(bound="slow"),
        lambda document: document["steps"][0].update(kernels="five"),
        lambda document: document["chain"][0]["children"][0].pop("count"),
    ],
    ids=["no schema", "other version", "unknown verdict", "text for a number", "deep in the chain"],
)
def test_what_breaks_the_contract_is_not(validator: Draft202012Validator, damage):
    document = json.loads(to_json(mlp_report()))
    damage(document)
    assert not validator.is_valid(document)


def test_fields_may_be_added_within_version_one(validator: Draft202012Validator):
    document = json.loads(to_json(mlp_report()))
    document["invented_later"] = 1
    document["steps"][0]["invented_later"] = None
    validator.validate(document)


def test_every_field_we_write_is_described():
    described = report_schema()["$defs"]
    assert set(json.loads(to_json(mlp_report()))) == set(described["Report"]["properties"])
