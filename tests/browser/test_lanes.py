"""The timeline in a real Chromium: what it shows is what the trace says, and hands and keys reach all of it."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lanes_pages import lanes_page, many_rows, timeline_with
from waiting import until

from foretrace import explain, load
from foretrace.analysis.timeline import timeline_of
from foretrace.model.timeline import Band, DrawnLane
from foretrace.report.text import clean

SAMPLE = Path(__file__).parents[2] / "src/foretrace/cli/samples/h200_mlp_eager.trace.json.gz"
CPU, GPU = 0, 1


@pytest.fixture(scope="module")
def mlp():
    trace = load(SAMPLE)
    report = explain(trace)
    return report, timeline_of(trace, report)


@pytest.fixture
def page(open_page, mlp):
    return ready(open_page(lanes_page(mlp[1])))


def ready(page: Any) -> Any:
    until(page, "window.lanes")
    return page


def state(page: Any) -> dict[str, Any]:
    return page.evaluate("lanes.state()")


def visible(page: Any, lane: int) -> list[dict[str, Any]]:
    return page.evaluate(f"lanes.visible({lane})")


def row_of(page: Any, event: int) -> int:
    return page.evaluate(f"lanes.rowOfEvent({event})")


def place(page: Any, lane: int, row: int) -> tuple[float, float]:
    """The middle of a row's rectangle on the page."""
    one = next(r for r in visible(page, lane) if r["row"] == row)
    box = page.locator(".lanes-canvas").bounding_box()
    return box["x"] + one["x"] + one["width"] / 2, box["y"] + one["y"] + one["height"] / 2


def pixel(page: Any, x: float, y: float) -> list[int]:
    """The colour at a place of the page, as drawn."""
    return page.evaluate(
        """([x, y]) => {
            lanes.visible(0);
            const box = lanes.canvas.getBoundingClientRect();
            const scale = lanes.canvas.width / box.width;
            const at = [(x - box.left) * scale, (y - box.top) * scale];
            return [...lanes.canvas.getContext('2d').getImageData(at[0], at[1], 1, 1).data];
        }""",
        [x, y],
    )


def view(page: Any) -> dict[str, float]:
    """Where the plot begins and how wide it is, and what it shows."""
    return page.evaluate("lanes.visible(0) && ({left: lanes.layout.gutter, width: lanes.width, ...lanes.view})")


def test_rectangles_are_where_the_report_says(page, mlp):
    report, _ = mlp
    drawn = {one["row"]: one for one in visible(page, GPU)}
    now = view(page)
    scale = now["width"] / (now["end"] - now["start"])
    kernels = [kernel for kernel in report.kernels if kernel.duration_us > 10]
    assert len(kernels) == 15
    for kernel in kernels:
        one = drawn[row_of(page, kernel.event)]
        assert one["name"] == kernel.name
        assert one["start"] / 1000 == pytest.approx(kernel.start_us)
        assert one["duration"] / 1000 == pytest.approx(kernel.duration_us)
        assert one["x"] == pytest.approx(now["left"] + (kernel.start_us * 1000 - now["start"]) * scale, abs=0.01)
        assert one["width"] == pytest.approx(kernel.duration_us * 1000 * scale, abs=0.01)
    work = [report_kind(report, page, one["row"]) for one in sorted(drawn.values(), key=lambda r: r["x"])]
    kinds = [kind for kind in work if kind]
    assert kinds == 3 * ["gemm", "elementwise", "gemm", "elementwise", "gemm"]


def report_kind(report, page, row) -> str | None:
    event = page.evaluate(f"lanes.model.event[{row}]")
    return next((kernel.kind for kernel in report.kernels if kernel.event == event), None)


def test_a_rectangle_has_the_colour_of_its_kind(page, mlp):
    row = row_of(page, next(kernel.event for kernel in mlp[0].kernels if kernel.kind == "gemm"))
    x, y = place(page, GPU, row)
    red, green, blue, _ = pixel(page, x, y + 9)
    assert blue > red
    assert pixel(page, x, y + 30)[:3] != [red, green, blue]


