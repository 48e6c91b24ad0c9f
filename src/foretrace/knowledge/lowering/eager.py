"""Which kernels ATen launches on CUDA for one operator, where that does not follow from its operands alone.

Sources: the CUDA implementations under ``aten/src/ATen/native/cuda`` (named at each table) and the H200 traces that
foretrace ships. Kinds are those of the report. Kernels of vendor libraries (cuBLAS, cuDNN) are not named here: one
product or one convolution is one item, and what the library launches for it is the time model's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "CAT_BATCH",
    "EMBEDDING_SORT_FROM",
    "FIXED",
    "FOREACH_OPTIMIZERS",
    "LIST_KERNELS",
    "LOSSES",
    "NESTED",
    "SORTED_EMBEDDING",
    "layer_norm_kernels",
    "multi_tensor_launches",
]

# Operators that are one kernel over their operands, by kind.
FIXED: dict[str, str] = {
    name: kind
    for kind, names in {
        "elementwise": """
            masked_fill masked_scatter
            arange range linspace eye tril triu uniform normal random bernoulli exponential randint randn rand
            native_dropout native_dropout_backward _fused_dropout where fill addcmul addcdiv lerp polar complex
            mse_loss_backward glu glu_backward tril_indices triu_indices
            upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward upsample_bilinear2d_backward
            max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
            _adaptive_avg_pool2d _adaptive_avg_pool2d_backward log_sigmoid_forward log_sigmoid_backward
            hardswish hardswish_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward elu_backward
            softplus_backward softshrink_backward _prelu_kernel _prelu_kernel_backward floor_divide
            upsample_bicubic2d upsample_bicubic2d_backward upsample_nearest1d upsample_nearest1d_backward
            upsample_nearest3d upsample_nearest3d_backward upsample_linear1d upsample_linear1d_backward
            grid_sampler_2d grid_sampler_3d col2im max_pool3d_with_indices avg_pool3d
            _adaptive_avg_pool3d smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward
        """,
        "normalization": """
            native_batch_norm _native_batch_norm_legit cudnn_batch_norm native_batch_norm_backward
            cudnn_batch_norm_backward native_group_norm native_group_norm_backward
        """,
        "copy": """
            index gather take flip roll scatter scatter_add index_add index_copy index_fill index_select
            pixel_shuffle pixel_unshuffle im2col
        """,
    }.items()
    for name in names.split()
}

# Losses of two tensors: a pass over both, then the reduction of what it wrote (aten/src/ATen/native/BinaryOps.cpp,
# ``mse_loss_out`` and its neighbours). The first number is the passes.
LOSSES: dict[str, int] = {
    "mse_loss": 1,
    "smooth_l1_loss": 1,
    "huber_loss": 1,
    "binary_cross_entropy": 1,
    "binary_cross_entropy_with_logits": 4,  # log-sigmoid, the complement, and two products in place (Loss.cpp)
}

# aten/src/ATen/native/cuda/Shape.cu: CatArrayBatchedCopy takes this many inputs a launch.
CAT_BATCH = 128

# The rows a trace shows below an operator; the last one is the one that launches. Seen in the H200 traces (torch 2.11).
NESTED: dict[str, tuple[str, ...]] = {
    "aten::t": ("aten::transpose",),
    "aten::transpose": ("aten::as_strided",),
    "aten::expand": ("aten::as_strided",),
    "aten::slice": ("aten::as_strided",),
    "aten::select": ("aten::as_strided",),
    "aten::permute": ("aten::as_strided",),
    "aten::unsqueeze": ("aten::as_strided",),
    "aten::squeeze": ("aten::as_strided",),
    "aten::_to_copy": ("aten::empty_strided", "aten::copy_"),
    "aten::clone": ("aten::empty_like", "aten::copy_"),
    "aten::ones_like": ("aten::empty_like", "aten::fill_"),
    "aten::zeros_like": ("aten::empty_like", "aten::zero_"),
    "aten::full_like": ("aten::empty_like", "aten::fill_"),
    "aten::zeros": ("aten::empty", "aten::zero_"),
    "aten::new_zeros": ("aten::new_empty", "aten::zero_"),
    "aten::ones": ("aten::empty", "aten::fill_"),
    "aten::full": ("aten::empty", "aten::fill_"),
    "aten::zero_": ("aten::fill_",),
    "aten::empty_like": ("aten::empty_strided",),
    "aten::embedding": ("aten::reshape", "aten::index_select"),
    "aten::index_select": ("aten::gather",),
    "aten::_scaled_dot_product_flash_attention": ("aten::_flash_attention_forward",),
    "aten::_scaled_dot_product_flash_attention_backward": ("aten::_flash_attention_backward",),
    "aten::_scaled_dot_product_efficient_attention": ("aten::_efficient_attention_forward",),
    "aten::_scaled_dot_product_efficient_attention_backward": ("aten::_efficient_attention_backward",),
    "aten::_scaled_dot_product_cudnn_attention": ("aten::_cudnn_attention_forward",),
    "aten::_scaled_dot_product_cudnn_attention_backward": ("aten::_cudnn_attention_backward",),
}

# aten/src/ATen/native/cuda/layer_norm_kernel.cu: the vectorised forward needs rows of whole vectors of four, no longer
# than a float counts exactly, and one of three element types; otherwise moments and output are two kernels.
_VECTOR = 4
_LONGEST_ROW = 1 << 24
_VECTORISED_TYPES = frozenset({"fp32", "fp16", "bf16"})


def layer_norm_kernels(row: int, dtype: str) -> int:
    """How many kernels ``native_layer_norm`` launches for rows of ``row`` elements."""
    vectorised = row % _VECTOR == 0 and row <= _LONGEST_ROW and dtype in _VECTORISED_TYPES
    return 1 if vectorised else 2


# aten/src/ATen/native/cuda/Embedding.cu: up to this many indices the backward is one kernel; more are sorted first.
EMBEDDING_SORT_FROM = 3072
# What the sorting backward launches after `arange`, in order, before and after its zero fill: radix sort of 64-bit keys
# by eight digits (a memset before each pass), unique, segment sizes, scan, partial sums. From the H200 traces.
SORTED_EMBEDDING: tuple[tuple[str, ...], tuple[str, ...]] = (
    ("memset", "memset", "sort", "sort", *("memset", "sort") * 8),
    ("sort", "sort", "embedding", "reduction", "reduction", "embedding", "embedding", "embedding", "embedding"),
)

# aten/src/ATen/native/cuda/MultiTensorApply.cuh: elements a chunk, chunks a launch, tensors a launch by how many lists
# are walked together.
_CHUNK = 65536
_CHUNKS_A_LAUNCH = 320
_TENSORS_A_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
_TENSORS_A_LAUNCH_SCALARS = {1: 96, 2: 64, 3: 48, 4: 36, 5: 30}

# Optimizers whose update is one kernel family, and how many of their lists it walks (steps and rates apart).
FOREACH_OPTIMIZERS: dict[str, int] = {"_fused_adam": 4, "_fused_adamw": 4, "_fused_sgd": 2, "_fused_adagrad": 3}

# List operators that are no plain pointwise pass: a norm is followed by a kernel that joins the chunks.
LIST_KERNELS: dict[str, str] = {"_foreach_norm": "reduction", "_foreach_max": "reduction"}


def multi_tensor_launches(
    sizes: Sequence[int], lists: int, *, scalars: bool = False
) -> Iterator[list[tuple[int, int]]]:
    """The launches of ``multi_tensor_apply`` over tensors of these element counts, ``lists`` walked together.

    Each launch is a list of ``(tensor, elements)``. ``scalars``: the form with one scalar a tensor.
    """
    limit = (_TENSORS_A_LAUNCH_SCALARS if scalars else _TENSORS_A_LAUNCH).get(lists, 30)
    return _launches(enumerate(sizes), limit)


def _launches(sizes: Iterable[tuple[int, int]], limit: int) -> Iterator[list[tuple[int, int]]]:
    taken: dict[int, int] = {}
    chunks = 0
    for index, size in sizes:
        left = size
        while left > 0:
            part = min(left, _CHUNK)
            taken[index] = taken.get(index, 0) + part
            left -= part
            chunks += 1
            if chunks == _CHUNKS_A_LAUNCH or (len(taken) == limit and not left):
                yield list(taken.items())
                taken, chunks = {}, 0
    if taken:
        yield list(taken.items())
