"""What this process can run: the versions of torch and Triton, found without importing Triton."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass

__all__ = ["Environment", "capability", "current"]


@dataclass(frozen=True, slots=True)
class Environment:
    """``torch``, ``triton``: (major, minor), or ``None`` where it is not installed."""

    torch: tuple[int, int] | None
    triton: tuple[int, int] | None


@functools.cache
def current() -> Environment:
    """Return the versions of this process, looked up once."""
    return Environment(_version("torch"), _version("triton"))


def capability(architecture: str) -> tuple[int, int] | None:
    """Return compute capability of ``"sm_90"`` and the like, (9, 0); ``None`` for what is not an NVIDIA GPU."""
    matched = re.fullmatch(r"sm_(\d+)(\d)[af]?", architecture)
    return (int(matched[1]), int(matched[2])) if matched else None


def _version(name: str) -> tuple[int, int] | None:
    if importlib.util.find_spec(name) is None:
        return None
    # Triton's wheels go by several names (triton, pytorch-triton, …), all of which hold the module "triton".
    for distribution in (name, f"pytorch-{name}", f"{name}-nightly"):
        try:
            text = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        numbers = re.match(r"(\d+)\.(\d+)", text)
        return (int(numbers[1]), int(numbers[2])) if numbers else None
    return None
