"""The side file: what a trace does not hold, written next to it by ``foretrace run`` and ``profile``.

A Kineto trace knows what ran; it does not know on which driver and clocks, from which command and seed, nor
how long a step takes *without* the profiler. The side file of ``x.trace.json.gz`` is ``x.trace.side.json``.

Times are microseconds (``*_us``), sizes bytes, clocks MHz. A field that could not be found out is ``None``,
and ``missing`` holds the reason under the field's name (dotted where nested: ``"software.driver"``).
Fields may be added within ``foretrace.side/1``, never changed or removed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from foretrace.model.whole import write_whole

__all__ = [
    "SCHEMA",
    "DeviceMemory",
    "GpuState",
    "Machine",
    "MemoryHistory",
    "Options",
    "Schedule",
    "SideFile",
    "Software",
    "Unprofiled",
    "read_side",
    "side_path",
    "snapshot_path",
    "stem_of",
    "traces_of_snapshot",
    "write_side",
]

SCHEMA: Literal["foretrace.side/1"] = "foretrace.side/1"

_SNAPSHOT = ".snapshot.pickle"


class Software(msgspec.Struct, kw_only=True):
    """Versions of what ran."""

    foretrace: str | None = None
    python: str | None = None
    torch: str | None = None
    triton: str | None = None
    cuda_runtime: str | None = None  # the CUDA version torch was built for
    hip_runtime: str | None = None
    driver: str | None = None


class GpuState(msgspec.Struct, kw_only=True):
    """One GPU as the driver described it when the recording ended; clocks in MHz, memory in bytes."""

    index: int
    name: str | None = None
    compute_capability: str | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    persistence_mode: str | None = None


class Machine(msgspec.Struct, kw_only=True):
    """The host. Neither its name nor its user's name is recorded."""

    cpu: str | None = None
    cores: int | None = None  # logical cores this process may use
    threads: int | None = None  # torch's intra-op threads
    os: str | None = None


class Schedule(msgspec.Struct, kw_only=True):
    """Steps by what the profiler did in them. ``None`` in the side file: the whole block was recorded."""

    wait: int
    warmup: int
    active: int
    warm_calls: int = 0  # calls before the first step of the schedule
    recorded: int | None = None  # active steps that really were recorded


class Options(msgspec.Struct, kw_only=True):
    """How the profiler was set up."""

    activities: list[str] = []
    shapes: bool | None = None
    stacks: bool | None = None
    memory: bool | None = None


class Unprofiled(msgspec.Struct, kw_only=True):
    """The same step timed without the profiler; µs."""

    median_us: float
    iqr_us: float | None
    runs: int
    method: str  # "cuda_events" (GPU time from event to event) | "perf_counter" (host time)
    samples_us: list[float] = []
    warmup: int = 0


class DeviceMemory(msgspec.Struct, kw_only=True):
    """One GPU's memory when the snapshot was taken; sizes in bytes, peaks and counts since the process began."""

    index: int
    free_bytes: int | None = None  # of the whole device, as the driver says (other processes count)
    total_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    alloc_retries: int | None = None  # how often the allocator gave up its cache to serve a request
    ooms: int | None = None
    memory_fraction: float | None = None  # the share this process may use; None: no limit was set, or torch cannot say


class MemoryHistory(msgspec.Struct, kw_only=True):
    """What the allocator's own history gave (``--memory``); ``None`` in the side file: it was not asked for."""

    snapshot: str | None = None  # name of the pickle beside the trace, no folder
    began: str | None = None  # "before the model was built" | "before the script began" | "when the block began" | …
    max_entries: int | None = None  # events that the history keeps, the last ones
    timing: str | None = None  # what of the timings ran while the history was on
    devices: list[DeviceMemory] = []


