"""The same snapshot at another pickle protocol."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.errors import InputError, TraceReadError
from foretrace.memory.reading.convert import convert

SAMPLE = SAMPLES / "h200_fragmented.snapshot.pickle.gz"


def protocol_of(stream: bytes) -> int:
    """The highest protocol that an opcode of the stream needs."""
    return max(opcode.proto for opcode, _, _ in pickletools.genops(stream))


@pytest.mark.parametrize("protocol", range(6))
def test_the_data_is_the_same_at_every_protocol(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "out.pickle"
    assert convert(SAMPLE, target, protocol=protocol) == target
    stream = target.read_bytes()
    assert pickle.loads(stream) == pickle.loads(gzip.decompress(SAMPLE.read_bytes()))
    if protocol >= 2:
        assert stream[:2] == bytes([0x80, protocol])
    assert protocol_of(stream) <= protocol


def test_protocol_4_is_what_viewers_read_and_the_default(tmp_path: Path) -> None:
    newest = tmp_path / "in.pickle"
    newest.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}, 5))
    assert convert(newest, tmp_path / "out.pickle").read_bytes()[:2] == b"\x80\x04"


def test_what_was_shared_stays_shared(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 1}]
    source = tmp_path / "in.pickle"
    source.write_bytes(pickle.dumps({"segments": [], "device_traces": [[{"frames": frames}, {"frames": frames}]]}))
    read = pickle.loads(convert(source, tmp_path / "out.pickle").read_bytes())
    first, second = read["device_traces"][0]
    assert first["frames"] is second["frames"]


def test_json_becomes_a_pickle_and_a_packed_name_a_packed_file(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    raw = {"segments": [], "device_traces": [], "allocator_settings": {"max_split_size": -1}}
    source.write_text(json.dumps(raw))
    target = convert(source, tmp_path / "out.pickle.gz", protocol=2)
    assert pickle.loads(gzip.decompress(target.read_bytes())) == raw


def test_a_file_is_never_replaced_without_force(tmp_path: Path) -> None:
    target = tmp_path / "out.pickle"
    target.write_bytes(b"mine")
    with pytest.raises(InputError, match="exists"):
        convert(SAMPLE, target)
    assert target.read_bytes() == b"mine"
    convert(SAMPLE, target, force=True)
    assert len(pickle.loads(target.read_bytes())["segments"]) == 343


@pytest.mark.parametrize("protocol", [-1, 6])
def test_a_protocol_that_is_none(protocol: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"no pickle protocol {protocol}"):
        convert(SAMPLE, tmp_path / "out.pickle", protocol=protocol)
    assert not (tmp_path / "out.pickle").exists()


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (pickle.dumps({"segments": [Attack()]}), r"asks for (posix|nt)\.system"),
        (pickle.dumps({"weights": []}), "has no segments"),
        (b"{}", "has no segments"),
    ],
)
def test_what_is_no_snapshot_is_not_converted(
    content: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "in.pickle"
    source.write_bytes(content)
    with pytest.raises(TraceReadError, match=sentence):
        convert(source, tmp_path / "out.pickle")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.pickle"]
