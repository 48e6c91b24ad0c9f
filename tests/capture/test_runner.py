"""One variant: first call, unprofiled timing, recording, side file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_profiler import FakeBackend

from foretrace.capture import Plan, runner
from foretrace.capture.runner import Request, pick_device, record_variant
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, InputError
from foretrace.model.sidefile import read_side

torch = pytest.importorskip("torch")


class Work:
    """A program that counts its calls, and fails at one of them if it is told to."""

    def __init__(self, backend: FakeBackend, fails_at: int | None = None) -> None:
        self.backend = backend
        self.calls = 0
        self.fails_at = fails_at

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("\nmat1 and mat2 shapes cannot be multiplied\nand pages of advice")
        self.backend.operator()


def request(work: Work, warm_calls: int = 3) -> Request:
    return Request(
        workload="work", make=lambda: Program(work, (), {}), device="cpu", plan=Plan(1, 1, 2), warm_calls=warm_calls
    )


def test_a_warm_recording_is_timed_without_the_profiler_first(trace: Path, backend: FakeBackend) -> None:
    work = Work(backend)
    outcome = record_variant(request(work), "eager", trace, backend=backend)
    assert outcome.rows.operators == 2  # the two active steps, and nothing of the timing
    side = read_side(trace)
    assert side == outcome.side
    assert side is not None
    assert side.unprofiled is not None
    assert side.first_call_us is not None
    # first and warm-up calls, a call before the timing, the timing, wait + warmup + active
    assert work.calls == 3 + 1 + side.unprofiled.runs + 4
    assert side.schedule is not None
    assert (side.schedule.warm_calls, side.schedule.recorded) == (3, 2)
    assert side.missing["recompiles"] == "eager code is not compiled"


def test_a_cold_recording_runs_nothing_before_the_schedule(trace: Path, backend: FakeBackend) -> None:
    work = Work(backend)
    side = record_variant(request(work, warm_calls=0), "eager", trace, backend=backend).side
    assert work.calls == 4
    assert side.unprofiled is None
    assert "cold" in side.missing["unprofiled"]
    assert "cold" in side.missing["first_call_us"]


def test_a_program_that_fails_is_one_sentence(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(CaptureError, match=r"failed \(eager\): RuntimeError: mat1 and mat2 .* multiplied$"):
        record_variant(request(Work(backend, fails_at=1)), "eager", trace, backend=backend)
    assert not trace.exists()


def test_a_program_that_fails_while_recorded_keeps_what_there_is(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(CaptureError, match="mat1"):
        record_variant(request(Work(backend, fails_at=4), warm_calls=0), "eager", trace, backend=backend)
    side = read_side(trace)
    assert side is not None
    assert side.complete is False


def test_a_program_that_fails_later_or_ends_the_process_is_one_sentence(trace: Path, backend: FakeBackend) -> None:
    for call in (2, 5):  # a warm-up call, and one of those that are timed
        with pytest.raises(CaptureError, match="mat1"):
            record_variant(request(Work(backend, fails_at=call)), "eager", trace, backend=backend)

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(CaptureError, match="SystemExit: 3"):
        record_variant(request(leave), "eager", trace, backend=backend)  # type: ignore[arg-type]


def test_there_is_one_cpu() -> None:
    assert pick_device("cpu:0") == "cpu"
    with pytest.raises(InputError, match=r"write --device cpu$"):
        pick_device("cpu:7")


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "gpu", "cpu:", "cuda:", "cuda:²"])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(InputError, match="is not known"):
        pick_device(device)


def test_without_a_gpu_the_cpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device(None) == "cpu"
    with pytest.raises(InputError, match="foretrace doctor"):
        pick_device("cuda")


@pytest.mark.parametrize("variant", ["compile-reduce-overhead", "compile-max-autotune"])
def test_before_a_variant_that_replays_graphs_cupti_is_kept(
    variant: str, trace: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kept(Exception):  # noqa: N818  (it is no error: recording need not go on)
        pass

    def keep(_: str | None) -> None:
        raise Kept

    monkeypatch.setattr(runner, "check_variant", lambda *_: None)
    monkeypatch.setattr(runner, "make_step", lambda program, *_: program.function)
    monkeypatch.setattr(runner, "_keep_cupti", keep)
    with pytest.raises(Kept):
        record_variant(replace(request(Work(backend)), device="cuda"), variant, trace, backend=backend)
