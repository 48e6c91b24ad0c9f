"""The ways in which torch's profiler loses data without a word; here each is impossible, or loud.

The profiler is a fake, so that each failure can be staged; ``test_real_profiler.py`` and ``tests/gpu`` hold
the same traps against the real one.
"""

# ruff: noqa: PT012, PT031  (a recording is a block with its program inside, and raises when it is left)

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fake_profiler import FakeBackend

from foretrace.capture import CaptureWarning, profile
from foretrace.capture.backend import GpuUse
from foretrace.errors import (
    CaptureError,
    EmptyTraceError,
    InputError,
    ProfilerActiveError,
    ScheduleError,
)
from foretrace.model.sidefile import read_side

ON_GPU = GpuUse(available=True, requested=True, used=True)


# ---- a schedule that never reaches its active steps ----


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_schedule_that_never_reaches_active_is_an_error(trace: Path, backend: FakeBackend, steps: int) -> None:
    with (
        pytest.raises(ScheduleError, match=f"needs 5 steps .* got {steps}"),
        profile(trace, active=3, backend=backend) as p,
    ):
        for _ in range(steps):
            backend.operator()
            p.step()
    assert not trace.exists()
    assert list(trace.parent.iterdir()) == []


@pytest.mark.parametrize(("steps", "kept"), [(3, 1), (4, 2)])
def test_a_schedule_cut_short_keeps_what_there_is_and_says_so(
    trace: Path, backend: FakeBackend, steps: int, kept: int
) -> None:
    with (
        pytest.warns(CaptureWarning, match=f"{kept} of 3 active steps"),
        profile(trace, active=3, backend=backend) as p,
    ):
        for _ in p.steps(steps):
            backend.operator()
    assert p.rows.operators == kept
    side = read_side(trace)
    assert side is not None
    assert side.complete is False
    assert side.schedule is not None
    assert side.schedule.recorded == kept


def test_a_last_step_without_its_call_of_step_is_kept(trace: Path, backend: FakeBackend) -> None:
    with pytest.warns(CaptureWarning, match="0 of 1"), profile(trace, active=1, backend=backend) as p:
        for turn in range(3):
            backend.operator()
            if turn < 2:
                p.step()
    assert p.rows.operators == 1


# ---- a good trace replaced by an empty one ----


def test_a_long_loop_writes_once(trace: Path, backend: FakeBackend) -> None:
    # With torch's repeat=0 a handler fires again and again; its last, empty trace replaces the good one.
    with profile(trace, wait=1, warmup=1, active=3, backend=backend) as p:
        for _ in p.steps(12):
            backend.operator()
    assert backend.sessions[0].calls.count("export") == 1
    assert p.rows.operators == 3


def test_an_existing_file_is_refused_before_anything_runs(trace: Path, backend: FakeBackend) -> None:
    trace.write_text("precious")
    with pytest.raises(InputError, match="exists"), profile(trace, backend=backend):
        pytest.fail("the block must not run")
    assert trace.read_text() == "precious"
    assert backend.sessions == []


def test_force_replaces_with_a_complete_recording(trace: Path, backend: FakeBackend) -> None:
    trace.write_text("old")
    with profile(trace, force=True, backend=backend):
        backend.operator()
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_even_forced_an_empty_recording_replaces_nothing(trace: Path, backend: FakeBackend) -> None:
    trace.write_text("precious")
    with pytest.warns(CaptureWarning) as said, profile(trace, force=True, backend=backend) as p:
        pass
    assert trace.read_text() == "precious"
    assert p.path.name == "x.2.trace.json.gz"
    assert "was kept" in str(said[0].message)


def test_even_forced_an_incomplete_recording_replaces_nothing(trace: Path, backend: FakeBackend) -> None:
    trace.write_text("precious")
    with pytest.raises(OSError, match="gone"), profile(trace, force=True, backend=backend):
        backend.operator()
        raise OSError("gone")
    assert trace.read_text() == "precious"
    assert (trace.parent / "x.2.trace.json.gz").exists()


