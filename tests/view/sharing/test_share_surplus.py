"""What may be deleted from a bucket: never what could be the folder's own."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foretrace.knowledge.sharing import Category
from foretrace.view.sharing import Plan, collect, redacted, surplus

TRACE = '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}'


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TRACE)


def spared(plan: Plan, *remote: str) -> int:
    """How many of the remote files are spared; none of them may be deleted."""
    found = surplus(plan, remote)
    assert found.paths == []
    return found.spared.total()


@pytest.mark.parametrize("place", ["linked", "venv", ".h"])
@pytest.mark.parametrize("prefix", ["", "run-7"])
def test_what_is_below_a_folder_that_was_not_looked_into_stays(place: str, prefix: str, tmp_path: Path):
    folder = tmp_path / "traces"
    put(folder / "a.json")
    if place == "linked":
        put(tmp_path / "elsewhere" / "t.json.gz")
        (folder / place).symlink_to(tmp_path / "elsewhere")
    else:
        put(folder / place / "t.json.gz")
    before = f"{prefix}/" if prefix else ""

    found = surplus(
        collect(folder, prefix=prefix),
        [f"{before}{place}/t.json.gz", f"{before}{place}/deep/u.json", f"{before}{place}2/v.json"],
    )

    assert found.paths == [f"{before}{place}2/v.json"]
    (reason,) = found.spared
    assert found.spared[reason] == 2
    assert "below a folder that was not looked into" in reason


def test_what_is_below_a_folder_that_may_not_be_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put(tmp_path / "shut" / "t.json")
    put(tmp_path / "open" / "t.json")
    real = os.scandir

    def scandir(place: Any) -> Any:
        if str(place).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(place))
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    plan = collect(tmp_path)

    found = surplus(plan, ["shut/t.json", "shut/deep/u.json", "open/t.json", "open/u.json"])
    assert found.paths == ["open/u.json"]
    assert dict(found.spared) == {
        "they are below a folder that was not looked into (it cannot be read: Permission denied)": 2
    }


def test_a_folder_that_cannot_be_read_at_all_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def scandir(place: Any) -> Iterator[Any]:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(os, "scandir", scandir)

    assert spared(collect(tmp_path, prefix="p"), "p/a.json", "p/b/c.json") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="names of other systems are always text")
def test_a_name_that_is_no_text_may_be_any_that_is_like_it(tmp_path: Path):
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.json")))
    put(Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9sum\xe9/t.json")))
    plan = collect(tmp_path)

    found = surplus(plan, ["café.json", "caf\ufffd.json", "résumé/t.json", "cake.json", "résumé/u.json"])
    assert found.paths == ["cake.json", "résumé/u.json"]
    assert found.spared.total() == 3


@pytest.mark.parametrize("kind", ["dangling", "circle", "pipe"])
def test_what_may_have_been_a_folder_keeps_what_is_below_it(kind: str, tmp_path: Path):
    if kind == "pipe":
        os.mkfifo(tmp_path / "x")
    else:
        (tmp_path / "x").symlink_to(tmp_path / ("gone" if kind == "dangling" else "x"))

    assert spared(collect(tmp_path), "x/t.json") == 1


def test_a_circle_of_links_is_left_out(tmp_path: Path):
    put(tmp_path / "t.json")
    (tmp_path / "a.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    (tmp_path / "self").symlink_to(tmp_path)

    plan = collect(tmp_path)

    assert [item.path for item in plan.items] == ["t.json"]
    assert {one.path: one.reason for one in plan.left_out} == {
        "a.json": "a link that leads in a circle",
        "b.json": "a link that leads in a circle",
        "self/": "a link to a folder",
    }


def test_the_same_name_written_otherwise_is_the_same(tmp_path: Path):
    put(tmp_path / unicodedata.normalize("NFD", "né.json"))

    found = surplus(collect(tmp_path, exclude=["*"]), [unicodedata.normalize("NFC", "né.json"), "ne.json"])

    assert (found.paths, found.spared.total()) == (["ne.json"], 0)


def test_what_redaction_renamed_is_known_again(tmp_path: Path):
    traces, copies = tmp_path / "traces", tmp_path / "copies"
    copies.mkdir()
    for name in ("a.json", "of-grace.json", "venv/t.json"):
        put(traces / name)
    (traces / "a.json").write_text(json.dumps({"traceName": "/home/grace/x", **json.loads(TRACE)}))
    plan = collect(traces, prefix="grace-runs", exclude=["of-*"])

    made = redacted(plan, [Category.USERS], copies, names=((), ())).plan

    assert [item.path for item in made.items] == ["grace-runs/a.json"]  # the prefix was typed, and is looked for there
    left = ("grace-runs/of-user.json", "grace-runs/venv/user.json", "grace-runs/user-2.json")
    found = surplus(made, [*left, "grace-runs/b.json"])
    assert found.paths == ["grace-runs/b.json"]
    assert found.spared.total() == 2  # of-user.json is the file that is left out
