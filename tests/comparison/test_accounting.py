"""Whatever two recordings hold: every GPU row stands in exactly one place, and no time is lost or made up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparison.comparing import COMPILED, EAGER, FUSED, GELU, MM, MUL, OTHER_MM, Call, mm, pointwise, program
from foretrace import compare, explain
from foretrace.comparison.compare import read_subject

LIBRARY = (
    *EAGER,
    *COMPILED,
    Call("aten::t", None),
    Call("aten::copy_", None, 4.0, copy_bytes=4096),
    Call("aten::_softmax", "void cunn_SoftMaxForward<8, float>(float*)", 5.0),
    Call("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<64, 128>(params)", 6.0),
    Call("aten::bmm", "unheard_of_kernel", 5.0, ((4, 8, 8), (4, 8, 8))),
    mm(kernel="ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"),
    # Products that are joined of others along n, m and k, and what adds.
    Call("aten::mm", OTHER_MM, 60.0, ((64, 32), (32, 32)), within="aten::linear"),
    Call("aten::mm", MM, 60.0, ((128, 32), (32, 16)), within="aten::linear"),
    Call("aten::mm", MM, 60.0, ((64, 64), (64, 16)), within="aten::linear"),
    Call("aten::addmm_", MM, 60.0, ((64, 16), (64, 32), (32, 16))),
    pointwise("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>(int)"),
    Call(
        "foretrace::gate_up",
        "foretrace_hopper_gate_up_gelu_tanh_128x256x64_4stages",
        60.0,
        ((64, 32), (16, 32), (16, 32)),
    ),
)
NAMES = st.sampled_from([MM, GELU, MUL, FUSED, "triton_red_fused_add_mean_mul_pow_0", "another_kernel"])
CALLS = st.lists(st.sampled_from(LIBRARY), max_size=12)


@st.composite
def mutated(draw, calls):
    """Drop, rename, insert and reorder calls of a program."""
    kept = [call for call in calls if draw(st.integers(0, 4))]
    kept = [call.renamed(draw(NAMES)) if call.kernel and not draw(st.integers(0, 3)) else call for call in kept]
    for extra in draw(st.lists(st.sampled_from(LIBRARY), max_size=3)):
        kept.insert(draw(st.integers(0, len(kept))), extra)
    return kept


@st.composite
def recordings(draw):
    """Two recordings, the second of a mutation of what the first one holds."""
    calls = draw(CALLS)

    def recorded(chosen):
        options = {"steps": draw(st.integers(1, 3)), "shapes": draw(st.booleans()), "annotated": draw(st.booleans())}
        return program(chosen, **options).trace()

    return recorded(calls), recorded(draw(mutated(calls)))


@settings(max_examples=60)
@given(recordings())
def test_every_row_is_in_one_place_and_times_add_up(both):
    found = compare(both)
    (pair,) = found.pairs
    rows = [read_subject(trace).items for trace in both]
    if any(rows) and not all(rows):  # what one trace alone recorded has no counterpart
        assert pair.places == pair.categories == []
        return
    for side, items in enumerate(rows):
        events = sorted(row.event for place in pair.places for row in (place.a, place.b)[side] if place.count == 1)
        assert len(events) == len(set(events))
        counted = sum((c.a_kernels + c.a_transfers, c.b_kernels + c.b_transfers)[side] for c in pair.categories)
        assert counted == len(items) == sum(len((p.a, p.b)[side]) * p.count for p in pair.places)
        us = sum((c.a_us, c.b_us)[side] for c in pair.categories)
        assert us == pytest.approx(sum(item.us for item in items), abs=1e-6)
        assert us == pytest.approx(sum((p.a_us, p.b_us)[side] for p in pair.places), abs=1e-6)


@settings(max_examples=25)
@given(CALLS, st.booleans(), st.integers(1, 3))
def test_a_trace_against_itself_differs_in_nothing(calls, shapes, steps):
    trace = program(calls, shapes=shapes, steps=steps).trace()
    (pair,) = compare([trace, trace]).pairs
    assert {place.category for place in pair.places} <= {"identical"}
    assert {place.change.direction for place in pair.places} <= {"same"}
    assert pair.operators == []


@settings(max_examples=25)
@given(st.lists(st.sampled_from(LIBRARY), min_size=1, max_size=8), st.integers(0, 2**32))
def test_a_step_of_one_trace_accounts_for_the_report_of_that_step(calls, seed):
    trace = program(calls, steps=2, wander=random.Random(seed).random()).trace()
    report = explain(trace)
    rows = [row for row in [*report.kernels, *report.transfers] if row.step == 0]
    assert len(read_subject(trace).items) == len(rows)
