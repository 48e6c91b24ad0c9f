"""One or a few names of each family, with the fields each spells out."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.knowledge.kernels import decode, describe

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"

CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        NVJET,
        "gemm",
        "nvjet",
        {
            "arch": "sm90",
            "dtype": "bf16",
            "acc_dtype": "fp32",
            "out_dtype": "bf16",
            "tile": "256x128",
            "tile_m": 128,
            "tile_n": 256,
            "tile_k": 64,
            "stages": 4,
            "cluster": "1x2",
            "schedule": "cooperative",
            "epilogue": ["bias"],
            "layout": "TN",
        },
    ),
    (
        "nvjet_sm90_qrtst_48x64_128x15_4x2_h_bz_algo2_TNN",
        "gemm",
        "nvjet",
        {"a_dtype": "fp8_e4m3", "b_dtype": "fp8_e5m2", "acc_dtype": "fp32", "out_dtype": "bf16"},
    ),
    ("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_gelubias_TNT", "gemm", "nvjet", {"epilogue": ["bias", "gelu"]}),
    ("nvjet_sm90_hsh_8x64_64x16_4x2_h_bz_splitK_TTN", "gemm", "nvjet", {"dtype": "fp16", "splitk": True}),
    (
        "ampere_fp16_s16816gemm_fp16_128x256_ldg8_relu_f2f_stages_64x3_tn",
        "gemm",
        "cublas",
        {
            "arch": "ampere",
            "dtype": "fp16",
            "acc_dtype": "fp32",
            "instruction": "16x8x16",
            "tile": "128x256",
            "tile_k": 64,
            "stages": 3,
            "layout": "TN",
            "epilogue_supported": ["relu"],
        },
    ),
    ("volta_sgemm_128x32_sliced1x4_nn", "gemm", "cublas", {"dtype": "fp32", "tile": "128x32", "layout": "NN"}),
    ("turing_h1688gemm_256x128_ldg8_stages_32x1_nn", "gemm", "cublas", {"acc_dtype": "fp16", "instruction": "16x8x8"}),
    (
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false, cublasGemvTensorStridedBatched<float const> >(x)",
        "gemm",
        "cublas",
        {"layout": "TN", "dtype": "fp32"},
    ),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float>(cublasLt::cublasSplitKParams<float>)",
        "gemm",
        "cublas",
        {"role": "split-K reduction", "splitk": True},
    ),
    (
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8>(x)",
        "gemm",
        "cutlass",
        {
            "arch": "sm80",
            "dtype": "bf16",
            "instruction": "16x16x16",
            "tile": "32x32",
            "tile_k": 32,
            "stages": 1,
            "layout": "TN",
            "align": 8,
        },
    ),
    ("cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4", "gemm", "cutlass", {"dtype": "tf32", "out_dtype": "fp32"}),
    ("cutlass_75_tensorop_s1688gemm_bf16_256x128_nn_align1", "gemm", "cutlass", {"dtype": "bf16", "out_dtype": "fp32"}),
    ("cutlass_80_tensorop_i16832gemm_s8_256x128_128x3_tn_align16", "gemm", "cutlass", {"dtype": "int8"}),
    (
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_tnt_align8"
        "_warpspecialized_pingpong_epi_tma",
        "gemm",
        "cutlass",
        {
            "tile": "128x128",
            "tile_k": 64,
            "cluster": "2x1",
            "schedule": "pingpong",
            "layout": "TN",
            "acc_dtype": "fp32",
        },
    ),
    (
        "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm::kernel::GemmUniversal<"
        "cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<"
        "cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<7, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, "
        "cutlass::gemm::KernelTmaWarpSpecializedPingpong>, cute::tuple<cute::C<64>, cute::C<128>, cute::C<128> >, "
        "cutlass::float_e4m3_t, cute::tuple<long>, cutlass::float_e4m3_t, cute::tu",
        "gemm",
        "cutlass",
        {"tile": "64x128", "tile_k": 128, "stages": 7, "cluster": "2x1", "dtype": "fp8_e4m3", "schedule": "pingpong"},
    ),
    (
        "sm90_xmma_gemm_bf16f32_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "gemm",
        "xmma",
        {"dtype": "bf16", "out_dtype": "fp32", "acc_dtype": "fp32", "tile": "128x128", "tile_k": 64, "layout": "NT"},
    ),
    (
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_stage4_warpsize2x2x1_g1"
        "_tensor16x8x8_execute_kernel_cudnn_train",
        "convolution",
        "xmma",
        {"dtype": "tf32", "direction": "backward weight", "stages": 4, "instruction": "16x8x8", "tile": "64x64"},
    ),
    (
        "cudnn_infer_volta_scudnn_128x64_3dconv_fprop_medium_nn_v1",
        "convolution",
        "cudnn",
        {"arch": "volta", "direction": "forward", "dimensions": 3, "tile": "128x64"},
    ),
    ("void nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)", "copy", "cudnn", {}),
    (
        "cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(x)",
        "normalization",
        "cudnn",
        {"direction": "forward"},
    ),
    (
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_ISA942_IU1",
        "gemm",
        "tensile",
        {
            "dtype": "bf16",
            "acc_dtype": "fp32",
            "tile": "256x192",
            "tile_m": 192,
            "tile_n": 256,
            "tile_k": 64,
            "layout": "TN",
            "arch": "gfx942",
            "instruction": "16x16x1",
        },
    ),
    (
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x2x1_1x4x1x64_tb1x8x2x1_1x4x1x64_gkgs",
        "convolution",
        "miopen",
        {"direction": "forward", "tile": "128x128", "tile_k": 32, "dtype": "bf16", "tensor_format": "nhwc"},
    ),
    ("batched_transpose_32x32_half", "copy", "miopen", {"dtype": "fp16"}),
    (
        "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
        "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::"
        "{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, x)",
        "elementwise",
        "aten",
        {"functor": "gelu", "vector_width": 8, "dtype": "bf16"},
    ),
    (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda("
        "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::"
        "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, x)",
        "copy",
        "aten",
        {"functor": "copy", "dtype": "bf16"},
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
        "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >(int, x)",
        "elementwise",
        "aten",
        {"functor": "mul", "scalar_operand": True, "dtype": "fp32"},
    ),
    (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<"
        "c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)::"
        "{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 4> >(x)",
        "reduction",
        "aten",
        {"reduction op": "sum", "dtype": "bf16"},
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>(x)",
        "optimizer",
        "aten",
        {"functor": "adam"},
    ),
    (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float>, at::native::Sqrt<float> >(x)",
        "elementwise",
        "aten",
        {"functor": "sqrt"},
    ),
    ("lcm_vectorized4_kernel", "elementwise", "aten", {"functor": "lcm", "vector_width": 4}),
    (
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        "fused",
        "inductor",
        {"ops": ["view", "gelu", "mul"], "view_ops": ["view"], "triton_kind": "pointwise"},
    ),
    ("triton_poi_fused__to_copy_1", "copy", "inductor", {"ops": ["_to_copy"]}),
    ("triton_poi_fused_silu_29", "elementwise", "inductor", {"ops": ["silu"]}),
    ("triton_poi_fused_add_copy__2", "fused", "inductor", {"ops": ["add", "copy"]}),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "normalization", "inductor", {"triton_kind": "reduction"}),
    (
        "triton_per_fused__log_softmax_nll_loss_forward_4",
        "softmax",
        "inductor",
        {"triton_kind": "persistent reduction"},
    ),
    ("triton_red_fused_sum_1", "reduction", "inductor", {"ops": ["sum"]}),
    ("triton_tem_fused_addmm_silu_t_view_3", "gemm", "inductor", {"fused_ops": ["silu"], "view_ops": ["t", "view"]}),
    ("triton_mm_17", "gemm", "inductor", {}),
    ("triton_tem_fused_flex_attention_4", "attention", "inductor", {}),
    ("_geglu_tanh_forward_kernel", "fused", "liger", {"ops": ["gelu", "mul"], "direction": "forward"}),
    ("_layer_norm_fwd_fused_0d1d2de", "normalization", "triton", {}),
    (
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t, "
        "Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, false, true, false, false, true>(x)",
        "attention",
        "flash_attention",
        {"head_dim": 128, "tile": "128x64", "dtype": "bf16", "causal": True, "direction": "forward"},
    ),
    (
        "fmha_cutlassB_bf16_aligned_64x64_k64_dropout_sm80(x)",
        "attention",
        "efficient_attention",
        {"direction": "backward", "tile": "64x64", "dtype": "bf16", "arch": "sm80"},
    ),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
        "attention",
        "cudnn",
        {"direction": "forward", "arch": "sm90", "cluster": "1x1x1"},
    ),
    (
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "attention",
        "trtllm",
        {"dtype": "fp8_e4m3", "out_dtype": "bf16", "head_dim": 64, "causal": True, "paged": True},
    ),
    (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "communication",
        "nccl",
        {"collective": "all-reduce", "reduction op": "sum", "dtype": "bf16", "algorithm": "ring", "protocol": "LL"},
    ),
    (
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "communication",
        "nccl",
        {"collective": "send/receive", "protocol": "simple", "dtype": "int8"},
    ),
    (
        "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*)",
        "communication",
        "deepep",
        {"collective": "all-to-all"},
    ),
    ("multimem_all_reduce_kernel", "communication", "symmetric_memory", {"collective": "all-reduce"}),
    ("hcom_allReduce__123", "communication", "hccl", {"collective": "all-reduce"}),
    (
        "void vllm::cross_device_reduce_2stage<float, 8>(x)",
        "communication",
        "custom_all_reduce",
        {"algorithm": "two-shot"},
    ),
    (
        "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::AgentScanPolicy<128, 15, long> >(x)",
        "reduction",
        "cub",
        {"algorithm": "scan"},
    ),
    (
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(x)",
        "sort",
        "cub",
        {},
    ),
    ("void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(x)", "normalization", "vllm", {"dtype": "bf16"}),
    ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(x)", "copy", "vllm", {}),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(x)", "fused", "vllm", {}),
    ("void gptq_marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4, false, 8>(x)", "gemm", "marlin", {}),
    ("fused_moe_kernel", "gemm", "triton", {}),
    ("Memcpy HtoD (Pageable -> Device)", "copy", "memcpy", {"direction": "host→device", "memory": "pageable→device"}),
    ("CopyDeviceToHost", "copy", "memcpy", {"direction": "device→host"}),
    ("Memset (Device)", "copy", "memset", {"memory": "device"}),
]


@pytest.mark.parametrize(("name", "kind", "family", "fields"), CASES, ids=[case[0][:50] for case in CASES])
def test_a_name_says(name: str, kind: str, family: str, fields: dict[str, Any]) -> None:
    d = decode(name)

    assert (d.kind, d.family) == (kind, family)
    assert {key: d.decoded.get(key) for key in fields} == fields


@pytest.mark.parametrize(
    ("mangled", "kind", "fields"),
    [
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
         "normalization", {"dtype": "bf16"}),
        ("_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
         "fused", {"ops": ["silu", "mul"]}),
        # cut short: no demangler can read it, the identifiers still tell
        ("_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdl",
         "convolution", {"direction": "forward"}),
    ],
)  # fmt: skip
def test_mangled_names_are_read(mangled: str, kind: str, fields: dict[str, Any]) -> None:
    d = decode(mangled)

    assert d.kind == kind
    assert d.name == mangled
    assert {key: d.decoded.get(key) for key in fields} == fields


def test_without_the_demangler_the_identifiers_still_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycxxfilt", None)
    decode.cache_clear()
    try:
        d = decode("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_PT_")
    finally:
        decode.cache_clear()

    assert d.kind == "normalization"
    assert d.family == "aiter"


def test_what_is_not_known_stays_visible() -> None:
    assert decode(NVJET).unknown == ["h", "bz"]
    assert decode("nvjet_sm100_zzz_64x64_64x4_1x1_TNT").unknown == ["zzz"]
    assert "dtype" not in decode("nvjet_sm100_zzz_64x64_64x4_1x1_TNT").decoded
    assert decode("triton_poi_fused_constant_pad_nd_moe_forward_0").unknown == ["moe_forward"]
    assert decode("frobnicate_v2").unknown == ["frobnicate_v2"]
    assert decode("triton__0d1d2d3d").kind == "other"


def test_the_operator_decides_only_what_the_name_cannot() -> None:
    assert decode("frobnicate_v2", op="aten::mm").kind == "gemm"
    assert decode("triton__0d1d2d3d", op="aten::_softmax").kind == "softmax"
    assert decode("volta_sgemm_128x64_nn", op="aten::gelu").kind == "gemm"
    assert decode("ncclDevKernel_Generic(x)", op="aten::mm").kind == "communication"
    assert decode("frobnicate_v2", op="my::thing").kind == "other"


def test_letters_nccl_do_not_make_communication() -> None:
    assert decode("void vllm::nccl_free_layer_norm_kernel<float>(float*)").kind == "normalization"


def test_describe_says_it_in_words() -> None:
    text = describe(decode(NVJET))

    assert text.startswith("nvjet 256x128 64x4 TN bias: a matrix multiplication of cuBLAS")
    assert "cooperative" in text
    assert "Not understood: h, bz." in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "cluster 2x1, a pair of CTAs a tile, layout TN"),
        ("ampere_fp16_s1688gemm_fp16_128x128_ldg8_f2f_stages_32x1_nn", "k-tile 32, 1 stage, instruction"),
        (
            "ampere_fp16_s1688gemm_fp16_128x128_ldg8_relu_f2f_nn",
            "; can apply relu (the name does not show that it does); ",
        ),
        ("triton_tem_fused_mm_relu_0", "operators mm, relu; Triton template."),
        ("triton_poi_fused_view_0", "; views view; pointwise template."),
        ("_swiglu_forward_kernel", "; operators silu, mul; forward."),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x3_nn_align1>(int)", "to 1 element,"),
    ],
)
def test_lists_are_set_off_and_numbers_agree_with_their_nouns(name: str, said: str) -> None:
    assert said in describe(decode(name))


def test_short_names_fit_a_narrow_column() -> None:
    assert decode("triton_poi_fused__unsafe_view_gelu_mul_0").short_name == "triton_poi gelu·mul"
    assert (
        len(decode("triton_poi_fused_add_cos_div_exp_log_mul_neg_pow_rsqrt_sigmoid_sin_sqrt_sub_tanh_0").short_name)
        == 48
    )
