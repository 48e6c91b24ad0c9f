"""``foretrace slim``: what it says, what it writes, what it refuses."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace.cli import main
from foretrace.trace import load

TRACES = Path(__file__).parents[1] / "data" / "traces"
EAGER = TRACES / "mlp_eager.json.gz"
SAMPLE = Path(__file__).parents[2] / "src" / "foretrace" / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_it_says_what_became_of_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "s.json.gz"
    code, text, errors = said(capsys, "slim", EAGER, "-o", out, "--step", "1")
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    size = f"{out.stat().st_size / 1000:.2f} kB of 5.29 kB"
    assert lines[0].startswith(f"{out}: {size} (")
    assert lines[0].endswith(f"{load(out).total_events} of 243 events")
    assert lines[1] == "  steps    ProfilerStep#3"
    assert lines[2].startswith("  kept     29 operators, 7 API calls, 5 kernels, ")
    assert lines[3].startswith("  dropped  ")
    assert "10 kernels" in lines[3]
    assert len(lines) == 4


@pytest.mark.parametrize("asked", [["1"], ["#3"], ["ProfilerStep#3"], ["1", "#3"]], ids="-".join)
def test_a_step_is_named_like_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]):
    flags = [word for step in asked for word in ("--step", step)]
    assert said(capsys, "slim", EAGER, "-o", tmp_path / "s.json", *flags)[0] == 0
    # The step behind it stays as a mark: a period ends where the next step begins.
    slimmed = load(tmp_path / "s.json")
    assert [(s.index, s.label, s.end > s.start) for s in slimmed.steps] == [(0, "ProfilerStep#3", True)]
    assert [(s.label, s.end > s.start) for s in slimmed.marks] == [("ProfilerStep#4", False)]


def test_a_damaged_trace_is_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "broken.json"
    broken.write_bytes(gzip.decompress(EAGER.read_bytes()).replace(b"aten::linear", b"aten::\x01linear"))
    code, text, _ = said(capsys, "slim", broken, "-o", tmp_path / "mended.json")
    assert code == 0
    assert "  mended   control characters inside strings, escaped (" in text
    assert "dropped" not in text
    json.loads((tmp_path / "mended.json").read_bytes())


def test_the_side_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _, text, _ = said(capsys, "slim", SAMPLE, "-o", tmp_path / "s.json.gz")
    assert f"  beside   {tmp_path / 's.side.json'} (" in text


def test_stacks_go_unless_they_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    build = TraceBuilder()
    build.python("model.py(3): forward", 0, 50)
    build.op("aten::mm", 10, 20, shapes=[[2]])
    path = build.write(tmp_path / "t.json")
    _, text, _ = said(capsys, "slim", path, "-o", tmp_path / "a.json", "--drop", "shapes,memory")
    assert "  dropped  1 Python frame\n" in text
    assert set(load(tmp_path / "a.json").names) == {"aten::mm"}
    said(capsys, "slim", path, "-o", tmp_path / "b.json", "--keep-stacks")
    assert set(load(tmp_path / "b.json").names) == {"aten::mm", "model.py(3): forward"}


def test_overlaps_are_moved_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    build = TraceBuilder()
    build.kernel("first", 0, 20)
    build.kernel("second", 10, 20)
    path = build.write(tmp_path / "t.json")
    _, text, _ = said(capsys, "slim", path, "-o", tmp_path / "s.json", "--fix-overlaps")
    assert "  moved    1 row onto" in text


def test_standard_input_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    class Piped(io.TextIOWrapper):
        pass

    monkeypatch.setattr(sys, "stdin", Piped(io.BytesIO(EAGER.read_bytes())))
    assert said(capsys, "slim", "-", "-o", tmp_path / "s.json", "--range", "0:1ms")[0] == 0
    assert 0 < len(load(tmp_path / "s.json")) < len(load(EAGER))


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--step", "9"], "there is no step '9'"),
        (["--step", "0", "--range", "0:1"], "give one of them"),
        (["--range", "5s:6s"], "nothing was recorded in that range; the trace is"),
        (["--drop", "kernels"], "choose from stacks"),
        (["--drop", "stacks", "--keep-stacks"], "contradict"),
    ],
    ids=["step", "both", "empty range", "part", "stacks"],
)
def test_what_cannot_be_done_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], word: str
):
    code, out, errors = said(capsys, "slim", EAGER, "-o", tmp_path / "s.json", *flags)
    assert (code, out) == (2, "")
    assert word in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_range_is_read_by_the_parser(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        main(["slim", str(EAGER), "-o", str(tmp_path / "s.json"), "--range", "soon"])
    assert "'soon' is no range" in capsys.readouterr().err


def test_the_same_as_one_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "s.json"
    code, text, errors = said(capsys, "slim", EAGER, "-o", out, "--step", "1", "--json")
    assert (code, errors, text.count("\n")) == (0, "", 1)
    made = json.loads(text)
    assert (made["schema"], made["path"], made["steps"]) == ("foretrace.slim/1", str(out), ["ProfilerStep#3"])
    assert (made["before_events"], made["after_events"]) == (243, load(out).total_events)
    assert made["kept"]["kernel"] == 5
    assert made["side"] is None


@pytest.mark.parametrize("flag", ["--keep_stacks", "--fix_overlaps"])
def test_words_of_a_flag_are_joined_either_way(tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str):
    assert said(capsys, "slim", EAGER, "-o", tmp_path / "s.json", flag)[0] == 0


def test_files_are_neither_replaced_nor_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "s.json"
    target.write_text("mine")
    code, _, errors = said(capsys, "slim", EAGER, "-o", target)
    assert code == 2
    assert "--force" in errors
    assert target.read_text() == "mine"
    assert said(capsys, "slim", EAGER, "-o", target, "--force")[0] == 0
    assert said(capsys, "slim", tmp_path / "none.json", "-o", tmp_path / "n.json")[0] == 2
    assert said(capsys, "slim", target, "-o", target, "--force")[0] == 2
    assert said(capsys, "slim", EAGER, "-o", "-")[0] == 2
