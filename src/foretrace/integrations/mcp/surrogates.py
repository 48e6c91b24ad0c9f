r"""Messages that the SDK's JSON reader refuses for half a surrogate pair, such as the text ``"\ud800"``.

JSON allows it, Python's and JavaScript's writers write it, and the SDK gives such a message no answer, since it does
not know whose it was. The half is replaced, as everywhere else, by U+FFFD, and the call is answered.
"""

from __future__ import annotations

import re
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

__all__ = ["Mended", "whole"]

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


class Mended:
    """The stream of messages that a server reads, with those mended that can be."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        """The next message, or what was wrong with it."""
        return _mended(await self._stream.receive())

    def __aiter__(self) -> Mended:
        return self

    async def __anext__(self) -> Any:
        return _mended(await self._stream.__anext__())

    async def __aenter__(self) -> Mended:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


def whole(text: str) -> str:
    """JSON text without halves of surrogate pairs."""
    return _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found.group(), text)


def _mended(item: Any) -> Any:
    if not isinstance(item, ValidationError):
        return item
    given = [error["input"] for error in item.errors(include_url=False) if error["type"] == "json_invalid"]
    if not given or not isinstance(given[0], str) or (text := whole(given[0])) == given[0]:
        return item
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValidationError:
        return item
