"""Products for at most 16 rows, as decoding needs them; the kernels are in `foretrace.fused.kernels.small_kernels`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from foretrace.errors import InputError
from foretrace.fused.kernels.activation import kernel_precision
from foretrace.fused.kernels.counters import zeroed_counters
from foretrace.fused.kernels.launch import Repetition, launcher, processors, remember, repeated
from foretrace.fused.kernels.small_kernels import (
    HAS_PDL,
    ROWS,
    foretrace_small_gate_up_dot,
    foretrace_small_gate_up_vector,
    foretrace_small_linear_act_dot,
    foretrace_small_linear_act_vector,
)

__all__ = ["gate_up", "linear_act", "project", "small_supported"]

HALVES = (torch.bfloat16, torch.float16)
# Output features a program of the matrix-vector kernels: with 2048 input features each 16 are 256 registers a thread
# of 4 warps, and the compiler takes minutes over much more.
WIDEST_VECTOR = 16


def small_supported(x: torch.Tensor, *weights: torch.Tensor) -> bool:
    """Whether the functions here can compute this: 0 to 16 rows of bf16 or fp16, 0 or 1 of float32; dense rows."""
    dtype = x.dtype
    for tensor in weights:
        if tensor.dtype != dtype or (tensor.stride(1) != 1 and tensor.shape[1] > 1):
            return False
    if x.stride(1) != 1 and x.shape[1] > 1:
        return False
    return x.shape[0] <= (ROWS if dtype in HALVES else 1 if dtype == torch.float32 else -1)


def _check(x: torch.Tensor, *weights: torch.Tensor) -> None:
    if not small_supported(x, *weights):
        raise InputError(
            f"{x.shape[0]} rows of {x.dtype} cannot run through the decode kernels (at most {ROWS} of bf16 or fp16, 1 "
            "of float32, columns contiguous); use the portable kernels."
        )


# What was launched before with the very same arguments; decoding comes with the same addresses step by step.
_gate_ups: dict[tuple[object, ...], Repetition] = {}
_linear_acts: dict[tuple[object, ...], Repetition] = {}


def _check_block(block_n: int) -> None:
    if block_n > WIDEST_VECTOR:
        raise InputError(
            f"block_n={block_n} is for more rows than one, whose whole block lies in registers; "
            f"give at most {WIDEST_VECTOR}, or leave it out"
        )


def _whole_rows(pointers: int, strides: int, element_size: int) -> bool:
    """Whether rows start at multiples of 16 bytes, so that they can be loaded 16 bytes at a time.

    ``pointers`` and ``strides``: those of several tensors, or-ed; a multiple of 16 is one in every operand.
    """
    return (pointers | strides * element_size) % 16 == 0


@lru_cache(maxsize=64)
def _has_dependent_launch(device: int) -> bool:
    """Programmatic dependent launch: Hopper and later, and a Triton that offers it."""
    return HAS_PDL and device >= 0 and torch.cuda.get_device_capability(device) >= (9, 0)


def gate_up(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    block_n: int | None = None,
    block_k: int | None = None,
    num_warps: int = 4,
    num_stages: int = 3,
    pdl: int = 0,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """act(x·gateᵀ + gate_bias) · (x·upᵀ + up_bias) for ``x`` [M, K], M <= 16, ``gate`` and ``up`` [N, K]: [M, N].

    Float32 inside, rounded once. With ``keep`` also the pre-activations [M, 2N], gate first. Biases: [N].
    A program and step take ``block_n`` output and ``block_k`` input features: 2 and 2048 for one row, 32 and 256 for
    more (64 where output features are many), fewer input features where rows are not 16-byte aligned. ``pdl`` 1: start
    before the previous kernel ended (Hopper); the stream's order is kept all the same.
    Raises `InputError` where `small_supported` is False.
    """
    dtype = x.dtype
    rows, inner = x.shape
    features = gate.shape[0]
    (x_stride, x_step), (gate_stride, gate_step), (up_stride, up_step) = x.stride(), gate.stride(), up.stride()
    if not (
        rows <= ROWS and dtype in HALVES and gate.dtype == up.dtype == dtype and x_step == gate_step == up_step == 1
    ):
        # What the usual call passes at a glance; the rare ones are looked at closely.
        _check(x, gate, up)
    hidden = x.new_empty((rows, features))
    preact = x.new_empty((rows, 2 * features)) if keep else None
    if rows == 0:
        return hidden, preact
    if gate_bias is not None or up_bias is not None:
        gate_bias = None if gate_bias is None else gate_bias.contiguous()
        up_bias = None if up_bias is None else up_bias.contiguous()
    x_pointer, gate_pointer, up_pointer = x.data_ptr(), gate.data_ptr(), up.data_ptr()
    key = (
        x_pointer, gate_pointer, up_pointer, hidden.data_ptr(), None if preact is None else preact.data_ptr(),
        None if gate_bias is None else (gate_bias.data_ptr(), gate_bias.dtype),
        None if up_bias is None else (up_bias.data_ptr(), up_bias.dtype),
        rows, inner, features, x_stride, gate_stride, up_stride, dtype, x.get_device(), activation, precision,
        block_n, block_k, num_warps, num_stages, pdl,
    )  # fmt: skip
    if repeated(_gate_ups, key):
        return hidden, preact
    one = rows == 1
    if block_n is None:
        # Wide blocks ask for x less often; they pay where they still keep every multiprocessor busy.
        block_n = 2 if one else 64 if features >= 64 * processors(x.get_device()) else 32
    if one:
        _check_block(block_n)
    if block_k is None:
        # Weights loaded two bytes at a time need as many registers for addresses.
        wide = _whole_rows(x_pointer | gate_pointer | up_pointer, x_stride | gate_stride | up_stride, dtype.itemsize)
        block_k = (2048 if wide else 1024) if one else (256 if wide else 32)
    dependent = pdl != 0 and _has_dependent_launch(x.get_device())
    shape = {} if one else {"BLOCK_M": ROWS}
    start = launcher(
        foretrace_small_gate_up_vector if one else foretrace_small_gate_up_dot,
        num_warps=num_warps,
        num_stages=num_stages,
        pdl=dependent,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, dtype),
        GATE_BIAS=gate_bias is not None,
        UP_BIAS=up_bias is not None,
        KEEP=keep,
        PDL=dependent,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        STAGES=num_stages,
        **shape,
    )
    sizes = (features, inner) if one else (rows, features, inner, x_stride)
    launch = (
        (-(-features // block_n),), x, gate, up, gate_bias, up_bias, hidden, preact, *sizes, gate_stride, up_stride
    )  # fmt: skip
    start(*launch)
    remember(_gate_ups, key, start.repetition(*launch))
    return hidden, preact


def linear_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    block_n: int | None = None,
    block_k: int | None = None,
    num_warps: int | None = None,
    num_stages: int = 4,
    split: int | None = None,
    pdl: int = 0,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """act(x·weightᵀ + bias) for ``x`` [M, K], M <= 16, ``weight`` [N, K]; returns [M, N] and the pre-activations.

    ``activation`` may be ``"none"``. Options as `gate_up`; one row takes 4 output features, 2048 input features and 8
    warps. ``split`` (for more than one row): programs that share the input features of a tile, by default 2 where
    there are fewer tiles than two a multiprocessor. Raises `InputError` where `small_supported` is False.
    """
    dtype = x.dtype
    rows, inner = x.shape
    features = weight.shape[0]
    (x_stride, x_step), (weight_stride, weight_step) = x.stride(), weight.stride()
    if not (rows <= ROWS and dtype in HALVES and weight.dtype == dtype and x_step == weight_step == 1):
        _check(x, weight)
    bias = bias if bias is None else bias.contiguous()
    out = x.new_empty((rows, features))
    preact = x.new_empty((rows, features)) if keep else None
    if rows == 0:
        return out, preact
    device, x_pointer, weight_pointer = x.get_device(), x.data_ptr(), weight.data_ptr()
    one = rows == 1
    block_n = block_n or (4 if one else 32)
    partial = arrivals = None
    if one:
        _check_block(block_n)
        block_k, split = block_k or 2048, 1
    else:
        if block_k is None:
            wide = _whole_rows(x_pointer | weight_pointer, x_stride | weight_stride, dtype.itemsize)
            block_k = 256 if wide else 32
        tiles = -(-features // block_n)
        if split is None:
            split = 2 if tiles < 2 * processors(device) and inner >= 4 * block_k else 1
        if split > 1:
            partial = x.new_empty((split, ROWS, features), dtype=torch.float32)
            arrivals = zeroed_counters(x, tiles)
    key = (
        x_pointer, weight_pointer, out.data_ptr(), None if preact is None else preact.data_ptr(),
        None if bias is None else (bias.data_ptr(), bias.dtype),
        None if partial is None else partial.data_ptr(), None if arrivals is None else arrivals.data_ptr(),
        rows, inner, features, x_stride, weight_stride, dtype, device, activation, precision,
        block_n, block_k, num_warps, num_stages, split, pdl,
    )  # fmt: skip
    if repeated(_linear_acts, key):
        return out, preact
    dependent = pdl != 0 and _has_dependent_launch(device)
    constants = {
        "ACTIVATION": activation,
        "PRECISION": kernel_precision(precision, dtype),
        "BIAS": bias is not None,
        "KEEP": keep,
        "PDL": dependent,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "STAGES": num_stages,
    }
    launch: tuple[Any, ...]
    if one:
        kernel = foretrace_small_linear_act_vector
        launch = ((-(-features // block_n),), x, weight, bias, out, preact, features, inner, weight_stride)
    else:
        kernel = foretrace_small_linear_act_dot
        constants |= {"SPLIT": split, "BLOCK_M": ROWS}
        # Each part a whole number of blocks, so that only the last one has a rest.
        span = -(-inner // (split * block_k)) * block_k
        launch = (
            (tiles * split,), x, weight, bias, out, preact, partial, arrivals,
            rows, features, inner, x_stride, weight_stride, span,
        )  # fmt: skip
    warps = num_warps or (8 if one else 4)
    start = launcher(kernel, num_warps=warps, num_stages=num_stages, pdl=dependent, **constants)
    start(*launch)
    remember(_linear_acts, key, start.repetition(*launch))
    return out, preact


def project(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    block_n: int | None = None,
    block_k: int | None = None,
    num_warps: int | None = None,
    num_stages: int = 4,
    split: int | None = None,
    pdl: int = 0,
) -> torch.Tensor:
    """hidden·weightᵀ + bias for ``hidden`` [M, N], M <= 16, ``weight`` [out, N]; returns [M, out]. See `linear_act`."""
    return linear_act(
        hidden,
        weight,
        bias,
        "none",
        keep=False,
        block_n=block_n,
        block_k=block_k,
        num_warps=num_warps,
        num_stages=num_stages,
        split=split,
        pdl=pdl,
    )[0]