class SideFile(msgspec.Struct, kw_only=True):
    """Everything known about a recording that its trace lacks."""

    schema: Literal["foretrace.side/1"] = SCHEMA
    trace: str | None = None  # name of the trace file this belongs to, no folder
    created: str | None = None  # ISO 8601, UTC
    complete: bool | None = None  # False: the recording ended early; `warnings` says how
    command: list[str] | None = None
    workload: str | None = None
    parameters: dict[str, Any] = {}
    variant: str | None = None
    mode: str | None = None
    device: str | None = None
    seed: int | None = None
    label: str | None = None
    software: Software = msgspec.field(default_factory=Software)
    machine: Machine = msgspec.field(default_factory=Machine)
    gpus: list[GpuState] = []
    schedule: Schedule | None = None
    options: Options = msgspec.field(default_factory=Options)
    unprofiled: Unprofiled | None = None
    profiled_steps_us: list[float] | None = None  # host time of each active step, profiler running
    first_call_us: float | None = None  # the first call, compilation included
    recompiles: int | None = None  # graphs torch.compile made after the first call
    peak_memory_bytes: int | None = None  # largest allocated CUDA memory during the unprofiled pass
    exit_code: int | None = None  # of a recorded script
    memory: MemoryHistory | None = None
    warnings: list[str] = []
    missing: dict[str, str] = {}


def side_path(trace_path: str | os.PathLike[str]) -> Path:
    """Return where a trace's side file lies: ``x.json.gz`` and ``x.json`` → ``x.side.json``."""
    path = Path(trace_path)
    return path.with_name(_without(path.name, ".gz", ".json") + ".side.json")


def stem_of(trace_path: str | os.PathLike[str]) -> str:
    """The name that a recording's files share: ``x`` of ``x.trace.json.gz`` and of ``x.json``."""
    return _without(Path(trace_path).name, ".gz", ".json", ".trace")


def _without(name: str, *endings: str) -> str:
    for ending in endings:
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
    return name


def snapshot_path(trace_path: str | os.PathLike[str]) -> Path:
    """Return where a trace's allocator snapshot lies: ``x.trace.json.gz`` and ``x.json`` → ``x.snapshot.pickle``."""
    side = side_path(trace_path)
    return side.with_name(side.name.removesuffix(".side.json").removesuffix(".trace") + _SNAPSHOT)


def traces_of_snapshot(snapshot: str | os.PathLike[str]) -> list[Path]:
    """Which traces an allocator snapshot may have been recorded with, packed or not: the reverse of `snapshot_path`.

    ``x.snapshot.pickle`` → ``x.trace.json``, ``x.json``, for `read_side` and `side_path`; none for another name.
    """
    path = Path(snapshot)
    stem = path.name.removesuffix(_SNAPSHOT)
    return [] if stem == path.name else [path.with_name(f"{stem}{ending}") for ending in (".trace.json", ".json")]


def read_side(trace_path: str | os.PathLike[str]) -> SideFile | None:
    """Read the side file of a trace; ``None`` when there is none, or none that can be used.

    A side file only adds to a trace, so nothing in it can make reading the trace fail: a field of the wrong
    type is left at its default and named in ``missing``, unknown fields are skipped, and another schema
    (``foretrace.side/2``) counts as no side file.
    """
    try:
        raw = msgspec.json.decode(side_path(trace_path).read_bytes())
    except (OSError, ValueError):  # msgspec.DecodeError and UnicodeDecodeError are ValueErrors
        return None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        return None
    usable: dict[str, Any] = {}
    dropped: list[str] = []
    for field in msgspec.structs.fields(SideFile):
        if field.name not in raw:
            continue
        try:
            usable[field.name] = msgspec.convert(raw[field.name], field.type)
        except msgspec.ValidationError:
            dropped.append(field.name)
    side = SideFile(**usable)
    for name in dropped:
        side.missing[name] = "the side file holds a value of another type"
    return side


def write_side(trace_path: str | os.PathLike[str], side: SideFile) -> Path:
    """Write the side file of a trace, whole or not at all, and return its path.

    Raises ``OSError`` when the folder cannot be written to.
    """
    path = side_path(trace_path)
    write_whole(path, msgspec.json.format(msgspec.json.encode(side), indent=2) + b"\n")
    return path
