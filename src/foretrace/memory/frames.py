"""Where an allocation came from: the few lines of its stack that a reader of the program knows.

A stack has twenty to sixty frames, Python and C++ mixed, and most of them are torch's own or the interpreter's. What
counts as whose is in `foretrace.knowledge.stack_frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from foretrace.knowledge.stack_frames import (
    AUTOGRAD_NODE,
    BACKWARD_FUNCTIONS,
    CPP_FILES,
    GENERATED,
    GENERIC_FILES,
    INSTALLED,
    INTERPRETER_FILES,
    LIBRARY_PLUMBING,
    NO_STACK_TEXT,
    OPERATOR,
    PLUMBING_FUNCTIONS,
    SPECIAL_ALLOCATIONS,
    STANDARD_LIBRARY,
    STANDARD_LIBRARY_FILES,
    TELLING_TORCH,
    TORCH_SOURCE,
    UNKNOWN_FRAMES_TEXT,
)
from foretrace.memory.snapshot import Frame

__all__ = ["module_of", "own_lines", "where"]

# own: the program. library: an installed package that is not torch. torch: torch's Python. generated: code that
# torch.compile wrote. native: C++. plumbing: what only hands a call on.
Owner = Literal["own", "library", "torch", "generated", "native", "plumbing"]

# A million allocations come from a few thousand frames, each seen in many stacks.
_FRAMES: Final = 1 << 14

# A frame as `traceback` prints it, which is how torch keeps the forward's frames of a backward allocation.


def own_lines(frames: Sequence[Frame]) -> list[str]:
    """The lines that say where in the program this happened, innermost first: "train.py:76 in <module>".

    Lines of the program and of installed packages, without torch's, the interpreter's and C++. Where there are none,
    the single most telling frame of torch: a node of the backward pass, an optimizer, a module, generated code, an
    operator. Empty only where no stack was recorded.
    """
    lines = [_line(frame) for frame in frames if _owner(frame) in ("own", "library")]
    if lines or not frames:
        return lines
    return [_most_telling(frames)]


def where(frames: Sequence[Frame]) -> str:
    """One short line that names the origin.

    The innermost line of the program or of an installed package; behind a package's line the program's that led
    there, and behind either what a library keeps for itself (a cuBLAS workspace). "no stack recorded" for none.
    """
    if not frames:
        return NO_STACK_TEXT
    lines = own_lines(frames)
    origin = lines[0]
    known = [frame for frame in frames if _owner(frame) in ("own", "library")]
    if known and _owner(known[0]) == "library":
        caller = next((frame for frame in known if _owner(frame) == "own"), None)
        if caller is not None:
            origin = f"{origin}, from {_line(caller)}"
    special = _special(frames)
    return f"{special}, from {origin}" if special is not None and special != origin else origin


def module_of(frames: Sequence[Frame]) -> str | None:
    """The module whose ``forward`` (or whose part of the backward pass) asked for the memory, as its line.

    A stack holds the line and the function, not the module's class: "model.py:12 in forward". The innermost forward
    of the program or of an installed package counts before torch's own modules. In the backward pass it is the node:
    "backward: AddmmBackward0". None where the frames show neither.
    """
    forwards = [frame for frame in frames if _python(frame) and _function(frame) == "forward"]
    if forwards:
        return _line(next((frame for frame in forwards if _owner(frame) in ("own", "library")), forwards[0]))
    node = _node(frames)
    backward = node is not None or any(_function(frame) in BACKWARD_FUNCTIONS for frame in frames)
    if not backward:
        return None
    return "backward" if node is None else f"backward: {node}"


def _path(frame: Frame) -> str:
    return frame.filename.replace("\\", "/")


def _function(frame: Frame) -> str:
    # Python 3.11 on records may carry the qualified name, "MLP.forward".
    return frame.name.rpartition(".")[2]


def _python(frame: Frame) -> bool:
    # C++ symbols carry a signature or a scope; a file with a bare ending is no Python either. "<stdin>", "<string>"
    # and a notebook's cells have no ending at all, but a line.
    path = _path(frame)
    if path.endswith(".py"):
        return True
    return frame.line > 0 and path not in ("", "??") and not path.endswith(CPP_FILES) and "::" not in frame.name


@lru_cache(_FRAMES)
def _owner(frame: Frame) -> Owner:
    if not _python(frame):
        return "native"
    path = _path(frame)
    if GENERATED.search(path):
        return "generated"
    installed = list(INSTALLED.finditer(path))
    if installed:
        package = path[installed[-1].end() :].partition("/")[0].removesuffix(".py")
        if package == "torch":
            return "torch"
        return "plumbing" if package in LIBRARY_PLUMBING else "library"
    if TORCH_SOURCE.search(path):
        return "torch"
    if path.startswith(INTERPRETER_FILES) or STANDARD_LIBRARY.search(path) or _function(frame) in PLUMBING_FUNCTIONS:
        return "plumbing"
    return "plumbing" if path in STANDARD_LIBRARY_FILES else "own"


def _file(frame: Frame) -> str:
    """A file as briefly as it is still found: from its package on, or its name, with its folder where needed."""
    path = _path(frame)
    installed = list(INSTALLED.finditer(path))
    if installed:
        return path[installed[-1].end() :]
    source = TORCH_SOURCE.search(path)
    if source:
        return path[source.end() :]
    parts = path.split("/")
    return "/".join(parts[-2:]).lstrip("/") if parts[-1] in GENERIC_FILES else parts[-1]


@lru_cache(_FRAMES)
def _line(frame: Frame) -> str:
    place = f"{_file(frame)}:{frame.line}" if frame.line else _file(frame)
    return f"{place} in {frame.name}" if frame.name else place


@lru_cache(_FRAMES)
def _node_named(symbol: str) -> str | None:
    match = AUTOGRAD_NODE.search(symbol)
    return None if match is None else match[1]


@lru_cache(_FRAMES)
def _special_named(symbol: str) -> str | None:
    return next((words for sign, words in SPECIAL_ALLOCATIONS if sign.search(symbol)), None)


def _node(frames: Sequence[Frame]) -> str | None:
    """The innermost node of the backward pass, by its C++ frame."""
    return next((node for frame in frames if (node := _node_named(frame.name)) is not None), None)


def _special(frames: Sequence[Frame]) -> str | None:
    """What a library keeps for itself behind an operator, by the innermost C++ frame that shows it."""
    native = (frame.name for frame in frames if _owner(frame) == "native")
    return next((words for name in native if (words := _special_named(name)) is not None), None)


def _most_telling(frames: Sequence[Frame]) -> str:
    """What to show of a stack without a line of the program."""
    python = [frame for frame in frames if _owner(frame) == "torch" and _function(frame) not in PLUMBING_FUNCTIONS]
    for place in TELLING_TORCH:
        found = next((frame for frame in python if _file(frame).startswith(place)), None)
        if found is not None:
            return _line(found)
    node = _node(frames)
    if node is not None:
        return f"backward: {node}"
    generated = next((frame for frame in frames if _owner(frame) == "generated"), None)
    if generated is not None:
        return f"generated code, {_line(generated)}"
    if python:
        return _line(python[0])
    # The outermost operator is the one the program called; those within it are its parts.
    operators = [match[1] for frame in frames if (match := OPERATOR.search(frame.name))]
    if operators:
        return f"aten::{operators[-1]}"
    special = _special(frames)
    if special is not None:
        return special
    named = next((frame for frame in frames if frame.name and frame.name != "??"), None)
    return UNKNOWN_FRAMES_TEXT if named is None else named.name.partition("(")[0] or named.name
