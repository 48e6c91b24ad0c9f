"""The side file of a copy: what was recorded beside a trace belongs to its copies as well."""

from __future__ import annotations

from pathlib import Path

from foretrace.errors import InputError
from foretrace.model.sidefile import read_side, side_path, write_side
from foretrace.trace.writer import refuse_taken

__all__ = ["copy_side", "refuse_target"]


def refuse_target(source: Path, target: Path, *, force: bool) -> None:
    """Raise `InputError` where the copy, or its side file, must not be written."""
    if target.exists() and source.exists() and target.samefile(source):
        raise InputError(f"{target} is the trace itself; give the copy another name")
    refuse_taken(target, force=force)
    beside = side_path(target)
    if not beside.exists() or _same(beside, side_path(source)):
        return
    if read_side(source) is None:
        raise InputError(f"{beside} lies there and would be taken for the copy's; give the copy another name")
    refuse_taken(beside, force=force)


def copy_side(source: Path, target: Path, *, cut: bool = False) -> Path | None:
    """Write the side file of the copy; None where the trace has none.

    What no longer applies is unknown in it, with the reason; ``cut``: the copy holds a part of the steps. Raises
    `InputError` where it cannot be written.
    """
    side = read_side(source)
    if side is None:
        return None
    path = side_path(target)
    if _same(path, side_path(source)):
        return path
    side.trace = target.name
    if side.memory is not None and side.memory.snapshot is not None:
        side.memory.snapshot = None
        side.missing["memory.snapshot"] = "the snapshot lies beside the trace that this is a copy of"
    if cut and side.profiled_steps_us is not None:
        side.profiled_steps_us = None
        side.missing["profiled_steps_us"] = "the trace was cut; the times of all steps are beside the whole one"
    try:
        return write_side(target, side)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
