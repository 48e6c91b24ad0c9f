"""Every error foretrace raises on purpose.

The tree::

    ForetraceError                  exit code 2, one sentence, says what to do
    ├── InputError                  a file, a flag or a name the user gave cannot be used
    │   └── TraceReadError          a file is not a trace that can be read
    ├── MissingExtraError           an optional dependency is needed and absent
    ├── SharingError                the Hub could not be reached, or refused what it was asked
    └── CaptureError                a recording could not be made, or cannot be trusted
        ├── ScheduleError           the schedule never reaches (or never left) its active steps
        ├── ProfilerActiveError     another profiler is already running in this process
        └── EmptyTraceError         something ran on the GPU and nothing of it was recorded

Errors carry one readable sentence; ``cli.main`` prints it without a traceback and exits with
``exit_code``. A failed check (a prediction that did not hold) is a result, not an error.
"""

from __future__ import annotations

import re

__all__ = [
    "CaptureError",
    "EmptyTraceError",
    "ForetraceError",
    "InputError",
    "MissingExtraError",
    "ProfilerActiveError",
    "ScheduleError",
    "SharingError",
    "TraceReadError",
    "sentence_of",
]


class ForetraceError(Exception):
    """Base of all errors foretrace raises on purpose; ``str()`` of it is meant for the user."""

    exit_code = 2


class InputError(ForetraceError):
    """A file, a flag or a name the user gave cannot be used."""


class TraceReadError(InputError):
    """A file is not a profiler trace that can be read."""


class MissingExtraError(ForetraceError):
    """An optional dependency is needed for this and is not installed."""


class SharingError(ForetraceError):
    """The Hub could not be reached, or did not do what it was asked."""


class CaptureError(ForetraceError):
    """A recording could not be made, or what was recorded cannot be trusted."""


class ScheduleError(CaptureError):
    """The schedule never reached its active steps, or was left before they were complete."""


class ProfilerActiveError(CaptureError):
    """Another profiler is already running in this process; nesting would empty both."""


class EmptyTraceError(CaptureError):
    """CUDA work ran, but the recording holds none of it."""


_MOST_SAID = 300

# A requirement as an installed package's metadata has it: its name, its versions, and the extra that asks for it.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<versions>[^;]*)(?:;.*?extra == [\"'](?P<extra>[\w-]+))?"
)


def sentence_of(
    error: Exception, *, name_files: bool = True, machine: str = "this machine", defect: str = "please report it"
) -> str:
    """What a user is told of an error: its own sentence if it is one of ours, else what is known of it.

    Args:
        error: the error.
        name_files: whether the file that the system speaks of may be named.
        machine: whose memory it was that did not suffice.
        defect: what to do about an error that is nobody's but ours.
    """
    if isinstance(error, ForetraceError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"{machine} has not enough memory for this; try something smaller"
    if isinstance(error, OSError) and error.strerror:
        if not name_files:
            return f"a file cannot be read: {error.strerror}"
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
    if isinstance(error, ModuleNotFoundError) and (absent := _not_installed(error.name or "")) is not None:
        return absent
    said = " ".join(str(error).split())[:_MOST_SAID]
    return f"this is a defect of foretrace: {type(error).__name__}{': ' if said else ''}{said}; {defect}"


def _not_installed(module: str) -> str | None:
    """How to install a package that foretrace asks for; None where the module is of no such package."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        requirements = requires("foretrace") or []
    except PackageNotFoundError:  # run from its source, without being installed
        return None
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        if found is None or re.sub(r"[-_.]+", "_", found["name"]).lower() != module.lower():
            continue
        wanted = f"foretrace[{found['extra']}]" if found["extra"] else f"{found['name']}{found['versions'].strip()}"
        return f"{found['name']} is needed for this and not installed: pip install '{wanted}'"
    return None
