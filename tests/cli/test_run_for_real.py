"""``foretrace run`` from outside: real recordings on the CPU, in processes of their own."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from foretrace.model.sidefile import read_side

pytest.importorskip("torch", reason="recording needs the torch extra")

SCRIPT = """
import os, signal, sys, threading, time
import torch
x = torch.ones(4, 4)
x @ x
print("argv", sys.argv[1:], __name__)
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "exit":
    sys.exit(7)
if what == "raise":
    raise ValueError("boom")
if what == "profile":
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        x @ x
if what == "os._exit":
    os._exit(5)
if what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "thread":
    def work():
        time.sleep(0.2)
        x @ x
    threading.Thread(target=work).start()
if what == "sleep":
    print("ready", flush=True)
    # In short naps: a signal that comes just before the system call would not end a long one.
    for _ in range(600):
        time.sleep(0.1)
"""


def foretrace(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foretrace", "run", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def products(trace: Path) -> int:
    """Matrix products in a written trace, counted independently of foretrace."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return sum(event.get("cat") == "cpu_op" and event["name"] in ("aten::mm", "aten::addmm") for event in events)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "job.py").write_text(SCRIPT)
    return folder


# ---- workloads ----


def test_a_workload_is_timed_recorded_and_described(folder: Path) -> None:
    words = ["linear", "--batch", "8", "--in_dim", "4", "--out-dim", "2", "--device", "cpu", "--json"]
    done = foretrace(folder, *words, "--seed", "5", "--no-explain")
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["recordings"]
    trace = folder / item["trace"]
    assert item["trace"] == "traces/linear/8_4_2_fp32_eager_cpu.trace.json.gz"
    assert products(trace) == 3  # one in each active step
    side = read_side(trace)
    assert side is not None
    assert side.unprofiled is not None
    assert side.unprofiled.runs == len(side.unprofiled.samples_us) >= 3
    assert side.unprofiled.median_us > 0
    assert side.profiled_steps_us is not None
    assert len(side.profiled_steps_us) == 3
    assert (side.workload, side.variant, side.mode, side.seed) == ("linear", "eager", "forward", 5)
    assert side.parameters == {"batch": 8, "in_dim": 4, "out_dim": 2, "dtype": "fp32"}
    assert side.command is not None
    assert side.command[:3] == ["foretrace", "run", "linear"]
    assert side.software.torch is not None
    assert side.missing["peak_memory_bytes"]  # a reason, not a zero
    assert str(folder) not in json.dumps(json.loads((folder / item["side_file"]).read_text()))


def test_a_factory_of_ones_own_in_train_mode(folder: Path) -> None:
    (folder / "model.py").write_text(
        "import torch\ndef make(batch=2): return torch.nn.Linear(3, 2), torch.ones(batch, 3)"
    )
    done = foretrace(
        folder, "model.py:make", "--mode", "train", "--batch", "5", "--active", "1", "--device", "cpu", "--no-explain"
    )
    assert done.returncode == 0, done.stderr
    trace = folder / "traces/model_make/5_train_eager_cpu.trace.json.gz"
    assert products(trace) == 3  # forward, and the gradients of input and weight


def test_what_a_factory_prints_stays_out_of_the_document(folder: Path) -> None:
    (folder / "loud.py").write_text(
        "import torch\ndef make():\n    print('made')\n    return torch.nn.ReLU(), torch.ones(3)\n"
    )
    done = foretrace(folder, "loud.py:make", "--active", "1", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["recordings"]) == 1
    assert "made" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs a C++ compiler")
def test_a_compiled_variant_reports_its_compilation(folder: Path) -> None:
    words = ["linear", "--batch", "8", "--in-dim", "4", "--out-dim", "2", "--device", "cpu"]
    done = foretrace(folder, *words, "--compile", "--json")
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["recordings"]
    assert item["side"]["recompiles"] == 0
    assert item["side"]["first_call_us"] > 10 * item["side"]["unprofiled"]["median_us"]


# ---- scripts ----


