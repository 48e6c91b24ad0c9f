"""Tables for ``aten.py``: loops, functors and kernels of PyTorch whose names alone do not tell the kind.

Source: ``aten/src/ATen/native/cuda`` of PyTorch 1.8 to 2.13.
"""

from __future__ import annotations

import re

from ._base import word_set

__all__ = [
    "AMBIGUOUS",
    "COPIES",
    "FUNCTORS",
    "KNOWN",
    "LOOPS",
    "LOOP_KINDS",
    "MULTI_TENSOR",
    "NAMED",
    "PATTERNS",
    "SYNONYMS",
    "TRANSPARENT",
]

# Loop kernels: the name shown, and which template argument is the vector width or the unroll factor.
LOOPS: dict[str, tuple[str, int | None]] = {
    "vectorized_elementwise_kernel": ("vectorized_elementwise", 0),
    "vectorized_templated_elementwise_kernel": ("vectorized_elementwise", 0),
    "unrolled_elementwise_kernel": ("unrolled_elementwise", None),
    "unrolled_elementwise_kernel_for_multi_outputs": ("unrolled_elementwise", None),
    "elementwise_kernel": ("elementwise", 1),
    "elementwise_kernel_manual_unroll": ("elementwise", 1),
    "legacy_elementwise_kernel": ("elementwise", 1),
    "elementwise_kernel_with_index": ("elementwise", None),
    "kernelPointwiseApply1": ("pointwise_apply", None),
    "kernelPointwiseApply2": ("pointwise_apply", None),
    "kernelPointwiseApply3": ("pointwise_apply", None),
    "index_elementwise_kernel": ("index", None),
    "vectorized_index_elementwise_kernel": ("index", None),
    "_scatter_gather_elementwise_kernel": ("scatter_gather", None),
    "scatter_gather_elementwise_kernel": ("scatter_gather", None),
}
# Loops that only move elements by an index; what they add up on the way makes them a reduction (see aten.py).
LOOP_KINDS = {"index": "copy", "scatter_gather": "copy"}

MULTI_TENSOR = frozenset({"multi_tensor_apply_kernel", "multi_tensor_apply_for_fused_optimizer"})

# Functors that wrap another one, and the template argument that holds it.
TRANSPARENT = {"func_wrapper_t": 1, "gpu_kernel_impl": 0, "gpu_kernel_impl_nocast": 0, "gpu_index_kernel": 0}

