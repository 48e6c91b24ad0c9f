"""The page of ``foretrace compare`` in a real Chromium: both steps are there, and what belongs together lights up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from comparison.comparing import COMPILED, EAGER, Call, program
from foretrace.cli import main
from foretrace.comparison.compare import compare_subjects, read_with_trace
from foretrace.comparison.drawn import timeline_of_step
from foretrace.model import words
from foretrace.report.html.compare import compare_page

TRACES = Path(__file__).parents[1] / "data" / "traces"
EAGER_FILE, COMPILED_FILE, LIGER_FILE = (str(TRACES / f"mlp_{name}.json.gz") for name in ("eager", "compile", "liger"))
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028\u202e'\"&"


def page_of(*sources: Any) -> bytes:
    read = [read_with_trace(source) for source in sources]
    timelines = [None if trace is None else timeline_of_step(subject, trace) for subject, trace in read]
    return compare_page(compare_subjects([subject for subject, _ in read]), timelines)


@pytest.fixture(scope="module")
def two() -> bytes:
    return page_of(EAGER_FILE, COMPILED_FILE)


@pytest.fixture(scope="module")
def three() -> bytes:
    return page_of(EAGER_FILE, COMPILED_FILE, LIGER_FILE)


def ready(page: Any) -> Any:
    page.evaluate("foretrace.ready.then(() => true)")
    return page


def drawn_rows(page: Any, table: str) -> Any:
    page.evaluate(f"foretrace.page.table('{table}').ready")
    return page.locator(f"#grid-{table} .tabulator-row")


def highlighted(page: Any) -> list[tuple[str, int]]:
    """Side and event of the rows that stand out."""
    return [
        tuple(pair)
        for pair in page.evaluate(
            """foretrace.page.lanes.state().highlighted.map((row) =>
                [foretrace.compared.view.sideOf(row), foretrace.compared.view.columns.event[row]])"""
        )
    ]


def gpu_rows(page: Any, label: str) -> list[dict[str, Any]]:
    """What is drawn in the GPU lanes of one trace, in order of start."""
    found = page.evaluate(
        """(label) => {
            const { lanes } = foretrace.page;
            return lanes.model.lanes.flatMap((lane, i) =>
                lane.side === 'gpu' && lane.group.endsWith(label)
                    ? lanes.visible(i).map((one) => ({ ...one, event: foretrace.compared.view.columns.event[one.row],
                        fate: lanes.model.kinds[lanes.model.kind[one.row]] }))
                    : []);
        }""",
        label,
    )
    return sorted(found, key=lambda one: one["start"])


def place(page: Any, side: str, event: int) -> tuple[float, float]:
    """The middle of a GPU row's rectangle on the page."""
    one = page.evaluate(
        f"""(() => {{
            const {{ lanes }} = foretrace.page;
            const row = foretrace.compared.view.rowOf('{side}', {event});
            return lanes.visible(lanes.model.lane[row]).find((each) => each.row === row);
        }})()"""
    )
    page.locator(".lanes-canvas").scroll_into_view_if_needed()
    box = page.locator(".lanes-canvas").bounding_box()
    return box["x"] + one["x"] + one["width"] / 2, box["y"] + one["y"] + one["height"] / 2


