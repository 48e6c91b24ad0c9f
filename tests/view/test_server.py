"""The server of ``foretrace view``, over real sockets: who gets the bytes, who does not, and when it ends."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from foretrace.errors import InputError
from foretrace.knowledge.perfetto import UI_ORIGIN
from foretrace.view.opening import OpenTrace
from foretrace.view.server import TraceServer

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.0}
UI = {"Origin": UI_ORIGIN}
ENOUGH_S = 20.0  # never waited for where the test passes


def text_of(events: int = 1) -> bytes:
    return b'{"schemaVersion": 1, "traceEvents": [%b]}' % b", ".join([json.dumps(EVENT).encode()] * events)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "a trace #1.json"
    file.write_bytes(text_of())
    return file


@pytest.fixture
def serve(path: Path) -> Iterator[Callable[..., TraceServer]]:
    """Start a server on a free port with these files (``path`` where none is named)."""
    with_end: list[TraceServer | OpenTrace] = []

    def start(*files: Path, **options: object) -> TraceServer:
        traces = [OpenTrace(file) for file in files or (path,)]
        server = TraceServer(traces, port=0, **options)  # type: ignore[arg-type]
        with_end.extend((server, *traces))
        return server

    yield start
    for thing in with_end:
        thing.close()


def ask(
    server: TraceServer, method: str = "GET", target: str | None = None, headers: Mapping[str, str] = UI
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ENOUGH_S)
    connection.request(method, server.paths[0] if target is None else target, headers=dict(headers))
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def raw(server: TraceServer, lines: str) -> bytes:
    """What comes back for a request written by hand."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=ENOUGH_S) as connection:
        connection.sendall(lines.encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def request_line(server: TraceServer, index: int = 0) -> str:
    return f"GET {server.paths[index]} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nOrigin: {UI_ORIGIN}\r\n\r\n"


# ---- what is served


def test_the_ui_gets_the_bytes_as_they_are(serve: Callable[..., TraceServer], path: Path) -> None:
    response, body = ask(serve())
    assert (response.status, body) == (200, path.read_bytes())
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Content-Length"] == str(len(body))
    assert response.headers["Access-Control-Allow-Origin"] == UI_ORIGIN
    assert response.headers["Vary"] == "Origin"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Python" not in response.headers["Server"]


def test_gzip_goes_out_as_gzip_whatever_its_name(serve: Callable[..., TraceServer], tmp_path: Path) -> None:
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(text_of()))
    response, body = ask(serve(packed))
    assert body == packed.read_bytes()
    assert response.headers["Content-Type"] == "application/gzip"
    # The browser would unpack it, and the length would no longer be that of what the page gets.
    assert response.headers["Content-Encoding"] is None


def test_paths_cannot_be_guessed_and_say_the_name(serve: Callable[..., TraceServer], path: Path) -> None:
    first, second = serve(), serve()
    token, name = re.fullmatch(r"/([\w-]+)/([^/]+)", first.paths[0]).groups()  # type: ignore[union-attr]
    assert len(token) >= 43  # 256 bits
    assert unquote(name) == path.name
    assert first.paths != second.paths
    assert urlsplit(first.urls[0]).netloc == f"127.0.0.1:{first.port}"


def test_two_files_of_one_name_are_two_paths(serve: Callable[..., TraceServer], tmp_path: Path) -> None:
    files = [tmp_path / "x" / "t.json", tmp_path / "y" / "t.json"]
    for number, file in enumerate(files, 1):
        file.parent.mkdir()
        file.write_bytes(text_of(number))
    server = serve(*files)
    assert [ask(server, target=target)[1] for target in server.paths] == [text_of(1), text_of(2)]


