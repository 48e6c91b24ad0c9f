"""Products that one step computes apart and the other as one, kernels that fuse fused kernels, and other orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from comparison.comparing import FUSED, GELU, MM, MUL, OTHER_MM, Call, pointwise, program
from foretrace import compare, explain
from foretrace.model.comparison import Pair

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>(int)"
JOINED = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNT"
TOKENS = 8192


def product(m: int, k: int, n: int, kernel: str = MM, us: float = 50.0) -> Call:
    return Call("aten::mm", kernel, us, ((m, k), (k, n)), within="aten::linear")


def batched(batch: int, m: int, k: int, n: int, kernel: str = MM) -> Call:
    return Call("aten::bmm", kernel, 50.0, ((batch, m, k), (batch, k, n)), within="aten::matmul")


def pair(a: Sequence[Call], b: Sequence[Call]) -> Pair:
    (found,) = compare([program(a).trace(), program(b).trace()]).pairs
    return found


def told(found: Pair) -> dict[tuple[str, tuple[str | None, ...], tuple[str | None, ...]], int]:
    """How often each category stands, with the operators on both sides."""
    return {
        (place.category, tuple(r.op for r in place.a), tuple(r.op for r in place.b)): place.count
        for place in found.places
    }


def refused(found: Pair) -> bool:
    """Whether it is called other work, and no place takes several products for one."""
    places = [place for place in found.places if len(place.a) + len(place.b) > 2]
    return found.same_work is False and "Not the same work" in found.notes[0] and not places


DOWN = product(TOKENS, 3072, 768)
# The weight gradients of gate and up, apart with another product between them, and as one.
GRADIENTS = (DOWN, product(3072, TOKENS, 768, us=54), product(TOKENS, 768, 3072), product(3072, TOKENS, 768, us=52))
STACKED = (DOWN, product(TOKENS, 768, 3072), product(6144, TOKENS, 768, JOINED, us=94))


def test_two_weight_gradients_become_one_product_in_one_place():
    found = pair(GRADIENTS, STACKED)
    assert told(found)["fused", ("aten::mm", "aten::mm"), ("aten::mm",)] == 1
    (place,) = [place for place in found.places if place.category == "fused"]
    assert (place.how, place.title) == ("work", "2 mm → nvjet 192x192 64x3 NN")
    assert (place.a_us, place.b_us) == (106, 94)
    assert {place.category for place in found.places} == {"identical", "fused"}
    # Two layers of half the width would look like this as well; who recorded with `foretrace run` said what ran.
    assert found.same_work is None
    note = "2 of 3072·8192·768 are one of 6144·8192·768: the same work, unless layers were joined: sizes do not tell."
    assert any(note in said for said in found.notes)


def test_the_other_way_round_one_product_is_split():
    found = pair(STACKED, GRADIENTS)
    assert told(found)["split", ("aten::mm",), ("aten::mm", "aten::mm")] == 1
    assert found.same_work is None
    assert any("one of 6144·8192·768 is 2 of 3072·8192·768" in note for note in found.notes)


def attention(*widths: int, kernel: str = MM) -> list[Call]:
    """Projections of these widths, what attends, and the projection of its result."""
    attend = Call("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<64, 128>(params)", 6.0)
    return [*(product(TOKENS, 4096, width, kernel) for width in widths), attend, product(TOKENS, 4096, 4096)]


@pytest.mark.parametrize("layers", [1, 3])
def test_queries_keys_and_values_of_unequal_widths_are_one_product(layers):
    apart, together = attention(4096, 1024, 1024) * layers, attention(6144, kernel=JOINED) * layers
    found = pair(apart, together)
    assert told(found)["fused", ("aten::mm",) * 3, ("aten::mm",)] == layers
    assert found.same_work is not False  # the FLOPs of what attends are not known here
    note = "one of 8192·4096·4096 and 2 of 8192·4096·1024 are one of 8192·4096·6144"
    assert any(note in said for said in found.notes)
    assert told(pair(together, apart))["split", ("aten::mm",), ("aten::mm",) * 3] == layers


def test_batched_products_are_joined_within_their_batch():
    apart = [batched(8, 128, 64, 96), batched(8, 128, 64, 32)]
    assert told(pair(apart, [batched(8, 128, 64, 128, JOINED)]))["fused", ("aten::bmm",) * 2, ("aten::bmm",)] == 1
    assert refused(pair([batched(8, 128, 64, 96)], [batched(4, 128, 64, 192, JOINED)]))


def addition(rows: int = TOKENS, columns: int = 768) -> Call:
    return Call("aten::add", ADD, 8.0, ((rows, columns),) * 2)


def test_products_whose_results_are_added_are_one_over_a_longer_sum():
    apart = [product(TOKENS, 3072, 768), product(TOKENS, 3072, 768), addition()]
    found = pair(apart, [product(TOKENS, 6144, 768, JOINED)])
    assert told(found)["fused", ("aten::mm", "aten::mm", "aten::add"), ("aten::mm",)] == 1
    assert found.same_work is None


def test_without_the_addition_they_are_other_work():
    assert refused(pair([product(TOKENS, 3072, 768)] * 2, [product(TOKENS, 6144, 768, JOINED)]))


# What must not be taken for a join

LAYER = (product(TOKENS, 768, 3072), pointwise("aten::gelu", GELU), product(TOKENS, 3072, 768))


def test_half_as_many_layers_of_twice_the_width_are_other_work():
    wide = [product(TOKENS, 768, 6144), pointwise("aten::gelu", GELU), product(TOKENS, 6144, 768)]
    residual = [*LAYER, addition()]
    assert pair([*LAYER, *LAYER], wide).same_work is False
    assert pair([*residual, *residual], [*wide, addition()]).same_work is False


def test_half_as_many_layers_on_twice_the_batch_are_other_work():
    larger = [replace(call, shapes=tuple((2 * m, n) for m, n in call.shapes[:1]) + call.shapes[1:]) for call in LAYER]
    assert refused(pair([*LAYER, *LAYER], larger))


def linear(k: int, n: int) -> Call:
    """A product with a bias, which ``addmm`` adds."""
    return Call("aten::addmm", MM, 50.0, ((n,), (TOKENS, k), (k, n)), within="aten::linear")


def test_a_bias_is_no_sum_of_two_products():
    gelu = pointwise("aten::gelu", GELU)
    narrow, wide = [linear(768, 3072), gelu, linear(3072, 768)], [linear(768, 6144), gelu, linear(6144, 768)]
    for found in (pair(narrow * 2, wide), pair(wide, narrow * 2), pair([linear(768, 768)] * 2, [linear(1536, 768)])):
        assert found.same_work is False


def test_an_equal_product_elsewhere_does_not_make_two_batches_one():
    def decoded(rows: int) -> list[Call]:
        return [product(rows, 4096, 4096), pointwise("aten::gelu", GELU), product(rows, 4096, 14336)]

    head = product(1, 4096, 32000)
    for found in (
        pair([*decoded(64) * 4, head], [*decoded(128) * 2, head]),
        pair([*decoded(128), head], [*decoded(64) * 2, head]),
    ):
        assert found.same_work is False


def test_experts_in_another_number_are_other_work():
    def experts(count: int) -> list[Call]:
        rows = TOKENS // count * 2
        each = [product(rows, 1024, 512), pointwise("aten::gelu", GELU), product(rows, 512, 1024)]
        return [product(TOKENS, 1024, 1024), *each * count]

    assert pair(experts(8), experts(16)).same_work is False
    assert pair(experts(16), experts(8)).same_work is False


def test_heads_grouped_in_another_way_are_no_join():
    found = pair(attention(4096, 1024, 1024), attention(2048, 2048, 2048))
    assert not any("are one of" in note for note in found.notes)


def test_small_products_that_only_one_step_has_are_named():
    base = product(TOKENS, 4096, 4096)
    adapted = [base, product(TOKENS, 4096, 8), product(TOKENS, 8, 4096), addition(columns=4096)]
    found = pair([base] * 2, adapted * 2)
    assert found.same_work is False
    assert "products that the baseline lacks: 8192·4096·8 (2×), 8192·8·4096 (2×)" in found.notes[0]
    assert "products that the other trace lacks" in pair(adapted * 2, [base] * 2).notes[0]


def test_products_of_other_sizes_on_both_sides_are_other_work_at_nearly_equal_flops():
    base, one = product(TOKENS, 4096, 4096), product(TOKENS, 4096, 8)
    other = Call("aten::addmm", OTHER_MM, 50.0, ((16,), (TOKENS, 4096), (4096, 16)))
    said = "products that the other trace lacks: 8192·4096·8; products that the baseline lacks: 8192·4096·16"
    crossing = pair([base, one], [other, base])
    assert {place.category for place in crossing.places} == {"identical", "removed", "added"}
    # In one order they are a pair, though on no better ground than that.
    paired = pair([base, one], [base, other])
    assert {place.how for place in paired.places if place.category == "replaced"} == {"order and kind"}
    for found in (crossing, paired):
        assert found.same_work is False
        assert said in found.notes[0]


def test_a_product_of_unknown_size_may_be_any():
    base, one, other = product(TOKENS, 4096, 4096), product(TOKENS, 768, 3072), product(TOKENS, 3072, 768)
    bias = Call("aten::addmm", OTHER_MM, 50.0, ((3072,), (TOKENS, 768), (768, 3072)))
    # One kernel made products of equal FLOPs: a report alone does not tell which of them has which size.
    reports = [explain(program(calls).trace()) for calls in ([one, other, base], [base, bias, bias])]
    (found,) = compare(reports).pairs
    assert {place.category for place in found.places} == {"identical", "removed", "added"}
    assert found.same_work is None
    assert not any("lacks" in note for note in found.notes)
    # The traces tell.
    assert pair([one, other, base], [base, bias, bias]).same_work is False


@pytest.mark.parametrize(("m", "n", "calls"), [(TOKENS // 2, 6144, 2), (TOKENS // 2, 3072, 4)])
def test_a_fused_kernel_of_another_batch_is_other_work_at_equal_flops(m: int, n: int, calls: int):
    found = pair([*[product(m, 768, n)] * calls, generated(FUSED), DOWN], [GATE_UP, DOWN])
    assert found.same_work is False
    assert "8192·768·6144" in found.notes[0]


@pytest.mark.parametrize("beside", [(), (product(TOKENS, 512, 512),)], ids=["alone", "beside an equal product"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((64, 768, 3072), (32, 768, 3072)),
        ((64, 768, 3072), (64, 768, 6144)),
        ((64, 768, 3072), (128, 768, 1536)),
        ((64, 768, 3072), (64, 1536, 1536)),
        ((64, 768, 3072), (128, 384, 3072)),
    ],
)
def test_other_sizes_are_other_work_also_where_the_flops_are_equal(one, other, beside):
    for before, after in ((one, other), (other, one)):
        assert refused(pair([*beside, *[product(*before)] * 2], [*beside, *[product(*after)] * 2]))


def test_a_product_of_another_type_joins_nothing():
    half = JOINED.replace("tst", "hsh")
    apart, together = attention(4096, 1024, 1024), attention(6144, kernel=half)
    assert pair(apart, together).same_work is False


def test_one_kernel_may_make_products_of_equal_flops_and_other_sizes():
    one, other = product(TOKENS, 768, 3072), product(TOKENS, 3072, 768)
    found = pair([one, other], [one, one])
    assert found.same_work is False
    assert "8192·3072·768 → 8192·768·3072" in found.notes[0]
    # A report alone does not tell which product had which size.
    (of_reports,) = compare([explain(program([one, other]).trace()), explain(program([other, one]).trace())]).pairs
    assert {place.category for place in of_reports.places} == {"identical"}
    assert of_reports.same_work is True


# Another order


def test_products_of_equal_size_find_each_other_in_another_order():
    weight, data = product(768, TOKENS, 3072), product(TOKENS, 3072, 768, OTHER_MM)
    found = pair([weight, data], [data, weight])
    assert [(place.category, place.count) for place in found.places] == [("identical", 1)] * 2
    assert found.same_work is True


def test_a_product_and_an_addition_become_one_that_accumulates():
    accumulating = Call("aten::addmm_", MM, 53.0, ((TOKENS, 768), (TOKENS, 3072), (3072, 768)))
    found = pair([DOWN, addition()], [accumulating])
    assert told(found) == {("fused", ("aten::mm", "aten::add"), ("aten::addmm_",)): 1}
    assert told(pair([accumulating], [DOWN, addition()])) == {
        ("split", ("aten::addmm_",), ("aten::mm", "aten::add")): 1
    }


def test_one_kernel_that_moved_is_not_replaced_by_itself():
    fused = generated("triton_poi_fused_add_gelu_0")
    one, other = product(TOKENS, 768, 3072), product(TOKENS, 3072, 768, OTHER_MM)
    for found in (pair([one, fused, other], [fused, one, other]), pair([fused, one, other], [one, fused, other])):
        assert {place.category for place in found.places} == {"identical"}


# Kernels that fuse what was fused already

GATE = product(TOKENS, 768, 3072)
GATE_UP = Call(
    "foretrace::gate_up",
    "foretrace_hopper_gate_up_gelu_tanh_128x256x64_4stages",
    110.0,
    ((TOKENS, 768), (3072, 768), (3072, 768)),
)
GATE_UP_BACKWARD = Call(
    "foretrace::gate_up_backward",
    "foretrace_hopper_gate_up_backward_gelu_tanh_128x256x64_3stages",
    83.0,
    ((TOKENS, 768), (768, 3072), (TOKENS, 6144)),
)
HIDDEN = ((TOKENS, 3072),) * 3


def generated(name: str) -> Call:
    return Call(name, name, 40.0, HIDDEN)


def test_a_generated_kernel_is_a_part_where_all_of_its_own_parts_are():
    found = pair([GATE, GATE, generated(FUSED), DOWN], [GATE_UP, DOWN])
    assert told(found)["fused", ("aten::mm", "aten::mm", FUSED), ("foretrace::gate_up",)] == 1
    (fused,) = [place for place in found.places if place.category == "fused"]
    assert (fused.title.split(" → ")[0], fused.how) == ("2 mm + triton_poi gelu·mul", "parts in the name")
    assert found.same_work is True


def test_fusions_of_known_and_of_unknown_bytes_are_told_apart():
    gelu, mul = Call("aten::gelu", GELU, 10.0, HIDDEN[:1]), Call("aten::mul", MUL, 10.0, HIDDEN[:2])
    bare, fused = replace(gelu, shapes=()), generated(FUSED)
    calls = [GATE, gelu, mul, DOWN, GATE, bare, mul, DOWN]
    found = compare([program(calls).trace(), program([GATE, fused, DOWN, GATE, fused, DOWN]).trace()])
    places = [place for place in found.pairs[0].places if place.category == "fused"]
    read_and_written = 2 * TOKENS * 3072 * 2  # what the fused kernel keeps to itself, two bytes each
    assert [(place.count, place.bytes_vanished) for place in places] == [(1, read_and_written), (1, None)]
    assert found.pairs[0].bytes_vanished is None
    told_of = [text for text in found.conclusion[0].changed if text.startswith("gelu + mul")]
    assert told_of[0].endswith("101 MB less through memory")
    assert "the bytes of elementwise<8> gelu are unknown" in told_of[1]
    # Where the place without bytes comes first, nothing else changes.
    (back,) = compare([program(calls[4:] + calls[:4]).trace(), program([GATE, fused, DOWN] * 2).trace()]).pairs
    assert {place.bytes_vanished for place in back.places if place.category == "fused"} == {read_and_written, None}


def test_a_kernel_that_moves_next_to_nothing_did_not_take_a_large_row_in():
    counter = Call("triton_poi_fused_add_1", "triton_poi_fused_add_1", 1.0, ((1,),) * 3)
    found = pair([DOWN, addition(), GATE], [DOWN, counter, GATE])
    assert told(found)["removed", ("aten::add",), ()] == 1
    assert told(found)["added", (), (counter.op,)] == 1


def test_a_generated_kernel_that_does_more_is_none():
    more = generated("triton_poi_fused_cos_gelu_mul_0")
    assert told(pair([GATE, GATE, more, DOWN], [GATE_UP, DOWN]))["removed", (more.op,), ()] == 1


def test_a_backward_takes_its_product_and_no_product_of_another_size():
    backward = generated("triton_poi_fused__unsafe_view_gelu_gelu_backward_mul_view_0")
    gradients = [product(3072, TOKENS, 768), DOWN]
    found = pair([GATE, backward, *gradients], [GATE_UP_BACKWARD, *gradients])
    assert told(found)["fused", ("aten::mm", backward.op), ("foretrace::gate_up_backward",)] == 1
    # The same, with the gradients in another order.
    found = pair([GATE, backward, *gradients], [GATE_UP_BACKWARD, *gradients[::-1]])
    assert told(found)["fused", ("aten::mm", backward.op), ("foretrace::gate_up_backward",)] == 1
    assert {place.category for place in found.places} == {"fused", "identical"}


def test_a_fused_kernel_whose_second_product_was_not_found_is_no_other_size():
    # The second product is paired with another of its size: what is missing is the alignment's fault.
    found = pair([GATE, generated(FUSED), DOWN, GATE], [GATE_UP, DOWN, GATE])
    assert not any("other sizes" in note for note in found.notes)


def test_fused_products_of_another_width_are_other_work():
    narrow = [product(TOKENS, 768, 1024), pointwise("aten::gelu", GELU)]
    found = pair([*narrow, narrow[0], pointwise("aten::mul", MUL, operands=2)], [GATE_UP])
    assert found.same_work is False
    assert "3 times the FLOPs" in found.notes[0]


def test_all_rows_of_a_part_go_into_a_kernel_that_does_others_too():
    muls = [pointwise("aten::mul", MUL, operands=2)] * 2
    backward = pointwise("aten::gelu_backward", "void at::native::vectorized_elementwise_kernel<8, GeluBackward>(int)")
    fused = generated("triton_poi_fused_gelu_gelu_backward_mul_0")
    found = pair([GATE, *muls, DOWN, backward, GATE], [GATE, fused, DOWN, GATE])
    assert told(found)["fused", ("aten::mul", "aten::mul", "aten::gelu_backward"), (fused.op,)] == 1
