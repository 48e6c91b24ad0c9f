"""The rooms and who may know whom."""

import re
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "foretrace"


def test_the_import_rules_hold():
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml")) == 0


def test_the_architecture_page_names_every_room_and_no_other():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"^\| `(\w+)/?` \|", page, re.MULTILINE))
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert named == rooms


def test_files_stay_short_enough_to_read_in_one_sitting():
    long = {
        str(path.relative_to(PACKAGE)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 450
    }
    assert not long
