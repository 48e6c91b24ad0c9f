"""Kernels that are started and do nothing, on a machine without a GPU: what the driver would have been told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from triton.runtime.driver import driver

from foretrace.fused.kernels import launch

# The handle of the stream that every launch is on.
STREAM = 77


@contextmanager
def idle_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """The words of every launch but the first of a kernel, which compiles it."""
    words: list[tuple[Any, ...]] = []
    compiled = SimpleNamespace(
        run=lambda *given: words.append(given),
        function="function",
        packed_metadata="packed",
        metadata=SimpleNamespace(target=SimpleNamespace(backend="cuda"), global_scratch_size=0, profile_scratch_size=0),
    )
    monkeypatch.setattr(launch, "VERSION", (3, 9))
    monkeypatch.setattr(launch.Launcher, "_start_through_triton", lambda *_: compiled)
    launch.launcher.cache_clear()
    before = driver._active
    driver.set_active(SimpleNamespace(get_current_device=lambda: -1, get_current_stream=lambda _: STREAM))
    yield words
    driver._active = before
    launch.launcher.cache_clear()
