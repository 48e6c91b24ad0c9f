"""The public names, and what importing them may cost."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import foretrace


def test_every_public_name_exists():
    for name in foretrace.__all__:
        if name != "profile":
            assert getattr(foretrace, name) is not None


def test_dir_lists_the_public_names_and_nothing_else():
    assert dir(foretrace) == sorted(foretrace.__all__)


def test_every_public_name_stands_in_the_reference():
    page = (Path(__file__).parents[1] / "docs/reference/python.md").read_text()
    told = [line.removeprefix("::: ") for line in page.splitlines() if line.startswith("::: ")]
    names = {one.rpartition(".")[2] for one in told}
    names |= set(import_module("foretrace.errors").__all__)  # told as a whole: ::: foretrace.errors
    assert "foretrace.errors" in told
    assert set(foretrace.__all__) - names == {"__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        _ = foretrace.frobnicate


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import foretrace", ["torch", "polars", "numpy", "msgspec"]),
        ("import foretrace; foretrace.load; foretrace.explain", ["torch", "polars", "triton"]),
        ("from foretrace.cli import main; main([])", ["torch", "polars", "numpy", "msgspec"]),
    ],
)
def test_imports_stay_light(statement: str, absent: list[str]):
    check = f"{statement}; import sys; found = [m for m in {absent} if m in sys.modules]; "
    check += "sys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
