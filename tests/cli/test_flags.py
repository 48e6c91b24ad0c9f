"""What all commands do alike: flags, the file they may write, the files they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.capture.variants import MODES, VARIANTS
from foretrace.cli import flags, main

TRACE = str(Path(__file__).parents[1] / "data" / "traces" / "linear_eager.json.gz")

# How each command is called that writes a file.
WRITERS = {
    "explain": ["explain", TRACE],
    "check": ["check", TRACE, "--expect", "kernels == 1"],
    "compare": ["compare", TRACE, TRACE],
    "bench": ["bench", "linear"],
    "predict": ["predict", "linear", "--gpu", "H200"],
}
every_writer = pytest.mark.parametrize("words", WRITERS.values(), ids=WRITERS)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_the_variants_and_modes_are_those_of_the_recorder():
    assert tuple(VARIANTS) == flags.VARIANTS
    assert MODES == flags.MODES


@every_writer
@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "--output is empty"), (".", "is a folder"), ("absent/x.json", "the folder absent does not exist")],
)
def test_what_cannot_be_written_is_refused(words, name, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sentence in said(capsys, *words, "-o", name)
    assert list(tmp_path.iterdir()) == []


@every_writer
def test_a_file_that_exists_is_kept(words, tmp_path, capsys):
    taken = tmp_path / "taken.json"
    taken.write_text("mine")
    assert "exists; choose another name, or replace it with --force" in said(capsys, *words, "-o", str(taken))
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("command", ["explain", "check", "compare"])
def test_a_dash_is_standard_output(command, capsys):
    assert main([*WRITERS[command], "-o", "-", "--json"]) in (0, 1)
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize("command", ["bench", "predict"])
def test_beside_what_is_printed_it_is_none(command, capsys):
    assert "names no file" in said(capsys, *WRITERS[command], "-o", "-")


@pytest.mark.parametrize(
    "words",
    [
        ["explain", TRACE, "--expect", "read.toml"],
        ["check", TRACE, "read.toml"],
        ["check", TRACE, "--expect", "read.toml"],
        ["compare", TRACE, "read.toml"],
        ["bench", "read.toml:make"],
        ["predict", "read.toml:make", "--gpu", "H200"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_read_is_never_replaced(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "read.toml"
    source.write_text("kernels = 1\n")
    if words[0] == "predict":
        source = source.rename("read.py")
        words = ["predict", "read.py:make", "--gpu", "H200"]
    err = said(capsys, *words, "--force", "-o", source.name)
    assert f"{source.name} is a file that is read here; --output never replaces it" in err
    assert source.read_text() == "kernels = 1\n"


def test_a_name_that_ends_in_gz_is_packed(tmp_path, capsys):
    target = tmp_path / "report.json.gz"
    assert main(["explain", TRACE, "--json", "-o", str(target)]) == 0
    assert target.read_bytes()[:2] == b"\x1f\x8b"
    assert capsys.readouterr().err == f"foretrace: wrote {target}\n"


@pytest.mark.parametrize("command", ["explain", "compare", "predict"])
def test_top_is_a_whole_number_above_zero(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([*WRITERS[command], "--top", "0"])
    assert left.value.code == 2
    assert "--top: '0' is not a whole number above 0" in capsys.readouterr().err


def test_run_refuses_an_empty_name_too(capsys):
    assert "--output is empty" in said(capsys, "run", "linear", "-o", "")
