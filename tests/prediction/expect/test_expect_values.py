"""Numbers as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.model.expectations import Range
from foretrace.prediction.expect.values import parse_range, range_text, range_value


@pytest.mark.parametrize(
    ("text", "unit", "low", "high"),
    [
        ("5", "count", 5, 5),
        ("== 5", "count", 5, 5),
        ("2..4", "count", 2, 4),
        (">= 2", "count", 2, None),
        ("≤ 250", "us", None, 250),
        ("236 us ± 10%", "us", 212.4, 259.6),
        ("236 us +- 6", "us", 230, 242),
        ("0.2..0.3 ms", "us", 200, 300),
        ("5 us ± 200%", "us", 0, 15),
        ("<= 1.5 GB", "bytes", None, 1.5e9),
        ("1 GiB", "bytes", 2**30, 2**30),
        ("38.65 GFLOP", "flop", 38.65e9, 38.65e9),
        (">= 80%", "share", 0.8, None),
        ("50% ± 10%", "share", 0.4, 0.6),
    ],
)
def test_a_text_is_a_range(text: str, unit: str, low: float | None, high: float | None):
    found = parse_range(text, unit)
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_open_ends_do_not_belong():
    found = parse_range("> 2, < 5", "count")
    assert (2 in found, 3 in found, 5 in found) == (False, True, False)


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        ("five", "count", "no number"),
        ("5 us", "count", "no unit of this quantity"),
        ("5 MB", "us", "no unit of this quantity"),
        (">= 2, >= 3", "count", "two lower limits"),
        ("== 2, <= 3", "count", "no number|two"),
        ("1e999", "us", "finite"),
        ("1" * 50, "count", "50 digits"),
        ("5 us ± -1", "us", "no number|tolerance"),
        ("", "count", "no number"),
    ],
)
def test_what_is_none_is_refused(text: str, unit: str, said: str):
    with pytest.raises(InputError, match=said):
        parse_range(text, unit)


@pytest.mark.parametrize("value", [True, [], {}, object(), (1, 2, 3), (None, None), (True, 2), float("nan"), 10**400])
def test_other_python_values_are_refused(value: object):
    with pytest.raises(InputError):
        range_value(value, "count")


@given(
    low=st.none() | st.floats(min_value=0, max_value=1e300),
    width=st.none() | st.floats(min_value=0, max_value=1e300),
    opens=st.tuples(st.booleans(), st.booleans()),
)
def test_what_is_written_is_read_back_exactly(low: float | None, width: float | None, opens: tuple[bool, bool]):
    high = width if low is None else None if width is None else low + width
    if low is None and high is None:
        return
    written = Range(low=low, high=high, low_open=low is not None and opens[0], high_open=high is not None and opens[1])
    if low == high and (written.low_open or written.high_open):
        return  # holds no number at all
    assert parse_range(range_text(written), "us") == written
