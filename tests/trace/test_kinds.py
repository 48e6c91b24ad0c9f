"""What a file is, told by its name and its first bytes alike for all who ask."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from foretrace.knowledge.formats import FileKind
from foretrace.trace.inflate import CUT_OFF
from foretrace.trace.kinds import Looked, look, plain_ending

TRACE = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}'


def packed(data: bytes) -> bytes:
    """The same bytes on every run: they name the test."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.json", TRACE, FileKind.TRACE),
        ("a.json.gz", packed(TRACE), FileKind.TRACE),
        ("a.json", packed(packed(TRACE)), FileKind.TRACE),
        ("A.TRACE", b'[{"ph":"X"}', FileKind.TRACE),
        ("a.json", TRACE.decode().encode("utf-16"), FileKind.TRACE),
        ("a.json", b'{"deviceProperties": [' + b" " * 300_000, FileKind.TRACE),
        ("worker.gz", packed(b"") + packed(TRACE), FileKind.TRACE),
        ("a.json", b'{"schema":"foretrace.report/1","trace":{}}', FileKind.REPORT),
        ("a.side.json", b'{\n  "schema": "foretrace.side/1"}', FileKind.SIDE_FILE),
        ("a.side.json", b'{"options": {"record_shapes": true}, "schema": "foretrace.side/1"}', FileKind.SIDE_FILE),
        ("a.json", b'{"schema":"foretrace.memory/1","segments":1,"total_size":1}', FileKind.DOCUMENT),
        ("plan.json", b'{"foretrace": {"schema": "foretrace.predict/1"}, "traceEvents": []}', FileKind.TRACE),
        ("a.json", b'{"a": 1}', None),
        ("a.json", b"[[1, 2], [3]]", FileKind.MEMORY_TIMELINE),
        ("a.json", b'{"allocated_bytes.all.current": 3}', FileKind.MEMORY_COUNTERS),
        ("a.json", b'{"segments": [{"total_size": 3}]}', FileKind.SNAPSHOT),
        ("a.pickle", b"\x80\x04\x95}\x8c\x08segments", FileKind.SNAPSHOT),
        ("a.pkl.gz", packed(b"\x80\x04\x95}\x8c\x08segments"), FileKind.SNAPSHOT),
        ("weights.pickle", b"\x80\x04\x95}\x8c\x08weights", None),
        ("a.txt", b"Name  Self CPU %  # of Calls", FileKind.TABLE),
        ("a.log", b"Name  Self CPU %  # of Calls", None),
        ("a.html", b"<html>foretrace", FileKind.PAGE),
        ("a.html", b"<html>", None),
        ("foretrace.toml", b"kernels = 3", FileKind.EXPECTATIONS),
        ("pyproject.toml", b"a = 3", None),
        ("train.py", TRACE, None),
        ("json", TRACE, None),
    ],
)  # fmt: skip
def test_a_file_is_what_it_holds(tmp_path: Path, name: str, content: bytes, kind: FileKind | None):
    path = tmp_path / name
    path.write_bytes(content)
    assert look(path) == Looked(kind)


def test_what_is_damaged_is_told_by_what_is_left_of_it(tmp_path: Path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(TRACE)[:-12])
    assert look(path) == Looked(FileKind.TRACE, CUT_OFF)
    assert look(tmp_path / "missing.json") == Looked(None, "No such file or directory")


@pytest.mark.parametrize(
    ("name", "ending"),
    [("x.json", "json"), ("x.JSON.GZ", "json"), ("x.pt.trace.json.gz", "json"), ("x", ""), ("x.gz", "")],
)
def test_the_ending_is_that_without_gz(name: str, ending: str):
    assert plain_ending(name) == ending
