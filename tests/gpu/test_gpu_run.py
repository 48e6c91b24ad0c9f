"""``foretrace run`` on a real GPU."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path

import pytest
from gpu_helpers import Run, recorded, rows

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="torch.compile on a GPU needs Triton"
)


def test_the_eager_mlp_is_five_kernels_a_step(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", "--json"))
    assert item["trace"] == "traces/mlp/64_128_768_3072_eager.trace.json.gz"
    trace = tmp_path / item["trace"]
    kernels = rows(trace, "kernel")
    assert len(kernels) == 3 * 5
    assert sum("gelu" in kernel["name"].lower() for kernel in kernels) == 3
    assert "Input Dims" in rows(trace, "cpu_op")[0]["args"]
    annotations = [row["name"] for row in rows(trace, "user_annotation")]
    assert annotations.count("mlp_fwd") == 3
    assert [name for name in annotations if name.startswith("ProfilerStep#")] == [
        "ProfilerStep#2",
        "ProfilerStep#3",
        "ProfilerStep#4",
    ]


def test_the_side_file_holds_what_the_trace_lacks(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", "--json", "--seed", "3"))
    side = item["side"]
    assert side["device"] == "cuda"
    assert side["software"]["cuda_runtime"]
    (gpu, *_) = side["gpus"]
    assert gpu["name"]
    assert gpu["memory_bytes"] > 1e9
    assert gpu["sm_clock_mhz"] or side["missing"]["gpus.sm_clock_mhz"]
    assert side["software"]["driver"] or side["missing"]["software.driver"]
    # Parameters and inputs alone: 3 × 768·3072 and 64·128·768 numbers of two bytes.
    assert side["peak_memory_bytes"] > 2 * (3 * 768 * 3072 + 64 * 128 * 768)
    assert side["options"]["activities"] == ["CPU", "CUDA"]


def test_the_unprofiled_time_is_that_of_the_kernels(tmp_path: Path, foretrace: Run) -> None:
    # This MLP keeps a GPU busy, so a step takes what its kernels take, with small pauses between them.
    (item,) = recorded(foretrace("run", "mlp", "--json"))
    timing = item["side"]["unprofiled"]
    assert timing["method"] == "cuda_events"
    assert timing["runs"] >= 3
    kernels_us = sum(kernel["dur"] for kernel in rows(tmp_path / item["trace"], "kernel")) / 3
    assert 0.7 * kernels_us < timing["median_us"] < 2.0 * kernels_us
    assert timing["iqr_us"] < timing["median_us"]


@pytest.mark.parametrize(
    ("words", "annotation"),
    [
        (["matmul-add", "--size", "64"], "matmul_add"),
        (["linear"], "linear_fwd"),
        (["linear", "--dtype", "fp32"], "linear_fwd"),
    ],
)
def test_the_other_workloads(tmp_path: Path, foretrace: Run, words: list[str], annotation: str) -> None:
    (item,) = recorded(foretrace("run", *words, "--json"))
    trace = tmp_path / item["trace"]
    assert len(rows(trace, "kernel")) % 3 == 0
    assert len(rows(trace, "kernel")) >= 3
    assert sum(row["name"] == annotation for row in rows(trace, "user_annotation")) == 3


@needs_triton
def test_compiling_merges_the_pointwise_kernels(tmp_path: Path, foretrace: Run) -> None:
    eager, compiled = recorded(foretrace("run", "mlp", "--variant", "eager", "--compile", "--json"))
    kernels = rows(tmp_path / compiled["trace"], "kernel")
    assert len(kernels) == 3 * 4
    assert sum(kernel["name"].startswith("triton_") for kernel in kernels) == 3
    assert compiled["side"]["recompiles"] == 0
    assert compiled["side"]["first_call_us"] > 100_000  # compilation
    assert eager["side"]["recompiles"] is None


@needs_triton
def test_reduce_overhead_replays_a_graph(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", "--variant", "compile-reduce-overhead", "--json"))
    trace = tmp_path / item["trace"]
    launches = [row for row in rows(trace, "cuda_runtime") if "GraphLaunch" in row["name"]]
    assert len(launches) == 3
    assert len(rows(trace, "kernel")) >= 3 * 4


@needs_triton
@pytest.mark.slow
def test_max_autotune_records_and_is_not_broken_by_its_own_benchmarks(tmp_path: Path, foretrace: Run) -> None:
    words = ["linear", "--batch", "256", "--in-dim", "64", "--out-dim", "64"]
    (item,) = recorded(foretrace("run", *words, "--variant", "compile-max-autotune", "--json"))
    assert len(rows(tmp_path / item["trace"], "kernel")) >= 3


def test_train_mode_has_a_backward_pass(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", "--mode", "train", "--json"))
    trace = tmp_path / item["trace"]
    names = [row["name"] for row in rows(trace, "cpu_op")]
    # Forward: three products. Backward: two for each of them, as inputs and parameters both get gradients.
    assert names.count("aten::mm") == 3 * 9
    assert "aten::add_" not in names  # gradients are not added to those of the step before
    assert len(rows(trace, "kernel")) > 3 * 9
    assert item["trace"].endswith("64_128_768_3072_train_eager.trace.json.gz")


def test_a_cold_recording_has_its_first_call_in_the_schedule(tmp_path: Path, foretrace: Run) -> None:
    words = ["matmul-add", "--warm-calls", "0", "--wait", "0", "--warmup", "0", "--json"]
    (item,) = recorded(foretrace("run", *words))
    first, *others = item["side"]["profiled_steps_us"]
    assert first > max(others)
    assert item["side"]["unprofiled"] is None
    assert "cold" in item["trace"]


def test_a_factory_is_moved_to_the_gpu(tmp_path: Path, foretrace: Run) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(256, 256), torch.ones(64, 256)"
    )
    (item,) = recorded(foretrace("run", "model.py:make", "--mode", "train", "--json", "--device", "cuda:0"))
    assert len(rows(tmp_path / item["trace"], "kernel")) >= 3


def test_stacks_and_memory_are_recorded_on_request(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "linear", "--stacks", "--memory", "--active", "1", "--json"))
    trace = tmp_path / item["trace"]
    assert rows(trace, "python_function")
    assert rows(trace, "cpu_instant_event")


def test_the_cpu_can_be_asked_for(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "linear", "--device", "cpu", "--json"))
    assert rows(tmp_path / item["trace"], "kernel") == []
    assert item["side"]["unprofiled"]["method"] == "perf_counter"


def test_a_gpu_that_is_not_there_is_refused(foretrace: Run) -> None:
    done = foretrace("run", "linear", "--device", "cuda:99")
    assert done.returncode == 2
    assert "counted from 0" in done.stderr


def test_the_spread_of_repeated_timings_is_small(tmp_path: Path, foretrace: Run) -> None:
    items = recorded(foretrace("run", "mlp", "--json")) + recorded(foretrace("run", "mlp", "--json"))
    medians = [item["side"]["unprofiled"]["median_us"] for item in items]
    assert max(medians) / statistics.mean(medians) < 1.2


# ---- scripts ----

SCRIPT = """
import sys, threading, torch
x = torch.ones(512, 512, device="cuda")
(x @ x).sum().item()
if "thread" in sys.argv:
    thread = threading.Thread(target=lambda: (x @ x).sum().item())
    thread.start()
