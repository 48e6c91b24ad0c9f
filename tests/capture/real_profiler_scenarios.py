"""Scenarios with torch's own profiler on the CPU; run as a program, so that each set has a fresh process.

``python real_profiler_scenarios.py FOLDER`` prints one JSON object: scenario → what came of it. Used by
``test_real_profiler.py``, and by hand against other versions of torch.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, schedule
from torch.profiler import profile as torch_profile

from foretrace.capture import profile
from foretrace.errors import ForetraceError, ProfilerActiveError
from foretrace.model.sidefile import read_side

FOLDER = Path(sys.argv[1])
X = torch.ones(8, 8)
CPU = [ProfilerActivity.CPU]


def operators(path: Path) -> int:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sum(event.get("cat") == "cpu_op" and event["name"] == "aten::mm" for event in events)


def scheduled() -> Any:
    with profile(FOLDER / "scheduled", active=3) as p:
        for _ in p.steps():
            X @ X
    return {"mm": operators(p.path), "steps": p.rows.steps, "operators": p.rows.operators}


def whole_block() -> Any:
    with profile(FOLDER / "whole") as p:
        for _ in p.steps(2):
            X @ X
        X @ X
    return {"mm": operators(p.path), "steps": p.rows.steps}


def stacks_and_memory() -> Any:
    with profile(FOLDER / "more", stacks=True, memory=True) as p:
        X @ X
    text = gzip.decompress(p.path.read_bytes()).decode()
    return {"python": '"python_function"' in text, "memory": '"[memory]"' in text, "shapes": "Input Dims" in text}


def all_threads() -> Any:
    with profile(FOLDER / "threads", all_threads=True) as p:
        X @ X
        thread = threading.Thread(target=lambda: X @ X)
        thread.start()
        thread.join()
    return {"mm": operators(p.path), "cautions": len(p.side.warnings)}


def no_shapes() -> Any:
    with profile(FOLDER / "plain", shapes=False) as p:
        X @ X
    return "Input Dims" in gzip.decompress(p.path.read_bytes()).decode()


def too_short() -> Any:
    with profile(FOLDER / "short", active=3) as p:
        for _ in p.steps(2):
            X @ X


def cut_short() -> Any:
    with profile(FOLDER / "cut", active=3) as p:
        for _ in p.steps(4):
            X @ X
    side = read_side(p.path)
    assert side is not None
    assert side.schedule is not None
    return {"mm": operators(p.path), "recorded": side.schedule.recorded, "complete": side.complete}


def foreign_outside() -> Any:
    with torch_profile(activities=CPU) as outer:
        X @ X
        try:
            with profile(FOLDER / "inside"):
                X @ X
        except ProfilerActiveError as error:
            said = str(error)
        X @ X
    return {"said": said, "outer_mm": sum(event.name == "aten::mm" for event in outer.events())}


def foreign_outside_in_warmup() -> Any:
    with (
        torch_profile(activities=CPU, schedule=schedule(wait=0, warmup=1, active=1)),
        profile(FOLDER / "in_warmup"),
    ):
        X @ X


def foreign_outside_starts_later() -> Any:
    # In its wait steps a profiler cannot be seen. When it starts it is turned away, and, having been turned
    # away unprepared, must not crash the process when its own block ends.
    with (
        torch_profile(activities=CPU, schedule=schedule(wait=1, warmup=1, active=1)) as outer,
        profile(FOLDER / "later"),
    ):
        for _ in range(3):
            X @ X
            outer.step()


def foreign_on_another_thread() -> Any:
    said: list[str] = []

    def record() -> None:
        try:
            with profile(FOLDER / "thread"):
                X @ X
        except ProfilerActiveError as error:
            said.append(str(error))

    with torch_profile(activities=CPU):
        thread = threading.Thread(target=record)
        thread.start()
        thread.join()
    return said


def foreign_inside() -> Any:
    try:
        with profile(FOLDER / "around") as p:
            X @ X
            with torch_profile(activities=CPU):
                X @ X
    except ProfilerActiveError as error:
        return {"said": str(error), "kept_mm": operators(p.path)}


def ended_by_the_code() -> Any:
    with profile(FOLDER / "ended") as p:
        X @ X
        torch.autograd._disable_profiler()
    return p.path.name


def ended_by_the_code_in_a_step() -> Any:
    with profile(FOLDER / "ended_in_a_step", active=3) as p:
        for number in p.steps():
            X @ X
            if number == 2:
                torch.autograd._disable_profiler()


def foreign_inside_and_caught() -> Any:
    with profile(FOLDER / "caught", wait=2, active=1) as p:
        for _ in p.steps():
            X @ X
            if p.side is not None and not (FOLDER / "tried").exists():
                (FOLDER / "tried").touch()
                other = torch_profile(activities=CPU, schedule=schedule(wait=0, warmup=1, active=1))
                with contextlib.suppress(ProfilerActiveError):
                    other.start()
    try:
        other.stop()  # torch enables a profiler that is stopped in its warm-up; unprepared that would crash
    except ProfilerActiveError:
        return operators(p.path)


def around_the_guard() -> Any:
    # A profiler that starts through torch's C++ entrance takes the recording over; that is noticed at the
    # end.
    with profile(FOLDER / "taken"):
        X @ X
        torch._C._autograd._disable_profiler()
        torch.autograd.profiler._run_on_profiler_stop()


def exception_inside() -> Any:
    try:
        with profile(FOLDER / "exception") as p:
            X @ X
            raise KeyError("batch")
    except KeyError as error:
        return {"mm": operators(p.path), "notes": error.__notes__}


def in_inference_mode() -> Any:
    with torch.inference_mode(), profile(FOLDER / "inference", active=1) as p:
        for _ in p.steps():
            X @ X
    return operators(p.path)


SCENARIOS: list[Callable[[], Any]] = [
    scheduled,
    whole_block,
    stacks_and_memory,
    no_shapes,
    all_threads,
    too_short,
    cut_short,
    foreign_outside,
    foreign_outside_in_warmup,
    foreign_outside_starts_later,
    foreign_on_another_thread,
    foreign_inside,
    foreign_inside_and_caught,
    ended_by_the_code,
    ended_by_the_code_in_a_step,
    around_the_guard,
    exception_inside,
    in_inference_mode,
    scheduled,  # after all that, a plain recording still works
]


def main() -> None:
    results: dict[str, Any] = {"torch": torch.__version__}
    for number, scenario in enumerate(SCENARIOS):
        name = scenario.__name__ if scenario.__name__ not in results else f"{scenario.__name__}_again"
        if number and name.endswith("_again"):
            (FOLDER / "scheduled.trace.json.gz").unlink()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                result = scenario()
            except ForetraceError as error:
                result = {type(error).__name__: str(error)}
        if said:
            result = {"result": result, "warnings": [str(warning.message) for warning in said]}
        results[name] = result
        left = torch._C._autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled
        assert not left, f"{name} leaves a profiler running"
    print(json.dumps(results))


if __name__ == "__main__":
    main()
