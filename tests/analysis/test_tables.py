"""The tables against the report that they must agree with, and what may be asked of them."""

import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.analysis import explain
from foretrace.analysis.attribution import attribute
from foretrace.analysis.tables import Tables
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.tables import TABLES, column
from foretrace.model.report import Report
from foretrace.report.tables import tables_markdown
from foretrace.trace import Trace, load

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PATHS = [*sorted((DATA / "traces").glob("*.json.gz")), DATA / "traces_memory" / "llama_train.json.gz"]


@lru_cache
def loaded(path: Path) -> tuple[Trace, Report]:
    trace = load(path)
    return trace, explain(trace)


@pytest.fixture(params=PATHS, ids=lambda path: path.name.partition(".")[0])
def sample(request: pytest.FixtureRequest) -> tuple[Trace, Report]:
    return loaded(request.param)


@pytest.fixture(scope="module")
def training() -> Tables:
    return Tables(load(DATA / "traces" / "mlp_train_eager.json.gz"))


def total(frame: pl.DataFrame, name: str) -> float:
    return float(frame[name].sum())


# The documentation is the code's


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_a_table_has_the_columns_that_are_documented(name: str, training: Tables):
    types = {pl.Int64: "integer", pl.Float64: "number", pl.String: "text", pl.Boolean: "boolean"}
    documented = next(table for table in TABLES if table.name == name).columns
    frame = training.frame(name)
    assert [(n, types[type(t)]) for n, t in frame.schema.items()] == [(c.name, c.type) for c in documented]


def test_the_reference_page_is_the_generated_one(regolden: bool):
    page = ROOT / "docs" / "reference" / "tables.md"
    if regolden:
        page.write_text(tables_markdown(), encoding="utf-8")
    assert page.read_text(encoding="utf-8") == tables_markdown()


def test_events_of_a_trace_are_the_documented_columns(training: Tables):
    events = training.trace.events
    documented = next(table for table in TABLES if table.name == "events").names
    assert [*events.columns] == [name for name in documented if name != "step_label"]
    assert events.height == len(training.trace)


@pytest.mark.parametrize("name", ["kernels", "transfers", "launches", "ops", "events"])
def test_the_label_of_a_step_stands_beside_its_position(name: str, training: Tables):
    labels = {
        step: label.removeprefix("ProfilerStep")
        for step, label in training.frame("steps").select("step", "label").iter_rows()
    }
    assert labels == {0: "#2", 1: "#3", 2: "#4"}
    pairs = set(training.frame(name).select("step", "step_label").iter_rows())
    assert pairs <= {(None, None), *labels.items()}
    # Copies were made in the last step alone.
    assert name == "transfers" or {label for _, label in pairs} >= set(labels.values())


# The tables say what the report says


def test_kernels_are_those_of_the_report(sample: tuple[Trace, Report]):
    trace, report = sample
    rows = Tables(trace).frame("kernels").to_dicts()
    assert len(rows) == len(report.kernels)
    plain = (
        *("event", "name", "short_name", "kind", "op", "module", "step", "phase", "start_us", "duration_us", "stream"),
        *("device", "graph", "registers", "shared_memory_bytes", "flops", "bytes", "achieved_tflops", "achieved_gbps"),
        *("of_peak", "peak", "cache_assisted"),
    )
    for row, kernel in zip(rows, report.kernels, strict=True):
        assert {name: row[name] for name in plain} == {name: getattr(kernel, name) for name in plain}
        assert row["op_path"] == (" > ".join(kernel.op_path) or None)
        assert row["bound"] == (None if kernel.bound == "unknown" else kernel.bound)
        assert [row["grid_x"], row["grid_y"], row["grid_z"]] == (kernel.grid or [None] * 3)
        assert [row["block_x"], row["block_y"], row["block_z"]] == (kernel.block or [None] * 3)
        assert row["tile"] == kernel.decoded.get("tile")


def test_sums_by_name_are_the_groups_of_the_report(sample: tuple[Trace, Report]):
    trace, report = sample
    summed = Tables(trace).frame("kernels").group_by("name").agg(pl.len(), pl.col("duration_us").sum())
    found = {name: (calls, us) for name, calls, us in summed.rows()}
    assert found.keys() == {group.name for group in report.groups}
    for group in report.groups:
        assert found[group.name][0] == group.calls
        assert found[group.name][1] == pytest.approx(group.total_us)