FUNCTORS = {
    "CUDAFunctor_add": "add",
    "CUDAFunctorOnSelf_add": "add",
    "CUDAFunctorOnOther_add": "add",
    "AddFunctor": "add",
    "MulFunctor": "mul",
    "MulScalarFunctor": "mul",
    "DivFunctor": "div",
    "FillFunctor": "fill",
    "CompareEqFunctor": "eq",
    "CompareFunctor": "compare",
    "compare_scalar_kernel": "compare",
    "BitwiseAndFunctor": "bitwise_and",
    "BitwiseOrFunctor": "bitwise_or",
    "BitwiseXorFunctor": "bitwise_xor",
    "BitwiseNotFunctor": "bitwise_not",
    "GeluCUDAKernelImpl": "gelu",
    "GeluBackwardCUDAKernelImpl": "gelu_backward",
    "launch_clamp_scalar": "clamp",
    "clamp_min_scalar_kernel_impl": "clamp_min",
    "clamp_max_scalar_kernel_impl": "clamp_max",
    "pow_tensor_scalar_kernel_impl": "pow",
    "pow_tensor_tensor_kernel": "pow",
    "arange_cuda_out": "arange",
    "direct_copy_kernel_cuda": "copy",
    "bfloat16_copy_kernel_cuda": "copy",
    "float16_copy_kernel_cuda": "copy",
    "float8_copy_kernel_cuda": "copy",
    "bfloat16tofloat32_copy_kernel_cuda": "copy",
    "float16tofloat32_copy_kernel_cuda": "copy",
    "float4_copy_kernel_cuda": "copy",
    "copy_device_to_device": "copy",
    "Copy": "copy",
    "CopyFunctor": "copy",
    "plus": "add",
    "minus": "sub",
    "multiplies": "mul",
    "divides": "div",
    "power_functor": "pow",
    "reverse_power_functor": "pow",
    "minimum": "minimum",
    "maximum": "maximum",
    "sum_functor": "sum",
    "nansum_functor": "nansum",
    "prod_functor": "prod",
    "xor_sum_functor": "xor_sum",
    "MeanOps": "mean",
    "WelfordOps": "var",
    "ArgMaxOps": "argmax",
    "ArgMinOps": "argmin",
    "MinOps": "min",
    "MaxOps": "max",
    "MaxNanFunctor": "max",
    "MinNanFunctor": "min",
    "AbsMaxOps": "norm inf",
    "AbsMinOps": "norm -inf",
    "NormOps": "norm p",
    "NormZeroOps": "norm 0",
    "NormOneOps": "norm 1",
    "NormTwoOps": "norm 2",
    "and_kernel_cuda": "all",
    "or_kernel_cuda": "any",
    "_cuda_scatter_gather_internal_kernel": "scatter_gather",
    "_cuda_scatter_fill_internal_kernel": "scatter_fill",
    "index_kernel_impl": "index",
    "index_put_kernel_impl": "index_put",
    "index_copy_kernel_impl": "index_copy",
    "index_fill_kernel_impl": "index_fill",
    "LerpFunctor": "lerp",
}
SYNONYMS = {
    "leaky_relu": "leaky_relu",
    "threshold": "threshold",
    "smooth_l1": "smooth_l1_loss",
    "mse": "mse_loss",
    "huber": "huber_loss",
    "where": "where",
}
COPIES = frozenset({"copy", "index", "index_put", "index_copy", "index_fill", "take", "put", "flip", "roll"})
# Functors whose name is understood (the rest of FUNCTORS' values and the usual pointwise operators).
KNOWN = frozenset(FUNCTORS.values()) | word_set(
    "gelu silu relu elu celu selu mish hardswish hardsigmoid hardtanh hardshrink softshrink softplus "
    "sigmoid tanh threshold leaky_relu prelu glu log_sigmoid exp exp2 expm1 log log2 log10 log1p sqrt "
    "rsqrt pow sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 abs neg sign sgn signbit "
    "floor ceil round trunc frac reciprocal clamp clamp_min clamp_max where masked_fill masked_scatter "
    "lerp addcmul addcdiv fmod remainder copysign nextafter hypot gcd lcm erf erfc erfinv erfcx lgamma "
    "digamma polygamma logit nan_to_num logical_and logical_or logical_not logical_xor bitwise_not fill "
    "arange linspace logspace mse_loss smooth_l1_loss huber_loss bernoulli uniform normal random "
    "exponential cauchy geometric log_normal dropout masked_scale logaddexp logaddexp2 xlogy xlog1py "
    "heaviside sinc i0 i0e i1 i1e ndtri log_ndtr zeta isneginf isposinf isfinite isnan real imag conj "
    "angle polar complex ldexp frexp rad2deg deg2rad cross lshift rshift maximum minimum fmax fmin "
    "compare eq ne lt gt le ge add sub mul div fill kaiser_window igamma igammac trigamma airy_ai "
    "bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr float_power true_divide div_true div_floor div_trunc"
)

