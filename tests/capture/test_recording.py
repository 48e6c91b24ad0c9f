"""``foretrace.profile``: its three ways of use, and what is kept when something goes wrong."""

# ruff: noqa: PT012  (a recording is a block with its program inside, and raises when it is left)

from __future__ import annotations

import gzip
import inspect
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_profiler import FakeBackend

from foretrace.capture import Recording, profile, recording
from foretrace.capture.entry import _Options
from foretrace.capture.plan import CaptureWarning
from foretrace.errors import CaptureError, InputError, ScheduleError
from foretrace.model.sidefile import read_side


def operators(path: Path) -> int:
    """Count the operators of a written trace, independently of foretrace's own counting."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sum(event["cat"] == "cpu_op" for event in events)


# ---- the loop ----


def test_steps_runs_the_schedule_and_records_its_active_part(trace: Path, backend: FakeBackend) -> None:
    turns = []
    with profile(trace, wait=1, warmup=1, active=3, backend=backend) as p:
        for turn in p.steps():
            turns.append(turn)
            backend.operator()
    assert turns == [0, 1, 2, 3, 4]
    assert p.path == trace
    assert operators(trace) == 3
    assert p.rows.steps == 3


def test_steps_hands_on_the_items_and_goes_on_after_the_last_active_step(trace: Path, backend: FakeBackend) -> None:
    seen = []
    with profile(trace, active=1, backend=backend) as p:
        for batch in p.steps(["a", "b", "c", "d", "e"]):
            seen.append(batch)
            backend.operator()
            if batch == "d":
                assert p.path == trace  # written as soon as it is complete, while training goes on
    assert seen == ["a", "b", "c", "d", "e"]
    assert operators(trace) == 1


def test_step_drives_a_loop_of_ones_own(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, active=2, backend=backend) as p:
        for _ in range(9):
            backend.operator()
            p.step()
    assert operators(trace) == 2


def test_without_a_schedule_the_whole_block_is_recorded(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, backend=backend):
        backend.operator()
        backend.operator()
    assert operators(trace) == 2


def test_without_a_schedule_steps_marks_each_turn(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, backend=backend) as p:
        for _ in p.steps(4):
            backend.operator(7.0)
    assert p.rows.steps == 4
    assert p.side.profiled_steps_us == [7.0] * 4


def test_step_and_steps_together_would_count_twice(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(ScheduleError, match="already counts"), profile(trace, active=1, backend=backend) as p:
        for _ in p.steps():
            p.step()


def test_step_without_a_schedule_is_refused(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(ScheduleError, match="active="), profile(trace, backend=backend) as p:
        p.step()


def test_stepping_outside_of_the_block_is_refused(backend: FakeBackend) -> None:
    recording = profile("x", active=1, backend=backend)
    with pytest.raises(ScheduleError, match="with foretrace"):
        recording.step()
    with pytest.raises(ScheduleError, match="with foretrace"):
        recording.steps()


def test_step_durations_are_those_of_the_active_steps(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, active=2, backend=backend) as p:
        for turn in p.steps():
            backend.operator(10.0 * (turn + 1))
    assert p.side.profiled_steps_us == [30.0, 40.0]


# ---- the decorator ----


def test_each_call_of_a_decorated_function_is_a_step(trace: Path, backend: FakeBackend) -> None:
    @profile(trace, wait=0, warmup=1, active=2, backend=backend)
    def train_step(batch: int) -> int:
        """Train."""
        backend.operator()
        return batch + 1

    assert [train_step(number) for number in range(6)] == [1, 2, 3, 4, 5, 6]
    assert operators(trace) == 2
    assert train_step.__name__ == "train_step"
    assert train_step.recording.path == trace  # type: ignore[attr-defined]


def test_without_a_schedule_the_first_call_is_recorded(trace: Path, backend: FakeBackend) -> None:
    @profile(trace, backend=backend)
    def work() -> None:
        backend.operator()

    work()
    work()
    assert operators(trace) == 1


def test_an_error_in_a_decorated_call_keeps_what_was_traced(trace: Path, backend: FakeBackend) -> None:
    @profile(trace, wait=0, warmup=0, active=3, backend=backend)
    def train_step(fail: bool) -> None:
        backend.operator()
        if fail:
            raise KeyError("batch")

    train_step(False)
    with pytest.raises(KeyError) as caught:
        train_step(True)
    assert "1 of 3 active steps" in caught.value.__notes__[0]
    assert operators(trace) == 2


def test_a_program_that_ends_early_is_told_at_exit(
    trace: Path, backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = profile(trace, active=3, backend=backend)

    @recording
    def train_step() -> None:
        backend.operator()

    train_step()
    recording._at_exit("train_step")
    assert "train_step: the schedule needs 5 steps" in capsys.readouterr().err
    assert not trace.exists()


def test_functions_whose_call_ends_before_their_work_are_refused() -> None:
    async def coroutine() -> None: ...

    async def generator() -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, (lambda: (yield)), generator):
        with pytest.raises(InputError, match="coroutine or generator"):
            profile("x")(function)


def test_a_decorator_without_brackets_records_the_first_call_and_says_where(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording, "default_backend", lambda: backend)

    @profile
    def work(number: int) -> int:
        """Work."""
        backend.operator()
        return number + 1

    assert [work(1), work(2)] == [2, 3]
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    assert operators(tmp_path / "traces/profile.trace.json.gz") == 1
    assert capsys.readouterr().err.count("work was recorded: traces/profile.trace.json.gz\n") == 1


def test_without_brackets_a_coroutine_is_refused_as_with_them() -> None:
    with pytest.raises(InputError, match="coroutine or generator"):

        @profile
        async def work() -> None: ...


def test_the_keywords_of_profile_are_those_of_the_recording() -> None:
    assert set(_Options.__annotations__) == set(inspect.signature(Recording).parameters) - {"path"}


# ---- failures inside the block ----


def test_an_exception_passes_through_and_what_was_traced_is_kept(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(ZeroDivisionError) as caught, profile(trace, backend=backend):
        backend.operator()
        raise ZeroDivisionError
    assert operators(trace) == 1
    assert str(trace) in caught.value.__notes__[0]  # a note and no warning: that might replace the exception
    side = read_side(trace)
    assert side is not None
    assert side.complete is False


@pytest.mark.parametrize("options", [{}, {"wait": 0, "warmup": 0, "active": 2}])
def test_an_exception_before_any_operator_leaves_no_empty_trace(
    trace: Path, backend: FakeBackend, options: dict[str, int]
) -> None:
    with pytest.raises(KeyError) as caught, profile(trace, backend=backend, **options) as p:  # type: ignore[arg-type]
        for turn in p.steps(2):
            if turn == 1:
                raise KeyError("batch")
    (note,) = caught.value.__notes__
    assert "before any operator ran, so no trace was written" in note
    assert list(trace.parent.iterdir()) == []
    with pytest.raises(CaptureError, match="before any operator ran"):
        _ = p.path


def test_an_empty_recording_is_not_said_to_hold_anything(trace: Path, backend: FakeBackend) -> None:
    with pytest.warns(CaptureWarning) as said, profile(trace, wait=0, warmup=0, active=3, backend=backend) as p:
        for _ in p.steps(2):
            pass
    text = " ".join(str(warning.message) for warning in said)
    assert "2 of 3 active steps are complete" in text
    assert "is empty" in text
    assert "holds" not in text


def test_an_exception_before_the_active_steps_is_not_hidden_by_ours(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, profile(trace, active=3, backend=backend):
        raise KeyboardInterrupt
    assert "the schedule needs 5 steps" in caught.value.__notes__[0]
    assert not trace.exists()


def test_a_profiler_that_fails_in_a_step_leaves_nothing_behind(trace: Path, backend: FakeBackend) -> None:
    with pytest.raises(RuntimeError, match="CUPTI"), profile(trace, active=1, backend=backend) as p:

        def broken() -> None:
            raise RuntimeError("CUPTI")

        backend.sessions[0].step = broken  # type: ignore[method-assign]
        p.step()
    with profile(trace, backend=backend):  # and the next recording works
        backend.operator()
    assert operators(trace) == 1


# ---- results ----


def test_reading_results_inside_the_block_is_refused(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, backend=backend) as p:
        backend.operator()
        for read in (lambda: p.path, lambda: p.rows, p.report, p.explain):
            with pytest.raises(CaptureError, match="still running"):
                read()
    assert p.path == trace


def test_results_of_a_recording_that_never_ran(backend: FakeBackend) -> None:
    with pytest.raises(CaptureError, match="nothing was recorded yet"):
        _ = profile("x", backend=backend).path


def test_in_a_fork_of_the_recording_process_nothing_is_stopped_or_written(
    trace: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = profile(trace, wait=0, warmup=0, active=1, backend=backend)
    with p:
        with monkeypatch.context() as fork:
            fork.setattr(os, "getpid", lambda: 1)
            p.step()
            p._at_exit("train_step")
            p.__exit__(None, None, None)
            assert p(lambda: 7)() == 7
        assert backend.sessions[0].calls == ["start"]
        backend.operator()
        p.step()
    assert operators(trace) == 1


def test_a_recording_that_is_dropped_without_being_left_does_not_block_the_next(
    trace: Path, backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    dropped = profile(trace, backend=backend)
    dropped.__enter__()
    del dropped
    assert backend.sessions[0].calls == ["start", "stop"]
    assert "dropped without being left" in capsys.readouterr().err
    with profile(trace, backend=backend):
        backend.operator()
    assert operators(trace) == 1
    assert capsys.readouterr().err == ""


def test_a_recording_is_used_once(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, backend=backend) as p:
        backend.operator()
    with pytest.raises(CaptureError, match="already used"):
        p.__enter__()
    assert backend.sessions[0].calls == ["start", "stop", "export"]  # and exported once


def test_the_side_file_lies_next_to_it(trace: Path, backend: FakeBackend) -> None:
    with profile(trace, wait=0, warmup=0, active=2, stacks=True, label="try 1", backend=backend) as p:
        for _ in p.steps():
            backend.operator()
    side = read_side(trace)
    assert side is not None
    assert side.trace == trace.name
    assert side.complete is True
    assert side.label == "try 1"
    assert side.schedule is not None
    assert (side.schedule.active, side.schedule.recorded) == (2, 2)
    assert (side.options.shapes, side.options.stacks, side.options.memory) == (True, True, False)
    assert "foretrace run" in side.missing["unprofiled"]  # a reason, not a zero


def test_without_a_path_the_next_free_name_below_traces_is_taken(
    tmp_path: Path, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = []
    for _ in range(2):
        with profile(backend=backend) as p:
            backend.operator()
        written.append(p.path.name)
    assert written == ["profile.trace.json.gz", "profile.2.trace.json.gz"]


def test_wait_without_active_makes_no_schedule() -> None:
    with pytest.raises(InputError, match="active="):
        profile("x", wait=2)
