"""Any file about memory: told apart by its content, and read by what knows it."""

from __future__ import annotations

from foretrace.knowledge.memory_texts import SUMMARY_HEAD
from foretrace.memory.reading.files import file_bytes, is_pickle, snapshot_from
from foretrace.memory.reading.pickles import Progress
from foretrace.memory.snapshot import Snapshot
from foretrace.model.memory import Memory

__all__ = ["read_any"]


def read_any(path: str, *, device: int | None = None, progress: Progress | None = None) -> Snapshot | Memory:
    """The snapshot in a file, or what its summary, its counters or its timeline says of a device.

    ``-`` is standard input. Raises `InputError`, one sentence, for anything else.
    """
    repairs: list[str] = []
    data = file_bytes(path, repairs)
    if is_pickle(data):
        return snapshot_from(data, path, repairs=repairs, progress=progress)
    text = data.decode("utf-8", "replace")
    if SUMMARY_HEAD.search(text):
        from foretrace.memory.reading.summaries import read_summary

        return read_summary(text, path, device)
    # The counters of `memory_stats`, nested or printed, name this one; the segments of a snapshot have a size as well.
    if "allocated_bytes" in text and "total_size" not in text:
        from foretrace.memory.reading.summaries import parse_stats, read_stats

        return read_stats(parse_stats(text, path), path, device)
    # Lists of numbers and lists, where a snapshot's list is one of segments.
    if text.lstrip().startswith("[[") or "export_memory_timeline" in text or text.lstrip().startswith("<"):
        from foretrace.memory.reading.timeline import read_timeline

        return read_timeline(text, path, device)
    return snapshot_from(data, path, repairs=repairs, progress=progress)
