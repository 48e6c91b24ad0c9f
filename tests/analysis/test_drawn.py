"""Everything that a page draws, in one pass."""

from pathlib import Path

import pytest

from foretrace import explain, load
from foretrace.analysis.drawn import drawn_of

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"


@pytest.fixture(scope="module")
def mlp():
    trace = load(TRACE)
    return trace, explain(trace)


def nodes(chain) -> int:
    return sum(1 + nodes(node.children) for node in chain)


def test_timeline_roofline_and_chain_are_of_one_report(mlp):
    trace, report = mlp
    drawn = drawn_of(trace, report)
    assert {kernel.event for kernel in report.kernels} <= set(drawn.timeline.event.tolist())
    assert len(drawn.roofline.place) == len(report.kernels)
    assert len(drawn.chain) == nodes(report.chain)
    assert {event for events in drawn.chain for event in events} <= set(drawn.timeline.event.tolist())


def test_only_the_rows_of_the_asked_step_are_drawn(mlp):
    trace, _ = mlp
    report = explain(trace, steps=[1])
    drawn = drawn_of(trace, report, steps=[1])
    assert [band.label for band in drawn.timeline.bands] == [report.steps[0].label]


def test_a_report_alone_has_a_roofline_and_no_timeline(mlp):
    _, report = mlp
    drawn = drawn_of(None, report)
    assert drawn.timeline is None
    assert drawn.chain == []
    assert len(drawn.roofline.place) == len(report.kernels)
