"""One source file of foretrace becomes a file of another package.

A package of Hugging Face `kernels` is loaded under a name that is made up per build, so nothing in it may say
``foretrace.fused…``: imports become relative, and a text that names a module becomes an expression that computes it.
Nothing else of a file changes. The operators' namespace follows from the package's name by itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.errors import InputError

__all__ = ["imported", "place_of", "rewritten"]

_ROOT = "foretrace.fused"
_MODULE = re.compile(r"foretrace\.fused(\.\w+)*")
# Modules of the package's tree that stand somewhere else there; all others keep their place below `foretrace.fused`,
# and `foretrace.errors` and its like move to the root.
_MOVED = {"foretrace.fused.hub.layers": "layers"}


@dataclass(frozen=True)
class _Change:
    """``text`` in place of what stands from ``start`` to ``end``, both (line from 1, column in UTF-8 bytes)."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def imported(source: str, name: str) -> set[str]:
    """The modules of foretrace that a file may import, at its top or later; of ``from a import b`` also ``a.b``."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None and _is_own(node.module):
            if node.level:
                raise InputError(f"{name}, line {node.lineno}: write the import absolute; the hub's layout reads it so")
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if _is_own(alias.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{_ROOT}."):
            found.add(node.value)
    return found


def rewritten(source: str, name: str, *, is_package: bool) -> str:
    """The text of module ``name`` (``foretrace.fused.steps``) as a file of the package.

    Args:
        source: its text here.
        name: its dotted name here.
        is_package: whether it is an ``__init__.py``.

    Raises:
        InputError: it names a module in a way that cannot be turned (``import foretrace.fused.steps``, an f-string).
    """
    tree = ast.parse(source)
    place = place_of(name)
    depth = (place.count(".") + 1 if place else 0) - (0 if is_package else 1)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.ops.foretrace":
            raise InputError(f"{name}, line {node.lineno}: take the operators by operators.NAMESPACE, not by its value")
    return _applied(source, [*_imports(tree, depth, name), *_module_names(tree, depth, name)])


def place_of(name: str) -> str:
    """Where a module stands in the package, from its root: ``foretrace.fused.kernels.tma`` → ``kernels.tma``."""
    if name in _MOVED:
        return _MOVED[name]
    for root in (_ROOT, "foretrace"):
        if name == root:
            return ""
        if name.startswith(f"{root}."):
            return name.removeprefix(f"{root}.")
    raise ValueError(f"{name} is no module of foretrace")


def _is_own(module: str) -> bool:
    return module == "foretrace" or module.startswith("foretrace.")


def _imports(tree: ast.Module, depth: int, name: str) -> Iterator[_Change]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(_is_own(alias.name) for alias in node.names):
            raise InputError(f"{name}, line {node.lineno}: write from … import …; a plain import cannot be turned")
        if not isinstance(node, ast.ImportFrom) or node.module is None or not _is_own(node.module):
            continue
        if node.module == "foretrace" and any(alias.name == "fused" for alias in node.names):
            raise InputError(f"{name}, line {node.lineno}: import what is needed of foretrace.fused, not fused itself")
        names = (alias.name if alias.asname is None else f"{alias.name} as {alias.asname}" for alias in node.names)
        text = f"from {'.' * (depth + 1)}{place_of(node.module)} import ({', '.join(names)})"
        yield _Change(*_extent(node), text)


def _module_names(tree: ast.Module, depth: int, name: str) -> Iterator[_Change]:
    """Texts that name a module of this package, as they are given to ``import_module``."""
    quoted = _documentation(tree)
    root = f'__package__.rsplit(".", {depth})[0]' if depth else "__package__"
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # A sentence may name a module; a text without a space that begins with one is a name being built.
            said = [str(part.value) for part in node.values if isinstance(part, ast.Constant)]
            if said and said[0].startswith(_ROOT) and not any(" " in text for text in said):
                raise InputError(f"{name}, line {node.lineno}: build the module's name without an f-string")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in quoted:
            if _MODULE.fullmatch(node.value) is None:
                continue
            place = place_of(node.value)
            yield _Change(*_extent(node), f'({root} + ".{place}")' if place else f"({root})")


def _documentation(tree: ast.AST) -> set[ast.Constant]:
    """Texts that are documentation, and those inside f-strings: they stay as they are."""
    found: set[ast.Constant] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            found.update(part for part in node.values if isinstance(part, ast.Constant))
    return found


def _extent(node: ast.stmt | ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _applied(source: str, changes: list[_Change]) -> str:
    """The source with every change made, from the last to the first, so that no place moves before its turn."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for change in sorted(changes, key=lambda item: item.start, reverse=True):
        first, last = (starts[line - 1] + column for line, column in (change.start, change.end))
        data = data[:first] + change.text.encode() + data[last:]
    return data.decode()
