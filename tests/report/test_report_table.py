"""Tables: units in the heading, numbers to the right, and a width that is kept."""

from hypothesis import given
from hypothesis import strategies as st

from foretrace.report.table import Column, table
from foretrace.report.text import plain, width_of

COLUMNS = [
    Column("kernel", left=True, least=8, keep=9, cut="middle"),
    Column("calls", keep=2),
    Column("total\nµs", keep=8),
]
ROWS = [["vectorized_elementwise_kernel", "6", "340"], ["gemm", "–", "0.784"]]


def test_columns_are_aligned_under_their_headings():
    assert plain(table(COLUMNS, ROWS, 60)) == (
        "                                        total\n"
        "  kernel                         calls     µs\n"
        "  vectorized_elementwise_kernel      6    340\n"
        "  gemm                               –  0.784\n"
    )


def test_text_gives_way_before_a_column_does():
    assert plain(table(COLUMNS, ROWS, 30)) == (
        "                         total\n"
        "  kernel          calls     µs\n"
        "  vectori…kernel      6    340\n"
        "  gemm                –  0.784\n"
    )


def test_the_least_important_column_goes_first():
    narrow = plain(table(COLUMNS, ROWS, 18))
    assert "calls" not in narrow
    assert "340" in narrow


def test_a_column_that_knows_nothing_is_left_out():
    assert "calls" not in plain(table(COLUMNS, [["gemm", "–", "1"], ["mul", "", "2"]], 60))


def test_no_rows_no_table():
    assert table(COLUMNS, [], 60) == []


@given(
    st.lists(st.lists(st.text(max_size=40), min_size=3, max_size=3), max_size=5),
    st.integers(12, 120),
)
def test_any_table_keeps_its_width(rows, width):
    for row in table(COLUMNS, rows, width):
        assert sum(width_of(span.text) for span in row) <= width
