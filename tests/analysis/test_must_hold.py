"""The numbers that must hold on the traces captured on an H200, whatever else changes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import explain
from foretrace.model.report import Report

TRACES = Path(__file__).parents[1] / "data" / "traces"


@lru_cache
def report(name: str) -> Report:
    return explain(TRACES / f"{name}.json.gz")


def kinds(name: str) -> list[list[str]]:
    """Kernel kinds of each step, in order."""
    found = report(name)
    return [[k.kind for k in found.kernels if k.step == s.index] for s in found.steps]


# mlp_eager: gate, gelu, up, mul, down


def test_mlp_eager_has_five_kernels_two_memsets_and_seven_launches_a_step():
    steps = report("mlp_eager").steps
    assert len(steps) == 3
    for step in steps:
        assert (step.kernels, step.memsets, step.memcpys) == (5, 2, 0)
        assert (step.launches, step.kernel_launches) == (7, 5)
        assert (step.occupancy_queries, step.synchronizations) == (0, 0)
    for found in kinds("mlp_eager"):
        assert sorted(found) == ["elementwise"] * 2 + ["gemm"] * 3


def test_mlp_eager_gemms():
    table = {(g.m, g.k, g.n): g for g in report("mlp_eager").gemms}
    assert set(table) == {(8192, 768, 3072), (8192, 3072, 768)}
    assert table[8192, 768, 3072].calls == 6  # gate and up, in three steps
    assert table[8192, 3072, 768].calls == 3
    for gemm in table.values():
        assert gemm.flops == 38_654_705_664
        assert gemm.layout == "TN"
        assert gemm.dtype == "bf16"
        assert gemm.epilogue == []
        assert 0.5 < gemm.of_peak < 1.0


def test_mlp_eager_intermediates_travel_through_memory():
    (trip,) = [f for f in report("mlp_eager").findings if f.rule == "hbm_round_trip"]
    assert "gelu" in trip.title
    assert "mul" in trip.title
    assert trip.saving_us == pytest.approx(31.8, rel=0.25)  # what torch.compile really saves


def test_the_saving_of_compile_is_what_the_two_traces_show():
    def pointwise(name: str) -> float:
        kernels = [k for k in report(name).kernels if k.kind in ("elementwise", "fused")]
        return sum(k.duration_us for k in kernels) / len(report(name).steps)

    assert pointwise("mlp_eager") - pointwise("mlp_compile") == pytest.approx(31.8, abs=0.5)


def test_mlp_eager_is_not_called_overhead_bound():
    assert report("mlp_eager").verdict.bound != "overhead"


def test_mlp_eager_memsets_belong_to_the_gemm_that_issued_them():
    assert {t.op for t in report("mlp_eager").transfers} == {"aten::mm"}


# mlp_compile


def test_mlp_compile_has_four_kernels_one_of_them_fused():
    for found in kinds("mlp_compile"):
        assert sorted(found) == ["fused"] + ["gemm"] * 3
    fused = {tuple(k.decoded["ops"]) for k in report("mlp_compile").kernels if k.kind == "fused"}
    assert fused == {("view", "gelu", "mul")}


def test_mlp_compile_runs_the_same_gemms_as_eager():
    def names(name: str) -> list[str]:
        return [k.name for k in report(name).kernels if k.kind == "gemm"]

    assert names("mlp_compile") == names("mlp_eager")


# linear_eager


def test_linear_eager_is_one_kernel_with_the_bias_in_its_epilogue():
    found = report("linear_eager")
    assert [s.kernels for s in found.steps] == [1, 1, 1]
    (gemm,) = found.gemms
    assert gemm.epilogue == ["bias"]
    assert (gemm.m, gemm.k, gemm.n) == (1024, 32, 64)


def test_linear_eager_views_are_metadata_only():
    operators = {o.name: o for o in report("linear_eager").operators}
    for name in ("aten::t", "aten::transpose", "aten::as_strided"):
        assert operators[name].metadata_only
        assert operators[name].gpu_us == 0
    assert not operators["aten::addmm"].metadata_only


# mlp_cudagraph


def test_mlp_cudagraph_tells_the_graph_from_the_copy_of_its_input():
    found = report("mlp_cudagraph")
    for step in found.steps:
        rows = [k for k in found.kernels if k.step == step.index]
        assert len(rows) == 5
        assert sum(k.graph for k in rows) == 4
        (own,) = [k for k in rows if not k.graph]
        assert (own.kind, own.op) == ("copy", "aten::_foreach_copy_")
        memsets = [t for t in found.transfers if t.step == step.index]
        assert [t.graph for t in memsets] == [True, True]
        assert step.launches == 2


def test_mlp_cudagraph_says_why_its_kernels_have_no_operators():
    found = report("mlp_cudagraph")
    assert {k.op for k in found.kernels if k.graph} == {None}
    assert any("captured" in warning for warning in found.trace.warnings)
    (graph,) = [f for f in found.findings if f.rule == "cuda_graph"]
    assert "at capture" in graph.explanation


# All of them


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda p: p.name)
def test_every_kernel_is_linked_and_counted(path):
    found = explain(path)
    assert found.coverage.kernels_linked == 1.0
    assert sum(g.calls for g in found.groups) == len(found.kernels)
    assert sum(g.total_us for g in found.groups) == pytest.approx(sum(k.duration_us for k in found.kernels))


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda p: p.name)
def test_findings_carry_evidence_and_fit_a_line(path):
    found = explain(path)
    for finding in found.findings:
        assert len(finding.title) <= 100
        assert "{" not in finding.title + finding.explanation + (finding.suggestion or "")
        assert finding.evidence or finding.rule == "missing_records"
        assert finding.saving_us is None or 0 < finding.saving_us < found.steps[0].period_us * 2


def test_an_empty_recording_has_no_step_of_zero_microseconds():
    report = explain(TraceBuilder(meta={"traceName": "empty.json"}).trace())
    assert (report.steps, report.chain, report.verdict.bound) == ([], [], "unknown")
