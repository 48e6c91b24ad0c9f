"""``--memory``: the allocator's history around a recording, staged with a torch that only pretends to have a GPU."""

from __future__ import annotations

import os
import pickle
import pickletools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_profiler import FakeBackend

from foretrace import explain
from foretrace.capture import Plan, files, profile, recording, runner
from foretrace.capture.memory import NO_GPU, History
from foretrace.capture.runner import Request, record_variant
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, InputError
from foretrace.knowledge.allocator_rows import HISTORY_ENTRIES
from foretrace.model.sidefile import SideFile, read_side, snapshot_path

torch = pytest.importorskip("torch")

SNAPSHOT = {"segments": [], "device_traces": [[]], "text": "é"}
STATS = {
    "allocated_bytes.all.current": 10,
    "allocated_bytes.all.peak": 30,
    "reserved_bytes.all.current": 40,
    "reserved_bytes.all.peak": 50,
    "num_alloc_retries": 2,
    "num_ooms": 1,
}


class FakeTorch:
    """The parts of torch that the history touches, for two GPUs of which one is used; ``calls`` says in which order."""

    __version__ = "2.99"

    def __init__(self, *, available: bool = True, on: bool = False) -> None:
        self.calls: list[str] = []
        self.on = on
        self.snapshot: Any = SNAPSHOT
        self._C = SimpleNamespace(_cuda_isHistoryEnabled=lambda: self.on)
        self.memory = SimpleNamespace(
            _record_memory_history=self.record,
            _snapshot=self.take,
            get_per_process_memory_fraction=lambda index: 0.5,
        )
        self.cuda = SimpleNamespace(
            is_available=lambda: available,
            init=lambda: self.calls.append("init"),
            device_count=lambda: 2,
            memory_stats=lambda index: STATS if index == 1 else {},
            mem_get_info=lambda index: (70, 80),
            memory=self.memory,
        )

    def record(self, enabled: str | None = "all", **options: Any) -> None:
        self.on = enabled is not None
        self.calls.append("on" if enabled else "off")
        self.options = options

    def take(self) -> Any:
        self.calls.append("snapshot")
        if isinstance(self.snapshot, Exception):
            raise self.snapshot
        return self.snapshot


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Every history in this test is of the pretended GPU."""
    fake = FakeTorch()
    monkeypatch.setattr(runner, "History", lambda _, began: History(fake, began))

    def begun() -> History:
        history = History(fake, "when the block began")
        history.start()
        return history

    monkeypatch.setattr(recording, "begun_with_the_block", begun)
    return fake


# ---- the history itself ----


def test_a_history_is_cleared_begun_dumped_and_ended(tmp_path: Path) -> None:
    fake = FakeTorch()
    history = History(fake, "before the model was built")
    history.start()
    assert fake.calls == ["init", "off", "on"]  # off clears what an earlier recording left
    assert fake.options == {"context": "all", "stacks": "all", "max_entries": HISTORY_ENTRIES}
    answer = history.dump(tmp_path / "x.snapshot.pickle")
    history.stop()
    history.stop()
    assert fake.calls == ["init", "off", "on", "snapshot", "off"]
    assert history.why_not is None
    assert (answer.snapshot, answer.began) == ("x.snapshot.pickle", "before the model was built")
    assert answer.max_entries == HISTORY_ENTRIES
    text = (tmp_path / "x.snapshot.pickle").read_bytes()
    assert pickle.loads(text) == SNAPSHOT
    assert [argument for op, argument, _ in pickletools.genops(text) if op.name == "PROTO"] == [4]
    assert [path.name for path in tmp_path.iterdir()] == ["x.snapshot.pickle"]


def test_only_devices_that_are_used_are_asked(tmp_path: Path) -> None:
    history = History(FakeTorch(), "")
    history.start()
    (device,) = history.dump(tmp_path / "x").devices
    assert (device.index, device.free_bytes, device.total_bytes) == (1, 70, 80)
    assert (device.allocated_bytes, device.peak_allocated_bytes) == (10, 30)
    assert (device.reserved_bytes, device.peak_reserved_bytes) == (40, 50)
    assert (device.alloc_retries, device.ooms, device.memory_fraction) == (2, 1, 0.5)


def test_a_fraction_that_was_not_set_or_cannot_be_asked_for_is_none(tmp_path: Path) -> None:
    fake = FakeTorch()
    history = History(fake, "")
    fake.memory.get_per_process_memory_fraction = lambda index: 1.0
    assert history.dump(tmp_path / "x").devices[0].memory_fraction is None
    del fake.memory.get_per_process_memory_fraction
    assert history.dump(tmp_path / "x").devices[0].memory_fraction is None


def test_a_history_of_the_program_s_own_goes_on(tmp_path: Path) -> None:
    fake = FakeTorch(on=True)
    history = History(fake, "when the block began")
    history.start()
    answer = history.dump(tmp_path / "x")
    history.stop()
    assert fake.calls == ["init", "snapshot"]
    assert answer.began == "by the program itself"
    assert answer.max_entries is None  # nobody can be asked


def test_without_a_gpu_nothing_is_touched(tmp_path: Path) -> None:
    fake = FakeTorch(available=False)
    history = History(fake, "")
    history.start()
    assert history.dump(tmp_path / "x").snapshot is None
    history.stop()
    assert (fake.calls, history.why_not) == ([], NO_GPU)
    assert list(tmp_path.iterdir()) == []


def test_a_torch_without_the_functions_is_one_sentence(tmp_path: Path) -> None:
    fake = FakeTorch()
    del fake.memory._record_memory_history
    history = History(fake, "")
    history.start()
    assert history.why_not == "torch 2.99 does not record the allocator's history as foretrace knows it"
    fake = FakeTorch()
    fake.memory._record_memory_history = lambda on: None  # another signature
    history = History(fake, "")
    history.start()
    assert history.why_not is not None
    assert "TypeError" in history.why_not


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("no\nmore"), "RuntimeError: no"),
    ],
)
def test_a_snapshot_that_fails_leaves_no_file(tmp_path: Path, error: Exception, said: str) -> None:
    fake = FakeTorch()
    history = History(fake, "")
    history.start()
    fake.snapshot = error
    assert history.dump(tmp_path / "x").snapshot is None
    assert history.why_not is not None
    assert said in history.why_not
    assert list(tmp_path.iterdir()) == []


# ---- names ----


@pytest.mark.parametrize(
    ("trace", "snapshot"),
    [
        ("x.trace.json.gz", "x.snapshot.pickle"),
        ("x.json", "x.snapshot.pickle"),
        ("x.2.trace.json.gz", "x.2.snapshot.pickle"),
    ],
)
def test_the_name_of_a_snapshot(trace: str, snapshot: str) -> None:
    assert snapshot_path(Path("a") / trace) == Path("a") / snapshot


def test_a_free_name_has_no_snapshot_either(tmp_path: Path) -> None:
    (tmp_path / "x.snapshot.pickle").write_text("precious")
    assert files.free_name(tmp_path / "x.trace.json.gz").name == "x.2.trace.json.gz"


# ---- foretrace.profile(memory=True) ----


def test_a_block_leaves_its_snapshot_beside_the_trace(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    with profile(trace, memory=True, backend=backend):
        assert fake.calls == ["init", "off", "on"]
        backend.operator()
    assert fake.calls[-2:] == ["snapshot", "off"]
    assert (trace.parent / "x.snapshot.pickle").exists()
    side = read_side(trace)
    assert side is not None
    assert side.memory is not None
    assert (side.memory.snapshot, side.memory.began) == ("x.snapshot.pickle", "when the block began")
    assert side.memory.devices[0].total_bytes == 80


def test_without_memory_no_history_is_kept(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    with profile(trace, backend=backend):
        backend.operator()
    assert fake.calls == []
    side = read_side(trace)
    assert side is not None
    assert side.memory is None


def test_on_a_cpu_the_side_file_says_why_there_is_none(trace: Path, backend: FakeBackend) -> None:
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with profile(trace, memory=True, backend=backend):
        backend.operator()
    side = read_side(trace)
    assert side is not None
    assert side.memory is not None
    assert side.memory.snapshot is None
    assert side.missing["memory.snapshot"] == NO_GPU


def test_a_snapshot_is_never_replaced_unasked(tmp_path: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    taken = tmp_path / "x.snapshot.pickle"
    taken.write_text("precious")
    with pytest.raises(InputError, match=r"x\.snapshot\.pickle exists"):
        profile(tmp_path / "x.json", memory=True, backend=backend).__enter__()
    assert fake.calls == []
    with profile(tmp_path / "x", memory=True, backend=backend) as p:  # a name of our own is the next free one
        backend.operator()
    assert p.path.name == "x.2.trace.json.gz"
    assert (tmp_path / "x.2.snapshot.pickle").exists()
    assert taken.read_text() == "precious"
    with profile(tmp_path / "x.json", memory=True, force=True, backend=backend):
        backend.operator()
    assert pickle.loads(taken.read_bytes()) == SNAPSHOT


def test_a_snapshot_that_appeared_meanwhile_is_kept(tmp_path: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    with profile(tmp_path / "x.json", memory=True, backend=backend) as p:
        backend.operator()
        (tmp_path / "x.snapshot.pickle").write_text("precious")
    assert (tmp_path / "x.snapshot.pickle").read_text() == "precious"
    assert "was kept" in p.side.missing["memory.snapshot"]
    assert fake.calls[-1] == "off"


def test_an_error_in_the_block_leaves_the_snapshot_of_that_moment(
    trace: Path, backend: FakeBackend, fake: FakeTorch
) -> None:
    with pytest.raises(MemoryError), profile(trace, memory=True, backend=backend):  # noqa: PT012
        backend.operator()
        raise MemoryError
    assert (trace.parent / "x.snapshot.pickle").exists()
    assert fake.calls[-1] == "off"


def test_the_history_ends_where_nothing_was_recorded(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    with pytest.raises(KeyError), profile(trace, memory=True, active=1, backend=backend):
        raise KeyError
    assert fake.calls == ["init", "off", "on", "off"]
    assert list(trace.parent.iterdir()) == []


# ---- foretrace run --memory ----


class Work:
    """A program that notes whether the history was on whenever it ran, and whether the profiler was."""

    def __init__(self, backend: FakeBackend, fake: FakeTorch) -> None:
        self.backend, self.fake = backend, fake
        self.seen: list[tuple[bool, bool]] = []

    def __call__(self) -> None:
        self.seen.append((self.fake.on, any(session.running for session in self.backend.sessions)))
        self.backend.kernel()


def request(work: Any, **options: Any) -> Request:
    def make() -> Program:
        work.built_with_history = work.fake.on
        return Program(work, (), {})

    return Request(workload="work", make=make, device="cuda", plan=Plan(1, 1, 2), memory=True, **options)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runner believe in a GPU, without a clock of one."""

    def timed(step: Any, _: Request, side: SideFile) -> None:
        for _turn in range(2):
            step()
        side.peak_memory_bytes = 7

    monkeypatch.setattr(runner, "check_variant", lambda *_: None)
    monkeypatch.setattr(runner, "make_step", lambda program, *_: program.function)
    monkeypatch.setattr(runner, "_synchronize", lambda _: None)
    monkeypatch.setattr(runner, "_time_unprofiled", timed)


