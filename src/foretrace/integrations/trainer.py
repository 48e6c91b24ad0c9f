"""A callback for ``transformers.Trainer``: profile chosen steps of a training and write the report.

::

    from foretrace.integrations.trainer import ProfileCallback

    trainer = Trainer(..., callbacks=[ProfileCallback("traces/train", at=100)])
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.errors import ForetraceError, InputError, MissingExtraError

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
        stacks, memory: as for ``foretrace.profile``.
        ranks: the processes that record (``None``: all); the name of the file then carries the rank.
        html: write the report as a page too, ``x.html`` beside ``x.trace.json.gz``.

    Beside each trace ``x.trace.json.gz`` stands ``x.report.json``. Training never fails on behalf of the profiler:
    what goes wrong is a warning. Raises :class:`InputError` for numbers that make no sense.
    """

    def __init__(
        self,
        path: str | Path = "traces/train",
        *,
        at: int | Sequence[int] = 10,
        steps: int = 3,
        stacks: bool = False,
        memory: bool = False,
        ranks: Sequence[int] | None = (0,),
        html: bool = True,
    ) -> None:
        places = [at] if isinstance(at, int) else list(at)
        if not places or min(places) < 1:
            raise InputError("at= names global steps from 1 on: the step before warms the profiler up")
        if steps < 1:
            raise InputError(f"steps={steps} records nothing; give 1 or more")
        places.sort()
        for first, second in pairwise(places):
            if second - first <= steps:
                raise InputError(
                    f"recording {steps} steps from {first} is not over when step {second} is to be warmed up; "
                    f"put them {steps + 1} or more steps apart"
                )
        self.reports: list[Path] = []
        """The reports that were written, as JSON."""
        self._path = Path(path)
        self._places = places
        self._steps = steps
        self._stacks, self._memory = stacks, memory
        self._ranks = ranks
        self._html = html
        self._recording: Recording | None = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin one step early: it is the profiler's warm-up."""
        rank = args.process_index
        if self._recording is not None or state.global_step + 1 not in self._places:
            return
        if self._ranks is not None and rank not in self._ranks:
            return
        from foretrace.capture import profile

        recording = profile(
            self._name(state.global_step + 1, rank, args.world_size),
            wait=0,
            warmup=1,
            active=self._steps,
            label=f"transformers.Trainer, from global step {state.global_step + 1}",
            stacks=self._stacks,
            memory=self._memory,
        )
        try:
            recording.__enter__()
        except ForetraceError as error:
            _warn(f"nothing is recorded from step {state.global_step + 1}: {error}")
            return
        self._recording = recording

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count the step; after the last one the trace is written and explained."""
        recording = self._recording
        if recording is None:
            return
        try:
            recording.step()
        except ForetraceError as error:
            self._recording = None
            _warn(str(error))
            return
        if recording.finished:
            self._recording = None
            self._explain(recording)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The training may end before the recording does: what there is, is kept."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        try:
            recording.__exit__(None, None, None)
        except ForetraceError as error:
            _warn(str(error))
            return
        self._explain(recording)

    def _name(self, step: int, rank: int, world: int) -> Path:
        name = self._path.name
        if len(self._places) > 1:
            name += f"_step{step}"
        if world > 1:
            name += f"_rank{rank}"
        return self._path.with_name(name)

    def _explain(self, recording: Recording) -> None:
        from foretrace.integrations.explained import write_explained

        try:
            written = write_explained(recording.path, html=self._html)
        except ForetraceError as error:
            _warn(f"{recording.path} was recorded and could not be explained: {error}")
            return
        self.reports.append(written[0])
        print(f"foretrace: wrote {recording.path}, {', '.join(str(path.name) for path in written)}", file=sys.stderr)


def _warn(sentence: str) -> None:
    from foretrace.capture import CaptureWarning

    warnings.warn(f"foretrace: {sentence}", CaptureWarning, stacklevel=3)
