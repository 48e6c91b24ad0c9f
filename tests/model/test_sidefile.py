"""The side file: written whole, found by the trace's name, and never able to spoil the reading of a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.model.sidefile import (
    SCHEMA,
    GpuState,
    SideFile,
    Unprofiled,
    read_side,
    side_path,
    snapshot_path,
    stem_of,
    traces_of_snapshot,
    write_side,
)


@pytest.mark.parametrize(
    ("trace", "side"),
    [
        ("x.trace.json.gz", "x.trace.side.json"),
        ("x.trace.json", "x.trace.side.json"),
        ("x.pt.trace.JSON.GZ", "x.pt.trace.side.json"),
        ("x", "x.side.json"),
        ("v1.2_run", "v1.2_run.side.json"),
        (".json", ".json.side.json"),
    ],
)
def test_name_of_the_side_file(trace: str, side: str) -> None:
    assert side_path(Path("somewhere") / trace) == Path("somewhere") / side


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    trace = tmp_path / "mlp.trace.json.gz"
    side = SideFile(
        trace=trace.name,
        workload="mlp",
        parameters={"batch": 64, "dtype": "bf16"},
        gpus=[GpuState(index=0, name="a GPU", sm_clock_mhz=1980.0)],
        unprofiled=Unprofiled(median_us=240.5, iqr_us=1.5, runs=2, method="cuda_events", samples_us=[240.0, 241.0]),
        missing={"software.driver": "nvidia-smi was not found"},
    )
    assert write_side(trace, side) == tmp_path / "mlp.trace.side.json"
    assert read_side(trace) == side
    assert [path.name for path in tmp_path.iterdir()] == ["mlp.trace.side.json"]  # no temporary file left


def test_no_side_file_is_none(tmp_path: Path) -> None:
    assert read_side(tmp_path / "x.json") is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"schema": "foretrace.side/2"}', b'{"seed": 3}', b"\xff\xfe\x00"],
)
def test_an_unusable_side_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    side_path(tmp_path / "x.json").write_bytes(content)
    assert read_side(tmp_path / "x.json") is None


def test_a_folder_in_its_place_counts_as_none(tmp_path: Path) -> None:
    side_path(tmp_path / "x.json").mkdir()
    assert read_side(tmp_path / "x.json") is None


def test_one_bad_field_costs_only_itself(tmp_path: Path) -> None:
    document = {"schema": SCHEMA, "seed": "seven", "workload": "mlp", "unprofiled": {"runs": 1}, "newer": 1}
    side_path(tmp_path / "x.json").write_text(json.dumps(document))
    side = read_side(tmp_path / "x.json")
    assert side is not None
    assert side.workload == "mlp"
    assert side.seed is None
    assert side.unprofiled is None
    assert set(side.missing) == {"seed", "unprofiled"}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "x.json"
    write_side(trace, SideFile(seed=1))

    def fail(self: Path, target: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_side(trace, SideFile(seed=2))
    monkeypatch.undo()
    kept = read_side(trace)
    assert kept is not None
    assert kept.seed == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.side.json"]


@pytest.mark.parametrize(
    ("trace", "stem"),
    [("d/x.trace.json.gz", "x"), ("x.JSON", "x"), ("x.pt.trace.json", "x.pt"), ("x", "x"), (".json", ".json")],
)
def test_a_recording_s_files_share_a_stem(trace: str, stem: str) -> None:
    assert stem_of(trace) == stem


@pytest.mark.parametrize("trace", ["x.trace.json", "d/x.json"])
def test_a_snapshot_leads_back_to_its_trace(trace: str) -> None:
    assert Path(trace) in traces_of_snapshot(snapshot_path(trace))
    assert traces_of_snapshot("x.pickle") == []
