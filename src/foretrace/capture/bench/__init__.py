"""Timing variants of one program against each other: ``foretrace bench``. Starts no profiler."""

from __future__ import annotations

from foretrace.capture.bench.contest import Request, run_bench
from foretrace.capture.bench.tools import Tools

__all__ = ["Request", "Tools", "run_bench"]
