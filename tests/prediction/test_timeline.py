"""The predicted timeline: nesting, launches, the stream, and what the profiler would have written beside them."""

from collections import Counter
from dataclasses import replace

import pytest

from foretrace.knowledge.gpus import all_gpus, find
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.launching import HANDOVER_US, START_LATENCY_US
from foretrace.prediction.timeline import kineto_type, lay_out
from foretrace.prediction.work import Operator, Program
from foretrace.trace.load import parse
from foretrace.trace.writer import encode_trace
from prediction.programs import H200, Roofline, geglu, pointwise, tensor


def traced(program, clock=None):
    clock = clock or Roofline()
    plans = clock.schedule(program, H200)
    timeline = lay_out(program, H200, plans, host_us=clock.host_us, launch_us=clock.launch_us(H200))
    return timeline, parse(encode_trace(timeline.events, timeline.meta))


def alone(*roots: Operator) -> Program:
    return Program("p", list(roots), "eager", "forward", {})


def one_gelu(out: int = 2) -> Operator:
    return pointwise("aten::gelu", (tensor(8192, 8192, storage=1),), out)


def test_an_operator_spends_half_its_time_before_its_launch_and_half_after():
    timeline, trace = traced(alone(one_gelu()), Roofline(host_us=6.0, launch_us=2.0))
    (step,) = trace.steps
    (op,) = trace.rows(RowKind.OPERATOR)
    (call,) = trace.rows(RowKind.CALL)
    assert timeline.cpu_us == 8.0
    assert (step.label, step.end - step.start) == ("ProfilerStep#0", 8_000)
    assert (trace.start_us(op), trace.duration[op]) == (0.0, 8_000)
    assert (trace.name(call), trace.start_us(call), trace.duration[call]) == ("cudaLaunchKernel", 3.0, 2_000)


def test_a_row_starts_when_its_launch_has_arrived_or_the_row_before_it_has_ended():
    _, trace = traced(alone(one_gelu(), one_gelu(3)), Roofline(host_us=6.0, launch_us=2.0))
    first, second = trace.gpu_rows.tolist()
    assert trace.start_us(first) == 3.0 + 2.0 + START_LATENCY_US
    assert trace.start[second] - trace.end[first] == round(HANDOVER_US * 1000)


def test_a_slow_cpu_leaves_the_gpu_idle():
    _, trace = traced(alone(one_gelu(), one_gelu(3)), Roofline(host_us=1000.0, launch_us=2.0))
    second = trace.gpu_rows.tolist()[1]
    launch = trace.links.launch[second]
    assert trace.start[second] - trace.end[launch] == round(START_LATENCY_US * 1000)


def test_every_gpu_row_has_a_launch_and_every_launch_an_arrow():
    timeline, trace = traced(geglu(), Roofline(memset=True))
    assert Counter(trace.kind[trace.gpu_rows].tolist()) == {RowKind.KERNEL: 5, RowKind.MEMSET: 3}
    assert (trace.links.launch[trace.gpu_rows] >= 0).all()
    calls = Counter(trace.name(row) for row in trace.rows(RowKind.CALL).tolist())
    assert calls == {"cudaLaunchKernel": 5, "cudaMemsetAsync": 3}
    ends = Counter((event["ph"], event["id"]) for event in timeline.events if event.get("cat") == "ac2g")
    assert ends == {(end, number): 1 for end in "sf" for number in range(1, 9)}


def test_rows_name_the_position_of_each_planned_row():
    clock = Roofline(memset=True)
    timeline, _ = traced(geglu(), clock)
    planned = [row for plan in clock.schedule(geglu(), H200) for row in plan]
    assert [timeline.events[at]["name"] for at in timeline.rows] == [row.name for row in planned]
    assert [timeline.events[at]["dur"] for at in timeline.rows] == [round(row.us, 3) for row in planned]


