"""The longest common subsequence of two token sequences, by bit vectors.

One row of the table is one Python integer (Crochemore et al. 2001, Hyyrö 2004: "Bit-parallel LCS-length computation
revisited"), so a pair of sequences costs ``n * m / 64`` machine steps; long ones are split in two first (Hirschberg
1975), so that memory stays linear. Equal beginnings and ends cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretrace.knowledge.comparing import EXACT_CELLS

__all__ = ["common_subsequence"]

Tokens = Sequence[int | None]
_STORED_CELLS = 200_000_000  # bits of the table kept at a time: 25 MB


def common_subsequence(a: Tokens, b: Tokens) -> list[tuple[int, int]]:
    """Positions ``(i, j)`` with ``a[i] == b[j]``, rising in both, as many as there can be; ``None`` equals nothing."""
    found: list[tuple[int, int]] = []
    pending = [(0, len(a), 0, len(b))]
    while pending:
        low_a, high_a, low_b, high_b = pending.pop()
        while low_a < high_a and low_b < high_b and a[low_a] is not None and a[low_a] == b[low_b]:
            found.append((low_a, low_b))
            low_a, low_b = low_a + 1, low_b + 1
        while low_a < high_a and low_b < high_b and a[high_a - 1] is not None and a[high_a - 1] == b[high_b - 1]:
            high_a, high_b = high_a - 1, high_b - 1
            found.append((high_a, high_b))
        cells = (high_a - low_a) * (high_b - low_b)
        if not cells:
            continue
        if cells <= _STORED_CELLS or high_b - low_b == 1:
            found += [(low_a + i, low_b + j) for i, j in _small(a[low_a:high_a], b[low_b:high_b])]
            continue
        cut_b = (low_b + high_b) // 2
        if cells <= EXACT_CELLS:
            cut_a = low_a + _best_cut(a[low_a:high_a], b[low_b:cut_b], b[cut_b:high_b])
        else:
            cut_a = (low_a + high_a) // 2
        pending += [(low_a, cut_a, low_b, cut_b), (cut_a, high_a, cut_b, high_b)]
    return sorted(found)


def _masks(a: Tokens) -> dict[int, int]:
    """Token → the bits of the positions where it stands."""
    positions: dict[int, list[int]] = {}
    for i, token in enumerate(a):
        if token is not None:
            positions.setdefault(token, []).append(i)
    masks: dict[int, int] = {}
    for token, places in positions.items():
        bits = np.zeros(places[-1] + 1, dtype=np.uint8)
        bits[places] = 1
        masks[token] = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
    return masks


def _rows(a: Tokens, b: Tokens) -> list[int]:
    """The bit vector after each token of ``b``; a zero bit ``i`` says that ``a[i]`` makes the subsequence longer."""
    masks = _masks(a)
    full = (1 << len(a)) - 1
    vector = full
    rows = []
    for token in b:
        match = vector & masks.get(token, 0) if token is not None else 0
        if match:
            vector = ((vector + match) | (vector - match)) & full
        rows.append(vector)
    return rows


def _small(a: Tokens, b: Tokens) -> list[tuple[int, int]]:
    rows = _rows(a, b)
    pairs = []
    i, j = len(a), len(b)
    while i and j:
        if rows[j - 1] >> (i - 1) & 1:
            i -= 1
        elif j > 1 and not rows[j - 2] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs


def _lengths(a: Tokens, b: Tokens) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Length of what each beginning of ``a`` has in common with all of ``b``; int64 of shape ``(len(a) + 1,)``."""
    masks = _masks(a)
    full = (1 << len(a)) - 1
    vector = full
    for token in b:
        match = vector & masks.get(token, 0) if token is not None else 0
        if match:
            vector = ((vector + match) | (vector - match)) & full
    packed = np.frombuffer(vector.to_bytes((len(a) + 7) // 8, "little"), dtype=np.uint8)
    grows = np.unpackbits(packed, bitorder="little")[: len(a)] == 0
    return np.concatenate(([0], np.cumsum(grows))).astype(np.int64)


def _best_cut(a: Tokens, first: Tokens, second: Tokens) -> int:
    """Where ``a`` is best cut when ``b`` is cut into ``first`` and ``second``."""
    before = _lengths(a, first)
    after = _lengths(a[::-1], second[::-1])[::-1]
    return int(np.argmax(before + after))
