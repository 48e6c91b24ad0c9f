"""Trace files: named without collisions, written whole, counted without decoding."""

from __future__ import annotations

import errno
import gzip
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.capture import files
from foretrace.capture.files import Rows, count_rows, free_name, target, write_trace
from foretrace.errors import CaptureError, InputError
from foretrace.knowledge.kineto import RowKind, row_kind
from foretrace.model.sidefile import side_path

TRACES = Path(__file__).parents[1] / "data" / "traces"


def always(_: Rows) -> bool:
    return True


def never(_: Rows) -> bool:
    return False


# ---- names ----


def test_a_name_without_ending_gets_one_and_its_folder_is_made(tmp_path: Path) -> None:
    assert target(tmp_path / "a" / "b" / "v1.2") == tmp_path / "a" / "b" / "v1.2.trace.json.gz"
    assert (tmp_path / "a" / "b").is_dir()


def test_json_and_gz_are_kept(tmp_path: Path) -> None:
    assert target(tmp_path / "x.json").name == "x.json"
    assert target(tmp_path / "x.pt.trace.json.gz").name == "x.pt.trace.json.gz"


def test_a_taken_name_is_refused_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="exists"):
        target(tmp_path / "x.json")
    assert target(tmp_path / "x.json", force=True) == tmp_path / "x.json"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").mkdir()
    with pytest.raises(InputError, match="folder"):
        target(tmp_path / "x.json", force=True)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot create the folder"):
        target(tmp_path / "file" / "x.json")


def test_names_of_our_own_are_the_next_free_ones(tmp_path: Path) -> None:
    first = tmp_path / "x.trace.json.gz"
    assert free_name(first) == first
    first.write_text("")
    assert free_name(first).name == "x.2.trace.json.gz"
    side_path(tmp_path / "x.2.trace.json.gz").write_text("")  # its trace was deleted, the side file was not
    assert free_name(first).name == "x.3.trace.json.gz"


# ---- writing ----


def test_a_trace_is_packed_and_nothing_else_is_left(tmp_path: Path) -> None:
    path, rows = write_trace(
        lambda plain: plain.write_text('{"traceEvents": []}') and None, tmp_path / "x.json.gz", accept=always
    )
    assert gzip.decompress(path.read_bytes()) == b'{"traceEvents": []}'
    assert rows.empty
    assert rows.bytes == path.stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["x.json.gz"]


def test_plain_json_on_request(tmp_path: Path) -> None:
    path, _ = write_trace(lambda plain: plain.write_text("{}") and None, tmp_path / "x.json", accept=always)
    assert path.read_text() == "{}"


def test_a_missing_folder_is_made_for_the_export(tmp_path: Path) -> None:
    # torch's own export into a missing folder writes nothing and raises nothing.
    path, _ = write_trace(lambda plain: plain.write_text("{}") and None, tmp_path / "a" / "b" / "x.json", accept=always)
    assert path.exists()


@pytest.mark.parametrize("content", [None, ""])
def test_an_export_that_writes_nothing_is_an_error(tmp_path: Path, content: str | None) -> None:
    def export(plain: Path) -> None:
        if content is not None:
            plain.write_text(content)

    with pytest.raises(CaptureError, match="wrote no trace"):
        write_trace(export, tmp_path / "x.json.gz", accept=always)
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_fails_is_an_error_that_says_why(tmp_path: Path) -> None:
    def export(_: Path) -> None:
        raise RuntimeError("Trace is already saved.")

    with pytest.raises(CaptureError, match="already saved"):
        write_trace(export, tmp_path / "x.json.gz", accept=always)


