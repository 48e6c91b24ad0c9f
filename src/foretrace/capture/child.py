"""Record a whole script, the child's side: ``python -m foretrace.capture.child OPTIONS script.py args…``.

Runs the script as ``__main__`` with the profiler on, keeps what was traced however the script ends, and
leaves with the script's exit code. Not meant to be called by hand.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from foretrace.capture.plan import CaptureWarning
from foretrace.capture.recording import Recording
from foretrace.errors import ForetraceError
from foretrace.model.sidefile import side_path, snapshot_path

__all__ = ["main"]

_CAPTURE_FAILED = 2


def main(argv: list[str]) -> int:
    """Run the script and return its exit code; ours is 2, only when the script itself ended well."""
    options: dict[str, Any] = json.loads(argv[0])
    words = argv[1:]
    answer: dict[str, Any] = {"path": None, "warnings": [], "error": None}
    code = 0
    recording = Recording(
        options["path"],
        shapes=options["shapes"],
        stacks=options["stacks"],
        memory=options["memory"],
        all_threads=True,
        force=options["force"],
        label=options["label"],
    )
    recording.side.command = options["command"]
    recording.side.workload = "script"
    recording.side.seed = options["seed"]
    own = os.getpid()
    signal.signal(signal.SIGTERM, _terminated)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with _quietly():
            recording.__enter__()
        if recording.history is not None:  # nothing but us has run in this process
            recording.history.began = "before the script began"
        if options["seed"] is not None:
            sys.modules["torch"].manual_seed(options["seed"])
        failure, code = _run(words)
        if os.getpid() != own:
            _leave_fork(failure, code)
        _join_threads()
        if os.environ.get("CUDA_VISIBLE_DEVICES") != visible:
            recording.side.warnings.append(_TOO_LATE)
        recording.side.exit_code = code
        with _quietly():
            if failure is None or isinstance(failure, SystemExit):  # sys.exit() is the script's way to end
                recording.__exit__(None, None, None)
            else:
                if isinstance(failure, _NoModuleError):
                    answer["error"] = str(failure)
                else:
                    _report(failure)
                recording.__exit__(type(failure), failure, failure.__traceback__)
    except ForetraceError as error:
        answer["error"] = str(error)
        code = code or _CAPTURE_FAILED
    try:
        if answer["error"] is None and recording.rows.empty:
            answer["error"] = _discard(recording)
            Path(options["answer"]).write_text(json.dumps(answer))
            return code
        answer["path"] = str(recording.path)
    except ForetraceError as error:
        answer["error"] = answer["error"] or str(error)
    answer["warnings"] = [sentence for sentence in recording.side.warnings if sentence != answer["error"]]
    Path(options["answer"]).write_text(json.dumps(answer))
    return code


_TOO_LATE = (
    "the script set CUDA_VISIBLE_DEVICES itself, which came too late: the profiler had already asked for "
    "the GPUs. Set it before the command: CUDA_VISIBLE_DEVICES=… foretrace run -- …"
)


class _NoModuleError(Exception):
    """``-m`` names what cannot be run; the interpreter, too, says so in a line and without a traceback."""


def _discard(recording: Recording) -> str:
    """Delete a trace that nothing is in, which this process has just written; returns what to say."""
    recording.path.unlink()
    side_path(recording.path).unlink(missing_ok=True)
    if recording.side.memory is not None and recording.side.memory.snapshot is not None:
        snapshot_path(recording.path).unlink(missing_ok=True)
    return (
        "no PyTorch operator ran in the script's own process, so no trace was written "
        "(processes that it starts are not recorded)"
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Our own warnings go to the parent, which shows them after the script's output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        yield


def _run(words: list[str]) -> tuple[BaseException | None, int]:
    """Run ``script.py args…`` or ``-m module args…`` as ``__main__``; returns its failure and exit code."""
    try:
        if words[0] == "-m":
            _check_module(words[1])
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(words)
            if not sys.flags.safe_path:
                sys.path[0] = str(Path(words[0]).resolve().parent)  # where `python -m` put the working folder
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as error:
        return error, _exit_code(error)
    except KeyboardInterrupt as error:
        return error, 128 + signal.SIGINT
    except BaseException as error:
        return error, 1
    return None, 0


def _check_module(name: str) -> None:
    """Raise :class:`_NoModuleError` for a module that the interpreter's ``-m`` would not find either."""
    if name.startswith("."):
        raise _NoModuleError(f"-m {name}: give the module's full name, a relative one means nothing here")
    if name.endswith(".py"):
        raise _NoModuleError(f"-m {name}: after -m goes a module's name, as in -m {name[:-3]}; leave -m out for a file")
    try:
        spec = importlib.util.find_spec(name)  # imports the packages around it, as -m does
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _NoModuleError(f"there is no module {name} here: nothing named {error.name} is found") from None
        raise
    except ValueError:  # an empty name
        spec = None
    if spec is None:
        raise _NoModuleError(f"there is no module {name} here; python -m {name} does not find it either")
    if spec.submodule_search_locations is not None and importlib.util.find_spec(f"{name}.__main__") is None:
        raise _NoModuleError(f"{name} is a package without a __main__ module; name one of its modules")


def _exit_code(error: SystemExit) -> int:
    """What the interpreter makes of ``sys.exit(x)``: 0 for None, a number as it is, else print it and 1."""
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


def _leave_fork(failure: BaseException | None, code: int) -> NoReturn:
    """End a process that the script forked and that came to the script's end.

    The profiler belongs to the process that started it: its threads do not exist here, and stopping it would wait
    for them forever. So nothing is written, and the interpreter's shutdown, which destroys it, is left out.
    """
    try:
        if failure is not None and not isinstance(failure, SystemExit):
            _report(failure)
        _join_threads()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(code)


def _join_threads() -> None:
    """Wait for the script's threads, as the interpreter does before it ends."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