def test_both_steps_hold_the_kernels_that_the_json_pairs(open_page, tmp_path, capfd):
    """The compiled MLP's three products and its fused kernel, where ``--json`` has them and as long."""
    target = tmp_path / "compare.html"
    assert main(["compare", EAGER_FILE, COMPILED_FILE, "--json", "--html", str(target)]) == 0
    (pair,) = json.loads(capfd.readouterr().out)["pairs"]
    page = ready(open_page(target))
    assert page.evaluate("foretrace.page.lanes.model.lanes.map((lane) => [lane.group, lane.side])") == [
        ["CPU · mlp_eager", "cpu"],
        ["CPU · mlp_compile", "cpu"],
        ["GPU 0 · mlp_eager", "gpu"],
        ["GPU 0 · mlp_compile", "gpu"],
    ]
    for side, label, file in (("a", "mlp_eager", EAGER_FILE), ("b", "mlp_compile", COMPILED_FILE)):
        assert main(["explain", file, "--json"]) == 0
        report = json.loads(capfd.readouterr().out)
        length = {row["event"]: row["duration_us"] for row in [*report["kernels"], *report["transfers"]]}
        rows = gpu_rows(page, label)
        # At the widest zoom a memset may be drawn merged with what is beside it.
        drawn = {one["event"]: one for one in rows if one["row"] >= 0}
        for spot in pair["places"]:
            for at, event in enumerate(spot[f"{side}_events"]):
                row = spot[side][at % len(spot[side])]
                if row["kind"] == "memset":
                    continue
                assert drawn[event]["name"] == row["name"]
                assert drawn[event]["fate"] == spot["category"]
                assert drawn[event]["duration"] / 1000 == pytest.approx(length[event], abs=1e-3)
                # The JSON holds the median over the steps alike.
                assert drawn[event]["duration"] / 1000 == pytest.approx(row["us"], rel=0.05)
        fates = [one["fate"] for one in rows if one["row"] >= 0 and one["duration"] > 10_000]
        wanted = ["identical", "fused", "identical", "fused", "identical"]
        assert fates == (wanted if side == "a" else ["identical", "identical", "fused", "identical"])


def test_each_step_starts_where_the_other_does(open_page, two):
    page = ready(open_page(two))
    starts = page.evaluate(
        """foretrace.compared.view.present.map((side) => {
            const { columns, first, size } = foretrace.compared.view;
            return Math.min(...columns.start.slice(first[side], first[side] + size[side]));
        })"""
    )
    assert starts == [0, 0]


def test_a_fused_place_lights_up_on_both_sides(open_page, two):
    page = ready(open_page(two))
    drawn_rows(page, "places-1").filter(has_text="fused").click()
    assert sorted(highlighted(page)) == [("a", 157), ("a", 169), ("b", 73)]
    names = page.evaluate(
        """foretrace.page.lanes.state().highlighted.map((row) =>
            foretrace.compared.view.labels[foretrace.compared.view.columns.name[row]])"""
    )
    assert [("gelu" in name, "mul" in name) for name in names] == [(True, False), (False, True), (True, True)]
    view = page.evaluate("foretrace.page.lanes.state()")
    times = page.evaluate(
        """foretrace.page.lanes.state().highlighted.map((row) => {
            const { start, duration } = foretrace.compared.view.columns;
            return [start[row], start[row] + duration[row]];
        })"""
    )
    assert all(view["start"] <= low and high <= view["end"] for low, high in times)
    assert page.locator("#grid-places-1 .tabulator-row.picked").inner_text().startswith("fused")
    page.keyboard.press("Escape")
    assert highlighted(page) == []
    assert page.locator(".tabulator-row.picked").count() == 0


def test_a_selected_kernel_shows_its_counterpart(open_page, two):
    page = ready(open_page(two))
    drawn_rows(page, "places-1")
    page.mouse.click(*place(page, "b", 73))
    assert sorted(highlighted(page)) == [("a", 157), ("a", 169), ("b", 73)]
    details = page.locator(".lanes-details").inner_text()
    assert "what became of it" in details
    assert "gelu + mul → triton_poi gelu·mul" in details
    assert "elementwise<8> gelu, 32.3 µs + elementwise<8> mul, 36.4 µs" in details
    assert page.locator("#grid-places-1 .tabulator-row.picked").inner_text().startswith("fused")


