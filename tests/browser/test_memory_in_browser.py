"""The page of ``foretrace memory`` in a real Chromium: its map holds what the JSON holds, and finds and shows it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from foretrace.cli import main
from foretrace.memory import examine_file
from foretrace.memory.drawn import drawn_of_memory
from foretrace.model.words import mebibytes
from foretrace.report.html.memory import memory_page
from memories import MIB, START, large_memory, small_memory

ROOT = Path(__file__).parents[2]
FRAGMENTED = ROOT / "src/foretrace/cli/samples/h200_fragmented.snapshot.pickle.gz"
H200 = ROOT / "tests/data/memory/h200"


def drawn_page(memory):
    return memory_page(memory, drawn_of_memory(memory))


@pytest.fixture(scope="module")
def fragmented():
    return examine_file(str(FRAGMENTED))


@pytest.fixture(scope="module")
def fragmented_page(fragmented):
    return drawn_page(fragmented)


def ready(page: Any) -> Any:
    page.evaluate("foretrace.ready.then(() => undefined)")
    return page


def blocks_of(page: Any, rows: str) -> list[int]:
    """Numbers of the blocks that rows of the map draw, in order of address."""
    return page.evaluate(f"Array.from({rows}, (row) => foretrace.memory.map.blockOf[row]).sort((a, b) => a - b)")


def highlighted(page: Any) -> list[int]:
    return blocks_of(page, "foretrace.memory.map.lanes.state().highlighted")


def found(page: Any, text: str) -> list[int]:
    """Blocks that the search box finds, as a reader types."""
    box = page.locator("#memory-map input[type=search]")
    box.fill(text)
    until(page, f"foretrace.memory.map.lanes.panel.sought === {json.dumps(text)}")
    return blocks_of(page, "foretrace.memory.map.lanes.panel.found")


@pytest.mark.parametrize("name", ["pending_frees", "several_streams", "graph_pool", "expandable_segments"])
def test_the_map_draws_every_block_as_the_json_has_it(open_page, tmp_path, capfd, name):
    target = tmp_path / "report.html"
    assert main(["memory", str(H200 / f"{name}.pickle.gz"), "--json", "--html", str(target)]) == 0
    said = json.loads(capfd.readouterr().out)
    page = ready(open_page(target))
    drawn = {}
    for lane, title in enumerate(page.evaluate("foretrace.memory.map.chosen.map((one) => one.address)")):
        drawn[title] = page.evaluate(
            f"""foretrace.memory.map.lanes.visible({lane}).filter((box) => box.row >= 0).map((box) => {{
                const {{ map }} = foretrace.memory;
                const block = map.blockOf[box.row];
                const state = map.said.states[map.columns.state[block]];
                return [box.start, box.duration, state, map.address(block)];
            }})"""
        )
    assert len(drawn) == len(said["segments"])
    for segment in said["segments"]:
        # Blocks narrower than a pixel are merged at this scale: all are in the columns, those seen are right.
        own = said["blocks"][segment["first_block"] : segment["first_block"] + segment["blocks"]]
        free = "hole" if segment["active_bytes"] else "free segment"
        wanted = [
            [
                block["address"] - segment["address"],
                block["size"],
                free if block["state"] == "free" else block["state"],
                f"{block['address']:#x}",
            ]
            for block in own
        ]
        page.evaluate(f"foretrace.memory.map.showSegment({said['segments'].index(segment)})")
        lane = page.evaluate(f"foretrace.memory.map.laneOf[{said['segments'].index(segment)}]")
        rows = page.evaluate(
            f"""[...foretrace.memory.map.lanes.model.lane].flatMap((lane, row) => lane === {lane} ? [row] : [])"""
        )
        assert [one for one in drawn[f"{segment['address']:#x}"] if one in wanted]
        told = page.evaluate(
            f"""{rows}.map((row) => {{
                const {{ map }} = foretrace.memory;
                const block = map.blockOf[row];
                const {{ start, duration }} = map.lanes.model;
                return [start[row], duration[row], map.said.states[map.columns.state[block]], map.address(block)];
            }})"""
        )
        assert told == wanted


def test_a_rectangle_is_as_long_as_its_block(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    segment = max(range(len(fragmented.segments)), key=lambda i: fragmented.segments[i].holes_bytes)
    page.evaluate(f"foretrace.memory.map.showSegment({segment})")
    lane = page.evaluate(f"foretrace.memory.map.laneOf[{segment}]")
    boxes = [box for box in page.evaluate(f"foretrace.memory.map.lanes.visible({lane})") if box["row"] >= 0]
    view = page.evaluate("foretrace.memory.map.lanes.state()")
    width = page.evaluate("foretrace.memory.map.lanes.width")
    assert len(boxes) > 10
    for box in boxes:
        wanted = box["duration"] / (view["end"] - view["start"]) * width
        assert box["width"] == pytest.approx(max(1, wanted), abs=0.02)


def test_a_block_is_found_by_its_address_and_by_any_address_inside_it(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    for number in (0, 123, len(fragmented.blocks) - 1):
        block = fragmented.blocks[number]
        assert found(page, f"{block.address:#x}") == [number]
        assert found(page, f"{block.address + block.size - 1:#x}") == [number]
    assert found(page, "0x10") == []


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (">= 2 MiB", lambda block: block.size >= 2 * MIB),
        ("<1mib", lambda block: block.size < MIB),
        ("=2097152", lambda block: block.size == 2 * MIB),
        ("1..4 MiB", lambda block: MIB <= block.size <= 4 * MIB),
        ("capture_traces.py:74", lambda block: any("capture_traces.py:74" in line for line in block.stack)),
        ("NO STACK", lambda block: block.state != "free" and not block.stack),
        ("free > 10 MiB", lambda block: block.state == "free" and block.size > 10 * MIB),
        ("active 20 MiB", lambda block: block.state == "active" and mebibytes(block.size) == "20 MiB"),
        ("nowhere.py", lambda block: False),
    ],
    ids=["least", "most", "exactly", "between", "line", "words", "state and size", "said size", "nothing"],
)
def test_blocks_are_found_by_size_state_and_line(open_page, fragmented, fragmented_page, asked, fits):
    page = ready(open_page(fragmented_page))
    wanted = [number for number, block in enumerate(fragmented.blocks) if fits(block)]
    assert found(page, asked) == wanted
    if asked != "nowhere.py":
        assert 0 < len(wanted) < len(fragmented.blocks)


def test_holes_and_free_segments_are_told_apart(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    assert len(found(page, "hole")) == fragmented.free.holes
    assert len(found(page, "free segment")) == fragmented.free.whole_segments


def test_the_next_match_is_selected_and_told_of(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    block = fragmented.blocks[200]
    found(page, f"{block.address:#x}")
    page.keyboard.press("Enter")
    assert blocks_of(page, "[foretrace.memory.map.lanes.state().selected]") == [200]
    said = page.locator("#memory-map .lanes-details").inner_text()
    assert f"{block.address:#x}" in said
    assert f"{block.size:,} B" in said


def test_the_wheel_zooms_at_the_pointer(open_page, fragmented_page):
    page = ready(open_page(fragmented_page))
    canvas = page.locator("#memory-map .lanes-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x = 700
    at = f"foretrace.memory.map.lanes.timeAt({x})"
    page.mouse.click(box["x"] + x, box["y"] + 400)
    page.keyboard.press("Escape")
    before, span = page.evaluate(at), page.evaluate("foretrace.memory.map.lanes.state()")
    page.mouse.wheel(0, -400)
    until(page, f"foretrace.memory.map.lanes.state().end < {span['end']}")
    after = page.evaluate("foretrace.memory.map.lanes.state()")
    assert after["end"] - after["start"] < 0.8 * (span["end"] - span["start"])
    assert page.evaluate(at) == pytest.approx(before, abs=(after["end"] - after["start"]) * 1e-3)


def test_a_row_of_the_pins_highlights_exactly_its_blocks(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    page.evaluate("foretrace.page.table('pins').ready.then(() => undefined)")
    holed = {
        number
        for segment in fragmented.segments
        if segment.holes_bytes
        for number in range(segment.first_block, segment.first_block + segment.blocks)
    }
    for row, pin in enumerate(fragmented.pinned_by):
        page.locator("#grid-pins .tabulator-row").nth(row).locator(".tabulator-cell").first.click()
        own = [number for number, block in enumerate(fragmented.blocks) if block.where == pin.where and number in holed]
        assert highlighted(page) == own
        assert len(own) == pin.blocks
        assert f"{pin.blocks} blocks" in page.locator(".picked-note").inner_text()
    page.locator(".picked-note .clear").click()
    assert highlighted(page) == []


def test_a_row_of_the_segments_shows_its_segment(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    page.evaluate("foretrace.page.table('segments').ready.then(() => undefined)")
    page.locator("#grid-segments .tabulator-row").nth(3).locator(".tabulator-cell").first.click()
    ordered = sorted(fragmented.segments, key=lambda s: (-s.holes_bytes, s.active_bytes == 0, -s.size, s.address))
    one = ordered[3]
    assert highlighted(page) == list(range(one.first_block, one.first_block + one.blocks))
    view = page.evaluate("foretrace.memory.map.lanes.state()")
    assert one.size < view["end"] - view["start"] < 1.1 * one.size


def test_the_largest_hole_is_selected_and_in_sight(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    page.get_by_role("button", name="largest hole").click()
    (number,) = blocks_of(page, "[foretrace.memory.map.lanes.state().selected]")
    assert fragmented.blocks[number].size == fragmented.free.largest_hole_bytes
    row = page.evaluate("foretrace.memory.map.lanes.state().selected")
    lane = page.evaluate(f"foretrace.memory.map.lanes.model.lane[{row}]")
    until(page, f"foretrace.memory.map.lanes.visible({lane}).some((box) => box.row === {row} && box.width > 100)")


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("holes", lambda s: -s.holes_bytes),
        ("largest", lambda s: -s.largest_hole_bytes),
        ("size", lambda s: -s.size),
        ("held", lambda s: s.active_bytes / s.size),
        ("address", lambda s: s.address),
    ],
    ids=["holes", "largest", "size", "held", "address"],
)
def test_segments_are_sorted_within_what_the_allocator_keeps_apart(open_page, fragmented, fragmented_page, order, key):
    page = ready(open_page(fragmented_page))
    page.locator(".memory-tools select[data-by=order]").select_option(order)
    shown = page.evaluate("foretrace.memory.map.chosen.map((one) => one.at)")
    assert sorted(shown) == list(range(len(fragmented.segments)))
    kinds = [fragmented.segments[at].kind for at in shown]
    assert kinds == sorted(kinds)  # large, then small
    for kind in ("large", "small"):
        keys = [key(fragmented.segments[at]) for at in shown if fragmented.segments[at].kind == kind]
        assert keys == sorted(keys)


def test_only_segments_with_holes_are_shown_on_request_and_a_hidden_one_comes_back(
    open_page, fragmented, fragmented_page
):
    page = ready(open_page(fragmented_page))
    page.locator(".memory-tools select[data-by=shown]").select_option("holes")
    holed = [at for at, segment in enumerate(fragmented.segments) if segment.holes_bytes]
    assert sorted(page.evaluate("foretrace.memory.map.chosen.map((one) => one.at)")) == holed
    assert f"{len(holed)} of 343 segments" in page.locator(".memory-tools").inner_text()
    full = next(segment for segment in fragmented.segments if not segment.holes_bytes)
    page.evaluate(f"location.hash = 'address-{full.address:#x}'")
    until(page, "foretrace.memory.map.chosen.length === 343")
    assert blocks_of(page, "[foretrace.memory.map.lanes.state().selected]") == [full.first_block]


def test_colours_tell_states_sizes_and_lines_apart(open_page, fragmented_page):
    page = ready(open_page(fragmented_page))
    for colour, some in [
        ("size", ["up to 1 MiB", "up to 10 MiB"]),
        ("line", ["capture_traces.py:74 in <module>"]),
        ("state", ["active", "hole", "free segment"]),
    ]:
        page.locator(".memory-tools select[data-by=colour]").select_option(colour)
        chips = page.locator("#memory-map .lanes-chip").all_inner_texts()
        assert set(some) <= set(chips)
        assert {"hole", "free segment"} <= set(chips)


def test_a_folded_group_opens_for_what_is_shown_in_it(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    head = page.locator("#memory-map .lanes-head").first
    head.click()
    assert head.get_attribute("aria-expanded") == "false"
    page.get_by_role("button", name="largest hole").click()
    assert page.locator("#memory-map .lanes-head").first.get_attribute("aria-expanded") == "true"


def test_an_address_of_the_page_opens_the_block(open_page, fragmented, fragmented_page):
    block = fragmented.blocks[77]
    page = ready(open_page(fragmented_page, fragment=f"#address-{block.address:#x}"))
    assert blocks_of(page, "[foretrace.memory.map.lanes.state().selected]") == [77]


HOSTILE = [
    "</script><script>document.title='owned'</script>.py:1 in <b>",
    "\"'&amp; \u2028\u202e evil.py:2 in f",
    "a\x00b\x1b[31m.py:3",
]


def test_names_are_text_wherever_they_stand(open_page):
    page = ready(open_page(drawn_page(small_memory(HOSTILE, path="</title><script>1.pickle"))))
    page.evaluate("foretrace.page.table('pins').ready.then(() => undefined)")
    assert page.title() != "owned"
    assert found(page, "</script>") == [0]
    page.keyboard.press("Enter")
    assert "</script><script>" in page.locator("#memory-map .lanes-details").inner_text()
    rows = page.locator("#grid-pins .tabulator-row")
    assert rows.count() == len(HOSTILE) + 1
    for row in range(rows.count()):
        rows.nth(row).locator(".tabulator-cell").first.click()
        assert len(highlighted(page)) == 1


def test_keys_go_to_the_map_and_are_listed(open_page, fragmented_page):
    page = ready(open_page(fragmented_page))
    page.keyboard.press("?")
    keys = page.locator("#help dl").inner_text()
    assert "the map" in keys
    assert "timeline" not in keys
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    assert page.evaluate("document.activeElement.className") == "lanes-canvas"
    page.keyboard.press("]")
    assert page.evaluate("foretrace.memory.map.lanes.state().selected") >= 0
    page.keyboard.press("Escape")
    assert page.evaluate("foretrace.memory.map.lanes.state().selected") == -1


@pytest.mark.parametrize(("segments", "each"), [(20_000, 10), (100, 1_000)], ids=["many segments", "many blocks"])
def test_large_snapshots_open_fast_and_draw_fast(open_page, segments, each):
    memory = large_memory(segments, each)
    html = drawn_page(memory)
    assert len(html) < 4_000_000
    began = time.monotonic()
    page = ready(open_page(html))
    took = time.monotonic() - began
    assert page.evaluate("foretrace.memory.map.count") == segments * each
    assert page.evaluate("foretrace.memory.map.chosen.length") == segments
    drawn = page.evaluate(
        "(() => { const t = performance.now(); foretrace.memory.map.lanes._draw(); return performance.now() - t; })()"
    )
    last = memory.blocks[-1]
    assert found(page, f"{last.address:#x}") == [len(memory.blocks) - 1]
    # Generous: other tests run at the same time. On an idle machine it is about a second, and some 10 ms a frame.
    assert took < 8
    assert drawn < 300


@pytest.mark.parametrize("name", ["training.memory_summary.txt", "training.memory_stats.json"])
def test_sums_have_no_map_and_say_so(open_page, name):
    page = ready(open_page(drawn_page(examine_file(str(H200 / name)))))
    assert "only a snapshot" in page.locator("#section-map").inner_text()
    assert page.locator("#memory-map").count() == 0
    assert page.locator(".memory-bar").count() > 2
    page.keyboard.press("Escape")


def test_a_phone_and_paper_have_room_for_all_of_it(open_page, fragmented_page):
    page = ready(open_page(fragmented_page, viewport={"width": 390, "height": 844}, has_touch=True))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.emulate_media(media="print")
    assert page.locator(".memory-tools").is_visible() is False
    assert page.locator("#section-segments table").is_visible()


def test_bars_are_as_long_as_they_say(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    widths = page.evaluate(
        """[...document.querySelectorAll('.memory-sizes .total .memory-bar')].map((bar) => {
            const whole = bar.getBoundingClientRect().width;
            return [...bar.children].reduce((sum, one) => sum + one.getBoundingClientRect().width, 0) / whole;
        })"""
    )
    totals = fragmented.totals
    sizes = [totals.requested_bytes, totals.allocated_bytes, totals.active_bytes, totals.reserved_bytes]
    assert widths == pytest.approx([size / totals.reserved_bytes for size in sizes], abs=0.005)


def test_the_start_of_the_made_memory_is_where_it_says(open_page):
    page = ready(open_page(drawn_page(small_memory(["one.py:1", "two.py:2"]))))
    assert page.evaluate("foretrace.memory.map.address(2)") == f"{START + 4 * MIB:#x}"
    assert found(page, "pending") == [4]
    assert found(page, "hole") == [1, 3]


def test_a_timeline_has_its_peak_and_no_map(open_page):
    memory = examine_file(str(H200.parent / "timeline_mlp_cpu.raw.json.gz"))
    page = ready(open_page(drawn_page(memory)))
    assert mebibytes(memory.peak.requested_bytes) in page.locator("#section-peak").inner_text()
    page.evaluate("foretrace.page.table('alive').ready.then(() => undefined)")
    rows = page.locator("#grid-alive .tabulator-row")
    assert rows.count() == len(memory.peak.alive)
    rows.first.locator(".tabulator-cell").first.click()
    page.keyboard.press("?")
    assert "map" not in page.locator("#help dl").inner_text()


def test_a_finding_shows_the_blocks_that_it_speaks_of(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    for number, finding in enumerate(fragmented.findings, 1):
        page.locator(f"button[data-finding='{number}']").click()
        blocks = [fragmented.blocks[row] for row in highlighted(page)]
        if finding.rule == "sparse_segments":
            assert len(blocks) == fragmented.fragmentation.sparse_blocks
            assert sum(block.size for block in blocks) == fragmented.fragmentation.sparse_bytes
        else:
            assert {block.state for block in blocks} == {"free"}
            assert sum(block.size for block in blocks) == finding.bytes
        assert page.evaluate("document.getElementById('section-map').getBoundingClientRect().top") < 300


def test_a_double_click_on_a_title_fits_its_segment(open_page, fragmented, fragmented_page):
    page = ready(open_page(fragmented_page))
    canvas = page.locator("#memory-map .lanes-canvas")
    canvas.scroll_into_view_if_needed()
    top = page.evaluate("foretrace.memory.map.lanes.layout.screen(foretrace.memory.map.lanes.layout.lanes[2].top)")
    box = canvas.bounding_box()
    page.mouse.dblclick(box["x"] + 60, box["y"] + top + 8)
    size = page.evaluate("foretrace.memory.map.chosen[2].size")
    view = page.evaluate("foretrace.memory.map.lanes.state()")
    assert size < view["end"] - view["start"] < 1.1 * size


def test_a_zoomed_view_stays_when_segments_are_sorted_anew(open_page, fragmented_page):
    page = ready(open_page(fragmented_page))
    page.evaluate("foretrace.memory.map.lanes.zoomTo(1048576, 9437184)")
    page.locator(".memory-tools select[data-by=order]").select_option("address")
    view = page.evaluate("foretrace.memory.map.lanes.state()")
    assert (view["start"], view["end"]) == (1048576, 9437184)
