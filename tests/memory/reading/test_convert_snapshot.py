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


@pytest.mark.parametrize(
    ("value", "protocol", "sentence"),
    [
        (b"x", 2, "holds a bytes, which protocol 2 cannot say as data; choose protocol 3 or above"),
        (b"", 0, "choose protocol 3"),
        ({1}, 3, "holds a set, which protocol 3 cannot say as data; choose protocol 4 or above"),
        (frozenset({1}), 3, "holds a frozenset"),
        (bytearray(b"x"), 4, "holds a bytearray, which protocol 4 cannot say as data; choose protocol 5"),
        pytest.param(
            10**5000, 0, "holds an int of more than .* protocol 0 cannot say; choose protocol 2", id="int at 0"
        ),
        pytest.param(-(10**5000), 1, "protocol 1 cannot say", id="int at 1"),
    ],
)
def test_what_a_protocol_cannot_say_is_refused_before_anything_is_written(
    value: Any, protocol: int, sentence: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.pickle", tmp_path / "out.pickle"
    source.write_bytes(pickle.dumps({"segments": [], "more": [1, {"here": value}]}, 5))
    with pytest.raises(InputError, match=sentence) as refused:
        convert(source, target, protocol=protocol)
    assert str(refused.value).startswith(str(source))
    assert [path.name for path in tmp_path.iterdir()] == ["in.pickle"]
    assert pickle.loads(convert(source, target, protocol=5).read_bytes())["more"][1]["here"] == value


def test_data_nested_without_end_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.pickle"
    source.write_bytes(
        b"\x80\x04}(X\x08\x00\x00\x00segments]X\x04\x00\x00\x00more" + b"]" * 90_000 + b"a" * 89_999 + b"u."
    )
    with pytest.raises(InputError, match="nests its data deeper"):
        convert(source, tmp_path / "out.pickle")
    assert [path.name for path in tmp_path.iterdir()] == ["in.pickle"]
