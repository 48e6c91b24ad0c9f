"""The page of one report, as a parser of HTML sees it: what stands in it, and that no text of a trace is markup."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest

from builders import TraceBuilder
from foretrace.analysis.drawn import drawn_of
from foretrace.analysis.explain import explain
from foretrace.model import words
from foretrace.model.drawn import Drawn
from foretrace.model.report import Report
from foretrace.prediction.expect import expect, judge
from foretrace.report.html.explain import explain_page
from foretrace.report.html.page import CONTENT_POLICY
from foretrace.report.html.tables import STATIC_ROWS, Column, Table, times
from foretrace.report.html.work_tables import NOWHERE, gemms, groups, picks_of
from foretrace.trace import load
from report import samples

TRACES = Path("tests/data/traces")


class Seen(HTMLParser):
    """Tags with their attributes, and the text of everything that is neither script nor style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.blocks: dict[str, str] = {}
        self._inside: list[str] = []
        self._block = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)
            self._block = dict(attrs).get("id") or ""

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.text += data
        elif self._block:
            self.blocks[self._block] = data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for each, attrs in self.tags
            if each == tag
            and all(attrs.get(key.rstrip("_").replace("_", "-")) == value for key, value in wanted.items())
        ]

    def columns(self, block: str) -> tuple[object, dict[str, np.ndarray]]:
        (described,) = [attrs["data-columns"] for attrs in self.all("script", id=block)]
        raw = gzip.decompress(base64.b64decode(self.blocks[block]))
        found, at = {}, 0
        for name, (kind, length) in json.loads(described or "").items():
            size = np.dtype(kind).itemsize * length
            found[name] = np.frombuffer(raw[at : at + size], dtype=kind)
            at += -(-size // 8) * 8
        return json.loads(raw[at:]), found


def seen(page: bytes) -> Seen:
    parser = Seen()
    parser.feed(page.decode())
    return parser


def page_of(report: Report, drawn: Drawn | None = None, **options) -> Seen:
    if drawn is None:
        drawn = drawn_of(TraceBuilder().trace(), report)
    return seen(explain_page(report, drawn, **options))


def page_of_trace(trace, **options) -> Seen:
    report = explain(trace)
    return page_of(report, drawn_of(trace, report), **options)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_first_screen_of_the_terminal_is_in_the_page():
    report = explain(TRACES / "mlp_eager.json.gz")
    page = page_of(report, drawn_of(load(TRACES / "mlp_eager.json.gz"), report))
    text = flat(page.text)
    for said in (
        "mlp_eager.json.gz",
        "NVIDIA H200",
        "3 steps",
        *report.verdict.because,
        *(finding.title for finding in report.findings),
        *(finding.explanation for finding in report.findings),
        *(finding.suggestion for finding in report.findings if finding.suggestion),
        *(check.detail for check in report.health),
        *(gap_cause.detail for step in report.steps for gap_cause in step.idle if gap_cause.detail),
        *(group.name for group in report.groups),
        "launch known 100 %",
    ):
        assert flat(said) in text


def test_findings_are_numbered_and_link_to_their_evidence():
    report = explain(TRACES / "mlp_eager.json.gz")
    page = page_of_trace(load(TRACES / "mlp_eager.json.gz"))
    links = {attrs["href"] for attrs in page.all("a", class_="event")}
    for number, finding in enumerate(report.findings, 1):
        (item,) = page.all("li", id=f"finding-{number}")
        assert item["data-events"] == " ".join(str(each.event) for each in finding.evidence)
        assert {f"#event-{each.event}" for each in finding.evidence[:4]} <= links


def test_sections_are_in_the_contents_in_order_and_ids_are_unique():
    page = page_of_trace(load(TRACES / "mlp_compile.json.gz"))
    sections = [attrs["id"] for attrs in page.all("section")]
    hrefs = [attrs.get("href") for attrs in page.all("a")]
    assert [href for href in hrefs if href and href.removeprefix("#") in sections][: len(sections)] == [
        f"#{id}" for id in sections
    ]
    ids = [attrs["id"] for _, attrs in page.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert {"section-verdict", "section-findings", "section-timeline", "section-gemms", "section-roofline"} <= set(
        sections
    )


def test_kernels_are_columns_and_equal_the_report():
    trace = load(TRACES / "mlp_compile.json.gz")
    report = explain(trace)
    document, columns = page_of(report, drawn_of(trace, report)).columns("data-kernels")
    assert columns["event"].tolist() == [kernel.event for kernel in report.kernels]
    assert columns["duration"].tolist() == [kernel.duration_us for kernel in report.kernels]
    assert [document["kind"][at] for at in columns["kind"]] == [kernel.kind for kernel in report.kernels]
    known = [kernel.flops for kernel in report.kernels if kernel.flops is not None]
    assert columns["flops"][~np.isnan(columns["flops"])].tolist() == known
    assert len(known) == 9


def test_the_rows_of_every_table_count_as_many_kernels_as_they_say():
    report = explain(TRACES / "mlp_train_eager.json.gz")
    picks = picks_of(report)
    tables = ((report.groups, picks.group), (report.gemms, picks.product), (report.elementwise, picks.mover))
    for rows, column in tables:
        counted = [int((column == at).sum()) for at in range(len(rows))]
        assert counted == [row.calls for row in rows]
    assert (picks.transfer != NOWHERE).all()


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b>bold</b>",
    "{{ 7 * 7 }}{% raw %}",
    "line\u2028separator\u2029",
    "bell\x07 escape\x1b[31m nul\x00",
    "right\u202eto left",
]


def hostile_trace() -> TraceBuilder:
    build = TraceBuilder(gpu=HOSTILE[0])
    for number in range(2):
        at = number * 1000.0
        build.step(number, at, 900)
        for place, name in enumerate(HOSTILE):
            build.op(name, at + 10 + 50 * place, 30)
            build.kernel(f"kernel {name}", at + 30 + 50 * place, 10, launch=build.launch(at + 15 + 50 * place))
    return build


def test_hostile_names_are_text_and_nothing_else():
    trace = hostile_trace().trace()
    trace.path = f"/tmp/{HOSTILE[1].replace('/', '')}.json"
    plain = page_of_trace(load(TRACES / "mlp_eager.json.gz"))
    page = page_of_trace(trace)
    assert "<img src=x onerror=alert(1)>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert not page.all("img")
    assert not page.all("b", onerror="alert(1)")
    blocks = len([attrs for attrs in page.all("script") if attrs.get("id")])
    assert len(page.all("script")) - blocks == len(plain.all("script")) - len(
        [a for a in plain.all("script") if a.get("id")]
    )
    for character in ("\u2028", "\u202e", "\x1b", "\x07", "\x00"):
        assert character not in page.text
    assert "right\\u202eto left" in page.text


def test_the_page_forbids_itself_the_network_and_names_none():
    trace = load(TRACES / "mlp_eager.json.gz")
    report = explain(trace)
    page = page_of(report, drawn_of(trace, report))
    (policy,) = [attrs["content"] for attrs in page.all("meta", http_equiv="Content-Security-Policy")]
    assert policy == CONTENT_POLICY
    assert "default-src 'none'" in policy
    for attrs in (attrs for _, attrs in page.tags):
        assert "src" not in attrs
        assert not (attrs.get("href") or "#").startswith(("http", "//"))
    assert "url(http" not in explain_page(report, drawn_of(trace, report)).decode()


def test_a_page_without_data_is_below_the_megabytes_it_may_take():
    report = samples.mlp_report()
    assert len(explain_page(report, drawn_of(TraceBuilder().trace(), report))) < 1_700_000


def test_tens_of_thousands_of_kernels_stay_small():
    report = samples.mlp_report()
    one = report.kernels[0]
    report.kernels = [
        samples.kernel(event=at, start_us=at * 3.1, name=one.name, short_name=one.short_name) for at in range(20_000)
    ]
    empty = drawn_of(TraceBuilder().trace(), samples.mlp_report())
    grown = len(explain_page(report, empty)) - len(explain_page(samples.mlp_report(), empty))
    assert grown < 20_000 * 16


@pytest.mark.parametrize(
    "report",
    [samples.mlp_report(), samples.cpu_report()],
    ids=["gpu", "cpu"],
)
def test_reports_made_by_hand_make_pages(report):
    page = page_of(report)
    assert flat(report.verdict.because[0]) in flat(page.text)
    assert len(page.all("h1")) == 1


def test_an_empty_trace_makes_a_page():
    page = page_of_trace(TraceBuilder().trace())
    assert not page.all("section", id="section-gemms")
    assert page.all("section", id="section-health")


def test_a_share_above_the_peak_says_why_it_is_none():
    report = samples.mlp_report()
    group = report.groups[0]
    report.groups = [msgspec.structs.replace(group, of_peak=part, cache_assisted=False) for part in (1.4, 0.5)]
    (column,) = [one for one in groups(report).columns if one.key == "of_peak"]
    assert column.values == [None, 0.5]
    assert column.said(0) == "above peak"


def test_alarms_stand_in_the_masthead():
    report = samples.mlp_report()
    report.health[0].state = "bad"
    report.health[0].detail = "half of the kernels are missing"
    text = flat(page_of(report).text)
    assert "DO NOT TRUST" in text
    assert text.index("half of the kernels are missing") < text.index("Verdict")


def test_expectations_and_their_accounts_are_in_the_page():
    trace = load(TRACES / "mlp_eager.json.gz")
    report = explain(trace)
    checked = judge(report, expect("gemm == 3", "kernels == 7"), trace=trace)
    page = page_of(report, drawn_of(trace, report), checked=checked)
    text = flat(page.text)
    assert "2 expectations: 1 held and 1 broken" in text
    broken = next(outcome for outcome in checked.outcomes if outcome.state == "broken")
    assert flat(broken.accounts[0].text) in text
    assert page.all("section", id="section-expectations")
    assert not page_of(report, drawn_of(trace, report)).all("section", id="section-expectations")


def test_memory_is_in_the_page_where_it_was_recorded():
    path = min(Path("tests/data/traces_memory").glob("*.json.gz"), key=lambda path: path.stat().st_size)
    trace = load(path)
    report = explain(trace)
    assert report.memory is not None
    text = flat(page_of(report, drawn_of(trace, report)).text)
    step = max(report.memory.devices[0].steps, key=lambda step: step.peak_bytes or 0)
    assert words.mebibytes(step.peak_bytes) in text
    assert not page_of_trace(load(TRACES / "mlp_eager.json.gz")).all("section", id="section-memory")


def test_long_tables_stand_in_the_page_up_to_a_stated_number_of_rows():
    report = samples.mlp_report()
    report.groups = [samples.group(name=f"kernel_{at}", short_name=f"short_{at}") for at in range(STATIC_ROWS + 20)]
    text = flat(page_of(report).text)
    assert f"The first {STATIC_ROWS} of {STATIC_ROWS + 20} rows" in text
    assert f"short_{STATIC_ROWS - 1}" in text
    assert f"short_{STATIC_ROWS}" not in text


def test_a_column_says_its_unit_in_the_head_and_unknown_as_a_dash():
    column = times("median", "median", [1234.5, None, 250_000.0])
    assert (column.unit, [column.said(row) for row in range(3)]) == ("ms", ["1.23", "–", "250"])
    shares = Column("share", "of peak", "percent", [0.5, None, None], notes=[" a", "cache-assisted", ""])
    assert [shares.said(row) for row in range(3)] == ["50.0 a", "cache-assisted", "–"]
    assert Table("t", "t", [column], 3).data()["columns"][0]["values"] == [1234.5, None, 250_000.0]


def test_products_keep_the_order_that_torch_gives_their_sizes():
    table = gemms(explain(TRACES / "mlp_eager.json.gz"))
    assert [column.title for column in table.columns[:3]] == ["M", "N", "K"]
    assert [column.values[0] for column in table.columns[:3]] == [8192, 3072, 768]


def test_no_script_ends_the_element_it_stands_in():
    trace = load(TRACES / "mlp_eager.json.gz")
    report = explain(trace)
    page = explain_page(report, drawn_of(trace, report)).decode()
    assert (
        len(re.findall(r"<script\b", page))
        == len(re.findall(r"</script>", page))
        == len(seen(page.encode()).all("script"))
    )
