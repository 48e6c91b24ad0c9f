"""The committed summary of what a test runs: ``foretrace.baseline/1``, small, ordered, and one entry a line.

Counts are per step, the most that any recorded step had; no time is kept. What could not be counted (kernels on a
machine without a GPU) is ``None``. Fields may be added within ``foretrace.baseline/1``, never changed or removed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.errors import InputError
from foretrace.model.whole import special_file, write_whole

__all__ = [
    "SCHEMA",
    "Baseline",
    "Change",
    "Drift",
    "KernelCount",
    "MadeOn",
    "OperatorCount",
    "Part",
    "TransferCount",
    "WaitCount",
    "baseline_text",
    "read_baseline",
    "write_baseline",
]

SCHEMA: Literal["foretrace.baseline/1"] = "foretrace.baseline/1"


class MadeOn(msgspec.Struct, kw_only=True, frozen=True):
    """On what the test ran."""

    torch: str | None
    gpu: str | None  # the GPU's name; None: nothing ran on one
    dtypes: list[str]  # floating-point types that the operators were given


class KernelCount(msgspec.Struct, kw_only=True, frozen=True):
    """Kernels of one short name that one operator launches."""

    kernel: str
    kind: str
    operator: str | None
    path: list[str]  # the operators around it, outermost first
    epilogue: list[str]
    count: int


class TransferCount(msgspec.Struct, kw_only=True, frozen=True):
    """Copies or memsets that one operator makes."""

    copy: str  # the row's name: "Memcpy DtoH (Device -> Pageable)"
    kind: Literal["memcpy", "memset"]
    operator: str | None
    path: list[str]
    count: int


class WaitCount(msgspec.Struct, kw_only=True, frozen=True):
    """Calls in which the host waits for the GPU."""

    call: str
    operator: str | None
    path: list[str]
    count: int


class OperatorCount(msgspec.Struct, kw_only=True, frozen=True):
    """Calls of one operator in one place: the operators around it, outermost first, and its own name last."""

    path: list[str]
    count: int


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """One recording of the test."""

    label: str
    totals: dict[str, int]  # kernels, launches, memcpys, memsets, synchronizations: those that could be counted
    kernels: list[KernelCount] | None
    transfers: list[TransferCount] | None
    waits: list[WaitCount] | None
    operators: list[OperatorCount] | None


class Baseline(msgspec.Struct, kw_only=True, frozen=True):
    """What one test runs."""

    schema: Literal["foretrace.baseline/1"] = SCHEMA
    test: str  # "test_mlp.py::test_forward[bf16]"
    made_on: MadeOn
    parts: list[Part]


@dataclass(frozen=True)
class Change:
    """One difference, in words.

    Attributes:
        more: an increase or a loss, which fails the test.
        paths: the calls of the new recording that it is about: the operators around each, and its own name last.
        times: how many of the calls at these places are new; 0 where all are.
        part: the recording it is about, where the test makes several.
    """

    text: str
    more: bool
    why: str | None = None
    paths: tuple[tuple[str, ...], ...] = ()
    times: int = 0
    part: str | None = None


@dataclass
class Drift:
    """All differences from a baseline.

    ``notes`` say what was compared in part only; ``unseen`` why kernels and copies of the baseline could not be looked
    for at all (no GPU here), ``None`` where they could; ``compared`` whether anything was looked at on both sides.
    """

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unseen: str | None = None
    compared: bool = True

    @property
    def more(self) -> list[Change]:
        """The increases and losses."""
        return [change for change in self.changes if change.more]


def baseline_text(baseline: Baseline) -> str:
    """The file's text: JSON with one entry a line, so that a change of one thing is a change of one line."""
    return _laid_out(msgspec.to_builtins(baseline), 0) + "\n"


def _laid_out(value: Any, depth: int) -> str:
    """Objects and lists that hold objects are opened; the others stand on one line. Totals are opened, too."""
    opened = isinstance(value, dict | list) and bool(value)
    if isinstance(value, dict) and "count" in value:
        opened = False
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        opened = False
    if not opened:
        return json.dumps(value, ensure_ascii=False)
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict):
        rows = [f"{inner}{json.dumps(key)}: {_laid_out(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    rows = [f"{inner}{_laid_out(item, depth + 1)}" for item in value]
    return "[\n" + ",\n".join(rows) + f"\n{outer}]"


def read_baseline(path: Path) -> Baseline | None:
    """The baseline in a file; ``None`` where there is no file. Raises ``InputError`` for one that cannot be used."""
    again = "make it anew with pytest --foretrace-update"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"the baseline {path} cannot be read: {error.strerror or error}") from None
    try:
        raw = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the baseline {path} is no JSON ({error}); {again}") from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SCHEMA:
        said = f"has the schema {schema}" if isinstance(schema, str) else "names no schema"
        raise InputError(f"the baseline {path} {said}, and this foretrace reads {SCHEMA}; {again}")
    try:
        return msgspec.convert(raw, Baseline)
    except msgspec.ValidationError as error:
        raise InputError(f"the baseline {path} is damaged ({error}); {again}") from None


def write_baseline(path: Path, baseline: Baseline) -> bool:
    """Write a baseline, whole or not at all; False where the file says the same already. Raises ``InputError``."""
    content = baseline_text(baseline).encode()
    try:
        # A pipe would be waited for.
        if special_file(path) is None and path.exists() and path.read_bytes() == content:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise InputError(f"the baseline {path} cannot be written: {error.strerror or error}") from None
    return True
