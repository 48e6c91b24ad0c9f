"""The dispatch chain of one step as a folded tree."""

from __future__ import annotations

from builders import TraceBuilder
from foretrace.analysis import chain
from foretrace.analysis.chain import dispatch_chain, representative_step
from foretrace.analysis.context import Context
from foretrace.analysis.steps import step_reports


def lines(nodes, depth=0):
    """The tree as text: kind, name, count, µs."""
    said = []
    for node in nodes:
        said.append(f"{'  ' * depth}{node.kind} {node.name} ×{node.count} {node.us}")
        said += lines(node.children, depth + 1)
    return said


def tree(build: TraceBuilder, index: int = 0):
    return lines(dispatch_chain(Context(trace=build.trace()), index))


def test_operator_launch_kernel():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::linear", 10, 60)
    build.op("aten::t", 12, 5)
    build.op("aten::addmm", 20, 40)
    build.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 22, 2)
    build.call("cudaGetLastError", 25, 1)
    build.kernel("gemm", 50, 30, launch=build.launch(30))
    assert tree(build) == [
        "annotation ProfilerStep#1 ×1 100.0",
        "  operator aten::linear ×1 60.0",
        "    operator aten::t ×1 5.0",
        "    operator aten::addmm ×1 40.0",
        "      call cudaOccupancyMaxActiveBlocksPerMultiprocessor ×1 2.0",
        "      launch cudaLaunchKernel ×1 5.0",
        "        kernel gemm ×1 30.0",
    ]


def test_equal_neighbours_are_folded_and_their_times_added():
    build = TraceBuilder()
    build.step(1, 0, 500)
    for i in range(3):
        build.op("aten::mul", 10 + 100 * i, 50)
        build.kernel("mul_kernel", 30 + 100 * i, 20 + i, launch=build.launch(15 + 100 * i))
    build.op("aten::add", 400, 10)
    assert tree(build) == [
        "annotation ProfilerStep#1 ×1 500.0",
        "  operator aten::mul ×3 150.0",
        "    launch cudaLaunchKernel ×1 15.0",
        "      kernel mul_kernel ×1 63.0",
        "  operator aten::add ×1 10.0",
    ]


def test_neighbours_that_launch_something_else_are_kept_apart():
    build = TraceBuilder()
    build.step(1, 0, 500)
    for i, kernel in enumerate(("tiny", "tiny", "split")):
        build.op("aten::mm", 10 + 100 * i, 50)
        build.kernel(kernel, 30 + 100 * i, 20, launch=build.launch(15 + 100 * i))
    assert [line for line in tree(build) if "aten::mm" in line] == [
        "  operator aten::mm ×2 100.0",
        "  operator aten::mm ×1 50.0",
    ]


def test_python_frames_are_transparent():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.python("model.py(3): forward", 5, 80)
    build.python("nn.Module: Linear_0", 6, 70)
    build.op("aten::mm", 10, 40)
    assert tree(build)[1:] == ["  operator aten::mm ×1 40.0"]


def test_a_python_frame_around_everything_hides_nothing():
    build = TraceBuilder()
    build.python("train.py(1): <module>", 0, 100)
    build.op("aten::mm", 10, 40)
    build.op("aten::add", 60, 20)
    assert tree(build) == ["operator aten::mm ×1 40.0", "operator aten::add ×1 20.0"]


def test_nesting_beyond_reason_is_cut_not_fatal():
    build = TraceBuilder()
    build.step(1, 0, 20_000)
    for i in range(3000):
        build.op("aten::deeper", i + 1, 15_000 - 2 * i)
    assert tree(build)[-1].strip().startswith("operator … deeper")


def test_work_of_other_threads_and_without_launch_belongs_to_the_step():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("MmBackward0", 20, 30, tid=9)
    build.op("elsewhere", 300, 30, tid=9)
    assert tree(build) == ["annotation ProfilerStep#1 ×1 100.0", "operator MmBackward0 ×1 30.0"]


def test_kernels_without_a_launch_are_shown_where_the_trace_has_no_steps():
    build = TraceBuilder()
    build.op("aten::mm", 0, 50)
    build.kernel("orphan", 60, 10)
    assert tree(build) == ["operator aten::mm ×1 50.0", "kernel orphan ×1 10.0"]


def test_a_graph_launch_holds_its_nodes():
    build = TraceBuilder()
    build.step(1, 0, 100)
    graph = build.call("cudaGraphLaunch", 10)
    for i in range(3):
        build.kernel("node", 20 + 10 * i, 8, launch=graph)
    assert tree(build)[1:] == ["  launch cudaGraphLaunch ×1 5.0", "    kernel node ×3 24.0"]


def test_a_tree_too_long_to_read_is_cut_and_says_how_much(monkeypatch):
    monkeypatch.setattr(chain, "_NODES", 10)
    build = TraceBuilder()
    build.step(1, 0, 5000)
    for i in range(40):
        build.op(f"aten::op{i}", 10 + 100 * i, 50)
    found = tree(build)
    assert len(found) == 11
    assert found[-1].strip() == "operator … 31 more ×1 None"


def test_the_median_step_is_shown():
    build = TraceBuilder()
    at = 0
    for number, length in enumerate((900, 300, 310, 290)):
        build.step(number, at, length)
        build.kernel("k", at + 20, 5, launch=build.launch(at + 5))
        at += length
    steps, _ = step_reports(Context(trace=build.trace()))
    assert representative_step(steps) in (1, 2)
