"""What is printed: numbers stay whole, pictures keep their shape, tables stop where they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from foretrace import explain, load
from foretrace.analysis.drawn import drawn_of
from foretrace.report.html.explain import explain_page
from foretrace.report.html.tables import PAPER_ROWS

TRACES = Path(__file__).parents[1] / "data" / "traces"
A4 = {"width": 703, "height": 1000}  # px of a sheet without its margins


@pytest.fixture(scope="module")
def train() -> bytes:
    trace = load(TRACES / "mlp_train_eager.json.gz")
    report = explain(trace)
    return explain_page(report, drawn_of(trace, report))


@pytest.fixture
def sheet(open_page, train) -> Any:
    page = open_page(train)
    page.evaluate("foretrace.ready")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size(A4)
    return page


def test_no_number_breaks_inside_its_cell(sheet):
    broken = sheet.evaluate(
        """[...document.querySelectorAll('td.n')].filter((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
        }).map((cell) => cell.textContent)"""
    )
    assert broken == []
    assert sheet.evaluate("document.querySelectorAll('td.n').length") > 100


def test_no_word_of_a_head_breaks(sheet):
    broken = sheet.evaluate(
        """[...document.querySelectorAll('.in-page thead th')].flatMap((head) => {
            if (!head.checkVisibility()) return [];
            const found = [];
            const walk = document.createTreeWalker(head, NodeFilter.SHOW_TEXT);
            for (let node = walk.nextNode(); node; node = walk.nextNode()) {
                for (const { 0: word, index } of node.data.matchAll(/\\S+/g)) {
                    const range = document.createRange();
                    range.setStart(node, index);
                    range.setEnd(node, index + word.length);
                    if (range.getClientRects().length > 1) found.push(word);
                }
            }
            return found;
        })"""
    )
    assert broken == []


def test_nothing_is_wider_than_the_sheet(sheet):
    assert sheet.evaluate("document.documentElement.scrollWidth") <= A4["width"]


def test_long_tables_stop_and_say_so(sheet):
    rows = "document.querySelectorAll('#section-operators .in-page tbody tr').length"
    shown = (
        "[...document.querySelectorAll('#section-operators .in-page tbody tr')].filter((row) => row.checkVisibility())"
    )
    assert sheet.evaluate(rows) > PAPER_ROWS
    assert sheet.evaluate(f"{shown}.length") == PAPER_ROWS
    said = sheet.locator("#section-operators .on-paper").inner_text()
    assert said.startswith(f"{PAPER_ROWS} of {sheet.evaluate(rows)} rows are printed")


def test_full_names_are_left_to_the_file(sheet):
    assert not sheet.get_by_role("columnheader", name="full name", exact=True).is_visible()
    assert (
        sheet.locator("#section-kernels .on-paper").inner_text()
        == "Printed without the full name, which the file holds."
    )


def test_the_chain_stops_at_a_level_and_says_so(sheet):
    printed = sheet.evaluate(
        """[...document.querySelectorAll('.chain li')].filter((line) => line.checkVisibility())
            .map((line) => line.dataset.level)"""
    )
    (count, whole, level) = re.match(
        r"(\d+) of (\d+) lines are printed, down to level (\d+);",
        sheet.locator("#section-chain .on-paper").inner_text(),
    ).groups()
    assert len(printed) == int(count) < int(whole)
    assert max(map(int, printed)) == int(level) - 1


def test_idle_tables_do_not_lie_over_the_next_section(sheet):
    bottoms = sheet.evaluate(
        """(() => {
            const rows = [...document.querySelectorAll('#section-idle tr')];
            const bottom = Math.max(...rows.map((row) => row.getBoundingClientRect().bottom));
            return [bottom, document.querySelector('#section-kernels').getBoundingClientRect().top];
        })()"""
    )
    assert bottoms[0] <= bottoms[1]


def test_the_roofline_keeps_its_shape_and_its_labels(sheet):
    shape = sheet.evaluate(
        """(() => {
            const [svg, canvas] = ['svg', 'canvas'].map((name) => document.querySelector(`.roofline ${name}`));
            const box = (one) => one.getBoundingClientRect();
            const labels = [...svg.querySelectorAll('.roof-label')].map((one) => box(one).right);
            return {
                svg: [box(svg).width, box(svg).height], canvas: [box(canvas).width, box(canvas).height],
                drawn: canvas.width / canvas.height, right: box(svg).right, labels,
            };
        })()"""
    )
    assert shape["canvas"] == pytest.approx(shape["svg"], abs=1.5)
    assert shape["canvas"][0] / shape["canvas"][1] == pytest.approx(shape["drawn"], rel=0.01)
    assert shape["labels"]
    assert max(shape["labels"]) <= shape["right"] + 1


def test_a_training_step_fits_on_few_sheets(open_page, train):
    page = open_page(train)
    page.evaluate("foretrace.ready")
    sheets = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
    assert 1 < sheets <= 10
