"""``--html`` of compare, check and predict: a page beside what is printed, or nothing and one sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from comparison.comparing import COMPILED, EAGER, program
from foretrace.cli import main

EXPECTED = ["--expect", "kernels == 5"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program(EAGER).write(tmp_path / "eager.json.gz")
    program(COMPILED).write(tmp_path / "compiled.json.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(command: str) -> list[str]:
    if command == "compare":
        return ["compare", "eager.json.gz", "compiled.json.gz"]
    if command == "check":
        return ["check", "eager.json.gz", *EXPECTED]
    pytest.importorskip("torch", reason="predicting traces a program with torch")
    return ["predict", "linear", "--batch", "1", "--gpu", "H200"]


COMMANDS = pytest.mark.parametrize("command", ["compare", "check", "predict"])


@COMMANDS
def test_the_page_is_written_beside_what_is_printed(command, folder, capfd):
    words = words_of(command)
    assert main(words) == 0
    printed = capfd.readouterr().out
    assert main([*words, "--html", "page.html"]) == 0
    out, err = capfd.readouterr()
    assert out == printed
    assert err == "foretrace: wrote page.html\n"
    page = (folder / "page.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert f"foretrace {command}".encode() in page


@COMMANDS
def test_json_stays_alone_on_standard_output(command, folder, capfd):
    assert main([*words_of(command), "--json", "--html", "page.html"]) == 0
    assert json.loads(capfd.readouterr().out)["schema"].startswith("foretrace.")
    assert (folder / "page.html").is_file()


@COMMANDS
def test_a_file_that_exists_is_kept_without_force(command, folder, capfd):
    (folder / "page.html").write_text("mine")
    assert main([*words_of(command), "--html", "page.html"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--force" in err
    assert (folder / "page.html").read_text() == "mine"
    assert main([*words_of(command), "--html", "page.html", "--force"]) == 0
    assert (folder / "page.html").read_text().startswith("<!doctype html>")


@COMMANDS
@pytest.mark.parametrize(
    ("name", "said"), [("", "empty"), ("-", "names no file"), ("nowhere/x.html", "does not exist")]
)
def test_a_name_that_is_no_file_is_refused(name, said, command, folder, capfd):
    assert main([*words_of(command), "--html", name]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@COMMANDS
def test_page_and_output_are_two_files(command, folder, capfd):
    name = "both.json"
    assert main([*words_of(command), "--html", name, "-o", name]) == 2
    assert "each a file of its own" in capfd.readouterr().err
    assert not (folder / name).exists()


def test_page_and_expectation_are_two_files(folder, capfd):
    assert main([*words_of("predict"), "--html", "x", "--expectation", "x"]) == 2
    assert "--html and --expectation both name x; give each a file of its own" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["compare", "check"])
def test_what_is_read_is_never_replaced(command, folder, capfd):
    before = (folder / "eager.json.gz").read_bytes()
    assert main([*words_of(command), "--html", "eager.json.gz", "--force"]) == 2
    assert "never replaces it" in capfd.readouterr().err
    assert (folder / "eager.json.gz").read_bytes() == before


@pytest.mark.parametrize(("command", "files"), [("compare", 2), ("check", 1)])
def test_every_trace_is_read_once(command, files, folder, monkeypatch):
    read = []
    module = sys.modules["foretrace.trace.load"]  # the package's own ``load`` is the function
    parse = module.parse
    monkeypatch.setattr(module, "parse", lambda *a, **k: read.append(a) or parse(*a, **k))
    assert main([*words_of(command), "--html", "page.html"]) == 0
    assert len(read) == files


def test_a_broken_expectation_is_in_the_page_and_in_the_exit_code(folder):
    assert main(["check", "eager.json.gz", "--expect", "kernels == 4", "--html", "page.html"]) == 1
    assert "1 expectation: 1 broken" in (folder / "page.html").read_text()


def test_a_failed_gate_is_in_the_page_and_in_the_exit_code(folder):
    words = [*words_of("compare"), "--fail-on", "kernels < +0"]
    assert main([*words, "--html", "page.html"]) == 1
    assert "1 of 1 gate failed" in (folder / "page.html").read_text()


def test_a_report_is_checked_and_compared_without_its_trace(folder, capfdbinary):
    assert main(["explain", "eager.json.gz", "--json"]) == 0
    (folder / "report.json").write_bytes(capfdbinary.readouterr().out)
    assert main(["check", "report.json", *EXPECTED, "--html", "check.html"]) == 0
    assert "A report was checked, without its trace" in (folder / "check.html").read_text()
    assert main(["compare", "report.json", "compiled.json.gz", "--html", "compare.html"]) == 0
    assert "is a report without its trace" in (folder / "compare.html").read_text()


@pytest.mark.parametrize("content", [b"", b"no trace", b'{"traceEvents": 7}'], ids=["empty", "text", "number"])
@pytest.mark.parametrize("command", ["compare", "check"])
def test_nothing_is_written_of_a_trace_that_cannot_be_read(command, content, folder, capfd):
    (folder / "eager.json.gz").write_bytes(content)
    assert main([*words_of(command), "--html", "page.html"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert not (folder / "page.html").exists()
