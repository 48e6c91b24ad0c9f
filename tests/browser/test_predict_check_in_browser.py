"""The pages of ``foretrace predict`` and ``foretrace check`` in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from waiting import until

from builders import TraceBuilder
from foretrace import explain, load
from foretrace.analysis.drawn import drawn_of
from foretrace.prediction.expect import expect, judge
from foretrace.prediction.predict import predict_program
from foretrace.report.html.check import check_page
from foretrace.report.html.predict import predict_page
from prediction.programs import H200, Roofline, geglu

TRACES = Path(__file__).parents[1] / "data" / "traces"


@pytest.fixture(scope="module")
def predicted():
    prediction = predict_program(geglu(), H200, clock=Roofline(memset=True))
    report = prediction.report()
    return prediction.info, predict_page(report, drawn_of(prediction.trace(), report))


def checked(*lines: str, drawn: bool = True, trace: Any = None) -> bytes:
    trace = load(TRACES / "mlp_eager.json.gz") if trace is None else trace
    report = explain(trace)
    expectation = expect(*lines)
    outcome = judge(report, expectation, trace=trace if drawn else None)
    return check_page(outcome, report, drawn_of(trace if drawn else None, report), expectation=expectation)


def ready(page: Any) -> Any:
    page.evaluate("foretrace.ready.then(() => true)")
    return page


def highlighted(page: Any) -> list[int]:
    return page.evaluate(
        "foretrace.page.lanes.state().highlighted.map((row) => foretrace.page.timeline.columns.event[row])"
    )


def rows(page: Any, table: str) -> Any:
    page.evaluate(f"foretrace.page.table('{table}').ready")
    return page.locator(f"#grid-{table} .tabulator-row")


def test_the_timeline_holds_the_predicted_rows_with_their_times(open_page, predicted):
    info, html = predicted
    page = ready(open_page(html))
    assert page.evaluate("foretrace.page.lanes.model.lanes.every((lane) => lane.group.startsWith('PREDICTED'))")
    for row in info.rows:
        drawn = page.evaluate(f"foretrace.page.lanes.model.duration[foretrace.page.lanes.rowOfEvent({row.event})]")
        assert drawn / 1000 == pytest.approx(row.us, abs=1e-3)


def test_a_group_lights_up_and_its_interval_is_drawn(open_page, predicted):
    info, html = predicted
    page = ready(open_page(html))
    first = rows(page, "groups").first
    first.click()
    group = info.groups[0]
    events = [r.event for r in info.rows if (r.op, r.kind, r.shape) == (group.op, group.kind, group.shape)]
    assert sorted(highlighted(page)) == sorted(events)
    assert len(events) == 2
    track, band, mid = (first.locator(name).bounding_box() for name in (".interval-bar", ".range", ".mid"))
    most = max(one.high_us for one in info.groups)
    assert (band["x"] - track["x"]) / track["width"] == pytest.approx(group.low_us / most, abs=0.02)
    assert band["width"] / track["width"] == pytest.approx((group.high_us - group.low_us) / most, abs=0.03)
    assert band["x"] - 2 <= mid["x"] <= band["x"] + band["width"] + 2


def test_a_row_says_that_it_was_predicted_and_how_surely(open_page, predicted):
    info, html = predicted
    page = ready(open_page(html))
    event = info.rows[1].event
    page.evaluate(f"foretrace.page.lanes.choose(foretrace.page.lanes.rowOfEvent({event}))")
    details = page.locator(".lanes-details").inner_text()
    assert "not measured" in details
    assert "interval" in details
    rows(page, "rows").nth(1).click()
    assert highlighted(page) == [event]


def test_groups_sort_and_filter(open_page, predicted):
    page = ready(open_page(predicted[1]))
    rows(page, "groups")
    page.locator("#grid-groups .tabulator-col[tabulator-field=kind] input").press_sequentially("elementwise")
    until(page, "foretrace.page.tables.groups.order().length === 2")
    page.locator("#grid-groups .tabulator-col[tabulator-field=us] .tabulator-col-title").click()
    page.locator("#grid-groups .tabulator-col[tabulator-field=us] .tabulator-col-title").click()
    order = page.evaluate("foretrace.page.tables.groups.order()")
    assert order == sorted(order, key=lambda at: predicted[0].groups[at].us)


def test_evidence_of_a_broken_expectation_is_shown_in_the_timeline(open_page):
    page = ready(open_page(checked("launches == 5", "gpu_busy_us == 100..200")))
    page.locator("#expectation-1 a.event").first.click()
    event = int(page.locator("#expectation-1 a.event").first.get_attribute("data-event"))
    assert event in highlighted(page)
    assert page.evaluate("foretrace.page.timeline.columns.event[foretrace.page.lanes.state().selected]") == event
    assert page.evaluate("location.hash") == f"#event-{event}"


def test_what_was_seen_lies_outside_a_broken_interval(open_page):
    page = ready(open_page(checked("gpu_busy_us == 100..200", "gpu_busy_us == 200..300")))
    broken, held = (page.locator(".intervals tbody tr").nth(at) for at in (0, 1))
    for row, inside in ((broken, False), (held, True)):
        band = row.locator(".range").bounding_box()
        for dot in row.locator(".dot").all():
            box = dot.bounding_box()
            middle = box["x"] + box["width"] / 2
            assert (band["x"] <= middle <= band["x"] + band["width"]) is inside
    assert broken.locator(".dot").count() == 3


def test_a_report_without_its_trace_leads_nowhere_and_complains_of_nothing(open_page):
    page = ready(open_page(checked("launches == 5", "gemm == 4", drawn=False)))
    assert page.locator("canvas.lanes-canvas").is_hidden()
    assert page.locator(".evidence .show:visible").count() == 0
    page.evaluate("foretrace.page.table('kernels').ready")
    page.locator("#grid-kernels .tabulator-row").first.click()
    for key in ("t", "n", "Escape"):
        page.keyboard.press(key)
    page.evaluate("foretrace.page.roofline.onPick(0)")
    assert page.locator(".picked-note").is_hidden()
    events, absent = page.locator("a.event"), page.locator("a.event.absent")
    assert events.count() == absent.count() > 0
    assert page.evaluate("foretrace.page.lanes") is None


def test_names_show_as_text(open_page):
    name = "</script><img src=x onerror=alert(1)>\u202e"
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.op(name, 10, 30)
    build.kernel(name, 50, 120, launch=build.launch(20))
    page = ready(open_page(checked("kernels == 4", trace=build.trace())))
    assert page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)>" in page.locator("main").inner_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(open_page, predicted, width):
    for html, tables in ((predicted[1], ("groups", "rows")), (checked("gpu_busy_us == 1..2"), ("kernels", "gemms"))):
        page = ready(open_page(html, viewport={"width": width, "height": 800}))
        for table in tables:
            rows(page, table)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
