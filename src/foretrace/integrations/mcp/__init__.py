"""An MCP server: a program that acts for an engineer asks foretrace about files below one folder.

``serve`` is what ``foretrace mcp`` runs; ``make_server`` makes the server without a transport. Both need the extra
``mcp``, which is imported only here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.integrations.mcp.server import make_server, serve

__all__ = ["make_server", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'foretrace.integrations.mcp' has no attribute {name!r}")
    from foretrace.errors import MissingExtraError

    try:
        import_module("mcp.server.mcpserver")
    except ImportError as error:
        raise MissingExtraError(
            f"the MCP server needs the SDK of the Model Context Protocol, version 2 or newer ({error}): "
            "pip install 'foretrace[mcp]'"
        ) from None
    return getattr(import_module("foretrace.integrations.mcp.server"), name)
