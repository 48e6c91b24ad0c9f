"""Quantities: three significant digits, units that fit, and a dash for what is unknown."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.model.words import (
    UNKNOWN,
    breakdown,
    bytes_of,
    count,
    first_of,
    flop,
    listed,
    many_of,
    mebibytes,
    number,
    percent,
    rate_of,
    scale_of_times,
    share_of,
    signed,
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
    assert share_of(part) == (text if part is None else f"{text} %")


def test_counted_nouns_and_lists():
    assert count(1, "kernel") == "1 kernel"
    assert count(5, "memory copy", "memory copies") == "5 memory copies"
    assert whole(2.0) == "2"
    assert whole(2 / 3) == "0.667"
    assert listed(["forward"]) == "forward"
    assert listed(["a", "b", "c"], "or") == "a, b or c"


@pytest.mark.parametrize(
    ("change", "text"), [(-0.1244, "-12.4 %"), (0.03, "+3.0 %"), (17.6, "18.6×"), (9.0, "+900.0 %")]
)
def test_a_change_is_a_percentage_until_a_factor_reads_better(change: float, text: str):
    assert signed(change) == text


def test_rates_of_memory_stay_in_the_unit_of_datasheets():
    assert rate_of(3650.4) == "3650 GB/s"
    assert rate_of(0.48) == "0.480 GB/s"


def test_named_times_are_summed_up_where_they_are_many():
    assert breakdown([("a", 24.04), ("b", 14.0)]) == "a 24.0 µs, b 14.0 µs"
    many = breakdown([(name, 1.0) for name in "abcdefghij"])
    assert many.startswith("a 1.00 µs, ")
    assert many.endswith(" µs")
    assert "together" in many


def test_the_first_of_many_words_say_how_many_more_there_are():
    assert first_of(["a", "b"], 2) == "a, b"
    assert first_of(["a", "b", "c"], 2) == "a, b and 1 more"
    assert first_of([], 2) == ""


def test_a_time_just_below_a_thousand_is_written_out():
    assert time(999.7) == "1000 µs"


@pytest.mark.parametrize(
    ("how_many", "said"),
    [(68, "68"), (4160, "4.16 k"), (999_999, "1000 k"), (12_582_912, "12.6 M"), (7_000_000_000, "7.00 G")],
)
def test_a_large_count_is_short_and_never_in_powers(how_many: int, said: str):
    assert many_of(how_many) == said


def test_the_allocators_sizes_are_in_mebibytes_from_one_on():
    mib = 1 << 20
    sizes = (200 * mib, 6 * 1024 * mib, mib + mib // 2, 1 << 19, 1000, 1, 0)
    assert [mebibytes(size) for size in sizes] == [
        "200 MiB",
        "6144 MiB",
        "1.5 MiB",
        "512 KiB",
        "1000 B",
        "1 B",
        "0 B",
    ]
    assert mebibytes(None) == "–"


@pytest.mark.parametrize(
    ("us", "text"), [(8.33e-7, "<0.001 µs"), (0.000999, "<0.001 µs"), (0.001, "0.00100 µs"), (0.0, "0 µs")]
)
def test_a_time_that_no_clock_tells_is_only_called_short(us, text):
    assert time(us) == text
