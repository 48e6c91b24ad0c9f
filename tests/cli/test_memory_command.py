"""``foretrace memory``: one file in, one screen or document out, and honest sentences for everything else."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from foretrace.cli import main
from foretrace.cli.demo import SAMPLES
from foretrace.model.memory import Memory
from foretrace.model.sidefile import DeviceMemory, MemoryHistory, SideFile
from foretrace.report.json import to_json
from schemas import validator

SNAPSHOT = str(SAMPLES / "h200_fragmented.snapshot.pickle.gz")
SUMMARY = str(SAMPLES / "h200_fragmented.memory_summary.txt")
H200 = Path(__file__).parents[1] / "data" / "memory" / "h200"
MIB = 1 << 20


def failing(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one sentence of a command that cannot do its work."""
    try:
        code = main(["memory", *argv])
    except SystemExit as stop:  # a flag argparse refuses
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    return err


def test_the_readme_shows_what_comes_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    command, _, shown = readme[readme.index("$ foretrace memory ") :].partition("\n")
    assert main(command.split()[2:]) == 0
    assert shown[: shown.index("\n…\n```")] in capsys.readouterr().out


def test_one_screen(capsys: pytest.CaptureFixture[str]):
    assert main(["memory", SNAPSHOT]) == 0
    out = capsys.readouterr().out
    assert "= reserved        7592.0" in out
    assert "127 holes between live blocks; largest 140.2 MiB" in out
    assert "MAP" not in out


def test_the_document_is_valid_and_alone_on_standard_output(capsys: pytest.CaptureFixture[str]):
    assert main(["memory", SNAPSHOT, "--json", "--request", "200MiB"]) == 0
    document = json.loads(capsys.readouterr().out)
    validator(Memory).validate(document)
    assert document["schema"] == "foretrace.memory/1"
    assert document["request"]["from"] == "unknown"
    assert document["request"]["succeeds"] is True  # what can be given back is enough, whatever the device has
    assert sum(segment["size"] for segment in document["segments"]) == document["totals"]["reserved_bytes"]
    assert sum(block["size"] for block in document["blocks"]) == document["totals"]["reserved_bytes"]


@pytest.mark.parametrize(
    ("written", "size"),
    [("200MiB", 200 * MIB), ("1.5 GiB", 1536 * MIB), ("2GB", 2 * 10**9), ("4096", 4096), ("1k", 1024), ("1kb", 1000)],
)
def test_sizes_as_people_write_them(written: str, size: int, capsys: pytest.CaptureFixture[str]):
    assert main(["memory", SNAPSHOT, "--json", "--request", written]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["bytes"] == size


@pytest.mark.parametrize("written", ["", "much", "-5", "nan", "inf", "1e400", "200 apples", "9EB", "1_000", "٣MiB"])
def test_what_is_no_size_is_refused(written: str, capsys: pytest.CaptureFixture[str]):
    assert "size" in failing(capsys, SNAPSHOT, f"--request={written}")


def test_a_size_is_exact(capsys: pytest.CaptureFixture[str]):
    assert main(["memory", SNAPSHOT, "--json", "--request", str(2**62 + 1)]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["bytes"] == 2**62 + 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--device-total", "4GiB"],  # 7592 MiB are reserved
        ["--device-total", "1GiB", "--device-free", "2GiB"],
        ["--device-total", "10GiB", "--device-free", "9GiB"],
    ],
)
def test_a_device_that_cannot_be_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str]):
    assert "7592 MiB" in failing(capsys, SNAPSHOT, *flags)


def test_what_the_device_has_decides(capsys: pytest.CaptureFixture[str]):
    def answer(*flags: str) -> bool | None:
        assert main(["memory", SNAPSHOT, "--json", "--request", "4GiB", *flags]) == 0
        succeeds: bool | None = json.loads(capsys.readouterr().out)["request"]["succeeds"]
        return succeeds

    assert answer() is None
    assert answer("--device-free", "4GiB") is True
    # 4096 MiB are asked for, 2164 of them can be given back first.
    assert answer("--device-free", "1933MiB") is True
    assert answer("--device-free", "1931MiB") is False
    assert answer("--device-free", "80GiB", "--limit", "8GiB") is False


