"""Versions: foretrace's own, so that any room can name it without loading the public names, and torch's as written."""

from __future__ import annotations

from foretrace.errors import InputError

__all__ = ["__version__", "torch_release"]

__version__ = "0.1.0"


def torch_release(text: str) -> tuple[int, int]:
    """Return (2, 11) for ``"2.11"``, ``"2.11.0+cu130"`` and the like; raises `InputError` for anything else."""
    numbers = text.partition("+")[0].split(".") if isinstance(text, str) else []
    if len(numbers) < 2 or not all(part.isdecimal() and len(part) <= 4 for part in numbers[:2]):
        raise InputError(f"{str(text)[:40]!r} is no version of torch; give one such as 2.11")
    return int(numbers[0]), int(numbers[1])
