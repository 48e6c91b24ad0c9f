"""The whole habit on a real GPU: predict, record, and hold one against the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_helpers import Run, recorded, rows

from foretrace.knowledge import gpus
from foretrace.knowledge.calibration import calibration_for


def gpu_name() -> str:
    import torch

    name = torch.cuda.get_device_name()
    if gpus.find(name) is None:
        pytest.skip(f"{name} is in no datasheet of ours")
    return name


def is_calibrated() -> bool:
    sheet = gpus.find(gpu_name())
    return sheet is not None and calibration_for(sheet).exact


@pytest.mark.parametrize(
    "flags", [(), ("--variant", "compile"), ("--mode", "train"), ("--variant", "compile", "--mode", "train")]
)
def test_a_recording_holds_what_was_predicted(tmp_path: Path, foretrace: Run, flags: tuple[str, ...]) -> None:
    if "compile" in flags:
        pytest.importorskip("triton")
    predicted = foretrace("predict", "mlp", "--gpu", gpu_name(), "--expectation", "mlp.toml", "--json", *flags)
    assert predicted.returncode == 0, predicted.stderr
    (item,) = recorded(foretrace("run", "mlp", "--json", *flags))
    done = foretrace("check", item["trace"], "mlp.toml", "--json")
    outcomes = json.loads(done.stdout)["outcomes"]
    # How often a library splits a product is known where it was measured.
    exact = ("kernels", "gemm", "memcpys", "flops") if is_calibrated() else ("memcpys", "flops")
    counts = [o for o in outcomes if o["quantity"] in exact]
    assert counts
    assert {o["state"] for o in counts} == {"held"}, done.stdout
    if is_calibrated():
        report = json.loads(predicted.stdout)
        busy = report["prediction"]["gpu_busy_us"]
        measured = sorted(
            step["gpu_busy_us"] for step in json.loads(foretrace("explain", item["trace"], "--json").stdout)["steps"]
        )
        assert busy == pytest.approx(measured[len(measured) // 2], rel=0.2)


def test_a_prediction_does_not_blind_the_profiler(tmp_path: Path, python: Run) -> None:
    # Kineto registers what it can record once a process: a first profile of the CPU alone would hide every kernel.
    done = python("""
import torch, foretrace
linear = torch.nn.Linear(64, 64, device="meta")
foretrace.predict(linear, (torch.empty(8, 64, device="meta"),), gpu="H200")
real = torch.nn.Linear(64, 64, device="cuda")
x = torch.randn(8, 64, device="cuda")
with foretrace.profile("after.trace.json.gz") as recording:
    for _ in recording.steps():
        real(x)
""")
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "after.trace.json.gz", "kernel")