def test_a_file_that_appears_meanwhile_is_not_replaced(trace: Path, backend: FakeBackend) -> None:
    with pytest.warns(CaptureWarning, match="was kept"), profile(trace, backend=backend) as p:
        backend.operator()
        trace.write_text("another process was faster")
    assert trace.read_text() == "another process was faster"
    assert p.rows.operators == 1


def test_warnings_as_errors_lose_nothing(trace: Path, backend: FakeBackend) -> None:
    # pytest runs with filterwarnings=error: the warning becomes an exception, after the files are written.
    with pytest.raises(CaptureWarning), profile(trace, active=3, backend=backend) as p:
        for _ in p.steps(4):
            backend.operator()
    assert trace.exists()
    assert read_side(trace) is not None


# ---- two profilers at once ----


def test_a_running_profiler_is_an_error_before_anything_is_lost(trace: Path) -> None:
    backend = FakeBackend(foreign="a torch profiler is already recording in this process")
    with pytest.raises(ProfilerActiveError, match="already recording"), profile(trace, backend=backend):
        pytest.fail("the block must not run")
    assert backend.sessions == []


def test_foretrace_inside_foretrace_is_an_error_and_the_outer_goes_on(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, backend=backend) as outer:
        backend.operator()
        with pytest.raises(ProfilerActiveError), profile(trace.parent / "y", backend=backend):
            pytest.fail("the block must not run")
        backend.operator()
    assert outer.rows.operators == 2


def test_a_profiler_that_took_over_inside_is_an_error_at_the_end(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(ProfilerActiveError, match="took over"), profile(trace, backend=backend):
        backend.sessions[0].error_on_stop = ProfilerActiveError("took over")


# ---- no kernels although the GPU worked ----


def test_launches_without_kernels_are_an_error_and_the_trace_is_kept(trace: Path) -> None:
    backend = FakeBackend(kernels_are_lost=True, gpu=ON_GPU)
    with pytest.raises(EmptyTraceError) as caught, profile(trace, backend=backend):
        backend.kernel()
    for cause in ("1 kernel launches", "CPU-only profile", "LD_LIBRARY_PATH", "root", "foretrace doctor"):
        assert cause in str(caught.value)
    assert trace.exists()
    side = read_side(trace)
    assert side is not None
    assert "not one kernel" in side.warnings[0]


def test_gpu_allocations_without_launches_are_an_error(trace: Path) -> None:
    backend = FakeBackend(kernels_are_lost=True, launches_are_lost=True, gpu=ON_GPU)
    with pytest.raises(EmptyTraceError, match="neither a kernel nor a launch"), profile(trace, backend=backend):
        backend.kernel()


def test_cpu_work_on_a_machine_with_a_gpu_is_no_error(trace: Path) -> None:
    backend = FakeBackend(gpu=GpuUse(available=True, requested=True, used=False))
    with profile(trace, backend=backend) as p:
        backend.operator()
    assert p.rows.operators == 1


def test_kernels_are_what_is_wanted(trace: Path) -> None:
    backend = FakeBackend(gpu=ON_GPU)
    with profile(trace, backend=backend) as p:
        backend.kernel()
    assert p.rows.kernels == 1


def test_an_earlier_cpu_only_profile_is_warned_of(trace: Path) -> None:
    backend = FakeBackend(caution=["a CPU-only torch profile ran earlier in this process"])
    with pytest.warns(CaptureWarning, match="CPU-only"), profile(trace, backend=backend) as p:
        backend.operator()
    assert p.side.warnings == ["a CPU-only torch profile ran earlier in this process"]


def test_a_block_in_which_nothing_ran_is_warned_of(trace: Path, backend: FakeBackend) -> None:
    with pytest.warns(CaptureWarning, match="no operator ran"), profile(trace, backend=backend):
        pass


# ---- the export ----


def test_an_export_that_writes_nothing_is_an_error(trace: Path) -> None:
    backend = FakeBackend(export=lambda _path, _text: None)
    with pytest.raises(CaptureError, match="wrote no trace"), profile(trace, backend=backend):
        backend.operator()


def test_a_missing_folder_is_made(tmp_path: Path, backend: FakeBackend) -> None:
    with profile(tmp_path / "not" / "there" / "x", backend=backend) as p:
        backend.operator()
    assert p.path.exists()
