"""Operators against a baseline: each call told once, exchanges told as such, and what only moved not at all."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.comparison.baseline_operators import Path, told_operators
from foretrace.knowledge.baseline import guarded, kind_of
from foretrace.model.baseline import Change

LINEAR: dict[str, int] = {"aten::linear": 2, "aten::linear>aten::addmm": 2}


def paths(calls: dict[str, int]) -> Counter[Path]:
    return Counter({tuple(path.split(">")): times for path, times in calls.items()})


def told(before: dict[str, int], after: dict[str, int]) -> list[Change]:
    return list(told_operators(paths(before), paths(after)))


def more(before: dict[str, int], after: dict[str, int]) -> list[str]:
    return [change.text for change in told(before, after) if change.more]


def test_a_copy_inside_a_new_operator_is_told_with_that_operator_only() -> None:
    copies = {"aten::contiguous": 1, "aten::max": 1, "aten::max>aten::contiguous": 1}
    changes = told(LINEAR, {**LINEAR, **copies})
    assert [(change.text, change.paths, change.times) for change in changes] == [
        ("1 call of aten::contiguous a step more", (("aten::contiguous",),), 1),
        ("1 call of aten::max a step more, with aten::contiguous inside", (("aten::max",),), 1),
    ]


def test_a_call_is_told_with_the_operators_around_it() -> None:
    inside = {"aten::linear>aten::reshape": 1, "aten::linear>aten::reshape>aten::clone": 1}
    assert more(LINEAR, {**LINEAR, **inside}) == [
        "1 call of aten::reshape a step more, in aten::linear, with aten::clone inside"
    ]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({"aten::silu": 1}, {"aten::gelu": 1}, "aten::silu is now aten::gelu"),
        ({"aten::silu": 3}, {"aten::gelu": 3}, "3 × aten::silu is now aten::gelu"),
        ({"aten::sum": 1}, {"aten::mean": 1}, "aten::sum is now aten::mean"),
        ({"aten::linear>aten::mm": 1}, {"aten::linear>aten::bmm": 1}, "aten::mm is now aten::bmm, in aten::linear"),
    ],
)
def test_one_operator_in_the_place_of_another_of_its_kind_is_an_exchange(
    old: dict[str, int], new: dict[str, int], text: str
) -> None:
    assert [(change.text, change.more) for change in told({**LINEAR, **old}, {**LINEAR, **new})] == [(text, False)]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        # of another kind
        ({"aten::silu": 1}, {"aten::item": 1}, "1 call of aten::item a step more"),
        ({"aten::silu": 1}, {"aten::contiguous": 1}, "1 call of aten::contiguous a step more"),
        ({"aten::silu": 1}, {"aten::mm": 1}, "1 call of aten::mm a step more"),
        # in another place
        ({"aten::silu": 1}, {"aten::x>aten::gelu": 1, "aten::x": 1}, "1 call of aten::x a step more, with aten::gelu "),
        # with more work inside
        (
            {"aten::layer_norm": 1, "aten::layer_norm>aten::native_layer_norm": 1},
            {"aten::rms_norm": 1, "aten::rms_norm>aten::pow": 1, "aten::rms_norm>aten::mul": 2},
            "1 call of aten::rms_norm a step more, with 2 × aten::mul, aten::pow inside",
        ),
        # one more than before
        ({"aten::silu": 1}, {"aten::gelu": 2}, "1 call of aten::gelu a step more"),
    ],
)
def test_anything_else_in_its_place_is_an_increase(old: dict[str, int], new: dict[str, int], text: str) -> None:
    (said,) = more({**LINEAR, **old}, {**LINEAR, **new})
    assert said.startswith(text)


def test_a_lost_epilogue_hides_no_other_product() -> None:
    apart = {"aten::linear": 1, "aten::linear>aten::addmm": 1, "aten::matmul": 3, "aten::matmul>aten::mm": 3}
    changes = told(LINEAR, {**apart, "aten::add": 1})
    assert [(change.text, change.more) for change in changes] == [
        ("aten::addmm was taken apart into aten::mm and aten::add: its epilogue is lost", True),
        ("2 calls of aten::matmul a step more, with aten::mm inside", True),
    ]


def test_a_compiled_kernel_stands_for_the_operators_it_names() -> None:
    eager, compiled = {"aten::gelu": 1, "aten::mul": 1}, {"triton_poi_fused_gelu_mul": 1}
    (change,) = told(eager, compiled)
    assert (change.text, change.more) == ("aten::gelu and aten::mul are now done by triton_poi_fused_gelu_mul", False)
    assert more({}, compiled) == ["1 call of triton_poi_fused_gelu_mul a step more"]


def test_copies_and_reads_are_of_no_kind_and_never_exchanged() -> None:
    assert [kind_of(f"aten::{name}") for name in ("item", "contiguous", "copy_", "clone", "to", "nonzero")] == [
        None
    ] * 6
    assert [kind_of(f"aten::{name}") for name in ("relu_", "mm", "mean")] == ["pointwise", "product", "reduction"]


NAMES = st.sampled_from(["aten::mm", "aten::gelu", "aten::silu", "aten::contiguous", "aten::view", "aten::linear"])
CALLS = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.integers(1, 3), max_size=6)


def _net(before: Counter[Path], after: Counter[Path]) -> set[str]:
    """The guarded operators that are called more often, those they call themselves with left out."""
    sums: Counter[str] = Counter()
    for sign, calls in ((-1, before), (1, after)):
        for path, times in calls.items():
            if path[-1] not in path[:-1]:
                sums[path[-1]] += sign * times
    return {name for name, times in sums.items() if times > 0 and guarded(name)}


@given(CALLS, CALLS)
def test_what_became_more_is_told_and_nothing_else(before: dict[Path, int], after: dict[Path, int]) -> None:
    changes = list(told_operators(Counter(before), Counter(after)))
    net = _net(Counter(before), Counter(after))
    for name in net:
        assert any(name in change.text for change in changes)
    for change in changes:
        if change.more and change.times:
            assert change.paths[0][-1] in net
    assert list(told_operators(Counter(after), Counter(after))) == []
