"""``%%foretrace`` in a real IPython shell, in a process of its own: a process has one profiler."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("IPython")
pytest.importorskip("torch")

_BEGIN = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
shell.run_cell("%load_ext foretrace")
shell.run_cell("import torch; a = torch.randn(16, 16)")
"""


def in_a_notebook(code: str, folder) -> list[str]:
    """Run code that talks to ``shell``; returns what it prints."""
    return run(code, folder).stdout.splitlines()


def run(code: str, folder) -> subprocess.CompletedProcess[str]:
    environment = {"IPYTHONDIR": str(folder), "PATH": "", "HOME": str(folder)}
    script = _BEGIN + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )


def test_a_cell_is_recorded_once_and_its_names_stay(tmp_path):
    said = in_a_notebook(
        """
        report = shell.run_cell_magic("foretrace", "", "b = a @ a\\nb.sum()\\n")
        print(type(report).__name__, len(report.steps), shell.user_ns["b"].shape[0])
        print([row.calls for row in report.operators if row.name == "aten::mm"])
        """,
        tmp_path,
    )
    # The value of the last line is not shown: showing it would be recorded.
    assert said == ["Report 1 16", "[1]"]
    assert (tmp_path / "traces" / "cell.trace.json.gz").is_file()


def test_steps_repeat_the_cell_after_one_that_warms_up(tmp_path):
    said = in_a_notebook(
        """
        shell.run_cell("runs = 0")
        report = shell.run_cell_magic("foretrace", "--steps 2 -o here", "runs += 1\\na @ a\\n")
        print(len(report.steps), shell.user_ns["runs"])
        """,
        tmp_path,
    )
    assert said == ["2 3"]
    assert (tmp_path / "here.trace.json.gz").is_file()


def test_expectations_make_the_value_a_check(tmp_path):
    said = in_a_notebook(
        """
        checked = shell.run_cell_magic("foretrace", "--expect 'op aten::mm: calls == 2'", "a @ a")
        print(checked.state, checked.outcomes[0].observed)
        """,
        tmp_path,
    )
    assert said == ["broken 1"]


def test_an_error_of_the_cell_is_shown_once_and_nothing_else(tmp_path):
    said = in_a_notebook('shell.run_cell("%%foretrace\\n1 / 0\\n")', tmp_path)
    assert sum("ZeroDivisionError" in words for words in said) == 2  # the heading of the traceback, and its last line
    assert not any("CellFailedError" in words for words in said)


def test_a_wrong_flag_is_one_sentence(tmp_path):
    done = run('shell.run_cell("%%foretrace --steps 0\\n1\\n")', tmp_path)
    assert done.stderr == "UsageError: --steps 0 records nothing; give 1 or more\n"
    assert done.stdout == ""
