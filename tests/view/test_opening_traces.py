"""A trace is looked at cheaply before it is served: whether it is one, and whether the UI can take it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from foretrace.errors import InputError, TraceReadError
from foretrace.view.opening import OpenTrace, refuse_large, text_size

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.0}


def text_of(events: int = 1) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": [EVENT] * events}).encode()


def write(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"hello", "is not JSON"),
        (b'{"a": 1}', "is JSON but no trace"),
        (b"[]", "holds no events"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "file.json is"),
        (gzip.compress(text_of())[:10] + b"\xff" * 40, "damaged gzip"),
        (gzip.compress(gzip.compress(text_of())), "compressed twice"),
        (gzip.compress(b"hello"), "is not JSON"),
        (gzip.compress(b""), "without content"),
    ],
    ids=["empty", "text", "object", "list", "image", "broken gzip", "gzip twice", "gzip of text", "gzip of nothing"],
)
def test_what_is_no_trace_is_said_in_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    with pytest.raises(TraceReadError, match=says):
        OpenTrace(write(tmp_path, content))


def test_a_folder_a_missing_file_and_a_pipe_are_said(tmp_path: Path) -> None:
    write(tmp_path, text_of())
    with pytest.raises(TraceReadError, match=r"is a directory with one trace file.*file\.json"):
        OpenTrace(tmp_path)
    with pytest.raises(TraceReadError, match="no such file"):
        OpenTrace(tmp_path / "missing.json")
    with pytest.raises(TraceReadError, match="no valid file name"):
        OpenTrace("a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TraceReadError, match="no regular file"):
            OpenTrace(tmp_path / "pipe")


@pytest.mark.parametrize(
    "content",
    [
        b"[" + json.dumps(EVENT).encode() + b"]",
        b"\xef\xbb\xbf" + text_of(),
        json.dumps({"note": "x" * 1_100_000, "traceEvents": [EVENT]}).encode(),
        gzip.compress(b"") + gzip.compress(text_of()),
    ],
    ids=["bare list", "byte order mark", "key behind the first megabyte", "second member"],
)
def test_traces_of_other_shapes_are_opened(tmp_path: Path, content: bytes) -> None:
    with OpenTrace(write(tmp_path, content)) as trace:
        assert trace.size == len(content)


def test_the_size_that_counts_is_that_of_the_text(tmp_path: Path) -> None:
    text = text_of(2000)
    with OpenTrace(write(tmp_path, text)) as plain:
        assert text_size(plain) == len(text)
        with pytest.raises(InputError, match=rf"is {len(text) // 1000} kB of text.*foretrace slim .*httpd.*--force"):
            refuse_large(plain, limit=1000)
        refuse_large(plain, limit=len(text))
    with OpenTrace(write(tmp_path, gzip.compress(text))) as packed:
        assert text_size(packed, limit=len(text) - 1) == len(text)
        with pytest.raises(InputError, match="of text, more than the Perfetto UI takes"):
            refuse_large(packed, limit=len(text) - 1)
        refuse_large(packed, limit=len(text))


def test_a_file_that_cannot_be_too_large_is_not_unpacked(tmp_path: Path) -> None:
    with OpenTrace(write(tmp_path, gzip.compress(text_of(2000)))) as packed:
        assert text_size(packed) is None


def test_all_members_of_a_gzip_file_count_and_padding_does_not(tmp_path: Path) -> None:
    text = text_of(2000)
    half = len(text) // 2
    content = gzip.compress(text[:half]) + gzip.compress(text[half:]) + bytes(512)
    with OpenTrace(write(tmp_path, content)) as packed:
        assert text_size(packed, limit=len(text)) == len(text)


def test_counting_a_bomb_ends(tmp_path: Path) -> None:
    bomb = gzip.compress(text_of() + b" " * 2_000_000)
    with OpenTrace(write(tmp_path, bomb)) as packed, pytest.raises(InputError, match=r"is more than .* of text"):
        refuse_large(packed, limit=20_000)
