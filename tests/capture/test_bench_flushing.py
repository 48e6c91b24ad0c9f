"""When the L2 is emptied between calls, decided without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.capture.bench import flushing
from foretrace.capture.bench.flushing import decide
from foretrace.errors import InputError
from foretrace.model.bench import Work

SMALL = Work(bytes_read=1_000_000, bytes_written=500_000)
LARGE = Work(bytes_read=90_000_000, bytes_written=500_000)


class Buffer:
    """Stands in for the flush, which needs a GPU."""

    def __init__(self, _device: str, size: int) -> None:
        self.bytes = 2 * size


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    facts: dict[str, Any] = {"l2": 50_000_000, "paced": True}
    monkeypatch.setattr(flushing, "l2_bytes", lambda device: facts["l2"])
    monkeypatch.setattr(flushing, "Flush", Buffer)
    monkeypatch.setattr(flushing, "_gpu_sets_the_pace", lambda call, device: facts["paced"])
    return facts


def test_data_that_fits_is_flushed_when_the_gpu_sets_the_pace(gpu: dict[str, Any]) -> None:
    flush, said = decide(None, "cuda", SMALL, [lambda: None])
    assert flush is not None
    assert (said.on, said.bytes) == (True, 100_000_000)
    assert "1.50 MB and the L2 holds 50.0 MB" in said.reason
    gpu["paced"] = False
    flush, said = decide(None, "cuda", SMALL, [lambda: None])
    assert flush is None
    assert "the host sets the pace" in said.reason


def test_data_beyond_the_l2_needs_no_flush() -> None:
    flush, said = decide(None, "cuda", LARGE, [])
    assert (flush, said.on) == (None, False)
    assert "does not find its data there anyhow" in said.reason


def test_what_was_asked_for_is_done() -> None:
    assert decide(True, "cuda:1", LARGE, [])[1].on is True
    assert decide(False, "cuda", SMALL, [])[1].on is False


def test_what_is_not_known_is_not_guessed(gpu: dict[str, Any]) -> None:
    assert "not known" in decide(None, "cuda", Work(), [])[1].reason
    gpu["l2"] = None
    assert "the driver does not say" in decide(None, "cuda", SMALL, [])[1].reason
    with pytest.raises(InputError, match="driver does not say"):
        decide(True, "cuda", SMALL, [])


def test_a_cpu_is_not_flushed() -> None:
    assert decide(None, "cpu", SMALL, [])[1].on is False
    with pytest.raises(InputError, match="needs a GPU"):
        decide(True, "cpu", SMALL, [])
