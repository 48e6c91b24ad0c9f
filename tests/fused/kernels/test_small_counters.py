"""Counters of split products: who shares them, and who must not."""

from __future__ import annotations

import pytest
import torch

from foretrace.fused.kernels import counters


@pytest.fixture
def slab(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """A slab of 128 counters for a device that is not there."""
    slab = torch.zeros(128, dtype=torch.int32)
    monkeypatch.setattr(counters, "_slabs", {7: slab})
    monkeypatch.setattr(counters, "_taken", {7: 0})
    return slab


def test_slices_lie_on_lines_of_their_own(slab: torch.Tensor) -> None:
    slices = [counters._slice(7, count) for count in (33, 1, 32)]
    assert all(one is not None for one in slices)
    places = [(one.data_ptr() - slab.data_ptr()) // 4 for one in slices if one is not None]
    assert places == [0, 64, 96]


def test_a_slab_that_is_used_up_gives_nothing(slab: torch.Tensor) -> None:
    assert counters._slice(7, 100) is not None
    assert counters._slice(7, 32) is None
    assert counters._slice(6, 1) is None, "another device has none"


def test_host_memory_gets_zeros_of_its_own() -> None:
    x = torch.zeros(2, 2)
    first, second = counters.zeroed_counters(x, 5), counters.zeroed_counters(x, 5)
    assert torch.equal(first, torch.zeros(5, dtype=torch.int32))
    assert first.data_ptr() != second.data_ptr()
