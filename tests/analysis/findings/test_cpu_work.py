"""Programs without a GPU: the rates of their operators, and their waits for data."""

import pytest
from timeline import found, work

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
    assert finding.title == "99.3 % of the CPU operators' time: mm at 12.0 GFLOP/s, gelu at 0.480 GB/s"
    assert {e.name for e in finding.evidence} == {"aten::mm", "aten::gelu"}


def test_a_trace_with_gpu_work_has_no_cpu_rates():
    build = cpu_trace()
    build.kernel("k", 20, 5, launch=build.launch(10))
    report = explain(build.trace())
    assert all(o.cpu_gflops is None and o.cpu_gbps is None for o in report.operators)
    assert not [f for f in report.findings if f.rule == "cpu_work"]


def test_a_trace_that_lost_its_gpu_part_has_no_cpu_rates():
    build = cpu_trace()
    build.launch(10)
    assert not found(build, "cpu_work")


def test_operators_of_little_time_are_not_named():
    build = TraceBuilder(gpu=None)
    build.op("mine::search", 0, 9700, shapes=[[1000]], dtypes=["float"])
    build.op("aten::gelu", 9800, 300, shapes=[[1000, 1000], []], dtypes=["float", ""], strides=[[1000, 1], []])
    assert not found(build, "cpu_work"), "3% of the time, and the rate of mine::search is not known"


def test_the_rate_of_a_tiny_call_is_not_the_machines():
    build = TraceBuilder(gpu=None)
    build.op("aten::mm", 0, 500, shapes=[[8, 8], [8, 8]], dtypes=["float", "float"], strides=[[8, 1], [8, 1]])
    build.op("aten::gelu", 600, 500, shapes=[[1000, 1000], []], dtypes=["float", ""], strides=[[1000, 1], []])
    (finding,) = found(build, "cpu_work")
    assert finding.title == "100 % of the CPU operators' time: gelu at 16.0 GB/s, mm"
    assert "No rate is given for mm: at 1.024 kFLOP a call" in finding.explanation


def test_compiled_graphs_count_as_one_part_without_a_rate():
    build = cpu_trace()
    for at, graph in ((2000, "fabc"), (2500, "fdef")):
        build.annotation(f"## Call CompiledFxGraph {graph} ##", at, 400)
    (finding,) = found(build, "cpu_work")
    assert (
        finding.title
        == "99.6 % of the CPU operators' time: mm at 12.0 GFLOP/s, compiled graph code, gelu at 0.480 GB/s"
    )
    assert "it has no rate" in finding.explanation
    assert len(finding.evidence) == 4


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loading(*, wait: float, early: float = 0.0, **place) -> TraceBuilder:
    """Three steps of 1 ms that begin with a wait for data, of which ``early`` µs are before the step's annotation."""
    build = TraceBuilder(gpu=None)
    for number in range(3):
        at = 100 + 1000 * number
        build.annotation(LOADER, at, wait, **place)
        build.step(number, at + early, 1000 - early)
        build.op("aten::mm", at + wait, 900 - wait)
    return build


def test_a_cpu_program_that_waits_for_data_is_told_so():
    (finding,) = found(loading(wait=800), "cpu_data_loading")
    assert finding.title == "Waiting for data takes 800 µs a step: 80.0 % of it"
    assert finding.severity == "warning"
    assert finding.saving_us == pytest.approx(800)
    assert finding.upper_bound
    assert finding.evidence[0].name == LOADER
    assert "num_workers" in (finding.suggestion or "")


def test_a_wait_that_begins_before_the_steps_annotation_counts_to_the_period_it_lies_in():
    (finding,) = found(loading(wait=800, early=300), "cpu_data_loading")
    # 500 µs are inside each of three steps, 300 µs between two of them, which is the period of the earlier one.
    assert finding.saving_us == pytest.approx((3 * 500 + 2 * 300) / 3)


def test_a_short_wait_for_data_is_not_told():
    assert not found(loading(wait=90), "cpu_data_loading")
    assert found(loading(wait=110), "cpu_data_loading")


def test_loading_on_another_thread_holds_up_nothing():
    assert not found(loading(wait=800, tid=200), "cpu_data_loading")


def test_without_steps_a_wait_is_told_but_no_saving():
    build = TraceBuilder(gpu=None)
    build.annotation(LOADER, 0, 800)
    build.op("aten::mm", 800, 200)
    (finding,) = found(build, "cpu_data_loading")
    assert finding.title == "Waiting for data takes 800 µs in this trace: 80.0 % of it"
    assert finding.saving_us is None


def test_with_gpu_work_waits_for_data_are_idle_time():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    build.annotation(LOADER, 10, 800)
    work(build, "aten::mm", 850, runs=50)
    assert not found(build, "cpu_data_loading")
