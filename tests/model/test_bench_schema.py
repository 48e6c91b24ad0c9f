"""The committed JSON Schema of a bench is the one its Structs generate, and accepts what we write."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from foretrace.model.bench import Bench, Flushing, Limits, Load, Result, Work
from foretrace.model.bench_schema import BENCH_SCHEMA, bench_schema_text
from foretrace.report.json import to_json

EMPTY = Bench(
    workload="mlp",
    parameters={"batch": 4},
    mode="forward",
    device="cpu",
    seed=0,
    method="perf_counter",
    rounds=10,
    variants=[Result(name="eager", variant="eager", state="failed", reason="no")],
    flush=Flushing(on=False, reason="as asked for"),
    limits=Limits(),
    work=Work(),
    load=Load(),
)


def test_the_committed_schema_is_the_generated_one(regolden: bool) -> None:
    if regolden:
        BENCH_SCHEMA.write_text(bench_schema_text(), encoding="utf-8")
    assert BENCH_SCHEMA.read_text(encoding="utf-8") == bench_schema_text()


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"added_later": 1}, True),
        ({"schema": "foretrace.bench/2"}, False),
        ({"rounds": "ten"}, False),
        ({"variants": None}, False),
    ],
)
def test_it_accepts_what_we_write_and_nothing_else(change: dict[str, object], valid: bool) -> None:
    validator = Draft202012Validator(json.loads(BENCH_SCHEMA.read_text(encoding="utf-8")))
    assert validator.is_valid({**json.loads(to_json(EMPTY)), **change}) is valid
