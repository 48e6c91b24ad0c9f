"""The page of a device's memory, as a parser of HTML sees it: everything the terminal says, and bars that add up."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from foretrace.memory import examine_file
from foretrace.memory.drawn import drawn_of_memory
from foretrace.memory.mapping import LARGEST
from foretrace.model.memory import OutOfMemory
from foretrace.model.words import count, mebibytes
from foretrace.report.html import memory_bars
from foretrace.report.html.memory import memory_page
from foretrace.report.memory import peak_facts, render_memory, size_rows
from foretrace.report.view import View
from memories import small_memory

H200 = Path("tests/data/memory/h200")
FRAGMENTED = "src/foretrace/cli/samples/h200_fragmented.snapshot.pickle.gz"
SNAPSHOTS = sorted(path.name for path in H200.glob("*.pickle.gz"))
SUMS = sorted(path.name for path in H200.glob("*.memory_*"))


def drawn_page(memory):
    return memory_page(memory, drawn_of_memory(memory))


class Seen(HTMLParser):
    """The text of everything that is neither script nor style, the sections, and the data blocks."""

    def __init__(self, html: bytes) -> None:
        super().__init__()
        self.text = ""
        self.sections: list[str] = []
        self.blocks: dict[str, str] = {}
        self.tags: list[str] = []
        self._quiet: str | None = None
        self._block: str | None = None
        self.feed(html.decode())
        self.words = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "section":
            self.sections.append(given["id"].removeprefix("section-"))
        if tag in ("script", "style"):
            self._quiet, self._block = tag, given.get("id")

    def handle_endtag(self, tag):
        if tag == self._quiet:
            self._quiet = self._block = None

    def handle_data(self, data):
        if self._quiet is None:
            self.text += data
        elif self._block:
            self.blocks[self._block] = data


def document_of(block: str) -> dict:
    raw = gzip.decompress(base64.b64decode(block))
    return json.loads(raw[raw.index(b'{"lines"') :])


@pytest.mark.parametrize("name", [FRAGMENTED, *(f"tests/data/memory/h200/{name}" for name in [*SNAPSHOTS, *SUMS])])
def test_what_the_terminal_says_is_on_the_page(name):
    memory = examine_file(name)
    seen = Seen(drawn_page(memory))
    for check in memory.health:
        assert " ".join(check.detail.split()) in seen.words
    for finding in memory.findings:
        for text in (finding.title, finding.explanation, finding.suggestion or "", finding.rule):
            assert text in seen.words
    for row, size, what in size_rows(memory):
        assert row in seen.words
        assert mebibytes(size) in seen.words
        assert what in seen.words
    for pin in memory.pinned_by:
        assert pin.where in seen.words
    if memory.peak is not None:
        assert peak_facts(memory.peak)[0] in seen.words
        assert all(one.where in seen.words for one in memory.peak.alive)
    head = render_memory(memory, View(width=100_000)).splitlines()[1]
    assert head in seen.words


def test_sections_come_in_the_order_in_which_one_reads():
    memory = examine_file(FRAGMENTED, request_bytes=200 << 20, device_free_bytes=10 << 30)
    seen = Seen(drawn_page(memory))
    assert seen.sections == ["request", "sizes", "free", "findings", "map", "pins", "segments", "peak", "trust"]
    assert memory.request.because in seen.words
    assert "200 MiB on the default stream: yes" in seen.words


@pytest.mark.parametrize(
    ("free", "answer"), [(10 << 30, "yes"), (1 << 20, "no"), (None, "the device decides")], ids=["yes", "no", "unknown"]
)
def test_the_answer_to_a_request_is_said_in_words(free, answer):
    memory = examine_file(str(H200 / "training.pickle.gz"), request_bytes=4 << 30, device_free_bytes=free)
    assert f"4096 MiB on the default stream: {answer}" in Seen(drawn_page(memory)).words


@pytest.mark.parametrize("name", SUMS)
def test_sums_say_why_they_have_no_map(name):
    html = drawn_page(examine_file(str(H200 / name)))
    seen = Seen(html)
    assert "only a snapshot" in seen.words
    assert "data-map" not in seen.blocks
    assert "pins" not in seen.sections


def test_a_segment_of_a_broken_file_is_not_drawn_and_the_page_says_so():
    memory = small_memory(["a.py:1"])
    memory.segments[0].size = LARGEST + 1
    seen = Seen(drawn_page(memory))
    assert "the file cannot be right" in seen.words
    assert "data-map" not in seen.blocks


def test_tables_lead_to_the_origins_of_their_rows():
    memory = examine_file(FRAGMENTED)
    said = document_of(Seen(drawn_page(memory)).blocks["data-map"])
    for pin, numbers in zip(memory.pinned_by, said["lines"]["pin"], strict=True):
        assert numbers
        assert {said["origins"][number]["where"] for number in numbers} == {pin.where}
    assert len(said["segments"]) == len(memory.segments)
    assert said["segments"][0]["address"] == f"{memory.segments[0].address:#x}"


HOSTILE = "</script><img src=x onerror=alert(1)>&\"'.py:1 in <b>"


def test_nothing_of_a_file_is_markup():
    memory = small_memory([HOSTILE], path="<svg onload=1>.pickle")
    memory.source.settings["<i>"] = "<b onclick=1>"
    memory.source.repairs.append("<u>mended</u>")
    plain = small_memory(["a.py:1"])
    plain.source.settings["x"] = "y"
    plain.source.repairs.append("mended")
    page, other = Seen(drawn_page(memory)), Seen(drawn_page(plain))
    assert page.tags == other.tags
    assert HOSTILE in page.text


def test_unprintable_characters_and_half_characters_are_spelled_out():
    html = drawn_page(small_memory(["\x1b[31m\u202e\ud800.py:1"]))
    assert b"\x1b" not in html
    html.decode("utf-8")


@pytest.mark.parametrize("name", [FRAGMENTED, *(str(H200 / name) for name in [*SNAPSHOTS, *SUMS])])
def test_accounts_add_up_to_all_free_memory(name):
    memory = examine_file(name)
    accounts = {account.title: account.bar for account in memory_bars.accounts(memory)}
    for bar in accounts.values():
        assert sum(part.bytes for part in bar.parts) == bar.whole
        if bar.whole:
            assert sum(part.length for part in bar.parts) == pytest.approx(100)
    if memory.segments:
        free = memory.totals.reserved_bytes - memory.totals.active_bytes
        assert accounts["Where it lies"].whole == accounts["Who can have it"].whole == free


@pytest.mark.parametrize("name", [FRAGMENTED, *(str(H200 / name) for name in SNAPSHOTS)])
def test_every_size_is_drawn_as_long_as_it_is_and_begins_where_the_last_one_ended(name):
    memory = examine_file(name)
    reserved = memory.totals.reserved_bytes
    end = 0.0
    for row in memory_bars.sizes(memory):
        if row.name.startswith("device"):
            assert row.parts == []
            continue
        assert sum(part.length for part in row.parts) == pytest.approx(100 * row.bytes / reserved)
        if row.name.startswith("+"):
            (part,) = row.parts
            assert part.start == pytest.approx(end)
            end = part.start + part.length
        else:
            assert row.parts[0].start == 0
            end = 100 * row.bytes / reserved
    assert end == pytest.approx(100)


def test_a_size_that_is_not_known_is_not_drawn_and_those_after_it_are():
    memory = small_memory(["a.py:1", "b.py:2"])
    memory.totals.requested_bytes = memory.fragmentation.rounding_bytes = None
    rows = {row.name: row for row in memory_bars.sizes(memory)}
    assert rows["requested"].parts == []
    assert "+ rounding" not in rows
    lengths = [sum(part.length for part in rows[name].parts) for name in ("= allocated", "= active", "= reserved")]
    assert lengths == pytest.approx([40, 60, 100])
    words = Seen(drawn_page(memory)).words
    assert re.search(r"requested ?–", words)


def test_the_device_is_drawn_with_what_others_use_of_it():
    memory = small_memory(["a.py:1"])
    memory.totals.device_used_bytes, memory.totals.device_total_bytes = 10 << 20, 20 << 20
    bar = memory_bars.device_bar(memory)
    assert [(part.kind, part.bytes >> 20) for part in bar.parts] == [("requested", 6), ("others", 4), ("unused", 10)]
    memory.totals.device_used_bytes = None
    bar = memory_bars.device_bar(memory)
    assert [(part.kind, part.bytes >> 20) for part in bar.parts] == [("requested", 6), ("unused", 14)]


def test_allocations_that_failed_are_told():
    memory = examine_file(str(H200 / "out_of_memory.pickle.gz"))
    failed = memory.history.out_of_memory
    assert failed
    words = Seen(drawn_page(memory)).words
    for one in failed:
        assert f"{mebibytes(one.bytes)} asked for" in words
    memory.history.out_of_memory = [OutOfMemory(bytes=3 << 20, device_free_bytes=None, time_us=None, stack=[])]
    assert "3 MiB asked for" in Seen(drawn_page(memory)).words


def test_several_devices_are_named():
    memory = small_memory(["a.py:1"])
    other = memory.devices[0].__class__(device=3, reserved_bytes=5 << 20, allocated_bytes=0, segments=2)
    memory.devices.append(other)
    assert "device 3 5 MiB (--device N)" in Seen(drawn_page(memory)).words


def test_without_findings_a_snapshot_says_so():
    words = Seen(drawn_page(small_memory(["a.py:1"]))).words
    assert "None. Kinds below" in words
    assert count(2, "block") not in words


def test_a_device_of_which_nothing_is_held_has_a_page():
    memory = small_memory([])
    memory.segments, memory.blocks, memory.pinned_by = [], [], []
    memory.totals.requested_bytes = memory.totals.allocated_bytes = memory.totals.active_bytes = 0
    memory.totals.reserved_bytes = memory.free.holes_bytes = memory.fragmentation.hard_bytes = 0
    seen = Seen(drawn_page(memory))
    assert "the allocator held nothing of this device" in seen.words
    assert seen.sections == ["sizes", "free", "findings", "map", "trust"]
