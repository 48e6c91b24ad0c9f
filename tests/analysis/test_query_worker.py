"""The process of a query ends with whoever asked, and at the latest when its time is over."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from foretrace.analysis.tables import Tables, engine
from foretrace.analysis.tables.interrupt import Interrupt
from foretrace.errors import InputError
from foretrace.trace import load

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"
WORKER = Path(engine.__file__).with_name("worker.py")
ENDLESS = "with recursive t as (select 1 as n union all select n + 1 from t) select * from t"
PATIENCE = 60  # seconds, on a busy machine

# A program that asks the endless query, and says which process runs it.
ASKING = f"""
import subprocess, sys
from foretrace.analysis.tables import Tables, engine
from foretrace.trace import load

class Said(subprocess.Popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        print(self.pid, flush=True)

engine.subprocess.Popen = Said
tables = Tables(load(sys.argv[1]))
tables.query({ENDLESS!r})
"""


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:  # one that has ended and that nobody has asked about is still in the list
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _ends(process: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while _lives(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_it_ends_with_the_process_that_asked(how: str):
    with subprocess.Popen([sys.executable, "-c", ASKING, str(TRACE)], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        worker = int(asking.stdout.readline())
        time.sleep(0.2)
        assert _lives(worker)
        asking.send_signal(getattr(signal, how))
        assert asking.wait(PATIENCE) != 0
    assert _ends(worker)


def _started(sql: str, *, seconds: float) -> subprocess.Popen[bytes]:
    """The worker as on a system whose kernel does not tell it of its parent's end."""
    program = "import runpy, sys, polars; sys.platform = 'none'; runpy.run_path(sys.argv[1], run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    header = {"sql": sql, "headed": sql, "tables": [], "limit": None, "counted": 10, "sort": False, "allowance": 10**9}
    assert process.stdin is not None
    assert process.stdout is not None
    engine._write(process.stdin, msgspec.msgpack.encode(header | {"seconds": seconds, "parent": os.getpid()}))
    assert engine._read(process.stdout) == b"ready"
    return process


def test_it_ends_when_the_pipe_to_it_is_closed():
    with _started(ENDLESS, seconds=600) as process:
        process.stdin.close()
        assert process.wait(PATIENCE) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such timer")
def test_it_ends_by_itself_when_its_time_is_over():
    with _started(ENDLESS, seconds=0.1) as process:  # the pipe stays open
        assert process.wait(PATIENCE) == -signal.SIGALRM


def test_it_is_ended_from_another_thread_and_none_begins_after_that():
    tables = Tables(load(TRACE))
    interrupt = Interrupt()
    timer = threading.Timer(1, interrupt.set)
    began = time.monotonic()
    with interrupt.covering():
        timer.start()
        with pytest.raises(InputError, match="the query was cancelled"):
            tables.query(ENDLESS, timeout=PATIENCE)
        with pytest.raises(InputError, match="the query was cancelled"):
            tables.query("select 1 as one")
    timer.join()
    assert time.monotonic() - began < PATIENCE
    assert tables.query("select 1 as one").item() == 1  # outside, nothing is ended
