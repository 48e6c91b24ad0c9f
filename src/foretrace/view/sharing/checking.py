"""Whether a redacted trace is still explained as the original is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.errors import ForetraceError

if TYPE_CHECKING:
    from foretrace.model.report import Report

__all__ = ["difference"]


def difference(original: Path, copy: Path, rename: Callable[[str], str], *, without_frames: bool = False) -> str | None:
    """What the explanation of the copy has otherwise, in a few words; None where it is the same.

    ``rename`` is what redaction makes of a kernel's name: only a path may go from it. ``without_frames``: Python frames
    were to lose their names, and with them what is found by those. A file that cannot be explained to begin with has
    no explanation to lose.
    """
    was = _explained(original)
    if was is None:
        return None
    now = _explained(copy)
    if now is None:
        return "whether it can be explained at all"
    if _kernels(was) != _kernels(now) or [rename(k.name) for k in was.kernels] != [k.name for k in now.kernels]:
        return "its kernels"
    if [(t.kind, t.direction, t.bytes) for t in was.transfers] != [
        (t.kind, t.direction, t.bytes) for t in now.transfers
    ]:
        return "its copies"
    if _steps(was) != _steps(now):
        return "its steps"
    if was.verdict.bound != now.verdict.bound:
        return "what bounds it"
    if not without_frames and [one.rule for one in was.findings] != [one.rule for one in now.findings]:
        return "its findings"
    return None


def _explained(path: Path) -> Report | None:
    from foretrace.analysis import explain
    from foretrace.trace import load

    try:
        return explain(load(path))
    except ForetraceError:
        return None


def _kernels(report: Report) -> list[tuple[Any, ...]]:
    return [
        (k.start_us, k.duration_us, k.kind, k.flops, k.bytes, k.bound, k.step, k.stream, k.grid) for k in report.kernels
    ]


def _steps(report: Report) -> list[tuple[Any, ...]]:
    return [(s.wall_us, s.gpu_busy_us, s.gpu_idle_us, s.launches) for s in report.steps]
