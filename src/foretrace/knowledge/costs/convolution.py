"""Convolutions: one multiply-add for every (output point, kernel tap, channel pair within a group).

Formula as in ``torch.utils.flop_counter`` (``conv_flop_count``, ``conv_backward_flop``). Sizes of the output
follow ``torch.nn.Conv2d``'s documentation. Bytes: input, weight and bias read, output written.
"""

from __future__ import annotations

from typing import NamedTuple

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown, numel

__all__ = [
    "FORMULAS",
]


class _Where(NamedTuple):
    """Argument positions of one convolution operator; ``None``: it has no such argument."""

    bias: int | None
    stride: int
    padding: int
    dilation: int | None
    transposed: bool | int  # a fixed answer, or the position of the flag
    output_padding: int | None
    groups: int | None


_FORWARD = {
    "convolution": _Where(2, 3, 4, 5, 6, 7, 8),
    "_convolution": _Where(2, 3, 4, 5, 6, 7, 8),
    "convolution_overrideable": _Where(2, 3, 4, 5, 6, 7, 8),
    "conv1d": _Where(2, 3, 4, 5, False, None, 6),
    "conv2d": _Where(2, 3, 4, 5, False, None, 6),
    "conv3d": _Where(2, 3, 4, 5, False, None, 6),
    "conv_transpose1d": _Where(2, 3, 4, 7, True, 5, 6),
    "conv_transpose2d": _Where(2, 3, 4, 7, True, 5, 6),
    "conv_transpose3d": _Where(2, 3, 4, 7, True, 5, 6),
    "cudnn_convolution": _Where(None, 3, 2, 4, False, None, 5),
    "cudnn_convolution_relu": _Where(2, 3, 4, 5, False, None, 6),
    "cudnn_convolution_transpose": _Where(None, 4, 2, 5, True, 3, 6),
    "miopen_convolution": _Where(2, 4, 3, 5, False, None, 6),
    "miopen_convolution_relu": _Where(2, 3, 4, 5, False, None, 6),
    "miopen_depthwise_convolution": _Where(2, 4, 3, 5, False, None, 6),
    "miopen_convolution_transpose": _Where(2, 5, 3, 6, True, 4, 7),
    "mkldnn_convolution": _Where(2, 4, 3, 5, False, None, 6),
    "_slow_conv2d_forward": _Where(3, 4, 5, None, False, None, None),
    "thnn_conv2d": _Where(3, 4, 5, None, False, None, None),
    "slow_conv3d_forward": _Where(3, 4, 5, None, False, None, None),
    "slow_conv_dilated2d": _Where(3, 4, 5, 6, False, None, None),
    "slow_conv_dilated3d": _Where(3, 4, 5, 6, False, None, None),
    "_conv_depthwise2d": _Where(3, 4, 5, 6, False, None, None),
    "conv_depthwise3d": _Where(3, 4, 5, 6, False, None, None),
    "cudnn_convolution_add_relu": _Where(4, 5, 6, 7, False, None, 8),
    "miopen_convolution_add_relu": _Where(4, 5, 6, 7, False, None, 8),
}


def _spread(values: list[int] | None, dims: int, default: int) -> list[int] | None:
    """A per-dimension argument; one number stands for all of them."""
    if values is None:
        return None
    if not values:
        return [default] * dims
    return values * dims if len(values) == 1 else values


def _output_shape(
    x: list[int], w: list[int], stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int,
) -> list[int] | None:  # fmt: skip
    """``[N, C_out, …]`` of a convolution; ``None`` where the sizes do not fit together."""
    dims = len(x) - 2
    if not (len(w) == len(x) and dims >= 1 and len(stride) == len(padding) == len(dilation) == dims):
        return None
    if transposed and len(output_padding) != dims:
        return None
    result = [x[0], w[1] * groups if transposed else w[0]]
    for i in range(dims):
        span = dilation[i] * (w[2 + i] - 1)
        if transposed:
            size = (x[2 + i] - 1) * stride[i] - 2 * padding[i] + span + output_padding[i] + 1
        elif stride[i] <= 0:
            return None
        else:
            size = (x[2 + i] + 2 * padding[i] - span - 1) // stride[i] + 1
        if size < 0:
            return None
        result.append(size)
    return result


def _flops(x: list[int], w: list[int], out: list[int], transposed: bool) -> int:
    # Every point of the smaller side (the input of a transposed convolution) meets every weight of its
    # output channels; w.numel already holds channels per group only.
    points = x if transposed else out
    return 2 * points[0] * numel(points[2:]) * numel(w)


