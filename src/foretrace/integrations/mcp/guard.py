"""A tool's function becomes what the SDK calls: in a thread, its errors one sentence, its answer tidy."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp_types import CallToolResult

from foretrace import errors
from foretrace.analysis.tables.interrupt import Interrupt
from foretrace.integrations.mcp.answers import Answer, failed, finished
from foretrace.integrations.mcp.library import Library
from foretrace.knowledge.agents import SPELLINGS, WORKERS

__all__ = ["guarded", "sentence_of"]


class _Slots:
    """How many calls may work; each holds its place until its thread has ended, whether or not anyone waits for it."""

    def __init__(self) -> None:
        self.places = anyio.CapacityLimiter(WORKERS)
        # No second queue: a call that has a place has a thread.
        self.threads = anyio.CapacityLimiter(math.inf)
        self.loop = asyncio.get_running_loop()

    def give_back(self, job: _Job) -> None:
        """Free the place of a job, from any thread."""
        with suppress(RuntimeError):  # the server has ended, and nobody waits for a place
            self.loop.call_soon_threadsafe(self.places.release_on_behalf_of, job)


class _Job:
    """One call: it begins in a thread, or is dropped before, and never both."""

    def __init__(self) -> None:
        self.interrupt = Interrupt()
        self._lock = threading.Lock()
        self._settled = False

    def settle(self) -> bool:
        """Whether the caller is the first to settle what becomes of it: its thread, or who cancels it."""
        with self._lock:
            first, self._settled = not self._settled, True
            return first


_slots: list[_Slots] = []


def guarded(function: Callable[..., Answer], library: Library) -> Callable[..., Coroutine[Any, Any, CallToolResult]]:
    """The function without its first parameter, which is the library, as a coroutine that never raises.

    Its signature tells the SDK the schemas of the arguments and of the answer.
    """
    signature = inspect.signature(function, eval_str=True)
    parameters = list(signature.parameters.values())[1:]
    answer = signature.return_annotation

    async def call(**arguments: Any) -> CallToolResult:
        slots = _slots_here()
        job = _Job()
        await slots.places.acquire_on_behalf_of(job)
        work = partial(_run, function, library, arguments, job, slots)
        try:
            # A client that no longer waits is not waited for: its queries are ended and the thread's result is dropped.
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=slots.threads)
        except BaseException:  # it is cancelled, or there is no thread to be had
            if job.settle():
                slots.places.release_on_behalf_of(job)
            job.interrupt.set()
            raise

    returned = Annotated[CallToolResult, answer]
    call.__name__ = call.__qualname__ = function.__name__
    call.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": returned}
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=returned)  # type: ignore[attr-defined]
    return call


def _slots_here() -> _Slots:
    """Those of this event loop; a process has one server at a time."""
    if not _slots or _slots[0].loop is not asyncio.get_running_loop():
        _slots[:] = [_Slots()]
    return _slots[0]


def _run(
    function: Callable[..., Answer], library: Library, arguments: dict[str, Any], job: _Job, slots: _Slots
) -> CallToolResult:
    if not job.settle():
        return failed("the call was cancelled")
    try:
        with job.interrupt.covering():
            return finished(function(library, **arguments))
    except Exception as error:
        return failed(sentence_of(error))
    finally:
        slots.give_back(job)


def sentence_of(error: Exception) -> str:
    """What a client is told of an error: no path of the server's machine, and the words of the tools' arguments."""
    sentence = errors.sentence_of(error, name_files=False, machine="the server's machine")
    if isinstance(error, errors.ForetraceError):
        for written, here in SPELLINGS:
            sentence = sentence.replace(written, here)
    return sentence
