"""The fixture ``profiled`` and what it returns: steps of a program, warmed up, timed, and recorded."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from foretrace.capture.plan import CaptureWarning
from foretrace.capture.recording import Recording
from foretrace.errors import CaptureError, ForetraceError, InputError, ScheduleError
from foretrace.knowledge.baseline import MOST_TIMED_RUNS, RECORDED_STEPS, TIMED_RUNS, TIMING_BUDGET_S, WARM_STEPS
from foretrace.model.sidefile import Schedule, SideFile, Unprofiled
from foretrace.model.words import count

if TYPE_CHECKING:
    from foretrace.analysis.context import Context
    from foretrace.analysis.explained import Explained
    from foretrace.integrations.pytest_plugin.case import Case
    from foretrace.model.comparison import Comparison
    from foretrace.model.expectations import Checked, Expectation
    from foretrace.model.report import Report
    from foretrace.trace import Trace

__all__ = ["Profiled", "Recorded"]


@contextmanager
def quietly() -> Iterator[None]:
    """Foretrace's own remarks are in the side file; as warnings they could fail a test that forbids warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        yield


class _Plainly:
    """An error of ours without the frames below: the test's own line is what its author needs to see."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        __tracebackhide__ = True
        if isinstance(error, ForetraceError):
            raise type(error)(*error.args) from None


class Profiled:
    """What the fixture gives: call it to record steps; several recordings in one test are judged one by one."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def __repr__(self) -> str:
        return f"<the fixture profiled of {self._case.name}>"

    def __call__(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        steps: int = RECORDED_STEPS,
        timed: bool = True,
        stacks: bool = False,
        memory: bool = False,
        **kwargs: Any,
    ) -> Recorded:
        """Record ``steps`` steps of ``function(*args, **kwargs)``; without a function, of a loop of your own.

        Before the recorded steps the function is called some ten times: to warm up, and to be timed without the
        profiler (not with ``timed=False``). What the last step returned is ``result``. ``stacks`` and ``memory``:
        record Python stacks with modules, and allocations; where the mark asks for a module or for memory, they are on.

        Raises:
            InputError: ``function`` cannot be called, or ``steps`` is no number above 0.
            CaptureError: nothing could be recorded, for the reason it says; another profiler runs, for one.
        """
        __tracebackhide__ = True
        with _Plainly():
            if function is not None and not callable(function):
                raise InputError(f"profiled takes a function or a module and its arguments, not {function!r}")
            if function is None and (args or kwargs):
                raise InputError("profiled was given arguments and no function to call with them")
            if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
                raise InputError(f"steps is a number of steps to record, at least 1, not {steps!r}")
            recorded = self._case.new_recording(steps=steps, timed=timed, stacks=stacks, memory=memory)
        if function is None:
            return recorded
        with recorded:
            for _ in recorded.steps():
                recorded.result = function(*args, **kwargs)
        return recorded

    def block(self, *, stacks: bool = False, memory: bool = False) -> Recorded:
        """A recording of everything in a ``with`` block, as one step: nothing is warmed up, and times say little."""
        return self._case.new_recording(steps=None, timed=False, stacks=stacks, memory=memory)