def test_of_alike_places_only_the_counterpart_itself_lights_up(open_page, two):
    page = ready(open_page(two))
    page.mouse.click(*place(page, "a", 165))
    assert sorted(highlighted(page)) == [("a", 165), ("b", 69)]
    drawn_rows(page, "places-1").filter(has_text="2× nvjet").click()
    assert sorted(highlighted(page)) == [("a", 153), ("a", 165), ("b", 61), ("b", 69)]


def test_an_operator_lights_up_where_it_runs(open_page, two):
    page = ready(open_page(two))
    drawn_rows(page, "operators-1").filter(has_text="aten::gelu").first.click()
    rows = page.evaluate(
        """foretrace.page.lanes.state().highlighted.map((row) =>
            foretrace.compared.view.names[foretrace.compared.view.columns.name[row]])"""
    )
    assert rows == ["aten::gelu"]


def test_tables_sort_and_filter(open_page, two):
    page = ready(open_page(two))
    rows = drawn_rows(page, "places-1")
    assert rows.locator(".fate-chip").all_inner_texts() == ["fused", "identical", "identical", "identical"]
    page.locator("#grid-places-1 .tabulator-col[tabulator-field=after] .tabulator-col-title").click()
    assert page.evaluate("foretrace.page.tables['places-1'].order()") == [1, 2, 0, 3]
    box = page.locator("#grid-places-1 .tabulator-col[tabulator-field=change] input")
    box.press_sequentially("<-10")
    until(page, "foretrace.page.tables['places-1'].order().join() === '0'")
    box.press("ControlOrMeta+a")
    box.press("Delete")
    until(page, "foretrace.page.tables['places-1'].order().length === 4")
    page.get_by_label("search What became of each kernel").fill("memset")
    until(page, "foretrace.page.tables['places-1'].order().join() === '3'")
    assert page.locator("#grid-places-1 .fate-chip").all_inner_texts() == ["identical"]


def test_changes_are_said_as_on_the_screen(open_page, two):
    page = ready(open_page(two))
    values = [0.0, 0.021, -0.462, 0.0005, -0.0004, 9.994, 9.9996, 10.0, 56.1, -1.0, 0.0125]
    assert page.evaluate("(values) => values.map(foretrace.words.signed)", values) == [*map(words.signed, values)]


def test_a_pair_is_chosen_by_its_button_and_by_its_tables(open_page, three):
    page = ready(open_page(three))
    assert page.evaluate("foretrace.compared.view.pair.b") == 1
    page.get_by_role("button", name="mlp_liger", exact=True).click()
    assert page.evaluate("foretrace.compared.view.pair.b") == 2
    assert page.locator(".lanes").count() == 1
    assert page.get_by_role("button", name="mlp_liger", exact=True).get_attribute("aria-pressed") == "true"
    drawn_rows(page, "places-1").filter(has_text="fused").click()
    assert page.evaluate("foretrace.compared.view.pair.b") == 1
    assert ("b", 73) in highlighted(page)


def test_an_address_names_a_place(open_page, three):
    page = ready(open_page(three, "#place-2-1"))
    assert page.evaluate("foretrace.compared.view.pair.b") == 2
    assert ("a", 157) in highlighted(page)
    assert page.locator(".lanes-canvas").bounding_box()["y"] < 900
    drawn_rows(page, "places-1").nth(1).click()
    assert page.evaluate("location.hash") == "#place-1-2"
    page.evaluate("location.hash = '#place-1-1'")
    until(page, "foretrace.page.lanes.state().highlighted.length === 3")
    assert ("b", 73) in highlighted(page)


@pytest.mark.parametrize("address", ["#place-7-1", "#place-1-99", "#place-1-0", "#%22%3E"])
def test_an_address_of_nothing_changes_nothing(open_page, two, address):
    page = ready(open_page(two, address))
    assert highlighted(page) == []


def test_an_event_in_the_address_is_one_of_the_baseline(open_page, two):
    page = ready(open_page(two, "#event-77"))
    until(page, "foretrace.page.lanes.state().highlighted.length === 1")
    assert highlighted(page)[0][0] == "a"


