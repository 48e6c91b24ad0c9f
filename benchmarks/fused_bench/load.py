"""How the GPU was running while something was timed: clocks and power, sampled beside it. Changes no setting."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from foretrace.timing import median

__all__ = ["Load", "reader_for", "show_load"]

Reading = tuple[float, float, int | None]  # SM clock MHz, power W, clocks-event reasons
# Bits of NVML's clocks-event reasons (nvml.h) that say why a clock is not at its maximum.
_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def reader_for(device: str) -> Callable[[], Reading] | None:
    """A function that reads the GPU once: through NVML's bindings, else nvidia-smi; ``None`` where neither answers."""
    if torch.device(device).type != "cuda":
        return None
    uuid = f"GPU-{getattr(torch.cuda.get_device_properties(torch.device(device)), 'uuid', '')}"
    for make in (_nvml, _nvidia_smi):
        try:
            read = make(uuid)
            read()
        except Exception:  # whatever is missing: the next way, or none
            continue
        return read
    return None


def _nvml(uuid: str) -> Callable[[], Reading]:
    import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    reasons = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )

    def read() -> Reading:
        clock = float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        return clock, power, int(reasons(handle)) if reasons else None

    return read


def _nvidia_smi(uuid: str) -> Callable[[], Reading]:
    command = ["nvidia-smi", "-i", uuid, "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits"]

    def read() -> Reading:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        clock, power = done.stdout.strip().split(",")
        return float(clock), float(power), None

    return read


class Load:
    """Samples on a thread of its own while its block runs. ``read``: as `reader_for` gives it."""

    def __init__(self, read: Callable[[], Reading] | None, period_s: float = 0.02) -> None:
        self._read = read
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.readings: list[Reading] = []

    def __enter__(self) -> Load:
        if self._read is not None:
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        assert self._read is not None
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                self.readings.append(self._read())
            except Exception:  # a driver that stops answering ends the sampling, not the benchmark
                return
            # A reading that takes long (a process of its own) must not keep the host busy.
            self._stop.wait(max(self._period_s, 20 * (time.monotonic() - start)))

    def summary(self) -> dict[str, Any] | None:
        """Medians, extremes, and what held the clocks down; ``None`` where nothing could be read."""
        if not self.readings:
            return None
        clocks = [clock for clock, _, _ in self.readings]
        power = [watts for _, watts, _ in self.readings]
        bits = 0
        for _, _, reasons in self.readings:
            bits |= reasons or 0
        return {
            "samples": len(self.readings),
            "sm_clock_mhz": {"median": median(clocks), "lowest": min(clocks), "highest": max(clocks)},
            "power_w": {"median": median(power), "lowest": min(power), "highest": max(power)},
            "held_down_by": [text for bit, text in _REASONS.items() if bits & bit],
        }


def show_load(found: dict[str, Any] | None) -> str:
    """``1560 MHz, 690 W, held down by software power cap``, or that it is not known."""
    if found is None:
        return "clocks and power not known"
    reasons = f", held down by {', '.join(found['held_down_by'])}" if found["held_down_by"] else ""
    return f"{found['sm_clock_mhz']['median']:.0f} MHz, {found['power_w']['median']:.0f} W{reasons}"
