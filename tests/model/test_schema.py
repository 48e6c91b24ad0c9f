"""The committed JSON Schemas are those the Structs generate; they accept what we write and nothing else."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from comparison.comparing import COMPILED, EAGER, program
from foretrace import check, compare, expect, explain, load
from foretrace.analysis.baseline import made_on, part_of
from foretrace.analysis.context import Context
from foretrace.analysis.tables import Tables
from foretrace.analysis.tables.result import result_of
from foretrace.cli.demo import SNAPSHOT
from foretrace.memory.examining import examine_file
from foretrace.memory.oom.explain import explain_text
from foretrace.model.baseline import Baseline, baseline_text
from foretrace.model.bench import Bench, Flushing, Limits, Load, Result, Work
from foretrace.model.comparison import Comparison
from foretrace.model.expectations import Checked
from foretrace.model.memory import Memory
from foretrace.model.oom import Oom
from foretrace.model.query import QueryResult
from foretrace.model.report import Report
from foretrace.model.schema import DOCUMENTS, schema_of, schema_path, schema_text
from foretrace.model.share import LeftOutFile, Shared, SharedFile
from foretrace.model.slim import Slimmed
from foretrace.model.tables import Described
from foretrace.model.view import Viewed, ViewedTrace
from foretrace.report.json import to_json
from foretrace.report.tables import described
from foretrace.view.slim import slim
from report.samples import cpu_report, mlp_report
from schemas import validator

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"

every = pytest.mark.parametrize("document", list(DOCUMENTS), ids=lambda document: document.__name__)


@cache
def written(document: type[msgspec.Struct]) -> bytes:
    """A document as we write it."""
    if document is Report:
        return to_json(mlp_report())
    if document is Checked:
        wanted = expect("mlp_fwd: kernels == 5", gemm=4, bound="compute", wall_us="<= 400", order=["elementwise"])
        return to_json(check(TRACE, wanted))
    if document is Comparison:
        return to_json(compare([program(EAGER).trace(), program(COMPILED).trace()], fail_on=["kernels > +0"]))
    if document is Memory:
        return to_json(examine_file(str(SNAPSHOT), request_bytes=200 << 20))
    if document is QueryResult:
        with_a_gap = Tables(load(TRACE)).ask("select name, stream, duration_us from events", limit=20)
        return to_json(result_of(with_a_gap))
    if document is Baseline:
        trace = load(TRACE)
        report, context = explain(trace), Context(trace=trace)
        parts = [part_of(report, context, "0")]
        return baseline_text(Baseline(test="test_mlp.py::test", made_on=made_on(report, context), parts=parts)).encode()
    if document is Shared:
        file = SharedFile(path="a b.json", kind="trace", bytes=3, state="waiting", url="https://hub/a%20b.json")
        left = LeftOutFile(path="x.pickle", reason="a snapshot")
        shared = Shared(folder="f", bucket="ada/b", page="https://hub", private=None, files=[file], left_out=[left])
        return to_json(shared)
    if document is Slimmed:
        with TemporaryDirectory() as folder:
            return to_json(slim(TRACE, Path(folder, "s.json"), steps=[1]))
    if document is Described:
        return to_json(described())
    if document is Viewed:
        trace = ViewedTrace(path="a.json", copy=None, bytes=3, url="http://127.0.0.1:9001/x/a.json", link="https://ui")
        return to_json(Viewed(port=9001, ssh=None, traces=[trace]))
    if document is Oom:
        return to_json(explain_text("CUDA out of memory. Tried to allocate 1.00 GiB"))
    return to_json(
        Bench(
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
    )


@every
def test_the_committed_schema_is_the_generated_one(document: type[msgspec.Struct], regolden: bool):
    if regolden:
        schema_path(document).write_text(schema_text(document), encoding="utf-8")
    assert schema_path(document).read_text(encoding="utf-8") == schema_text(document)


def test_every_committed_schema_is_of_a_document():
    folder = schema_path(Report).parent
    assert {schema_path(document).name for document in DOCUMENTS} == {path.name for path in folder.iterdir()}


@every
def test_what_we_write_is_valid(document: type[msgspec.Struct]):
    validator(document).validate(json.loads(written(document)))


def test_so_is_a_report_of_a_cpu_program():
    validator(Report).validate(json.loads(to_json(cpu_report())))


@pytest.mark.parametrize(
    ("document", "place", "value"),
    [
        (Report, ["schema"], "foretrace.report/2"),
        (Report, ["verdict", "bound"], "slow"),
        (Report, ["steps", 0, "kernels"], "five"),
        (Report, ["chain", 0, "children", 0, "count"], None),
        (Checked, ["schema"], "foretrace.check/2"),
        (Checked, ["state"], "maybe"),
        (Checked, ["held"], "three"),
        (Comparison, ["schema"], "foretrace.compare/2"),
        (Comparison, ["pairs", 0, "places", 0, "category"], "similar"),
        (Comparison, ["metrics", 0, "values", 0, "median"], "fast"),
        (Slimmed, ["schema"], "foretrace.slim/2"),
        (Slimmed, ["kept", "kernel"], "many"),
        (Described, ["tables", 0, "columns", 0, "unit"], 3),
        (Viewed, ["traces", 0, "link"], None),
        (Bench, ["schema"], "foretrace.bench/2"),
        (Bench, ["rounds"], "ten"),
        (Bench, ["variants"], None),
    ],
)
def test_what_breaks_the_contract_is_not(document: type[msgspec.Struct], place: list[Any], value: object):
    broken = json.loads(written(document))
    around = broken
    for step in place[:-1]:
        around = around[step]
    around[place[-1]] = value
    assert not validator(document).is_valid(broken)


@every
def test_a_document_without_its_schema_s_name_is_not(document: type[msgspec.Struct]):
    broken = json.loads(written(document))
    del broken["schema"]
    assert not validator(document).is_valid(broken)


@every
def test_fields_may_be_added_within_a_version(document: type[msgspec.Struct]):
    validator(document).validate({**json.loads(written(document)), "invented_later": 1})


def test_and_inside_a_part_of_it():
    document = json.loads(written(Report))
    document["steps"][0]["invented_later"] = None
    validator(Report).validate(document)


@every
def test_every_field_we_write_is_described(document: type[msgspec.Struct]):
    described = schema_of(document)["$defs"][document.__name__]["properties"]
    assert set(json.loads(written(document))) == set(described)