def test_counts_by_step_are_those_of_the_report(sample: tuple[Trace, Report]):
    trace, report = sample
    tables = Tables(trace)
    kernels, transfers, launches = (tables.frame(name) for name in ("kernels", "transfers", "launches"))
    for step in report.steps:
        here = pl.col("step") == step.index
        assert kernels.filter(here).height == step.kernels
        assert transfers.filter(here & (pl.col("kind") == "memcpy")).height == step.memcpys
        assert transfers.filter(here & (pl.col("kind") == "memset")).height == step.memsets
        assert launches.filter(here).height == step.launches
        copying = pl.col("kind").is_in(["memcpy", "memset"])
        assert launches.filter(here & ~copying).height == step.kernel_launches
    steps = tables.frame("steps")
    assert steps["gpu_busy_us"].to_list() == [step.gpu_busy_us for step in report.steps]
    assert steps["step"].to_list() == [step.index for step in report.steps]


def test_operators_sum_to_those_of_the_report(sample: tuple[Trace, Report]):
    trace, report = sample
    ops = Tables(trace).frame("ops")
    for operator in report.operators:
        calls = ops.filter(pl.col("name") == operator.name)
        if not calls.height:
            assert operator.name.startswith("## Call CompiledFxGraph")  # an annotation, not an operator's row
            continue
        assert calls.height == operator.calls
        assert total(calls, "self_us") == pytest.approx(operator.self_cpu_us)
        assert total(calls, "self_gpu_us") == pytest.approx(operator.self_gpu_us or 0.0)


def test_gpu_time_of_launches_is_that_of_what_they_launched(sample: tuple[Trace, Report]):
    tables = Tables(sample[0])
    ran = pl.concat([tables.frame(name).select("launch_event", "duration_us") for name in ("kernels", "transfers")])
    linked = ran.filter(pl.col("launch_event").is_not_null())
    launches = tables.frame("launches")
    assert total(launches, "gpu_us") == pytest.approx(total(linked, "duration_us"))
    assert launches["gpu_rows"].sum() == linked.height
    assert set(linked["launch_event"]) <= set(launches["event"])


def test_event_numbers_join_the_tables(sample: tuple[Trace, Report]):
    tables = Tables(sample[0])
    events = set(tables.frame("events")["event"])
    for name, other in (("kernels", "op_event"), ("ops", "parent_event"), ("ops", "forward_event")):
        frame = tables.frame(name)
        assert set(frame["event"]) <= events
        assert set(frame[other].drop_nulls()) <= set(tables.frame("ops")["event"])
    assert set(tables.frame("launches")["first_gpu_event"].drop_nulls()) <= events


def test_steps_of_events_are_the_attribution_s(sample: tuple[Trace, Report]):
    trace = sample[0]
    expected = [step if step >= 0 else None for step in attribute(trace).step.tolist()]
    instant = (trace.kind == RowKind.MEMORY).tolist()
    for found, want, is_memory in zip(trace.events["step"].to_list(), expected, instant, strict=True):
        assert is_memory or found == want


def test_unknown_is_null_and_nothing_stands_for_it(sample: tuple[Trace, Report]):
    tables = Tables(sample[0])
    for table in TABLES:
        frame = tables.frame(table.name)
        for described in table.columns:
            if described.type == "integer":
                assert (frame[described.name].drop_nulls() >= 0).all(), f"{table.name}.{described.name}"
            if described.type == "text":
                # A name may be empty in the file; nothing that we make is.
                assert described.name in ("name", "category") or "" not in frame[described.name].to_list()


# Single facts, on traces made for them


def test_a_kernel_without_launch_and_a_trace_without_gpu():
    build = TraceBuilder()
    build.op("aten::mm", 0, 30)
    build.kernel("orphan", 50, 10)
    tables = Tables(build.trace())
    (kernel,) = tables.frame("kernels").to_dicts()
    assert (kernel["launch_event"], kernel["launch_delay_us"], kernel["op"]) == (None, None, None)
    build = TraceBuilder(gpu=None)
    build.op("aten::mm", 0, 30)
    tables = Tables(build.trace())
    assert tables.frame("kernels").height == tables.frame("launches").height == 0
    assert tables.frame("ops").to_dicts()[0]["gpu_us"] is None  # not zero: no GPU was recorded
    assert tables.frame("steps").to_dicts()[0]["kernels"] is None


def test_a_call_whose_gpu_rows_are_missing_has_launched_an_unknown_number():
    build = TraceBuilder()
    build.launch(0, 5)
    seen = build.launch(10, 5)
    build.kernel("k", 30, 7, launch=seen)
    lost, kept = Tables(build.trace()).frame("launches").to_dicts()
    assert (lost["kernels"], lost["gpu_us"], lost["delay_us"]) == (None, None, None)
    assert (kept["kernels"], kept["gpu_us"], kept["delay_us"]) == (1, 7.0, 20.0)


