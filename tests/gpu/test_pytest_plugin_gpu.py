"""The pytest plugin on a GPU: a planted copy, a lost epilogue and a new wait each fail their test and are named."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_helpers import Run

MODEL = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, x):
        h = self.up(x)
        return self.down(torch.relu(h))
"""
TESTS = """
import pytest
import torch
from model import Layer

foretrace = pytest.mark.foretrace

@pytest.fixture
def layer():
    torch.manual_seed(0)
    return Layer().to("cuda", torch.bfloat16)

@pytest.fixture
def x():
    return torch.randn(128, 256, device="cuda", dtype=torch.bfloat16)

@torch.no_grad()
@foretrace(gemm=2, memcpys=0, synchronizations=0, copy=0, elementwise=1, max_gpu_us=10_000, max_step_us=100_000)
def test_expectations(layer, x, profiled):
    rec = profiled(layer, x)
    assert rec.gpu and rec.step_us > 0

@torch.no_grad()
@foretrace(baseline=True)
def test_baseline(layer, x, profiled):
    profiled(layer, x)

@torch.no_grad()
@foretrace(memcpys=0, synchronizations=0, copy=0)
def test_body(layer, x):
    layer(x)
"""
COPY = ("h = self.up(x)", "h = self.up(x).t().contiguous().t()")
EPILOGUE = ("h = self.up(x)", "h = x @ self.up.weight.t() + self.up.bias")
ITEM = ("h = self.up(x)", "h = self.up(x)\n        assert h[0, 0].item() < 1e9")

Pytest = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "test_layer.py").write_text(TESTS)
    return tmp_path


@pytest.fixture
def run_pytest(python: Run, project: Path) -> Pytest:
    """Run the project's tests in a process of their own, with the plugin of this checkout."""

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        words = ["-p", "foretrace.integrations.pytest_plugin"] if not _registered() else []
        return python("import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))", *words, "-q", "-rs", *flags)

    return run


def _registered() -> bool:
    from importlib.metadata import entry_points

    return any(point.name == "foretrace" for point in entry_points(group="pytest11"))


def text(done: subprocess.CompletedProcess[str]) -> str:
    assert "INTERNALERROR" not in done.stdout + done.stderr, done.stdout
    return " ".join(done.stdout.split())


def test_planted_regressions_fail_and_name_their_operators(run_pytest: Pytest, project: Path) -> None:
    made = run_pytest("--foretrace-update")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "foretrace: 2 held, 1 baseline written" in text(made)
    baseline = (project / "__foretrace__" / "test_layer.test_baseline.json").read_text()
    assert '"kind": "gemm"' in baseline
    good = run_pytest("--foretrace-fail-on-increase")
    assert good.returncode == 0, good.stdout
    assert "foretrace: 3 held" in text(good)

    model = (project / "model.py").read_text()
    planted = {
        COPY: ("copy == 0 is ", "1 call of aten::contiguous a step more", "by aten::copy_ in aten::contiguous"),
        EPILOGUE: (
            "elementwise == 1 is 2",
            "aten::addmm was taken apart into aten::mm and aten::add",
            "by aten::add",
        ),
        ITEM: (
            "memcpys == 0 is 1",
            "1 call of aten::item a step more, with aten::_local_scalar_dense inside",
            "0 → 1 copy a step: Memcpy DtoH",
            "by aten::_local_scalar_dense",
        ),
    }
    for (old, new), expected in planted.items():
        (project / "model.py").write_text(model.replace(old, new))
        done = run_pytest("--foretrace-fail-on-increase")
        assert done.returncode == 1, done.stdout
        for sentence in expected:
            assert sentence in text(done), f"{sentence!r} is not in {done.stdout}"


def test_the_reads_of_a_loss_are_waits(run_pytest: Pytest, project: Path) -> None:
    reading = TESTS.replace("profiled(layer, x)", "profiled(lambda: layer(x).sum().item())")
    (project / "test_layer.py").write_text(reading)
    done = run_pytest("-k", "test_expectations")
    assert done.returncode == 1
    assert "synchronizations == 0 is 1" in text(done)
    assert "aten::_local_scalar_dense" in text(done)


def test_limits_of_time_break_on_a_gpu(run_pytest: Pytest, project: Path) -> None:
    limits = TESTS.replace("max_gpu_us=10_000", "max_gpu_us=0.5").replace("max_step_us=100_000", "max_step_us=0.5")
    (project / "test_layer.py").write_text(limits)
    done = run_pytest("-k", "test_expectations")
    assert done.returncode == 1
    said = text(done)
    assert "BROKEN gpu_busy_us" in said
    assert "BROKEN unprofiled_us" in said
