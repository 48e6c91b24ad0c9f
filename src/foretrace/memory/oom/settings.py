"""What PYTORCH_CUDA_ALLOC_CONF and the version were, as the user says it; read as the allocator reads it."""

from __future__ import annotations

import re

from foretrace.errors import InputError
from foretrace.knowledge.out_of_memory import CONF_OPTIONS, WORDED_BY, WORDED_BY_VERSION, WORDINGS
from foretrace.memory.oom.messages import Message

__all__ = ["fitting_version", "read_conf", "read_version"]

_PAIR = re.compile(r"([A-Za-z0-9_]+):(\[[^\[\]]*\]|[^,:\[\]]+)(?:,|$)")
_VALUES = {
    "truth": (re.compile(r"True|False"), "True or False"),
    "number": (re.compile(r"\d{1,12}"), "a whole number"),
    "share": (re.compile(r"\d?\.?\d{1,12}"), "a number between 0 and 1"),
    "list": (re.compile(r"\d{1,6}|\[[\d:,>]+\]"), "a number or a list such as [256:1,512:2,>:4]"),
    "word": (re.compile(r"\w{1,40}"), "native or cudaMallocAsync"),
}


def read_conf(text: str) -> dict[str, str]:
    """The options of ``expandable_segments:True,max_split_size_mb:128``; spaces do not count, a later one wins.

    The variable's name may stand before it. Raises `InputError` where the allocator would refuse it.
    """
    pairs = re.sub(r"^\s*\w*ALLOC_CONF\s*=", "", text)
    pairs = re.sub(r"""[\s"']""", "", pairs)
    options: dict[str, str] = {}
    position = 0
    while position < len(pairs):
        match = _PAIR.match(pairs, position)
        if match is None:
            raise InputError(f"--conf {text!r} is not NAME:VALUE,NAME:VALUE, such as expandable_segments:True")
        name, value = match[1], match[2]
        if name not in CONF_OPTIONS:
            raise InputError(f"--conf: the allocator knows no option {name!r}; it has {', '.join(CONF_OPTIONS)}")
        pattern, wanted = _VALUES[CONF_OPTIONS[name]]
        if not pattern.fullmatch(value):
            raise InputError(f"--conf: {name} takes {wanted}, not {value!r}")
        options[name] = value
        position = match.end()
    return options


def read_version(text: str) -> tuple[int, int]:
    """Major and minor of ``2.4``, ``2.4.1+cu121`` or ``v2.4``; raises `InputError` for anything else."""
    match = re.match(r"\s*v?(\d{1,3})\.(\d{1,3})(?![0-9])", text)
    if match is None:
        raise InputError(f"--torch {text!r} is no version; write 2.4 or 2.4.1")
    return int(match[1]), int(match[2])


def fitting_version(message: Message, version: tuple[int, int] | None) -> tuple[list[str], tuple[int, int] | None]:
    """The version to go by: none where the message is not worded as that one does, with what is to be said of it."""
    span = WORDED_BY.get(message.wording or "")
    if version is None or span is None or message.backend not in WORDED_BY_VERSION:
        return [], version
    first, last = span
    if (first is None or version >= first) and (last is None or version <= last):
        return [], version
    words = WORDINGS[message.wording or ""]
    return [
        f"--torch {version[0]}.{version[1]} does not fit: PyTorch {words} words it so, and the wording counts."
    ], None
