"""Where GPU work comes from: step, operator, phase, module."""

from __future__ import annotations

from builders import TraceBuilder
from foretrace.analysis.attribution import attribute


def of(build: TraceBuilder):
    """Kernel name → (step, operator, phase, module)."""
    trace = build.trace()
    found = attribute(trace)
    return {
        trace.name(row): (
            int(found.step[row]),
            trace.name(int(found.op[row])) if found.op[row] >= 0 else None,
            found.phase.get(row),
            found.module.get(row),
        )
        for row in trace.gpu_rows.tolist()
    }


def test_a_kernel_belongs_to_the_step_of_its_launch():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 80, 15)
    build.kernel("late", 150, 20, launch=build.launch(85))  # runs in step 2, launched in step 1
    build.step(2, 110, 100)
    assert of(build)["late"][:2] == (0, "aten::mm")


def test_a_launch_outside_every_step_belongs_to_none():
    build = TraceBuilder()
    build.kernel("before", 20, 5, launch=build.launch(10))
    build.step(1, 100, 100)
    build.kernel("inside", 120, 5, launch=build.launch(110))
    build.kernel("unlinked", 130, 5)
    steps = {name: found[0] for name, found in of(build).items()}
    assert steps == {"before": -1, "inside": 0, "unlinked": -1}


def test_without_steps_everything_belongs_to_the_whole_trace():
    build = TraceBuilder()
    build.kernel("linked", 20, 5, launch=build.launch(10))
    build.kernel("unlinked", 130, 5)
    assert {found[0] for found in of(build).values()} == {0}


def test_the_innermost_operator_is_named():
    build = TraceBuilder()
    build.op("aten::linear", 0, 50)
    build.op("aten::addmm", 10, 30)
    build.kernel("gemm", 60, 5, launch=build.launch(20))
    assert of(build)["gemm"][1] == "aten::addmm"


def test_rows_of_a_graph_have_no_operator():
    build = TraceBuilder()
    build.op("Torch-Compiled Region: 0/0", 0, 50)
    graph = build.call("cudaGraphLaunch", 10)
    build.kernel("node", 60, 5, launch=graph)
    assert of(build)["node"][1] is None


def training() -> TraceBuilder:
    build = TraceBuilder()
    build.step(1, 0, 1000)
    build.python("nn.Module: Linear_3", 5, 60)
    build.op("aten::mm", 10, 30, sequence=17)
    build.kernel("forward", 50, 5, launch=build.launch(15))
    build.op("autograd::engine::evaluate_function: MmBackward0", 300, 100, sequence=17, tid=9)
    build.op("MmBackward0", 310, 80, sequence=17, tid=9)
    build.op("aten::mm", 320, 30, tid=9)
    build.kernel("backward", 350, 5, launch=build.launch(325, tid=9))
    build.annotation("Optimizer.step#AdamW.step", 500, 100)
    build.op("aten::_fused_adamw_", 510, 50)
    build.kernel("optimizer", 600, 5, launch=build.launch(520))
    build.kernel("after", 800, 5, launch=build.launch(700))
    return build


def test_phases():
    phases = {name: found[2] for name, found in of(training()).items()}
    assert phases == {"forward": "forward", "backward": "backward", "optimizer": "optimizer", "after": None}


def test_a_backward_kernel_belongs_to_the_module_of_its_forward_operator():
    modules = {name: found[3] for name, found in of(training()).items()}
    assert modules["forward"] == modules["backward"] == "Linear_3"
    assert modules["optimizer"] is None


def test_a_forward_only_trace_has_no_phases():
    build = TraceBuilder()
    build.op("aten::mm", 10, 30)
    build.kernel("gemm", 50, 5, launch=build.launch(15))
    assert of(build)["gemm"][2] is None
