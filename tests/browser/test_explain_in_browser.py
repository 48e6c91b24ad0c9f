"""The page of ``foretrace explain`` in a real Chromium: links, tables, roofline and keys do what they say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from builders import TraceBuilder
from foretrace import explain, load
from foretrace.analysis.drawn import drawn_of
from foretrace.analysis.roofline_plot import roofline_of
from foretrace.cli import main
from foretrace.model import words
from foretrace.model.report import Report
from foretrace.report.html.explain import explain_page

TRACES = Path(__file__).parents[1] / "data" / "traces"


def written(name: str) -> tuple[Report, bytes]:
    trace = load(TRACES / f"{name}.json.gz")
    report = explain(trace)
    return report, explain_page(report, drawn_of(trace, report))


@pytest.fixture(scope="module")
def eager():
    return written("mlp_eager")


@pytest.fixture(scope="module")
def train():
    return written("mlp_train_eager")


def ready(page: Any) -> Any:
    page.evaluate("foretrace.ready")
    return page


def drawn_table(page: Any, id: str) -> None:
    page.evaluate(f"foretrace.page.table('{id}').ready")


def highlighted(page: Any) -> list[int]:
    """Events of the rows that stand out in the timeline, in order."""
    return page.evaluate(
        "foretrace.page.lanes.state().highlighted.map((row) => foretrace.page.timeline.columns.event[row])"
    )


def selected(page: Any) -> int:
    return page.evaluate("foretrace.page.timeline.columns.event[foretrace.page.lanes.state().selected] ?? -1")


def test_the_compiled_mlp_shows_three_products_and_the_fused_kernel_as_the_json_has_them(open_page, tmp_path, capfd):
    """In the right lanes with the right durations, as ``explain --json`` says them."""
    trace, target = TRACES / "mlp_compile.json.gz", tmp_path / "report.html"
    assert main(["explain", str(trace), "--json", "--html", str(target)]) == 0
    document = json.loads(capfd.readouterr().out)
    page = ready(open_page(target))
    lanes = page.evaluate("foretrace.page.timeline.document.lanes")
    (stream,) = [at for at, lane in enumerate(lanes) if lane["side"] == "gpu"]
    assert lanes[stream]["title"] == f"stream {document['kernels'][0]['stream']}"
    step = document["steps"][1]
    page.evaluate(
        f"foretrace.page.lanes.zoomTo({step['start_us'] * 1000}, {(step['start_us'] + step['period_us']) * 1000})"
    )
    boxes = {box["row"]: box for box in page.evaluate(f"foretrace.page.lanes.visible({stream})")}
    kinds = []
    for kernel in (each for each in document["kernels"] if each["step"] == step["index"]):
        row = page.evaluate(f"foretrace.page.lanes.rowOfEvent({kernel['event']})")
        box = boxes[row]
        assert box["name"] == kernel["name"]
        assert box["duration"] == round(kernel["duration_us"] * 1000)
        assert box["start"] == round(kernel["start_us"] * 1000)
        assert box["width"] > 1
        kinds.append(kernel["kind"])
        if kernel["kind"] == "fused":
            assert kernel["name"].startswith("triton_")
    assert sorted(kinds) == ["fused", "gemm", "gemm", "gemm"]


def test_a_link_of_a_finding_zooms_to_its_event_and_highlights_exactly_its_evidence(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    for number, finding in enumerate(report.findings, 1):
        item = page.locator(f"#finding-{number}")
        if item.locator("details").first.get_attribute("open") is None:
            item.locator("summary").first.click()
        link = item.locator("a.event").first
        event = int(link.get_attribute("data-event"))
        link.click()
        drawn = {each.event for each in finding.evidence}
        assert set(highlighted(page)) == drawn
        assert len(highlighted(page)) == len(drawn)
        assert selected(page) == event == finding.evidence[0].event
        assert page.url.endswith(f"#event-{event}")
        state = page.evaluate("foretrace.page.lanes.state()")
        row = state["selected"]
        start = page.evaluate(f"foretrace.page.timeline.columns.start[{row}]")
        assert state["start"] <= start <= state["end"]
        assert page.evaluate("document.getElementById('section-timeline').getBoundingClientRect().top") < 300


def test_the_button_of_a_finding_shows_all_of_its_evidence_at_once(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    page.locator("#finding-2 button.show").click()
    assert set(highlighted(page)) == {each.event for each in report.findings[1].evidence}
    state = page.evaluate("foretrace.page.lanes.state()")
    for evidence in report.findings[1].evidence:
        assert state["start"] <= evidence.start_us * 1000 <= state["end"]


def test_an_address_opens_what_it_names(open_page, eager):
    report, html = eager
    event = report.kernels[3].event
    page = ready(open_page(html, fragment=f"#event-{event}"))
    assert selected(page) == event
    last = len(report.findings)
    page = ready(open_page(html, fragment=f"#finding-{last}"))
    assert page.locator(f"#finding-{last} details").first.get_attribute("open") is not None
    assert set(highlighted(page)) == {each.event for each in report.findings[-1].evidence}


def shown(page: Any, table: str, key: str) -> list[Any]:
    return page.evaluate(
        f"""(() => {{
            const table = foretrace.page.table('{table}');
            return table.order().map((row) => table.said('{key}', row));
        }})()"""
    )


def test_tables_sort_both_ways_and_keep_what_is_unknown_last(open_page, train):
    report, html = train
    page = ready(open_page(html))
    drawn_table(page, "operators")
    given = [operator.name for operator in report.operators]
    assert shown(page, "operators", "op") == given
    head = page.locator("#grid-operators .tabulator-col[tabulator-field=calls] .tabulator-col-content").first
    calls = {operator.name: operator.calls for operator in report.operators}
    head.click(position={"x": 5, "y": 5})
    assert [calls[name] for name in shown(page, "operators", "op")] == sorted(calls.values(), reverse=True)
    head.click(position={"x": 5, "y": 5})
    assert [calls[name] for name in shown(page, "operators", "op")] == sorted(calls.values())


def test_what_is_unknown_comes_last_whichever_way_a_column_is_sorted(open_page):
    trace = load(TRACES / "mlp_train_eager.json.gz")
    report = explain(trace)
    for at in (1, 3):
        report.elementwise[at].gbps = None
    page = ready(open_page(explain_page(report, drawn_of(trace, report))))
    drawn_table(page, "elementwise")
    known = sorted((row.gbps for row in report.elementwise if row.gbps is not None), reverse=True)
    head = page.locator("#grid-elementwise .tabulator-col[tabulator-field=gbps] .tabulator-col-content").first
    for rates in (known, known[::-1]):
        head.click(position={"x": 5, "y": 5})
        assert shown(page, "elementwise", "gbps") == [*map(words.number, rates), "–", "–"]


def test_tables_filter_by_words_and_by_numbers_and_search(open_page, train):
    report, html = train
    page = ready(open_page(html))
    drawn_table(page, "kernels")

    def names() -> list[str]:
        return shown(page, "kernels", "name")

    def typed(field: str, text: str) -> None:
        """Put a filter above a column, as a person does, and wait until the rows have followed."""
        box = page.locator(f"#grid-kernels .tabulator-col[tabulator-field={field}] input")
        box.press("ControlOrMeta+a")
        box.press("Delete")
        box.press_sequentially(text)
        some = "<" if text else "==="
        until(page, f"foretrace.page.table('kernels').order().length {some} {len(report.groups)}")

    typed("kind", "gemm")
    assert names() == [group.name for group in report.groups if group.kind == "gemm"]
    typed("kind", "")
    divisor, _ = words.scale_of_times(group.total_us for group in report.groups)
    limit = sorted(group.total_us / divisor for group in report.groups)[len(report.groups) // 2]
    typed("total", f">{limit}")
    assert names() == [group.name for group in report.groups if group.total_us / divisor > limit]
    typed("total", "")
    page.locator("#grid-kernels .grid-tools input").fill("aten::MUL")
    assert names() == [group.name for group in report.groups if "aten::mul" in f"{group.op} {group.name}".lower()]
    assert f"{len(names())} of {len(report.groups)} rows" in page.locator("#grid-kernels .grid-tools").inner_text()


@pytest.mark.parametrize(
    ("asked", "value", "said", "passes"),
    [
        ("", 5, "5", True),
        (">5", 5, "5", False),
        (">=5", 5, "5", True),
        ("< 1e3", 999.0, "999", True),
        ("1..5", 3, "3.00", True),
        ("1..5", 6, "6.00", False),
        ("!=2", 2, "2", False),
        (">5", None, "–", False),
        ("MM", None, "aten::mm", True),
        ("<built-in", None, "<built-in method>", True),
    ],
)
def test_filters_compare_numbers_and_look_for_words(open_page, eager, asked, value, said, passes):
    page = ready(open_page(eager[1]))
    assert page.evaluate("([a, v, s]) => foretrace.passes(a, v, s)", [asked, value, said]) is passes


def test_an_operator_row_highlights_its_calls_on_the_cpu_and_not_the_kernels_of_its_name(open_page):
    report, html = written("mlp_compile")
    page = ready(open_page(html))
    drawn_table(page, "operators")
    for at, operator in enumerate(report.operators):
        page.locator("#grid-operators .tabulator-row").nth(at).focus()
        page.keyboard.press("Enter")
        assert len(highlighted(page)) == operator.calls
        assert not set(highlighted(page)) & {kernel.event for kernel in report.kernels}


@pytest.mark.parametrize("table", ["kernels", "gemms", "elementwise", "transfers"])
def test_a_row_highlights_as_many_events_as_it_counts(open_page, eager, table):
    _, html = eager
    page = ready(open_page(html))
    drawn_table(page, table)
    page.locator(f"#grid-{table} .tabulator-row").first.locator(".tabulator-cell").first.click()
    assert str(len(highlighted(page))) == shown(page, table, "calls")[0]
    assert page.locator(".picked-note").is_visible()
    page.locator(".picked-note button.clear").click()
    assert highlighted(page) == []


def test_a_product_row_highlights_its_own_kernels(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    drawn_table(page, "gemms")
    page.locator("#grid-gemms .tabulator-row").nth(1).focus()
    page.keyboard.press("Enter")
    gemm = report.gemms[1]
    wanted = {k.event for k in report.kernels if (k.name, k.op, k.flops) == (gemm.kernel, gemm.op, gemm.flops)}
    assert set(highlighted(page)) == wanted
    assert len(wanted) == gemm.calls


def test_a_table_follows_the_width_of_the_window(open_page, eager):
    page = ready(open_page(eager[1], viewport={"width": 1000, "height": 900}))
    drawn_table(page, "operators")
    holder = "document.querySelector('#grid-operators .tabulator').clientWidth"
    row = "document.querySelector('#grid-operators .tabulator-row').getBoundingClientRect().width"
    wide = page.evaluate(row)
    page.set_viewport_size({"width": 1500, "height": 900})
    until(page, f"{row} > {wide} && {row} >= {holder} - 20")


def test_the_roofline_has_a_point_for_every_kernel_that_it_says_it_has(open_page, train):
    report, html = train
    page = ready(open_page(html))
    plot = roofline_of(report)
    place = page.locator("#roofline")
    assert int(place.get_attribute("data-plane")) == plot.on_plane
    assert int(place.get_attribute("data-strip")) == plot.on_strip
    assert page.evaluate("foretrace.page.roofline.drawn") == plot.on_plane + plot.on_strip
    assert plot.on_plane + plot.on_strip + sum(left.kernels for left in plot.left_out) == len(report.kernels)


def test_a_point_of_the_roofline_is_named_and_leads_to_its_kernel(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    page.locator("#roofline").scroll_into_view_if_needed()
    for at in (0, 1):  # a product, and a kernel of which only the bytes are known
        spot = page.evaluate(f"foretrace.page.roofline.spotOf({at})")
        box = page.locator("#roofline svg").bounding_box()
        page.mouse.move(box["x"] + spot["x"], box["y"] + spot["y"])
        assert report.kernels[at].short_name in page.locator("#roofline .tip").inner_text()
    page.evaluate("foretrace.page.roofline.svg.node().focus()")
    page.evaluate("foretrace.page.roofline._point(0)")
    page.keyboard.press("Enter")
    assert selected(page) == report.kernels[0].event


def test_the_bandwidth_is_in_sight_also_where_no_arithmetic_peak_is(open_page):
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.op("aten::mm", 10, 30, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
    build.kernel("sgemm_128x64_nn", 50, 120, launch=build.launch(20))
    trace = build.trace()
    report = explain(trace)
    page = ready(open_page(explain_page(report, drawn_of(trace, report))))
    assert roofline_of(report).on_plane == 1
    assert page.locator("#roofline .roof").count() == 1


def test_points_stand_where_the_axes_say(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    plot = roofline_of(report)
    spots = {at: page.evaluate(f"foretrace.page.roofline.spotOf({at})") for at in range(len(report.kernels))}
    plane = sorted((at for at in spots if plot.place[at] == 1), key=lambda at: report.kernels[at].achieved_tflops)
    low, high = plane[0], plane[-1]
    assert spots[high]["y"] < spots[low]["y"]
    same = math.isclose(plot.intensity[low], plot.intensity[high])
    assert same == math.isclose(spots[low]["x"], spots[high]["x"], abs_tol=0.01)


def test_the_dispatch_chain_folds_and_leads_to_events(open_page, eager):
    report, html = eager
    page = ready(open_page(html))
    tree = page.locator(".chain")
    every = tree.locator("[role=treeitem]")
    assert every.count() == 45
    first = every.first
    first.focus()
    page.keyboard.press("ArrowLeft")
    assert tree.locator("[role=treeitem]:visible").count() == 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.at") == "1"
    leaf = tree.locator(".kernel a.node").first
    leaf.click()
    kernel = next(each for each in report.kernels if each.event == int(leaf.get_attribute("data-event")))
    assert selected(page) == kernel.event
    assert kernel.step == report.steps[1].index


# Three significant digits, ties, ends of scales, what is unknown.
VALUES = [
    *(0, 0.0, 1, -1, 2.5, 0.5, 1.5, 1234.5, 1235.5, 99.96, 9.995, 0.000123456, 999.5, 999.4999, 1e-9),
    *(31.25, 0.125, 1023, 1024, 1536.5, 50_331_648, 2**31, 38_654_705_664, 1e15, 1.7e18, 123456.789, -42.42),
    *(0.0005, 0.99951, 0.9999, 0.4135, 1.0, 0.001, 0.0625, 12_345_678.9, 4800.0, 989.4, 1e5, 1e6, 1e3, 999.9999),
]
WORDS = {
    "number": lambda value: words.number(float(value)),
    "count": lambda value: words.number(round(value)),
    "average": words.whole,
    "percent": words.percent,
    "time": lambda value: words.time(float(value)),
    "bytes": lambda value: words.bytes_of(round(value)),
    "flop": lambda value: words.flop(round(value)),
    "mebibytes": words.mebibytes,
}
ROUNDED = ("count", "bytes", "flop")


@pytest.mark.parametrize("form", WORDS)
def test_the_page_says_numbers_as_python_does(open_page, eager, form):
    page = ready(open_page(eager[1]))
    asked = [round(value) if form in ROUNDED else value for value in VALUES]
    if form == "mebibytes":
        asked = [float(value) for value in asked]
    said = page.evaluate("([form, values]) => values.map(foretrace.words[form])", [form, asked])
    assert said == [WORDS[form](value) for value in asked]
    assert page.evaluate(f"[null, NaN, undefined].map(foretrace.words.{form})") == ["–"] * 3


def test_cells_say_what_the_printed_table_says(open_page, train):
    page = ready(open_page(train[1]))
    for table in ("kernels", "gemms", "elementwise", "transfers", "operators"):
        drawn_table(page, table)
        printed = page.evaluate(
            f"""[...document.querySelectorAll('#section-{table} .in-page tbody tr')]
                .map((row) => [...row.children].map((cell) => cell.textContent))"""
        )
        drawn = page.evaluate(
            f"""(() => {{
                const table = foretrace.page.table('{table}');
                const keys = foretrace.page.tableData.find((one) => one.id === '{table}').columns.map((c) => c.key);
                return table.order().map((row) => keys.map((key) => table.said(key, row)));
            }})()"""
        )
        assert drawn == printed
        assert printed


def test_keys_go_through_sections_and_findings_and_change_the_colours(open_page, eager):
    report, html = eager
    page = ready(open_page(html, color_scheme="light"))
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "section-findings"
    page.keyboard.press("4")
    assert page.evaluate("document.activeElement.id") == "section-steps"
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == "section-timeline"
    page.keyboard.press("n")
    assert set(highlighted(page)) == {each.event for each in report.findings[0].evidence}
    page.keyboard.press("Escape")
    assert highlighted(page) == []
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.locator("body").press("Tab")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_wider_than_the_screen(open_page, train, scheme, width):
    page = ready(open_page(train[1], viewport={"width": width, "height": 800}, color_scheme=scheme))
    for table in ("kernels", "gemms", "elementwise", "operators"):
        drawn_table(page, table)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_everything_is_open_and_tables_are_complete(open_page, train):
    report, html = train
    page = ready(open_page(html))
    drawn_table(page, "kernels")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open], .evidence details)").count() == 0
    assert page.locator("#section-kernels .in-page").is_visible()
    assert not page.locator("#grid-kernels").is_visible()
    assert page.locator("#section-kernels .in-page tbody tr").count() == len(report.groups)
    assert not page.locator(".contents").is_visible()
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0


@pytest.mark.parametrize("chosen", [None, "dark"], ids=["system", "chosen"])
def test_paper_is_light_where_the_screen_is_dark(open_page, train, chosen):
    page = ready(open_page(train[1], color_scheme="dark"))
    if chosen:
        page.evaluate(f"document.documentElement.dataset.theme = '{chosen}'")
    ground = """(() => {
        const { lanes } = foretrace.page;
        lanes.visible(0);
        const pixel = [...lanes.canvas.getContext('2d').getImageData(2, lanes.canvas.height - 3, 1, 1).data];
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color, pixel[0] > 200];
    })()"""
    assert page.evaluate(ground) == ["rgb(21, 24, 27)", "rgb(223, 227, 230)", False]
    page.emulate_media(media="print", color_scheme="dark")
    until(page, "foretrace.page.lanes.root.classList.contains('lanes-paper')")
    assert page.evaluate(ground) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)", True]
    page.emulate_media(media="screen", color_scheme="dark")
    until(page, "!foretrace.page.lanes.root.classList.contains('lanes-paper')")
    assert page.evaluate(ground) == ["rgb(21, 24, 27)", "rgb(223, 227, 230)", False]


HOSTILE = [
    "</script><script>window.bad=1</script>",
    "<img src=x onerror=window.bad=1>",
    "a'\"`b",
    "nul\x00 \u2028 \u202eevil",
]


def test_hostile_names_stay_text_in_tables_plots_and_details(open_page):
    build = TraceBuilder()
    build.step(0, 0, 2000)
    for at, name in enumerate(HOSTILE):
        begin = 10 + 100.0 * at
        build.op(name, begin, 60, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
        build.kernel(name, begin + 30, 50, launch=build.launch(begin + 5))
    trace = build.trace()
    report = explain(trace)
    page = ready(open_page(explain_page(report, drawn_of(trace, report))))
    for table in ("kernels", "operators"):
        drawn_table(page, table)
        page.locator(f"#grid-{table} .tabulator-row").first.locator(".tabulator-cell").first.click()
    for kernel in report.kernels:
        page.evaluate(f"foretrace.page.show([{kernel.event}], {{select: {kernel.event}}})")
    assert page.evaluate("window.bad") is None
    assert page.locator("img").count() == 0
    assert "<img src=x onerror=window.bad=1>" in page.locator("#grid-kernels").inner_text()


def test_without_javascript_the_statements_and_tables_are_there(open_page, eager):
    report, html = eager
    page = open_page(html, java_script_enabled=False)
    text = page.locator("main").inner_text()
    for finding in report.findings[:3]:
        assert finding.explanation in text
    assert page.locator("#section-gemms .in-page").is_visible()
    assert "JavaScript" in page.locator("#section-timeline").inner_text()


@pytest.mark.parametrize("fragment", ["#%", "#%E0%A4%A", "#finding-%"])
def test_a_broken_address_opens_the_page_all_the_same(open_page, eager, fragment):
    page = ready(open_page(eager[1], fragment))
    assert page.evaluate("foretrace.page.tables.kernels !== undefined")
    page.evaluate(f"void (location.hash = '{fragment}%')")
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 30))")


def test_an_event_that_is_not_there_is_said_where_it_is_seen(open_page, eager):
    page = ready(open_page(eager[1], "#event-99999999"))
    note = page.locator(".picked-note")
    assert note.is_visible()
    assert "No event 99999999 is drawn in the timeline." in note.inner_text()
    assert not note.locator(".go").is_visible()


@pytest.mark.parametrize("asked", ["!=7", '"#$%', "<= 3"])
def test_every_character_reaches_a_filter(open_page, train, asked):
    page = ready(open_page(train[1]))
    field = page.locator('#grid-gemms input[aria-label="filter calls"]')
    field.press_sequentially(asked)
    assert field.input_value() == asked


def test_what_is_pasted_into_a_filter_counts_at_once(open_page, train):
    page = ready(open_page(train[1]))
    field = page.locator('#grid-gemms input[aria-label="filter calls"]')
    field.evaluate("(field) => { field.value = '>100'; field.dispatchEvent(new InputEvent('input')); }")
    until(page, "document.querySelector('#grid-gemms [role=status]').textContent.startsWith('0 of ')")


def test_an_annotation_of_an_operator_s_name_is_not_highlighted(open_page):
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.annotation("aten::mm", 5, 400)
    build.op("aten::mm", 10, 30)
    build.kernel("sgemm", 50, 120, launch=build.launch(20))
    trace = build.trace()
    report = explain(trace)
    page = ready(open_page(explain_page(report, drawn_of(trace, report))))
    kinds = page.evaluate(
        """foretrace.page._operatorRows('aten::mm').map((row) => {
            const { document: said, columns } = foretrace.page.timeline;
            return said.kinds[columns.kind[row]];
        })"""
    )
    assert kinds == ["operator"]


@pytest.mark.parametrize("name", ["nul\x00l", "\ufeffbom", "\u202eevil", "\x1b[31mred", "👩\u200d🔬 works"])
def test_an_operator_with_unprintable_characters_is_found_in_the_timeline(open_page, name):
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.op(name, 10, 30)
    build.kernel("sgemm", 50, 120, launch=build.launch(20))
    trace = build.trace()
    report = explain(trace)
    page = ready(open_page(explain_page(report, drawn_of(trace, report))))
    page.locator("#grid-operators .tabulator-row").first.click()
    assert len(highlighted(page)) == 1


def test_the_end_key_goes_to_the_last_line_of_the_chain(open_page, eager):
    page = ready(open_page(eager[1]))
    page.locator(".chain li").first.focus()
    page.keyboard.press("End")
    shown = "[...document.querySelectorAll('.chain li')].filter((line) => !line.hidden)"
    assert page.evaluate(f"document.activeElement === {shown}.at(-1)")


@pytest.mark.parametrize("table", ["kernels", "gemms", "elementwise"])
def test_what_matters_in_a_table_is_in_sight_at_1280(open_page, train, table):
    page = ready(open_page(train[1]))
    right = page.evaluate(
        f"""(() => {{
            const head = document.querySelector('#grid-{table} .tabulator-col[tabulator-field="of_peak"]');
            const holder = document.querySelector('#grid-{table} .tabulator-tableholder');
            return [head.getBoundingClientRect().right, holder.getBoundingClientRect().right];
        }})()"""
    )
    assert right[0] <= right[1]


def test_the_bar_of_sections_follows_on_a_phone(open_page, train):
    page = ready(open_page(train[1], viewport={"width": 390, "height": 800}))
    page.evaluate("document.querySelector('#section-elementwise').scrollIntoView()")
    until(
        page,
        """(() => {
            const link = document.querySelector('.contents a[aria-current]');
            const { left, right } = link.getBoundingClientRect();
            return link.hash === '#section-elementwise' && left >= 0 && right <= innerWidth;
        })()""",
    )
