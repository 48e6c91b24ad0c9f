"""How Inductor turns a graph into kernels on a CUDA GPU: which operators are what, and when buffers are written.

Sources: ``torch/_inductor`` of torch 2.13 (``lowering.py``, ``ir.py``, ``graph.py``, ``scheduler.py``, ``choices.py``,
``codegen/simd.py``, ``fx_passes/post_grad.py``, ``config.py`` with its defaults) and the H200 traces of foretrace.
"""

from __future__ import annotations

from math import isqrt

from foretrace.knowledge.gpus.datasheet import Gpu

__all__ = [
    "EXTERN",
    "GENERATED_POINTWISE",
    "MAX_FUSED",
    "NOTHING",
    "POINTWISE",
    "RANDOM",
    "REALIZE_OPS",
    "REALIZE_READS",
    "REALIZE_REUSED_READS",
    "REDUCTION",
    "SCATTER",
    "UNROLL_BELOW",
    "VIEWS",
    "is_persistent",
    "keeps_half_addmm",
    "may_join_mixed",
    "mixes_orders",
    "split_factor",
    "turns_loops",
]

_VIEWS = """
    view _unsafe_view reshape permute t transpose expand unsqueeze squeeze slice select as_strided split
    split_with_sizes unbind alias detach diagonal view_as_real broadcast_in_dim movedim lift_fresh narrow unfold
    _reshape_alias numpy_T lift lift_fresh_copy
    """
VIEWS = frozenset(_VIEWS.split())
# Views that keep the elements in their order, so that whoever reads through them reads what was written, as written.
_NOTHING = "view _unsafe_view reshape unsqueeze squeeze alias detach lift_fresh _reshape_alias lift"
NOTHING = frozenset(_NOTHING.split())
_EXTERN = """
    mm addmm bmm baddbmm _scaled_mm _int_mm convolution convolution_backward _addmm_activation
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
    """
EXTERN = frozenset(_EXTERN.split())
_REDUCTION = "sum mean amax amin var_mean var prod any all argmax argmin max min xor_sum"
REDUCTION = frozenset(_REDUCTION.split())
# Pointwise to Inductor though not so tagged: generators, copies, and reads or writes at computed places.
_GENERATED_POINTWISE = """
    clone _to_copy copy copy_ convert_element_type full full_like zeros zeros_like ones ones_like scalar_tensor arange
    iota where embedding gather index _unsafe_index index_select cat constant_pad_nd slice_scatter select_scatter flip
    fill tril triu eye repeat new_zeros new_full empty empty_like rand randn inductor_random bernoulli masked_fill
    _low_memory_max_pool_with_offsets _low_memory_max_pool_offsets_to_indices native_dropout avg_pool2d
    _unsafe_masked_index roll empty_strided new_empty diagonal_scatter expand_copy
    """
GENERATED_POINTWISE = frozenset(_GENERATED_POINTWISE.split())
_SCATTER = """
    index_put index_put_ scatter scatter_add scatter_reduce _unsafe_index_put index_add
    _unsafe_masked_index_put_accumulate
    """
SCATTER = frozenset(_SCATTER.split())
# What draws random numbers: a graph with any first draws its seeds.
_RANDOM = "rand randn bernoulli inductor_random native_dropout randint uniform normal"
RANDOM = frozenset(_RANDOM.split())

# What the names of its pointwise kernels begin with.
POINTWISE = "triton_poi_"

# config.realize_reads_threshold: a value with more reads than this is written once when several operators use it;
# config.realize_acc_reads_threshold: with more than this in any case; config.realize_opcount_threshold: operations.
REALIZE_REUSED_READS = 4
REALIZE_READS = 8
REALIZE_OPS = 30
# config.unroll_reductions_threshold: shorter reductions become pointwise code.
UNROLL_BELOW = 8
# config.max_fusion_size
MAX_FUSED = 64

# codegen/triton.py: the longest row that one program keeps in registers, for reductions along contiguous memory and
# for others.
_PERSISTENT_INNER = 1024
_PERSISTENT_OUTER = 64

# choices.py and ir.py, num_splits and reduction_split_factor.
_WARP = 32
_WARPS = 8
_SM_THREADS = 2048
_LEAST_A_THREAD = 32
_MOST_A_THREAD = 512
_NO_SPLIT_BELOW = 8192
_NO_SPLIT_BELOW_BLACKWELL = 524288
_OUTER_VALUES = 4
_OUTER_COLUMNS = 128
_DEFAULT_SMS = 132

