"""``foretrace run --memory`` on a real GPU: the snapshot beside the trace, and both against what torch counts."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from gpu_helpers import Run, recorded, rows

from foretrace import explain
from foretrace.model.trace_memory import DeviceMemory, StepMemory

SIZES = ("--batch", "64", "--seq", "128", "--dim", "768", "--hidden", "3072")
WIDE = 64 * 128 * 3072 * 2  # gate, up, and what is made of them: bf16

SCRIPT = """
import torch
parameters = torch.ones(1 << 20, device="cuda")
y = torch.mm(parameters.view(1024, 1024), parameters.view(1024, 1024)).relu()
torch.cuda.synchronize()
"""


def snapshot_of(folder: Path, item: dict[str, Any]) -> dict[str, Any]:
    """The snapshot of a recording, read as any program would."""
    path = folder / item["snapshot"]
    assert path.read_bytes()[:2] == b"\x80\x04"
    snapshot: dict[str, Any] = pickle.loads(path.read_bytes())
    return snapshot


def lines(frames: list[dict[str, Any]]) -> str:
    return " ".join(f"{frame['filename']}:{frame['name']}" for frame in frames)


def gpu_steps(trace: Path) -> list[StepMemory]:
    memory = explain(trace).memory
    assert memory is not None
    device: DeviceMemory = memory.devices[0]
    assert device.device == "cuda:0"
    assert "alive_at_peak" not in device.missing  # every row follows from the one before
    return device.steps


def test_the_history_reaches_back_before_the_model(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", *SIZES, "--memory", "--json"))
    assert item["snapshot"] == item["trace"].replace(".trace.json.gz", ".snapshot.pickle")
    snapshot = snapshot_of(tmp_path, item)
    live = [
        block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"
    ]
    weights = [block for block in live if block["requested_size"] == 768 * 3072 * 2]
    assert len(weights) == 3
    assert all("linear" in lines(block["frames"]) for block in weights)
    actions = {entry["action"] for entry in snapshot["device_traces"][0]}
    assert {"alloc", "segment_alloc", "free_completed"} <= actions

    side = item["side"]
    assert side["memory"]["began"] == "before the model was built"
    (device,) = side["memory"]["devices"]
    assert 0 < device["free_bytes"] < device["total_bytes"]
    assert device["reserved_bytes"] == sum(segment["total_size"] for segment in snapshot["segments"])
    assert device["allocated_bytes"] == sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert (device["alloc_retries"], device["ooms"]) == (0, 0)


def test_the_timing_is_not_taken_under_the_history(tmp_path: Path, foretrace: Run) -> None:
    small = ("run", "linear", "--json", "-o")
    (plain,) = recorded(foretrace(*small, "plain/"))
    (item,) = recorded(foretrace(*small, "memory/", "--memory"))
    assert "history off" in item["side"]["memory"]["timing"]
    # A step of launches only, which 2 µs an allocation would show in; twice is more than any noise.
    assert item["side"]["unprofiled"]["median_us"] < 2 * plain["side"]["unprofiled"]["median_us"]
    assert "unprofiled" not in item["side"]["missing"]


def test_steps_of_an_mlp(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", *SIZES, "--memory", "--json"))
    trace = tmp_path / item["trace"]
    counted = [row["args"] for row in rows(trace, "cpu_instant_event") if row["args"]["Device Type"] == 1]
    steps = gpu_steps(trace)
    assert sum(step.allocations for step in steps) == sum(args["Bytes"] > 0 for args in counted)
    for step in steps:
        assert step.intermediates is not None
        found = {tensor.role: (tensor.bytes, tensor.kept_bytes) for tensor in step.intermediates.tensors}
        assert found == {"gate": (WIDE, 0), "up": (WIDE, 0), "activated": (WIDE, 0)}
        assert step.reserved_grown_bytes == 0  # warm
        assert step.peak_bytes is not None
        assert step.intermediates.peak_without_bytes == step.peak_bytes - 2 * WIDE + 64 * 128 * 768 * 2


def test_training_keeps_gate_and_up(tmp_path: Path, foretrace: Run) -> None:
    (item,) = recorded(foretrace("run", "mlp", *SIZES, "--mode", "train", "--memory", "--json"))
    for step in gpu_steps(tmp_path / item["trace"]):
        assert step.intermediates is not None
        found = {tensor.role: (tensor.bytes, tensor.kept_bytes) for tensor in step.intermediates.tensors}
        assert {role: found[role] for role in ("gate", "up", "activated")} == {
            "gate": (WIDE, WIDE),
            "up": (WIDE, WIDE),
            "activated": (WIDE, 0),
        }


def test_every_variant_has_its_snapshot(tmp_path: Path, foretrace: Run) -> None:
    pytest.importorskip("triton", reason="torch.compile on a GPU needs Triton")
    both = ("--variant", "eager", "--variant", "compile")
    items = recorded(foretrace("run", "mlp", *SIZES, *both, "--memory", "--json"))
    assert len({item["snapshot"] for item in items}) == 2
    for item in items:
        assert snapshot_of(tmp_path, item)["device_traces"][0]


def test_a_script_is_recorded_from_its_first_line(tmp_path: Path, foretrace: Run) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = foretrace("run", "--memory", "--json", "--", "train.py")
    (item,) = recorded(done)
    snapshot = snapshot_of(tmp_path, item)
    allocations = [entry for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
    assert "train.py" in lines(allocations[0]["frames"])
    assert item["side"]["memory"]["began"] == "before the script began"
    assert json.loads(done.stdout)["exit_code"] == 0


def test_an_out_of_memory_error_leaves_the_snapshot_of_that_moment(tmp_path: Path, foretrace: Run) -> None:
    (tmp_path / "train.py").write_text(SCRIPT + "torch.empty(1 << 50, device='cuda')\n")
    done = foretrace("run", "--memory", "--no-explain", "--", "train.py")
    assert done.returncode == 1
    assert "OutOfMemoryError" in done.stderr
    (path,) = tmp_path.glob("traces/train/*.snapshot.pickle")
    actions = [entry["action"] for entry in pickle.loads(path.read_bytes())["device_traces"][0]]
    assert "oom" in actions