def test_operators_nest_and_a_backward_one_finds_its_forward_one():
    build = TraceBuilder()
    outer = build.op("aten::linear", 0, 30, sequence=4)
    inner = build.op("aten::addmm", 5, 20, sequence=4, shapes=[[2, 3]], dtypes=["float"])
    root = build.op("autograd::engine::evaluate_function: AddmmBackward0", 50, 30, sequence=4)
    below = build.op("aten::mm", 60, 10)
    rows = {row["event"]: row for row in Tables(build.trace()).frame("ops").to_dicts()}
    assert (rows[outer]["parent_event"], rows[outer]["depth"]) == (None, 0)
    assert (rows[inner]["parent_event"], rows[inner]["depth"]) == (outer, 1)
    assert (rows[inner]["shapes"], rows[inner]["dtypes"]) == ("[[2,3]]", '["float"]')
    assert rows[outer]["shapes"] is None
    assert rows[outer]["self_us"] == 10.0
    assert [rows[event]["forward_event"] for event in (outer, inner, root, below)] == [None, None, inner, inner]


def test_an_allocator_row_is_an_instant(training: Tables):
    events = Tables(load(DATA / "traces_memory" / "llama_train.json.gz")).frame("events")
    instants = events.filter(pl.col("kind") == "memory")
    assert instants.height > 0
    assert instants["duration_us"].null_count() == instants.height
    assert training.frame("events")["duration_us"].null_count() == 0


def test_names_that_are_no_text_and_numbers_beyond_64_bits():
    build = TraceBuilder()
    name = "half \\ud800 pair"
    correlation = build.launch(0, 5)
    build.kernel("NAME", 10, 5, launch=correlation, args={"shared memory": 2**70, "registers per thread": "many"})
    from foretrace.trace.load import parse

    trace = parse(build.text().replace(b"NAME", name.encode()), path="synthetic.json")
    (kernel,) = Tables(trace).query("select name, registers, shared_memory_bytes as shared from kernels").to_dicts()
    assert kernel["name"].startswith("half ")
    assert (kernel["registers"], kernel["shared"]) == (None, None)


def test_an_empty_trace_has_empty_tables():
    tables = Tables(TraceBuilder(gpu=None).trace())
    assert {name: tables.frame(name).height for name in tables.names} == dict.fromkeys(tables.names, 0)
    assert tables.query("select count(*) as n from events").item() == 0


def test_tables_of_some_steps_hold_what_belongs_to_them():
    trace, _ = loaded(DATA / "traces" / "mlp_eager.json.gz")
    chosen = Tables(trace, steps=[1])
    assert set(chosen.frame("kernels")["step"]) == {1}
    assert chosen.frame("kernels").height == 5
    assert set(chosen.frame("events")["step"]) == {1}
    assert chosen.frame("steps")["step"].to_list() == [1]
    of_report = Tables(trace, explain(trace, steps=[1]))
    for name in chosen.names:
        assert of_report.frame(name).equals(chosen.frame(name)), name


def test_a_report_of_another_trace_is_refused():
    one, _ = loaded(DATA / "traces" / "linear_eager.json.gz")
    _, other = loaded(DATA / "traces" / "mlp_train_eager.json.gz")
    with pytest.raises(InputError, match="not one of this trace"):
        Tables(one, other).frame("kernels")


def test_a_table_of_no_such_name(training: Tables):
    with pytest.raises(InputError, match="there is no table 'kernel'; the tables are events, kernels"):
        training.frame("kernel")


# Sums and descriptions


@settings(max_examples=15)
@given(st.lists(st.floats(min_value=0.001, max_value=1e6).map(lambda us: round(us, 3)), min_size=1, max_size=20))
def test_a_sum_over_kernels_is_the_sum_of_what_was_recorded(durations: list[float]):
    build = TraceBuilder()
    at = 0.0
    for duration in durations:
        build.kernel("k", at, duration, launch=build.launch(at, 1))
        at += duration + 2
    trace = build.trace()
    kernels = Tables(trace).frame("kernels")
    assert total(kernels, "duration_us") == pytest.approx(int(trace.duration[trace.gpu_rows].sum()) / 1000)
    assert total(kernels, "duration_us") == pytest.approx(total(Tables(trace).frame("launches"), "gpu_us"))


def test_descriptions_are_one_sentence_each():
    for table in TABLES:
        for described in (*table.columns, column("events", "args")):
            assert described is not None
            assert described.meaning.endswith(".")
            assert "|" not in described.meaning
    assert column("events", "nope") is None
    assert column("nope", "event") is None


def test_nothing_heavy_is_imported_to_describe_the_tables():
    code = "import sys, foretrace.cli.sql, foretrace.report.tables; print('polars' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"
