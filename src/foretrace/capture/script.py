"""Record a whole script: ``foretrace run -- script.py args…``, the parent's side.

The script runs in a child process. So its exit code, its signals and its ``os._exit`` are its own; the
profiler is the first thing in a fresh process; and the trace is read here, in a process that needs no torch.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrace.errors import InputError

__all__ = ["ScriptOutcome", "check_script", "record_script"]


@dataclass(frozen=True)
class ScriptOutcome:
    """How the script ended, and what was kept. ``error``: why nothing usable was recorded, if so."""

    exit_code: int
    path: Path | None
    warnings: list[str]
    error: str | None


def check_script(words: Sequence[str]) -> str:
    """Check ``script.py args…`` or ``-m module args…`` and return a short name for its traces.

    Raises :class:`InputError` when there is no such file, or no module is named.
    """
    if words[0] == "-m":
        if len(words) < 2:
            raise InputError("-m needs the name of a module: foretrace run -- -m package.module")
        return words[1].rpartition(".")[2]
    path = Path(words[0])
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a script, or `-m` and a module")
    return path.stem


def record_script(
    words: Sequence[str],
    path: Path,
    *,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
    force: bool = False,
    label: str | None = None,
    seed: int | None = None,
    command: list[str] | None = None,
    stdout: int | None = None,
    python: str = sys.executable,
) -> ScriptOutcome:
    """Run the script under the profiler, in a child process with our standard streams, and wait for it.

    ``stdout``: a file descriptor for the script's output instead of ours.
    """
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        answer = Path(folder) / "answer.json"
        options = {
            "path": str(path),
            "answer": str(answer),
            "shapes": shapes,
            "stacks": stacks,
            "memory": memory,
            "force": force,
            "label": label,
            "seed": seed,
            "command": command,
        }
        child = subprocess.Popen([python, "-m", "foretrace.capture.child", json.dumps(options), *words], stdout=stdout)
        with _signals_to(child):
            code = child.wait()
        result: dict[str, Any] = {}
        if answer.exists():
            result = json.loads(answer.read_text())
    error = result.get("error")
    if not result:
        how = f"was ended by signal {-code}" if code < 0 else f"left with os._exit or was cut off (exit code {code})"
        error = f"the script {how} before its trace could be written; nothing was recorded"
    return ScriptOutcome(
        exit_code=128 - code if code < 0 else code,  # as a shell reports a signal
        path=Path(result["path"]) if result.get("path") else None,
        warnings=list(result.get("warnings", [])),
        error=error,
    )


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave interrupts to the child, which writes what it has; pass a termination on to it.

    A handler that does nothing, and not SIG_IGN: that one the child would inherit.
    """
    handlers = {signal.SIGINT: lambda *_: None, signal.SIGTERM: lambda *_: child.terminate()}
    previous = {}
    try:
        for number, handler in handlers.items():
            previous[number] = signal.signal(number, handler)
    except ValueError:  # not in the main thread: signals go their usual way
        pass
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
