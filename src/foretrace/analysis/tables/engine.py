"""Run one query over the tables in a process of its own, for which time and memory are bounded."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from foretrace.analysis.tables.interrupt import interrupt_here
from foretrace.analysis.tables.statement import Statement, read_statement
from foretrace.errors import InputError
from foretrace.knowledge.sql import OUT_OF_MEMORY, QUERY_BYTES, QUERY_SECONDS
from foretrace.model.words import bytes_of, number

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.tables import Tables

__all__ = ["Answer", "ask"]

# Rows of a limited result are counted up to this number; beyond it, "more" is all that is said.
_COUNTED = 1_000_000


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows that were asked for of a result, how many it has (None: more than a million), and the query."""

    frame: polars.DataFrame
    rows: int | None
    statement: Statement

    @property
    def truncated(self) -> bool:
        """Whether there are more rows than ``frame`` has."""
        return self.rows is None or self.rows > self.frame.height


def ask(tables: Tables, sql: str, *, limit: int | None = None, timeout: float | None = None) -> Answer:
    """Run a query; see ``Tables.query``."""
    statement = read_statement(sql)
    if limit is not None and limit < 0:
        raise InputError(f"a result has 0 rows or more, not {limit}")
    seconds = QUERY_SECONDS if timeout is None else timeout
    if not seconds > 0:
        raise InputError(f"a query is given more than {number(seconds)} seconds")
    # It imports the engine while the tables are made here.
    with _Worker() as worker:
        frames = tables.for_query(statement)
        found, result = worker.run(statement, frames, limit=limit, seconds=seconds)
    if "failed" in found:
        from foretrace.analysis.tables.wording import explained

        if found["failed"] == "MemoryError":
            raise _too_large()
        raise InputError(explained(statement, frames, str(found["failed"]), str(found["message"])))
    import polars as pl

    return Answer(pl.read_ipc(io.BytesIO(result)), found["rows"], statement)


class _Worker:
    """``worker.py`` as a process; ended, whatever happens, when the block is left."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("worker.py")
        self._process = subprocess.Popen(
            # -P: the folder of the script holds modules of ours, which are not to stand for others of their names.
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )
        self._interrupt = interrupt_here()
        self._interrupt.add(self._process)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        with suppress(OSError):
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        process.wait()
        self._interrupt.remove(process)

    def run(
        self, statement: Statement, frames: dict[str, polars.DataFrame], *, limit: int | None, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """The header of the answer, and the result as Arrow IPC."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        header = {
            "sql": statement.sql,
            "headed": statement.headed,
            "tables": list(frames),
            "limit": limit,
            "counted": _COUNTED,
            "sort": statement.unordered,
            "allowance": _allowance(),
            "seconds": seconds,
            "parent": os.getpid(),
        }
        try:
            _write(process.stdin, msgspec.msgpack.encode(header))
            for frame in frames.values():
                buffer = io.BytesIO()
                frame.write_ipc(buffer)
                _write(process.stdin, buffer.getbuffer())
            # It stays open: where this process ends, however it does, the pipe closes, and the other ends as well.
            _read(process.stdout)
        except (OSError, EOFError) as error:
            if self._interrupt.is_set:
                raise _cancelled() from error
            raise InputError(f"the query engine (Polars) did not start{self._why()}") from error
        late = threading.Event()
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._kill, [late])
        timer.daemon = True
        timer.start()
        try:
            found = msgspec.msgpack.decode(_read(process.stdout))
            return found, _read(process.stdout)
        except EOFError as error:
            if self._interrupt.is_set:
                raise _cancelled() from error
            if late.is_set():
                raise InputError(
                    f"the query took longer than {number(seconds)} s and was ended; narrow it (a join without ON "
                    "pairs every row with every other), or give it more time (--timeout, in Python timeout=)"
                ) from error
            raise self._end() from error
        finally:
            timer.cancel()

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._process.kill()

    def _end(self) -> InputError:
        """Why the process ended by itself."""
        said = self._why()
        if OUT_OF_MEMORY in said:
            return _too_large()
        return InputError(f"the query engine (Polars) gave up on this query{said}; write it in a simpler way")

    def _why(self) -> str:
        """What the process said of its end, behind a colon; empty where it said nothing."""
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        if process.poll() is None or process.stderr is None:
            return ""
        said = [line.strip() for line in process.stderr.read().decode("utf-8", "replace").split("\n") if line.strip()]
        if not said:
            return ""
        # Python says what happened last, the engine first.
        return f": {said[-1] if said[0].startswith('Traceback') else said[0]}"


def _cancelled() -> InputError:
    return InputError("the query was cancelled")


def _too_large() -> InputError:
    return InputError(
        f"the query needs more than {bytes_of(_allowance())} of memory and was ended; narrow it (a join without ON "
        "pairs every row with every other), or sum up before joining"
    )


def _allowance() -> int:
    try:
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return QUERY_BYTES
    return min(QUERY_BYTES, half)


def _write(sink: IO[bytes], content: bytes | memoryview) -> None:
    sink.write(len(content).to_bytes(8, "little"))
    sink.write(content)
    sink.flush()


def _read(source: IO[bytes]) -> bytes:
    """One piece; raises ``EOFError`` where the other side ended before it was whole."""
    head = source.read(8)
    size = int.from_bytes(head, "little")
    content = source.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(content) < size:
        raise EOFError
    return content
