"""One test: what it recorded, how that was judged, and what its report says of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from foretrace.capture.recording import Recording
from foretrace.errors import CaptureError, ForetraceError, InputError
from foretrace.integrations.pytest_plugin import baselines
from foretrace.integrations.pytest_plugin.marks import Asked, Wanted, read_marks
from foretrace.integrations.pytest_plugin.measuring import Recorded
from foretrace.integrations.pytest_plugin.misspelt import misspelt
from foretrace.integrations.pytest_plugin.places import places_of_change
from foretrace.model.expectations import Checked, Outcome
from foretrace.model.words import count

if TYPE_CHECKING:
    from foretrace.capture.backend import Backend
    from foretrace.model.baseline import Change

__all__ = ["Case", "Told"]

_MARK = "foretrace"
_FIXTURE = "profiled"
_FOLDER: pytest.StashKey[Path] = pytest.StashKey()
_SHOWN = 3


@dataclass
class Told:
    """What the end of the run is told of one test; plain data, for it crosses from xdist's workers."""

    test: str
    held: bool = False  # something was judged, and all of it held
    broken: bool = False
    unjudged: bool = False  # an expectation could not be judged, and not for want of a GPU
    skipped: bool = False  # for want of a GPU
    written: bool = False  # its baseline
    reported: bool = False  # it ran more than its baseline, which was not to fail it
    guarded: bool = False  # it was held to a baseline, or had one written
    increases: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Case:
    """A test with the mark or the fixture. Raises ``pytest.UsageError`` for a mark that makes no sense."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._wanted: Wanted = read_marks(item, _MARK, fixture=_FIXTURE)
        self.name = item.name
        self.begin()

    def reread(self) -> None:
        """Read the marks again: a fixture may have added one. Raises ``pytest.UsageError``."""
        self._wanted = read_marks(self._item, _MARK, fixture=_FIXTURE)

    def begin(self) -> None:
        """Forget an earlier run of the same test."""
        self._records: list[Recorded] = []
        self._made: list[Recorded] = []
        self._sections: list[str] = []
        self._told = Told(self._item.nodeid)
        self._missing: list[str] = []  # what was asked of a GPU that is not there
        self._fixture = _FIXTURE in getattr(self._item, "fixturenames", ())
        self._failed = False
        self._backend: Backend | None = None

    # ---- recording ----

    def new_recording(
        self,
        *,
        steps: int | None,
        timed: bool,
        stacks: bool = False,
        memory: bool = False,
        label: str | None = None,
    ) -> Recorded:
        """A recording of this test that has not begun; ``steps``: None for a whole block."""
        clauses = self._wanted.asked.expectation.clauses
        stacks = stacks or any(clause.scope.module is not None for clause in clauses)
        memory = memory or any(clause.quantity == "peak_memory_bytes" for clause in clauses)
        if not self._made:
            self._backend = self._item.ihook.pytest_foretrace_backend(item=self._item)
        path = self._folder() / baselines.file_stem(self._item)
        planned = steps is not None
        recording = Recording(
            path,
            wait=0 if planned else None,
            warmup=1 if planned else None,
            active=steps,
            stacks=stacks,
            memory=memory,
            label=self._item.nodeid,
            backend=self._backend,
        )
        label = label or f"recording {len(self._made) + 1}"
        self._made.append(Recorded(self, recording, label, steps=steps, timed=timed))
        return self._made[-1]

    def done(self, recorded: Recorded) -> None:
        """A recording is complete: the mark speaks of it."""
        self._records.append(recorded)

    def _folder(self) -> Path:
        """Where the traces of this run lie: the user's folder, or one of pytest's temporary ones."""
        asked = self._item.config.getoption("--foretrace-traces")
        if asked:
            return Path(self._item.config.invocation_params.dir, asked)  # wherever a test has gone since
        stash = self._item.config.stash
        if _FOLDER not in stash:
            request = getattr(self._item, "_request", None)  # the only way to a fixture from a hook
            if request is None:
                folder = stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="foretrace-"))
                self._item.config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
            else:
                stash[_FOLDER] = request.getfixturevalue("tmp_path_factory").mktemp("foretrace")
        return stash[_FOLDER]

    @contextmanager
    def body(self) -> Iterator[None]:
        """Around the test's body: record it, unless the test measures by itself; then judge."""
        __tracebackhide__ = True
        if self._fixture:
            yield
        elif not self._wanted.asked and not self._guards_baseline:
            yield
            return
        else:
            with self._sentences():
                recorded = self.new_recording(steps=None, timed=False, label="the test")
                recorded.__enter__()
            try:
                yield
            except BaseException as error:
                recorded.__exit__(type(error), error, error.__traceback__)  # adds notes to it, raises nothing
                raise
            with self._sentences():
                recorded.__exit__(None, None, None)
        self.conclude()

    def conclude(self) -> None:
        """The test's body is over: judge what was recorded, and fail or skip the test where that is the answer."""
        __tracebackhide__ = True
        try:
            self.reread()  # the test itself may have added one
        except pytest.UsageError as error:
            self._told.unjudged = True
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        with self._sentences():
            self._judge()

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """What goes wrong on our side fails the test with its sentence, and no traceback through foretrace."""
        __tracebackhide__ = True
        try:
            yield
        except ForetraceError as error:
            self._told.unjudged = True
            self._fail(str(error))

    def _fail(self, text: str) -> NoReturn:
        __tracebackhide__ = True
        raise pytest.fail.Exception(f"foretrace: {text}", pytrace=False) from None

    # ---- judging ----

    @property
    def _guards_baseline(self) -> bool:
        if self._wanted.baseline is not None:
            return self._wanted.baseline
        return bool(self._item.config.getoption("--foretrace-baseline"))

    @property
    def _fails_on_increase(self) -> bool:
        """A baseline that the test asks for itself fails it; one that only the run asks for tells."""
        config = self._item.config
        if config.getoption("--foretrace-fail-on-increase"):
            return True
        told = config.getoption("--foretrace-report-increase") or config.getini("foretrace_report_increase")
        return bool(self._wanted.baseline) and not told

    def check(self, recorded: Recorded, asked: Asked) -> Checked:
        """Judge one recording in the middle of the test; a broken expectation fails it there and then."""
        __tracebackhide__ = True
        checked, problem = self._held(recorded, asked)
        if problem is not None:
            self._fail(problem)
        return checked

    def _judge(self) -> None:
        """The mark's expectations, then the baseline; fails or skips the test where that is the answer."""
        __tracebackhide__ = True
        asked = self._wanted.asked
        if (asked or self._guards_baseline) and not self._records:
            if not self._fixture:
                raise CaptureError("the mark came while the test ran, too late to record it: add it before")
            raise CaptureError(
                f"the test takes the fixture {_FIXTURE} and recorded nothing with it, so there is nothing to judge"
            )
        problems = []
        for recorded in self._records if asked else ():
            _, problem = self._held(recorded, asked)
            if problem is not None:
                problems.append(problem)
        if problems:
            self._fail("; ".join(problems))
        if self._guards_baseline:
            problem = self._against_baseline()
            if problem is not None:
                self._told.broken, self._told.held = True, False
                self._fail(problem)
        if self._missing:
            self._told.skipped, self._told.held = True, False
            reason = f"foretrace: no GPU here, so not judged: {'; '.join(dict.fromkeys(self._missing))}"
            raise pytest.skip.Exception(reason, _use_item_location=True)

    def _held(self, recorded: Recorded, asked: Asked) -> tuple[Checked, str | None]:
        """The verdict on one recording, and the sentence for the test's failure (None: it held)."""
        recorded.require_work()
        expectation = asked.expectation if recorded.gpu else asked.without_gpu
        if not recorded.gpu:
            self._missing += asked.gpu_lines
        checked = recorded.judged(expectation)
        if not checked.outcomes:
            return checked, None
        wrong = misspelt(checked)
        if wrong is not None:
            raise InputError(wrong)
        if not recorded.gpu:
            checked.surprises = []
        self._sections.append(self._section(recorded, checked))
        problem = _problem(checked, recorded, many=len(self._made) > 1)
        if problem is None:
            self._told.held = not self._told.broken
        elif checked.broken:
            self._told.broken, self._told.held = True, False
        else:
            self._told.unjudged, self._told.held = True, False
        return checked, problem

    def _section(self, recorded: Recorded, checked: Checked) -> str:
        from foretrace.report.check import render_check

        return render_check(checked) + f"\nthe trace: foretrace explain {recorded.path}\n"

    def _against_baseline(self) -> str | None:
        """Write the baseline, or compare with it; returns the sentence for the test's failure (None: it held)."""
        for recorded in self._records:
            recorded.require_work()
        config = self._item.config
        self._told.guarded = True
        path = baselines.path_of(self._item)
        new = baselines.summary(self._item, self._records)
        here = any(recorded.gpu for recorded in self._records)
        if config.getoption("--foretrace-update"):
            state, why = baselines.accept(path, new)
            self._told.written = state == "written"
            self._told.held = state == "same" and not self._told.broken
            if why is not None:
                if here:
                    return f"nothing ran on the GPU that is here: {why}"
                self._missing.append(why)
            return None
        old = baselines.read(path, new.test)
        if old is None:
            return (
                f"there is no baseline {baselines.shown(path, config)} yet: make it with pytest --foretrace-update "
                "and commit it"
            )
        from foretrace.comparison.baseline import against
        from foretrace.report.baseline import render_drift

        drift = against(old, new)
        name = baselines.shown(path, config)
        places = {change: places_of_change(change, self._records) for change in drift.more if change.paths}
        text = render_drift(drift, name, places=places)
        if places and not any(recorded.report.trace.has.stacks for recorded in self._records):
            text += "\nthe function and module that make a call are recorded with profiled(…, stacks=True)\n"
        text += "".join(f"\nthe trace: foretrace explain {recorded.path}\n" for recorded in self._records)
        self._sections.append(text)
        self._told.notes += drift.notes
        found = drift.more
        if found and self._fails_on_increase:
            more = [_with_place(change, places.get(change, [])) for change in found[:_SHOWN]]
            more += [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
            return f"more than in the baseline {name}: {'; '.join(more)}; accept it with --foretrace-update"
        if drift.unseen is not None:
            if here:
                return f"{drift.unseen}, though there is one: the program left it, or was not put on it"
            self._missing.append(f"the kernels of the baseline ({drift.unseen})")
        if not drift.compared:
            raise CaptureError(
                f"nothing of the baseline {name} can be compared with what ran; make it anew with --foretrace-update"
            )
        self._told.increases += [_with_place(change, places.get(change, [])) for change in found]
        if not found:
            self._told.changes += [change.text for change in drift.changes]
        self._told.reported = bool(found)
        self._told.held = not found and not self._told.broken
        return None

    # ---- the report ----

    def tell(self, report: pytest.TestReport) -> None:
        """Put the sections and the sums into the report; delete the traces of a test that passed at its end."""
        if report.when == "call":
            report.sections += [("foretrace", text) for text in self._sections]
            # A check that the test expects to fail, or a test that fails for another reason, is not of our sums.
            told = self._told
            told.broken, told.unjudged = told.broken and report.failed, told.unjudged and report.failed
            told.held, told.reported = told.held and report.passed, told.reported and report.passed
            if self._sections or asdict(self._told) != asdict(Told(self._item.nodeid)):
                vars(report)["foretrace"] = asdict(self._told)
            self._failed = report.failed
        if report.when == "teardown" and not self._item.config.getoption("--foretrace-traces"):
            self._drop()

    def _drop(self) -> None:
        if self._failed:
            return
        from foretrace.model.sidefile import side_path, snapshot_path

        for recorded in self._made:
            try:
                path = recorded.path
            except ForetraceError:
                continue
            for file in (path, side_path(path), snapshot_path(path)):
                file.unlink(missing_ok=True)


def _with_place(change: Change, places: list[str]) -> str:
    """``1 call of aten::contiguous a step more (after aten::gelu, before aten::linear)``."""
    return change.text + (f" ({places[0]})" if places else "")


def _problem(checked: Checked, recorded: Recorded, *, many: bool) -> str | None:
    """``1 of 3 expectations is broken: gemm == 3 is 2 (…)``; None where all held. ``many``: recordings of the test."""
    lead = f"{recorded.label}: " if many else ""
    total = count(len(checked.outcomes), "expectation")
    broken = [outcome for outcome in checked.outcomes if outcome.state == "broken"]
    if broken:
        said = "; ".join(_told(outcome) for outcome in broken[:_SHOWN]) + ("; …" if len(broken) > _SHOWN else "")
        return f"{lead}{len(broken)} of {total} {'is' if len(broken) == 1 else 'are'} broken: {said}"
    unknown = [outcome for outcome in checked.outcomes if outcome.state == "unknown"]
    if unknown:
        said = "; ".join(f"{o.expectation}: {o.reason or 'not measured'}" for o in unknown[:_SHOWN])
        return f"{lead}{len(unknown)} of {total} cannot be judged: {said}"
    return None


def _told(outcome: Outcome) -> str:
    seen = f" is {outcome.observed}" if outcome.observed is not None else " does not hold"
    because = "; ".join(account.text for account in outcome.accounts[:2])
    return f"{outcome.expectation}{seen}" + (f" ({because})" if because else "")