def test_a_failed_export_leaves_no_temporary_file_of_the_profiler_s_own(tmp_path: Path) -> None:
    def export(plain: Path) -> None:
        plain.with_name(f"{plain.name}.tmp").write_text("{")
        raise RuntimeError("no space")

    with pytest.raises(CaptureError, match="no space"):
        write_trace(export, tmp_path / "x.json.gz", accept=always)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_while_packing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_pack", full)
    with pytest.raises(CaptureError, match=r"could not be written to .*x\.json\.gz: No space left on device$"):
        write_trace(lambda plain: plain.write_text("{}") and None, tmp_path / "x.json.gz", accept=always)
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_replaced_is_kept(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("precious")
    path, _ = write_trace(lambda plain: plain.write_text("{}") and None, tmp_path / "x.json", accept=never)
    assert path.name == "x.2.json"
    assert (tmp_path / "x.json").read_text() == "precious"


def test_a_refused_recording_leaves_no_trace(tmp_path: Path) -> None:
    def accept(rows: Rows) -> bool:
        raise CaptureError("refused")

    with pytest.raises(CaptureError, match="refused"):
        write_trace(lambda plain: plain.write_text("{}") and None, tmp_path / "x.json", accept=accept)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [" }", ',\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": 17\n}'])
@pytest.mark.parametrize("name", ["x.json", "x.trace.json.gz", 'a "b" \\ é.json'])
def test_the_trace_s_note_of_its_own_name_is_the_lasting_one(tmp_path: Path, ending: str, name: str) -> None:
    def export(plain: Path) -> None:
        plain.write_text('{"traceEvents": [' + "1," * 20_000 + f'1\n  ],"traceName": "{plain}"{ending}')

    for taken in (False, True):  # then it is the next free number's
        path, _ = write_trace(export, tmp_path / name, accept=never)
        document = json.loads(gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes())
        assert (path.name != name) is taken
        assert document["traceName"] == path.name
        assert len(document["traceEvents"]) == 20_001


def test_a_trace_name_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    text = '{"traceEvents": [], "traceName": "/somewhere/else.json"}'
    path, _ = write_trace(lambda plain: plain.write_text(text) and None, tmp_path / "x.json", accept=never)
    assert path.read_text() == text


# ---- counting ----


@pytest.mark.parametrize("name", ["mlp_eager", "mlp_cudagraph", "linear_compile"])
def test_counting_agrees_with_decoding(tmp_path: Path, name: str) -> None:
    packed = TRACES / f"{name}.json.gz"
    if not packed.exists():
        pytest.skip(f"{packed.name} is not among the bundled traces")
    plain = tmp_path / "x.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    events = msgspec.json.decode(plain.read_bytes())["traceEvents"]
    kinds = [row_kind(event.get("cat")) for event in events if event.get("ph") == "X"]
    rows = count_rows(plain)
    assert rows.kernels == kinds.count(RowKind.KERNEL) > 0
    assert rows.operators == kinds.count(RowKind.OPERATOR) > 0
    assert rows.transfers == kinds.count(RowKind.MEMCPY) + kinds.count(RowKind.MEMSET)
    assert rows.steps == 3
    assert rows.launches > 0


@given(st.lists(st.sampled_from(["kernel", "cpu_op", "gpu_memcpy", "overhead", "odd"]), max_size=20))
def test_rows_are_counted_by_kind(tmp_path_factory: pytest.TempPathFactory, categories: list[str]) -> None:
    file = tmp_path_factory.mktemp("rows") / "x.json"
    events = [{"ph": "X", "cat": category, "name": "n"} for category in categories]
    file.write_text(json.dumps({"traceEvents": events}))
    rows = count_rows(file)
    assert (rows.kernels, rows.operators) == (categories.count("kernel"), categories.count("cpu_op"))
    assert rows.transfers == categories.count("gpu_memcpy")
    assert rows.empty == (not set(categories) & {"kernel", "cpu_op", "gpu_memcpy"})


def test_a_damaged_trace_is_counted_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k"}, {"ph": "X", "cat": "ker')
    assert count_rows(file).kernels == 1


def test_a_name_without_ending_gets_the_next_free_number(tmp_path: Path) -> None:
    first = target(tmp_path / "mlp")
    first.write_bytes(b"kept")
    assert target(tmp_path / "mlp").name == "mlp.2.trace.json.gz"
    assert target(tmp_path / "mlp", force=True) == first
    with pytest.raises(InputError, match="exists"):
        target(first)
