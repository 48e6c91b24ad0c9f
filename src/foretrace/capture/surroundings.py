"""What a trace does not say about where it was made: versions, driver, clocks, CPU, command.

Only what explains a performance is recorded. Host and user names are not; paths in the command line are cut
to what is below the working folder or ``~``, and the values of flags that look like secrets are left out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from foretrace import __version__
from foretrace.model.sidefile import GpuState, Machine, SideFile, Software

__all__ = ["describe", "gpu_states", "nvidia_smi", "safe_command"]

# nvidia-smi field → field of GpuState and the factor to its unit; names from `nvidia-smi --help-query-gpu`.
_SMI: dict[str, tuple[str, float]] = {
    "clocks.sm": ("sm_clock_mhz", 1.0),
    "clocks.max.sm": ("sm_clock_max_mhz", 1.0),
    "clocks.mem": ("memory_clock_mhz", 1.0),
    "clocks.max.mem": ("memory_clock_max_mhz", 1.0),
    "power.limit": ("power_limit_w", 1.0),
    "temperature.gpu": ("temperature_c", 1.0),
}
_SMI_TEXT = ("uuid", "name", "driver_version", "persistence_mode")
_SECRET = re.compile(r"(token|secret|passw|credential|api[-_]?key|auth)", re.IGNORECASE)


def describe(side: SideFile) -> None:
    """Fill in everything about the surroundings that ``side`` does not hold yet; never raises."""
    torch = sys.modules.get("torch")  # a recording has loaded it; if not, there is nothing to ask
    side.created = side.created or datetime.now(UTC).isoformat(timespec="seconds")
    if side.command is None:
        side.command = safe_command(sys.argv)
    side.software = Software(foretrace=__version__, python=platform.python_version())
    side.machine = Machine(cpu=_cpu_name(), cores=_cores(), os=f"{platform.system()} {platform.machine()}")
    try:
        side.software.triton = metadata.version("triton")
    except metadata.PackageNotFoundError:
        side.missing["software.triton"] = "Triton is not installed"
    if torch is None:
        side.missing["software.torch"] = "torch was not loaded"
        return
    side.software.torch = str(torch.__version__)
    side.software.cuda_runtime = torch.version.cuda
    side.software.hip_runtime = getattr(torch.version, "hip", None)
    side.machine.threads = torch.get_num_threads()
    if torch.cuda.is_available():
        side.gpus, side.software.driver, missing = gpu_states(torch, nvidia_smi())
        side.missing.update(missing)
    else:
        side.missing["gpus"] = side.missing["software.driver"] = "no GPU that torch can use"


def gpu_states(torch: Any, rows: list[dict[str, str]] | str) -> tuple[list[GpuState], str | None, dict[str, str]]:
    """Join torch's devices with the rows of :func:`nvidia_smi`, by UUID, or by index when the counts agree.

    Returns the devices, the driver's version and the reasons for what is missing.
    """
    missing: dict[str, str] = {}
    if isinstance(rows, str):
        missing["gpus.sm_clock_mhz"] = missing["software.driver"] = rows
        rows = []
    count = torch.cuda.device_count()
    states = []
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        state = GpuState(
            index=index,
            name=properties.name,
            compute_capability=f"{properties.major}.{properties.minor}",
            memory_bytes=properties.total_memory,
        )
        uuid = str(getattr(properties, "uuid", "")).lower()
        row = next((row for row in rows if uuid and uuid in row.get("uuid", "").lower()), None)
        if row is None and len(rows) == count:
            row = rows[index]
        if row is not None:
            for field, (name, factor) in _SMI.items():
                value = _number(row.get(field))
                setattr(state, name, None if value is None else value * factor)
            state.persistence_mode = row.get("persistence_mode")
        elif rows:
            missing["gpus.sm_clock_mhz"] = "nvidia-smi lists other GPUs than torch, and no UUID to join them by"
        states.append(state)
    driver = rows[0].get("driver_version") if rows else _driver_file()
    if driver is not None:
        missing.pop("software.driver", None)
    return states, driver, missing


def nvidia_smi(run: Callable[..., Any] = subprocess.run) -> list[dict[str, str]] | str:
    """Ask nvidia-smi about all GPUs: a row a GPU, or the reason why there are none."""
    fields = [*_SMI_TEXT, *_SMI]
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        result = run(command, capture_output=True, text=True, timeout=10, check=False)
    except FileNotFoundError:
        return "nvidia-smi was not found"
    except (OSError, subprocess.SubprocessError) as error:
        return f"nvidia-smi could not be run: {type(error).__name__}"
    if result.returncode != 0:
        return f"nvidia-smi failed with exit code {result.returncode}"
    rows = []
    for line in result.stdout.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            rows.append(dict(zip(fields, cells, strict=True)))
    return rows or "nvidia-smi listed no GPU"


def safe_command(argv: Sequence[str]) -> list[str]:
    """Return a command line fit to be passed on: short paths, no secrets."""
    shown: list[str] = []
    hide_next = False
    for position, word in enumerate(argv):
        if hide_next and not word.startswith("-"):
            shown.append("***")
            hide_next = False
            continue
        flag, equals, _value = word.partition("=")
        hide_next = word.startswith("-") and not equals and _SECRET.search(word) is not None
        if equals and _SECRET.search(flag):
            shown.append(f"{flag}=***")
        elif position == 0:
            path = Path(word)  # `python -m foretrace` stands here as …/foretrace/__main__.py
            shown.append(path.parent.name if path.name == "__main__.py" else path.name)
        else:
            shown.append(_short_path(word))
    return shown


def _short_path(word: str) -> str:
    for start, instead in ((str(Path.cwd()), "."), (str(Path.home()), "~")):
        if word == start or word.startswith(start + os.sep):
            return instead + word[len(start) :]
    return word


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


def _driver_file(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    try:
        found = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", path.read_text())
    except OSError:
        return None
    return found.group(1) if found else None


def _cpu_name(path: Path = Path("/proc/cpuinfo")) -> str | None:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", path.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else (platform.processor() or None)


def _cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
