"""The operator table: calls, self and total CPU time, GPU time counted once."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import explain
from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.analysis.operators import operator_table


def table(build: TraceBuilder, **options):
    return {o.name: o for o in listed(build, **options)}


def listed(build: TraceBuilder, **options):
    context = Context(trace=build.trace(), **options)
    return operator_table(context, KernelCosts(context))


def linear() -> TraceBuilder:
    build = TraceBuilder()
    build.step(1, 0, 200)
    build.op("aten::linear", 0, 100)
    build.op("aten::t", 5, 20)
    build.op("aten::transpose", 8, 10)
    build.op("aten::addmm", 30, 60)
    memset = build.call("cudaMemsetAsync", 40, 5)
    build.memset(95, 2, launch=memset)
    launch = build.launch(50, 10)
    build.kernel("gemm", 100, 40, launch=launch)
    build.gpu_annotation("step", 90, 60)
    return build


def test_self_time_leaves_out_what_runs_inside_calls_too():
    found = table(linear())
    assert (found["aten::linear"].cpu_us, found["aten::linear"].self_cpu_us) == (100, 20)
    assert (found["aten::t"].cpu_us, found["aten::t"].self_cpu_us) == (20, 10)
    assert found["aten::addmm"].self_cpu_us == 60 - 5 - 10


def test_gpu_time_is_kernels_copies_and_memsets_only():
    found = table(linear())
    assert (found["aten::addmm"].gpu_us, found["aten::addmm"].self_gpu_us, found["aten::addmm"].kernels) == (42, 42, 1)
    assert (found["aten::linear"].gpu_us, found["aten::linear"].self_gpu_us, found["aten::linear"].kernels) == (
        42,
        0,
        1,
    )
    assert found["aten::t"].gpu_us == 0
    assert sum(o.self_gpu_us for o in found.values()) == 42


def test_views_are_metadata_only():
    found = table(linear())
    assert {name for name, o in found.items() if o.metadata_only} == {"aten::t", "aten::transpose"}


def test_an_operator_inside_itself_counts_once_in_the_total():
    build = TraceBuilder()
    build.op("aten::sum", 0, 100)
    build.op("aten::sum", 10, 80)
    build.kernel("reduce", 100, 7, launch=build.launch(20, 10))
    found = table(build)["aten::sum"]
    assert (found.calls, found.cpu_us, found.gpu_us, found.kernels) == (2, 100, 7, 1)
    assert found.self_cpu_us == 20 + 70


def test_an_operator_may_run_inside_itself_through_another_one():
    build = TraceBuilder()
    build.op("aten::to", 0, 100)
    build.op("aten::copy_", 10, 80)
    build.op("aten::to", 20, 50)
    assert table(build)["aten::to"].cpu_us == 100


def test_without_gpu_rows_gpu_time_is_unknown():
    build = TraceBuilder()
    build.op("aten::mm", 0, 50)
    found = table(build)["aten::mm"]
    assert found.gpu_us is found.self_gpu_us is found.kernels is None
    assert found.cpu_us == 50


def test_most_gpu_time_comes_first():
    build = linear()
    build.op("aten::mul", 110, 20)
    build.kernel("mul", 150, 50, launch=build.launch(115))
    names = [o.name for o in listed(build)]
    assert names[:2] == ["aten::mul", "aten::addmm"]


@pytest.mark.parametrize(("selected", "calls"), [(None, 2), ([0], 1), ([1], 1)])
def test_selected_steps(selected, calls):
    build = linear()
    build.step(2, 300, 200)
    build.op("aten::addmm", 330, 60)
    build.kernel("gemm", 400, 40, launch=build.launch(340))
    assert table(build, selected=selected)["aten::addmm"].calls == calls


def test_a_trace_without_operators_has_an_empty_table():
    build = TraceBuilder()
    build.kernel("k", 20, 5, launch=build.launch(10))
    assert table(build) == {}


def test_on_the_cpu_an_operator_that_does_the_work_has_its_rate():
    build = TraceBuilder(gpu=None)
    operands = {"shapes": [[64, 32], [32, 16]], "dtypes": ["float", "float"]}
    build.op("aten::matmul", 0, 50, **operands)
    build.op("aten::mm", 1, 48, **operands)
    found = table(build)
    assert found["aten::mm"].cpu_gflops == pytest.approx(2 * 64 * 32 * 16 / 48_000)
    assert found["aten::matmul"].cpu_gflops is None  # its time is the other one's


def test_the_profilers_table_agrees_on_a_real_trace():
    """Calls and times that ``key_averages().table()`` printed in the same run."""
    trace = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"
    found = {o.name: o for o in explain(trace).operators}
    for name, calls, self_cpu, cpu, gpu in (
        ("aten::mm", 9, 286.142, 446.193, 502.304),
        ("aten::linear", 9, 34.432, 705.568, 502.304),
        ("aten::mul", 3, 48.640, 75.227, 110.526),
        ("aten::gelu", 3, 56.119, 86.902, 96.608),
        ("aten::transpose", 9, 37.331, 50.223, 0.0),
    ):
        operator = found[name]
        assert operator.calls == calls
        assert (operator.self_cpu_us, operator.cpu_us, operator.gpu_us) == pytest.approx((self_cpu, cpu, gpu), abs=0.01)
