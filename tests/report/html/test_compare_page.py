"""The page of a comparison as a parser sees it: what the screen says stands in it, and the data its lanes need."""

from pathlib import Path

import pytest

from comparison.comparing import COMPILED, EAGER, Call, pointwise, program
from foretrace import explain
from foretrace.comparison.compare import compare_subjects, read_with_trace
from foretrace.comparison.drawn import timeline_of_step
from foretrace.model.comparison import Comparison
from foretrace.model.timeline import Timeline
from foretrace.report.html.compare import compare_page
from report.html.test_explain_page import Seen, flat, seen

TRACES = Path(__file__).parents[2] / "data" / "traces"
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\u202e'\"&"


def compared(*sources, fail_on=()) -> tuple[Comparison, list[Timeline | None]]:
    read = [read_with_trace(source) for source in sources]
    timelines = [None if trace is None else timeline_of_step(subject, trace) for subject, trace in read]
    return compare_subjects([subject for subject, _ in read], fail_on=fail_on), timelines


def of(*names: str, **options) -> tuple[Comparison, Seen]:
    comparison, timelines = compared(*(TRACES / f"{name}.json.gz" for name in names), **options)
    return comparison, seen(compare_page(comparison, timelines))


def sections(page: Seen) -> list[str]:
    return [attrs["id"] or "" for attrs in page.all("section")]


@pytest.fixture(scope="module")
def three() -> tuple[Comparison, Seen]:
    return of("mlp_eager", "mlp_compile", "mlp_liger", fail_on=["kernels > +0", "gpu_time < -1%"])


def test_what_the_screen_says_is_in_the_page(three):
    comparison, page = three
    text = flat(page.text)
    for said in (
        "mlp_eager against mlp_compile and mlp_liger",
        "3 of 3 steps alike, ProfilerStep#4 compared",
        "GPU time: 1.14× faster",
        "236 µs → 207 µs -12.4 %",
        "gelu + mul → triton_poi gelu·mul",
        "2 of 4 gates failed",
        "kernels > +0",
        "101 MB",
        "end to end unknown: no unprofiled timing lies beside the trace",
        "Aligned: 100 % of the GPU time",
        "Torch-Compiled Region",
        *(text for row in comparison.conclusion for text in (*row.changed, *row.same)),
        *(note for pair in comparison.pairs for note in pair.notes),
        *(gate.detail for gate in comparison.gates),
        *(place.title for pair in comparison.pairs for place in pair.places),
        *(change.name.removeprefix("## ") for pair in comparison.pairs for change in pair.operators),
    ):
        assert flat(said) in text


def test_the_conclusion_comes_first_then_gates_then_the_lanes(three):
    assert sections(three[1]) == [
        "section-conclusion",
        "section-gates",
        "section-timeline",
        "section-places-1",
        "section-host-1",
        "section-places-2",
        "section-host-2",
        "section-numbers",
        "section-traces",
    ]


def test_a_difference_inside_the_spread_is_no_change_and_others_say_which_way(three):
    classes = [(attrs.get("class") or "").split() for attrs in three[1].all("td")]
    ways = [each[-1] for each in classes if "change" in each]
    assert {"less", "more", "same"} <= set(ways)
    wanted = [change.direction for row in three[0].metrics if row.name == "gpu_time" for change in row.changes[1:]]
    assert ways[:2] == wanted == ["less", "less"]


def test_every_gpu_row_of_both_steps_is_in_one_place_of_the_data(three):
    _, page = three
    said, _ = page.columns("data-pairs")
    assert [(pair["a"], pair["b"]) for pair in said["pairs"]] == [(0, 1), (0, 2)]
    for pair in said["pairs"]:
        for side in "ab":
            told, columns = page.columns(f"data-side-{pair[side]}")
            on_gpu = [lane["side"] == "gpu" for lane in told["lanes"]]
            drawn = sorted(
                int(event) for event, lane in zip(columns["event"], columns["lane"], strict=True) if on_gpu[int(lane)]
            )
            placed = sorted(event for place in pair["places"] for event in place[side]["events"])
            assert drawn == placed
    fused = said["pairs"][0]["places"][0]
    assert (fused["category"], fused["a"]["events"], fused["b"]["events"]) == ("fused", [157, 169], [73])


