"""The committed schema of ``foretrace.check/1`` is the one the Structs generate; it accepts what we write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from foretrace import check, expect
from foretrace.model.check_schema import CHECK_SCHEMA, check_schema_text
from foretrace.report.json import to_json

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"


@pytest.fixture(scope="module")
def document() -> dict[str, object]:
    wanted = expect("mlp_fwd: kernels == 5", gemm=4, bound="compute", wall_us="<= 400", order=["elementwise"])
    return json.loads(to_json(check(TRACE, wanted)))  # type: ignore[no-any-return]


def test_the_committed_schema_is_the_generated_one(regolden: bool):
    if regolden:
        CHECK_SCHEMA.write_text(check_schema_text(), encoding="utf-8")
    assert CHECK_SCHEMA.read_text(encoding="utf-8") == check_schema_text()


def test_what_we_write_is_valid(document: dict[str, object]):
    schema = json.loads(CHECK_SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(document)
    assert document["schema"] == "foretrace.check/1"


@pytest.mark.parametrize("damage", [{"schema": "foretrace.check/2"}, {"state": "maybe"}, {"held": "three"}])
def test_what_breaks_the_contract_is_not(document: dict[str, object], damage: dict[str, object]):
    schema = json.loads(CHECK_SCHEMA.read_text(encoding="utf-8"))
    assert not Draft202012Validator(schema).is_valid(document | damage)


def test_fields_may_be_added(document: dict[str, object]):
    schema = json.loads(CHECK_SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(document | {"invented_later": 1})