def _forward(call: Call) -> Cost:
    where = _FORWARD[call.base]
    x, w = call.need(0, "input"), call.need(1, "weight")
    x_shape = list(x.shape)
    if len(x_shape) == len(w.shape) - 1:  # a single, unbatched sample
        x_shape.insert(0, 1)
    dims = len(x_shape) - 2
    flag = where.transposed
    transposed = flag if isinstance(flag, bool) else call.boolean(flag)
    out = call.output()
    if out is None:
        out = _from_arguments(call, where, x_shape, list(w.shape), dims, transposed)
    elif len(out) == len(x_shape) - 1:
        out = [1, *out]
    if transposed is None:
        raise Unknown(f"the trace does not record whether {call.name} is transposed")
    bias = None if where.bias is None else call.tensor(where.bias)
    added = call.tensor(2) if call.base.endswith("_add_relu") else None
    read = x.bytes + w.bytes + sum(t.bytes for t in (bias, added) if t is not None)
    written = numel(out) * x.dtype.itemsize
    return Cost(_flops(x_shape, list(w.shape), out, transposed), read + written)


def _from_arguments(
    call: Call, where: _Where, x: list[int], w: list[int], dims: int, transposed: bool | None
) -> list[int]:
    stride = _spread(call.integers(where.stride), dims, 1)
    padding = _padding(call, where.padding, w, dims, where.dilation)
    dilation = [1] * dims if where.dilation is None else _spread(call.integers(where.dilation), dims, 1)
    extra = [0] * dims if where.output_padding is None else _spread(call.integers(where.output_padding), dims, 0)
    groups = 1 if where.groups is None else call.integer(where.groups)
    if stride is None or padding is None or dilation is None or transposed is None or groups is None:
        raise Unknown(f"the trace does not record stride, padding and dilation of {call.name}")
    out = _output_shape(x, w, stride, padding, dilation, transposed, extra or [0] * dims, groups)
    if out is None:
        raise Unknown(f"the shapes of {call.name} do not form a convolution: {x} and {w}")
    return out


def _padding(call: Call, index: int, w: list[int], dims: int, dilation_at: int | None) -> list[int] | None:
    word = call.text(index)
    if word in ("valid", '"valid"'):
        return [0] * dims
    if word in ("same", '"same"') and dilation_at is not None:
        dilation = _spread(call.integers(dilation_at), dims, 1)
        # Odd totals are split unevenly; the output keeps the input's size at stride 1 either way.
        if dilation is None or any(dilation[i] * (w[2 + i] - 1) % 2 for i in range(dims)):
            return None
        return [dilation[i] * (w[2 + i] - 1) // 2 for i in range(dims)]
    return _spread(call.integers(index), dims, 0)


def _backward(call: Call) -> Cost:
    """``convolution_backward(grad, input, weight, bias_sizes, stride, …, transposed@7, …, mask@10)``.

    The gradient of the input and that of the weight are a convolution each with as many multiply-adds as the
    forward; the bias gradient is a sum. The mask says which of them are computed.
    """
    grad, x, w = call.need(0, "gradient"), call.need(1, "input"), call.need(2, "weight")
    transposed, mask = call.boolean(7), call.booleans(10)
    if transposed is None or mask is None or len(mask) < 2:
        raise Unknown(f"the trace does not record which gradients {call.name} computes")
    if not (len(grad.shape) == len(x.shape) == len(w.shape) >= 3):
        raise Unknown(f"the shapes of {call.name} do not form a convolution")
    return _gradients(grad, x, w, transposed, mask)


def _gradients(grad: Operand, x: Operand, w: Operand, transposed: bool, mask: list[bool]) -> Cost:
    each = _flops(list(x.shape), list(w.shape), list(grad.shape), transposed)
    flops = each * (mask[0] + mask[1])
    read = grad.bytes + (w.bytes if mask[0] else 0) + (x.bytes if mask[1] else 0)
    written = (x.result_bytes if mask[0] else 0) + (w.result_bytes if mask[1] else 0)
    if len(mask) > 2 and mask[2]:
        written += grad.shape[1] * grad.dtype.itemsize
    return Cost(flops, read + written)


FORMULAS = {**dict.fromkeys(_FORWARD, _forward), "convolution_backward": _backward}
