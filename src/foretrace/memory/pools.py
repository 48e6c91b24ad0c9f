"""Pools of the CUDA allocator, as they are written: two numbers."""

from __future__ import annotations

from foretrace.errors import InputError

__all__ = ["pool_of"]


def pool_of(text: str) -> tuple[int, int]:
    """``0.1`` as the snapshot has it, ``(0, 1)``; raises `InputError` for what is no pool."""
    first, dot, second = text.partition(".")
    if not (dot and text.isascii() and first.isdecimal() and second.isdecimal()):
        raise InputError(f"{text!r} is no pool; write two numbers, as 0.0 (ordinary tensors) or 0.1")
    return int(first), int(second)
