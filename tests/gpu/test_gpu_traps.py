"""The traps of torch's profiler on a real GPU, each in a fresh process, since Kineto remembers how it was begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_helpers import Run, rows

PRELUDE = """
import json, warnings
import torch
import foretrace
from foretrace.capture import CaptureWarning
from foretrace.errors import ForetraceError
from torch.profiler import ProfilerActivity, schedule
from torch.profiler import profile as torch_profile

x = torch.ones(512, 512, device="cuda")
CPU, BOTH = [ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.CUDA]

def attempt(work):
    said = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", CaptureWarning)
        try:
            result = work()
        except ForetraceError as error:
            result = None
            said.append(f"{type(error).__name__}: {error}")
    said += [str(item.message) for item in heard if issubclass(item.category, CaptureWarning)]
    print(json.dumps({"result": result, "said": said}))
"""


def outcome(python: Run, code: str) -> dict[str, Any]:
    done = python(PRELUDE + code)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_all_kernels_of_all_active_steps_are_recorded(python: Run) -> None:
    # The kernels of the last step run after its last launch; a profiler stopped without waiting would lose
    # them.
    code = """
def work():
    with foretrace.profile("x", active=3) as p:
        for _ in p.steps():
            for _ in range(200):
                x + x
    return p.rows.kernels
attempt(work)
"""
    assert outcome(python, code) == {"result": 600, "said": []}


def test_cpu_work_first_does_not_spoil_a_later_gpu_recording(python: Run) -> None:
    # foretrace asks for the GPU even when only the CPU works, since Kineto decides by the first profile.
    code = """
y = torch.ones(8, 8)
def work():
    with foretrace.profile("cpu"):
        y @ y
    with foretrace.profile("gpu") as p:
        x + x
    return p.rows.kernels
attempt(work)
"""
    assert outcome(python, code) == {"result": 1, "said": []}


@pytest.mark.parametrize("kept", [True, False])
def test_a_cpu_only_profile_first_is_never_silent(python: Run, kept: bool) -> None:
    code = f"""
first = torch_profile(activities=CPU)
with first:
    torch.ones(8, 8) @ torch.ones(8, 8)
if not {kept}:
    del first
def work():
    with foretrace.profile("gpu") as p:
        y = x + x
    return p.rows.kernels
attempt(work)
"""
    found = outcome(python, code)
    if found["result"] is None:
        assert any(sentence.startswith("EmptyTraceError") for sentence in found["said"])
        assert any("CPU-only profile" in sentence for sentence in found["said"])
    else:
        assert found["result"] == 1  # a torch in which the trap is mended
    if kept:
        assert any("CPU-only torch profile ran earlier" in sentence for sentence in found["said"])


def test_an_empty_trace_is_kept(tmp_path: Path, python: Run) -> None:
    code = """
# Stand in for a machine on which CUPTI does not work: ask for the CPU only.
import torch.profiler as tp
tp.supported_activities = lambda: {ProfilerActivity.CPU}
def work():
    with foretrace.profile("gpu") as p:
        y = x + x
    return p.rows.kernels
attempt(work)
"""
    found = outcome(python, code)
    assert found["result"] is None
    # Kineto still writes the launch calls, which are the better evidence; without them the allocator's count is.
    assert found["said"][0].startswith("EmptyTraceError: 1 kernel launches were recorded and not one kernel")
    assert "foretrace doctor" in found["said"][0]
    assert rows(tmp_path / "gpu.trace.json.gz", "cpu_op")


def test_a_profiler_around_ours_keeps_its_kernels(python: Run) -> None:
    code = """
def work():
    with torch_profile(activities=BOTH) as outer:
        x + x
        try:
            with foretrace.profile("inside"):
                x + x
        except foretrace.ForetraceError as error:
            name = type(error).__name__
        x + x
    outer.export_chrome_trace("outer.json")
    events = json.load(open("outer.json"))["traceEvents"]
    return [name, sum(event.get("cat") == "kernel" for event in events)]
attempt(work)
"""
    assert outcome(python, code)["result"] == ["ProfilerActiveError", 2]


def test_a_profiler_inside_ours_is_turned_away(python: Run) -> None:
    code = """
def work():
    p = foretrace.profile("around")
    try:
        with p:
            x + x
            with torch_profile(activities=BOTH):
                x + x
    except foretrace.ForetraceError as error:
        name = type(error).__name__
    return [name, p.rows.kernels]
attempt(work)
"""
    assert outcome(python, code)["result"] == ["ProfilerActiveError", 1]


def test_an_exception_keeps_the_kernels_before_it(python: Run) -> None:
    code = """
def work():
    p = foretrace.profile("exception")
    try:
        with p:
            x + x
            raise KeyError("batch")
    except KeyError as error:
        return [p.rows.kernels, len(error.__notes__)]
attempt(work)
"""
    assert outcome(python, code)["result"] == [1, 1]


def test_one_recording_after_another(python: Run) -> None:
    # CUPTI is torn down and set up again in between.
    code = """
def work():
    counts = []
    for number in range(3):
        with foretrace.profile(f"x{number}", active=2) as p:
            for _ in p.steps():
                x + x
        counts.append(p.rows.kernels)
    return counts
attempt(work)
"""
    assert outcome(python, code) == {"result": [2, 2, 2], "said": []}


def test_a_training_loop_goes_on_after_the_recording(python: Run) -> None:
    code = """
model = torch.nn.Linear(512, 512, device="cuda")
optimizer = torch.optim.SGD(model.parameters())

@foretrace.profile("train", wait=1, warmup=1, active=2)
def train_step(batch):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()

def work():
    for _ in range(8):
        train_step(x)
    return [train_step.recording.rows.kernels > 6, train_step.recording.rows.steps]
attempt(work)
"""
    assert outcome(python, code) == {"result": [True, 2], "said": []}


def test_cuda_events_measure_what_the_gpu_does(python: Run) -> None:
    code = """
from foretrace.timing import CudaEventClock, interleave
def work():
    calls = {str(n): (lambda n=n: torch.cuda._sleep(n * 1_000_000)) for n in (1, 2)}
    timed = interleave(calls, clock=CudaEventClock(), warmup=2, runs=10)
    return timed["2"].median_us / timed["1"].median_us
attempt(work)
"""
    assert outcome(python, code)["result"] == pytest.approx(2.0, rel=0.2)


def test_the_report_can_be_had_from_the_recording(python: Run) -> None:
    code = """
def work():
    with foretrace.profile("x", active=2) as p:
        for _ in p.steps():
            x + x
    report = p.report()
    return [len(report.steps), len(report.kernels)]
attempt(work)
"""
    assert outcome(python, code)["result"] == [2, 2]
