"""The process a query runs in: it takes tables, gives up the right to open files, runs the query, and ends.

Run as a file, by ``engine.py`` alone; it imports nothing of foretrace, so that it starts quickly. Standard input is a
header (msgpack) and the tables (Arrow IPC), standard output a header and the result, each behind its length.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import polars as pl


def main() -> None:
    """Read, run, write."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    header = msgspec.msgpack.decode(_read(source))
    _end_with(header["parent"])
    frames = {name: pl.read_ipc(io.BytesIO(_read(source))).lazy() for name in header["tables"]}
    threading.Thread(target=_end_with_pipe, daemon=True).start()
    _warm_up()
    _confine(header["allowance"], header["seconds"])
    # Told apart from the start, so that time spent on it is not the query's.
    _write(sink, b"ready")
    try:
        answer, result = _run(frames, header)
    except MemoryError:
        answer, result = {"failed": "MemoryError", "message": ""}, b""
    except BaseException as error:
        # A panic of the engine is no Exception.
        answer, result = {"failed": type(error).__name__, "message": str(error)[:20_000]}, b""
    _write(sink, msgspec.msgpack.encode(answer))
    _write(sink, result)


def _run(frames: dict[str, pl.LazyFrame], header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    limit, counted = header["limit"], header["counted"]
    try:
        found = _found(frames, header, header["headed"])
    except MemoryError:
        raise
    except Exception:
        if header["headed"] == header["sql"]:
            raise
        # Names of ours may stand in the way (ORDER BY a name that the engine would have given): as it was written.
        found = _found(frames, header, header["sql"])
    kept = found if limit is None else found.head(limit)
    buffer = io.BytesIO()
    kept.write_ipc(buffer)
    complete = limit is None or found.height <= max(counted, limit)
    return {"rows": found.height if complete else None}, buffer.getvalue()


def _found(frames: dict[str, pl.LazyFrame], header: dict[str, Any], sql: str) -> pl.DataFrame:
    query = pl.SQLContext(frames=frames).execute(sql)
    if header["sort"]:
        query = query.sort(pl.all(), nulls_last=True)
    if header["limit"] is not None:
        query = query.head(max(header["counted"], header["limit"]) + 1)
    return query.collect()


def _warm_up() -> None:
    """Start what the engine starts on first use (its threads take file descriptors)."""
    frame = pl.DataFrame({"x": [1, 2], "y": ["a", "b"]}).lazy()
    context = pl.SQLContext(frames={"t": frame})
    context.execute(
        "select a.y, sum(a.x) as s from t a join t b on a.x = b.x group by a.y order by s limit 1"
    ).collect()
    frame.collect().write_ipc(io.BytesIO())


_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Who asked ends a query that takes too long, and says so; this process ends itself where that did not happen.
_GRACE_SECONDS = 5
_LONGEST_SECONDS = 10**8


def _end_with(parent: int) -> None:
    """Have the kernel end this process together with the one that started it, where it can (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have ended before the kernel was asked. One of another name space of processes has no number here: 0.
    if os.getppid() not in (0, parent):
        os._exit(1)


def _end_with_pipe() -> None:
    """End when the other end of standard input is closed, as it is when the process that holds it ends."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)


def _confine(allowance: int, seconds: float) -> None:
    """No file can be opened from here on, and only so much more memory and time be had; where there are such limits."""
    try:
        import resource
    except ImportError:
        return
    whole = int(min(seconds, _LONGEST_SECONDS)) + _GRACE_SECONDS
    used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    # Time of a processor is counted for every thread of the engine.
    _limit(resource.RLIMIT_CPU, used + whole * max(pl.thread_pool_size(), 1))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, whole)  # what it sends ends this process, which has no handler for it
    _limit(resource.RLIMIT_CORE, 0)
    size = _address_space()
    if size is not None:
        _limit(resource.RLIMIT_AS, size + allowance)
    _limit(resource.RLIMIT_NOFILE, 0)


def _limit(what: int, most: int) -> None:
    """Set a limit, no higher than the one that this process was started with."""
    import resource

    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(what, (most, most))


def _address_space() -> int | None:
    """Bytes of addresses in use; None where the system does not say."""
    try:
        import resource

        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None


def _read(source: BinaryIO) -> bytes:
    size = int.from_bytes(source.read(8), "little")
    return source.read(size)


def _write(sink: BinaryIO, content: bytes) -> None:
    sink.write(len(content).to_bytes(8, "little"))
    sink.write(content)
    sink.flush()


if __name__ == "__main__":
    main()