# scheduler.py, MixOrderReduction: rows and columns of one matrix reduced by one kernel.
_MIX_FROM = (2, 10)
_MIX_ELEMENTS = 5 * 2**20
_MIX_ROWS = 4096
_MIX_ROWS_PER_COLUMN = 2
_MIX_COLUMNS = 16 * 1024
# config.triton.mix_order_reduction_max_reads: torch 2.13 has it, torch 2.11 has not.
_MIX_READS = 10
_MIX_READS_FROM = (2, 12)
# config.loop_ordering_after_fusion: on by default in torch 2.11 and 2.13, off in 2.4.
_TURNS_FROM = (2, 9)


def is_persistent(length: int, *, inner: bool) -> bool:
    """Whether a reduction of ``length`` elements becomes a ``per`` kernel (else ``red``, a loop)."""
    return length <= (_PERSISTENT_INNER if inner else _PERSISTENT_OUTER)


def keeps_half_addmm(torch_version: tuple[int, int]) -> bool:
    """Whether a 16-bit ``addmm`` keeps its bias though only pointwise code uses the result.

    config.keep_addmm_fused_for_half_dtypes: torch 2.13 has it, torch 2.11 has not.
    """
    return torch_version >= (2, 12)


def mixes_orders(rows: int, columns: int, torch_version: tuple[int, int]) -> bool:
    """Whether sums along rows and along columns of one ``rows`` × ``columns`` matrix share a kernel."""
    return (
        torch_version >= _MIX_FROM
        and rows * columns >= _MIX_ELEMENTS
        and rows >= _MIX_ROWS_PER_COLUMN * columns
        and rows >= _MIX_ROWS
        and columns <= _MIX_COLUMNS
    )


def may_join_mixed(reads: int, torch_version: tuple[int, int]) -> bool:
    """Whether a kernel of mixed order may grow to read this many buffers."""
    return torch_version < _MIX_READS_FROM or reads <= _MIX_READS


def turns_loops(torch_version: tuple[int, int]) -> bool:
    """Whether the loops of a kernel are exchanged so that it fuses with a sum along columns."""
    return torch_version >= _TURNS_FROM


def split_factor(outputs: int, length: int, gpu: Gpu | None, *, inner: bool) -> int:
    """In how many parts a reduction is cut so that it fills the GPU; 1: not at all.

    ``outputs`` results of ``length`` elements; ``inner``: along contiguous memory. More than one part makes two
    kernels: partial results, then theirs.
    """
    sms = gpu.sms if gpu is not None else _DEFAULT_SMS
    if outputs > 1 and (length <= _LEAST_A_THREAD or outputs >= sms * 2 * 32):
        return 1
    least = _LEAST_A_THREAD * sms * _SM_THREADS
    most = _MOST_A_THREAD * sms * _SM_THREADS
    threads = _WARP * _WARPS
    if inner or outputs == 1:
        blackwell = gpu is not None and float(gpu.compute_capability or 0) >= 10
        if outputs >= 2 * sms or length <= (_NO_SPLIT_BELOW_BLACKWELL if blackwell else _NO_SPLIT_BELOW):
            return 1
        if length * outputs <= least:
            size = _LEAST_A_THREAD
        elif length * outputs < most:
            blocks = -(-(sms * _SM_THREADS // (2 * threads)) // outputs)
            size = _even(-(-length // (threads * blocks)), length, 30)
        else:
            size = _even(_MOST_A_THREAD, length, 50, floor=1)
        return -(-length // (size * threads))
    if length * outputs < least:
        size = _LEAST_A_THREAD
    elif length * outputs < most:
        blocks = -(-(sms * _SM_THREADS // threads) // -(-outputs // _OUTER_COLUMNS))
        size = _even(-(-length // (_OUTER_VALUES * blocks)), length, 20)
    else:
        size = _even(_MOST_A_THREAD, length, 50, floor=1)
    return -(-length // (_OUTER_VALUES * size))


def _even(wanted: int, length: int, slack: int, floor: int = _LEAST_A_THREAD) -> int:
    """The divisor of ``length`` closest to ``wanted`` if it is close, else ``wanted`` itself."""
    divisors = sorted({d for i in range(1, isqrt(length) + 1) if length % i == 0 for d in (i, length // i)})
    closest = min(divisors, key=lambda divisor: abs(divisor - wanted))
    return max(closest, floor) if abs(closest - wanted) < slack else wanted
