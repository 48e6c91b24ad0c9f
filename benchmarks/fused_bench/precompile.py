"""Fill the compilers' caches with several processes, before anything is timed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["precompile", "share_caches"]


def share_caches() -> None:
    """Point Inductor and Triton to one folder a machine, unless they were pointed somewhere; before torch compiles."""
    folder = Path(tempfile.gettempdir()) / "foretrace-fused-bench"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))


def precompile(arguments: Sequence[str], workers: int, timeout_s: float, say: Callable[[str], None]) -> None:
    """Run this program with ``--prepare-only`` in ``workers`` processes, each with its share of the entrants.

    A worker that fails or is late costs nothing but its share of the cache: what is missing is compiled later.
    """
    start = time.monotonic()
    program = [sys.executable, str(Path(__file__).parents[1] / "fused.py"), *arguments]
    # One process a worker: each would otherwise start a pool of compilers of its own.
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for index in range(workers):
            log = (Path(folder) / f"{index}").open("wb")
            command = [*program, "--prepare-only", f"{index + 1}/{workers}"]
            running.append((subprocess.Popen(command, env=environment, stdout=log, stderr=log), log))
        failed = 0
        for process, log in running:
            try:
                failed += process.wait(max(0.0, timeout_s - (time.monotonic() - start))) != 0
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                failed += 1
            log.close()
            if failed == 1 and process.returncode:
                tail = Path(log.name).read_text(errors="replace").strip().splitlines()[-3:]
                say("\n".join(["a worker ended early:", *tail]))
    say(f"{workers} processes compiled for {time.monotonic() - start:.0f} s, {failed} of them without an end")
