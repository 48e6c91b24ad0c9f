"""The server itself: its tools, its one prompt, and how it lives on standard input and output."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from foretrace.integrations.mcp.answers import Answer, failed
from foretrace.integrations.mcp.guard import guarded, sentence_of
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.root import Root
from foretrace.integrations.mcp.surrogates import Mended
from foretrace.integrations.mcp.tools import (
    checking,
    comparing,
    decoding,
    event,
    explaining,
    finding,
    listing,
    loading,
    memory,
    oom,
    querying,
)
from foretrace.knowledge.agents import CACHE_BYTES, INSTRUCTIONS, MAX_BYTES, PROMPT, PROMPT_ABOUT, SERVER_NAME, TOOLS
from foretrace.model.words import listed
from foretrace.report.text import clean, cut
from foretrace.version import __version__

__all__ = ["make_server", "serve"]

_FUNCTIONS: dict[str, Callable[..., Answer]] = {
    "list_files": listing.list_files,
    "load": loading.load,
    "explain": explaining.explain,
    "finding": finding.finding,
    "event": event.event,
    "check": checking.check,
    "compare": comparing.compare,
    "query": querying.query,
    "decode_kernel": decoding.decode_kernel,
    "memory": memory.memory,
    "oom": oom.oom,
}
_READS_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


class _Server(MCPServer[None]):
    """The SDK's server, with one sentence for arguments that are not as declared, and none left without an answer."""

    async def run_stdio_async(self) -> None:
        """Serve on standard input and output."""
        async with stdio_server() as (messages, answers):
            server = self._lowlevel_server
            await server.run(Mended(messages), answers, server.create_initialization_options())

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; what is wrong with its name or its arguments becomes a tool error."""
        if name not in _FUNCTIONS:
            return failed(f"there is no tool {cut(name, 60)!r}; there are {listed(_FUNCTIONS)}")
        known = self._tool_input_schema(name) or {}
        unknown = sorted(set(arguments) - set(known.get("properties", {})))
        if unknown:
            takes = listed(known.get("properties", {}))
            return failed(f"{name} takes no argument {cut(unknown[0], 60)!r}; it takes {takes}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                return failed(f"{name}: {_wrong_arguments(cause)}")
            return failed(sentence_of(cause) if isinstance(cause, Exception) else str(error))


def _wrong_arguments(error: ValidationError) -> str:
    """What the first few arguments should have been."""
    said = []
    for one in error.errors(include_url=False, include_context=False)[:3]:
        place = ".".join(str(part) for part in one["loc"]) or "arguments"
        given = "" if one["type"] == "missing" else f" (given {cut(repr(one['input']), 60)})"
        message = one["msg"][:1].lower() + one["msg"][1:]
        said.append(f"{clean(place)}: {clean(message)}{given}")
    return "; ".join(said)


@asynccontextmanager
async def _protocol_alone(_: MCPServer[None]) -> AsyncIterator[None]:
    """Standard output carries the protocol: what anything prints goes to standard error, buffered text included."""
    with redirect_stdout(sys.stderr):
        yield


def make_server(root: str | Path, *, max_bytes: int = MAX_BYTES, cache_bytes: int = CACHE_BYTES) -> MCPServer[None]:
    """The server for the files below ``root``, with all its tools. The process must work in that folder (``serve``).

    ``max_bytes``: the largest file that is read, unpacked; ``cache_bytes``: what is kept of files that were read.
    Raises `InputError` where the root is no folder.
    """
    library = Library(Root(root, max_bytes=max_bytes), most_bytes=cache_bytes)
    server = _Server(
        SERVER_NAME,
        title="foretrace",
        description="Explains PyTorch profiler traces and GPU memory.",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="ERROR",
        lifespan=_protocol_alone,
        subscriptions=False,
    )
    for name, function in _FUNCTIONS.items():
        text = TOOLS[name]
        server.add_tool(
            guarded(function, library),
            name=name,
            title=text.title,
            description=text.description,
            annotations=_READS_ONLY.model_copy(update={"title": text.title}),
            structured_output=True,
        )

    @server.prompt(name="read_trace", title="Read a trace", description=PROMPT_ABOUT)
    def read_trace(path: str) -> str:
        return PROMPT.format(path=clean(path)[:500])

    return server


def serve(root: str | Path, *, max_bytes: int = MAX_BYTES, cache_bytes: int = CACHE_BYTES) -> int:
    """Serve on standard input and output until the client closes them, or Ctrl-C; returns the exit code 0.

    Raises `InputError` where the root is no folder.
    """
    server = make_server(root, max_bytes=max_bytes, cache_bytes=cache_bytes)
    os.chdir(Path(root).resolve())
    waiting = _leave_on_signals()
    try:
        server.run("stdio")
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The client is gone; what is left to write would be an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if any(thread not in (waiting, threading.current_thread()) for thread in threading.enumerate()):
        _leave()  # a trace may be half read in a thread that nobody waits for
    return 0


def _leave_on_signals() -> threading.Thread:
    """End the process at once on Ctrl-C or SIGTERM, from a thread that waits for them, which is returned.

    Nothing is written, so nothing can be left half done. The main thread cannot do it: Python runs a handler there only
    when it wakes up, and a signal that comes just before it waits for the next message does not wake it.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    deadly = (signal.SIGINT, signal.SIGTERM)
    for number in deadly:
        signal.signal(number, lambda *_: _leave())
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        with reader, writer:
            while not set(deadly) & set(reader.recv(16)):
                pass
        _leave()

    thread = threading.Thread(target=wait, name="signals", daemon=True)
    thread.start()
    return thread


def _leave() -> NoReturn:
    os._exit(0)
