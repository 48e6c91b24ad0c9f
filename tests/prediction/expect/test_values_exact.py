"""Numbers with units keep every digit."""

import pytest

from foretrace.errors import InputError
from foretrace.prediction.expect import parse_toml
from foretrace.prediction.expect.values import parse_range


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1858445770752 FLOP", "flop", 1858445770752),
        ("1 TiB", "bytes", 1099511627776),
        ("1234567890123 FLOP", "flop", 1234567890123),
        ("0.1 ms", "us", 100),
        ("2.5 us", "us", 2.5),
        ("1e3 kB", "bytes", 1_000_000),
    ],
)
def test_no_digit_is_lost(text: str, unit: str, value: float):
    assert parse_range(text, unit).exact == value


def test_a_tolerance_past_every_number_is_refused():
    with pytest.raises(InputError, match="finite"):
        parse_range("3 ± 1e308%", "count")


def test_tables_nested_past_all_meaning_are_refused_in_a_sentence():
    with pytest.raises(InputError, match=r"deeper|no TOML"):
        parse_toml(".".join(["a"] * 3000) + " = 1\n")
