"""Standard streams that are closed or full, and errors nobody expected: one sentence, exit code 2."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace.cli import doctor, explain, main

FULL = Path("/dev/full")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    build = TraceBuilder()
    build.op("aten::mm", 10, 30)
    build.kernel("sgemm_128x64_nn", 50, 120, launch=build.launch(20))
    return build.write(tmp_path / "one.json.gz")


def shell(words: str, *, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``foretrace WORDS`` in a shell, which can close a stream before it starts."""
    return subprocess.run(
        ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m foretrace {words}"],
        env={**os.environ, **(environ or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("foretrace: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("command", ["explain {}", "explain --json {}", "explain-kernel k", "explain-kernel --json k"])
def test_a_closed_standard_output(trace: Path, command: str) -> None:
    assert "standard output is closed" in one_sentence(shell(command.format(trace) + " >&-"))


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["explain {}", "explain --json {}", "explain-kernel k", "explain-kernel --json k"])
def test_a_full_disk_behind_standard_output(trace: Path, command: str) -> None:
    said = one_sentence(shell(command.format(trace) + f" >{FULL}"))
    assert said == "foretrace: standard output cannot be written: No space left on device\n"


def test_a_closed_standard_output_is_no_matter_where_nothing_is_printed(trace: Path, tmp_path: Path) -> None:
    assert shell(f"explain {trace} -o {tmp_path}/report.txt >&-").returncode == 0
    assert (tmp_path / "report.txt").read_text().startswith("foretrace  one.json.gz")


@pytest.mark.parametrize("command", ["explain -", "explain-kernel -"])
def test_a_closed_standard_input(command: str) -> None:
    assert "standard input is closed" in one_sentence(shell(command + " <&-"))


def test_no_name_and_a_closed_standard_input() -> None:
    assert "No kernel name was given" in one_sentence(shell("explain-kernel <&-"))


def test_with_standard_error_closed_nothing_of_it_lands_among_the_results() -> None:
    done = shell("explain absent.json 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_goes_away_is_no_error(trace: Path) -> None:
    done = shell(f"explain --all {trace} | head -n 1")
    assert done.stdout == "foretrace  one.json.gz\n"
    assert done.stderr == ""


def test_doctor_with_a_closed_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [doctor.Check("torch", "ok", "2.13.0")])
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["doctor"]) == 2
    assert "standard output is closed" in capsys.readouterr().err


def test_an_encoding_without_the_character_shows_a_question_mark_and_json_is_utf_8() -> None:
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = shell("explain-kernel m\u00f6p", environ=plain)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "m?p")
    assert '"name":"m\u00f6p"' in shell("explain-kernel --json m\u00f6p", environ=plain).stdout


# ---- what nobody expected ----


def fail(_: object) -> int:
    raise TypeError("unsupported operand\n\x1b[2J and more")


def test_a_defect_is_one_sentence_that_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "run", fail)
    assert main(["explain", "x"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "foretrace: this is a defect of foretrace: TypeError: unsupported operand \\x1b[2J and more; "
        "run again with --debug for the traceback and report it\n"
    )


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "run", fail)
    with pytest.raises(TypeError, match="unsupported operand"):
        main(["explain", "x", "--debug"])


def test_an_error_of_the_system_names_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> int:
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr(explain, "run", refuse)
    assert main(["explain", "x"]) == 2
    assert capsys.readouterr().err == "foretrace: /some/file: Permission denied\n"
