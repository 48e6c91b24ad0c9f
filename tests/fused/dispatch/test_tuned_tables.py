"""Shipped tables of measured choices: their format, and which row answers for a problem."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.fused.dispatch.choose import choose, tabled
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.tables import FOLDER, Row, Table, nearest, read_table, shipped, write_table
from foretrace.fused.plan import Problem

H200 = Environment(torch=(2, 11), triton=(3, 6))
NEWER = Environment(torch=(2, 13), triton=(3, 9))
VERSIONS = {"torch": "2.11.0", "triton": "3.6.0", "foretrace": "0.1.0"}


def gated(m: int, k: int = 768, n: int = 3072, **changes: object) -> Problem:
    problem = Problem("gated_mlp", m, n, k, k, "bfloat16", "gelu_tanh", "sm_90", training=False)
    return replace(problem, **changes)


def table(*rows: tuple[Problem, dict[str, float]]) -> Table:
    return Table("sm_90_h200", "sm_90", "NVIDIA H200", tuple(Row.of(problem, costs) for problem, costs in rows))


LARGE = (
    gated(8192),
    {"expand=plain project=plain": 243.0, "expand=hopper project=plain": 172.0, "expand=tma project=plain": 178.0},
)
SMALL = (gated(16), {"expand=plain project=plain": 30.0, "expand=small project=small": 14.0})


def test_the_measured_problem_gets_its_fastest_choice():
    plan = tabled(gated(8192), H200, [table(LARGE, SMALL)])
    assert plan is not None
    assert (plan.expand.name, plan.project.name, plan.source) == ("hopper", "plain", "table")
    assert plan.reason == "the fastest of 3 measured on NVIDIA H200"
    assert plan.costs[0] == ("expand=hopper project=plain", 172.0)


def test_what_cannot_run_here_is_passed_over():
    plan = tabled(gated(8192), NEWER, [table(LARGE)])
    assert plan is not None
    assert plan.expand.name == "tma"
    misaligned = tabled(gated(8192, aligned=False), H200, [table(LARGE)])
    assert misaligned is None  # plain alone is left, which is no comparison


def test_options_of_a_row_reach_the_plan():
    row = (gated(8192), {"expand=hopper[group=16] project=plain": 170.0, "expand=plain project=plain": 243.0})
    plan = tabled(gated(8192), H200, [table(row)])
    assert plan is not None
    assert plan.expand.options == (("group", 16),)


def test_a_near_row_count_is_answered_and_said():
    plan = tabled(gated(6000), H200, [table(LARGE, SMALL)])
    assert plan is not None
    assert plan.expand.name == "hopper"
    assert "nearest problem, 8192 × 768 × 3072" in plan.reason


def test_far_sizes_are_left_to_the_model():
    rows = [table(LARGE, SMALL)]
    assert tabled(gated(4000), H200, rows) is None
    assert tabled(gated(8192, n=14336), H200, rows) is None
    assert choose(gated(4000), H200, rows).source == "model"
    assert choose(gated(4000), H200, []).source == "model"


def test_decode_rows_answer_for_decode_alone():
    assert nearest([table(SMALL)], gated(17)) == []
    plan = tabled(gated(12), H200, [table(SMALL)])
    assert plan is not None
    assert plan.expand.name == "small"


def test_a_single_row_is_served_by_kernels_of_its_own():
    single = (gated(1), {"expand=plain project=plain": 25.0, "expand=small[pdl=1] project=small[pdl=1]": 11.0})
    assert nearest([table(single)], gated(2)) == []
    assert nearest([table((gated(2), single[1]))], gated(1)) == []
    assert len(nearest([table(single)], gated(1, activation="silu"))) == 1


def test_training_and_inference_are_measured_apart():
    assert nearest([table(LARGE)], gated(8192, training=True)) == []


def test_the_same_features_come_before_the_same_row_count():
    other = (gated(8192, k=832), {"expand=plain project=plain": 1.0, "expand=tma project=plain": 2.0})
    same = (gated(6000), {"expand=plain project=plain": 2.0, "expand=tma project=plain": 1.0})
    (_, first, _), (_, second, _) = nearest([table(other, same)], gated(8192))
    assert (first.m, second.m) == (6000, 8192)


def test_equal_times_are_decided_by_name():
    row = (gated(8192), {"expand=tma project=plain": 5.0, "expand=hopper project=plain": 5.0})
    plan = tabled(gated(8192), H200, [table(row)])
    assert plan is not None
    assert plan.expand.name == "hopper"


sizes = st.sampled_from([1, 8, 16, 17, 64, 512, 777, 4096, 8192, 14336, 28672])
problems = st.builds(
    gated,
    sizes,
    sizes,
    sizes,
    training=st.booleans(),
    dtype=st.sampled_from(["bfloat16", "float16", "float32"]),
    activation=st.sampled_from(["gelu", "silu"]),
    precision=st.sampled_from(["exact", "fast"]),
)


@given(st.lists(problems, max_size=6), problems)
def test_look_up_is_deterministic_prefers_the_exact_row_and_stays_within_limits(measured, asked):
    costs = {"expand=plain project=plain": 2.0, "expand=elementwise project=plain": 1.0}
    whole = table(*((problem, costs) for problem in measured))
    found = nearest([whole], asked)
    assert found == nearest([whole], asked)
    if asked in measured:
        assert found[0][2] == 0.0
    for _, row, distance in found:
        assert row.training == asked.training
        assert max(row.m, asked.m) <= 2 * min(row.m, asked.m)
        assert distance >= 0
    plan = choose(asked, H200, [whole])
    assert plan.source == ("table" if found else "model")


def test_a_table_written_is_the_table_read(tmp_path: Path):
    path = tmp_path / "sm_90_test.json"
    written = write_table(path, "sm_90", "NVIDIA H200", VERSIONS, [SMALL, LARGE])
    assert read_table(path) == written
    document = json.loads(path.read_text())
    assert document["versions"] == VERSIONS
    assert [row["m"] for row in document["rows"]] == [16, 8192]
    assert document["rows"][1]["best"] == "expand=hopper project=plain"
    assert len(path.read_text().splitlines()) == 14  # one line a row, so that changes can be read


def test_a_table_without_rows_can_be_written(tmp_path: Path):
    path = tmp_path / "sm_90_test.json"
    write_table(path, "sm_90", "NVIDIA H200", {}, [])
    assert read_table(path).rows == ()


@pytest.mark.parametrize(
    "costs",
    [{}, {"expand=tma project=plain": 0.0}, {"expand=tma": float("nan")}, {"tma": 3.0}, {"expand=tma": "fast"}],
)
def test_costs_that_cannot_be_are_not_written(tmp_path: Path, costs):
    with pytest.raises(InputError):
        write_table(tmp_path / "t.json", "sm_90", "NVIDIA H200", {}, [(gated(8192), costs)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema": 2, "rows": []}', '{"schema": 1, "architecture": "sm_90", "device": "x", "rows": [{}]}'],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "sm_90_bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match="sm_90_bad"):
        read_table(path)


def test_every_shipped_table_can_be_read():
    for path in FOLDER.glob("*.json"):
        found = read_table(path)
        assert path.name.startswith(f"{found.architecture}_")


def test_an_architecture_without_tables_has_none():
    assert shipped("sm_42") == ()
