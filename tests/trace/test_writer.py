"""Writing a trace: what was written reads back as it was, whole or not at all, and nothing is replaced unasked."""

import gzip
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.errors import InputError
from foretrace.trace import load
from foretrace.trace.writer import encode_trace, write_bytes, write_trace


@pytest.fixture
def build() -> TraceBuilder:
    built = TraceBuilder()
    built.step(1, 0, 100)
    built.op("aten::mm", 10, 30, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
    built.kernel("sgemm", 50, 12.345, launch=built.launch(20))
    return built


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "deeper/folder/t.json.gz"])
def test_what_is_written_reads_back_as_it_was(tmp_path, build, name):
    path = write_trace(tmp_path / name, build.events, build.meta)
    data = path.read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    assert json.loads(text) == build.dict()
    assert load(path).repairs == []


def test_events_may_be_the_bytes_they_were_read_from(build):
    raw = [msgspec.Raw(json.dumps(event).encode()) for event in build.events]
    assert json.loads(encode_trace(raw, build.meta)) == build.dict()


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.none(), max_size=3), max_size=30),
    st.dictionaries(st.text(max_size=5).filter(lambda key: key != "traceEvents"), st.text()),
)
def test_any_events_and_any_metadata_survive(events, meta):
    assert json.loads(encode_trace(events, meta)) == {**meta, "traceEvents": events}


def test_more_events_than_are_put_into_words_at_a_time():
    events = [{"ph": "X", "ts": at} for at in range(4096 * 2 + 1)]
    assert json.loads(encode_trace(iter(events), {}))["traceEvents"] == events


def test_the_same_content_gives_the_same_bytes(tmp_path, build):
    one, two = (write_trace(tmp_path / name, build.events, build.meta) for name in ("one.json.gz", "two.json.gz"))
    assert one.read_bytes() == two.read_bytes()


def test_a_file_that_exists_is_replaced_only_when_asked(tmp_path, build):
    path = tmp_path / "t.json"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists; choose another name"):
        write_trace(path, build.events, build.meta)
    assert path.read_text() == "mine"
    write_trace(path, build.events, build.meta, force=True)
    assert json.loads(path.read_text()) == build.dict()


def test_a_file_that_appears_while_writing_is_not_replaced_either(tmp_path):
    path = tmp_path / "t.json"

    def pieces():
        yield b"{}"
        path.write_text("mine")

    with pytest.raises(InputError, match="exists"):
        write_bytes(path, pieces())
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("mine")

    def pieces():
        yield b"{"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_bytes(path, pieces(), force=True)
    assert path.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_and_a_place_that_cannot_be_made_are_one_sentence(tmp_path, build):
    with pytest.raises(InputError, match="is a folder"):
        write_trace(tmp_path, build.events, build.meta)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(tmp_path / "file" / "t.json", build.events, build.meta)


def test_the_events_are_given_apart_from_the_metadata():
    with pytest.raises(ValueError, match="given apart"):
        encode_trace([], {"traceEvents": []})