@pytest.mark.usefixtures("staged")
def test_the_history_begins_before_the_model_and_the_timing_runs_without_it(
    trace: Path, backend: FakeBackend, fake: FakeTorch
) -> None:
    work = Work(backend, fake)
    record_variant(request(work), "eager", trace, backend=backend)
    assert work.built_with_history  # type: ignore[attr-defined]
    warm, recorded, timed = [(True, False)] * 3, [(True, True)] * 4, [(False, False)] * 2
    assert work.seen == warm + recorded + timed
    side = read_side(trace)
    assert side is not None
    assert side.memory is not None
    assert side.memory.began == "before the model was built"
    assert side.memory.snapshot == "x.snapshot.pickle"
    assert "after the recording, with the history off" in (side.memory.timing or "")
    assert side.peak_memory_bytes == 7  # written after the timing
    assert "unprofiled" not in side.missing


@pytest.mark.usefixtures("staged")
def test_each_variant_has_a_history_of_its_own(tmp_path: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    for name in ("a", "b"):
        record_variant(request(Work(backend, fake)), "eager", tmp_path / f"{name}.trace.json.gz", backend=backend)
    assert fake.calls == ["init", "off", "on", "snapshot", "off"] * 2
    assert {path.name for path in tmp_path.glob("*.pickle")} == {"a.snapshot.pickle", "b.snapshot.pickle"}


@pytest.mark.usefixtures("staged")
def test_a_cold_recording_is_not_timed_with_a_history_either(
    trace: Path, backend: FakeBackend, fake: FakeTorch
) -> None:
    work = Work(backend, fake)
    side = record_variant(request(work, warm_calls=0), "eager", trace, backend=backend).side
    assert work.seen == [(True, True)] * 4
    assert "cold" in side.missing["unprofiled"]


@pytest.mark.usefixtures("staged")
def test_a_program_that_fails_turns_the_history_off(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    def fail() -> None:
        raise RuntimeError("out of memory")

    wanted = replace(request(Work(backend, fake)), make=lambda: Program(fail, (), {}))
    with pytest.raises(CaptureError, match="out of memory"):
        record_variant(wanted, "eager", trace, backend=backend)
    assert fake.calls == ["init", "off", "on", "off"]


@pytest.mark.usefixtures("staged")
def test_a_taken_snapshot_is_refused_before_anything_runs(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    (trace.parent / "x.snapshot.pickle").write_text("precious")
    work = Work(backend, fake)
    with pytest.raises(InputError, match="exists"):
        record_variant(request(work), "eager", trace, backend=backend)
    assert (work.seen, fake.calls) == ([], [])


def test_on_a_cpu_the_timing_stays_where_it_was(trace: Path, backend: FakeBackend, fake: FakeTorch) -> None:
    work = Work(backend, fake)
    side = record_variant(replace(request(work), device="cpu"), "eager", trace, backend=backend).side
    assert fake.calls == []
    assert work.seen[-4:] == [(False, True)] * 4  # the recording comes last
    assert side.unprofiled is not None
    assert side.missing["memory.snapshot"] == NO_GPU


# ---- a script, for real ----


@pytest.mark.parametrize(("json", "left"), [([], "trace: "), (["--json"], '"snapshot":null')])
def test_a_script_on_a_cpu_says_once_why_there_is_no_snapshot(tmp_path: Path, json: list[str], left: str) -> None:
    (tmp_path / "t.py").write_text("import torch; torch.ones(4, 4) @ torch.ones(4, 4)")
    done = subprocess.run(
        [sys.executable, "-m", "foretrace", "run", "--memory", "--no-explain", *json, "--", "t.py"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"foretrace: no snapshot: {NO_GPU}\n") == 1
    assert left in done.stdout
    report = explain(tmp_path / "traces" / "t" / "script.trace.json.gz")
    assert report.memory is not None
    assert [device.device for device in report.memory.devices] == ["cpu"]
