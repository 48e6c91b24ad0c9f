"""Every command that a page shows in a ``console`` block is run from the checkout's root and prints what stands there.

``make golden`` writes the outputs anew. A line ``…`` in a block stands for lines that the page leaves out, and a
command ``NAME=value`` holds for the rest of the page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUT = "…"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if _BLOCK.search(path.read_text())
)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a block with the lines that are shown below it."""
    assert block.startswith("$ ")
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [(command, shown) for command, *shown in (part.rstrip("\n").split("\n") for part in parts)]


def printed(command: str, settings: list[str]) -> list[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", "\n".join([*settings, command])],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.rstrip("\n").split("\n") if done.stdout else []


def pieces(shown: list[str]) -> list[list[str]]:
    """The lines between the cuts; an empty piece stands before a cut that begins the block or ends it."""
    found: list[list[str]] = [[]]
    for line in shown:
        if line == CUT:
            found.append([])
        else:
            found[-1].append(line)
    return found


def cut(shown: list[str], whole: list[str], *, same: bool) -> list[str]:
    """The whole output, cut where ``shown`` is cut.

    With ``same`` a piece must be found line by line; else its first and its last line are looked for, numbers aside.
    """

    def key(line: str) -> str:
        return line if same else re.sub(r"[\d.,]+|\s+", " ", line)

    first, *others = pieces(shown)
    if not others:
        return whole
    keys, result, at = [key(line) for line in whole], [], 0
    for number, piece in enumerate([first, *others]):
        if number:
            result.append(CUT)
        if not piece:
            continue
        # The first piece begins the output; a cut leaves out a line or more.
        start = keys.index(key(piece[0]), at + bool(number)) if number else 0
        length = len(piece) if same else 1 + keys[start:].index(key(piece[-1]))
        if number == len(others):  # the last piece ends it
            start, length = (len(whole) - len(piece), len(piece)) if same else (start, len(whole) - start)
        result += whole[start : start + length]
        at = start + length
    return result


@pytest.mark.parametrize("page", PAGES)
def test_the_outputs_on_the_page_are_what_the_commands_print(page, regolden):
    path, settings = ROOT / page, []
    text = path.read_text()
    for block in _BLOCK.findall(text):
        wanted = []
        for command, shown in commands(block):
            wanted.append(f"$ {command}")
            if re.fullmatch(r"[A-Z]+=\S+", command):
                settings.append(command)
                continue
            wanted += cut(shown, printed(command, settings), same=not regolden)
        wanted_block = "".join(f"{line}\n" for line in wanted)
        if regolden:
            text = text.replace(f"```console\n{block}```", f"```console\n{wanted_block}```", 1)
        else:
            assert block == wanted_block
    path.write_text(text) if regolden else None


def test_the_tutorial_shows_commands():
    shown = [block for page in PAGES if "/tutorial/" in page for block in _BLOCK.findall((ROOT / page).read_text())]
    assert len(shown) > 10
    assert not [block for block in shown if "$ cd " in block]  # a reader copies them from where the checkout is


WHOLE = ["head", "a 1", "b 2", "c 3", "tail"]


@pytest.mark.parametrize(
    "shown",
    [WHOLE, ["head", CUT, "tail"], [CUT, "b 2", CUT], ["head", "a 1", CUT], [CUT, "c 3", "tail"]],
    ids=["all", "ends", "middle", "begin", "end"],
)
def test_a_cut_block_is_found_in_the_output(shown):
    assert cut(shown, WHOLE, same=True) == shown
    assert cut(shown, WHOLE, same=False) == shown


@pytest.mark.parametrize(
    "shown",
    [["head", CUT, "c 3"], ["a 1", CUT], [CUT, "a 9", CUT], [CUT, "a 1", "c 3", CUT]],
    ids=["end_missing", "begin_missing", "another_number", "gap"],
)
def test_a_cut_block_that_is_not_in_the_output_is_told(shown):
    try:
        found = cut(shown, WHOLE, same=True)
    except ValueError:
        return
    assert found != shown


def test_a_cut_block_is_written_anew_with_the_numbers_of_the_output():
    assert cut([CUT, "a 7", "b 7", CUT], WHOLE, same=False) == [CUT, "a 1", "b 2", CUT]