class Recorded:
    """One recording of a test; complete after its ``with`` block, or at once where a function was given.

    Attributes:
        label: what it is called where a test makes several.
        result: what the last step returned, where ``profiled`` was given a function.
    """

    def __init__(self, case: Case, recording: Recording, label: str, *, steps: int | None, timed: bool) -> None:
        self._case = case
        self._recording = recording
        self._steps = steps
        self._timed = timed
        self._entered = self._looped = False
        self.label = label
        self.result: Any = None

    def __repr__(self) -> str:
        return f"<{self.label} of {self._case.name}>"

    # ---- recording ----

    def __enter__(self) -> Self:
        __tracebackhide__ = True
        if self._steps is None:
            self._start()
        self._entered = True
        return self

    def _start(self) -> None:
        __tracebackhide__ = True
        with quietly(), _Plainly():
            self._recording.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is not None:
            notes = list(getattr(error, "__notes__", ()))
            with quietly():
                self._recording.__exit__(kind, error, trace)
            if notes or hasattr(error, "__notes__"):
                error.__notes__ = notes  # the test's failure is the test's own
            return
        with _Plainly():
            try:
                with quietly():
                    self._recording.__exit__(None, None, None)
            except ScheduleError:
                pass  # said below in this fixture's words
            if self._steps is not None:
                self._complete(self._steps)
        self._case.done(self)

    def _complete(self, steps: int) -> None:
        """Raise ``CaptureError`` unless all the steps were recorded."""
        if not self._looped:
            raise CaptureError(
                "nothing was recorded: loop over rec.steps() inside `with profiled() as rec:`, or record a whole "
                "block with `with profiled.block() as rec:`"
            )
        if not self._recording.side.complete:
            raise CaptureError(
                f"the loop over rec.steps() ended before {count(steps, 'step')} could be recorded, one more being "
                "the profiler's warm-up: let it run longer, or record fewer with profiled(steps=…)"
            )

    def steps(self, over: Iterable[Any] | int | None = None) -> Iterator[Any]:
        """Loop over the steps. Without ``over`` as many turns as are needed to warm up, to time and to record.

        ``over``: what to loop over, or a number of turns; of these one runs without the profiler, one warms it up, and
        the next ones are recorded. They are not timed.

        Raises:
            CaptureError: outside the ``with`` block, or a second time.
        """
        __tracebackhide__ = True
        with _Plainly():
            if not self._entered or self._steps is None:
                raise CaptureError("rec.steps() belongs inside `with profiled() as rec:`, without block()")
            if self._looped:
                raise CaptureError("the steps of this recording ran already; make another one with profiled()")
        self._looped = True
        return self._loop(over)

    def _loop(self, over: Iterable[Any] | int | None) -> Iterator[Any]:
        __tracebackhide__ = True
        if over is None:
            for turn in range(WARM_STEPS):
                yield turn
            if self._timed:
                yield from self._timed_turns()
        self._start()
        turns = iter(self._recording.steps(over))
        while True:
            with quietly(), _Plainly():
                try:
                    turn = next(turns)
                except StopIteration:
                    return
            yield turn

    def _timed_turns(self) -> Iterator[int]:
        from foretrace.capture.runner import pick_device
        from foretrace.timing import clock_for, iqr, median

        with _Plainly():
            clock = clock_for(pick_device(None))
        clock.finish()
        began = time.perf_counter()
        marks = []
        for turn in range(MOST_TIMED_RUNS):
            if turn >= TIMED_RUNS and time.perf_counter() - began > TIMING_BUDGET_S:
                break
            start = clock.mark()
            yield turn
            marks.append((start, clock.mark()))
        clock.finish()
        samples = [clock.between_us(*pair) for pair in marks]
        self._recording.side.unprofiled = Unprofiled(
            median_us=median(samples),
            iqr_us=iqr(samples),
            runs=len(samples),
            method=clock.method,
            samples_us=samples,
            warmup=WARM_STEPS,
        )
        self._recording.side.schedule = Schedule(wait=0, warmup=0, active=0, warm_calls=WARM_STEPS + len(samples))

    # ---- results ----

    @property
    def path(self) -> Path:
        """The trace's file, for ``foretrace explain``. It is deleted after a test that passes.

        Raises ``CaptureError`` as long as there is none, as everything below does.
        """
        __tracebackhide__ = True
        with _Plainly():
            return self._recording.path

    def require_work(self) -> None:
        """Raise ``CaptureError`` where nothing was recorded: all that is expected not to run would hold."""
        if self.path and self._recording.rows.empty:
            raise CaptureError(
                f"no operator ran in {self.label}, so there is nothing to judge; work that other threads or processes "
                "do is not recorded"
            )

    @property
    def gpu(self) -> bool:
        """Whether a GPU was there to be recorded."""
        return bool(self.path) and bool(set(self._recording.side.options.activities) - {"CPU"})

    @cached_property
    def _explained(self) -> Explained:
        from foretrace.analysis.explained import explained

        return explained(self.path)

    @property
    def trace(self) -> Trace:
        """The trace, as ``foretrace.load`` reads it."""
        return self._explained.trace

    @property
    def side(self) -> SideFile | None:
        """What is known of the recording that the trace does not hold."""
        return self._explained.side

    @property
    def context(self) -> Context:
        """What the passes of an explanation share."""
        return self._explained.context

    @property
    def report(self) -> Report:
        """The trace explained, as ``foretrace.explain`` does."""
        return self._explained.report

    @property
    def step_us(self) -> float | None:
        """What a step takes without the profiler, µs (median); None where it was not timed."""
        timing = self.report.trace.unprofiled
        return None if timing is None else timing.median_us

    def judged(self, expectation: Expectation) -> Checked:
        """The expectation held against this recording, whatever comes of it."""
        from foretrace.prediction.expect.checker import judge

        return judge(self.report, expectation, context=self.context)

    def check(self, *lines: str | Expectation, **words: Any) -> Checked:
        """Fail the test where an expectation is broken; takes what the mark takes.

        Expectations about a GPU are not judged without one: the test is then skipped once it has come to its end.

        Raises:
            InputError: the expectation cannot be read.
        """
        __tracebackhide__ = True
        from foretrace.integrations.pytest_plugin.marks import asked, says_what

        with _Plainly():
            says_what(words, but=bool(lines))
            wanted = asked(*lines, **words)
            if not wanted:
                raise InputError("check was given nothing to expect: rec.check(kernels=5)")
            return self._case.check(self, wanted)

    def compare(self, baseline: Recorded | Trace | Report | Path | str) -> Comparison:
        """Compare this recording with another one, which is the baseline, as ``foretrace.compare`` does.

        Raises:
            InputError: the other cannot be read.
        """
        __tracebackhide__ = True
        from foretrace.comparison import compare

        with _Plainly():
            return compare([baseline.path if isinstance(baseline, Recorded) else baseline, self.path])