if "exit" in sys.argv:
    sys.exit(7)
if "raise" in sys.argv:
    raise ValueError("boom")
if "profile" in sys.argv:
    with torch.profiler.profile():
        x @ x
"""


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("", 0, ""),
        ("thread", 0, ""),
        ("exit", 7, ""),
        ("raise", 1, "ValueError: boom"),
        ("profile", 1, "ProfilerActiveError"),
    ],
)
def test_a_script_keeps_its_exit_code_and_its_kernels(
    tmp_path: Path, foretrace: Run, what: str, code: int, said: str
) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    done = foretrace("run", "--no-explain", "--", "job.py", what)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    kernels = rows(tmp_path / "traces/job/script.trace.json.gz", "kernel")
    assert len(kernels) >= (4 if what == "thread" else 2)


# ---- doctor ----


def test_doctor_finds_that_recording_works(foretrace: Run) -> None:
    done = foretrace("doctor")
    assert done.returncode == 0, done.stdout
    assert "GPU traces can be recorded on this machine." in done.stdout


def test_doctor_sees_a_hidden_gpu(foretrace: Run) -> None:
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine does not show its GPU under /dev")
    done = foretrace("doctor", env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 1, done.stdout
    assert "CUDA_VISIBLE_DEVICES" in done.stdout


@pytest.mark.parametrize(
    ("example", "flags", "a_step"),
    [
        ("02_linear.py", "--batch 1024 --in_dim 32 --out_dim 64", 1),
        ("03_simple_mlp.py", "--batch 64 --seq 128 --dim 768 --hidden 3072", 5),
    ],
)
def test_the_examples(tmp_path: Path, python: Run, example: str, flags: str, a_step: int) -> None:
    file = Path(__file__).parents[2] / "examples" / example
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = python(code, str(file), *flags.split())
    assert done.returncode == 0, done.stderr
    trace = tmp_path / done.stdout.rstrip().rpartition("trace: ")[2]
    assert len(rows(trace, "kernel")) == 3 * a_step