@pytest.mark.parametrize("ctrl", [True, False], ids=["ctrl", "focused"])
def test_the_wheel_zooms_at_the_pointer(page, ctrl):
    box = page.locator(".lanes-canvas").bounding_box()
    x, y = box["x"] + 700, box["y"] + 120
    if not ctrl:
        page.evaluate("lanes.canvas.focus()")
    page.mouse.move(x, y)
    before, time_before = view(page), page.evaluate("lanes.timeAt(700)")
    if ctrl:
        page.keyboard.down("Control")
    for _ in range(4):
        page.mouse.wheel(0, -120)
    until(page, f"lanes.state().end - lanes.state().start < {0.6 * (before['end'] - before['start'])}")
    after = view(page)
    assert page.evaluate("lanes.timeAt(700)") == pytest.approx(time_before, abs=1)
    for _ in range(20):
        page.mouse.wheel(0, 120)
    until(page, f"lanes.state().end - lanes.state().start > {0.999 * (before['end'] - before['start'])}")
    assert after["end"] - after["start"] < before["end"] - before["start"]
    assert view(page) == before


def test_without_focus_the_wheel_scrolls_the_page(open_page, mlp):
    page = ready(open_page(lanes_page(mlp[1], below="<div style='height: 3000px'></div>")))
    before = state(page)
    page.mouse.move(700, 200)
    page.mouse.wheel(0, 200)
    until(page, "window.scrollY > 50")
    assert state(page) == before


def test_keys_zoom_at_the_pointer_and_pan(page):
    box = page.locator(".lanes-canvas").bounding_box()
    page.evaluate("lanes.canvas.focus()")
    page.mouse.move(box["x"] + 500, box["y"] + 120)
    fixed, before = page.evaluate("lanes.timeAt(500)"), state(page)
    page.keyboard.press("w")
    page.keyboard.press("+")
    closer = state(page)
    assert closer["end"] - closer["start"] == pytest.approx((before["end"] - before["start"]) / 1.35**2)
    assert view(page)["start"] == closer["start"]
    assert page.evaluate("lanes.timeAt(500)") == pytest.approx(fixed, abs=1)
    page.keyboard.press("ArrowRight")
    assert state(page)["start"] > closer["start"]
    page.keyboard.press("a")
    assert state(page)["start"] == pytest.approx(closer["start"])
    page.keyboard.press("s")
    page.keyboard.press("-")
    assert state(page)["end"] == pytest.approx(before["end"])
    page.keyboard.press("d")
    page.keyboard.press("w")
    page.keyboard.press("0")
    assert state(page) == before


def test_dragging_moves_what_is_under_the_hand(page):
    page.evaluate("lanes.zoomTo(1e6, 1.2e6)")
    page.evaluate("lanes.visible(0)")
    box = page.locator(".lanes-canvas").bounding_box()
    under = page.evaluate("lanes.timeAt(600)")
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100, steps=4)
    page.mouse.up()
    assert page.evaluate("lanes.timeAt(500)") == pytest.approx(under, abs=1)
    assert state(page)["selected"] == -1


def test_a_click_selects_a_kernel_and_leads_to_its_launch(page, mlp):
    report, made = mlp
    kernel = next(one for one in report.kernels if one.kind == "elementwise")
    row = row_of(page, kernel.event)
    launch = made.arrow_from[list(made.arrow_to).index(row)]
    page.mouse.click(*place(page, GPU, row))
    assert state(page)["selected"] == row
    assert page.evaluate("told") == [row]
    details = page.locator(".lanes-details")
    assert details.locator("dd", has_text=kernel.name).first.is_visible()
    assert details.get_by_text(str(kernel.event), exact=True).is_visible()
    assert "gelu" in page.locator(".lanes-live").text_content()
    page.locator(".lanes-tie").click()
    assert state(page)["selected"] == launch
    assert page.evaluate("told") == [row, launch]
    # Back by the tie of the launch.
    page.locator(".lanes-tie").click()
    assert state(page)["selected"] == row
    page.mouse.click(*empty_place(page))
    assert state(page)["selected"] == -1
    assert page.locator(".lanes-details dd").count() == 0


