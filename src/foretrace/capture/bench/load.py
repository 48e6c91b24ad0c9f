"""The GPU's clocks and power while it works, from the driver's own tool; idle it would tell nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

from foretrace.capture.bench.tools import synchronize
from foretrace.knowledge.benching import SLOWED
from foretrace.model.bench import Load

__all__ = ["parse_load", "under_load"]

_FIELDS = ("uuid", "clocks.sm", "power.draw")
# The newer name of the field, and the one drivers before 535 know.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_MOST_S = 10.0
_SETTLE_S = 0.2  # clocks follow the load after some tens of milliseconds


def under_load(call: Callable[[], Any], device: str) -> Load:
    """Ask nvidia-smi while ``call`` runs again and again; never raises."""
    if not device.startswith("cuda"):
        return Load(missing=dict.fromkeys(("sm_clock_mhz", "power_w", "slowed_by"), "read on NVIDIA GPUs only"))
    answer = ""
    for reasons in _REASONS:
        code, answer = _ask(reasons, call, device)
        if code == 0:
            return parse_load(answer, _uuid(device))
        if code is None:
            break
    return Load(missing=dict.fromkeys(("sm_clock_mhz", "power_w", "slowed_by"), answer))


def _ask(reasons: str, call: Callable[[], Any], device: str) -> tuple[int | None, str]:
    """The exit code and the answer, or ``None`` and why there is none."""
    _work(call, device, until=time.monotonic() + _SETTLE_S)
    query = f"--query-gpu={','.join((*_FIELDS, reasons))}"
    try:
        process = subprocess.Popen(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return None, "nvidia-smi was not found"
    with process:
        _work(call, device, until=time.monotonic() + _MOST_S, done=lambda: process.poll() is not None)
        if process.poll() is None:
            process.kill()
            return None, "nvidia-smi did not answer"
        answer = process.stdout.read() if process.stdout is not None else ""
    return process.returncode, answer or f"nvidia-smi failed with exit code {process.returncode}"


def _work(call: Callable[[], Any], device: str, *, until: float, done: Callable[[], bool] = lambda: False) -> None:
    while time.monotonic() < until and not done():
        for _ in range(4):
            call()
        synchronize(device)


def _uuid(device: str) -> str:
    import torch

    return str(getattr(torch.cuda.get_device_properties(torch.device(device)), "uuid", "")).lower()


def parse_load(answer: str, uuid: str) -> Load:
    """Read one GPU's row: by UUID, or the only one there is."""
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    rows = [row for row in rows if len(row) == len(_FIELDS) + 1]
    row = next((row for row in rows if uuid and uuid in row[0].lower()), rows[0] if len(rows) == 1 else None)
    load = Load()
    if row is None:
        why = "nvidia-smi lists several GPUs, and none by this UUID" if rows else "nvidia-smi listed no GPU"
        load.missing = dict.fromkeys(("sm_clock_mhz", "power_w", "slowed_by"), why)
        return load
    for field, cell in (("sm_clock_mhz", row[1]), ("power_w", row[2])):
        try:
            setattr(load, field, float(cell))
        except ValueError:
            load.missing[field] = f"the driver says {cell}"
    try:
        active = int(row[3], 16)
    except ValueError:
        load.missing["slowed_by"] = f"the driver says {row[3]}"
    else:
        load.slowed_by = [words for bit, words in SLOWED.items() if active & bit]
    return load
