"""How a script can end, and the exit code the interpreter would give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.capture.child import _exit_code, _run
from foretrace.capture.script import check_script
from foretrace.errors import InputError


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (7, 7), (256 + 3, 3), (True, 1)])
def test_exit_codes_are_the_interpreter_s(code: int | None, expected: int) -> None:
    assert _exit_code(SystemExit(code)) == expected


def test_a_message_is_printed_and_exit_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code(SystemExit("no data")) == 1
    assert capsys.readouterr().err == "no data\n"


@pytest.mark.parametrize(
    ("code", "failure", "exit_code"),
    [
        ("x = 1", None, 0),
        ("raise SystemExit", SystemExit, 0),
        ("import sys; sys.exit(4)", SystemExit, 4),
        ("1 / 0", ZeroDivisionError, 1),
        ("raise KeyboardInterrupt", KeyboardInterrupt, 130),
        ("def", SyntaxError, 1),
    ],
)
def test_every_end_is_caught(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    failure: type[BaseException] | None,
    exit_code: int,
) -> None:
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "s.py").write_text(code)
    error, got = _run([str(tmp_path / "s.py"), "--flag"])
    assert got == exit_code
    assert error is None if failure is None else isinstance(error, failure)


def test_names_for_traces(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert check_script([str(tmp_path / "train.py"), "x"]) == "train"
    assert check_script(["-m", "package.module"]) == "module"
    with pytest.raises(InputError, match="is a folder"):
        check_script([str(tmp_path)])