def empty_place(page: Any) -> tuple[float, float]:
    box = page.locator(".lanes-canvas").bounding_box()
    return box["x"] + box["width"] - 5, box["y"] + box["height"] - 20


def test_the_arrow_of_a_selected_row_is_drawn(page, mlp):
    report, made = mlp
    row = row_of(page, next(one for one in report.kernels if one.kind == "gemm").event)
    launch = int(made.arrow_from[list(made.arrow_to).index(row)])
    middle = """([a, b]) => {
        const { layout, model, view, width } = lanes;
        const x = (time) => layout.gutter + (time - view.start) / (view.end - view.start) * width;
        const from = layout.spot(a), to = layout.spot(b);
        const y = (layout.screen(from.top) + from.height + layout.screen(to.top)) / 2;
        lanes.visible(0);
        const at = (x(Math.min(model.end(a), model.start[b])) + x(model.start[b])) / 2;
        const ratio = lanes.ratio;
        const data = lanes.canvas.getContext('2d').getImageData((at - 3) * ratio, y * ratio, 7 * ratio, 1).data;
        return Math.max(...[...data].map((red, i) => i % 4 ? -1 : red - data[i + 1]));
    }"""
    page.evaluate(f"lanes.zoomTo({made.start[launch]} - 2e4, {made.start[row]} + 2e4)")
    before = page.evaluate(middle, [launch, row])
    page.evaluate(f"lanes.select({row})")
    # The accent of a selection is red; without one an arrow is grey.
    assert page.evaluate(middle, [launch, row]) > 80 > before


def test_double_click_and_f_zoom_to_a_row(page, mlp):
    _, made = mlp
    row = row_of(page, mlp[0].kernels[0].event)
    page.mouse.dblclick(*place(page, GPU, row))
    now = state(page)
    assert now["selected"] == row
    assert now["end"] - now["start"] == pytest.approx(3 * made.duration[row], rel=0.01)
    assert now["start"] < made.start[row] < now["end"]
    page.keyboard.press("0")
    page.keyboard.press("f")
    assert state(page) == now


def test_brackets_and_arrows_walk_from_row_to_row(page):
    page.evaluate("lanes.canvas.focus(); lanes.select(lanes.search('aten::linear')[0])")
    first = state(page)["selected"]

    def pressed(key: str) -> str:
        page.keyboard.press(key)
        return page.evaluate("lanes.model.names[lanes.model.name[lanes.state().selected]]")

    assert pressed("]") == "aten::gelu"
    assert pressed("[") == "aten::linear"
    assert state(page)["selected"] == first
    assert pressed("ArrowUp") == "mlp_fwd"
    assert pressed("ArrowUp") == "ProfilerStep#2"
    assert pressed("ArrowDown") == "mlp_fwd"
    page.keyboard.press("Escape")
    assert state(page)["selected"] == -1


def test_highlighted_rows_stand_out_from_the_rest(page, mlp):
    report, _ = mlp
    gemm, other = (
        row_of(page, next(one for one in report.kernels if one.kind == kind).event) for kind in ("gemm", "elementwise")
    )
    at = {row: place(page, GPU, row) for row in (gemm, other)}
    full = {row: pixel(page, x, y + 9) for row, (x, y) in at.items()}
    page.evaluate(f"lanes.highlight([{gemm}])")
    assert state(page)["highlighted"] == [gemm]
    assert pixel(page, at[gemm][0], at[gemm][1] + 9) == full[gemm]
    assert pixel(page, at[other][0], at[other][1] + 9) != full[other]
    page.evaluate("lanes.highlight([])")
    assert {row: pixel(page, x, y + 9) for row, (x, y) in at.items()} == full


