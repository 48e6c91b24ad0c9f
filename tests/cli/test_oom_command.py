"""``foretrace oom``: text in, a screen or a document out."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from foretrace.cli import main
from foretrace.memory.snapshot import Snapshot
from memory.oom.oom_samples import REAL, Real, capacity, parentheses

FRAGMENTED = capacity("472.00 MiB", "23.70 GiB", "114.56 MiB", "18.26 GiB", "3.69 GiB", own="23.58 GiB")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "crash.log"
    path.write_text(f"epoch 1\nepoch 2\ntorch.OutOfMemoryError: {FRAGMENTED}\n", encoding="utf-8")
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command prints."""
    assert main(["oom", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which it ends."""
    assert main(["oom", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (sentence,) = captured.err.splitlines()
    return sentence


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def test_one_screen_says_why_what_helps_and_what_cannot(log: Path, capsys: pytest.CaptureFixture[str]):
    out = said(capsys, str(log))

    heads = [
        out.index(head) for head in ("crash.log", "VERDICT", "the device in all", "WHY", "WHAT HELPS", "WHAT CANNOT")
    ]
    assert heads == sorted(heads)
    assert "VERDICT  fragmentation: 3.69 GiB are cached, but not in one piece of 472.00 MiB" in out
    assert "line 3 · CUDA device 0" in out
    assert out.index("expandable_segments:True") < out.index("WHAT CANNOT") < out.index("empty_cache:")
    assert all(len(row) <= 100 for row in out.splitlines())


def test_the_bar_is_as_wide_as_the_screen_and_its_parts_are_told(log: Path, capsys: pytest.CaptureFixture[str]):
    (bar,) = [row for row in said(capsys, str(log)).splitlines() if row.startswith("  ████")]

    assert len(bar) == 98
    # 18.26, 3.69, 1.63 and 0.11 of 23.70 GiB in 96 cells; the last is less than half a cell, but has its line.
    assert [bar.count(mark) for mark in "█▒▪·"] == [74, 15, 7, 0]
    assert "·   114.56 MiB  free" in said(capsys, str(log))


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.source)
def test_a_message_is_one_screen_that_says_what_to_do_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], real: Real
):
    path = tmp_path / "one.log"
    path.write_text(real.text, encoding="utf-8")
    rows = said(capsys, str(path)).splitlines()

    assert len(rows) <= 28
    heads = [row.split("  ")[0] for row in rows]
    assert heads.index("FIRST") > heads.index("VERDICT")
    helping = rows[rows.index("WHAT HELPS") :] if "WHAT HELPS" in rows else []
    assert len([row for row in helping if row.startswith(("  + ", "  ? "))]) <= 4
    assert rows[-1].startswith("more with --all: ")
    assert all(len(row) <= 100 for row in rows)


def test_the_first_screen_denies_only_what_was_advised_and_emptying_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "full.log"
    path.write_text(capacity("16.00 GiB", "79.11 GiB", "4.65 GiB", "73.30 GiB", "335.88 MiB"), encoding="utf-8")

    denied = [row.split(":")[0] for row in said(capsys, str(path)).splitlines() if row.startswith("  - ")]
    assert denied == ["  - expandable_segments", "  - empty_cache"]
    everything = said(capsys, str(path), "--all")
    assert "  - garbage_collection_threshold" in everything
    assert "pytorch#58466" in everything
    assert "more with --all" not in everything


def test_the_bar_is_of_the_limit_where_that_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "limit.log"
    text = capacity(
        "996.00 MiB", "44.43 GiB", "9.06 GiB", "17.44 GiB", "59.88 MiB", own="17.81 GiB", allowed="17.69 GiB"
    )
    path.write_text(text, encoding="utf-8")
    rows = said(capsys, str(path)).splitlines()

    (bar,) = [row for row in rows if row.startswith("  ████")]
    # 17.44, 0.06 and 0.19 of 17.69 GiB in 96 cells
    assert [bar.count(mark) for mark in "█▒·"] == [95, 0, 1]
    assert any("196.12 MiB  left of the limit" in row for row in rows)
    assert any("17.69 GiB  the limit; the device has 44.43 GiB, 9.06 GiB of them free" in row for row in rows)


def test_the_document_is_one_line_of_its_schema(log: Path, capsys: pytest.CaptureFixture[str]):
    (row,) = said(capsys, str(log), "--json").splitlines()
    document = json.loads(row)

    assert document["schema"] == "foretrace.oom/1"
    assert document["path"] == str(log)
    (message,) = document["messages"]
    assert (message["verdict"], message["certain"], message["line"]) == ("fragmentation", True, 3)
    assert message["said"]["allowed"] is None
    assert message["said"]["free"]["low_bytes"] < 114.56 * 2**20 < message["said"]["free"]["high_bytes"]
    assert {one["stance"] for one in message["remedies"]} == {"helps", "may", "cannot"}


def test_standard_input_is_read_whatever_its_bytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    pipe(monkeypatch, b"\xff\xfe\xfa junk \x00\n" + FRAGMENTED.encode("utf-8"))
    # What begins like UTF-16 is read as such; so only a message in it counts.
    assert main(["oom", "-"]) == 2
    capsys.readouterr()
    pipe(monkeypatch, b"junk \xff\xfa\x00\n" + FRAGMENTED.encode("utf-8"))
    assert "VERDICT  fragmentation" in said(capsys, "-")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_powershell_redirects_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str):
    path = tmp_path / "crash.txt"
    path.write_bytes(f"Ärger\r\n{FRAGMENTED}\r\n".encode(encoding))

    assert "VERDICT  fragmentation" in said(capsys, str(path))


def test_what_is_known_of_the_settings_counts(log: Path, capsys: pytest.CaptureFixture[str]):
    out = said(capsys, str(log), "--conf", "expandable_segments:True")

    assert out.index("WHAT CANNOT") < out.index("It is on already")


def test_the_version_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = tmp_path / "old.log"
    log.write_text(parentheses("2.87 GiB", "14.76 GiB", "8.77 GiB", "19.75 MiB", "13.71 GiB"), encoding="utf-8")
    out = said(capsys, str(log), "--torch", "2.0.1", "--all")

    assert "does not fit" not in out
    assert out.index("WHAT CANNOT") < out.index("PyTorch has it since 2.1")


def test_several_messages_are_each_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "all.log"
    path.write_text("\n".join(real.text for real in REAL), encoding="utf-8")
    document = json.loads(said(capsys, str(path), "--json"))

    assert len(document["messages"]) == len(REAL)
    assert f"{len(REAL)} different messages" in said(capsys, str(path))


def test_of_many_messages_the_first_of_each_verdict_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "many.log"
    path.write_text("\n".join(FRAGMENTED.replace("472", str(size)) for size in range(460, 480)), encoding="utf-8")
    out = said(capsys, str(path))

    assert "20 different messages" in out
    assert out.count("VERDICT") == 1
    assert "the same verdict: 19 other messages, line 2, 3, 4 and 5 and 15 more (--all)" in out
    assert said(capsys, str(path), "--all").count("VERDICT") == 20


@pytest.mark.parametrize("name", ["crash.log.gz", "crash.log"])
def test_a_packed_log_is_read_by_its_content(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str):
    path = tmp_path / name
    packed = gzip.compress(b"epoch 1\n") + gzip.compress(FRAGMENTED.encode())
    path.write_bytes(packed)
    assert "VERDICT  fragmentation" in said(capsys, str(path))

    path.write_bytes(gzip.compress(packed))
    assert "VERDICT  fragmentation" in said(capsys, str(path))
    path.write_bytes(b"\x1f\x8b\x08" + bytes(20))
    assert refused(capsys, str(path))


def test_a_packed_file_that_unpacks_to_more_than_any_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("foretrace.cli.oom._MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"x" * (3 << 20)))

    assert "larger than 1 MiB" in refused(capsys, str(path))


def test_a_text_without_a_message_is_refused_with_what_was_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "fine.log"
    path.write_text("epoch 1\nloss 0.3\n", encoding="utf-8")
    sentence = refused(capsys, str(path))

    assert "no out-of-memory message" in sentence
    assert "CUBLAS_STATUS_ALLOC_FAILED" in sentence


@pytest.mark.parametrize(
    ("content", "words", "wanted"),
    [
        (b"", [], "is empty"),
        (b" \n\x00", [], "is empty"),
        (None, [], "cannot be read"),
        (b"CUDA out of memory", ["--conf", "segments:True"], "no option 'segments'"),
        (b"CUDA out of memory", ["--torch", "new"], "no version"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: list[str], wanted: str
):
    path = tmp_path / "given.log"
    if content is not None:
        path.write_bytes(content)

    assert wanted in refused(capsys, str(path), *words)


def test_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "is a folder" in refused(capsys, str(tmp_path))


def test_a_file_is_written_and_never_replaced_unasked(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "why.txt"
    assert main(["oom", str(log), "-o", str(target)]) == 0
    assert "VERDICT  fragmentation" in target.read_text(encoding="utf-8")
    capsys.readouterr()

    assert "exists" in refused(capsys, str(log), "-o", str(target))
    assert main(["oom", str(log), "-o", str(target), "--force", "--json"]) == 0
    assert json.loads(target.read_text(encoding="utf-8"))["schema"] == "foretrace.oom/1"
    capsys.readouterr()
    assert "never replaces it" in refused(capsys, str(log), "-o", str(log), "--force")


def test_a_snapshot_is_read_and_handed_on(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[object] = []
    monkeypatch.setattr("foretrace.cli.oom._snapshot", lambda path: asked.append(path) or Snapshot(path, ()))
    monkeypatch.setattr("foretrace.memory.oom.explain.examined", lambda *given: asked.append(given[0].path))
    snapshot = tmp_path / "s.pickle"
    out = said(capsys, str(log), "--snapshot", str(snapshot))

    assert asked == [str(snapshot), str(snapshot)]
    assert "SNAPSHOT  s.pickle" in out
    assert "The snapshot holds no memory at all. Nothing of it is used." in " ".join(out.split())


def test_names_in_the_text_cannot_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "evil.log"
    path.write_text(f"\x1b]0;owned\x07\x1b[2J{FRAGMENTED}\x1b[8m", encoding="utf-8")

    assert "\x1b" not in said(capsys, str(path))
