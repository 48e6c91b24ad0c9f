"""The Hub's buckets on this machine, as far as huggingface_hub and hf_xet call them.

Everything on the client's side is real: huggingface_hub's calls, hf_xet's chunking, hashing and transfer. The server
keeps what it is sent and can give a file back byte by byte, put together from the store's chunks as the Hub would.
Formats: huggingface.co/docs/xet (xorb, shard), read from what hf_xet 1.8.0 sends.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

USER = "ada"
TOKEN = "hf_THEsecretTOKENofADA0123"
_END_OF_FILES = b"\xff" * 32


@dataclass
class Rule:
    """An answer other than the usual one, for requests whose path has ``part`` in it; ``times`` of them."""

    part: str
    status: int
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1_000
    after: int = 0
    before: Callable[[], None] | None = None


@dataclass
class Bucket:
    private: bool
    files: dict[str, str] = field(default_factory=dict)  # path → hash


class FakeHub:
    """The server's state, and what it was asked."""

    def __init__(self) -> None:
        self.buckets: dict[str, Bucket] = {}
        self.requests: list[tuple[str, str]] = []
        self.rules: list[Rule] = []
        self.page = 1000
        self.waits: list[float] = []
        self.xorbs: dict[str, list[bytes]] = {}
        self.parts: dict[str, list[tuple[str, int, int, int]]] = {}  # file → (xorb, first chunk, last, bytes)
        self.url = ""

    def fail(self, part: str, status: int, said: str = "", **more: Any) -> None:
        """Answer requests for a path with ``part`` in it with an error."""
        headers = more.pop("headers", {})
        self.rules.append(Rule(part, status, {"error": said} if said else {}, headers, **more))

    def asked(self, part: str) -> list[str]:
        """The requests for paths that hold ``part``: "POST /api/…"."""
        return [f"{method} {path}" for method, path in self.requests if part in path]

    def content(self, bucket: str, path: str) -> bytes:
        """What the bucket has under a path."""
        return self._content(self.buckets[bucket].files[path])

    def put(self, bucket: str, path: str, data: bytes, folder: Path) -> None:
        """Put a file into a bucket, past the client."""
        import hf_xet

        file = folder / "put"
        file.write_bytes(data)
        hash_ = hf_xet.hash_files([str(file)])[0].hash
        self.xorbs[f"put-{hash_}"] = [data]
        self.parts[hash_] = [(f"put-{hash_}", 0, 1, len(data))]
        self.buckets[bucket].files[path] = hash_

    def size(self, hash_: str) -> int:
        return sum(part[3] for part in self.parts[hash_])

    def _content(self, hash_: str) -> bytes:
        return b"".join(b"".join(self.xorbs[xorb][first:last]) for xorb, first, last, _ in self.parts[hash_])

    # What follows answers requests.

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any, dict[str, str]]:
        self.requests.append((method, target))
        for rule in self.rules:
            if rule.part in target and rule.times:
                if rule.after:
                    rule.after -= 1
                    continue
                rule.times -= 1
                if rule.before:
                    rule.before()
                return rule.status, rule.body, rule.headers
        path = urlsplit(target).path
        if path.startswith("/cas/"):
            return self._store(path, body)
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}, {}
        if path == "/api/whoami-v2":
            return 200, {"name": USER, "type": "user"}, {}
        _, _, _, space, name, *rest = path.split("/")
        return self._bucket(method, f"{space}/{name}", rest, target, body)

    def _bucket(
        self, method: str, bucket: str, rest: list[str], target: str, body: bytes
    ) -> tuple[int, Any, dict[str, str]]:
        if method == "POST" and not rest:
            if not bucket.startswith(f"{USER}/"):
                return 403, {"error": "You don't have the rights to create a bucket there"}, {}
            if bucket in self.buckets:
                return 409, {"error": "exists", "url": f"{self.url}/buckets/{bucket}"}, {}
            self.buckets[bucket] = Bucket(json.loads(body).get("visibility") == "private")
            return 200, {"url": f"{self.url}/buckets/{bucket}"}, {}
        if bucket not in self.buckets:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        files = self.buckets[bucket].files
        if not rest:
            info = {"id": bucket, "private": self.buckets[bucket].private, "createdAt": "2026-01-01T00:00:00.000Z"}
            return 200, info | {"size": sum(map(self.size, files.values())), "totalFiles": len(files)}, {}
        if rest[0] == "xet-write-token":
            grant = {"accessToken": "store", "exp": int(time.time()) + 3600, "casUrl": f"{self.url}/cas"}
            return 200, grant, {}
        if rest[0] == "tree":
            return self._tree(files, unquote("/".join(rest[1:])), target)
        if rest[0] == "batch":
            return self._batch(files, body)
        return 404, {"error": f"no such route: {method} {target}"}, {}

    def _tree(self, files: dict[str, str], prefix: str, target: str) -> tuple[int, Any, dict[str, str]]:
        begin = int(parse_qs(urlsplit(target).query).get("cursor", ["0"])[0])
        paths = sorted(
            path for path in files if not prefix or path.startswith(prefix)
        )  # as text, so "run" finds "runs/x"
        shown = [
            {"type": "file", "path": path, "size": self.size(files[path]), "xetHash": files[path]}
            for path in paths[begin : begin + self.page]
        ]
        more = {}
        if len(paths) > begin + self.page:
            address = f"{self.url}{urlsplit(target).path}?recursive=True&cursor={begin + self.page}"
            more = {"Link": f'<{address}>; rel="next"'}
        return 200, shown, more

    def _batch(self, files: dict[str, str], body: bytes) -> tuple[int, Any, dict[str, str]]:
        operations = [json.loads(line) for line in body.splitlines()]
        for operation in operations:
            if operation["type"] == "addFile":
                files[operation["path"]] = operation["xetHash"]
            else:
                files.pop(operation["path"])
        return 200, {"success": True, "processed": len(operations), "succeeded": len(operations), "failed": []}, {}

    def _store(self, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        if path.startswith("/cas/v1/xorbs/"):
            self.xorbs[path.rpartition("/")[2]] = list(_chunks(body))
            return 200, {"was_inserted": True}, {}
        if path == "/cas/v1/shards":
            for hash_, parts in _files_of(body):
                self.parts[hash_] = parts
            return 200, {"result": 1}, {}
        return 404, {}, {}  # no global deduplication, no upload grants, no second version


def _chunks(xorb: bytes) -> Iterator[bytes]:
    at = 0
    while at + 8 <= len(xorb) and xorb[at] == 0:
        packed, scheme, plain = (
            int.from_bytes(xorb[at + 1 : at + 4], "little"),
            xorb[at + 4],
            int.from_bytes(xorb[at + 5 : at + 8], "little"),
        )
        if not plain:
            return
        assert scheme == 0, "the fixture switches compression off"
        yield xorb[at + 8 : at + 8 + packed]
        at += 8 + packed


def _files_of(shard: bytes) -> Iterator[tuple[str, list[tuple[str, int, int, int]]]]:
    at = 48
    while shard[at : at + 32] != _END_OF_FILES:
        name = _hex(shard[at : at + 32])
        flags, entries = struct.unpack_from("<II", shard, at + 32)
        at += 48
        parts = []
        for _ in range(entries):
            _, size, first, last = struct.unpack_from("<IIII", shard, at + 32)
            parts.append((_hex(shard[at : at + 32]), first, last, size))
            at += 48
        at += 48 * entries if flags & 0x8000_0000 else 0  # their verification
        at += 48 if flags & 0x4000_0000 else 0  # SHA-256
        yield name, parts


def _hex(value: bytes) -> str:
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", value))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, said, headers = self.hub.answer(self.command, self.path, self.headers, body)
        data = json.dumps(said).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815  (the base class's names)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client that was interrupted, or did not wait
            super().handle_error(request, client_address)


@contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    """Run the server; gives its address."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment_of(folder: Path) -> dict[str, str]:
    """The variables under which nothing of the user's is read or written, and the store's data can be read."""
    return {
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_XET_CACHE": str(folder / "xet"),
        "HF_XET_XORB_COMPRESSION_POLICY": "none",
        "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "0",
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub that huggingface_hub takes for the real one; nothing leaves this machine."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session
    from huggingface_hub.utils._xet import abort_xet_session

    folder = tmp_path_factory.mktemp("home")
    for name in ("HF_HUB_OFFLINE", "HF_OIDC_RESOURCE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment_of(folder).items():
        monkeypatch.setenv(name, value)
    # Another test of the same process may have set the variable before huggingface_hub read it.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "hf" / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(folder / "hf" / "stored_tokens"))
    fake = FakeHub()
    # Nobody waits, neither we nor huggingface_hub between its retries; for how long they would have is noted.
    monkeypatch.setattr("time.sleep", fake.waits.append)
    abort_xet_session()  # the store's client reads its settings once
    with serving(fake) as url:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        yield fake
        abort_xet_session()
        close_session()
