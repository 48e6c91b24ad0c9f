"""Files about memory told apart by what their data is made of, never by a word that stands in them."""

from __future__ import annotations

import gzip
import json
import pprint
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.errors import InputError, TraceReadError
from foretrace.knowledge.snapshots import MOST_UNPACKED_BYTES
from foretrace.memory.reading import read_any, read_snapshot
from foretrace.memory.reading.files import is_pickle
from foretrace.memory.snapshot import Snapshot
from foretrace.model.memory import Memory

DATA = Path(__file__).parents[2] / "data" / "memory"
STATS = sorted((DATA / "h200").glob("*.memory_stats.json"))
MIB = 1 << 20
BASE = 0x7F00_0000_0000


def snapshot_json(name: str = "step", filename: str = "train.py", **other: Any) -> dict[str, Any]:
    frames = [{"name": name, "filename": filename, "line": 3}]
    block = {"address": BASE, "size": 2 * MIB, "requested_size": 5, "state": "active_allocated", "frames": frames}
    segment = {"device": 0, "address": BASE, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
               "segment_pool_id": [0, 0], "is_expandable": False, "frames": [], "blocks": [block]}  # fmt: skip
    return {"segments": [segment], "device_traces": [[]], **other}


def opened(folder: Path, content: str | bytes) -> Snapshot | Memory:
    path = folder / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_any(str(path))


@pytest.mark.parametrize(
    "word",
    [
        "export_memory_timeline",
        "PyTorch CUDA memory summary, device ID 0",
        "/logs/allocated_bytes/train.py",
        "<html>data:image/png",
        "[[1, 2, 3, 4]]",
        '{"allocated_bytes.all.current": 1}',
    ],
)
def test_a_word_in_a_snapshot_does_not_make_it_another_file(word: str, tmp_path: Path) -> None:
    for raw in (
        snapshot_json(name=word),
        snapshot_json(filename=word),
        snapshot_json(note=word),
        {word: 1, **snapshot_json()},
        snapshot_json(name=word)["segments"],
    ):
        read = opened(tmp_path, json.dumps(raw))
        assert isinstance(read, Snapshot)
        assert len(read.segments) == 1


def test_all_nine_recorded_counters_are_read(tmp_path: Path) -> None:
    assert len(STATS) == 9
    for path in STATS:
        raw = json.loads(path.read_text())
        flat = dict(raw)
        for content in (
            path.read_text(),
            json.dumps([flat, flat]),
            json.dumps({"cuda:0": flat}),
            repr(flat),
            pprint.pformat(flat),
            repr(OrderedDict(flat)),
        ):
            read = opened(tmp_path, content)
            assert isinstance(read, Memory)
            assert read.source.format == "stats"
            assert read.totals.reserved_bytes == raw["reserved_bytes.all.current"]


def test_nested_counters_are_counters(tmp_path: Path) -> None:
    nested = {"allocated_bytes": {"all": {"current": 5, "peak": 7}}}
    for content in (json.dumps(nested), repr(nested)):
        read = opened(tmp_path, content)
        assert isinstance(read, Memory)
        assert read.totals.allocated_bytes == 5


def test_summaries_and_timelines_are_what_they_were() -> None:
    for path in [*(DATA / "h200").glob("*.memory_summary.txt"), SAMPLES / "h200_fragmented.memory_summary.txt"]:
        assert read_any(str(path)).source.format == "summary"  # type: ignore[union-attr]
    for path in DATA.glob("timeline*"):
        assert read_any(str(path)).source.format == "timeline"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[[1, 2, 3, 4], [2, 3", "is no memory timeline .* or cut off"),
        ("<html><img src='data:image/png;base64,AA'/></html>", "as a picture"),
        ("<html>not found</html>", "is a web page"),
        ('{"a": 1}', r"has no segments \(but 'a'\)"),
        ('{"segments": [', "is broken JSON"),
        ('{"a": ' + "9" * 5000 + "}", "no segments|broken JSON"),
        ("plain words about allocated memory", "is neither a pickle nor JSON"),
    ],
)
def test_what_is_none_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        opened(tmp_path, content)
    assert str(refused.value).startswith(str(tmp_path))


ATTACKS = [
    (b'cos\nsystem\n(S"touch hacked"\ntR.', r"asks for os\.system"),
    (b"cposix\nsystem\np0\n(Vtouch hacked\np1\ntp2\nRp3\n.", r"asks for posix\.system"),
    (b"cos\nsystem\nq\x00(U\x05touchtR.", r"asks for os\.system"),
    (b"(S'touch hacked'\nios\nsystem\n.", r"asks for os\.system"),
    (b"(cos\nsystem\nS'touch hacked'\no.", r"asks for os\.system"),
]


@pytest.mark.parametrize(("content", "sentence"), ATTACKS)
def test_old_pickles_that_call_something_are_told_so(content: bytes, sentence: str, tmp_path: Path) -> None:
    for data in (content, gzip.compress(content)):
        with pytest.raises(TraceReadError, match=sentence):
            opened(tmp_path, data)


@pytest.mark.parametrize(
    "text",
    [
        b"cat\ndog\n(see below).",
        b"config\nname\n.gitignore",
        b"cos\nsystem\n",
        b"(deleted) what was here.",
        b"(list of things)",
        b"(lp is a record. R.",
        b"(in the beginning\nthere was\n.",
        b"code review\nNo.\n",
        b"",
        b"N.B. this",
    ],
)
def test_a_text_is_no_pickle(text: bytes) -> None:
    assert not is_pickle(text)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(16 * MIB)
    bomb = packer.compress(b"\x80\x04]")
    for _ in range(MOST_UNPACKED_BYTES // len(zeros) + 1):
        bomb += packer.compress(zeros)
    bomb += packer.flush()
    with pytest.raises(TraceReadError, match=r"unpacks to more than 200 times its size.*gzip -dk"):
        opened(tmp_path, bomb)


@pytest.mark.parametrize("name", ["i", "is a", "h", "holds"])
def test_an_error_names_the_file_whatever_it_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text('{"segments": [5]}')
    with pytest.raises(TraceReadError, match=rf"^{name} is a broken snapshot: segment 0"):
        read_snapshot(name)
