"""From a mangled C++ name to a readable one, or to the identifiers inside it.

The demangler is LLVM's (``pycxxfilt``), because names on ROCm use types that older demanglers do not know, such
as ``DF16b`` for ``std::bfloat16_t``. It is imported on the first mangled name only. Where it is absent, or where the
profiler cut the name short, the length-prefixed identifiers of the mangled name are still read in their order.
"""

from __future__ import annotations

import re

__all__ = ["demangle", "is_mangled", "spelled_out"]

# A longer name is not handed to the demangler: its recursion is bounded by the C stack only.
_LONGEST = 16_384
_MANGLED = re.compile(r"_{1,4}Z[NLK0-9a-zS]")
_DIGITS = re.compile(r"[0-9]+")


def is_mangled(name: str) -> bool:
    """Whether ``name`` looks like an Itanium-mangled C++ name."""
    return _MANGLED.match(name) is not None


def demangle(name: str) -> str | None:
    """The readable form of a mangled name, or ``None`` when it cannot be had."""
    if len(name) > _LONGEST or not name.isprintable():
        return None
    try:
        import pycxxfilt
    except ImportError:
        return None
    try:
        readable = pycxxfilt.itanium_demangle(name)
    except (ValueError, TypeError):
        return None
    return str(readable) if readable else None


def spelled_out(name: str) -> str:
    """A mangled name's identifiers (``3foo`` is the identifier ``foo``) as ``scope::function<the rest, in order>``.

    Runs in time linear in the length of the name and needs no grammar, so that it works on a name cut short. What is no
    identifier (numbers, built-in types) is left out.
    """
    function: list[str] = []
    rest: list[str] = []
    position = name.find("Z") + 1
    position += name[position : position + 1] == "N"
    in_function = True
    while match := _DIGITS.search(name, position):
        # The nested name ends at the first letter that is no length of an identifier: `I`, `E`.
        in_function = in_function and match.start() == position
        start, digits = match.end(), match.group()
        length = int(digits) if len(digits) <= 4 else 0
        word = name[start : start + length]
        # A number inside a literal (``Li128E``) is followed by no identifier of that length.
        if length and word and (word[0].isalpha() or word[0] == "_") and word.replace("_", "a").isalnum():
            (function if in_function else rest).append(word)
            position = start + length
        else:
            position = start
            in_function = False
    return "::".join(function) + (f"<{', '.join(rest)}>" if rest else "")
