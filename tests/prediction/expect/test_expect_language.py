"""The Python form and the one-line form make the same clauses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace import expect
from foretrace.errors import InputError
from foretrace.model.expectations import Clause, Expectation, Range, Scope
from foretrace.prediction.expect import clause_text, parse_line, parse_toml, to_toml
from foretrace.prediction.expect.quantities import FIELDS, QUANTITIES
from foretrace.prediction.expect.sense import problems


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("gemm == 3", {"gemm": 3}),
        ("gemm = 3", {"gemm": 3}),
        ("kernels >= 2", {"kernels": ">= 2"}),
        ("kernels == 2..4", {"kernels": (2, 4)}),
        ("mlp_fwd: gpu_busy_us <= 250", {"region": "mlp_fwd", "gpu_busy_us": (None, 250)}),
        ("op aten::linear: calls == 3", {"op": "aten::linear", "calls": 3}),
        ("module Linear_*: kernels > 0", {"module": "Linear_*", "kernels": "> 0"}),
        ("step #3, region mlp_fwd: gemm == 3", {"step": "#3", "region": "mlp_fwd", "gemm": 3}),
        ("step 0: kernels == 5", {"step": 0, "kernels": 5}),
        ("Torch-Compiled Region: 0/0: gemm == 3", {"region": "Torch-Compiled Region: 0/0", "gemm": 3}),
        ('"odd, name: x": gemm == 3', {"region": "odd, name: x", "gemm": 3}),
        ("bound == compute | memory", {"bound": ["compute", "memory"]}),
        ("order == gemm, op:aten::gelu", {"order": ["gemm", "op:aten::gelu"]}),
        ("occupancy_query_before == gemm", {"occupancy_query_before": "gemm"}),
        ("same_kernels_as == b.json.gz, gemm", {"same_kernels_as": {"trace": "b.json.gz", "kind": "gemm"}}),
        ("gpu_busy_us/wall_us >= 80%", {"gpu_busy_us / wall_us": ">= 0.8"}),
        ("kernel[tile=256x128, layout=TN] == 2", {"kernel": {"tile": "256x128", "layout": "TN", "count": 2}}),
        ('kernel[name="void f<int, 2>*"] >= 1', {"kernel": {"name": "void f<int, 2>*"}}),
        ('kernel[parts="gelu, mul"] == 1', {"kernel": {"parts": ["gelu", "mul"], "count": 1}}),
    ],
)
def test_a_line_is_what_python_says(line: str, python: dict[str, object]):
    assert expect(line) == expect(**python)


def test_and_joins_and_repeats_nothing():
    both = expect(gemm=3) & expect("gemm == 3", kernels=5)
    assert [clause.quantity for clause in both.clauses] == ["gemm", "kernels"]


def test_one_equal_sign_is_as_good_as_two():
    assert parse_line("gemm = 3") == parse_line("gemm == 3")


def test_a_place_holds_for_what_is_put_into_it():
    inner = expect("gemm == 3", expect(kernels=5), region="mlp_fwd")
    assert {clause.scope for clause in inner.clauses} == {Scope(region="mlp_fwd")}
    with pytest.raises(InputError, match="region of its own"):
        expect("other: gemm == 3", region="mlp_fwd")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gemmm == 3", "did you mean gemm"),
        ("gemm", "write QUANTITY == VALUE"),
        ("gemm != 3", "write a range"),
        ("gemm === 3", "'=== 3' is no number and no range"),
        ("gemm == == 3", "is no number and no range"),
        ("bound === compute", "write bound == …"),
        ("gemm == 2.5", "whole number"),
        ("gemm == -1", "negative"),
        ("gpu_busy_us == 236", "no measured time is exactly"),
        ("bound == memroy", "did you mean memory"),
        ("bound >= 2", "is a word"),
        ("op aten::mm: period_us <= 3", "whole steps"),
        ("region a: unprofiled_us <= 3", "whole trace"),
        ("calls == 3", "needs a region"),
        ("kernel[tle=1] == 2", "did you mean tile"),
        ("kernel[name=/(/] == 2", "no regular expression"),
        ("kernel[kind=gemmm] == 2", "did you mean gemm"),
        ("gpu_busy_us / wall_us == 0.5", "no measured ratio is exactly 0.5"),
        ("order == gemm, gelu", "no kind of kernels"),
        ("region a, region b: gemm == 1", "two scopes"),
        ("mlp_fwd: op aten::mm: calls == 0", "comma: 'mlp_fwd, op aten::mm: …'"),
        ("step 2: op aten::mm: calls == 0", "comma: 'step 2, op aten::mm: …'"),
        ("region a: module M, op b: calls == 0", "comma: 'region a, module M: …'"),
        ("mlp_fwd:op aten::mm, op b: x: calls == 0", "a name with a colon stands in quotes: op .b: x."),
        ("mlp_fwd: mlp_bwd: calls == 0", 'quotes: region "mlp_fwd: mlp_bwd"'),
        ("op: calls == 0", 'op is a sort of place, whose name is missing; .* region "op"'),
        ("region op aten::mm: calls == 0", 'op is a sort of place, .* region "op aten::mm"'),
        ("gpu_busy_us / bound >= 1", "no ratio"),
        ("gpu_busy / wall_us >= 1", "did you mean gpu_busy_us"),
        ("region == 3", "place to look at"),
        ("x" * 3000, "write QUANTITY"),
    ],
)
def test_a_line_that_is_none_is_refused_with_what_to_write(line: str, said: str):
    with pytest.raises(InputError, match=said):
        expect(line)


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ({"kernels": 2, "gemm": 3}, "3 gemm cannot be among 2 kernels"),
        ({"kernels": 3, "gemm": 2, "elementwise": 2}, "2 gemm . 2 elementwise is more than 3 kernels"),
        ({"gemm": [">= 3", "<= 2"]}, "cannot be both"),
        ({"launches": 2, "kernel_launches": 3}, "cannot be among"),
        ({"gemm": 2, "order": ["gemm", "gemm", "gemm"]}, "names gemm 3 times"),
        ({"gemm": 1, "kernel": {"kind": "gemm", "tile": "1x1", "count": 2}}, "cannot be among 1 gemm"),
        ({"gemm": "3..1"}, "lower limit comes first"),
        ({"bound": "memory", "kernels": "< 0"}, "below 0"),
    ],
)
def test_what_cannot_hold_is_refused(python: dict[str, object], said: str):
    with pytest.raises(InputError, match=said):
        expect(**python)


def test_a_name_in_quotes_may_look_like_two_places():
    for name in ("mlp_fwd: op aten::mm", "op aten::mm", "step", "a: b"):
        clause = parse_line(f'"{name}": calls == 0')
        assert clause.scope == Scope(region=name)
        assert parse_line(clause_text(clause)) == clause
    assert expect(region='"mlp_fwd: op aten::mm"', calls=0).clauses[0].scope == Scope(region="mlp_fwd: op aten::mm")
    # A label with a step in it is common, and one name.
    assert expect(region="epoch: step 3", calls=1).clauses[0].scope == Scope(region="epoch: step 3")


@pytest.mark.parametrize("name", ["mlp_fwd: op aten::mm", "mlp_fwd, op aten::mm"])
def test_two_places_in_one_keyword_are_refused(name: str):
    with pytest.raises(InputError, match=r"write region='mlp_fwd', op='aten::mm', or put"):
        expect(region=name, calls=0)


def test_a_part_cannot_hold_more_than_its_step():
    with pytest.raises(InputError, match="in a part of a step"):
        expect(expect(gemm=2), expect(gemm=3, region="mlp_fwd"))
    assert len(expect(expect(gemm=3), expect(gemm=2, region="mlp_fwd"))) == 2


# ---- round trips ----

_NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]), min_size=1, max_size=12)
_LABELS = st.builds(" ".join, st.lists(_NAMES, min_size=1, max_size=3))
_LIMITS = st.integers(0, 50) | st.floats(0, 1e6)


@st.composite
def _ranges(draw: st.DrawFn) -> Range:
    low, high = draw(st.none() | _LIMITS), draw(st.none() | _LIMITS)
    if low is None and high is None:
        low = 1
    if low is not None and high is not None and low >= high:
        high = low + 1
    return Range(
        low=low,
        high=high,
        low_open=low is not None and draw(st.booleans()),
        high_open=high is not None and high > 0 and draw(st.booleans()),
    )


@st.composite
def _clauses(draw: st.DrawFn) -> Clause:
    step = draw(st.none() | st.sampled_from(["0", "#3"]))
    scope = Scope(step=step, region=draw(st.none() | _LABELS), module=draw(st.none() | _LABELS))
    numbers = [q.name for q in QUANTITIES.values() if q.unit != "words" and q.where == "any" and q.name != "kernel"]
    what = draw(st.sampled_from(["number", "kernel", "ratio", "bound", "order", "same"]))
    if what == "number":
        return Clause(quantity=draw(st.sampled_from(numbers)), scope=scope, range=draw(_ranges()))
    if what == "ratio":
        name = " / ".join(draw(st.lists(st.sampled_from(numbers), min_size=2, max_size=2)))
        return Clause(quantity=name, scope=scope, range=draw(_ranges()))
    if what == "kernel":
        fields = draw(
            st.dictionaries(
                st.sampled_from(sorted(set(FIELDS) - {"kind", "phase", "bound"})),
                _LABELS.filter(lambda s: s[0] != "/"),
                min_size=1,
            )
        )
        return Clause(quantity="kernel", scope=scope, range=draw(_ranges()), pattern=tuple(sorted(fields.items())))
    if what == "bound":
        words = draw(st.lists(st.sampled_from(["compute", "memory", "mixed"]), min_size=1, unique=True))
        return Clause(quantity="bound", scope=scope, words=tuple(words))
    if what == "order":
        items = st.sampled_from(["gemm", "memset", "op:aten::gelu", "name:*a, b*"])
        return Clause(quantity="order", scope=scope, words=tuple(draw(st.lists(items, min_size=1, max_size=4))))
    words = (draw(_LABELS), "gemm") if draw(st.booleans()) else (draw(_LABELS),)
    return Clause(quantity="same_kernels_as", scope=scope, words=words)


@given(clause=_clauses())
def test_a_clause_is_read_back_from_its_line(clause: Clause):
    assert parse_line(clause_text(clause)) == clause


@given(clauses=st.lists(_clauses(), min_size=1, max_size=6, unique=True))
def test_an_expectation_is_read_back_from_its_file(clauses: list[Clause]):
    if list(problems(clauses)):
        return
    written = to_toml(Expectation(tuple(clauses)), heading="made by\na test", remarks={clauses[0]: "why"})
    assert set(parse_toml(written).clauses) == set(clauses)