def test_search_counts_marks_and_walks(page):
    page.evaluate("lanes.canvas.focus()")
    page.keyboard.press("/")
    page.keyboard.type("ATEN::LINEAR")
    count = page.locator(".lanes-count")
    count.get_by_text("9", exact=True).wait_for()
    assert page.evaluate("lanes.marks.length") == 9
    seen = []
    for _ in range(10):
        page.keyboard.press("Enter")
        seen.append(state(page)["selected"])
    assert len(set(seen)) == 9
    assert seen[9] == seen[0]
    starts = page.evaluate("rows => rows.map((row) => lanes.model.start[row])", seen[:9])
    assert starts == sorted(starts)
    assert count.text_content() == "1 of 9"
    page.keyboard.press("Shift+Enter")
    assert state(page)["selected"] == seen[8]
    page.locator(".lanes-search input").fill("no such name")
    count.get_by_text("0", exact=True).wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate("lanes.marks.length") == 0
    assert count.text_content() == ""


def test_a_kernel_is_found_by_its_short_and_its_full_name(page):
    short = page.evaluate("[...lanes.search('nvjet 256x128')]")
    full = page.evaluate("[...lanes.search('nvjet_sm90_tst_256x128')]")
    assert len(short) == 6
    assert short == full


def test_shift_drag_measures_a_range(page, mlp):
    report, _ = mlp
    box = page.locator(".lanes-canvas").bounding_box()
    now = view(page)
    first, second = sorted((one for one in report.kernels), key=lambda one: one.start_us)[:2]
    low, high = first.start_us * 1000 - 1000, second.start_us * 1000
    x = [
        box["x"] + now["left"] + (at - now["start"]) / (now["end"] - now["start"]) * now["width"] for at in (low, high)
    ]
    page.keyboard.down("Shift")
    page.mouse.move(x[0], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(x[1], box["y"] + 110, steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    chosen = page.evaluate("lanes.range")
    pixel_of_time = (now["end"] - now["start"]) / now["width"]
    assert chosen["start"] == pytest.approx(low, abs=pixel_of_time)
    assert chosen["end"] == pytest.approx(high, abs=pixel_of_time)
    busy = page.evaluate("lanes.model.busyIn(lanes.range.start, lanes.range.end)")
    assert busy["gpu"] == pytest.approx(first.duration_us * 1000, abs=2 * pixel_of_time)
    said = page.locator(".lanes-status").text_content()
    assert "selected, GPU busy" in said
    assert "gemm" in said
    page.evaluate("lanes.clear()")
    assert "selected" not in page.locator(".lanes-status").text_content()


def test_time_covered_twice_counts_once(open_page):
    lanes = [DrawnLane("thread 1", "CPU", "cpu", 2), *(DrawnLane(f"stream {i}", "GPU 0", "gpu", 1) for i in range(2))]
    rows = [(0, 0, 0, 100, "f", "operator"), (0, 1, 10, 50, "g", "operator")]
    rows += [(1, 0, 20, 40, "a", "gemm"), (2, 0, 40, 40, "b", "copy"), (2, 0, 90, 5, "c", "gemm")]
    page = ready(open_page(lanes_page(timeline_with(rows, lanes=lanes))))
    busy = page.evaluate("lanes.model.busyIn(0, 1000)")
    kinds = {page.evaluate(f"lanes.model.kinds[{kind}]"): covered for kind, covered in busy["kinds"]}
    assert kinds == {"operator": 100, "gemm": 45, "copy": 40}
    assert busy["gpu"] == 65


def test_a_folded_group_draws_no_rows_and_unfolds_for_those_that_are_asked_for(page):
    title = page.evaluate(f"lanes.model.lanes[{CPU}].group")
    row = visible(page, CPU)[0]["row"]
    page.get_by_role("button", name=title).click()
    assert page.evaluate("lanes.folded()") == [title]
    tracks = "(() => { let n = 0; const one = lanes.painter._track; lanes.painter._track = (...w) => n++; "
    tracks += "lanes._draw(); lanes.painter._track = one; return n; })()"
    assert page.evaluate(tracks) == len([lane for lane in page.evaluate("lanes.layout.lanes") if lane["shown"]])
    page.evaluate(f"lanes.unfold([{row}])")
    assert page.evaluate("lanes.folded()") == []
    assert row in {one["row"] for one in visible(page, CPU)}


def test_groups_fold_and_unfold(page):
    tall = page.evaluate("lanes.height")
    head = page.get_by_role("button", name="CPU, process 478")
    assert head.get_attribute("aria-expanded") == "true"
    head.click()
    head = page.get_by_role("button", name="CPU, process 478")
    assert head.get_attribute("aria-expanded") == "false"
    assert page.evaluate("document.activeElement.ariaLabel") == "CPU, process 478"
    assert page.evaluate("lanes.height") < tall
    assert visible(page, CPU) == []
    assert len(visible(page, GPU)) > 0
    page.keyboard.press("Enter")
    assert page.evaluate("lanes.height") == tall


@pytest.mark.parametrize(
    "name",
    ["</script><b>\"'\x00\u2028", "\u202edesrever", "a\nb\tc", "<img src=x onerror=alert(1)>", "🚀 ünï"],
    ids=["script", "bidi", "control", "image", "unicode"],
)
def test_any_name_is_shown_as_text(open_page, name):
    lanes = [DrawnLane(name, name, "gpu", 1, name)]
    rows = [(0, 0, 0, 100, name, name)]
    page = ready(open_page(lanes_page(timeline_with(rows, lanes=lanes, bands=[Band(name, 0, 100)]))))
    shown = clean(name)
    assert visible(page, 0)[0]["name"] == shown
    page.evaluate("lanes.select(0)")
    page.mouse.move(*place(page, 0, 0))
    assert page.locator(".lanes-details h4 span").text_content() == shown
    assert page.locator(".lanes-tip b").text_content() == shown
    assert page.locator(".lanes b img, .lanes b b, .lanes img, .lanes script").count() == 0
    # Nothing that is invisible, breaks lines or turns the text around is left.
    assert not set(shown) & set("\x00\n\t\u2028\u202e")
    assert page.evaluate(f"[...lanes.search({json.dumps(shown[-3:])})]") == [0]


def test_rows_that_crowd_are_merged_and_a_busy_stream_looks_busy(open_page):
    made = many_rows(70_000)
    page = ready(open_page(lanes_page(made)))
    drawn = visible(page, 3)
    merged = sum(one.get("count", 1) for one in drawn)
    assert merged == int((made.lane == 3).sum())
    assert len(drawn) < merged
    ground = page.evaluate("lanes.palette.ground")
    assert ground == "#ffffff"
    coloured = page.evaluate(
        """() => {
            const { layout, model, width } = lanes;
            const y = layout.screen(layout.trackTop[model.firstTrack[3]]) + 8;
            const data = lanes.canvas.getContext('2d').getImageData(layout.gutter + 20, y, width - 40, 1).data;
            let count = 0;
            for (let i = 0; i < data.length; i += 4) count += Math.min(data[i], data[i + 1], data[i + 2]) < 225;
            return count / (data.length / 4);
        }"""
    )
    assert coloured > 0.95


def test_a_lone_short_row_is_never_lost(open_page):
    lanes = [DrawnLane("stream 7", "GPU 0", "gpu", 1)]
    rows = [(0, 0, 0, 1, "a", "gemm"), (0, 0, 5 * 10**8, 1, "b", "gemm"), (0, 0, 10**9, 1, "c", "gemm")]
    page = ready(open_page(lanes_page(timeline_with(rows, lanes=lanes))))
    (one,) = (one for one in visible(page, 0) if one["row"] == 1)
    box = page.locator(".lanes-canvas").bounding_box()
    red, _, blue, _ = pixel(page, box["x"] + int(one["x"]) + 0.5, box["y"] + one["y"] + 5)
    assert blue - red > 60
    page.evaluate("lanes.select(1, {zoom: true})")
    assert next(one for one in visible(page, 0) if one["row"] == 1)["width"] > 0.5


def test_streams_stay_in_sight_below_deep_stacks(open_page):
    lanes = [DrawnLane("thread 1", "CPU", "cpu", 90), DrawnLane("stream 7", "GPU 0", "gpu", 1)]
    rows = [(0, depth, depth, 1000 - 2 * depth, f"frame {depth}", "python") for depth in range(90)]
    rows.append((1, 0, 300, 100, "kernel", "gemm"))
    page = ready(open_page(lanes_page(timeline_with(rows, lanes=lanes, arrows=[(80, 90)]))))
    height = page.evaluate("lanes.height")
    (kernel,) = visible(page, 1)
    assert height - 60 < kernel["y"] < height
    page.mouse.click(*place(page, 1, 90))
    assert state(page)["selected"] == 90
    # Following the arrow scrolls the deep frame into sight, and the stream stays.
    page.locator(".lanes-tie").click()
    until(page, "lanes.scroller.scrollTop > 300")
    deep = next(one for one in visible(page, 0) if one["row"] == 80)
    assert 40 < deep["y"] < height - 60
    assert visible(page, 1) == [kernel]
    page.mouse.click(*place(page, 0, 80))
    assert state(page)["selected"] == 80


def test_the_overview_moves_the_window(page):
    page.evaluate("lanes.zoomTo(1e6, 1.2e6)")
    box = page.locator(".lanes-overview").bounding_box()
    full = page.evaluate("lanes.full")
    left, width = page.evaluate("[lanes.layout.gutter, lanes.width]")

    def at(time: float) -> float:
        return box["x"] + left + (time - full["start"]) / (full["end"] - full["start"]) * width

    middle = box["y"] + box["height"] / 2
    page.evaluate("lanes.visible(0)")
    page.mouse.move(at(1.1e6), middle)
    page.mouse.down()
    page.mouse.move(at(0.6e6), middle, steps=4)
    page.mouse.up()
    now = state(page)
    assert now["start"] == pytest.approx(0.5e6, abs=4000)
    assert now["end"] - now["start"] == pytest.approx(0.2e6)
    # Its edges change its length, a click beside it moves it there.
    page.mouse.move(at(now["end"]), middle)
    page.mouse.down()
    page.mouse.move(at(1.0e6), middle, steps=4)
    page.mouse.up()
    assert state(page)["end"] == pytest.approx(1.0e6, abs=4000)
    page.mouse.click(at(1.5e6), middle)
    page.evaluate("lanes.visible(0)")
    assert page.evaluate("lanes.middle()") == pytest.approx(1.5e6, abs=4000)


def test_a_phone_shows_titles_above_lanes_and_pinches(open_page, mlp):
    options = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 3, "has_touch": True}
    page = ready(open_page(lanes_page(mlp[1]), **options, is_mobile=True))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("[lanes.layout.gutter, lanes.canvas.width / lanes.fullWidth]") == [0, 3]
    row = row_of(page, mlp[0].kernels[3].event)
    page.evaluate(f"lanes.select({row}, {{zoom: true}}); lanes.select(-1)")
    page.touchscreen.tap(*place(page, GPU, row))
    assert state(page)["selected"] == row
    before = state(page)
    fixed = page.evaluate("lanes.visible(0) && lanes.timeAt(195)")
    session = page.context.new_cdp_session(page)
    y = page.locator(".lanes-canvas").bounding_box()["y"] + 100
    left = page.locator(".lanes-canvas").bounding_box()["x"]

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": left + x, "y": y, "id": i} for i, x in enumerate(xs)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 155, 235)
    for apart in (50, 60, 70, 80):
        touch("touchMove", 195 - apart, 195 + apart)
    touch("touchEnd")
    after = state(page)
    assert after["end"] - after["start"] == pytest.approx((before["end"] - before["start"]) / 2, rel=0.02)
    assert page.evaluate("lanes.timeAt(195)") == pytest.approx(fixed, abs=300)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_page(open_page, mlp, scheme):
    page = ready(open_page(lanes_page(mlp[1]), color_scheme=scheme))

    def ground() -> int:
        box = page.locator(".lanes-canvas").bounding_box()
        return sum(pixel(page, box["x"] + box["width"] - 30, box["y"] + 100)[:3])

    assert (ground() > 600) == (scheme == "light")
    other = "light" if scheme == "dark" else "dark"
    page.evaluate(f"document.documentElement.dataset.theme = '{other}'")
    until(page, f"(lanes.palette.ground === '#ffffff') === {str(other == 'light').lower()}")
    assert (ground() > 600) == (other == "light")
    # Paper is white, whatever the screen is.
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("lanes.palette.ground") == "#ffffff"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert (page.evaluate("lanes.palette.ground") == "#ffffff") == (other == "light")


def test_readers_of_screens_are_told_what_it_is(page):
    canvas = page.get_by_role("application", name="Timeline of a test")
    assert canvas.get_attribute("tabindex") == "0"
    page.evaluate("lanes.canvas.focus()")
    page.keyboard.press("?")
    assert page.locator(".lanes-help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".lanes-help").is_visible()


def test_an_empty_timeline_opens(open_page):
    page = ready(open_page(lanes_page(timeline_with([], lanes=[]))))
    page.evaluate("lanes.canvas.focus()")
    for key in ("w", "s", "a", "d", "]", "[", "ArrowDown", "f", "0", "Escape"):
        page.keyboard.press(key)
    assert state(page)["selected"] == -1


def test_what_is_gone_leaves_nothing_behind(page):
    page.evaluate("lanes.destroy()")
    assert page.locator(".lanes").count() == 0
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.set_viewport_size({"width": 800, "height": 600})


def test_two_hundred_thousand_rows_open_in_two_seconds_and_zoom_smoothly(open_page):
    html = lanes_page(many_rows(200_000))
    begun = time.perf_counter()
    page = ready(open_page(html))
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    took = time.perf_counter() - begun
    assert page.evaluate("lanes.model.size") > 199_000
    assert took < 2
    frames = page.evaluate(
        """async () => {
            const begun = performance.now();
            for (let i = 0; i < 90; i++) {
                lanes.zoomBy(i < 45 ? 1 / 1.2 : 1.2, 4e8, true);
                await new Promise(requestAnimationFrame);
            }
            return 90000 / (performance.now() - begun);
        }"""
    )
    assert frames > 30


def test_an_operator_leads_to_all_that_it_launched(page, mlp):
    _, made = mlp
    linear = page.evaluate("lanes.search('aten::linear')[0]")
    page.evaluate(f"lanes.select({linear})")
    ties = page.evaluate(f"lanes.model.ties({linear}, 100)")
    inside = [
        [launch, launched]
        for launch, launched in zip(made.arrow_from.tolist(), made.arrow_to.tolist(), strict=True)
        if made.start[linear] <= made.start[launch] < made.start[linear] + made.duration[linear]
    ]
    assert len(inside) == 2  # cuBLAS clears its counter before the product
    assert ties == sorted(inside)
    assert page.locator(".lanes-tie").all_text_contents()[1].startswith("nvjet 256x128 64x4 TN · ")


def test_a_kind_can_be_let_stand_out(page, mlp):
    report, _ = mlp
    gemms = {row_of(page, kernel.event) for kernel in report.kernels if kernel.kind == "gemm"}
    chip = page.locator(".lanes-status button", has_text="gemm")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    assert set(page.evaluate("[...lanes.marks].map((at) => lanes.model.order[at])")) == gemms
    chip.click()
    assert page.evaluate("lanes.marks.length") == 0


def test_the_wheel_scrolls_the_page_again_once_everything_is_shown(open_page, mlp):
    page = ready(open_page(lanes_page(mlp[1], below="<div style='height: 3000px'></div>")))
    page.evaluate("lanes.canvas.focus()")
    page.mouse.move(700, 200)
    page.mouse.wheel(0, 200)
    until(page, "window.scrollY > 50")


def test_labels_of_the_axis_never_run_into_each_other(open_page):
    lanes = [DrawnLane("stream 7", "GPU 0", "gpu", 1)]
    rows = [(0, 0, at * 10**12, 10, "a", "gemm") for at in range(3)]
    page = ready(open_page(lanes_page(timeline_with(rows, lanes=lanes)), viewport={"width": 700, "height": 500}))
    page.evaluate(
        """() => {
        window.places = [];
        const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
            if (y < 20 && x > lanes.layout.gutter) places.push([words, x, this.measureText(words).width]);
            draw.call(this, words, x, y);
        }; }"""
    )
    for span in (2e12, 1e9, 1e6, 1e3, 50):
        page.evaluate(f"lanes.zoomTo(1e12 - {span / 3}, 1e12 + {span}); lanes.visible(0)")
        places = page.evaluate("(() => { places.length = 0; lanes.visible(0); return places; })()")
        assert len({words for words, _, _ in places}) == len(places) >= 1
        for (_, x, width), (_, following, _) in pairwise(places):
            assert x + width < following


MEMORY_MAP = """() => {
    lanes.destroy();
    const segment = (i) => ({ title: `segment ${i}`, group: 'large pool', side: 'memory', depth: 1 });
    window.map = new foretrace.Lanes(document.getElementById('here'), {
        lanes: [segment(0), segment(1)],
        columns: {
            lane: Uint16Array.of(0, 0, 1),
            depth: Uint16Array.of(0, 0, 0),
            start: Float64Array.of(0, 2 ** 21, 0),
            duration: Float64Array.of(2 ** 21, 18 * 2 ** 20, 20 * 2 ** 20),
            name: Uint32Array.of(0, 1, 1),
            kind: Uint8Array.of(0, 1, 1),
        },
        names: ['train.py:3', 'free'],
        kinds: ['live', 'hole'],
        unit: 'bytes',
        colour: (kind) => ({ live: 'rgb(1, 2, 3)', hole: 'var(--lanes-accent)' })[kind],
        details: (row) => [['row', row], ['nothing', null]],
    });
}"""


def test_a_memory_map_is_drawn_by_the_same_component(page):
    page.evaluate(MEMORY_MAP)
    assert page.evaluate("map.palette.fills.map((shades) => shades[0])") == ["rgb(1, 2, 3)", "#d6336c"]
    assert page.evaluate("[...map.palette.rgb.slice(0, 3)]") == [0x030201] * 3
    drawn = page.evaluate("map.visible(0)")
    assert [one["name"] for one in drawn] == ["train.py:3", "free"]
    assert drawn[1]["width"] == pytest.approx(9 * drawn[0]["width"])
    ticks = page.evaluate("map.axis.ticks(0, 20 * 2 ** 20, 5).map((tick) => map.axis.tick(tick, 2 ** 22))")
    assert ticks == ["0 MiB", "4 MiB", "8 MiB", "12 MiB", "16 MiB", "20 MiB"]
    page.evaluate("map.select(1)")
    assert page.locator(".lanes-details dt").all_text_contents() == ["row"]
    assert page.locator(".lanes-details dd").all_text_contents() == ["1"]
    assert page.evaluate("map.rowOfEvent(5)") == -1
    page.evaluate("map.setRange({start: 0, end: 2 ** 22}); map.tellRange()")
    assert "4 MiB selected" in page.locator(".lanes-status").text_content()
    assert "GPU" not in page.locator(".lanes-status").text_content()


def test_a_timeline_that_opens_out_of_sight_is_drawn_when_it_is_shown(open_page, mlp):
    html = lanes_page(mlp[1]).replace(b"<div id='here'>", b"<div id='here' style='display: none'>")
    page = ready(open_page(html))
    page.evaluate("lanes.select(3, {zoom: true}); lanes.highlight([1, 2]); lanes.visible(0)")
    page.evaluate("document.getElementById('here').style.display = ''")
    until(page, "lanes.fullWidth > 1000")
    assert any(one["row"] == 3 and one["width"] > 100 for one in visible(page, CPU))
