"""Data blocks: what goes in comes out, and nothing in them is HTML."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import read
from hypothesis import given
from hypothesis import strategies as st

from foretrace.report.html.payload import data_block


def test_columns_and_document_come_out_as_they_went_in():
    columns = {
        "start": np.array([0, 5, 2**53], dtype=np.int64),
        "kind": np.array([1, 2, 255], dtype=np.uint8),
        "lane": np.array([7], dtype=np.uint16),
        "none": np.zeros(0, dtype=np.float64),
        "yes": np.array([True, False]),
        "big endian": np.array([1, -2], dtype=">i4"),
    }
    id, document, read_columns = read(data_block("timeline", {"names": ["a", "é"], "n": 1}, columns))
    assert id == "timeline"
    assert document == {"names": ["a", "é"], "n": 1}
    assert list(read_columns) == list(columns)
    for name, column in columns.items():
        assert read_columns[name].tolist() == column.tolist()
    assert read_columns["start"].dtype == np.float64


def test_a_block_may_hold_a_document_alone():
    assert read(data_block("x", [1, None])) == ("x", [1, None], {})


def test_the_same_data_are_the_same_bytes():
    made = [data_block("x", {"a": 1}, {"c": np.arange(9)}) for _ in range(2)]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.array([2**53 + 1]), "beyond 2\\*\\*53"),
        (np.array([-(2**53) - 1]), "beyond 2\\*\\*53"),
        (np.array([2**63], dtype=np.uint64), "beyond 2\\*\\*53"),
        (np.zeros((2, 2)), "2 dimensions"),
        (np.array(["a"]), "of type"),
    ],
    ids=["large", "small", "unsigned", "table", "text"],
)
def test_what_a_page_cannot_hold_is_refused(column, message):
    with pytest.raises(ValueError, match=message):
        data_block("x", {}, {"c": column})


@pytest.mark.parametrize("id", ['"><script>alert(1)</script>', "a'b", "a&b"], ids=["tag", "quote", "ampersand"])
def test_an_id_is_escaped(id):
    assert read(data_block(id, {}, {id: np.arange(2)}))[0] == id


def test_half_a_surrogate_pair_becomes_a_question_mark():
    _, document, _ = read(data_block("x", {"names": ["bad \ud800 name", "good"]}))
    assert document == {"names": ["bad ? name", "good"]}


@given(st.lists(st.text(), max_size=5))
def test_no_text_gets_out_of_its_block(names):
    block = data_block("x", names)
    _, document, _ = read(block)
    assert document == names
    # Base64 alone between the tags.
    assert str(block).count("<") == 2
