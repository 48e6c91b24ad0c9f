"""From a module and its inputs to the `Program` it is on a GPU: traced with torch on the meta device, no GPU needed."""

from __future__ import annotations

from typing import Any

__all__ = ["meta_target", "trace_program"]


def __getattr__(name: str) -> Any:
    # torch is loaded only by who traces; whoever reads a program imports the package without it.
    if name == "trace_program":
        from foretrace.prediction.program.tracing import trace_program

        return trace_program
    if name == "meta_target":
        from foretrace.prediction.program.target import meta_target

        return meta_target
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
