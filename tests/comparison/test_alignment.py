"""Which kernel does the work of which: by call path, through renames, insertions, fusions and graph replays."""

from __future__ import annotations

from collections import Counter

import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, FUSED, GELU, MUL, OTHER_MM, Call, mm, pointwise, program
from foretrace import compare
from foretrace.knowledge.kernels.predicted import spell


def places(a: TraceBuilder, b: TraceBuilder):
    (pair,) = compare([a.trace(), b.trace()]).pairs
    return pair.places


def told(a: TraceBuilder, b: TraceBuilder) -> Counter:
    """How often each category stands, with the operators on both sides."""
    found: Counter = Counter()
    for place in places(a, b):
        found[place.category, tuple(r.op for r in place.a), tuple(r.op for r in place.b)] += place.count
    return found


def test_the_same_program_has_nothing_but_identical_kernels():
    assert {place.category for place in places(program(EAGER), program(EAGER))} == {"identical"}


def test_a_renamed_kernel_keeps_its_place():
    other = [EAGER[0].renamed("some_new_gemm_kernel"), *EAGER[1:]]
    found = told(program(EAGER), program(other))
    assert found["replaced", ("aten::mm",), ("aten::mm",)] == 1
    assert found["identical", ("aten::mm",), ("aten::mm",)] == 2


def test_a_kernel_of_another_kind_in_the_same_call_path_is_replaced():
    # The name alone said that it was a reduction; renamed, it may be anything.
    reduction = spell("reduction", dtype="bf16", ops=["sum"])
    found = told(program([EAGER[0], EAGER[1].renamed(reduction), *EAGER[2:]]), program(EAGER))
    assert found["replaced", ("aten::gelu",), ("aten::gelu",)] == 1
    assert {category for category, _, _ in found} == {"identical", "replaced"}


def test_all_kernels_renamed_are_all_replaced_by_call_path():
    other = [call.renamed(f"kernel_{number}") for number, call in enumerate(EAGER)]
    found = places(program(EAGER), program(other))
    assert {(place.category, place.how) for place in found} == {("replaced", "call path")}
    assert sum(place.count for place in found) == len(EAGER)


def test_an_inserted_operator_is_added_and_moves_nothing():
    extra = pointwise("aten::relu", "relu_kernel")
    found = told(program(EAGER), program([*EAGER[:2], extra, *EAGER[2:]]))
    assert found["added", (), ("aten::relu",)] == 1
    assert sum(n for (category, *_), n in found.items() if category == "identical") == len(EAGER)


def test_an_operator_that_is_gone_is_removed():
    assert told(program(EAGER), program(EAGER[:-1]))["removed", ("aten::mm",), ()] == 1


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_step_counts_may_differ(steps):
    assert {place.category for place in places(program(EAGER), program(EAGER, steps=steps))} == {"identical"}


def test_a_trace_without_steps_is_compared_as_a_whole():
    whole = program(EAGER, steps=1, annotated=False)
    assert {place.category for place in places(program(EAGER), whole)} == {"identical"}


def test_one_trace_without_shapes_is_aligned_and_said_so():
    (pair,) = compare([program(EAGER).trace(), program(EAGER, shapes=False).trace()]).pairs
    assert {place.category for place in pair.places} == {"identical"}
    assert any("without shapes" in note for note in pair.notes)
    assert pair.same_work is None


def test_two_kernels_whose_operators_a_fused_name_lists_are_fused_and_their_bytes_counted():
    (fused,) = [p for p in places(program(EAGER), program(COMPILED)) if p.category == "fused"]
    assert [row.op for row in fused.a] == ["aten::gelu", "aten::mul"]
    assert [row.op for row in fused.b] == [FUSED]
    assert fused.how == "parts in the name"
    elements = 64 * 16 * 2
    assert (fused.a_bytes, fused.b_bytes, fused.bytes_vanished) == (5 * elements, 3 * elements, 2 * elements)


def test_the_other_way_round_it_is_split():
    (split,) = [p for p in places(program(COMPILED), program(EAGER)) if p.category == "split"]
    assert [row.op for row in split.b] == ["aten::gelu", "aten::mul"]
    elements = 64 * 16 * 2
    assert split.bytes_vanished == -2 * elements  # more of them travel now


