"""``foretrace memory --html``: the page is written beside what is printed, or nothing is and one sentence says why."""

import json
from pathlib import Path

import pytest

from foretrace.cli import main

SNAPSHOT = Path("tests/data/memory/h200/training.pickle.gz")
SUMMARY = Path("tests/data/memory/h200/training.memory_summary.txt")


def memory(*words: object) -> int:
    return main(["memory", *map(str, words)])


@pytest.mark.parametrize("source", [SNAPSHOT, SUMMARY], ids=["snapshot", "summary"])
def test_the_page_is_written_and_the_screen_still_printed(source, tmp_path, capfd):
    target = tmp_path / "report.html"
    assert memory(source, "--html", target) == 0
    out, err = capfd.readouterr()
    assert out.startswith(f"foretrace memory  {source.name}\n")
    assert err == f"foretrace: wrote {target}\n"
    assert target.read_bytes().startswith(b"<!doctype html>")


def test_json_stays_alone_on_standard_output(tmp_path, capfd):
    assert memory(SNAPSHOT, "--json", "--html", tmp_path / "report.html") == 0
    said = json.loads(capfd.readouterr().out)
    assert said["schema"] == "foretrace.memory/1"
    assert all((block["where"] is None) == (block["state"] == "free") for block in said["blocks"])


def test_a_failing_gate_still_writes_its_page(tmp_path, capfd):
    target = tmp_path / "report.html"
    assert memory(SNAPSHOT, "--request", "4GiB", "--device-free", "1MiB", "--fail", "--html", target) == 1
    assert b"4096 MiB on the default stream" in target.read_bytes()


def test_a_file_that_exists_is_kept_and_replaced_only_with_force(tmp_path, capfd):
    target = tmp_path / "report.html"
    target.write_text("mine")
    assert memory(SNAPSHOT, "--html", target) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "--force" in err
    assert target.read_text() == "mine"
    assert memory(SNAPSHOT, "--html", target, "--force") == 0
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("content", [b"", b"no snapshot", b"\x80\x05."], ids=["empty", "text", "pickle"])
def test_nothing_is_written_of_a_file_that_cannot_be_read(content, tmp_path, capfd):
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(content)
    target = tmp_path / "report.html"
    assert memory(bad, "--html", target) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert not target.exists()


def test_the_snapshot_itself_is_never_replaced(tmp_path, capfd):
    copy = tmp_path / "snapshot.pickle.gz"
    copy.write_bytes(SNAPSHOT.read_bytes())
    assert memory(copy, "--html", copy, "--force") == 2
    assert "never replaces it" in capfd.readouterr().err
    assert copy.read_bytes() == SNAPSHOT.read_bytes()


def test_page_and_output_are_two_files(tmp_path, capfd):
    target = tmp_path / "report.html"
    assert memory(SNAPSHOT, "--html", target, "-o", target) == 2
    assert "each a file of its own" in capfd.readouterr().err
    assert not target.exists()


def test_convert_has_no_page(tmp_path, capfd):
    new = tmp_path / "new.pickle"
    assert memory("convert", SNAPSHOT, "-o", new, "--html", tmp_path / "report.html") == 2
    assert "--html" in capfd.readouterr().err
    assert not new.exists()
