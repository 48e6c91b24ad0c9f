"""One line of text for a choice: what tables, caches and overrides are written in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.fused.dispatch.choice import Choice, parse_choice, parse_implementation, parse_words, roles_of
from foretrace.fused.plan import Implementation

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
options = st.dictionaries(names, st.integers(-9, 999), max_size=3).map(lambda found: tuple(sorted(found.items())))
implementations = st.builds(Implementation, names, options)
choices = st.builds(
    Choice, implementations, implementations, implementations, st.sampled_from(["preact", "recompute", "input"])
)


@given(choices)
def test_a_line_read_back_is_the_same_choice(choice: Choice):
    assert parse_choice(choice.label("gated_mlp", training=True)) == choice


def test_a_line_holds_the_words_that_matter_to_the_operation():
    choice = Choice(expand=Implementation("tma", (("group", 16),)), backward=Implementation("elementwise"))
    assert choice.label("gated_mlp", True) == "expand=tma[group=16] project=plain backward=elementwise save=preact"
    assert choice.label("gated_mlp", False) == "expand=tma[group=16] project=plain"
    assert choice.label("linear_act", False) == "expand=tma[group=16]"
    assert choice.label("gated_act", True) == "expand=tma[group=16] backward=elementwise"


def test_steps_of_operations():
    assert roles_of("mlp", True) == ("expand", "project", "backward")
    assert roles_of("linear_act", True) == ("expand", "backward")
    assert roles_of("gated_act", False) == ("expand",)


def test_options_are_ordered_so_that_equal_choices_are_equal():
    assert parse_implementation("tma[b=2,a=1]") == Implementation("tma", (("a", 1), ("b", 2)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("expand", "write expand=NAME"),
        ("expnad=tma", "not understood"),
        ("expand=tma expand=plain", "stands twice"),
        ("expand=TMA", "names no implementation"),
        ("expand=tma[fast]", "no option"),
        ("expand=", "names no implementation"),
        ("save=all", "choose from preact, recompute, input"),
    ],
)
def test_what_is_not_understood_is_refused_in_a_sentence(text: str, says: str):
    with pytest.raises(InputError, match=says):
        parse_words(text)
