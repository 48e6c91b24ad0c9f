"""Check whether this machine can record GPU traces, and say what to do where it cannot.

Every line is ok, a problem, or unknown. A small recording in a process of its own decides; the other lines
explain it. Exit code 1 when there is a problem, else 0, also on a machine without a GPU or without torch.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from foretrace.capture.doctor import Check, examine
from foretrace.cli.streams import to_stdout

__all__ = ["SCHEMA", "add_arguments", "run"]

SCHEMA = "foretrace.doctor/1"

_COLORS = {"ok": "\033[32m", "problem": "\033[31m", "unknown": "\033[33m"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--json", action="store_true", help="print the checks as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the checks; 1 when there is a problem."""
    checks = examine()
    verdict = _verdict(checks)
    if args.json:
        document = {"schema": SCHEMA, "verdict": verdict, "checks": [_plain(check) for check in checks]}
        to_stdout(msgspec.json.encode(document) + b"\n")
    else:
        print(_text(checks, verdict, color=sys.stdout.isatty()))
    return 1 if any(check.state == "problem" for check in checks) else 0


def _plain(check: Check) -> dict[str, str | None]:
    return {"name": check.name, "state": check.state, "detail": check.detail, "advice": check.advice}


def _verdict(checks: list[Check]) -> str:
    by_name = {check.name: check for check in checks}
    if "selftest" not in by_name:
        return "Traces can be read; recording needs PyTorch 2.4 or newer (pip install torch)."
    problems = [check.name for check in checks if check.state == "problem"]
    if problems:
        return f"Recording does not work as it should: see {', '.join(problems)}."
    if "activities" in by_name:
        return "GPU traces can be recorded on this machine."
    return "CPU traces can be recorded on this machine, which has no GPU."


def _text(checks: list[Check], verdict: str, *, color: bool) -> str:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        state = f"{check.state:<8}"
        if color:
            state = f"{_COLORS[check.state]}{state}\033[0m"
        lines.append(f"{state} {check.name:<{width}}  {check.detail}")
        if check.advice is not None:
            lines.append(f"{'':8} {'':<{width}}  → {check.advice}")
    return "\n".join([*lines, "", verdict])
