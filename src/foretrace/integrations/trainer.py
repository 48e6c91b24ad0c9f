"""A callback for ``transformers.Trainer``: profile chosen steps of a training and write the report.

::

    from foretrace.integrations.trainer import ProfileCallback

    trainer = Trainer(..., callbacks=[ProfileCallback("traces/train", at=100)])
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from foretrace.errors import InputError, MissingExtraError, sentence_of
from foretrace.model.words import listed

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name not in ("transformers", "torch"):
        raise
    raise MissingExtraError(f"the callback is for transformers.Trainer, and {error.name} is not installed") from error

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from foretrace.capture import Recording

__all__ = ["ProfileCallback"]


class ProfileCallback(TrainerCallback):
    """Records ``steps`` optimizer steps from global step ``at`` on, and writes trace, report and page.

    Args:
        path: the trace, as for ``foretrace.profile``; with several places each gets the number of its first step.
        at: the global step (0 is the first of the training) from which is recorded, or several of them. The step
            before it warms the profiler up, so 1 is the earliest place.
        steps: how many steps are recorded at each place. A step is one of the optimizer, gradient accumulation
            included.
        stacks: as for ``foretrace.profile``.
        memory: as for ``foretrace.profile``.
        ranks: the process that records, or several of them (``None``: all); the name of the file then carries the
            rank.
        html: write the report as a page too, ``x.html`` beside ``x.trace.json.gz``.

    Beside each trace ``x.trace.json.gz`` stands ``x.report.json``. Training never fails on behalf of the profiler:
    what goes wrong is a warning, and so is a place that the training did not reach. Raises :class:`InputError` for
    numbers that make no sense.

    ``Trainer`` tells its callbacks nothing of an exception that ends a training. Where it comes while steps are
    recorded, the profiler runs on until the next training with this callback begins, the callback (with its Trainer)
    is no longer referred to, or :meth:`close` is called; nothing is written then. Leaving a ``with`` block calls it::

        with ProfileCallback("traces/train", at=100) as callback:
            Trainer(..., callbacks=[callback]).train()
    """

    def __init__(
        self,
        path: str | Path = "traces/train",
        *,
        at: int | Sequence[int] = 10,
        steps: int = 3,
        stacks: bool = False,
        memory: bool = False,
        ranks: int | Sequence[int] | None = (0,),
        html: bool = True,
    ) -> None:
        places = sorted(_numbers(at, "at", "global steps as whole numbers"))
        if not places or places[0] < 1:
            raise InputError("at= names global steps from 1 on: the step before warms the profiler up")
        [length] = _numbers([steps], "steps", "a whole number of steps")
        if length < 1:
            raise InputError(f"steps={length} records nothing; give 1 or more")
        for first, second in pairwise(places):
            if second - first <= length:
                raise InputError(
                    f"recording {length} steps from {first} is not over when step {second} is to be warmed up; "
                    f"put them {length + 1} or more steps apart"
                )
        processes = None if ranks is None else _numbers(ranks, "ranks", "processes as whole numbers")
        if processes is not None and (not processes or min(processes) < 0):
            raise InputError("ranks= names processes from 0 on; None stands for all of them")
        if not isinstance(path, str | Path) or not str(path):
            raise InputError(f"the path of the trace is a text such as 'traces/train', not {path!r}")
        self.reports: list[Path] = []
        """The reports that were written, as JSON."""
        self._path = Path(path)
        self._places = places
        self._steps = length
        self._stacks, self._memory = stacks, memory
        self._ranks = processes
        self._html = html
        self._recording: Recording | None = None
        self._place = 0  # where the recording in progress began
        self._unreached: list[int] = []
        self._first = 0  # the global step at which the training began

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """End what an exception left of the training before."""
        self.close()
        self._first = state.global_step
        self._unreached = list(self._places) if self._records(args) else []

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin one step early: it is the profiler's warm-up."""
        place = state.global_step + 1
        if self._recording is not None or place not in self._places or not self._records(args):
            return
        if place in self._unreached:
            self._unreached.remove(place)
        try:
            from foretrace.capture import profile

            recording = profile(
                self._name(place, args.process_index, args.world_size),
                wait=0,
                warmup=1,
                active=self._steps,
                label=f"transformers.Trainer, from global step {place}",
                stacks=self._stacks,
                memory=self._memory,
            )
            recording.__enter__()
        except Exception as error:
            _warn(f"nothing is recorded from step {place}: {sentence_of(error)}")
            return
        self._recording, self._place = recording, place

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the step; after the last one the trace is written and explained."""
        recording = self._recording
        if recording is None:
            return
        try:
            recording.step()
        except Exception as error:
            self._give_up(sentence_of(error))
            return
        if recording.finished:
            self._recording = None
            self._explain(recording)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The training may end before the recording does: the steps that there are, are kept."""
        recording = self._recording
        if recording is not None and not recording.recorded:
            # What the Trainer does after its last step is no step, though the profiler would have it.
            self._unreached.insert(0, self._place)
            self._give_up(None)
        elif recording is not None:
            try:
                recording.__exit__(None, None, None)
            except Exception as error:
                self._give_up(sentence_of(error))
            else:
                self._recording = None
                self._explain(recording)
        missed, self._unreached = self._unreached, []
        if missed:
            _warn(
                f"nothing was recorded from {_steps(missed)}: the training went from step {self._first} to "
                f"{max(state.global_step - 1, self._first)}, and the step before each place warms the profiler up"
            )

    def close(self) -> None:
        """Stop a recording that an exception in the training left; what it holds is not written."""
        if self._recording is not None:
            self._give_up(
                f"the training was left while steps were recorded from {self._place} on; they were not written"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._recording is None:
            self.close()
            return
        place = self._place
        self._give_up(None)
        error.add_note(f"foretrace: the steps that were recorded from {place} on were not written")

    def _records(self, args: TrainingArguments) -> bool:
        return self._ranks is None or args.process_index in self._ranks

    def _name(self, step: int, rank: int, world: int) -> Path:
        name = self._path.name
        if len(self._places) > 1:
            name += f"_step{step}"
        if world > 1:
            name += f"_rank{rank}"
        return self._path.with_name(name)

    def _give_up(self, why: str | None) -> None:
        """Forget the recording in progress, with its profiler stopped; ``why`` is said."""
        recording, self._recording = self._recording, None
        if recording is not None:
            with suppress(Exception):  # it failed before, or fails to stop: nothing more can be done
                recording.discard()
        if why is not None:
            _warn(why)

    def _explain(self, recording: Recording) -> None:
        trace = recording.path
        try:
            from foretrace.integrations.explained import write_explained

            written = write_explained(trace, html=self._html)
        except Exception as error:
            _warn(f"{trace} was recorded and could not be explained: {sentence_of(error)}")
            return
        self.reports.append(written[0])
        with suppress(OSError, ValueError):  # standard error may be closed
            print(f"foretrace: wrote {trace}, {', '.join(str(path.name) for path in written)}", file=sys.stderr)


def _numbers(value: Any, name: str, what: str) -> list[int]:
    """One whole number or several as a list; raises `InputError` for anything else."""
    several = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]
    for one in several:
        if isinstance(one, bool) or not isinstance(one, Integral):
            raise InputError(f"{name}= takes {what}, not {one!r}")
    return [int(one) for one in several]


def _steps(places: Sequence[int]) -> str:
    return f"{'step' if len(places) == 1 else 'steps'} {listed(map(str, places))}"


def _warn(sentence: str) -> None:
    from foretrace.capture import CaptureWarning

    warnings.warn(f"foretrace: {sentence}", CaptureWarning, stacklevel=3)
