"""How a script can end, and the exit code the interpreter would give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.capture.child import _exit_code, _NoModuleError, _run
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nopkg", "there is no module nopkg here"),
        ("nopkg.mod", "nothing named nopkg is found"),
        ("json.nothing", "there is no module json.nothing here"),
        ("xml", "xml is a package without a __main__ module"),
        ("train.py", "as in -m train"),
        (".train", "full name"),
        ("", "there is no module"),
    ],
)
def test_a_module_that_is_not_there_is_said_in_a_sentence(name: str, said: str) -> None:
    error, code = _run(["-m", name])
    assert code == 1
    assert isinstance(error, _NoModuleError)
    assert said in str(error)


def test_a_module_that_lacks_one_of_its_own_imports_is_the_program_s_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pkg_a").mkdir()
    (tmp_path / "pkg_a/__init__.py").write_text("import not_installed_x")
    monkeypatch.syspath_prepend(tmp_path)
    error, code = _run(["-m", "pkg_a.mod"])
    assert code == 1
    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "not_installed_x"


def test_names_for_traces(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert check_script([str(tmp_path / "train.py"), "x"]) == "train"
    assert check_script(["-m", "package.module"]) == "module"
    with pytest.raises(InputError, match="is a folder"):
        check_script([str(tmp_path)])