def test_each_step_starts_at_zero(three):
    for side in range(3):
        said, columns = three[1].columns(f"data-side-{side}")
        assert said["bands"][0]["start"] == 0
        assert columns["start"].min() == 0


def test_the_table_of_places_is_in_the_order_of_the_data(three):
    said, _ = three[1].columns("data-pairs")
    tables, _ = three[1].columns("data-tables")
    table = next(table for table in tables if table["id"] == "places-1")
    column = {one["key"]: one for one in table["columns"]}
    assert column["category"]["values"] == [place["category"] for place in said["pairs"][0]["places"]]
    assert column["place"]["values"] == [place["words"] for place in said["pairs"][0]["places"]]
    assert column["change"]["values"][0] == pytest.approx(-0.462, abs=0.001)
    # What is inside the spread has no number that a filter could find.
    assert [
        value for value, note in zip(column["change"]["values"], column["change"]["notes"], strict=True) if note
    ] == [
        None,
        None,
    ]


def test_one_pair_needs_no_choice_and_no_lead():
    _, page = of("mlp_eager", "mlp_compile")
    assert page.all("button", data_pair="1") == []
    assert "What became of each kernel" in page.text
    assert "mlp_eager → mlp_compile" in page.text


def test_a_report_has_no_lanes_and_the_page_says_so():
    report = explain(TRACES / "mlp_compile.json.gz")
    comparison, timelines = compared(TRACES / "mlp_eager.json.gz", report)
    assert timelines[1] is None
    page = seen(compare_page(comparison, timelines))
    assert "mlp_compile is a report without its trace, so it has no lanes." in flat(page.text)
    assert "data-side-0" in page.blocks
    assert "data-side-1" not in page.blocks


def test_of_two_reports_nothing_is_drawn():
    reports = [explain(TRACES / f"mlp_{name}.json.gz") for name in ("eager", "compile")]
    page = seen(compare_page(*compared(*reports)))
    assert "mlp_eager and mlp_compile are reports without their traces, so they have no lanes." in flat(page.text)
    assert page.all("div", id="lanes") == []


def test_unrelated_traces_get_an_alarm_and_no_lanes():
    _, page = of("linear_eager", "mlp_eager")
    text = flat(page.text)
    assert "NOT ALIKE These traces are unrelated" in text
    assert sections(page) == ["section-conclusion", "section-numbers", "section-traces"]


def test_a_predicted_side_is_marked_everywhere():
    guess = explain(program(EAGER).trace())
    guess.trace.predicted = True
    page = seen(compare_page(*compared(guess, program(COMPILED).trace())))
    assert "PREDICTED" in page.text
    assert "nothing of it ran, nothing was measured" in page.text
    said, _ = page.columns("data-pairs")
    assert [side["predicted"] for side in said["sides"]] == [True, False]
    assert "predicted" in page.text[page.text.index("A step in numbers", 800) :]


def test_names_of_a_trace_are_text():
    calls = [*EAGER, pointwise(f"aten::{HOSTILE}", f"kernel{HOSTILE}"), Call("aten::x", HOSTILE, 3.0)]
    page = seen(compare_page(*compared(program(EAGER).trace(), program(calls).trace())))
    assert page.all("img") == []
    assert "\u202e" not in page.text
    assert "\u2028" not in page.text
    assert "<img src=x onerror=alert(1)>" in page.text


def test_sides_and_timelines_must_match():
    comparison, timelines = compared(TRACES / "mlp_eager.json.gz", TRACES / "mlp_compile.json.gz")
    with pytest.raises(ValueError, match="2 traces are compared, and 1 timelines were given"):
        compare_page(comparison, timelines[:1])
