"""A device's memory as a screen: a golden one of a real snapshot, and what a screen must never do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.memory.examining import examine, examine_file
from foretrace.memory.snapshot import Block, Frame, Segment, Snapshot, Stacks
from foretrace.report.memory import render_memory
from foretrace.report.view import View

DATA = Path(__file__).parents[1] / "data"
MIB = 1 << 20


def snapshot(*segments: Segment, stacks: Stacks | None = None) -> Snapshot:
    return Snapshot(path="made.pickle", segments=segments, stacks=stacks or Stacks())


def test_the_screen_of_a_real_snapshot(monkeypatch: pytest.MonkeyPatch, regolden: bool):
    monkeypatch.chdir(SAMPLES)
    memory = examine_file("h200_fragmented.snapshot.pickle.gz", request_bytes=200 * MIB)
    text = render_memory(memory, View(), segments=True)
    golden = DATA / "golden" / "memory_fragmented.txt"
    if regolden:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_no_line_is_wider_than_the_screen(width: int):
    memory = examine_file(str(DATA / "memory" / "h200" / "several_streams.pickle.gz"), request_bytes=5 * MIB)
    assert max(map(len, render_memory(memory, View(width=width), segments=True).splitlines())) <= width


def test_names_in_a_snapshot_cannot_write_to_the_terminal_or_into_a_text():
    stacks = Stacks()
    stacks.number([Frame("\x1b[2Jgone{bytes}", "/a/{0}\u202e.py", 3)])
    segment = Segment(0, 0, 128 * MIB, 0, False, (Block(0, 8 * MIB, "active", 1, 0), Block(8 * MIB, 120 * MIB, "free")))
    text = render_memory(examine(snapshot(segment, stacks=stacks)), View(everything=True))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{bytes}" in text


def test_an_empty_snapshot_has_no_bar_and_no_share_of_nothing():
    text = render_memory(examine(snapshot()), View(), segments=True)
    assert "█" not in text.split("MAP")[0]
    assert re.search(r"= reserved +0\.0 ", text)
    assert "%" not in text
    assert "no segments to draw" in text


def test_what_only_a_snapshot_knows_is_a_dash_or_absent_in_a_summary():
    memory = examine_file(str(SAMPLES / "h200_fragmented.memory_summary.txt"))
    text = render_memory(memory, View())
    assert "sizes rounded down to 1 MiB by torch" in text
    assert "PINNED BY" not in text
    assert "largest" not in text.split("FINDINGS")[0]


def test_the_map_draws_a_live_block_however_small():
    sliver = Segment(0, 0, 1024 * MIB, 0, False, (Block(0, 512, "active", 512), Block(512, 1024 * MIB - 512, "free")))
    empty = Segment(0, 1 << 40, 20 * MIB, 0, False, (Block(1 << 40, 20 * MIB, "free"),))
    waiting = Segment(0, 2 << 40, 20 * MIB, 0, False, (Block(2 << 40, 20 * MIB, "pending", 1),))
    drawn = render_memory(examine(snapshot(sliver, empty, waiting)), View(), segments=True).split("MAP")[1]
    first, second, third = (row for row in drawn.splitlines() if row.strip().startswith("0x"))
    assert first.count("█") == 1
    assert first.count("░") > 20
    assert "·" * 20 in second + third
    assert "▒" * 20 in second + third


def test_colours_are_only_for_terminals():
    memory = examine(snapshot(Segment(0, 0, 2 * MIB, 0, True, (Block(0, 2 * MIB, "free"),))))
    assert "\x1b[" in render_memory(memory, View(color=True))
    assert "\x1b" not in render_memory(memory, View())
