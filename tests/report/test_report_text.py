"""Text that a trace brings reaches a terminal only as printable characters, in the width there is."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.report.text import (
    Span,
    clean,
    columns_of,
    cut,
    line,
    paint,
    plain,
    wants_color,
    width_of,
    wrap,
)

# The only escape sequences that may ever be written: colours.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("bell\x07", "bell\\x07"),
        ("two\nlines", "two\\nlines"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("half \ud800 pair", "half \\ud800 pair"),
        ("[bold red]not markup[/]", "[bold red]not markup[/]"),
        ("µ–×→ 行", "µ–×→ 行"),
    ],
)
def test_clean(hostile, shown):
    assert clean(hostile) == shown


@given(st.lists(st.tuples(st.text(), st.sampled_from(["", "bad", "dim"]))))
def test_nothing_but_colours_is_ever_an_escape_sequence(parts):
    painted = paint([[Span(text, style) for text, style in parts]])
    bare = _COLOUR.sub("", painted)
    assert bare.removesuffix("\n").isprintable()
    assert bare.rstrip() == plain([[Span(text, style) for text, style in parts]]).rstrip()


@given(st.text(), st.integers(1, 60), st.sampled_from(["end", "middle"]))
def test_a_cut_text_fits(text, width, where):
    assert width_of(cut(text, width, where)) <= width


def test_a_cut_name_keeps_both_ends():
    assert cut("nvjet_sm90_tst_256x128_TNT", 15, "middle") == "nvjet_s…128_TNT"
    assert cut("nvjet_sm90_tst_256x128_TNT", 15) == "nvjet_sm90_tst…"
    assert cut("short", 15) == "short"


def test_wide_characters_count_two_cells_and_combining_marks_none():
    assert width_of("行列") == 4
    assert width_of("e\u0301") == 1
    assert cut("行列行列", 5) == "行列…"


@given(st.text(), st.integers(2, 60))
def test_wrapped_text_fits_and_loses_no_word(text, width):
    pieces = wrap(text, width)
    assert all(width_of(piece) <= width for piece in pieces)
    assert "".join(pieces).replace(" ", "") == "".join(clean(text).split())


def test_plain_lines_have_no_trailing_space():
    assert plain([line("a  "), [], line("b", Span("  c", "bad"))]) == "a\n\nb  c\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("no descriptor")


def test_colour_is_for_terminals_and_respects_no_color():
    assert wants_color(Terminal(), {})
    assert not wants_color(io.StringIO(), {})
    assert not wants_color(Terminal(), {"NO_COLOR": "1"})
    assert not wants_color(Terminal(), {"TERM": "dumb"})


def test_width_is_the_terminals_and_100_elsewhere():
    assert columns_of(io.StringIO(), {"COLUMNS": "60"}) == 100
    assert columns_of(Terminal(), {"COLUMNS": "60"}) == 60
    assert columns_of(Terminal(), {"COLUMNS": "5"}) == 40
    assert columns_of(Terminal(), {}) == 100
