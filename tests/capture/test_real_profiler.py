"""The traps again, with torch's own profiler on the CPU, in a process of its own.

With ``FORETRACE_TEST_TORCH_PYTHON`` set to an interpreter with another torch
(``tests/compat/oldest_torch.sh`` makes one with torch 2.4), the same scenarios run there too.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="recording needs the torch extra")

from foretrace.capture.torch_backend import TorchSession
from foretrace.errors import CaptureError

HERE = Path(__file__).parent
PYTHONS = [sys.executable, *filter(None, [os.environ.get("FORETRACE_TEST_TORCH_PYTHON")])]


@pytest.fixture(scope="module", params=PYTHONS, ids=["here", "other torch"][: len(PYTHONS)])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = subprocess.run(
        [request.param, HERE / "real_profiler_scenarios.py", tmp_path_factory.mktemp("traces")],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr  # negative: a signal, so torch crashed
    return json.loads(done.stdout.splitlines()[-1])


def test_the_active_steps_and_nothing_else_are_recorded(results: dict[str, Any]) -> None:
    assert results["scheduled"] == {"mm": 3, "steps": 3, "operators": 15}  # a product is 5 operators on the CPU


def test_after_all_the_failures_recording_still_works(results: dict[str, Any]) -> None:
    assert results["scheduled_again"] == results["scheduled"]


def test_a_whole_block(results: dict[str, Any]) -> None:
    assert results["whole_block"] == {"mm": 3, "steps": 2}


def test_options_reach_the_profiler(results: dict[str, Any]) -> None:
    assert results["stacks_and_memory"] == {"python": True, "memory": True, "shapes": True}
    assert results["no_shapes"] is False


def test_all_threads_are_recorded_or_it_is_said_that_they_are_not(results: dict[str, Any]) -> None:
    assert results["all_threads"] in ({"mm": 2, "cautions": 0}, {"mm": 1, "cautions": 1})


def test_schedules_that_are_not_completed(results: dict[str, Any]) -> None:
    assert "needs 5 steps" in results["too_short"]["ScheduleError"]
    assert results["cut_short"]["result"] == {"mm": 2, "recorded": 2, "complete": False}
    assert "2 of 3 active steps" in results["cut_short"]["warnings"][0]


def test_a_profiler_around_ours_is_seen_and_loses_nothing(results: dict[str, Any]) -> None:
    assert "already recording" in results["foreign_outside"]["said"]
    assert results["foreign_outside"]["outer_mm"] == 2
    assert "already recording" in results["foreign_on_another_thread"][0]
    assert "warm-up" in results["foreign_outside_in_warmup"]["ProfilerActiveError"]


def test_a_profiler_that_starts_while_we_record_is_turned_away(results: dict[str, Any]) -> None:
    assert results["foreign_inside"]["kept_mm"] == 1
    assert "another profiler was started" in results["foreign_inside"]["said"]
    assert "another profiler was started" in results["foreign_outside_starts_later"]["ProfilerActiveError"]


def test_a_profiler_that_was_turned_away_can_be_stopped(results: dict[str, Any]) -> None:
    assert results["foreign_inside_and_caught"] == 1


@pytest.mark.parametrize("scenario", ["ended_by_the_code", "ended_by_the_code_in_a_step"])
def test_code_that_ends_the_profiler_is_told_of_and_crashes_nothing(results: dict[str, Any], scenario: str) -> None:
    said = results[scenario]["CaptureError"]
    assert said.startswith("torch's profiler ended before this recording did, and what was recorded is lost")
    assert "torch.autograd._disable_profiler()" in said


class Ended:
    """A profiler whose results torch no longer has: to write them would end the process."""

    class profiler:  # noqa: N801
        class kineto_results:  # noqa: N801
            trace_start_ns = staticmethod(lambda: 0)

    def export_chrome_trace(self, path: str) -> None:
        raise AssertionError(f"torch was asked to write {path}")


def test_results_that_torch_no_longer_has_are_not_written(tmp_path: Path) -> None:
    session = TorchSession.__new__(TorchSession)
    session._profiler = Ended()
    with pytest.raises(CaptureError, match="ended on another thread than the one it began on"):
        session.export(tmp_path / "t.json")


def test_a_profiler_that_got_past_the_guard_is_noticed(results: dict[str, Any]) -> None:
    assert "ended it" in results["around_the_guard"]["ProfilerActiveError"]


def test_an_exception_keeps_what_was_traced(results: dict[str, Any]) -> None:
    assert results["exception_inside"]["mm"] == 1
    assert "holds what ran until then" in results["exception_inside"]["notes"][0]


def test_inference_mode_is_recorded_too(results: dict[str, Any]) -> None:
    assert results["in_inference_mode"] == 1


HUSHED = """
import os
import torch  # before foretrace, as in most programs
from foretrace.capture import profile
x = torch.ones(2, 2)
for options in ({}, {"wait": 2, "warmup": 1, "active": 1},):
    with profile(None, **options) as p:
        for _ in p.steps():
            x @ x
print(os.environ.get("KINETO_LOG_LEVEL"))
"""


def test_the_profiler_s_own_notes_stay_away_and_the_environment_is_left_as_it_was(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}

    def said(code: str, **more: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout, done.stderr

    assert said(HUSHED) == ("None\n", "")
    assert said(HUSHED.replace("({}, ", "(")) == ("None\n", "")  # prepared after wait steps only
    assert "profiler_start" in said(HUSHED, KINETO_LOG_LEVEL="0")[1]  # who asked for the notes gets them


def test_a_trace_carries_the_name_of_its_file_and_no_folder(tmp_path: Path) -> None:
    code = "import torch; from foretrace.capture import profile\nwith profile('a/b \"c\"é'): torch.ones(2) + 1"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    text = gzip.decompress((tmp_path / 'a/b "c"é.trace.json.gz').read_bytes()).decode()
    assert json.loads(text)["traceName"] == 'b "c"é.trace.json.gz'
    assert str(tmp_path) not in text


def test_importing_costs_no_torch() -> None:
    code = "import sys; from foretrace.capture import profile; import foretrace.cli.run; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_torch_the_first_use_says_what_to_install(tmp_path: Path) -> None:
    # -S would hide too much; a module of that name that cannot be found does it.
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from foretrace.capture import profile\n"
        "from foretrace.errors import MissingExtraError\n"
        "try:\n"
        "    profile('x').__enter__()\n"
        "except MissingExtraError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith("PyTorch 2.4 or newer, which is not installed: pip install torch\n")
    assert list(tmp_path.iterdir()) == []
