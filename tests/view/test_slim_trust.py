"""A slim trace claims no more than the whole one: alarms stay, a cut step is no whole one, what went is said to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.analysis.explain import report_of
from foretrace.analysis.health import check_health
from foretrace.cli import main
from foretrace.comparison.compare import compare
from foretrace.errors import InputError
from foretrace.knowledge.slimming import SLIM_KEY
from foretrace.model.report import Health
from foretrace.model.slim import SlimNote, slim_note
from foretrace.prediction.expect.checker import check
from foretrace.trace import load
from foretrace.trace.steps import select_steps
from foretrace.view.slim import slim
from readings import document

DATA = Path(__file__).parents[1] / "data"
EAGER = DATA / "traces" / "mlp_eager.json.gz"
CLEAN = gzip.decompress(EAGER.read_bytes())
DAMAGED = {
    "a cut end": CLEAN[: len(CLEAN) // 2],
    "a cut gzip stream": gzip.compress(CLEAN)[:4000],
    "control characters": CLEAN.replace(b"aten::linear", b"aten::\x01linear"),
}


def health_of(path: str | Path, name: str) -> Health | None:
    return next((one for one in check_health(load(path)) if one.check == name), None)


def loop(steps: int = 3, **options: Any) -> TraceBuilder:
    """Steps of 100 µs: an operator, a launch, and a kernel of 40 µs that ends within the period."""
    build = TraceBuilder(**options)
    for number in range(steps):
        at = 100 * number
        build.step(number, at, 90)
        build.op("aten::mm", at + 5, 20, shapes=[[2, 2], [2, 2]], dtypes=["float", "float"])
        build.kernel("gemm", at + 30, 40, launch=build.launch(at + 10))
    return build


# Damage


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_mended_copy_raises_the_alarm_that_the_damaged_trace_raised(tmp_path: Path, text: bytes):
    broken = tmp_path / "broken.json"
    broken.write_bytes(text)
    once = slim(broken, tmp_path / "once.json", drop=()).path
    twice = slim(once, tmp_path / "twice.json", drop=()).path
    before = health_of(broken, "repaired")
    assert before is not None
    for path in (once, twice):
        after = health_of(path, "repaired")
        assert after is not None
        assert (after.state, after.count) == (before.state, before.count)
        assert all(repair in after.detail for repair in load(broken).repairs)
        assert report_of(load(path)).trace.repairs == load(broken).repairs
        assert report_of(load(path)).verdict.bound == report_of(load(broken)).verdict.bound


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_what_cannot_be_checked_in_a_damaged_trace_cannot_be_in_its_copy(tmp_path: Path, again: bool):
    broken = tmp_path / "broken.json"
    broken.write_bytes(DAMAGED["a cut end"])
    path = slim(broken, tmp_path / "mended.json").path
    if again:
        path = slim(path, tmp_path / "again.json").path
    assert check(broken, "kernels == 0").state == "unknown"
    held = check(path, "kernels == 0")
    assert held.state == "unknown"
    assert "the text is cut off" in held.alarms[0]


def test_damage_that_the_cut_takes_away_is_still_told(tmp_path: Path):
    build = loop()
    for number in range(3):
        build.launch(40 + 10 * number)  # in the first step: launches whose kernels were dropped
    path = build.write(tmp_path / "t.json")
    before = health_of(path, "launches_without_kernels")
    assert before is not None
    assert before.state == "bad"
    once = slim(path, tmp_path / "s.json", steps=[2]).path
    twice = slim(once, tmp_path / "again.json", steps=[0]).path
    for slimmed in (once, twice):
        after = health_of(slimmed, "launches_without_kernels")
        assert after is not None
        assert (after.state, after.detail) == ("bad", f"before it was slimmed: {before.detail}")
        assert report_of(load(slimmed)).verdict.bound == "unknown"


def test_a_sound_trace_leaves_no_alarm_behind(tmp_path: Path):
    made = slim(loop().write(tmp_path / "t.json"), tmp_path / "s.json", steps=[1])
    note = slim_note(load(made.path).meta)
    assert note is not None
    assert (note.repairs, note.health, note.cut_steps) == ([], [], None)
    assert {one.state for one in check_health(load(made.path))} == {"ok"}


# Ranges


def test_a_step_that_a_range_cuts_through_is_not_taken_for_a_whole_one(tmp_path: Path):
    path = loop().write(tmp_path / "t.json")
    # Half of step 0, step 1 from its start to the start of step 2, none of step 2.
    made = slim(path, tmp_path / "s.json", span=(50_000, 200_000))
    assert made.cut_steps == ["ProfilerStep#0"]
    trace = load(made.path)
    found = health_of(made.path, "cut_steps")
    assert found is not None
    assert (found.state, found.count) == ("bad", 1)
    assert "cut to the range from 50.0 µs to 200 µs: ProfilerStep#0 is not whole" in found.detail
    assert found.detail.endswith("(whole: ProfilerStep#1)")
    report = report_of(trace)
    assert report.verdict.bound == "unknown"
    assert found.detail in report.verdict.because[0]
    assert check(trace, "kernels == 1").state == "unknown"
    # Of the other one all is known, and it has the period that it had.
    alone, whole = report_of(trace, steps=[1]), report_of(load(path), steps=[1])
    assert [one.state for one in alone.health if one.check == "cut_steps"] == ["ok"]
    assert alone.verdict == whole.verdict
    assert alone.steps[0].period_us == whole.steps[0].period_us == 100


def test_nothing_of_a_cut_step_is_compared(tmp_path: Path):
    part = slim(EAGER, tmp_path / "r.json", span=(1_000_000, 1_200_000)).path
    for order in ([EAGER, part], [part, EAGER]):
        found = compare(order, fail_on=["kernels > +1", "kernels < -1"])
        assert {change.direction for metric in found.metrics if (change := metric.changes[1])} == {"unknown"}
        assert found.pairs[0].places == []
        assert found.pairs[0].operators == []
        assert "ProfilerStep#4 is not whole" in found.pairs[0].notes[0]
        assert {gate.state for gate in found.gates} == {"unknown"}
        assert "is not whole" in found.conclusion[0].changed[0]
    assert {value.median for metric in found.metrics if metric.name != "end_to_end" for value in metric.values[:1]} == {
        None
    }


@pytest.mark.parametrize("stepless", [False, True], ids=["between the steps", "without steps"])
def test_a_range_without_a_step_is_a_part_too(tmp_path: Path, stepless: bool):
    build = loop() if not stepless else TraceBuilder()
    build.op("aten::add", 93, 4)
    build.op("aten::mul", 400, 4)
    path = build.write(tmp_path / "t.json")
    low = 0 if stepless else 92_000
    made = slim(path, tmp_path / "s.json", span=(low, low + 6_000))
    assert made.cut_steps == ["whole trace"]
    found = health_of(made.path, "cut_steps")
    assert found is not None
    assert found.state == "bad"
    assert "holds no whole step" in found.detail


def test_a_range_that_leaves_nothing_out_cuts_through_nothing(tmp_path: Path):
    made = slim(loop().write(tmp_path / "t.json"), tmp_path / "s.json", span=(None, None))
    assert made.cut_steps == []
    assert {one.check: one.state for one in check_health(load(made.path))}["cut_steps"] == "ok"


def test_a_cut_step_stays_one_however_often_it_is_slimmed(tmp_path: Path):
    once = slim(loop().write(tmp_path / "t.json"), tmp_path / "a.json", span=(50_000, 200_000)).path
    for name, options in {
        "parts": {"drop": ("shapes",)},
        "its step": {"steps": [0]},
        "all of it": {"span": (None, None)},
    }.items():
        twice = slim(once, tmp_path / f"{name}.json", **options)
        found = health_of(twice.path, "cut_steps")
        assert found is not None
        assert found.state == "bad", name
        assert twice.cut_steps == ["ProfilerStep#0"]
    other = slim(once, tmp_path / "other.json", steps=[1])
    assert other.cut_steps == []
    assert {one.state for one in check_health(load(other.path))} == {"ok"}


def test_a_range_of_which_nothing_else_is_said_may_have_cut_through_any_step(tmp_path: Path):
    path = loop(meta={SLIM_KEY: {"range_us": [0, 300]}}).write(tmp_path / "t.json")
    found = health_of(path, "cut_steps")
    assert found is not None
    assert (found.state, found.count) == ("bad", 3)
    assert slim(path, tmp_path / "s.json", steps=[1]).cut_steps == ["ProfilerStep#1"]


# Steps


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("traces/mlp_eager", "1"),
        ("traces/mlp_train_eager", "0"),
        ("traces/mlp_cudagraph", "#3"),
        ("traces/ddp_rank0", "#3"),
    ],
)
def test_the_screen_of_a_slim_trace_is_that_of_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, step: str
):
    path = DATA / f"{name}.json.gz"
    made = slim(path, tmp_path / path.name, steps=[step])
    screens = []
    for words in ([made.path], [str(path), "--step", step]):
        assert main(["explain", *words, "--section", "steps", "--section", "phases", "--section", "kernels"]) == 0
        screens.append(capsys.readouterr().out)
    assert screens[0] == screens[1]


def test_the_mark_of_the_next_step_is_no_step(tmp_path: Path):
    trace = load(slim(loop().write(tmp_path / "t.json"), tmp_path / "s.json", steps=[1]).path)
    assert [(span.index, span.label) for span in trace.steps] == [(0, "ProfilerStep#1")]
    assert [(span.index, span.label, span.end - span.start) for span in trace.marks] == [(-1, "ProfilerStep#2", 0)]
    assert select_steps(trace.steps, ["#1"]) == [0]
    with pytest.raises(InputError, match=r"of: 0 \(ProfilerStep#1\)$"):
        select_steps(trace.steps, ["#2"])
    report = report_of(trace)
    assert [step.period_us for step in report.steps] == [100]
    assert not [warning for warning in report.trace.warnings if "ProfilerStep" in warning]


def test_marks_are_told_apart_from_steps_of_another_rank(tmp_path: Path):
    one, other = loop(2, pid=100, thread=100), loop(2, pid=200, thread=200)
    one.events += other.events
    path = one.write(tmp_path / "t.json")
    chosen = [
        s.index for s in load(path).steps if (s.pid, s.label) in ((100, "ProfilerStep#0"), (200, "ProfilerStep#1"))
    ]
    trace = load(slim(path, tmp_path / "s.json", steps=chosen).path)
    assert {(span.pid, span.label) for span in trace.steps} == {(100, "ProfilerStep#0"), (200, "ProfilerStep#1")}
    assert [(span.pid, span.label) for span in trace.marks] == [(100, "ProfilerStep#1")]


def test_a_step_without_gpu_work_has_none_and_not_an_unknown_amount(tmp_path: Path):
    build = loop()
    build.step(3, 300, 90)
    build.op("aten::view", 310, 5)
    path = build.write(tmp_path / "t.json")
    slimmed = load(slim(path, tmp_path / "s.json", steps=[3]).path)
    step = report_of(slimmed).steps[0]
    assert not len(slimmed.gpu_rows)
    assert (step.kernels, step.launches) == (0, 0)
    assert report_of(slimmed).verdict == report_of(load(path), steps=[3]).verdict


# Parts


def framed(modules: bool = True) -> TraceBuilder:
    build = loop(1)
    build.python("model.py(3): forward", 1, 80)
    if modules:
        build.python("nn.Module: Linear_0", 2, 70)
    return build


@pytest.mark.parametrize("modules", [True, False], ids=["with modules", "without"])
def test_stacks_that_were_left_out_are_neither_claimed_nor_missed(tmp_path: Path, modules: bool, capsys):
    path = framed(modules).write(tmp_path / "t.json")
    made = slim(path, tmp_path / "s.json")
    before, after = report_of(load(path)), report_of(load(made.path))
    assert (before.trace.has.stacks, after.trace.has.stacks) == (True, False)
    # Recording them took the CPU time all the same.
    assert after.verdict == before.verdict
    assert main(["explain", made.path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "without stacks" in said
    assert "source lines were recorded (with_stack=True) and left out by `foretrace slim`" in said
    assert "Not recorded: source lines" not in said


def test_what_was_never_recorded_was_not_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = slim(EAGER, tmp_path / "s.json", drop=("stacks", "memory", "modules"))
    assert document(made.path)[SLIM_KEY]["dropped"] == []
    assert main(["explain", made.path]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not recorded: source lines (with_stack=True) · allocations (profile_memory=True)" in said
    assert "left out" not in said


@pytest.mark.parametrize("part", ["shapes", "args"])
def test_shapes_that_were_left_out_are_not_said_to_be_unrecorded(tmp_path: Path, part: str):
    made = slim(loop().write(tmp_path / "t.json"), tmp_path / "s.json", drop=(part,))
    warnings = report_of(load(made.path)).trace.warnings
    shapes = [warning for warning in warnings if "record_shapes" in warning]
    why = "operator shapes were recorded (record_shapes=True) and left out by `foretrace slim`"
    assert shapes == [f"{why}: FLOPs and bytes are unknown"]


# What a later hand made of it

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["dropped", "steps", "range_us", "marks", "cut_steps", "repairs", "health", "recorded"])


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=4))
def test_a_note_that_cannot_be_read_is_read_as_far_as_it_can(said: Any):
    note = slim_note({SLIM_KEY: json.loads(json.dumps(said))})
    assert isinstance(note, SlimNote) == isinstance(said, dict)
    trace = loop(2, meta={SLIM_KEY: said}).trace()
    assert [step.label for step in report_of(trace).steps] == ["ProfilerStep#0", "ProfilerStep#1"]
