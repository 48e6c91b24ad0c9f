"""Intervals of medians and of paired ratios."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.timing import median, median_interval, paired_ratio

SAMPLES = st.lists(st.floats(min_value=1, max_value=1e6), min_size=6, max_size=80)


@pytest.mark.parametrize(
    ("samples", "ranks"),
    # From the table of the sign test: n, and the rank counted from both ends, for 95 %.
    [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (50, 18), (100, 40)],
)
def test_the_ranks_are_those_of_the_sign_test(samples: int, ranks: int) -> None:
    assert median_interval(range(1, samples + 1), 0.95) == (ranks, samples + 1 - ranks)


def test_below_six_samples_nothing_can_be_said_at_95_percent() -> None:
    assert median_interval([1, 2, 3, 4, 5], 0.95) is None
    assert median_interval([], 0.95) is None


@given(SAMPLES)
def test_the_interval_holds_the_sample_median(samples: list[float]) -> None:
    interval = median_interval(samples, 0.95)
    assert interval is not None
    assert interval[0] <= median(samples) <= interval[1]


def test_it_covers_the_true_median_as_often_as_it_says() -> None:
    numbers = random.Random(1)
    covered = 0
    for _ in range(1000):
        low, high = median_interval([numbers.expovariate(1.0) for _ in range(25)], 0.95) or (0.0, 0.0)
        covered += low <= 0.6931 <= high
    assert 940 <= covered <= 985


def test_what_slows_whole_rounds_cancels_in_the_ratio() -> None:
    slow = [1.0, 3.0, 2.0, 5.0, 1.5, 4.0, 2.5]
    base = [100 * factor for factor in slow]
    middle, interval = paired_ratio([80 * factor for factor in slow], base, 0.95)
    assert middle == pytest.approx(0.8)
    assert interval == pytest.approx((0.8, 0.8))


def test_ratios_need_rounds_of_both_and_time_that_passed() -> None:
    with pytest.raises(ValueError, match="above zero"):
        paired_ratio([1.0], [0.0], 0.95)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        paired_ratio([1.0, 2.0], [1.0], 0.95)
