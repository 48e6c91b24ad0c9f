"""What of a folder is taken, by content, and why the rest is not."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from foretrace.errors import InputError
from foretrace.knowledge.sharing import Kind
from foretrace.view.sharing import Plan, collect, tidy_prefix

TRACE = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}'
TABLE = b"---\n  Name    Self CPU %      Self CPU\n---\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the tutorial's scripts leave it, with what else gathers in a folder."""
    root = tmp_path / "work"
    for name, data in {
        "traces/03_simple_mlp/64_128_768_3072_eager.json": TRACE,
        "traces/03_simple_mlp/64_128_768_3072_eager.txt": TABLE,
        "traces/03_simple_mlp/64_128_768_3072_compile.json.gz": gzip.compress(TRACE),
        "traces/mine.trace.side.json": b'{"schema": "foretrace.side/1"}',
        "report.html": b"<!doctype html><title>foretrace</title>",
        "other.html": b"<!doctype html><title>my page</title>",
        "x.snapshot.pickle": b"\x80\x04\x95}\x8c\x08segments",
        "notes.txt": b"password: 123",
        "config.json": b'{"key": "secret"}',
        "train.py": b"print()",
        "empty.json": b"",
        ".hidden.json": TRACE,
        ".git/config": b"",
        "__pycache__/x.json": TRACE,
        "broken.json.gz": gzip.compress(TRACE * 100)[:-12],
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def paths(plan: Plan) -> list[str]:
    return [item.path for item in plan.items]


def reasons(plan: Plan) -> dict[str, str]:
    return {one.path: one.reason for one in plan.left_out}


def test_the_tutorials_folder_is_taken_as_it_is(folder: Path):
    plan = collect(folder)

    assert {item.path: item.kind for item in plan.items} == {
        "report.html": Kind.REPORT,
        "traces/03_simple_mlp/64_128_768_3072_compile.json.gz": Kind.TRACE,
        "traces/03_simple_mlp/64_128_768_3072_eager.json": Kind.TRACE,
        "traces/03_simple_mlp/64_128_768_3072_eager.txt": Kind.TABLE,
        "traces/mine.trace.side.json": Kind.DOCUMENT,
    }
    assert plan.bytes == sum((folder / path).stat().st_size for path in paths(plan))


def test_everything_else_is_left_out_and_it_is_said_why(folder: Path):
    said = reasons(collect(folder))

    assert said["notes.txt"].startswith("no table of the profiler")
    assert said["config.json"].startswith("neither a trace nor a file of foretrace's")
    assert said["other.html"].startswith("no report of foretrace's")
    assert said["train.py"].startswith("of no kind that is shared by itself")
    assert "--snapshots" in said["x.snapshot.pickle"]
    assert said["empty.json"] == "empty"
    assert said[".hidden.json"] == "hidden"
    assert said["broken.json.gz"] == "damaged (its gzip stream is cut off); --include takes it"
    assert said[".git/"] == said["__pycache__/"] == "a hidden folder or a cache"


def test_snapshots_are_taken_when_asked_for(folder: Path):
    assert "x.snapshot.pickle" in paths(collect(folder, snapshots=True))


def test_include_takes_only_what_it_names_whatever_it_is(folder: Path):
    assert paths(collect(folder, include=["*.py", "notes.txt"])) == ["notes.txt", "train.py"]
    assert paths(collect(folder, include=["traces/03_simple_mlp"], exclude=["*.txt"])) == [
        "traces/03_simple_mlp/64_128_768_3072_compile.json.gz",
        "traces/03_simple_mlp/64_128_768_3072_eager.json",
    ]


def test_exclude_goes_before_all(folder: Path):
    plan = collect(folder, exclude=["traces/*", "broken*"])

    assert paths(plan) == ["report.html"]
    assert reasons(plan)["traces/mine.trace.side.json"] == "excluded"
    assert "traces/mine.trace.side.json" in plan.local  # it is here all the same: never deleted there


def test_links_out_of_the_folder_are_not_followed(folder: Path, tmp_path: Path):
    (tmp_path / "outside.json").write_bytes(TRACE)
    (tmp_path / "out").mkdir()
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    (folder / "inside.json").symlink_to(folder / "traces/03_simple_mlp/64_128_768_3072_eager.json")
    (folder / "folder").symlink_to(tmp_path / "out")
    (folder / "gone.json").symlink_to(folder / "nothing")

    plan = collect(folder)

    assert "inside.json" in paths(plan)
    said = reasons(plan)
    assert said["link.json"] == "a link out of the folder"
    assert said["folder/"] == "a link to a folder"
    assert said["gone.json"] == "no regular file"


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_a_name_that_is_no_text_is_left_out(folder: Path):
    (Path(os.fsdecode(bytes(folder) + b"/\xff.json"))).write_bytes(TRACE)

    assert "its name is not valid UTF-8" in reasons(collect(folder)).values()


def test_a_pipe_is_left_out(folder: Path):
    os.mkfifo(folder / "pipe.json")

    assert reasons(collect(folder))["pipe.json"] == "no regular file"


def test_the_prefix_is_put_before_every_path(folder: Path):
    assert all(path.startswith("runs/today/") for path in paths(collect(folder, prefix="/runs/today/")))


@pytest.mark.parametrize("prefix", ["../x", "a//b", "a/./b", "a\\b", "a\nb"])
def test_a_prefix_that_is_no_folder_is_refused(prefix: str):
    with pytest.raises(InputError, match="is no folder in a bucket"):
        tidy_prefix(prefix)


def test_what_is_no_folder_is_refused(folder: Path):
    with pytest.raises(InputError, match="no such folder"):
        collect(folder / "nothing")
    with pytest.raises(InputError, match="is a file; name the folder"):
        collect(folder / "report.html")
