"""A tool's function becomes what the SDK calls: in a thread, its errors one sentence, its answer tidy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp_types import CallToolResult

from foretrace.errors import ForetraceError
from foretrace.integrations.mcp.answers import Answer, failed, finished
from foretrace.integrations.mcp.library import Library
from foretrace.knowledge.agents import SPELLINGS, WORKERS

__all__ = ["guarded", "sentence_of"]

_limiters: list[anyio.CapacityLimiter] = []


def guarded(function: Callable[..., Answer], library: Library) -> Callable[..., Coroutine[Any, Any, CallToolResult]]:
    """The function without its first parameter, which is the library, as a coroutine that never raises.

    Its signature tells the SDK the schemas of the arguments and of the answer.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())[1:]
    answer = signature.return_annotation

    async def call(**arguments: Any) -> CallToolResult:
        if not _limiters:
            _limiters.append(anyio.CapacityLimiter(WORKERS))
        work = partial(_run, function, library, arguments)
        # A client that no longer waits is not waited for: the thread's result is dropped.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiters[0])

    returned = Annotated[CallToolResult, answer]
    call.__name__ = call.__qualname__ = function.__name__
    call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": returned}
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=returned)  # type: ignore[attr-defined]
    return call


def _run(function: Callable[..., Answer], library: Library, arguments: dict[str, Any]) -> CallToolResult:
    try:
        return finished(function(library, **arguments))
    except Exception as error:
        return failed(sentence_of(error))


def sentence_of(error: Exception) -> str:
    """What a client is told of an error: its own sentence if it is one of ours, else what is known of it."""
    if isinstance(error, ForetraceError):
        sentence = str(error)
        for written, here in SPELLINGS:
            sentence = sentence.replace(written, here)
        return sentence
    if isinstance(error, MemoryError):
        return "the server's machine has not enough memory for this; name a smaller file"
    if isinstance(error, OSError) and error.strerror:
        return f"a file cannot be read: {error.strerror}"
    said = " ".join(str(error).split())[:300]
    return f"this is a defect of foretrace: {type(error).__name__}{': ' if said else ''}{said}; please report it"
