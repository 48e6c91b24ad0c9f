"""The page of a check: verdicts first, each with what accounts for it; intervals with what was seen in them."""

import re
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import explain, load
from foretrace.analysis.drawn import drawn_of
from foretrace.prediction.expect import expect, judge
from foretrace.report.html.check import check_page
from report.html.test_explain_page import Seen, flat, seen

TRACES = Path(__file__).parents[2] / "data" / "traces"
LINES = [
    "kernels == 5",
    "gemm == 4",
    "gpu_busy_us <= 250",
    "gpu_busy_us == 100..200",
    "wall_us >= 1",
    "peak_memory_bytes <= 10",
]


@pytest.fixture(scope="module")
def mlp():
    trace = load(TRACES / "mlp_eager.json.gz")
    return trace, explain(trace)


def page_of(trace, report, *lines: str, drawn: bool = True) -> Seen:
    expectation = expect(*map(expect, lines))
    checked = judge(report, expectation, trace=trace if drawn else None)
    page = drawn_of(trace if drawn else None, report)
    return seen(check_page(checked, report, page, expectation=expectation))


def test_the_verdicts_come_first_then_what_the_trace_says(mlp):
    page = page_of(*mlp, *LINES)
    ids = [attrs["id"] for attrs in page.all("section")]
    assert ids[:4] == ["section-expectations", "section-intervals", "section-timeline", "section-verdict"]
    assert ids.count("section-timeline") == 1
    assert {"section-findings", "section-health", "section-kernels"} <= set(ids)
    text = flat(page.text)
    assert "6 expectations: 3 held, 2 broken and 1 unknown" in text
    assert "foretrace check" in text
    links = {attrs["href"] for attrs in page.all("a", class_="event")}
    assert any(re.fullmatch(r"#event-\d+", link or "") for link in links)


def test_an_interval_is_drawn_with_every_step_in_it_or_outside(mlp):
    page = page_of(*mlp, "gpu_busy_us == 100..200", "gpu_busy_us <= 250", "kernels == 5")
    dots = [attrs["class"] for attrs in page.all("b") if "dot" in (attrs.get("class") or "")]
    assert dots == 3 * ["dot broken"] + 3 * ["dot held"]
    lefts = [place(attrs) for attrs in page.all("b") if "dot" in (attrs.get("class") or "")]
    ranges = [attrs for attrs in page.all("i") if "range" in (attrs.get("class") or "")]
    assert [("open-low" in (attrs["class"] or "")) for attrs in ranges] == [False, True]
    edges = [(place(attrs), place(attrs) + width(attrs)) for attrs in ranges]
    assert all(left > edges[0][1] for left in lefts[:3])
    assert all(edges[1][0] <= left <= edges[1][1] for left in lefts[3:])


def place(attrs: dict[str, str | None]) -> float:
    return float(re.search(r"left:([\d.]+)%", attrs["style"] or "")[1])


def width(attrs: dict[str, str | None]) -> float:
    return float(re.search(r"width:([\d.]+)%", attrs["style"] or "")[1])


def test_without_intervals_there_is_no_section_of_them(mlp):
    page = page_of(*mlp, "kernels == 5", "order == gemm, elementwise")
    assert page.all("section", id="section-intervals") == []


def test_a_report_alone_has_no_timeline_and_the_page_says_so(mlp):
    page = page_of(*mlp, "gemm == 4", "occupancy_query_before == gemm", drawn=False)
    text = flat(page.text)
    assert "A report was checked, without its trace: there is no timeline to draw" in text
    assert "a report alone does not hold this" in text
    assert page.all("script", id="data-timeline") == []
    assert page.columns("data-chain")[0] == []


def test_a_predicted_trace_is_marked(mlp):
    trace, report = mlp
    expectation = expect("kernels == 5")
    checked = judge(report, expectation, trace=trace)
    checked.predicted = True
    page = seen(check_page(checked, report, drawn_of(trace, report), expectation=expectation))
    assert "PREDICTED the trace itself was predicted; nothing in it was measured" in flat(page.text)


def test_a_trace_that_holds_nothing_is_a_page_too():
    build = TraceBuilder()
    build.step(0, 0, 100)
    trace = build.trace()
    page = page_of(trace, explain(trace), "kernels == 5", "wall_us == 90..200")
    assert "2 expectations: 1 held and 1 unknown" in flat(page.text)


@pytest.mark.parametrize("name", ["</script><b>", "a\u202eb", '"><svg onload=x>'], ids=["script", "bidi", "svg"])
def test_names_in_expectations_and_traces_are_text(name):
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.op(name, 10, 30)
    build.kernel(name, 50, 120, launch=build.launch(20))
    trace = build.trace()
    page = page_of(trace, explain(trace), "kernels == 4", "gemm == 0")
    assert [tag for tag, attrs in page.tags if tag == "svg" or "onload" in attrs] == []
    assert "\u202e" not in page.text
