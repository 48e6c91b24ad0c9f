"""Normalisation: the input read once, the result and the saved statistics written once.

A kernel that cannot hold a row reads it twice; the least is once. Statistics are fp32 for 16-bit inputs
(ATen's ``acc_type`` on GPUs). Argument positions are those of ``native_functions.yaml``.
"""

from __future__ import annotations

from math import prod

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown

__all__ = ["FORMULAS"]


def _size(tensor: Operand | None) -> int:
    return 0 if tensor is None else tensor.bytes


def _statistic(x: Operand) -> int:
    return max(4, x.dtype.itemsize)


def _rows(call: Call, x: Operand, weight: Operand | None) -> int:
    normalized = call.integers(1 if "backward" not in call.base else 2)
    width = prod(normalized) if normalized else (weight.numel if weight is not None else 0)
    if width <= 0:
        raise Unknown(f"the trace does not record the normalized shape of {call.name}")
    return x.numel // width


def _layer_norm(call: Call) -> Cost:
    """``(input, normalized_shape, weight, bias, eps)`` → output, mean, rstd."""
    x, weight, bias = call.need(0), call.tensor(2), call.tensor(3)
    statistics = 2 * _rows(call, x, weight) * _statistic(x)
    return Cost(None, x.bytes + _size(weight) + _size(bias) + x.result_bytes + statistics)


def _rms_norm(call: Call) -> Cost:
    """``(input, normalized_shape, weight, eps)`` → output, rstd."""
    x, weight = call.need(0), call.tensor(2)
    statistics = _rows(call, x, weight) * _statistic(x)
    return Cost(None, x.bytes + _size(weight) + x.result_bytes + statistics)


def _layer_norm_backward(call: Call) -> Cost:
    """``(grad, input, normalized_shape, mean, rstd, weight, bias, mask)``; rms: without mean and bias."""
    rms = "rms" in call.base
    grad, x = call.need(0), call.need(1)
    statistics = call.tensors_at((3,) if rms else (3, 4))
    weight = call.tensor(4 if rms else 5)
    mask = call.booleans(5 if rms else 7)
    if mask is None:
        raise Unknown(f"the trace does not record which gradients {call.name} computes")
    read = grad.bytes + x.bytes + sum(t.bytes for t in statistics) + _size(weight)
    width = weight.result_bytes if weight is not None else 0
    written = (x.result_bytes if mask[0] else 0) + width * sum(mask[1:])
    return Cost(None, read + written)


def _batch_norm(call: Call) -> Cost:
    """``(input, weight, bias, running_mean, running_var, training, …)``.

    Training also writes the batch's mean and inverse deviation and updates the running statistics.
    """
    x = call.need(0)
    if len(x.shape) < 2:
        raise Unknown(f"the input of {call.name} has no channel dimension")
    affine, running = call.tensors_at((1, 2)), call.tensors_at((3, 4))
    total = x.bytes + x.result_bytes + sum(t.bytes for t in affine + running)
    training = True if "with_update" in call.base else call.boolean(5)
    if training is None:
        raise Unknown(f"the trace does not record whether {call.name} trains")
    if training:
        total += 2 * x.shape[1] * _statistic(x) + sum(t.bytes for t in running)
    return Cost(None, total)


def _batch_norm_backward(call: Call) -> Cost:
    """Native ``(grad, input, …)`` and cuDNN's ``(input, grad, …)`` weigh the same."""
    a, b = call.need(0), call.need(1)
    small = [t for t in map(call.tensor, range(2, 7)) if t is not None and len(t.shape) == 1]
    weight = call.tensor(2)
    written = a.result_bytes + 2 * _size(weight)
    return Cost(None, a.bytes + b.bytes + sum(t.bytes for t in small) + written)


def _group_norm(call: Call) -> Cost:
    """``(input, weight, bias, N, C, HxW, group, eps)`` → output, mean, rstd."""
    x, weight, bias = call.need(0), call.tensor(1), call.tensor(2)
    batch, groups = call.integer(3), call.integer(6)
    if batch is None or groups is None:
        raise Unknown(f"the trace does not record the groups of {call.name}")
    statistics = 2 * batch * groups * x.dtype.itemsize
    return Cost(None, x.bytes + _size(weight) + _size(bias) + x.result_bytes + statistics)


def _group_norm_backward(call: Call) -> Cost:
    """``(grad, input, mean, rstd, weight, N, C, HxW, group, mask)``."""
    grad, x, weight, mask = call.need(0), call.need(1), call.tensor(4), call.booleans(9)
    if mask is None:
        raise Unknown(f"the trace does not record which gradients {call.name} computes")
    read = grad.bytes + x.bytes + sum(t.bytes for t in call.tensors_at((2, 3))) + _size(weight)
    channels = (weight.result_bytes if weight is not None else 0) * sum(mask[1:])
    return Cost(None, read + (x.result_bytes if mask[0] else 0) + channels)


def _fused_add_rms_norm(call: Call) -> Cost:
    """Serving libraries' ``fused_add_rms_norm(x, residual, weight, eps)``: both updated in place."""
    x, residual, weight = call.need(0), call.need(1), call.need(2)
    return Cost(None, 2 * x.bytes + 2 * residual.bytes + weight.bytes)


def _out_rms_norm(call: Call) -> Cost:
    """Serving libraries' ``rms_norm(out, x, weight, eps)``."""
    out, x, weight = call.need(0), call.need(1), call.need(2)
    return Cost(None, x.bytes + weight.bytes + out.bytes)


FORMULAS = {
    "native_layer_norm": _layer_norm,
    "layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "rms_norm": _rms_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "_fused_rms_norm_backward": _layer_norm_backward,
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm",
         "_batch_norm_with_update", "batch_norm", "_batch_norm_impl_index"),
        _batch_norm,
    ),
    **dict.fromkeys(
        ("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward",
         "batch_norm_backward"),
        _batch_norm_backward,
    ),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "_C::fused_add_rms_norm": _fused_add_rms_norm,
    "sgl_kernel::fused_add_rmsnorm": _fused_add_rms_norm,
    "_C::rms_norm": _out_rms_norm,
    "sgl_kernel::rmsnorm": _out_rms_norm,
}  # fmt: skip
