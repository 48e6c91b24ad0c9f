"""Every command that the tutorial shows is run, and prints what the page says (``make golden`` writes it anew)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "tutorial").glob("*.md"))
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def ran(block: str, folder: Path) -> tuple[str, Path]:
    """The block as it should be, and the folder its commands end in."""
    shown = []
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        shown.append(f"$ {command}")
        if command.startswith("cd "):
            folder = ROOT / command.removeprefix("cd ")
            continue
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        shown.append(done.stdout.rstrip("\n"))
    return "\n".join(shown) + "\n", folder


@pytest.mark.parametrize("page", PAGES)
def test_the_outputs_on_the_page_are_what_the_commands_print(page, regolden):
    path, folder = ROOT / page, ROOT
    text = path.read_text()
    for block in _BLOCK.findall(text):
        wanted, folder = ran(block, folder)
        if regolden:
            text = text.replace(f"```console\n{block}```", f"```console\n{wanted}```", 1)
        else:
            assert block == wanted
    path.write_text(text) if regolden else None


def test_the_tutorial_shows_commands():
    assert sum(len(_BLOCK.findall((ROOT / page).read_text())) for page in PAGES) > 10