def test_operands_are_written_as_the_profiler_writes_them():
    timeline, _ = traced(geglu())
    mm = next(event for event in timeline.events if event["name"] == "aten::mm")
    assert mm["args"]["Input Dims"] == [[8192, 768], [768, 3072]]
    assert mm["args"]["Input Strides"] == [[768, 1], [1, 768]]
    assert mm["args"]["Input type"] == ["c10::BFloat16", "c10::BFloat16"]
    linear = next(event for event in timeline.events if event["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][2] == []
    assert linear["args"]["Input type"][2] == ""


def test_work_that_an_inner_operator_asks_for_hangs_below_a_row_of_its_name():
    inner = replace(one_gelu().work[0], op="aten::copy_", kind="copy")
    _, trace = traced(alone(Operator("aten::mm", work=[inner])))
    (row,) = trace.gpu_rows.tolist()
    owner = int(trace.links.op[row])
    assert trace.name(owner) == "aten::copy_"
    assert trace.name(int(trace.forest.parent[owner])) == "aten::mm"


def test_scalar_arguments_are_written_where_they_are_known():
    node = Operator("aten::sum", (tensor(4, 8, storage=1), None, None, None), concrete=("", "[1]", "False", ""))
    timeline, _ = traced(alone(node))
    args = next(event for event in timeline.events if event["name"] == "aten::sum")["args"]
    assert args["Concrete Inputs"] == ["", "[1]", "False", ""]
    assert args["Input type"] == ["c10::BFloat16", "ScalarList", "Scalar", ""]


@pytest.mark.parametrize(
    ("name", "written"),
    [("bf16", "c10::BFloat16"), ("fp32", "float"), ("fp16", "c10::Half"), ("bool", "bool"), ("int64", "long")],
)
def test_element_types_are_those_of_cpp(name, written):
    assert kineto_type(name) == written


def test_an_annotation_costs_nothing_and_spans_its_work_on_the_stream():
    timeline, trace = traced(geglu())
    assert trace.duration[trace.steps[0].row] == 1000 * timeline.cpu_us
    mirrored = next(event for event in timeline.events if event.get("cat") == "gpu_user_annotation")
    first, last = (timeline.events[timeline.rows[at]] for at in (0, -1))
    assert mirrored["name"] == "mlp_fwd"
    assert mirrored["ts"] == first["ts"]
    assert mirrored["ts"] + mirrored["dur"] == pytest.approx(last["ts"] + last["dur"])


def test_the_backward_pass_runs_on_autograds_thread_tied_to_its_forward_operators():
    forward = Operator("aten::gelu", (tensor(8, storage=1),), sequence=7)
    backward = Operator(
        "autograd::engine::evaluate_function: GeluBackward0",
        children=[Operator("GeluBackward0", sequence=7, phase="backward")],
        phase="backward",
        sequence=7,
    )
    _, trace = traced(alone(forward, backward))
    lanes = {trace.name(row): trace.lanes[trace.lane[row]].tid for row in trace.rows(RowKind.OPERATOR).tolist()}
    assert lanes["aten::gelu"] != lanes["GeluBackward0"]
    assert sorted((category, number, begins) for category, number, begins, _, _ in trace.flows) == [
        ("fwdbwd", 7, False),
        ("fwdbwd", 7, True),
    ]
    assert sorted(trace.sequence[trace.rows(RowKind.OPERATOR)].tolist()) == [7, 7, 7]


def test_a_plan_of_other_work_is_refused():
    with pytest.raises(ValueError, match="5 items of work and the plan 4"):
        lay_out(geglu(), H200, Roofline().schedule(geglu(), H200)[:-1], host_us=lambda _: 1.0, launch_us=1.0)


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_the_device_a_timeline_names_is_found_again(gpu):
    meta = lay_out(alone(), gpu, [], host_us=lambda _: 1.0, launch_us=1.0).meta
    (device,) = meta["deviceProperties"]
    found = find(device["name"], sms=device["numSms"], memory_bytes=device["totalGlobalMem"])
    assert found is gpu
