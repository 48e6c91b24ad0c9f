"""Any file about memory: told apart by what its data is made of, and read by what knows it."""

from __future__ import annotations

import msgspec

from foretrace.knowledge.memory_texts import COUNTED, SUMMARY_HEAD, TIMELINE_PICTURE
from foretrace.memory.reading.files import document_snapshot, file_bytes, is_pickle, parsed_json, snapshot_from
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
    try:
        document = parsed_json(data)
    except msgspec.DecodeError:
        return _from_text(data, path, device, repairs)
    if isinstance(document, dict) and "segments" in document:
        return document_snapshot(document, path, repairs)
    if _counts(document):
        from foretrace.memory.reading.summaries import read_stats

        return read_stats(document, path, device)
    # Rows of numbers, or times and sums, where a snapshot's list is one of segments; or nothing at all.
    if isinstance(document, list) and document and isinstance(document[0], list):
        from foretrace.memory.reading.timeline import read_timeline

        return read_timeline(document, path, device)
    return document_snapshot(document, path, repairs)


def _from_text(data: bytes, path: str, device: int | None, repairs: list[str]) -> Snapshot | Memory:
    """What is no JSON: a printed table or dictionary, a timeline that is cut off or a picture, or something else."""
    text = data.decode("utf-8", "replace")
    if SUMMARY_HEAD.search(text):
        from foretrace.memory.reading.summaries import read_summary

        return read_summary(text, path, device)
    # The segments of a printed or broken snapshot have sizes of that name as well.
    if COUNTED in text and "total_size" not in text:
        from foretrace.memory.reading.summaries import parse_stats, read_stats

        return read_stats(parse_stats(text, path), path, device)
    if text.lstrip().startswith("[[") or TIMELINE_PICTURE.search(text):
        from foretrace.memory.reading.timeline import read_timeline

        return read_timeline(text, path, device)
    return snapshot_from(data, path, repairs=repairs)


def _counts(document: object) -> bool:
    """Whether it is the counters of a device, flat or nested, or a list or a dictionary of such by device."""
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return any(
        isinstance(key, str) and key.partition(".")[0] == COUNTED
        for one in (document, *inner)
        if isinstance(one, dict)
        for key in one
    )