def test_a_side_file_beside_the_snapshot_says_what_the_device_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    document = {"segments": [], "device_traces": [[]], "allocator_settings": {}}
    size = 20 * MIB
    block = {"address": 1 << 32, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}
    document["segments"] = [
        {
            "device": 0, "address": 1 << 32, "total_size": size, "allocated_size": size, "active_size": size,
            "requested_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "blocks": [block],
        }
    ]  # fmt: skip
    (tmp_path / "x.snapshot.pickle").write_bytes(pickle.dumps(document))
    devices = [DeviceMemory(index=0, free_bytes=100 * MIB, total_bytes=1000 * MIB, memory_fraction=0.05)]
    side = SideFile(memory=MemoryHistory(snapshot="x.snapshot.pickle", devices=devices))
    (tmp_path / "x.trace.side.json").write_bytes(to_json(side))

    def read(*flags: str) -> dict:
        assert main(["memory", str(tmp_path / "x.snapshot.pickle"), "--json", *flags]) == 0
        return json.loads(capsys.readouterr().out)

    assert read()["totals"]["device_used_bytes"] == 900 * MIB
    # 20 MiB are reserved, and the process may have 50.
    assert read("--request", "30MiB")["request"]["succeeds"] is True
    assert read("--request", "32MiB")["request"]["succeeds"] is False
    # A flag counts for more than the file.
    assert read("--request", "32MiB", "--limit", "1GiB")["request"]["succeeds"] is True
    # A side file of another snapshot is none.
    (tmp_path / "x.snapshot.pickle").rename(tmp_path / "y.snapshot.pickle")
    (tmp_path / "x.trace.side.json").rename(tmp_path / "y.trace.side.json")
    assert main(["memory", str(tmp_path / "y.snapshot.pickle"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["device_used_bytes"] is None


def test_as_a_gate_the_answer_is_the_exit_code(capsys: pytest.CaptureFixture[str]):
    wanted = ["memory", SNAPSHOT, "--request", "4GiB", "--fail"]
    assert main([*wanted, "--device-free", "8GiB"]) == 0
    assert main([*wanted, "--device-free", "1GiB"]) == 1
    assert main(wanted) == 1  # the device decides
    capsys.readouterr()
    assert "give --request" in failing(capsys, SNAPSHOT, "--fail")


def test_more_than_the_device_has_beside_what_stays_reserved_is_refused(capsys: pytest.CaptureFixture[str]):
    # 8192 MiB less the 5428 that stay reserved.
    assert main(["memory", SNAPSHOT, "--request", "2765MiB", "--device-total", "8GiB"]) == 0
    out = capsys.readouterr().out
    assert "on the default stream: NO" in out
    assert "even if nobody else used any of the device's 8192 MiB" in " ".join(out.split())
    assert main(["memory", SNAPSHOT, "--request", "2764MiB", "--device-total", "8GiB"]) == 0
    assert "on the default stream: the device decides" in capsys.readouterr().out


def test_counters_are_read_as_json_and_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stats = json.loads((H200 / "training.memory_stats.json").read_text(encoding="utf-8"))
    for name, text in (("a.json", json.dumps(stats)), ("b.txt", str(stats)), ("c.txt", f"OrderedDict({stats})")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert main(["memory", str(tmp_path / name), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["source"]["format"] == "stats"
        assert found["totals"]["reserved_bytes"] == stats["reserved_bytes.all.current"]


def test_a_timeline_has_a_peak_and_no_sizes(capsys: pytest.CaptureFixture[str]):
    assert main(["memory", str(H200.parent / "timeline_mlp_cpu.json.gz")]) == 0
    out = capsys.readouterr().out
    assert "SIZES" not in out
    assert "optimizer state          75.1" in out


def test_sums_cannot_answer_for_a_request(capsys: pytest.CaptureFixture[str]):
    assert "--request needs a snapshot" in failing(capsys, SUMMARY, "--request", "1MiB")


def test_a_device_that_is_not_there_is_named_with_those_that_are(capsys: pytest.CaptureFixture[str]):
    assert "nothing of device 3; it has: 0" in failing(capsys, SNAPSHOT, "--device", "3")


def test_a_file_that_runs_code_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "evil.pickle").write_bytes(pickle.dumps({"segments": [Evil()]}))
    assert "evil.pickle" in failing(capsys, str(tmp_path / "evil.pickle"))
    assert not (tmp_path / "ran").exists()


def test_convert_writes_what_viewers_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = tmp_path / "new.pickle"
    assert main(["memory", "convert", SNAPSHOT, "-o", str(made)]) == 0
    assert made.read_bytes()[:2] == b"\x80\x04"
    first = made.read_bytes()
    assert "exists" in failing(capsys, "convert", SNAPSHOT, "-o", str(made), "--protocol", "2")
    assert made.read_bytes() == first
    assert main(["memory", "convert", SNAPSHOT, "-o", str(made), "--protocol", "2", "--force"]) == 0
    assert made.read_bytes()[:2] == b"\x80\x02"
    assert "name it with -o" in failing(capsys, "convert", SNAPSHOT)
    assert "leave --json" in failing(capsys, "convert", SNAPSHOT, "-o", str(tmp_path / "b"), "--json")
    assert "--protocol is of convert" in failing(capsys, SNAPSHOT, "--protocol", "2")


def test_the_screen_into_a_file(tmp_path: Path):
    target = tmp_path / "screen.txt"
    assert main(["memory", SNAPSHOT, "--map", "-o", str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "MAP" in text
    assert "\x1b" not in text
