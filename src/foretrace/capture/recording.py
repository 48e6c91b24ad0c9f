"""What ``foretrace.profile`` returns: a context manager that is a decorator too and drives a training loop."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from foretrace.capture.backend import Backend, Session, Settings, default_backend
from foretrace.capture.dropped import end_dropped
from foretrace.capture.files import Rows, free_name, target, write_trace
from foretrace.capture.memory import History, begun_with_the_block
from foretrace.capture.plan import DEFAULT_WAIT, DEFAULT_WARMUP, CaptureWarning, Plan
from foretrace.capture.verdicts import empty_trace, incomplete
from foretrace.errors import CaptureError, ForetraceError, InputError, ProfilerActiveError, ScheduleError
from foretrace.model.sidefile import Options, Schedule, SideFile, snapshot_path, write_side
from foretrace.trace.writer import refuse_taken

if TYPE_CHECKING:
    from foretrace.model.report import Report

__all__ = ["Recording"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_UNSCHEDULED_STEPS = 5  # what steps() runs when it is given neither an iterable nor a schedule: 1 + 1 + 3
# The recording in progress, if any: Kineto has one session a process. Weak, so that one which the program drops
# without leaving it can be ended.
_ACTIVE: weakref.WeakSet[Recording] = weakref.WeakSet()
_LOCK = threading.Lock()


class Recording:
    """One recording, used once; :func:`foretrace.capture.profile` describes the parameters and the errors."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        wait: int | None = None,
        warmup: int | None = None,
        active: int | None = None,
        shapes: bool = True,
        stacks: bool = False,
        memory: bool = False,
        all_threads: bool = False,
        force: bool = False,
        label: str | None = None,
        backend: Backend | None = None,
    ) -> None:
        if active is None and (wait is not None or warmup is not None):
            raise InputError("wait and warmup say what comes before the active steps: give active= too")
        self._plan: Plan | None = None
        if active is not None:
            self._plan = Plan(
                wait=DEFAULT_WAIT if wait is None else wait,
                warmup=DEFAULT_WARMUP if warmup is None else warmup,
                active=active,
            )
        self._wanted = path
        self._settings = Settings(self._plan, shapes, stacks, memory, all_threads)
        self._force = force
        self._backend = backend
        self._session: Session | None = None
        self._state = "new"  # new → running → finished | failed
        self._process = 0  # the one that started it; in a fork of that one there is no profiler to stop
        self._dropped: weakref.finalize[Any, Recording] | None = None
        self._target = Path()
        self._path: Path | None = None
        self._rows: Rows | None = None
        self._unsaid: list[str] = []
        self._problem = ""  # why nothing was written, if so
        self._in_steps = False
        self._steps = 0
        self._step_start_ns = 0
        self._durations_us: list[float] = []
        self.history: History | None = None
        """The allocator's history, where it began before this recording does; else one begins with the recording."""
        self.side = SideFile(label=label)
        """What the side file will hold; fields may be filled in until the recording is written."""

    # ---- the block -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._state != "new":
            raise CaptureError("this recording was already used; make a new foretrace.profile(...) for another")
        backend = self._backend = self._backend or default_backend()
        if self._wanted is None:
            self._target = free_name(target("traces/profile", force=True))
        else:
            self._target = target(self._wanted, force=self._force)
        if self._settings.memory:
            refuse_taken(snapshot_path(self._target), force=self._force)
        with _LOCK:
            if _ACTIVE:
                raise ProfilerActiveError(
                    "a foretrace recording is already running in this process; one inside another would "
                    "empty both. Give each its own part of the program, one after the other"
                )
            foreign = backend.foreign_profiler()
            if foreign is not None:
                raise ProfilerActiveError(
                    f"{foreign}; a second one would empty both. Stop it before foretrace records, "
                    "or leave foretrace out and read the trace it writes with `foretrace explain`"
                )
            for sentence in backend.cautions():
                self.side.warnings.append(sentence)
                warnings.warn(sentence, CaptureWarning, stacklevel=2)
            self._session = backend.session(self._settings)
            self.side.warnings += self._session.cautions
            if self._settings.memory and self.history is None:
                self.history = begun_with_the_block()
            try:
                self._session.start()
            except BaseException:
                self._end_history()
                raise
            _ACTIVE.add(self)
        self._process = os.getpid()
        self._dropped = weakref.finalize(self, end_dropped, self._session, self.history, self._process)
        self._dropped.atexit = False
        self._state = "running"
        self._step_start_ns = backend.clock_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._running():
            return
        if error is None:
            self._finish()
            return
        try:
            self._finish(failed=True)
        except ForetraceError as problem:
            error.add_note(f"foretrace: {problem}")  # the program's own error matters more than ours
        for sentence in self._unsaid:
            error.add_note(f"foretrace: {sentence}")

    def discard(self) -> None:
        """Stop without writing anything; nothing happens where it does not record."""
        if not self._running():
            return
        assert self._session is not None
        self._guarded(self._session.stop)
        self._leave("failed")
        self._end_history()
        self._problem = "this recording was given up, and nothing was written"

    @property
    def recorded(self) -> int | None:
        """How many active steps are complete; None in a recording without a schedule."""
        return None if self._plan is None else self._plan.recorded(self._steps)

    def _running(self) -> bool:
        """Whether it records in this process; a fork of the recording process goes on unprofiled."""
        return self._state == "running" and self._process == os.getpid()

    # ---- steps -----------------------------------------------------------------------------------

    def step(self) -> None:
        """End the current step; call it once at the end of every step of your loop.

        Raises :class:`ScheduleError` outside the block, in a recording without a schedule, and inside
        :meth:`steps`, which counts by itself.
        """
        if self._in_steps:
            raise ScheduleError("steps() already counts the steps; take the call of step() out of its loop")
        if self._plan is None:
            raise ScheduleError(
                "this recording has no schedule, so step() has no meaning: give active=, or loop over p.steps(...)"
            )
        self._step()

    @overload
    def steps(self, over: int | None = None) -> Iterator[int]: ...

    @overload
    def steps(self, over: Iterable[T]) -> Iterator[T]: ...

    def steps(self, over: Iterable[Any] | int | None = None) -> Iterator[Any]:
        """Loop over ``over`` and count each turn as a step, fetching the next item included.

        ``over``: an iterable (its items are handed on), a number of turns, or ``None`` for as many turns as
        the schedule needs (five without a schedule). After the last active step the loop goes on unprofiled
        until the iterable ends.
        """
        if self._state == "new":
            raise ScheduleError("steps() works inside `with foretrace.profile(...) as p:`")
        if over is None:
            over = self._plan.total if self._plan is not None else _UNSCHEDULED_STEPS
        items: Iterable[Any] = range(over) if isinstance(over, int) else over
        return self._loop(items)

    def _loop(self, items: Iterable[Any]) -> Iterator[Any]:
        for number, item in enumerate(items):
            self._in_steps = True
            try:
                if self._plan is None and self._running() and self._session is not None:
                    with self._session.mark(number):
                        yield item
                else:
                    yield item
            finally:
                self._in_steps = False
            self._step()

    def _step(self) -> None:
        if self._state == "new":
            raise ScheduleError("step() works inside `with foretrace.profile(...) as p:`")
        if not self._running():
            return  # the schedule is complete: the rest of the loop runs unprofiled
        assert self._session is not None
        assert self._backend is not None
        plan = self._plan
        now = self._backend.clock_ns()
        if plan is None or plan.phase(self._steps) == "active":
            self._durations_us.append((now - self._step_start_ns) / 1e3)
        self._steps += 1
        if plan is not None:
            self._guarded(self._session.step)
            if self._steps == plan.total:
                self._finish()
                return
        self._step_start_ns = self._backend.clock_ns()

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run a step of the session; if it fails, this recording is over and no longer in the way."""
        try:
            action()
        except BaseException:
            self._leave("failed")
            self._end_history()
            raise

    def _end_history(self) -> None:
        if self.history is not None:
            self.history.stop()

    # ---- the end ---------------------------------------------------------------------------------

    def _finish(self, *, failed: bool = False) -> None:
        """Stop, write, raise what must not stay silent; no profiler is left afterwards, whatever happened.

        With ``failed`` an exception is on its way, which a warning might replace: remarks go to ``_unsaid``.
        """
        assert self._session is not None
        self._guarded(self._session.stop)
        self._leave("finished")
        plan, steps = self._plan, self._steps
        complete = not failed and (plan is None or steps >= plan.total)
        try:
            if plan is not None and plan.phase(steps) in ("wait", "warmup"):
                raise plan.not_reached(steps)
            self._path, self._rows = write_trace(
                self._session.export, self._target, accept=lambda rows: self._accept(rows, complete, failed)
            )
        except BaseException as error:
            self._end_history()
            self._state = "failed"
            self._problem = str(error) if isinstance(error, ForetraceError) else type(error).__name__
            raise
        if self.history is not None:
            self.history.leave_beside(self._path, self.side, force=self._force)
        sentences = []
        if self._path != self._target:
            sentences.append(f"{self._target} exists and was kept; this recording is in {self._path}")
        if not complete:
            kept = None if self._rows.empty else self._path
            sentences.append(incomplete(plan, steps, failed=failed, path=kept))
        problem = empty_trace(self._rows, self._session.gpu_use(), self._path)
        if isinstance(problem, str):
            sentences.append(problem)
        # The side file travels with the trace: it names files, not the folders of this machine.
        said = [str(problem), *sentences] if isinstance(problem, CaptureError) else sentences
        self.side.warnings += [sentence.replace(f"{self._path.parent}{os.sep}", "") for sentence in said]
        self._write_side(complete)
        self._unsaid = sentences
        if not failed:
            for sentence in sentences:  # last, since a test run may turn warnings into errors
                warnings.warn(sentence, CaptureWarning, stacklevel=3)
        if isinstance(problem, CaptureError):
            raise problem

    def _accept(self, rows: Rows, complete: bool, failed: bool) -> bool:
        """Refuse what ended before anything was recorded; say whether this recording may replace a file."""
        plan = self._plan
        if plan is not None and plan.recorded(self._steps) == 0 and rows.empty:
            raise plan.not_reached(self._steps)
        assert self._session is not None
        if failed and rows.empty and not self._session.gpu_use().used:
            raise CaptureError("an exception ended the recording before any operator ran, so no trace was written")
        return self._force and complete and not rows.empty

    def _leave(self, state: str) -> None:
        self._state = state
        _ACTIVE.discard(self)
        if self._dropped is not None:
            self._dropped.detach()

    def _write_side(self, complete: bool) -> None:
        from foretrace.capture.surroundings import describe

        side, plan = self.side, self._plan
        assert self._path is not None
        assert self._session is not None
        side.trace = self._path.name
        side.complete = complete
        if plan is not None:
            recorded = plan.recorded(self._steps)
            warm_calls = side.schedule.warm_calls if side.schedule is not None else 0
            side.schedule = Schedule(
                wait=plan.wait,
                warmup=plan.warmup,
                active=plan.active,
                recorded=recorded,
                warm_calls=warm_calls,
            )
        side.options = Options(
            activities=self._session.activities,
            shapes=self._settings.shapes,
            stacks=self._settings.stacks,
            memory=self._settings.memory,
        )
        if self._durations_us:
            side.profiled_steps_us = self._durations_us
        elif "profiled_steps_us" not in side.missing:
            side.missing["profiled_steps_us"] = "the recording was not divided into steps"
        if side.unprofiled is None and "unprofiled" not in side.missing:
            side.missing["unprofiled"] = (
                "a block runs once, under the profiler; `foretrace run` times a second pass without it"
            )
        describe(side)
        try:
            write_side(self._path, side)
        except OSError as error:
            warnings.warn(
                f"the side file of {self._path} could not be written: {error.strerror or error}",
                CaptureWarning,
                stacklevel=4,
            )

    # ---- results ---------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the recording is over and its trace written."""
        return self._path is not None

    @property
    def path(self) -> Path:
        """Where the trace was written; raises :class:`CaptureError` as long as it is not."""
        if self._path is None:
            if self._state == "running":
                raise CaptureError(
                    "the profile is still running, so there is no result yet; read it after the `with` block"
                )
            if self._state == "new":
                raise CaptureError("nothing was recorded yet: use `with foretrace.profile(...) as p:`")
            raise CaptureError(self._problem or "this recording failed, and nothing was written")
        return self._path

    @property
    def rows(self) -> Rows:
        """How many operators, kernels and launches were recorded; raises as :attr:`path` does."""
        assert self.path
        assert self._rows is not None
        return self._rows

    def report(self) -> Report:
        """Read the trace and explain it; raises as :attr:`path` does."""
        path = self.path
        from foretrace.analysis import explain

        return explain(path)  # a path, so that the side file is read too

    def explain(self) -> None:
        """Print the first screen of the explained trace; raises as :attr:`path` does."""
        report = self.report()
        from foretrace.report.terminal import render

        print(render(report), end="")

    # ---- the decorator ---------------------------------------------------------------------------

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: its calls are the steps; once the schedule is complete they run unprofiled."""
        if not callable(function):
            raise InputError(f"foretrace.profile decorates a function, not {function!r}")
        lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_lazy(function) for is_lazy in lazy):
            raise InputError(
                f"{function.__qualname__} is a coroutine or generator: its call ends before its work; "
                "put `with foretrace.profile(...)` around the code that runs it"
            )
        name = getattr(function, "__qualname__", repr(function))

        @functools.wraps(function)
        def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._state == "new":
                self.__enter__()
                atexit.register(self._at_exit, name)
            if not self._running():
                return function(*args, **kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise
            if self._plan is None:
                self._finish()
            else:
                self._step()
            if self._wanted is None and self._path is not None:  # a name of our choosing has to be told
                print(f"foretrace: {name} was recorded: {self._path}", file=sys.stderr)
            return result

        recorded.recording = self  # type: ignore[attr-defined]
        return recorded

    def _at_exit(self, name: str) -> None:
        """The program ends before the schedule does: keep what there is, and say so."""
        if not self._running():
            return
        try:
            self._finish()
        except ForetraceError as problem:
            print(f"foretrace: {name}: {problem}", file=sys.stderr)
