"""No test may leave a profiler behind: the next recording of the process would be empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_profiler import FakeBackend

from foretrace.capture import recording


@pytest.fixture(autouse=True)
def no_profiler_is_left() -> Iterator[None]:
    yield
    left = list(recording._ACTIVE)
    recording._ACTIVE.clear()  # one test's fault must not fail all others
    assert not left, f"a foretrace recording is still running: {left}"
    torch = sys.modules.get("torch")
    if torch is not None:
        assert not torch._C._autograd._profiler_enabled(), "a torch profiler is still running"
        assert not torch.autograd.profiler._is_profiler_enabled
        assert torch.autograd.profiler._prepare_profiler is torch.autograd._prepare_profiler, "the guard is left"


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "x.trace.json.gz"
