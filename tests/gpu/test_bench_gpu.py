"""``foretrace bench`` on a real GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from gpu_helpers import Run

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="torch.compile on a GPU needs Triton"
)


def document(done: Any, code: int = 0) -> dict[str, Any]:
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def by_name(bench: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["name"]: result for result in bench["variants"]}


@needs_triton
def test_the_mlp_compiled_is_faster_right_and_no_faster_than_the_device(foretrace: Run) -> None:
    bench = document(foretrace("bench", "mlp", "--json"))
    eager, compiled = bench["variants"]
    assert bench["method"] == "cuda_events"
    assert eager["state"] == compiled["state"] == "ok"
    assert compiled["difference"] == "faster"
    assert 0.7 < compiled["ratio"]["median"] < 1
    # Three products of 2·8192·768·3072, and operands in bf16.
    assert bench["work"]["flops"] == 3 * 2 * 8192 * 768 * 3072
    assert bench["work"]["bytes_read"] == 2 * (3 * 768 * 3072 + 8192 * 768)
    assert bench["work"]["bytes_written"] == 2 * 8192 * 768
    assert bench["work"]["floor_by"] == "compute"
    assert compiled["of_floor"] < eager["of_floor"]
    assert compiled["of_floor"] > 0.9
    # The intermediates are 8192·3072 numbers of two bytes; eager holds three of them, compiled two or three.
    assert eager["peak_memory_bytes"] > bench["work"]["bytes_read"] + 2 * 2 * 8192 * 3072
    assert compiled["peak_memory_bytes"] <= eager["peak_memory_bytes"]
    assert compiled["setup_us"] > 50_000
    assert bench["compiler_start_us"] > 50_000
    assert compiled["pays_after"]["state"] == "after"
    assert compiled["pays_after"]["calls"] > 100


def test_the_limits_are_those_of_a_gpu(foretrace: Run) -> None:
    bench = document(foretrace("bench", "linear", "--variant", "eager", "--json"))
    (gemm,) = bench["limits"]["gemm"]
    assert gemm["dtype"] == "bf16"
    assert gemm["tflops"] > 10
    assert bench["limits"]["copy"]["gbps"] > 100
    load = bench["load"]
    assert load["sm_clock_mhz"] or load["missing"]["sm_clock_mhz"]
    # The host sets the pace of so small a step, and a flush would hide it.
    assert bench["flush"]["on"] is False
    assert bench["variants"][0]["of_floor"] > 2


def test_a_flush_can_be_asked_for(foretrace: Run) -> None:
    bench = document(foretrace("bench", "matmul-add", "--variant", "eager", "--flush-l2", "--json"))
    assert bench["flush"]["on"] is True
    assert bench["flush"]["bytes"] > 1_000_000


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_a_graph_replays_the_same_results_in_less_time(foretrace: Run, mode: str) -> None:
    words = ["bench", "linear", "--variant", "eager", "--cuda-graph", "--no-flush-l2", "--mode", mode, "--json"]
    found = by_name(document(foretrace(*words)))
    graph = found["eager + graph"]
    assert graph["state"] == "ok", graph["reason"]
    assert graph["ratio"]["median"] < 1
    assert graph["check"]["relative_error"] == pytest.approx(found["eager"]["check"]["relative_error"], rel=0.2)
    names = {item["name"] for item in graph["check"]["tensors"]}
    assert ("gradient of weight" in names) is (mode == "train")


def test_what_cannot_be_captured_says_why_and_the_rest_goes_on(tmp_path: Path, foretrace: Run) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "def step(x):\n"
        "    y = x @ x\n"
        "    return y * 2 if y.sum().item() > 0 else y\n"
        "def make(): return step, torch.ones(256, 256)\n"
    )
    found = by_name(document(foretrace("bench", "model.py:make", "--variant", "eager", "--cuda-graph", "--json")))
    assert found["eager"]["state"] == "ok"
    assert found["eager + graph"]["state"] == "failed"
    assert "captured" in found["eager + graph"]["reason"]


def test_after_a_failed_capture_random_numbers_and_graphs_still_work(python: Run) -> None:
    code = """
import torch
from foretrace.errors import CaptureError
from foretrace.timing.graphs import capture_graph
x = torch.ones(64, 64, device="cuda")
stream = torch.cuda.current_stream()
try:
    capture_graph(lambda: (x @ x).sum().item(), "cuda")
except CaptureError as error:
    print(error)
assert torch.cuda.current_stream() == stream
torch.randn(8, device="cuda").sum().item()
replay, result = capture_graph(lambda: x + torch.rand(64, 64, device="cuda"), "cuda")
replay()
print(bool((result > 1).any()))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "cannot be captured" in done.stdout
    assert done.stdout.splitlines()[-1] == "True"


def test_a_graph_keeps_what_only_its_call_held(python: Run) -> None:
    """Freed operands would be read again, or taken from under it: the next capture empties the allocator's cache."""
    code = """
import gc, torch
from foretrace.timing.graphs import capture_graph
def double(value):
    held = torch.full((1 << 22,), value, device="cuda")
    return lambda: held * 2
replay, result = capture_graph(double(3.0), "cuda")
gc.collect()
torch.cuda.empty_cache()
other = torch.zeros(1 << 22, device="cuda")
replay()
print(bool((result == 6).all()), bool((other == 0).all()))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True"]


@needs_triton
def test_training_and_reduce_overhead(foretrace: Run) -> None:
    words = ["--variant", "eager", "--variant", "compile", "--variant", "compile-reduce-overhead"]
    bench = document(foretrace("bench", "mlp", "--batch", "4", *words, "--mode", "train", "--cuda-graph", "--json"))
    found = by_name(bench)
    for name in ("eager", "compile", "compile-reduce-overhead"):
        assert found[name]["state"] == "ok", found[name]["reason"]
        assert any(item["name"].startswith("gradient of") for item in found[name]["check"]["tensors"])
    assert "by itself" in found["compile-reduce-overhead + graph"]["reason"]


@needs_triton
def test_dynamic_shapes_need_few_compiles(foretrace: Run) -> None:
    sweep = ["--sweep", "batch=2,4,8,1", "--sweep", "seq=64,128"]
    bench = document(foretrace("bench", "mlp", "--variant", "compile", *sweep, "--json"))
    assert len(bench["sweep"]["shapes"]) == 8
    assert bench["sweep"]["totals"][0]["compiles"] == 4
