"""A trace read and explained in one go, and what its warnings say of steps without work."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace.analysis import explain
from foretrace.analysis.explained import explained
from foretrace.errors import InputError
from foretrace.model.sidefile import SideFile, write_side
from foretrace.view.slim import slim


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two steps of one kernel each, and one in which nothing ran."""
    build = TraceBuilder()
    for number in range(2):
        at = 1000.0 * number
        build.step(number + 2, at, 900.0)
        build.op("aten::mm", at + 10, 30)
        build.kernel("sgemm", at + 50, 120, launch=build.launch(at + 20))
    build.step(4, 2000.0, 900.0)
    return build.write(tmp_path / "t.json")


def test_what_a_report_was_made_of_is_at_hand(path: Path):
    write_side(path, SideFile(label="mine"))
    read = explained(path)
    assert read.report == explain(path)
    assert read.side is not None
    assert read.side.label == "mine"
    assert read.steps is None
    assert (read.context.trace, read.context.side) == (read.trace, read.side)


def test_steps_are_named_by_position_or_label(path: Path):
    read = explained(path, steps=["#3", 0])
    assert read.steps == [0, 1]
    assert read.report == explain(path, steps=[0, 1])
    with pytest.raises(InputError, match="no step '#9'; the flag takes a position or a label, of: 0"):
        explained(path, steps=["#9"], what="the flag takes")


def test_only_the_findings_that_are_wanted_are_looked_for(path: Path):
    assert explained(path).report.findings
    assert not explained(path, detectors=[]).report.findings


ENDED, CUT = "ProfilerStep#4 holds no work (the loop ended before it)", "ProfilerStep#4 holds no work"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (None, ENDED),
        ({"drop": ("stacks",)}, ENDED),
        ({"steps": [0, 1]}, None),  # the step behind them is a mark, and no step of the trace
        ({"span": (0, 2_500_000)}, CUT),
    ],
    ids=["as recorded", "only stacks left out", "cut to steps", "cut to a range"],
)
def test_a_step_without_work_marks_a_cut_only_where_there_was_one(
    path: Path, options: dict[str, object], said: str | None
):
    if options is not None:
        path = slim(path, path.with_name("s.json"), **options).path
    warnings = explain(path).trace.warnings
    assert [one for one in warnings if "ProfilerStep#4" in one] == (
        [] if said is None else [f"{said}: per-step numbers leave it out"]
    )
