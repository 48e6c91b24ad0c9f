"""Quantities: three significant digits, units that fit, and a dash for what is unknown."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.report.words import (
    UNKNOWN,
    bytes_of,
    count,
    flop,
    listed,
    number,
    percent,
    scale_of_times,
    share,
    time,
    whole,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.784, "0.784"),
        (31.84, "31.8"),
        (99.96, "100"),
        (0.09996, "0.100"),
        (565.4, "565"),
        (1234.5, "1234"),
        (8192, "8192"),
        (0, "0"),
        (-4.256, "-4.26"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_number(value, text):
    assert number(value) == text


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_a_number_is_within_half_a_percent_of_what_it_shows_and_never_zero(value: float):
    assert float(number(value)) == pytest.approx(value, rel=0.005)
    assert float(number(value)) > 0


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.784, "0.784 µs"), (31.8, "31.8 µs"), (4200, "4.20 ms"), (1.75e6, "1.75 s"), (0, "0 µs"), (None, "–")],
)
def test_time_takes_the_unit_that_fits(us, text):
    assert time(us) == text


def test_a_column_of_times_shares_one_unit():
    assert scale_of_times([0.8, 99_000]) == (1.0, "µs")
    assert scale_of_times([0.8, 180_000, None]) == (1e3, "ms")
    assert scale_of_times([3e8]) == (1e6, "s")
    assert scale_of_times([]) == (1.0, "µs")


def test_sizes_and_work_have_decimal_prefixes():
    assert bytes_of(50_331_648) == "50.3 MB"
    assert bytes_of(4) == "4 B"
    assert bytes_of(None) == UNKNOWN
    assert flop(2 * 8192 * 768 * 3072) == "38.65 GFLOP"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (0.4137, "41.4"),
        (1.0, "100"),
        (0.99999, ">99.9"),
        (0.0, "0"),
        (0.00001, "<0.1"),
        (None, "–"),
    ],
)
def test_a_share_reaches_neither_end_by_rounding(part, text):
    assert percent(part) == text
    assert share(part) == (text if part is None else f"{text} %")


def test_counted_nouns_and_lists():
    assert count(1, "kernel") == "1 kernel"
    assert count(5, "memory copy", "memory copies") == "5 memory copies"
    assert whole(2.0) == "2"
    assert whole(2 / 3) == "0.667"
    assert listed(["forward"]) == "forward"
    assert listed(["a", "b", "c"], "or") == "a, b or c"
