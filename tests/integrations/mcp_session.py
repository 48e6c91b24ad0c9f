"""A client of the SDK that drives ``foretrace mcp`` over real pipes, for tests that are not async."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, GetPromptResult, Tool


class Session:
    """One server process and the client that started it."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal, self.client = portal, client
        self.tools: dict[str, Tool] = {tool.name: tool for tool in portal.call(client.list_tools).tools}
        self.checkers = {name: jsonschema.Draft202012Validator(tool.output_schema) for name, tool in self.tools.items()}

    def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        result = self.portal.call(self.client.call_tool, name, arguments)
        assert isinstance(result, CallToolResult)
        return result

    def answer(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer, held against the schema that the tool declares; the text says the same."""
        result = self.call(name, arguments)
        assert not result.is_error, result.content
        content = result.structured_content
        self.checkers[name].validate(content)
        assert json.loads(result.content[0].text) == content
        return content

    def refusal(self, name: str, **arguments: Any) -> str:
        """The one sentence of a tool error."""
        result = self.call(name, arguments)
        assert result.is_error
        assert result.structured_content is None
        [block] = result.content
        assert "\n" not in block.text
        assert "Traceback" not in block.text
        return block.text

    def prompt(self, name: str, **arguments: str) -> GetPromptResult:
        return self.portal.call(self.client.get_prompt, name, arguments)


@contextmanager
def served(root: Path, *flags: str, mode: str = "auto", program: list[str] | None = None) -> Iterator[Session]:
    """``foretrace mcp --root ROOT`` with a client at its pipes."""
    command = program or ["-m", "foretrace", "mcp", "--root", str(root), *flags]
    server = StdioServerParameters(command=sys.executable, args=command)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server), mode=mode)) as client,
    ):
        yield Session(portal, client)
