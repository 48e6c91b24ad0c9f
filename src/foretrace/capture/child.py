"""Record a whole script, the child's side: ``python -m foretrace.capture.child OPTIONS script.py args…``.

Runs the script as ``__main__`` with the profiler on, keeps what was traced however the script ends, and
leaves with the script's exit code. Not meant to be called by hand.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from foretrace.capture.plan import CaptureWarning
from foretrace.capture.recording import profile
from foretrace.errors import ForetraceError

__all__ = ["main"]

_CAPTURE_FAILED = 2


def main(argv: list[str]) -> int:
    """Run the script and return its exit code; ours is 2, only when the script itself ended well."""
    options: dict[str, Any] = json.loads(argv[0])
    words = argv[1:]
    answer: dict[str, Any] = {"path": None, "warnings": [], "error": None}
    heard: list[str] = answer["warnings"]
    code = 0
    recording = profile(
        options["path"],
        shapes=options["shapes"],
        stacks=options["stacks"],
        memory=options["memory"],
        force=options["force"],
        label=options["label"],
    )
    recording.side.command = options["command"]
    recording.side.workload = "script"
    recording.side.seed = options["seed"]
    signal.signal(signal.SIGTERM, _terminated)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with _listening(heard):
            recording.__enter__()
        if options["seed"] is not None:
            sys.modules["torch"].manual_seed(options["seed"])
        failure, code = _run(words)
        _join_threads()
        if os.environ.get("CUDA_VISIBLE_DEVICES") != visible:
            recording.side.warnings.append(_TOO_LATE)
            heard.append(_TOO_LATE)
        recording.side.exit_code = code
        with _listening(heard):
            if failure is None:
                recording.__exit__(None, None, None)
            else:
                recording.__exit__(type(failure), failure, failure.__traceback__)
                if not isinstance(failure, SystemExit):
                    _report(failure)
    except ForetraceError as error:
        answer["error"] = str(error)
        code = code or _CAPTURE_FAILED
    try:
        answer["path"] = str(recording.path)
    except ForetraceError as error:
        answer["error"] = answer["error"] or str(error)
    Path(options["answer"]).write_text(json.dumps(answer))
    return code


_TOO_LATE = (
    "the script set CUDA_VISIBLE_DEVICES itself, which came too late: the profiler had already asked for "
    "the GPUs. Set it before the command: CUDA_VISIBLE_DEVICES=… foretrace run -- …"
)


def _run(words: list[str]) -> tuple[BaseException | None, int]:
    """Run ``script.py args…`` or ``-m module args…`` as ``__main__``; returns how it failed, and its exit code."""
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            sys.path[0] = str(Path(words[0]).resolve().parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        return (None if error.code in (None, 0) else error), _exit_code(error)
    except KeyboardInterrupt as error:
        return error, 128 + signal.SIGINT
    except BaseException as error:
        return error, 1
    return None, 0


def _exit_code(error: SystemExit) -> int:
    """What the interpreter would make of ``sys.exit(x)``: 0 for None, a number as it is, else print it and 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    """Print the script's traceback as the interpreter would, without the frames that are ours."""
    trace = error.__traceback__
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _join_threads() -> None:
    """Wait for the script's threads, as the interpreter does before it ends."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


class _listening:
    """Collect our own warnings, for the parent to show; all others stay as they are."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard
        self._catcher = warnings.catch_warnings()

    def __enter__(self) -> None:
        self._catcher.__enter__()
        warnings.simplefilter("always", CaptureWarning)
        show = warnings.showwarning

        def listen(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, CaptureWarning):
                self._heard.append(str(message))
            else:
                show(message, category, *place, **more)

        warnings.showwarning = listen

    def __exit__(self, *_: object) -> None:
        self._catcher.__exit__(*_)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
