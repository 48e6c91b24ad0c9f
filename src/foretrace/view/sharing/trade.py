"""The words that traces are written in: who is called like one of them cannot be told from it outside of a path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import msgspec

import foretrace.model
from foretrace.knowledge import sharing as facts

__all__ = ["known_keys", "trade_words"]

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_ESCAPE = re.compile(r"\\[A-Za-z]")
_DEEPEST = 8


@cache
def known_keys() -> frozenset[str]:
    """The keys that Kineto and foretrace's own documents are read by, as they are spelled."""
    documents = (
        field.encode_name
        for module in _modules(foretrace.model)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
        for field in msgspec.structs.fields(value)
    )
    return facts.KINETO_KEYS | frozenset(documents)


@cache
def trade_words() -> frozenset[str]:
    """Every word, in lower case, of the knowledge base's grammars and of the known keys.

    It is read from the grammars themselves, so that a kernel that they learn to read is known here as well.
    """
    import foretrace.knowledge

    words: set[str] = set(facts.COMMON_NAMES)
    for key in facts.KINETO_KEYS:
        words.update(_words_of(key))
        words.add(key.lower())
    seen: set[int] = set()
    for module in _modules(foretrace.knowledge):
        if module.__name__.split(".")[2] in facts.GRAMMARS:
            for name, value in vars(module).items():
                if not name.startswith("__"):
                    for text in _texts(value, seen, 0):
                        words.update(_words_of(text))
    return frozenset(words)


def _words_of(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(_ESCAPE.sub(" ", text))}


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        yield module
        if found.ispkg:
            yield from _modules(module)


def _texts(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    """The strings and patterns a constant is made of."""
    if isinstance(value, str):
        yield value
        return
    if isinstance(value, re.Pattern):
        yield str(value.pattern)
        return
    if id(value) in seen or depth > _DEEPEST or isinstance(value, type):
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [*value, *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    elif isinstance(value, msgspec.Struct):
        inner = [getattr(value, name, None) for name in value.__struct_fields__]
    elif is_dataclass(value):
        inner = [getattr(value, field.name, None) for field in fields(value)]
    for one in inner:
        yield from _texts(one, seen, depth + 1)
