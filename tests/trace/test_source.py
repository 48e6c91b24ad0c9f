"""Getting at the bytes: gzip by content, standard input, and files that are no text."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import sqlite3
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import load
from foretrace.errors import TraceReadError
from foretrace.trace import source

TRACES = Path(__file__).parents[1] / "data" / "traces"
PLAIN = gzip.decompress((TRACES / "mlp_eager.json.gz").read_bytes())


def refusal(path) -> str:
    with pytest.raises(TraceReadError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_gzip_is_told_by_content_not_by_name(tmp_path):
    compressed = load(written(tmp_path, "compressed.json", gzip.compress(PLAIN)))
    plain = load(written(tmp_path, "plain.json.gz", PLAIN))
    assert len(compressed) == len(plain) == 140
    assert compressed.format == "kineto, gzip"
    assert plain.format == "kineto"
    assert compressed.repairs == plain.repairs == []


def test_members_and_layers_of_gzip(tmp_path):
    members = gzip.compress(PLAIN[:5000]) + gzip.compress(PLAIN[5000:])
    assert load(written(tmp_path, "members.gz", members)).repairs == []
    twice = load(written(tmp_path, "twice.gz", gzip.compress(gzip.compress(PLAIN))))
    assert len(twice) == 140
    assert twice.repairs == ["the file was compressed 2 times over"]


def test_cut_gzip_keeps_what_came_before(tmp_path):
    data = gzip.compress(PLAIN)
    trace = load(written(tmp_path, "cut.json.gz", data[: len(data) * 3 // 4]))
    assert 0 < len(trace) < 140
    assert any("gzip stream is cut off" in r for r in trace.repairs)
    assert any("whole events before the cut" in r for r in trace.repairs)


def test_damaged_gzip_keeps_what_came_before(tmp_path):
    data = bytearray(gzip.compress(PLAIN))
    data[len(data) // 2] ^= 0xFF
    trace = load(written(tmp_path, "bad.json.gz", bytes(data)))
    assert len(trace) > 0
    assert any("gzip stream" in r for r in trace.repairs)


def test_wrong_checksum_loses_nothing(tmp_path):
    data = bytearray(gzip.compress(PLAIN))
    data[-6] ^= 0xFF
    trace = load(written(tmp_path, "crc.json.gz", bytes(data)))
    assert len(trace) == 140
    assert any("gzip stream is damaged" in r for r in trace.repairs)


def test_bytes_behind_the_gzip_stream_are_named(tmp_path):
    trace = load(written(tmp_path, "tail.json.gz", gzip.compress(PLAIN) + b"\0\0tail"))
    assert len(trace) == 140
    assert trace.repairs == ["4 bytes after the end of the gzip stream were ignored"]


@pytest.mark.parametrize("data", [PLAIN, gzip.compress(PLAIN)], ids=["plain", "gzip"])
def test_standard_input(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    trace = load("-")
    assert len(trace) == 140
    assert trace.path == "-"


def test_without_isal_the_standard_library_inflates(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "isal", None)
    trace = load(written(tmp_path, "x.json.gz", gzip.compress(PLAIN)))
    assert len(trace) == 140
    assert trace.repairs == []


def test_missing_empty_and_unreadable(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.json")
    assert "is empty" in refusal(written(tmp_path, "empty.json", b""))
    assert "without content" in refusal(written(tmp_path, "empty.json.gz", gzip.compress(b"")))
    assert "white space" in refusal(written(tmp_path, "blank.json", b" \n\n"))
    assert "zero bytes" in refusal(written(tmp_path, "zeros.json", b"\0" * 4096))
    assert "no valid file name" in refusal("a\0b")


def test_permission_is_named(monkeypatch, tmp_path):
    path = written(tmp_path, "x.json", PLAIN)

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert "permissions" in refusal(path)


def test_a_directory_says_what_it_holds(tmp_path):
    assert "holds no trace file" in refusal(tmp_path)
    written(tmp_path, "b.json.gz", b"x")
    written(tmp_path, "a.json", b"x")
    message = refusal(tmp_path)
    assert "2 trace files" in message
    assert "a.json" in message


def test_other_tools_files_are_named(tmp_path):
    archive = tmp_path / "trace.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("trace.json", PLAIN)
    assert "ZIP archive; unpack it" in refusal(archive)

    database = tmp_path / "report.sqlite"
    connection = sqlite3.connect(database)
    connection.execute("create table t (x)")
    connection.commit()
    connection.close()
    assert "SQLite" in refusal(database)

    snapshot = {"segments": [{"device": 0}], "device_traces": []}
    for content in (pickle.dumps(snapshot), gzip.compress(pickle.dumps(snapshot)), pickle.dumps(snapshot, 0)):
        said = refusal(written(tmp_path, "s.pickle", content))
        assert "memory snapshot" in said
        assert said.endswith("read it with `foretrace memory FILE`")
    assert "pickle" in refusal(written(tmp_path, "o.pickle", pickle.dumps([1])))


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("x.zst", b"\x28\xb5\x2f\xfd" + bytes(range(256)), "Zstandard"),
        ("x.xz", b"\xfd7zXZ\x00" + bytes(range(256)), "xz"),
        ("x.bz2", b"BZh91AY&SY" + bytes(range(256)), "bzip2"),
        ("x.ncu-rep", b"NVR\x00" + bytes(range(256)), "Nsight Compute"),
        ("x.nsys-rep", bytes(range(256)), "Nsight Systems"),
        ("x.pftrace", b"\x0a\x80\x01" + bytes(range(256)), "Perfetto"),
        ("events.out.tfevents.1", b"\x18" + b"\0" * 20 + b"\x1a\x0dbrain.Event:2", "TensorBoard"),
        ("x.png", b"\x89PNG\r\n\x1a\n", "PNG"),
        ("x.bin", bytes(range(256)) * 8, "binary"),
    ],
)
def test_binaries_are_told_apart(tmp_path, name, data, word):
    assert word in refusal(written(tmp_path, name, data))


def test_an_empty_recording_of_the_profiler_is_no_error(tmp_path):
    build = TraceBuilder()
    trace = load(build.write(tmp_path / "empty.json.gz"))
    assert len(trace) == 0
    assert len(trace.steps) == 1
    assert len(trace.links.launch) == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are made by POSIX systems only")
@pytest.mark.parametrize("data", [PLAIN, gzip.compress(PLAIN)], ids=["plain", "gzip"])
def test_a_pipe_is_read_from_its_first_byte(tmp_path, data):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,), daemon=True)
    writer.start()
    trace = load(path)
    writer.join()
    assert len(trace) == 140
    assert trace.repairs == []


@pytest.mark.parametrize(
    ("content", "word"), [(b"\0", "zero bytes"), (b" ", "white space"), (b"a", "not JSON")], ids=["NUL", "blank", "a"]
)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_bomb_is_not_inflated(monkeypatch, tmp_path, content, word, layers):
    data = content * (4 << 20)
    for _ in range(layers):
        data = gzip.compress(data, mtime=0)
    path = written(tmp_path, "bomb.json.gz", data)
    inflated = []
    gunzip = source._gunzip
    monkeypatch.setattr(source, "_gunzip", lambda *a: inflated.append(len(text := gunzip(*a))) or text)
    assert word in refusal(path)
    assert sum(inflated) < 1 << 20


def test_a_head_in_many_members_is_looked_at_too(tmp_path):
    members = gzip.compress(b" \n") * 3 + gzip.compress(b"a" * (2 << 20))
    assert "not JSON" in refusal(written(tmp_path, "members.gz", members))
    assert len(load(written(tmp_path, "late.gz", gzip.compress(b" " * (1 << 19)) + gzip.compress(PLAIN)))) == 140


def test_a_device_is_refused_since_it_may_never_end():
    with pytest.raises(TraceReadError, match="is a device"):
        load("/dev/zero")