@pytest.mark.skipif(os.name == "nt", reason="names on Windows are text")
def test_a_name_that_is_no_text_is_served(serve: Callable[..., TraceServer], tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.json"))
    try:
        file.write_bytes(text_of())
    except OSError:
        pytest.skip("this file system has no such names")
    assert ask(serve(file))[1] == text_of()


def test_only_the_loopback_interface_listens(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    assert server._http.server_address == ("127.0.0.1", server.port)
    assert server._http.socket.family == socket.AF_INET


# ---- who is refused


@pytest.mark.parametrize("target", ["/", "/index.html", "/status", "/../etc/passwd", "*"])
def test_other_paths_do_not_exist(serve: Callable[..., TraceServer], target: str) -> None:
    response, body = ask(serve(), target=target)
    assert response.status == 404
    assert b"passwd" not in body


def test_an_address_instead_of_a_path_is_no_path(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    answer = raw(server, request_line(server).replace("GET /", f"GET http://127.0.0.1:{server.port}/"))
    assert answer.startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("change", ["?", "?x=1", "/", "%20", "#a"])
def test_a_path_is_that_path_exactly(serve: Callable[..., TraceServer], change: str) -> None:
    server = serve()
    assert ask(server, target=server.paths[0] + change)[0].status == 404
    assert ask(server, target=server.paths[0].rsplit("/", 1)[0])[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_not_allowed(serve: Callable[..., TraceServer], method: str) -> None:
    response, _ = ask(serve(), method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://ui.perfetto.dev",
        "https://ui.perfetto.dev.evil.example",
        "https://ui.perfetto.dev:444",
        "https://UI.perfetto.dev/",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_pages_of_other_origins_get_nothing(serve: Callable[..., TraceServer], origin: str, method: str) -> None:
    response, body = ask(serve(), method, headers={"Origin": origin})
    assert response.status == 403
    assert response.headers["Access-Control-Allow-Origin"] is None
    assert b"aten::mm" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_a_name_that_was_pointed_here_is_refused(serve: Callable[..., TraceServer], host: str) -> None:
    server = serve()
    response, body = ask(server, headers={"Host": host.format(port=server.port)})
    assert response.status == 403
    assert b"aten::mm" not in body


@pytest.mark.parametrize("headers", ["", "Host: 127.0.0.1:{port}\r\nHost: evil.example\r\n"], ids=["none", "two"])
def test_one_host_must_be_named(serve: Callable[..., TraceServer], headers: str) -> None:
    server = serve()
    answer = raw(server, f"GET {server.paths[0]} HTTP/1.1\r\n{headers.format(port=server.port)}\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")


def test_a_second_origin_is_no_way_in(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    lines = request_line(server).replace("\r\n\r\n", "\r\nOrigin: https://evil.example\r\n\r\n")
    answer = raw(server, lines)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"Allow-Origin" not in answer


def test_localhost_is_this_machine_too(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    assert ask(server, headers={"Host": f"localhost:{server.port}"})[0].status == 200


def test_behind_a_tunnel_the_host_has_the_port_of_its_other_end(serve: Callable[..., TraceServer]) -> None:
    server = serve(seen_as=9001)
    assert urlsplit(server.urls[0]).netloc == "127.0.0.1:9001"
    assert ask(server, headers={"Host": "127.0.0.1:9001"})[0].status == 200
    assert ask(server, headers={"Host": "127.0.0.1:9002"})[0].status == 403


def test_without_an_origin_no_page_may_read_the_answer(serve: Callable[..., TraceServer]) -> None:
    response, _ = ask(serve(), headers={})
    assert response.status == 200
    assert response.headers["Access-Control-Allow-Origin"] is None


# ---- preflight


def test_a_preflight_is_answered_for_the_ui(serve: Callable[..., TraceServer]) -> None:
    asked = {**UI, "Access-Control-Request-Method": "GET", "Access-Control-Request-Private-Network": "true"}
    response, body = ask(serve(), "OPTIONS", headers=asked)
    assert (response.status, body) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == UI_ORIGIN
    assert "GET" in response.headers["Access-Control-Allow-Methods"]
    assert response.headers["Access-Control-Allow-Private-Network"] == "true"


def test_consent_is_given_only_where_it_was_asked_for(serve: Callable[..., TraceServer]) -> None:
    response, _ = ask(serve(), "OPTIONS")
    assert response.headers["Access-Control-Allow-Private-Network"] is None


def test_a_preflight_for_another_path_finds_nothing(serve: Callable[..., TraceServer]) -> None:
    assert ask(serve(), "OPTIONS", "/status")[0].status == 404


# ---- when it ends


def test_it_ends_after_the_transfer(serve: Callable[..., TraceServer]) -> None:
    fetched: list[int] = []
    server = serve(on_fetched=fetched.append)
    assert ask(server)[0].status == 200
    assert server.wait(timeout=ENOUGH_S, grace=0.05) == []
    assert fetched == [0]


def test_it_ends_when_each_file_was_transferred(serve: Callable[..., TraceServer], path: Path) -> None:
    server = serve(path, path)
    ask(server)
    ask(server)
    assert server.wait(timeout=0.05, grace=0.05) == [1]
    ask(server, target=server.paths[1])
    assert server.wait(timeout=ENOUGH_S, grace=0.05) == []


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("HEAD", None, UI),
        ("OPTIONS", None, UI),
        ("POST", None, UI),
        ("GET", "/status", UI),
        ("GET", None, {"Origin": "https://evil.example"}),
    ],
)
def test_what_transfers_nothing_does_not_end_it(
    serve: Callable[..., TraceServer], method: str, target: str | None, headers: dict[str, str]
) -> None:
    server = serve()
    ask(server, method, target, headers)
    assert server.wait(timeout=0.05) == [0]


def test_a_head_says_the_length_and_sends_nothing(serve: Callable[..., TraceServer], path: Path) -> None:
    response, body = ask(serve(), "HEAD")
    assert (response.status, body) == (200, b"")
    assert response.headers["Content-Length"] == str(path.stat().st_size)


def test_a_request_for_a_part_gets_the_whole(serve: Callable[..., TraceServer], path: Path) -> None:
    # RFC 9110, 14.2: a server may ignore Range; half a trace is of no use to anybody.
    response, body = ask(serve(), headers={**UI, "Range": "bytes=0-9"})
    assert (response.status, body) == (200, path.read_bytes())


def test_without_a_request_it_gives_up_and_says_for_what(serve: Callable[..., TraceServer]) -> None:
    assert serve().wait(timeout=0.05) == [0]


def test_requests_for_nothing_do_not_keep_it_alive(serve: Callable[..., TraceServer]) -> None:
    # The UI looks for a trace_processor on this port for as long as its tab is open.
    server = serve()
    done = threading.Event()

    def probe() -> None:
        while not done.is_set():
            ask(server, "POST", "/status")

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        assert server.wait(timeout=0.2) == [0]
    finally:
        done.set()
        thread.join()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More than the system's buffers between two sockets take off a sender's hands."""
    file = tmp_path / "large.json"
    file.write_bytes(text_of(250_000))
    assert file.stat().st_size > 20_000_000
    return file


def small_window(server: TraceServer) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(ENOUGH_S)
    connection.connect(("127.0.0.1", server.port))
    return connection


def test_an_interrupted_transfer_does_not_count_and_can_be_repeated(
    serve: Callable[..., TraceServer], large: Path
) -> None:
    server = serve(large)
    with small_window(server) as connection:
        connection.sendall(request_line(server).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert server.wait(timeout=0.05) == [0]
    assert ask(server)[1] == large.read_bytes()
    assert server.wait(timeout=ENOUGH_S, grace=0.05) == []


def test_a_reset_after_the_last_byte_was_handed_over_does_not_count(
    serve: Callable[..., TraceServer], path: Path
) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=ENOUGH_S) as connection:
        # A small file lies in the system's buffers whole, and the browser takes none of it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request_line(server).encode())
        while not connection.recv(1 << 16, socket.MSG_PEEK).endswith(path.read_bytes()):
            pass
    assert server.wait(timeout=0.05) == [0]


def test_a_slow_browser_is_waited_for(serve: Callable[..., TraceServer], large: Path) -> None:
    server = serve(large)
    ended: list[list[int]] = []
    with small_window(server) as connection:
        connection.sendall(request_line(server).encode())
        got = len(connection.recv(100))
        waiter = threading.Thread(target=lambda: ended.append(server.wait(timeout=0.01, grace=0.01)))
        waiter.start()
        waiter.join(0.3)
        assert ended == []  # thirty times its timeout, but a transfer runs
        while piece := connection.recv(1 << 20):
            got += len(piece)
    waiter.join(ENOUGH_S)
    assert ended == [[]]
    assert got > large.stat().st_size


def test_parallel_requests_get_it_whole_each(serve: Callable[..., TraceServer], large: Path) -> None:
    server = serve(large)
    bodies: list[bytes] = []
    threads = [threading.Thread(target=lambda: bodies.append(ask(server)[1])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ENOUGH_S)
    assert [body == large.read_bytes() for body in bodies] == [True] * 4


def test_connections_that_say_nothing_keep_nobody(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    assert ask(server)[0].status == 200
    began = time.monotonic()
    assert server.wait(timeout=ENOUGH_S, grace=0.05) == []
    server.close()
    assert time.monotonic() - began < 10
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    "lines", ["\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\x00\x01\r\n\r\n", f"GET /{'a' * 70000} HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_http_does_no_harm(serve: Callable[..., TraceServer], lines: str) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=ENOUGH_S) as connection:
        connection.sendall(lines.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
    assert ask(server)[0].status == 200


def test_the_port_is_free_again(serve: Callable[..., TraceServer]) -> None:
    server = serve()
    ask(server)
    server.close()
    with pytest.raises(ConnectionError):
        ask(server)
    with OpenTrace(server._traces[0].path) as trace, TraceServer([trace], port=server.port) as again:
        assert ask(again)[0].status == 200


def test_a_taken_port_is_said_with_what_to_do(path: Path) -> None:
    with socket.socket() as other, OpenTrace(path) as trace:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} is taken.*end it and run this again$"):
            TraceServer([trace], port=port)
        with pytest.raises(InputError, match=r"or choose another with --port: the tunnel then leads to that"):
            TraceServer([trace], port=port, seen_as=9001)


# ---- files that change


def test_a_file_that_was_replaced_is_served_as_it_was(serve: Callable[..., TraceServer], path: Path) -> None:
    server, before = serve(), path.read_bytes()
    newer = path.with_name("newer.json")
    newer.write_bytes(text_of(5))
    newer.replace(path)
    assert ask(server)[1] == before


@pytest.mark.parametrize("content", [text_of(9), text_of()[:-20], b""], ids=["grew", "shrank", "emptied"])
def test_a_file_that_was_written_to_is_an_error(serve: Callable[..., TraceServer], path: Path, content: bytes) -> None:
    server, size = serve(), path.stat().st_size
    path.write_bytes(content)
    response, body = ask(server)
    assert response.status == 500
    assert b"aten::mm" not in body
    with pytest.raises(
        InputError, match=f"changed while it was served .{size} bytes when it was opened, {len(content)} now"
    ):
        server.wait(timeout=ENOUGH_S)


def test_a_file_that_shrinks_under_a_transfer_is_an_error(serve: Callable[..., TraceServer], large: Path) -> None:
    server = serve(large)
    with small_window(server) as connection:
        connection.sendall(request_line(server).encode())
        connection.recv(100)
        os.truncate(large, 1000)
        while connection.recv(1 << 20):
            pass
    with pytest.raises(InputError, match="changed while it was served"):
        server.wait(timeout=ENOUGH_S)