def test_the_keys_of_the_page_reach_the_lanes(open_page, two):
    page = ready(open_page(two))
    page.keyboard.press("t")
    assert page.evaluate("document.activeElement.className") == "lanes-canvas"
    page.keyboard.press("w")
    until(page, "foretrace.page.lanes.state().end - foretrace.page.lanes.state().start < 500000")


def test_without_traces_the_page_still_works(open_page):
    from foretrace import explain

    page = ready(open_page(page_of(explain(EAGER_FILE), explain(COMPILED_FILE))))
    drawn_rows(page, "places-1").first.click()
    page.keyboard.press("Escape")
    assert page.locator("canvas").count() == 0
    assert "have no lanes" in page.locator("#section-timeline").inner_text()


def test_one_trace_beside_a_report_is_drawn_alone(open_page):
    from foretrace import explain

    page = ready(open_page(page_of(EAGER_FILE, explain(COMPILED_FILE))))
    drawn_rows(page, "places-1").filter(has_text="fused").click()
    assert sorted(highlighted(page)) == [("a", 157), ("a", 169)]
    page.mouse.click(*place(page, "a", 157))
    assert "not drawn: mlp_compile has no lanes here" in page.locator(".lanes-details").inner_text()


def test_unrelated_traces_leave_a_page_without_lanes(open_page):
    page = ready(open_page(page_of(TRACES / "linear_eager.json.gz", EAGER_FILE)))
    page.keyboard.press("Escape")
    assert "unrelated" in page.locator(".alarms").inner_text()


def test_names_of_a_trace_show_as_text(open_page):
    calls = [*COMPILED, Call(f"aten::{HOSTILE}", f"kernel{HOSTILE}", 3.0)]
    page = ready(open_page(page_of(program(EAGER).trace(), program(calls).trace())))
    drawn_rows(page, "places-1").filter(has_text="added").click()
    (row,) = page.evaluate("foretrace.page.lanes.state().highlighted")
    page.evaluate(f"foretrace.page.lanes.choose({row})")
    assert "</script><img src=x onerror=alert(1)>\\u2028\\u202e" in page.locator(".lanes-details").inner_text()
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(open_page, three, width):
    page = ready(open_page(three, viewport={"width": width, "height": 800}))
    for table in ("places-1", "operators-1", "places-2", "operators-2"):
        drawn_rows(page, table)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_can_be_read_without_scripts(open_page, two):
    page = open_page(two, java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert "The lanes are drawn by JavaScript, which is off." in text
    assert "gelu + mul → triton_poi gelu·mul" in text
    assert page.locator(".pairs").count() == 0


def test_arrows_are_drawn_of_chosen_rows_alone(open_page):
    """All of them at once would cross the lanes of the other side."""
    page = ready(open_page(page_of(program(EAGER).trace(), program(COMPILED).trace())))
    page.evaluate(
        """(() => {
            window.curves = 0;
            const { prototype } = CanvasRenderingContext2D;
            const drawn = prototype.bezierCurveTo;
            prototype.bezierCurveTo = function (...where) {
                window.curves++;
                return drawn.apply(this, where);
            };
        })()"""
    )
    counted = "(() => { window.curves = 0; foretrace.page.lanes.visible(0); return window.curves; })()"
    assert page.evaluate("foretrace.page.lanes.model.arrows.from.length") > 0
    assert page.evaluate(counted) == 0
    page.evaluate("foretrace.page.lanes.select(foretrace.page.lanes.model.arrows.to[0])")
    assert page.evaluate(counted) == 1


def test_the_keys_that_are_listed_have_something_to_go_to(open_page):
    page = ready(open_page(page_of(program(EAGER).trace(), program(COMPILED).trace())))
    page.keyboard.press("?")
    listed = page.locator("#help dt").all_inner_texts()
    assert "t" in listed
    assert "n p" not in listed