@pytest.mark.parametrize(
    ("what", "code", "said", "recorded"),
    [
        ("exit", 7, "", 1),
        ("raise", 1, "ValueError: boom", 1),
        ("profile", 1, "ProfilerActiveError: another profiler was started", 1),
        ("thread", 0, "", 2),
    ],
)
def test_a_script_keeps_its_exit_code_and_its_trace(
    folder: Path, what: str, code: int, said: str, recorded: int
) -> None:
    words = [what] if what else []
    done = foretrace(folder, "--no-explain", "--tag", f"t{what}", "--", "job.py", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "child.py" not in done.stderr  # a traceback begins where the script does
    assert "runpy" not in done.stderr
    assert f"argv {words} __main__" in done.stdout
    trace = folder / f"traces/job/t{what}.trace.json.gz"
    assert products(trace) == recorded
    side = read_side(trace)
    assert side is not None
    assert side.exit_code == code
    assert side.complete is (what not in ("raise", "profile"))


@pytest.mark.parametrize(("what", "code"), [("os._exit", 5), ("kill", 128 + 9)])
def test_a_script_that_cannot_be_recorded_says_so(folder: Path, what: str, code: int) -> None:
    done = foretrace(folder, "--tag", "gone", "--", "job.py", what)
    assert done.returncode == code
    assert "nothing was recorded" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(("end", "code"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("x @ x", 0)])
def test_a_process_that_the_script_forks_ends_by_itself_and_writes_nothing(folder: Path, end: str, code: int) -> None:
    (folder / "forks.py").write_text(
        "import os, torch\nx = torch.ones(9, 9)\nx @ x\nprint('before', flush=True)\nchild = os.fork()\n"
        f"if not child:\n    print('forked')\n    {end}\n"
        "else:\n    print('ended', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = foretrace(folder, "--no-explain", "--tag", f"fork{code}", "--", "forks.py")
    assert done.returncode == 0, done.stderr
    lines = ["before", "forked", f"ended {code}", f"trace: traces/forks/fork{code}.trace.json.gz"]
    assert done.stdout.splitlines() == lines
    assert ("ZeroDivisionError" in done.stderr) == (code == 1)
    assert products(folder / f"traces/forks/fork{code}.trace.json.gz") == 1


def test_a_module_and_json(folder: Path) -> None:
    done = foretrace(folder, "--json", "--", "-m", "job", "a", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # the script's own output went to standard error
    assert "argv ['a', '--json'] __main__" in done.stderr
    assert document["exit_code"] == 0
    assert products(folder / document["recordings"][0]["trace"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-m", "nopkg.mod"], 1, "there is no module nopkg.mod"),
        (["fails.py"], 1, "before any operator ran, so no trace was written"),
        (["idle.py"], 0, "no PyTorch operator ran"),
        (["idle.py", "9"], 9, "no PyTorch operator ran"),
    ],
)
def test_where_nothing_ran_no_empty_trace_is_left(folder: Path, words: list[str], code: int, said: str) -> None:
    (folder / "fails.py").write_text("1 / 0")
    (folder / "idle.py").write_text("import sys\nif sys.argv[1:]: sys.exit(int(sys.argv[1]))")
    before = sorted(folder.rglob("*"))
    done = foretrace(folder, "--", *words)
    assert done.returncode == code
    assert done.stdout == ""
    ours = [line for line in done.stderr.splitlines() if line.startswith("foretrace: ")]
    assert len(ours) == 1
    assert said in ours[0]
    assert ("Traceback" in done.stderr) == (words == ["fails.py"])  # the program's own
    assert [path for path in sorted(folder.rglob("*")) if "__pycache__" not in str(path)] == before


def test_the_interpreter_s_name_is_not_needed_and_does_no_harm(folder: Path) -> None:
    done = foretrace(folder, "--no-explain", "--tag", "python", "--", "python3", "job.py", "a")
    assert done.returncode == 0, done.stderr
    assert "argv ['a'] __main__" in done.stdout
    assert done.stdout.splitlines()[-1] == "trace: traces/job/python.trace.json.gz"
    assert "profiler_start" not in done.stderr


def test_an_interrupt_keeps_the_trace(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "foretrace", "run", "--no-explain", "--tag", "int", "--", "job.py", "sleep"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    until = time.monotonic() + 60
    while "ready" not in process.stdout.readline():
        assert time.monotonic() < until
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert products(folder / "traces/job/int.trace.json.gz") == 1


def run_in(folder: Path, *words: str) -> Any:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_without_torch_a_workload_says_what_to_install(folder: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from foretrace.cli import main; sys.exit(main(['run', 'mlp']))"
    done = run_in(folder, sys.executable, "-c", code)
    assert done.returncode == 2
    assert "PyTorch 2.4 or newer" in done.stderr
    assert done.stderr.endswith("pip install torch\n")
    assert "Traceback" not in done.stderr
