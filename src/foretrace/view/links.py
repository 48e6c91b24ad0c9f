"""Links into the Perfetto UI: to a trace, and to a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from foretrace.errors import InputError
from foretrace.knowledge.perfetto import LOOPBACK, UI_TRACE_LINK, perfetto_ns

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["Window", "perfetto_link", "window_of"]

# A part of what is shown is added on both sides, so that its edges can be seen.
_MARGIN = 0.05
# What an address may hold as it is (RFC 3986), the sign of quoting included; one that quotes nothing is quoted itself.
_URL_SAFE = "/:?#[]@!$&'()*+,;=-._~%"
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Window:
    """What a link shows: ``[start_ns, end_ns)``, and the row it selects, if any.

    Times are ns as Perfetto has them (for a JSON trace its own ``ts`` in µs times 1000, see ``window_of``).
    ``event`` is (start in ns, duration in ns, pid, tid); a pid or tid that is a word is not put into the link.
    """

    start_ns: int
    end_ns: int
    event: tuple[int, int, int | str, int | str] | None = None


def perfetto_link(url: str, *, window: Window | None = None) -> str:
    """A link that opens the trace at ``url`` in the Perfetto UI, at ``window``.

    ``url`` is https, or http on 127.0.0.1 (what the UI may fetch). It is quoted whole, so that none of its characters
    can end it or begin another parameter; in ``url`` itself spaces and characters beyond ASCII are quoted first, what
    is quoted already stays so. Raises `InputError` for another address, one that holds a password, or a window that
    ends before it begins.
    """
    parts: list[tuple[str, str]] = [("url", _fetchable(url))]
    if window is not None:
        if window.end_ns <= window.start_ns:
            raise InputError(f"a window from {window.start_ns} ns to {window.end_ns} ns shows nothing")
        if window.event is not None:
            start, duration, pid, tid = window.event
            parts += [("ts", str(start)), ("dur", str(duration))]
            parts += [(name, str(value)) for name, value in (("pid", pid), ("tid", tid)) if _is_number(value)]
        parts += [("visStart", str(window.start_ns)), ("visEnd", str(window.end_ns))]
    return UI_TRACE_LINK + "&".join(f"{name}={quote(value, safe='')}" for name, value in parts)


def window_of(trace: Trace, start: int, end: int, *, row: int | None = None) -> Window | None:
    """The window that shows ``[start, end)`` of a trace (ns on the file's own clock), and selects ``row``.

    A margin is added and the whole kept inside the trace, since the UI ignores a window that reaches beyond it.
    None where Perfetto has other times for this file than its columns have (times in ns where the format says µs), or
    where nothing of the window lies in the trace.
    """
    if not len(trace) or trace.in_nanoseconds:
        return None
    first, last = int(trace.start.min()), int(trace.end.max())
    start, end = max(start, first), min(end, last)
    if end < start or last <= first:
        return None
    margin = max(round((end - start) * _MARGIN), 1)
    shown = perfetto_ns(max(start - margin, first)), perfetto_ns(min(end + margin, last))
    if shown[1] <= shown[0]:
        return None
    event = None
    if row is not None:
        lane = trace.lanes[int(trace.lane[row])]
        event = (perfetto_ns(int(trace.start[row])), perfetto_ns(int(trace.duration[row])), lane.pid, lane.tid)
    return Window(*shown, event)


def _is_number(value: int | str) -> bool:
    # A name gets a number that only Perfetto knows; -1 is a pid that the file does not have.
    return isinstance(value, int) and value >= 0


def _fetchable(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
        url.encode()
    except ValueError:  # UnicodeEncodeError is one
        parts, host = None, None
    secure = parts is not None and parts.scheme == "https" and bool(host)
    local = parts is not None and parts.scheme == "http" and host == LOOPBACK
    if not (secure or local):
        raise InputError(f"the Perfetto UI fetches only from https:// or http://{LOOPBACK}, not from {url!r}")
    if parts is not None and parts.username is not None:
        raise InputError("the address of a trace holds a user name or password; browsers refuse to fetch such a one")
    return quote(_STRAY_PERCENT.sub("%25", url), safe=_URL_SAFE)
