"""Which GPU row of one step does the work of which row of another: pairs that rise in both sequences.

Rows are tokens. The strongest token is the whole call path with the kernel's name and size; where it finds no
partner, weaker ones are tried between the pairs already found: the path without the program's own labels, without
the name, the operator, the name without a path (a graph replay has none), the kind with the size. So a renamed kernel
keeps its place, an inserted one moves nothing, and a trace without shapes, or a compiled one whose paths are gone, is
still aligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foretrace.comparison.lcs import common_subsequence
from foretrace.comparison.subject import Item
from foretrace.knowledge.compiled import code_name
from foretrace.knowledge.limits import COMPUTE_KINDS
from foretrace.model.comparison import How

__all__ = ["LAST", "Match", "gaps_between", "match_rows", "match_within"]

Token = tuple[object, ...] | None


@dataclass(frozen=True)
class Match:
    """Row ``a`` of the baseline and row ``b`` of the other step, by position, and on what ground they are paired."""

    a: int
    b: int
    how: How


def _all(item: Item) -> Token:
    return (item.module, item.regions, item.path, item.code, item.size) if item.path and item.size else None


def _region_path_name(item: Item) -> Token:
    return (item.regions, item.path, item.code) if item.path else None


def _region_path_size(item: Item) -> Token:
    return (item.regions, item.path, item.kind, item.size) if item.path and item.size else None


def _path_name(item: Item) -> Token:
    return (item.path, item.code) if item.path else None


def _path_size(item: Item) -> Token:
    return (item.path, item.kind, item.size) if item.path and item.size else None


def _operator_name_size(item: Item) -> Token:
    return (code_name(item.op), item.code, item.size) if item.op and item.size else None


def _operator_name(item: Item) -> Token:
    return (code_name(item.op), item.code) if item.op else None


def _operator_size(item: Item) -> Token:
    return (code_name(item.op), item.kind, item.size) if item.op and item.size else None


def _name(item: Item) -> Token:
    return (item.code,)


def _path(item: Item) -> Token:
    return (item.path, item.kind) if item.path else None


def _operator(item: Item) -> Token:
    return (code_name(item.op), item.kind) if item.op else None


def _path_alone(item: Item) -> Token:
    return (item.path, item.is_kernel) if item.path else None


def _kind_size(item: Item) -> Token:
    return (item.kind, item.size, item.parts if item.unites else ()) if item.size else None


def _product(item: Item) -> Token:
    return (item.kind,) if item.kind in COMPUTE_KINDS and not item.unites else None


def _kind(item: Item) -> Token:
    return (item.kind,)


Level = tuple[Callable[[Item], Token], How]
_LEVELS: tuple[Level, ...] = (
    (_all, "call path"),
    (_region_path_name, "call path"),
    (_region_path_size, "call path"),
    (_path_name, "call path"),
    (_path_size, "call path"),
    (_operator_name_size, "operator"),
    (_operator_name, "operator"),
    (_operator_size, "operator"),
    (_name, "kernel name"),
    (_path, "call path"),
    (_operator, "operator"),
    (_path_alone, "call path"),
    (_kind_size, "work"),
    (_product, "order and kind"),
)
# Tried only after fused kernels have taken their parts: it would take single parts away from them.
LAST: Level = (_kind, "order and kind")


def match_rows(
    a: Sequence[Item],
    b: Sequence[Item],
    matches: Sequence[Match] = (),
    taken: tuple[set[int], set[int]] = (set(), set()),
) -> list[Match]:
    """Pair the rows of two steps, on mere order only where they are products; rising in both, as ``matches`` are."""
    found = list(matches)
    for level in _LEVELS:
        found = match_within(a, b, found, level, taken)
    return found


def match_within(
    a: Sequence[Item],
    b: Sequence[Item],
    matches: list[Match],
    level: Level,
    taken: tuple[set[int], set[int]] = (set(), set()),
) -> list[Match]:
    """The matches with those added that one more token finds between them; ``taken`` rows are left alone."""
    token, how = level
    numbers: dict[Token, int] = {}

    def numbered(item: Item) -> int | None:
        found = token(item)
        return None if found is None else numbers.setdefault(found, len(numbers))

    found = list(matches)
    for low_a, high_a, low_b, high_b in gaps_between(matches, len(a), len(b)):
        of_a = [None if i in taken[0] else numbered(a[i]) for i in range(low_a, high_a)]
        of_b = [None if j in taken[1] else numbered(b[j]) for j in range(low_b, high_b)]
        found += [Match(low_a + i, low_b + j, how) for i, j in common_subsequence(of_a, of_b)]
    return sorted(found, key=lambda match: match.a)


def gaps_between(matches: Sequence[Match], len_a: int, len_b: int) -> list[tuple[int, int, int, int]]:
    """The stretches ``[low_a, high_a)`` and ``[low_b, high_b)`` between matches where both have rows."""
    stretches = []
    low_a = low_b = 0
    for match in [*matches, Match(len_a, len_b, "none")]:
        if match.a > low_a and match.b > low_b:
            stretches.append((low_a, match.a, low_b, match.b))
        low_a, low_b = match.a + 1, match.b + 1
    return stretches
