"""Rates of operators that ran on the CPU."""

import pytest

from builders import TraceBuilder
from foretrace.analysis import explain


def cpu_trace() -> TraceBuilder:
    build = TraceBuilder(gpu=None)
    build.op("aten::linear", 0, 1010, shapes=[[100, 200], [300, 200], []], dtypes=["float", "float", ""])
    build.op(
        "aten::mm", 5, 1000, shapes=[[100, 200], [200, 300]], dtypes=["float", "float"], strides=[[200, 1], [1, 200]]
    )
    build.op("aten::gelu", 1100, 500, shapes=[[100, 300], []], dtypes=["float", ""], strides=[[300, 1], []])
    return build


def test_operators_of_a_cpu_trace_have_their_rates():
    operators = {o.name: o for o in explain(cpu_trace().trace()).operators}
    assert operators["aten::mm"].cpu_gflops == pytest.approx(2 * 100 * 200 * 300 / 1e-3 / 1e9)
    assert operators["aten::gelu"].cpu_gflops is None
    assert operators["aten::gelu"].cpu_gbps == pytest.approx(2 * 100 * 300 * 4 / 500e-6 / 1e9)
    assert operators["aten::linear"].cpu_gflops is None, "the product inside did the work"


def test_the_finding_names_the_operators_that_took_the_time():
    (finding,) = [f for f in explain(cpu_trace().trace()).findings if f.rule == "cpu_work"]
    assert finding.title == "99% of the CPU operators' time: mm at 12 GFLOP/s, gelu at 0.48 GB/s"
    assert {e.name for e in finding.evidence} == {"aten::mm", "aten::gelu"}


def test_a_trace_with_gpu_work_has_no_cpu_rates():
    build = cpu_trace()
    build.kernel("k", 20, 5, launch=build.launch(10))
    report = explain(build.trace())
    assert all(o.cpu_gflops is None and o.cpu_gbps is None for o in report.operators)
    assert not [f for f in report.findings if f.rule == "cpu_work"]
