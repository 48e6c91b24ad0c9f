"""Median and interquartile range of timing samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.timing import iqr, median

SAMPLES = st.lists(st.floats(min_value=0, max_value=1e9), min_size=2, max_size=60)


@given(SAMPLES)
def test_both_agree_with_numpy(samples: list[float]) -> None:
    first, middle, third = np.percentile(samples, [25, 50, 75])
    assert median(samples) == pytest.approx(middle, rel=1e-9, abs=1e-6)
    assert iqr(samples) == pytest.approx(third - first, rel=1e-9, abs=1e-6)


def test_one_slow_call_moves_neither() -> None:
    assert median([10, 10, 10, 10, 5000]) == 10
    assert iqr([10, 10, 10, 10, 5000]) == 0


def test_one_sample_has_no_spread() -> None:
    assert iqr([3.0]) is None


def test_no_samples_have_no_median() -> None:
    with pytest.raises(ValueError, match="at least one"):
        median([])
