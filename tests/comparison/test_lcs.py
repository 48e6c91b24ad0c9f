"""Alignment of token sequences, against the textbook table."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from foretrace.comparison import lcs
from foretrace.comparison.lcs import common_subsequence

TOKENS = st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=40)


def longest(a, b) -> int:
    """Length by the quadratic table; ``None`` equals nothing."""
    row = [0] * (len(b) + 1)
    for x in a:
        before, row = row, [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x is not None and x == y else max(before[j + 1], row[j]))
    return row[-1]


def check(a, b) -> list[tuple[int, int]]:
    pairs = common_subsequence(a, b)
    assert all(a[i] == b[j] and a[i] is not None for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))
    return pairs


@given(TOKENS, TOKENS)
def test_it_is_as_long_as_can_be(a, b):
    assert len(check(a, b)) == longest(a, b)


@given(TOKENS, TOKENS)
def test_it_is_so_when_the_table_is_cut(a, b):
    kept = lcs._STORED_CELLS
    lcs._STORED_CELLS = 16
    try:
        assert len(check(a, b)) == longest(a, b)
    finally:
        lcs._STORED_CELLS = kept


def test_beyond_the_exact_size_the_pairs_still_rise(monkeypatch):
    monkeypatch.setattr(lcs, "_STORED_CELLS", 16)
    monkeypatch.setattr(lcs, "EXACT_CELLS", 100)
    a = [i % 7 for i in range(200)]
    pairs = check([9, *a, 8], [5, *a[:90], 4, *a[90:], 3])
    assert len(pairs) > 100