# Kernels whose own name does not tell.
NAMED = {
    "spin_kernel": "other",
    "sleep_kernel": "other",
    "flush_icache_kernel": "other",
    "CUDAFunctor_add": "elementwise",
    "compute_cuda_kernel": "copy",  # repeat_interleave
    "compute_grad_weight": "embedding",
    "compute_grad_weight_bags": "embedding",
    "sum_and_scatter": "embedding",
    "compute_num_of_partial_segments": "embedding",
    "krn_partial_segment_offset": "embedding",
    "krn_partials_per_segment": "embedding",
    "write_num_of_segments": "embedding",
    "embedding_backward_feature_kernel": "embedding",
    "EmbeddingBag_updateOutputKernel_sum_mean": "embedding",
    "EmbeddingBag_updateOutputKernel_max": "embedding",
    "EmbeddingBag_accGradParametersKernel_max": "embedding",
    "renorm_kernel": "embedding",
    "indexing_backward_kernel": "embedding",
    "indexing_backward_kernel_stride_1": "embedding",
    "indexing_backward_kernel_small_stride": "embedding",
    "indexing_backward_kernel_quantized": "embedding",
    "indexing_backward_kernel_many_indices": "embedding",
    "indexSelectLargeIndex": "embedding",
    "indexSelectSmallIndex": "embedding",
    "vectorized_gather_kernel": "embedding",
    "gather_kernel": "embedding",
    "indexFuncLargeIndex": "reduction",
    "indexFuncSmallIndex": "reduction",
    "indexCopyLargeIndex": "copy",
    "triu_tril_kernel": "elementwise",
    "triu_indices_kernel": "elementwise",
    "tril_indices_kernel": "elementwise",
    "im2col_kernel": "convolution",
    "col2im_kernel": "convolution",
    "col2im_batched_kernel": "convolution",
    "vol2col_kernel": "convolution",
    "vol2im_kernel": "convolution",
    "conv_depthwise2d_forward_kernel": "convolution",
    "nll_loss_backward_reduce_cuda_kernel_1d": "elementwise",
    "nll_loss_backward_reduce_cuda_kernel_2d": "elementwise",
    "nll_loss2d_backward_kernel": "elementwise",
    "nll_loss_backward_no_reduce_cuda_kernel": "elementwise",
    "nll_loss_forward_no_reduce_cuda_kernel": "elementwise",
    "amp_update_scale_cuda_kernel": "optimizer",
    "write_indices": "sort",
    "randperm_handle_duplicate_keys_kernel": "elementwise",
    "_assert_async_cuda_kernel": "other",
    "softmax_warp_forward": "softmax",
    "softmax_warp_backward": "softmax",
    "cunn_SoftMaxForward": "softmax",
    "cunn_SoftMaxBackward": "softmax",
    "to_dense_representation_kernel": "copy",
    "pdist_kernel_cuda_impl": "reduction",
    "cdist_kernel_cuda_impl": "reduction",
    "cdist_backward_kernel_cuda_impl": "reduction",
    "lstm_cell_forward": "fused",
    "lstm_cell_backward": "fused",
    "gru_cell_forward": "fused",
    "gru_cell_backward": "fused",
    "transform_bias_rescale_qkv_kernel": "fused",
    "transform_bias_rescale_qkv_add_padding_kernel": "fused",
    "softmax_dropout_kernel": "softmax",
    "adaptive_avg_pool2d_kernel": "reduction",
    "chooseStreamKernel": "other",
    "hadamard_transform": "other",
    "weight_to_int4pack_kernel": "copy",
    "matrix_to_m16n8k16_Bint4_layout": "copy",
    "tinygemm_m16n8k16_chunk_kernel": "gemm",
    "prepare_grouped_gemm_data": "gemm",
    "fft_fill_with_conjugate_symmetry": "copy",
    "_fft_conjugate_copy_kernel": "copy",
}
# The same kernel serves operators of different kinds; a hint about the operator may decide.
AMBIGUOUS = frozenset(
    {
        "indexSelectLargeIndex",
        "indexSelectSmallIndex",
        "vectorized_gather_kernel",
        "indexing_backward_kernel",
        "im2col_kernel",
        "col2im_kernel",
        "renorm_kernel",
        "indexFuncLargeIndex",
        "indexFuncSmallIndex",
    }
)
# Read in order on the kernel's own name, before the general vocabulary of words.py.
PATTERNS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"SoftMax|softmax", "softmax"),
        (
            r"batch_norm|layer_norm|LayerNorm|GroupNorm|group_norm|GammaBeta|rms_norm|RMSNorm|RowwiseMoments|weight_norm"
            r"|ComputeInternalGradients|ComputeFusedParams|ComputeBackwardFusedParams|Compute1dBackwardFusedParams|cuComputeGrad",
            "normalization",
        ),
        (r"CatArray", "copy"),
        (r"EmbeddingBag|embedding", "embedding"),
        (
            r"max_pool|avg_pool|MaxPool|AvgPool|adaptive\w*pool|adaptivemax|adaptiveaverage|adaptive_average"
            r"|fractional_max|max_unpool",
            "reduction",
        ),
        (
            r"[Tt]op[Kk]|[Ss]ort|bitonic|[Rr]adix|unique|gatherMedian|gatherKth|mode_kernel|searchsorted|bucketize|histogram"
            r"|kernelHistogram|masked_select|computeBlockwise|computeDigit|computeBlock",
            "sort",
        ),
        (r"upsample|grid_sampler|affine_grid|interpolate", "elementwise"),
        (r"dropout|distribution_|philox|RNG|bernoulli|randperm|multinomial|sampleMultinomial", "elementwise"),
        (r"^_?elemwise|cross_kernel|adjacent_difference|unpack_cudnn", "elementwise"),
        (r"conv_depthwise|depthwise|slow_conv|conv_transpose", "convolution"),
        (r"loss", "reduction"),
        (r"scan|cumsum|cumprod|cummax|cummin|logcumsumexp", "reduction"),
        (r"reflection_pad|replication_pad|pad_", "copy"),
        (r"multi_tensor|foreach", "elementwise"),
        (r"flip|roll|repeat|transpose|nested|padded|to_padded|from_padded|tile_kernel|unfold", "copy"),
        (r"scatter|gather|index", "copy"),
        (r"[Ff]used\w*[Aa]dam|fused_sgd|fused_adagrad", "optimizer"),
        (r"lpnorm|LpNorm|l2norm", "reduction"),
    )
)
