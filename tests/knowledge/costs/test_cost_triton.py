"""What generated Triton kernels read and write, from argument lists as Inductor's rows hold them."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from foretrace.knowledge.costs import Cost, triton_cost

BF16 = "c10::BFloat16"
M, N = 8192, 3072
FULL = 2 * M * N  # 50.3 MB


def cost(
    name: str, shapes: list[list[int]], ops: str, *sizes: int, dtypes: list[str] | None = None, **more: Any
) -> Cost:
    return triton_cost(
        name,
        shapes=shapes + [[] for _ in sizes],
        dtypes=(dtypes or [BF16] * len(shapes)) + ["Scalar"] * len(sizes),
        concrete=["" for _ in shapes] + [str(s) for s in sizes],
        ops=ops.split(),
        **more,
    )


def test_the_fused_activation_of_the_compiled_mlp() -> None:
    # Two tensors are listed, three are touched: the gate is read and overwritten, the up projection read.
    found = cost(
        "triton_poi_fused__unsafe_view_gelu_mul_0", [[64, 128, N], [M, N]], "_unsafe_view gelu mul", M * N,
        kernel_kwargs="XBLOCK=1024",
    )  # fmt: skip
    assert found.bytes == 3 * FULL == 150_994_944
    assert found.note is not None
    assert "in place" in found.note


def test_the_same_kernel_with_a_result_of_its_own() -> None:
    found = cost(
        "triton_poi_fused__unsafe_view_gelu_mul_0", [[M, N], [M, N], [64, 128, N]], "_unsafe_view gelu mul", M * N
    )
    assert found.bytes == 3 * FULL


def test_two_inputs_and_a_result() -> None:
    found = cost("triton_poi_fused_add_cos_sin_0", [[10, 10]] * 3, "add cos sin", 100, dtypes=["float"] * 3)
    assert found.bytes == 3 * 400


def test_a_bias_added_in_place() -> None:
    # only the first tensor has the kernel's size, so it is the result as well as an operand
    found = cost("triton_poi_fused_addmm_silu_3", [[M, N], [N]], "addmm silu", M * N)
    assert found.bytes == 2 * FULL + 2 * N


def test_a_broadcast_first_operand_means_a_separate_result() -> None:
    found = cost("triton_poi_fused_add_0", [[N], [M, N], [M, N]], "add", M * N)
    assert found.bytes == 2 * FULL + 2 * N


def test_one_tensor_is_updated_or_created() -> None:
    assert cost("triton_poi_fused_silu_2", [[M, N]], "silu", M * N).bytes == 2 * FULL
    assert cost("triton_poi_fused_zeros_1", [[M, N]], "zeros", M * N).bytes == FULL
    undecided = cost("triton_poi_fused_arange_cos_1", [[M, N]], "arange cos", M * N)
    assert undecided.bytes is None
    assert undecided.reason


def test_a_cast_has_a_result_of_its_own() -> None:
    found = cost("triton_poi_fused__to_copy_1", [[M, N], [M, N]], "_to_copy", M * N, dtypes=["float", BF16])
    assert found.bytes == 3 * FULL  # 4 bytes read and 2 written an element


def test_two_dimensional_iteration_space() -> None:
    found = cost("triton_poi_fused_clone_2", [[M, N], [M, N]], "clone", M, N, kernel_kwargs="YBLOCK=32, XBLOCK=32")
    assert found.bytes == 2 * FULL


def test_an_embedding_reads_the_rows_gathered() -> None:
    found = cost(
        "triton_poi_fused_embedding_0", [[4096], [32000, 1024], [4096, 1024]], "embedding", 4096 * 1024,
        dtypes=["long int", BF16, BF16],
    )  # fmt: skip
    assert found.bytes == 4096 * 8 + 2 * 2 * 4096 * 1024


@pytest.mark.parametrize(
    ("name", "shapes", "ops", "sizes"),
    [
        # one operand more than the operators take, or one less: an operator occurs twice, or takes a number
        ("triton_poi_fused_add_0", [[M, N]] * 4, "add", (M * N,)),
        ("triton_poi_fused_add_mul_tanh_0", [[M, N]] * 2, "add mul tanh", (M * N,)),
        ("triton_poi_fused_frobnicate_0", [[M, N]] * 2, "frobnicate", (M * N,)),
        ("triton_poi_fused_mul_slice_0", [[M, 2 * N], [M, N]], "mul slice", (M * N,)),
        ("triton_poi_fused_add_0", [[7, 7]] * 3, "add", (M * N,)),  # sizes that do not fit
        ("triton_for_fused_0", [[M, N]] * 2, "", ()),
        ("_geglu_tanh_forward_kernel", [[M, N]] * 3, "", (N,)),
    ],
)
def test_what_cannot_be_decided_has_a_reason(name: str, shapes: Any, ops: str, sizes: tuple[int, ...]) -> None:
    found = cost(name, shapes, ops, *sizes)
    assert found.bytes is None
    assert found.reason


def test_a_row_reduction_with_one_value_a_row() -> None:
    found = cost("triton_red_fused_mean_pow_0", [[M, 768], [M, 1]], "mean pow", M, 768)
    assert found.bytes == 2 * M * 768 + 2 * M


def test_an_rms_norm_out_of_place_and_in_place() -> None:
    ops = "add mean mul pow rsqrt"
    separate = cost("triton_red_fused_add_mean_mul_pow_rsqrt_0", [[M, 768], [768], [M, 768]], ops, M, 768)
    assert separate.bytes == 2 * (2 * M * 768 + 768)
    in_place = cost("triton_per_fused_add_mean_mul_pow_rsqrt_0", [[M, 768], [768]], ops, M, 768)
    assert in_place.bytes == 2 * (2 * M * 768 + 768)


def test_a_softmax_in_place() -> None:
    assert cost("triton_per_fused__softmax_0", [[M, 512]], "_softmax", M, 512).bytes == 2 * 2 * M * 512


def test_a_template_is_a_matrix_product() -> None:
    found = triton_cost(
        "triton_tem_fused_mm_0", shapes=[[M, 768], [768, N], [M, N]], dtypes=[BF16] * 3,
        strides=[[768, 1], [1, 768], [N, 1]], ops=["mm"],
    )  # fmt: skip
    assert found.flops == 2 * M * 768 * N
    assert found.bytes == 2 * (M * 768 + 768 * N + M * N)
    assert found.gemms[0].layout == "TN"


# Signatures that Inductor generated (torch 2.13), shapes scaled: "+" is in_out_ptr, "<" in_ptr, ">" out_ptr.
X, P, W = [4, 32, 64], [128, 64], [64]  # activations, a matrix product, a weight
STAT, SIZES = [4, 32, 1], (128, 64)
RECORDED = {
    "add two products to the stream": ("poi", "_unsafe_view add", "+<<", [X, P, P], (8192,)),
    "gate and up, biased": ("poi", "gelu mul", "<<>", [P, P, X], (8192,)),
    "squared relu": ("poi", "_unsafe_view mul pow relu", "<<>", [P, P, X], (8192,)),
    "highway": ("poi", "_unsafe_view add mul rsub sigmoid tanh", "<<<>", [P, X, P, X], (8192,)),
    "transposed copy": ("poi", "_unsafe_view clone", "<>", [[4, 64, 32], P], (8192,)),
    "batch norm": ("poi", "_native_batch_norm_legit_functional relu", "<<<<<>",
                   [[2, 64, 8, 8], [1, 64, 1, 1], [1, 64, 1, 1], W, W, [2, 64, 8, 8]], (8192,)),
    "rms norm": ("per", "_to_copy add mean mul pow rsqrt", "<<>", [X, W, X], SIZES),
    "residual rms norm": ("per", "_to_copy _unsafe_view add mean mul pow rsqrt", "<<<>", [X, P, W, X], SIZES),
    "residual of five": ("per", "_unsafe_view add mean mul pow rsqrt", "+<<<<<>", [X, X, P, P, P, W, X], SIZES),
    "residual layer norm": ("per", "add native_layer_norm", "<<<<>", [X, P, W, W, X], SIZES),
    "bias gradient": ("per", "sum", "<>", [[64, 128], [1, 64]], (64, 128)),
    "log softmax statistics": ("per", "_log_softmax _to_copy", ">>", [STAT, [128, 64]], SIZES),
}  # fmt: skip


@pytest.mark.parametrize("case", RECORDED)
def test_kernels_that_inductor_generated(case: str) -> None:
    kind, ops, roles, shapes, sizes = RECORDED[case]
    found = cost(f"triton_{kind}_fused_{ops.replace(' ', '_')}_0", shapes, ops, *sizes)
    expected = sum(2 * prod(shape) * (2 if role == "+" else 1) for role, shape in zip(roles, shapes, strict=True))
    assert found.bytes == expected, found.reason


@pytest.mark.parametrize(
    ("kind", "ops", "shapes", "sizes"),
    [
        # two gradients, of which one overwrites an operand: 5 tensors touched, 4 listed
        ("poi", "_unsafe_view gelu gelu_backward mul", [X, P, P, X], (8192,)),
        # statistics are listed, so the kernel keeps its sum for the backward pass, somewhere
        ("per", "_to_copy _unsafe_view add mean mul pow rsqrt", [X, STAT, X, P, W, X], SIZES),
        # rotary embeddings: values created inside leave open which operands are tensors
        ("poi", "_to_copy add arange cos mul ones", [X, X, X], (8192,)),
        ("poi", "embedding_dense_backward", [[500, 64]], (32000,)),  # in truth a fill
    ],
)
def test_generated_kernels_that_rows_cannot_decide(kind: str, ops: str, shapes: Any, sizes: Any) -> None:
    found = cost(f"triton_{kind}_fused_{ops.replace(' ', '_')}_0", shapes, ops, *sizes)
    assert found.bytes is None
    assert found.reason


def test_a_saved_mask_is_not_taken_for_an_operand() -> None:
    found = cost("triton_poi_fused_threshold_backward_8", [X, X], "threshold_backward", 8192, dtypes=[BF16, "bool"])
    assert found.bytes is None


def test_rows_without_shapes_say_so() -> None:
    found = triton_cost("triton_poi_fused_add_0", shapes=[], dtypes=[], ops=["add"])
    assert found.bytes is None
    assert found.reason is not None
    assert "record_shapes" in found.reason
