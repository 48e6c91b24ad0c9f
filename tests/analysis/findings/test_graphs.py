"""CUDA graph launches."""

from __future__ import annotations

from timeline import found, found_in

from builders import TraceBuilder


def test_a_graph_launch_says_what_it_replays_and_what_is_not_known():
    build = TraceBuilder()
    for number in (1, 2):
        at = number * 1000
        build.step(number, at, 900)
        graph = build.call("cudaGraphLaunch", at + 10, 30)
        build.memset(at + 50, 5, launch=graph)
        for i in range(3):
            build.kernel(f"node{i}", at + 60 + 100 * i, 90, launch=graph)
        plain = build.launch(at + 500)
        build.kernel("plain", at + 510, 275, launch=plain)
    (finding,) = found(build, "cuda_graph")
    assert finding.title.startswith("CUDA graph once a step: 3 kernels and 1 memset or copy each")
    assert finding.title.endswith("50.0 % of GPU time")
    assert finding.count == 2
    assert "at capture" in finding.explanation
    assert "eager twin" in finding.suggestion


def test_without_graph_launches_nothing_is_said():
    assert found_in("mlp_eager", "cuda_graph") == []


def test_real_trace_of_reduce_overhead():
    (finding,) = found_in("mlp_cudagraph", "cuda_graph")
    assert "4 kernels and 2 memsets or copies each" in finding.title
    assert [e.name for e in finding.evidence] == ["cudaGraphLaunch"] * 3