def test_neighbouring_fused_kernels_each_take_their_own_parts():
    gelu_mul = [pointwise("aten::gelu", GELU), pointwise("aten::mul", MUL, operands=2)]
    norm = [pointwise("aten::pow", "pow_kernel"), pointwise("aten::mean", "mean_kernel"), gelu_mul[1]]
    norm_kernel = "triton_red_fused_mean_mul_pow_0"
    fused = [Call(norm_kernel, norm_kernel, 9.0, ((64, 16),) * 2), COMPILED[2]]
    found = told(program([mm(), *norm, *gelu_mul, mm()]), program([mm(), *fused, mm()]))
    assert found["fused", ("aten::pow", "aten::mean", "aten::mul"), (norm_kernel,)] == 1
    assert found["fused", ("aten::gelu", "aten::mul"), (FUSED,)] == 1


def test_a_fused_kernel_takes_no_far_away_rows_of_one_part():
    many = [mm(), *[pointwise("aten::mul", MUL)] * 60, mm()]
    found = told(program(many), program([mm(), COMPILED[2], mm()]))
    assert found["replaced", ("aten::mul",), (FUSED,)] == 1
    assert found["removed", ("aten::mul",), ()] == 59


def test_several_kernels_against_one_attention_kernel_are_fused_by_position():
    eager = [
        mm(),
        Call("aten::bmm", OTHER_MM, 5.0),
        Call("aten::_softmax", "void cunn_SoftMaxForward<8, float>(float*)", 5.0),
        Call("aten::bmm", OTHER_MM, 5.0),
        mm(),
    ]
    flash = Call("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<64, 128>(params)", 6.0)
    (fused,) = [p for p in places(program(eager), program([mm(), flash, mm()])) if p.category == "fused"]
    assert (len(fused.a), fused.how) == (3, "position")


@pytest.mark.parametrize("shapes", [True, False])
def test_an_addition_that_became_an_epilogue_is_fused_into_the_gemm(shapes):
    add = pointwise("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>(int)")
    operands = ((16,), *mm().shapes)
    bias = Call("aten::addmm", "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", 40.0, operands, within="aten::linear")
    found = told(program([mm(), add, mm()], shapes=shapes), program([bias, mm()], shapes=shapes))
    assert found["fused", ("aten::mm", "aten::add"), ("aten::addmm",)] == 1


def replay(names: list[str], steps: int = 3) -> TraceBuilder:
    build = TraceBuilder()
    for number in range(steps):
        at = 200.0 * number
        build.step(number, at, 190)
        launch = build.call("cudaGraphLaunch", at + 5, 5)
        for position, name in enumerate(names):
            build.kernel(name, at + 20 + 30 * position, 10.0, launch=launch)
    return build


def test_a_graph_replay_is_aligned_by_name_and_said_so():
    graph = replay([COMPILED[0].kernel, COMPILED[1].kernel, FUSED, OTHER_MM])
    (pair,) = compare([program(EAGER).trace(), graph.trace()]).pairs
    counts = Counter()
    for place in pair.places:
        counts[place.category] += place.count
    assert counts == {"identical": 3, "fused": 1}
    assert {place.how for place in pair.places} == {"kernel name", "parts in the name"}
    assert any("replays a CUDA graph" in note for note in pair.notes)
    assert pair.bytes_vanished is None


def test_rows_of_torch_compile_are_no_part_of_a_call_path():
    compiled = program(EAGER, around=("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fabc ##"))
    found = places(program(EAGER), compiled)
    assert {(place.category, place.how) for place in found} == {("identical", "call path")}


def test_what_a_program_calls_its_regions_may_differ():
    one, other = (program(EAGER, around=(label,)) for label in ("mlp_fwd", "kernels_mlp_fwd"))
    assert {(place.category, place.how) for place in places(one, other)} == {("identical", "call path")}


def test_the_number_of_a_generated_kernel_is_not_its_name():
    later = FUSED.removesuffix("0") + "3"
    other = [Call(later, later, 12.0, call.shapes) if call.op == FUSED else call for call in COMPILED]
    assert {(place.category, place.how) for place in places(program(COMPILED), program(other))} == {
        ("identical", "call path")
    }


def test_a_generated_kernel_of_one_part_replaces_the_operator_it_names():
    generated = "triton_poi_fused_gelu_0"
    other = [Call(generated, generated, 9.0), *EAGER[2:]]
    found = told(program(EAGER[1:], shapes=False), program(other, shapes=False))
    assert found["replaced", ("aten::gelu",), (generated,)] == 1
