"""Compiled regions, graph breaks, recompilation."""

from __future__ import annotations

import pytest
from timeline import found, found_in, work

from builders import TraceBuilder

HASH = "fabcdefghijklmnopqrstuvwxyz"


def region(build: TraceBuilder, name: str, at: float, *, length: float = 90.0, hash: str = HASH) -> None:
    """One call of compiled code: lookup, region, graph, one kernel."""
    build.op("TorchDynamo Cache Lookup", at, 5)
    build.op(f"Torch-Compiled Region: {name}", at + 6, length)
    build.op("Pregraph bytecode", at + 7, 3)
    build.annotation(f"## Call CompiledFxGraph {hash} ##", at + 20, length - 20)
    work(build, "triton_poi_fused_gelu_0", at + 30, runs=30, kernel="triton_poi_fused_gelu_0")


def steps(*regions: str) -> TraceBuilder:
    """Two equal steps that call the regions one after the other."""
    build = TraceBuilder()
    for number in (1, 2):
        build.step(number, 1000 * number, 950)
        for i, name in enumerate(regions):
            region(build, name, 1000 * number + 10 + 120 * i)
    return build


def test_regions_are_listed_with_what_a_call_costs_outside_the_generated_code():
    (finding,) = found(steps("0/0"), "compiled_regions")
    assert finding.severity == "info"
    # 5 µs of lookup, and 20 of the region's 90 µs before the graph.
    assert finding.title == "1 compiled region of torch.compile; calling one costs 25.0 µs of CPU time"
    assert "fabcdefghijk…" in finding.explanation
    assert finding.count == 2


def test_one_region_is_no_break_and_no_recompile():
    build = steps("0/0")
    assert found(build, "graph_break") == found(build, "recompile") == []


def test_two_frames_in_a_step_are_a_graph_break_or_parts_compiled_apart():
    build = steps("0/0", "1/0")
    work(build, "aten::nonzero", 1112, runs=2)
    (finding,) = found(build, "graph_break")
    assert finding.title.startswith("2 compiled frames run in one step")
    assert "aten::nonzero" in finding.explanation
    assert found(build, "recompile") == []


def test_after_a_graph_break_the_rest_runs_inside_the_first_region():
    """As torch 2.13 writes it: item() breaks the graph of frame 0, and frame 1 is called from within."""
    build = TraceBuilder()
    for number in (1, 2):
        at = 1000 * number
        build.step(number, at, 900)
        build.op("TorchDynamo Cache Lookup", at + 10, 10)
        build.op("Torch-Compiled Region: 0/0", at + 20, 300)
        build.op("Pregraph bytecode", at + 25, 5)
        build.annotation(f"## Call CompiledFxGraph {HASH} ##", at + 40, 100)
        build.op("aten::mm", at + 50, 40)
        build.op("aten::item", at + 180, 10)
        build.op("aten::_local_scalar_dense", at + 182, 5)
        build.op("TorchDynamo Cache Lookup", at + 200, 10)
        build.op("Torch-Compiled Region: 1/0", at + 215, 90)
        build.op("Pregraph bytecode", at + 220, 5)
        build.annotation("## Call CompiledFxGraph other ##", at + 230, 60)
    (finding,) = found(build, "graph_break")
    assert finding.title.startswith("2 compiled frames run in one step")
    assert "between them aten::item ran eagerly (2 calls)" in finding.explanation
    (regions,) = found(build, "compiled_regions")
    # 0/0: 85 µs of its own and 5 of bytecode; 1/0: 25 and 5; the median of both, and 10 of lookup.
    assert regions.title == "2 compiled regions of torch.compile; calling one costs 70.0 µs of CPU time"


def test_a_compiled_function_of_a_training_step_is_no_region_of_its_own():
    build = TraceBuilder()
    build.step(1, 0, 900)
    build.op("Torch-Compiled Region: 0/0", 20, 300)
    build.op("CompiledFunction", 40, 250)
    (finding,) = found(build, "compiled_regions")
    assert finding.count == 1
    assert found(build, "graph_break") == []


def test_the_same_frame_called_again_is_no_break():
    assert found(steps("0/0", "0/0", "0/0"), "graph_break") == []


def test_a_frame_that_changes_its_compilation_is_a_recompile():
    build = TraceBuilder()
    for number, name in enumerate(("0/0", "0/0", "0/1")):
        build.step(number, 1000 * number, 950)
        region(build, name, 1000 * number + 10)
    (finding,) = found(build, "recompile")
    assert finding.severity == "warning"
    assert "0/0, 0/1" in finding.explanation
    assert "quote no speed-up" in finding.title


def test_a_later_compilation_that_stays_is_said_but_is_no_recompile():
    build = steps("0/1")
    assert found(build, "recompile") == []
    (finding,) = found(build, "compiled_regions")
    assert "0/1: not the first compilation of its frame" in finding.explanation


def test_compile_work_inside_a_step_is_a_recompile():
    build = steps("0/0")
    build.op("_compile.compile_inner", 1500, 300)
    build.op("backend_compile", 1550, 200)
    (finding,) = found(build, "recompile")
    assert "compilation took 300 µs" in finding.explanation
    assert finding.count == 1


def test_compile_work_before_the_steps_is_not():
    build = steps("0/0")
    build.op("_compile.compile_inner", 100, 300)
    assert found(build, "recompile") == []


@pytest.mark.parametrize("name", ["mlp_compile", "mlp_cudagraph", "linear_compile"])
def test_real_compiled_traces_have_one_region_and_nothing_else(name):
    (finding,) = found_in(name, "compiled_regions")
    assert finding.title.startswith("1 compiled region")
    assert found_in(name, "graph_break") == found_in(name, "recompile") == []


def test_eager_traces_have_none():
    assert found_in("mlp_eager", "compiled_regions") == []
