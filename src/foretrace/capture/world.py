"""How ``foretrace doctor`` looks at the machine: small functions, each of which a test can replace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Any

from foretrace.errors import MissingExtraError

__all__ = ["TorchFacts", "World"]


@dataclass(frozen=True)
class TorchFacts:
    """What the installed torch says about itself."""

    version: str
    cuda_runtime: str | None  # the CUDA version it was built for; None: built without
    hip_runtime: str | None
    gpu_available: bool
    gpus: list[str]
    activities: list[str]


def _torch_facts() -> TorchFacts | str:
    from foretrace.capture.torch_backend import import_torch

    try:
        torch = import_torch()
    except MissingExtraError as error:
        return str(error)
    available = bool(torch.cuda.is_available())
    return TorchFacts(
        version=str(torch.__version__),
        cuda_runtime=torch.version.cuda,
        hip_runtime=getattr(torch.version, "hip", None),
        gpu_available=available,
        gpus=[torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if available else [],
        activities=sorted(item.name for item in torch.profiler.supported_activities()),
    )


def _selftest() -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "foretrace.capture.selftest"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"the self-test could not be run: {type(error).__name__}"}
    try:
        result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"the self-test ended with exit code {done.returncode}: {said}"}
    result["log"] = done.stderr
    return result


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def _glob(pattern: str) -> list[str]:
    path = Path(pattern)
    try:
        return sorted(map(str, Path(path.anchor or ".").glob(str(path.relative_to(path.anchor)))))
    except (OSError, ValueError):  # ValueError: an odd entry of LD_LIBRARY_PATH is no pattern
        return []


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _module_found(name: str) -> bool:
    return util.find_spec(name) is not None


def _site_libraries(pattern: str) -> list[str]:
    """Shared libraries of wheels that match ``pattern``, below the folders Python imports from."""
    return [
        found
        for folder in sys.path
        if folder.endswith("-packages")
        for found in sorted(map(str, Path(folder).glob(pattern)))
    ]


@dataclass(frozen=True)
class World:
    """The machine as the checks see it."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    platform: str = sys.platform
    read: Callable[[str], str | None] = _read  # the text of a file, or None
    glob: Callable[[str], list[str]] = _glob  # absolute paths that match a pattern
    which: Callable[[str], str | None] = shutil.which
    package: Callable[[str], str | None] = _package  # version of an installed distribution
    module_found: Callable[[str], bool] = _module_found
    site_libraries: Callable[[str], list[str]] = _site_libraries
    torch: Callable[[], TorchFacts | str] = _torch_facts  # or why there is none
    selftest: Callable[[], dict[str, Any]] = _selftest
