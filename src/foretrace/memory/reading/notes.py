"""Sentences about what a snapshot's data holds: values in short, and one sentence for many of a kind."""

from __future__ import annotations

from typing import TypeGuard

from foretrace.knowledge.snapshots import ADDRESSES, LATEST_US

__all__ = ["Notes", "is_time", "is_whole", "shown", "text_of"]


class _Count(int):
    """How many there are; ``{n:segment|segments}`` in a sentence chooses by it."""

    def __format__(self, choice: str) -> str:
        one, bar, many = choice.partition("|")
        return (one if self == 1 else many) if bar else int.__format__(self, choice)


class Notes:
    """Sentences about many things of one kind: how many there are, and the first of them."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}

    def add(self, sentence: str, first: str, many: int = 1) -> None:
        """``sentence``: with ``{n}`` for how many there are and ``{n:one|many}`` for words that go by it."""
        count, known = self._seen.get(sentence, (0, first))
        self._seen[sentence] = count + many, known

    def sentences(self) -> tuple[str, ...]:
        """One for each kind."""
        return tuple(f"{text.format(n=_Count(count))} (first: {first})" for text, (count, first) in self._seen.items())


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number of 64 bits, signed or not; True and False are none."""
    return type(value) is int and -(ADDRESSES >> 1) <= value < ADDRESSES


def is_time(value: object) -> TypeGuard[int]:
    """Whether it is a time in µs since 1970 that a clock could have shown."""
    return type(value) is int and 0 <= value <= LATEST_US


def shown(value: object) -> str:
    """A value of a file in a sentence: short, printable, and without walking what may be nested without end."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int) and value.bit_length() > 80:
        return f"{'minus ' if value < 0 else ''}more than 2**{value.bit_length() - 1}"
    return repr(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


def text_of(value: object) -> str:
    """A text as it is, anything else as `shown`."""
    return value if isinstance(value, str) else shown(value)
