"""What ``foretrace share`` prints: what will be uploaded, what is left out and why, the links."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from foretrace.model.words import bytes_of, count
from foretrace.report.text import clean

if TYPE_CHECKING:
    from foretrace.view.sharing import LeftOut, Plan, Shared, Standing

__all__ = ["Screen"]

_LISTED = 40


class Screen:
    """Lines on ``stream``; a line that passes by on the terminal's standard error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def progress(self, line: str) -> None:
        """Show a line until the next one; "" clears it. Nothing where there is no terminal."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{clean(line)[:100]}", end="", file=sys.stderr, flush=True)

    def plan(
        self,
        plan: Plan,
        standing: Standing | None,
        *,
        bucket: str,
        private: bool | None,
        exists: bool | None,
        force: bool,
        counts: dict[str, int] | None,
    ) -> None:
        """Say what would be done; ``standing`` and ``exists`` are None where the bucket was not looked at."""
        self._line(f"foretrace share  {plan.folder} → {bucket}")
        self._line(_visibility(private, exists))
        self._line()
        states = _states(standing, force)
        todo = [item for item in plan.items if states.get(item.path, "upload") in ("upload", "replace")]
        size = sum(item.bytes for item in todo)
        self._line(f"UPLOAD  {count(len(todo), 'file')}, {bytes_of(size)}" if todo else "UPLOAD  nothing")
        width = min(max((len(item.path) for item in plan.items), default=0), 72)
        for item in plan.items[:_LISTED]:
            note = states.get(item.path, "")
            self._line(f"  {item.path:<{width}}  {bytes_of(item.bytes):>8}  {item.kind}{_NOTES.get(note, '')}")
        if len(plan.items) > _LISTED:
            self._line(f"  and {count(len(plan.items) - _LISTED, 'more file', 'more files')} (--json lists them all)")
        if counts is not None:
            said = ", ".join(f"{name} {number}" for name, number in counts.items())
            self._line(f"REDACTED  pieces replaced: {said}")
        self.left_out(plan.left_out)

    def left_out(self, files: Sequence[LeftOut]) -> None:
        """List what stays here, the reasons beside."""
        if not files:
            return
        self._line(f"LEFT OUT  {count(len(files), 'file')}")
        for one in files[:_LISTED]:
            self._line(f"  {one.path}: {one.reason}")
        if len(files) > _LISTED:
            reasons = Counter(one.reason for one in files[_LISTED:])
            for reason, number in reasons.most_common():
                self._line(f"  and {number} more: {reason}")

    def deleting(self, paths: Sequence[str], bucket: str) -> None:
        """List every file that would be deleted: it is gone for good."""
        self._line(f"DELETE  {count(len(paths), 'file')} of {bucket} that the folder has not")
        for path in paths:
            self._line(f"  {path}")

    def spared(self, reasons: Counter[str], bucket: str) -> None:
        """Say how many files that could be the folder's stay in the bucket, and why."""
        for reason, number in reasons.most_common():
            self._line(f"SPARED  {count(number, 'file')} of {bucket}: {reason}")

    def doubtful(self, names: Sequence[str]) -> None:
        """Say which names redaction cannot tell from words."""
        if names:
            said = "These names are words of traces as well, and are taken out only where a path or a key names them"
            self._line(f"NOTE  {said}: {', '.join(names)}.")

    def outcome(self, shared: Shared) -> None:
        """Say what is in the bucket now, with the links."""
        states = Counter(file.state for file in shared.files)
        said = [f"{number} {_STATES.get(state, state)}" for state, number in states.items()]
        said += [f"{len(shared.deleted)} deleted"] if shared.deleted else []
        self._line()
        self._line(f"IN {shared.bucket}  {', '.join(said)}")
        self._line(f"  {shared.page}")
        traces = [file for file in shared.files if file.kind == "trace" and file.state in _THERE]
        if not traces:
            return
        if shared.private is not False:
            self._line(
                "PERFETTO  it cannot fetch from a private bucket. Whoever may read the bucket opens a trace with:"
            )
            self._line(f"  hf buckets sync hf://buckets/{shared.bucket} FOLDER, then: foretrace view FOLDER/TRACE")
            return
        self._line("PERFETTO")
        for file in traces:
            self._line(f"  {file.path}")
            self._line(f"    {file.perfetto or file.url}")

    def _line(self, text: str = "") -> None:
        print(clean(text), file=self._stream)


_NOTES = {
    "same": " (there already, skipped)",
    "replace": " (there with another content, replaced)",
    "conflict": " (there with another content, stays as it is)",
}
_STATES = {"conflict": "there with another content", "waiting": "not up"}
_THERE = ("uploaded", "replaced", "unchanged")


def _states(standing: Standing | None, force: bool) -> dict[str, str]:
    if standing is None:
        return {}
    states = {item.path: "same" for item in standing.same}
    states |= {item.path: "replace" if force else "conflict" for item in standing.other}
    return states


def _visibility(private: bool | None, exists: bool | None) -> str:
    who = "private: only those whom you let in can read it" if private else "public: everybody can read it"
    if exists is None:
        return f"a bucket that was not looked at; if it is made, it is {who}"
    return f"{'a bucket that is there' if exists else 'a new bucket'}, {who}"
