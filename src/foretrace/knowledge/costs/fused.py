"""foretrace's own fused steps: the product, and what its epilogue reads and writes.

A row ``foretrace::gate_up`` is one kernel (`foretrace.fused.rows` writes it). The row of a layer
(``foretrace::gated_mlp``, an operator of torch.library) is made of such rows and of ATen's, which are counted.
"""

from __future__ import annotations

from collections.abc import Callable

from foretrace.knowledge.costs.call import Call, Cost, GemmShape, Operand, Unknown, numel

__all__ = ["FORMULAS", "LAYERS"]


def _matrix(call: Call, at: int) -> Operand:
    operand = call.need(at)
    if len(operand.shape) < 2:
        raise Unknown(f"an operand of {call.name} is no matrix: {operand.shape}")
    return operand


def _rows(operand: Operand) -> int:
    return numel(operand.shape[:-1])


def _gate_up(call: Call) -> Cost:
    """``x [M, K]``, gate and up weight ``[N, K]`` (or one stacked ``[2N, K]`` and nothing): hidden ``[M, N]``."""
    x, gate, up = _matrix(call, 0), _matrix(call, 1), call.tensor(2)
    stacked = up is None or up.shape != gate.shape
    both = gate.shape[0] if stacked else 2 * gate.shape[0]
    if x.shape[-1] != gate.shape[1]:
        raise Unknown(f"the shapes of {call.name} do not fit: {x.shape} and {gate.shape}")
    m, k = _rows(x), gate.shape[1]
    gemm = GemmShape(m, both, k, 1, x.dtype.name, "TN")
    read = x.bytes + gate.bytes + (0 if stacked or up is None else up.bytes)
    written = m * (both // 2) * x.dtype.itemsize
    return Cost(gemm.flops, read + written + _kept(call, 6, m * both * x.dtype.itemsize), [gemm])


def _linear_act(call: Call) -> Cost:
    """``x [M, K]``, weight ``[N, K]``: act(x weightᵀ) ``[M, N]``."""
    x, weight = _matrix(call, 0), _matrix(call, 1)
    if x.shape[-1] != weight.shape[1]:
        raise Unknown(f"the shapes of {call.name} do not fit: {x.shape} and {weight.shape}")
    m, (n, k) = _rows(x), weight.shape
    gemm = GemmShape(m, n, k, 1, x.dtype.name, "TN")
    result = m * n * x.dtype.itemsize
    return Cost(gemm.flops, x.bytes + weight.bytes + result + _kept(call, 4, result), [gemm])


def _kept(call: Call, place: int, size: int) -> int:
    """Bytes of the pre-activations where the row says that they are kept: a step's argument, or its results."""
    if call.outputs is not None:
        kept = call.output(1)
        return size if kept is not None and numel(kept) > 0 else 0
    return size if call.boolean(place) else 0


def _backward(call: Call) -> Cost:
    """Gradient ``[M, out]``, down weight ``[out, N]``, pre-activations: their gradient, from the product's epilogue."""
    gradient, down, preact = _matrix(call, 0), _matrix(call, 1), _matrix(call, 2)
    if gradient.shape[-1] != down.shape[0]:
        raise Unknown(f"the shapes of {call.name} do not fit: {gradient.shape} and {down.shape}")
    gemm = GemmShape(_rows(gradient), down.shape[1], down.shape[0], 1, gradient.dtype.name, "NN")
    return Cost(gemm.flops, gradient.bytes + down.bytes + preact.bytes + preact.result_bytes, [gemm])


def _weight_gradient(call: Call) -> Cost:
    """Gradient ``[M, N]`` and ``x [M, K]``: gradᵀ·x ``[N, K]``; where it is written to is not read."""
    gradient, x = _matrix(call, 0), _matrix(call, 1)
    if gradient.shape[:-1] != x.shape[:-1]:
        raise Unknown(f"the shapes of {call.name} do not fit: {gradient.shape} and {x.shape}")
    gemm = GemmShape(gradient.shape[-1], x.shape[-1], _rows(x), 1, gradient.dtype.name, "NT")
    return Cost(gemm.flops, gradient.bytes + x.bytes + gemm.m * gemm.n * gradient.dtype.itemsize, [gemm])


def _act(call: Call) -> Cost:
    preact = call.need(0)
    return Cost(None, preact.bytes + preact.result_bytes)


def _act_backward(call: Call) -> Cost:
    gradient, preact = call.need(0), call.need(1)
    return Cost(None, gradient.bytes + preact.bytes + preact.result_bytes)


def _gated_act(call: Call) -> Cost:
    gate, up = call.need(0), call.need(1)
    return Cost(None, gate.bytes + up.bytes + gate.result_bytes)


def _gated_act_backward(call: Call) -> Cost:
    gradient, gate, up = call.need(0), call.need(1), call.need(2)
    return Cost(None, gradient.bytes + gate.bytes + up.bytes + gate.result_bytes + up.result_bytes)


FORMULAS: dict[str, Callable[[Call], Cost]] = {
    "foretrace::gate_up": _gate_up,
    "foretrace::linear_act": _linear_act,
    "foretrace::project": _linear_act,
    "foretrace::gate_up_backward": _backward,
    "foretrace::linear_act_backward": _backward,
    "foretrace::weight_gradient": _weight_gradient,
    "foretrace::act": _act,
    "foretrace::act_backward": _act_backward,
    "foretrace::gated_act": _gated_act,
    "foretrace::gated_act_backward": _gated_act_backward,
}
# Operators that are made of the rows above and of ATen's.
LAYERS = frozenset(
    f"foretrace::{name}{suffix}"
    for name in ("gated_mlp", "mlp", "linear_act", "gated_act")
    for suffix in ("", "_training", "_backward", "_through")
) - set(FORMULAS)
