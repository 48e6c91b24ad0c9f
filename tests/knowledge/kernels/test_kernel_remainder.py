"""What a name spells out beside its family's grammar: decoded where it is unambiguous, visible as unknown where not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.kernels import decode

KINDS: list[tuple[str, str]] = [
    ("void flashinfer::PrefillWithKVCacheKernel<T>(x)", "attention"),
    ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<T>(x)", "attention"),
    ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<T>(x)", "attention"),
    ("void flashinfer::SinglePrefillWithKVCacheKernel<T>(x)", "attention"),
    ("void flashinfer::MergeStateKernel<8u, float, __half>(x)", "attention"),
    ("void flashinfer::AppendPagedKVCacheKernel<128u, 8u, __half>(x)", "copy"),
    ("void wvSplitK_hf_sml_<__half, 64, 4, 16, 8, 2, 1>(int, int)", "gemm"),
    ("_DWf_DW_dfg_kernel", "fused"),
    ("_fg_kernel", "fused"),
    ("chunk_fwd_kernel_o", "attention"),
    ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "attention"),
    ("fused_recurrent_gated_delta_rule_fwd_kernel", "attention"),
]

SPELLED_OUT: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 112u, 64u, 1u, 4u, 128u, 128u, 2u, "
        "(deep_gemm::GemmType)0>(x)",
        {"dtype": "fp8", "tile": "128x112", "tile_k": 64, "stages": 4, "fixed_n": 4096, "fixed_k": 7168},
        ["1u", "128u", "128u", "2u", "(deep_gemm::GemmType)0"],
    ),
    (
        "void deep_gemm::sm90_fp8_gemm_1d1d_impl<0u, 4096u, 7168u, 1u, 64u, 128u, 128u, 128u, 128u, 5u, 128u, 256u>(x)",
        {"dtype": "fp8", "arch": "sm90", "tile": "64x128", "tile_k": 128, "stages": 5, "groups": 1},
        ["128u", "128u", "128u", "256u"],
    ),
    ("sm90_fp8_gemm_1d1d_impl", {"dtype": "fp8", "arch": "sm90"}, []),
    # another architecture's list has another order: no number is read
    (
        "void deep_gemm::sm100_fp8_gemm_1d1d_impl<0u, 4096u, 7168u>(x)",
        {"dtype": "fp8", "arch": "sm100", "tile": None},
        ["0u", "4096u", "7168u"],
    ),
    ("_w8a8_block_fp8_matmul", {"dtype": "fp8"}, []),
    ("fbgemm_gpu::rowwise_fp8_kernel", {"dtype": "fp8"}, []),
    (
        "_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_192x128E",
        {"dtype": "fp4", "out_dtype": "bf16", "tile": "192x128", "scale_block": "1x32"},
        [],
    ),
    (
        "aiter::fmha_fwd_hd128_bf16_causal_rtne",
        {"head_dim": 128, "dtype": "bf16", "causal": True, "direction": "forward"},
        [],
    ),
    ("aiter::fmha_bwd_hd64_fp16_a32_psskddv", {"head_dim": 64, "dtype": "fp16", "direction": "backward"},
     ["a32", "psskddv"]),
    (
        "fmha_v2_flash_attention_bf16_64_128_S_qkv_128_sm90_kernel",
        {"dtype": "bf16", "tile": "64x128", "head_dim": 128, "arch": "sm90"},
        [],
    ),
    (
        "fmha_v2_flash_attention_fp16_fp32_128_64_S_q_paged_kv_192x128_causal_tma_ws_odd_sm90_kernel",
        {"dtype": "fp16", "acc_dtype": "fp32", "tile": "128x64", "head_dim": 192, "head_dim_v": 128, "causal": True},
        ["odd"],
    ),
    (
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 32, 8, cutlass::bfloat16_t, 512> >(x)",
        {"head_dim": 576, "tile": "64x32", "dtype": "bf16"},
        [],
    ),
    (
        "void flashinfer::PrefillWithKVCacheKernel<flashinfer::KernelTraits<(flashinfer::MaskMode)1, 64u, 1u, 4u, 8u, "
        "8u, 4u, 1u, (flashinfer::PosEncodingMode)0, __half, __half, __half, float, int> >(x)",
        {"head_dim": 128, "tile_q": 64, "causal": True, "dtype": "fp16"},
        [],
    ),
    (
        "void wvSplitKQ_hf_sml_<__hip_bfloat16, c10::Float8_e4m3fnuz, 64, 2>(x)",
        {"dtype": "fp8_e4m3fnuz", "out_dtype": "bf16", "splitk": True},
        ["64", "2"],
    ),
    (
        "void marlin::Marlin<__half, 1125899906909960l, 128, 2, 4, 8, false, 4, -1, false>(x)",
        {"dtype": "fp16", "threads": 128, "tile": "32x64", "tile_k": 128, "stages": 4, "group_size": None},
        ["1125899906909960l", "-1", "false"],
    ),
    ("void marlin::Marlin<4, 256, 1, 8, 8, 3, 8>(x)",
     {"weight_bits": 4, "threads": 256, "tile": "16x128", "stages": 3, "group_size": 128}, []),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_f2x3_stride1", {"dtype": "fp16", "arch": "gfx9"}, []),
    ("userbuffers_fp16_sum_inplace_gpu_rw(int, int)", {"dtype": "fp16"}, []),
    ("void conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float>(x)", {"dtype": "fp32"}, []),
    ("batched_transpose_64x32_pack_4x2_ediv_2x1_half",
     {"tile": "64x32", "pack": "4x2", "elements_a_thread": "2x1", "dtype": "fp16"}, []),
    ("void vllm::silu_and_mul_quant_fp8<__half>(x)", {"dtype": "fp16", "out_dtype": "fp8"}, []),
    ("lib::fp8_scaling::sm90::scale_kernel(int)", {"dtype": None, "arch": "sm90"}, []),
    ("_flash_attn_fwd_hdim96_fp16_noncausal_sm80", {"head_dim": 96, "causal": False, "dtype": "fp16"}, []),
    ("void cuda::per_token_cast_to_fp8<__nv_bfloat16, 128>(x)", {"dtype": "bf16", "out_dtype": "fp8"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_kind_of(name: str, kind: str) -> None:
    assert decode(name).kind == kind


@pytest.mark.parametrize(("name", "fields", "unknown"), SPELLED_OUT, ids=[case[0][:50] for case in SPELLED_OUT])
def test_what_is_spelled_out_is_decoded_or_unknown(name: str, fields: dict[str, Any], unknown: list[str]) -> None:
    d = decode(name)

    assert {key: d.decoded.get(key) for key in fields} == fields
    assert d.unknown == unknown


def flash3(main_loop: str, arguments: str) -> str:
    return (
        f"void cutlass::device_kernel<flash::enable_sm90_or_later<flash::X{main_loop}<flash::CollectiveMainloop"
        f"{main_loop}<{arguments}>, flash::CollectiveEpilogue<x> > > >(y)"
    )


@pytest.mark.parametrize("causal", [True, False])
def test_flash_attention_3_says_tile_head_dimension_and_mask(causal: bool) -> None:
    cluster, tile = "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >", "cute::tuple<cute::C<128>, cute::C<{}>, {}>"
    flag = str(causal).lower()
    forward = flash3(
        "FwdSm90",
        f"2, {cluster}, {tile.format(176, 'cute::C<64>')}, 64, cutlass::half_t, float, cutlass::arch::Sm90, {flag}, x",
    )
    backward = flash3(
        "BwdSm80",
        f"2, 2, {tile.format(64, 'cute::C<96>')}, cutlass::bfloat16_t, float, cutlass::arch::Sm80, {flag}, true",
    )

    got = {key: decode(forward).decoded.get(key) for key in ("tile", "head_dim", "causal", "arch", "dtype")}
    assert got == {"tile": "128x176x64", "head_dim": 64, "causal": causal, "arch": "sm90", "dtype": "fp16"}
    got = {key: decode(backward).decoded.get(key) for key in ("tile", "head_dim", "causal", "arch", "direction")}
    assert got == {"tile": "128x64x96", "head_dim": 96, "causal": causal, "arch": "sm80", "direction": "backward"}


CONTIGUOUS_K = "cute::tuple<long, cute::C<1>, long>"
CONTIGUOUS_ROWS = "cute::tuple<cute::C<1>, long, long>"


@pytest.mark.parametrize(
    ("a", "b", "layouts"),
    [
        (CONTIGUOUS_K, CONTIGUOUS_K, ["RowMajor", "ColumnMajor"]),
        (CONTIGUOUS_ROWS, CONTIGUOUS_K, ["ColumnMajor", "ColumnMajor"]),
        (CONTIGUOUS_K, CONTIGUOUS_ROWS, ["RowMajor", "RowMajor"]),
        (CONTIGUOUS_K, "cute::tuple<long, long, long>", None),
    ],
)
def test_cutlass_3_strides_say_the_layouts_of_the_operands(a: str, b: str, layouts: list[str] | None) -> None:
    d = decode(
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
        "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm100TmaUmmaWarpSpecialized<4, cute::tuple<"
        "cute::C<2>, cute::C<1>, cute::C<1> >, x>, cute::tuple<cute::C<128>, cute::C<256>, cute::C<64> >, "
        f"cutlass::bfloat16_t, {a}, cutlass::bfloat16_t, {b}, cute::SM90_TMA_LOAD> > >(z)"
    )

    assert d.decoded.get("operand_layouts") == layouts
    assert (d.decoded["arch"], d.decoded["tile"], d.decoded["tile_k"]) == ("sm100", "128x256", 64)


def test_cutlass_3_without_a_main_loop_takes_the_shape_that_is_no_cluster() -> None:
    d = decode(
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<cute::C<2>, cute::C<1>, "
        "cute::C<1>>, cute::tuple<cute::C<64>, cute::C<128>, cute::C<32>>, cutlass::layout::RowMajor, "
        "cutlass::layout::ColumnMajor, cutlass::half_t, cutlass::arch::Sm90>>(p)"
    )

    assert d.decoded["operand_layouts"] == ["RowMajor", "ColumnMajor"]
    assert (d.decoded["arch"], d.decoded["tile"], d.decoded["dtype"]) == ("sm90", "64x128", "fp16")


TYPES = {"bf16": "bf16", "fp16": "fp16", "f16": "fp16", "fp8": "fp8", "e4m3": "fp8_e4m3", "fp4": "fp4", "int8": "int8"}


@given(
    st.sampled_from(["my_gemm_kernel", "attn_fwd_special", "frobnicate"]),
    st.sampled_from(sorted(TYPES)),
    st.sampled_from(["sm80", "sm90a", "sm120", "gfx942"]),
    st.sampled_from(["64x64", "128x256", "128x128x64"]),
    st.permutations([0, 1, 2]),
)
def test_one_candidate_fills_its_field(stem: str, dtype: str, arch: str, tile: str, order: list[int]) -> None:
    tokens = [dtype, arch, tile]
    d = decode("_".join([stem, *(tokens[at] for at in order)]))

    assert d.decoded["dtype"] == TYPES[dtype]
    assert d.decoded["arch"] == arch
    assert d.decoded["tile"] == "x".join(tile.split("x")[:2])


def test_competing_candidates_stay_unknown() -> None:
    d = decode("attn_bf16_fp8_hd128_d64_sm80_sm90_64x64_128x128")

    assert not {"dtype", "arch", "tile", "head_dim"} & set(d.decoded)
    assert d.unknown == ["bf16", "fp8", "sm80", "sm90", "64x64", "128x128", "hd128", "d64"]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("my_gemm_cluster_2x1_bf16", "tile"),  # a cluster, not a tile
        ("void fft2d_r2c_32x32<float>(x)", "tile"),  # the size of a transform
        ("max_pool_window_64x64", "tile"),
        ("rope_d64_kernel", "head_dim"),  # d is a head dimension in attention only
        ("half_of_the_rows_sum", "dtype"),  # an English word
        ("copy_int4_kernel", "dtype"),  # a vector of four integers
    ],
)
def test_what_only_looks_like_a_property_is_not_taken_for_one(name: str, field: str) -> None:
    assert field not in decode(name).decoded


@pytest.mark.parametrize(
    "piece",
    ["_bf16", "_sm90", "128x128_", "Fp4", "hd128_", "fmha_v2_a_1_2_S_", "tuple<C<8>, ", "1u, ", "CollectiveMainloop<",
     "cutlass_80_"],
)  # fmt: skip
def test_the_remainder_is_read_in_linear_time(piece: str) -> None:
    for prefix in ("", "aiter::fmha_fwd_", "void deep_gemm::fp8_gemm_kernel<", "void cutlass::gemm::GemmUniversal<",
                   "void flash::x<", "void marlin::Marlin<", "fmha_v2_flash_attention_"):  # fmt: skip
        name = prefix + piece * (100_000 // len(piece)) + "!"
        start = time.process_time()
        decode(name)
        assert time.process_time() - start < 0.5, (prefix, piece)
