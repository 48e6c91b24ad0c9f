"""Tests in this folder need an NVIDIA GPU: ``pytest -m gpu tests/gpu``. Elsewhere they are skipped, and say so."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from gpu_helpers import Run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(HERE)]
    reason = _why_not() if here else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_not() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch finds no GPU on this machine"


@pytest.fixture(scope="session", autouse=True)
def _autograd_knows_the_gpu() -> None:
    """The first product in autograd's own thread warns that it has no CUDA context yet; warnings are errors here."""
    if _why_not() is not None:
        return
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.ones(16, 16, device="cuda", requires_grad=True)
        (x @ x).sum().backward()


def _run(folder: Path, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )


@pytest.fixture
def foretrace(tmp_path: Path) -> Run:
    """Run the command line in an empty folder."""

    def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return _run(tmp_path, "-m", "foretrace", *words, env=env)

    return run


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """Run a program in a fresh process: what it prints last is its result."""

    def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
        return _run(tmp_path, "-c", code, *words)

    return run
