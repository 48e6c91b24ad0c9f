"""A server for one purpose: hand a few files to the Perfetto UI in a browser of this machine, and end.

Who can ask is narrowed five times over: it listens on 127.0.0.1 alone, the paths cannot be guessed, the ``Host`` must
be this machine's (a page whose name is pointed at 127.0.0.1 says its own name), an ``Origin`` must be the UI's, and a
page of any other site that embeds a path gets nothing (``Cross-Origin-Resource-Policy``).
"""

from __future__ import annotations

import errno
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import quote

from foretrace.errors import InputError
from foretrace.knowledge.perfetto import (
    ALLOW_PRIVATE_NETWORK,
    ASK_PRIVATE_NETWORK,
    LOOPBACK,
    PORT,
    UI_ORIGIN,
)
from foretrace.view.opening import OpenTrace

__all__ = ["GRACE_S", "TraceServer"]

# After the last transfer: a browser that asks once more (a reload, a retry) still gets its answer.
GRACE_S = 2.0
_PIECE = 1 << 18
# A connection that says nothing, or takes nothing, for so long is given up.
_SILENT_S = 30.0
_STALLED_S = 600.0
# Largest path token that is of use: 32 random bytes.
_TOKEN_BYTES = 32
_METHODS = "GET, HEAD, OPTIONS"


class TraceServer:
    """Serves ``traces`` on 127.0.0.1 from the moment it is made; ``close`` or ``with`` ends it.

    ``port`` 0 takes a free one. ``seen_as``: the port by which the browser reaches it, where a tunnel lies between
    (its own port otherwise). ``on_fetched`` is called with the index of a trace, from another thread, each time one
    was transferred whole. Raises `InputError` where the port is taken or may not be used.
    """

    def __init__(
        self,
        traces: Sequence[OpenTrace],
        *,
        port: int = PORT,
        seen_as: int | None = None,
        origin: str = UI_ORIGIN,
        on_fetched: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._traces = tuple(traces)
        self._state = _State(len(self._traces), on_fetched)
        try:
            self._http = _Http((LOOPBACK, port), _Handler)
        except OSError as error:
            raise _no_port(port, error, tunnelled=seen_as is not None) from None
        self.port: int = self._http.server_address[1]
        self.seen_as = seen_as or self.port
        self.paths = tuple(f"/{secrets.token_urlsafe(_TOKEN_BYTES)}/{quote(t.name_bytes, safe='')}" for t in traces)
        self._http.job = _Job(
            files=dict(zip(self.paths, enumerate(self._traces), strict=True)),
            hosts=frozenset(f"{name}:{p}" for name in (LOOPBACK, "localhost") for p in (self.port, self.seen_as)),
            origin=origin,
            state=self._state,
        )
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="foretrace view", daemon=True
        )
        self._thread.start()

    @property
    def urls(self) -> list[str]:
        """The address of each trace, as the browser has to ask for it."""
        return [f"http://{LOOPBACK}:{self.seen_as}{path}" for path in self.paths]

    def wait(self, *, timeout: float | None, grace: float = GRACE_S) -> list[int]:
        """Wait until every trace was transferred whole, and ``grace`` seconds more.

        Returns the indices of the traces that were not, which is after ``timeout`` seconds (None: never) without a
        request for any of them; transfers that run are waited for. Raises `InputError` where a file changed.
        """
        return self._state.wait(timeout, grace)

    def close(self) -> None:
        """Stop listening. Transfers that run are cut off."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def __enter__(self) -> TraceServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _no_port(port: int, error: OSError, *, tunnelled: bool) -> InputError:
    if error.errno == errno.EADDRINUSE:
        find = f"netstat -ano | findstr :{port}" if sys.platform == "win32" else f"lsof -nP -iTCP:{port} -sTCP:LISTEN"
        only = f"; the Perfetto UI connects to no other port than {PORT}" if port == PORT else ""
        if tunnelled:
            only = ", or choose another with --port: the tunnel then leads to that"
        return InputError(
            f"port {port} is taken, often by another `foretrace view` or by trace_processor; find it with `{find}`, "
            f"end it and run this again{only}"
        )
    return InputError(f"port {port} of {LOOPBACK} cannot be used: {error.strerror or error}")


class _State:
    """What was asked for and what was transferred; shared by the threads of all connections."""

    def __init__(self, count: int, on_fetched: Callable[[int], None]) -> None:
        self._changed = threading.Condition()
        self._missing = set(range(count))
        self._active = 0
        self._last = time.monotonic()
        self._failed: str | None = None
        self._on_fetched = on_fetched

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around each answer to a request for a trace."""
        with self._changed:
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._last = time.monotonic()
                self._changed.notify_all()

    def fetched(self, index: int) -> None:
        with self._changed:
            self._missing.discard(index)
        self._on_fetched(index)

    def fail(self, sentence: str) -> None:
        with self._changed:
            self._failed = self._failed or sentence
            self._changed.notify_all()

    def wait(self, timeout: float | None, grace: float) -> list[int]:
        with self._changed:
            self._last = time.monotonic()
            while self._failed is None:
                patience = timeout if self._missing else grace
                left = None if patience is None else self._last + patience - time.monotonic()
                if left is not None and left <= 0 and not self._active:
                    return sorted(self._missing)
                # Never without a limit: on Windows Ctrl-C does not end an unlimited wait.
                self._changed.wait(1.0 if left is None or self._active else min(left, 1.0))
            raise InputError(self._failed)


class _Job:
    """What the handlers of one server need to know."""

    def __init__(
        self, files: dict[str, tuple[int, OpenTrace]], hosts: frozenset[str], origin: str, state: _State
    ) -> None:
        self.files, self.hosts, self.origin, self.state = files, hosts, origin, state


class _Http(ThreadingMixIn, TCPServer):
    """Not ``http.server.HTTPServer``: that asks the name service for this machine's name, which can take seconds."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    # On Windows the option would let another program take the port while this one listens.
    allow_reuse_address = sys.platform != "win32"
    job: _Job

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A connection that breaks is the browser's business, and it will ask again; anything else is ours."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.job.state.fail(f"a request could not be answered: {type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "foretrace"
    sys_version = ""
    timeout = _SILENT_S
    server: _Http

    def log_message(self, *_: Any) -> None:
        """Nothing: the paths are secrets."""

    def __getattr__(self, name: str) -> Any:
        # Methods that are not defined below; the base class would answer 501, "not implemented".
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def do_GET(self) -> None:
        """Send a trace."""
        self._answer()

    def do_HEAD(self) -> None:
        """Say how long a trace is."""
        self._answer()

    def do_OPTIONS(self) -> None:
        """Say whether a page may ask."""
        self._answer()

    def _answer(self) -> None:
        job = self.server.job
        if self._only("Host") not in job.hosts:
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers requests to this machine only.")
        elif self.headers.get("Origin") is not None and self._only("Origin") != job.origin:
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers the Perfetto UI only.")
        elif self.command not in ("GET", "HEAD", "OPTIONS"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This server only gives.", Allow=_METHODS)
        elif self.path not in job.files:
            self._refuse(HTTPStatus.NOT_FOUND, "There is nothing here.")
        else:
            index, trace = job.files[self.path]
            with job.state.request():
                if self.command == "OPTIONS":
                    self._allow()
                else:
                    self._send(index, trace)

    def _only(self, header: str) -> str | None:
        """The value of a header that must be there once."""
        values = self.headers.get_all(header, [])
        return values[0].strip() if len(values) == 1 else None

    def _head(self, status: HTTPStatus, length: int, kind: str | None, **more: str) -> None:
        self.close_connection = True
        self.send_response(status)
        headers = {
            "Content-Length": str(length),
            "Cache-Control": "no-store",
            "Connection": "close",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Vary": "Origin",
            "X-Content-Type-Options": "nosniff",
            **({"Content-Type": kind} if kind else {}),
            **more,
        }
        if self.headers.get("Origin") is not None and self._only("Origin") == self.server.job.origin:
            headers["Access-Control-Allow-Origin"] = self.server.job.origin
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus, sentence: str, **more: str) -> None:
        body = f"{sentence}\n".encode()
        self._head(status, len(body), "text/plain; charset=utf-8", **more)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _allow(self) -> None:
        more = {"Allow": _METHODS}
        if self.headers.get("Origin") is not None:
            more |= {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": "0"}
            if self.headers.get(ASK_PRIVATE_NETWORK) == "true":
                more[ALLOW_PRIVATE_NETWORK] = "true"
        self._head(HTTPStatus.NO_CONTENT, 0, None, **more)

    def _send(self, index: int, trace: OpenTrace) -> None:
        changed = trace.changed()
        if changed:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "The file changed.")
            self.server.job.state.fail(changed)
            return
        self._head(HTTPStatus.OK, trace.size, trace.content_type)
        if self.command == "HEAD":
            return
        self.connection.settimeout(_STALLED_S)
        at = 0
        while at < trace.size:
            piece = trace.read(at, min(_PIECE, trace.size - at))
            if not piece:
                self.server.job.state.fail(trace.changed() or f"{trace.path} ended early while it was served")
                return
            self.wfile.write(piece)
            at += len(piece)
        if trace.changed():
            self.server.job.state.fail(trace.changed())
        elif self._taken():
            self.server.job.state.fetched(index)

    def _taken(self) -> bool:
        """Whether the other side took all of it: it then closes, and otherwise resets, the connection.

        Without this a browser that goes away early would pass for one that has everything: the system takes some
        megabytes off our hands at once.
        """
        self.connection.settimeout(_SILENT_S)
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(_PIECE):
                pass
        except TimeoutError:  # it leaves the connection open; the system still delivers what is on its way
            return True
        except OSError:
            return False
        return True
