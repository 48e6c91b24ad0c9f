"""Pointwise operators: every operand read once, the result written once; FLOPs are not counted.

Sources: operator signatures in ATen's ``native_functions.yaml`` (how many of the leading arguments are
tensors, which results are Boolean) and torch's type-promotion rules (`foretrace.knowledge.dtypes.promote`).
A tensor after the operator's own arguments is the ``out=`` operand of an out-variant: it is written.
"""

from __future__ import annotations

from typing import NamedTuple

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown, numel
from foretrace.knowledge.costs.gemm import broadcast
from foretrace.knowledge.dtypes import Dtype, dtype, promote

__all__ = ["FORMULAS", "OPERANDS"]

# Operators by what they take: the number is that of leading arguments that are, or may be, tensors.
_UNARY = """
    abs neg negative positive ceil floor round trunc frac fix sign sgn square relu relu6 bitwise_not invert
    hardtanh hardswish hardsigmoid leaky_relu elu selu celu gelu silu mish softplus threshold nan_to_num
    conj_physical _conj_physical hardshrink softshrink tril triu polygamma rrelu
"""
# Integers become torch's default float.
_UNARY_FLOATING = """
    exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan asinh
    acosh atanh arcsin arccos arctan arcsinh arccosh arctanh sigmoid erf erfc erfinv special_erf special_erfc
    digamma lgamma i0 sinc deg2rad rad2deg special_expit special_exp2 special_log1p special_i0e special_ndtri
    mvlgamma logit
"""
_UNARY_BOOLEAN = "isnan isinf isfinite isneginf isposinf logical_not signbit isreal"
_BINARY = """
    add sub subtract mul multiply pow fmod remainder maximum minimum fmax fmin rsub floor_divide bitwise_and
    bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__
    __iand__ __ior__ copysign heaviside hypot nextafter gcd lcm ldexp prelu _prelu_kernel clamp_max clamp_min
    gelu_backward silu_backward threshold_backward sigmoid_backward tanh_backward hardtanh_backward
    hardswish_backward hardsigmoid_backward leaky_relu_backward mish_backward hardshrink_backward
    softshrink_backward softplus_backward logit_backward native_dropout_backward _masked_scale masked_fill
"""
_BINARY_FLOATING = """
    div divide true_divide atan2 arctan2 xlogy special_xlogy special_xlog1py logaddexp logaddexp2
"""
_BINARY_BOOLEAN = """
    eq ne lt le gt ge greater greater_equal less less_equal not_equal isclose logical_and logical_or
    logical_xor
"""
_TERNARY = "addcmul addcdiv lerp where clamp clip log_sigmoid_backward"

OPERANDS: dict[str, int] = {
    **dict.fromkeys(f"{_UNARY} {_UNARY_FLOATING} {_UNARY_BOOLEAN}".split(), 1),
    **dict.fromkeys(f"{_BINARY} {_BINARY_FLOATING} {_BINARY_BOOLEAN}".split(), 2),
    **dict.fromkeys(_TERNARY.split(), 3),
}
_FLOATING = frozenset(f"{_UNARY_FLOATING} {_BINARY_FLOATING}".split())
_BOOLEAN = frozenset(f"{_UNARY_BOOLEAN} {_BINARY_BOOLEAN}".split())


class _Parts(NamedTuple):
    operands: list[Operand]
    shape: list[int]
    out: Operand | None


def _gather(call: Call, count: int) -> _Parts:
    operands = call.tensors(count)
    if not operands:
        raise Unknown(f"the trace does not record the operands of {call.name} (record_shapes=True records them)")
    shape = operands[0].shape
    if any(t.shape != shape for t in operands):
        common = broadcast([t.shape for t in operands])
        shape = common if common is not None else [-1]
    if shape == [-1]:
        raise Unknown(f"the operand shapes of {call.name} cannot be broadcast")
    out = None
    if not call.inplace:
        for index in range(len(call) - 1, count - 1, -1):
            candidate = call.tensor(index)
            if candidate is not None:
                out = candidate
                break
    return _Parts(operands, shape, out)


def _result_type(call: Call, operands: list[Operand]) -> Dtype:
    if call.base in _BOOLEAN:
        return _type("bool")
    if call.base == "where":
        operands = operands[1:] or operands
    elif call.base in ("masked_fill", "native_dropout_backward", "_masked_scale"):
        operands = operands[:1]
    found: Dtype | None = operands[0].dtype
    if any(t.dtype is not found for t in operands):
        found = promote([(t.dtype, len(t.shape)) for t in operands])
    assert found is not None  # there is at least one operand
    if found.kind in ("int", "bool") and len(operands) < OPERANDS[call.base]:
        found = _with_numbers(call, found)
    if found.kind in ("int", "bool") and call.base in _FLOATING:
        return _type("fp32")
    return found


def _with_numbers(call: Call, found: Dtype) -> Dtype:
    """An integer tensor and a Python number: ``x ** 0.5`` is floating, ``mask + 1`` an integer."""
    for index in range(min(OPERANDS[call.base], len(call))):
        value = call.text(index)
        if call.dtypes[index] != "Scalar" or value is None or value in ("True", "False"):
            continue
        whole = value.lstrip("-").isdigit()
        promoted = promote([(found, 1), (_type("int64" if whole else "fp64"), 0)])
        found = promoted if promoted is not None else found
    return found


def _type(name: str) -> Dtype:
    found = dtype(name)
    assert found is not None
    return found


def _pointwise(call: Call) -> Cost:
    parts = _gather(call, OPERANDS[call.base])
    read = sum(t.bytes for t in parts.operands)
    if call.inplace:
        written = parts.operands[0].bytes
    elif parts.out is not None and parts.out.numel:
        written = parts.out.bytes
    else:
        written = numel(parts.shape) * _result_type(call, parts.operands).itemsize
    return Cost(None, read + written)


def _native_dropout(call: Call) -> Cost:
    """Output and a Boolean mask; with ``train=False`` the input is copied."""
    x = call.need(0)
    return Cost(None, x.bytes + x.result_bytes + x.numel)


def _glu(call: Call) -> Cost:
    """Halves one dimension: ``a · sigmoid(b)``."""
    x = call.need(0)
    return Cost(None, x.bytes + x.result_bytes // 2)


def _glu_backward(call: Call) -> Cost:
    grad, x = call.need(0), call.need(1)
    return Cost(None, grad.bytes + x.bytes + x.result_bytes)


def _elu_backward(call: Call) -> Cost:
    """``elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result)``."""
    grad, x = call.need(0), call.need(5)
    return Cost(None, grad.bytes + x.bytes + grad.result_bytes)


def _log_sigmoid(call: Call) -> Cost:
    x = call.need(0)
    return Cost(None, x.bytes + x.result_bytes)


def _gated(call: Call) -> Cost:
    """vLLM's and SGLang's ``silu_and_mul(out, x)``: ``x`` holds gate and up side by side."""
    out, x = call.need(0), call.need(1)
    if x.numel != 2 * out.numel:
        raise Unknown(f"the shapes of {call.name} are not an activation over two halves")
    return Cost(None, x.bytes + out.result_bytes)


def _liger(call: Call) -> Cost:
    a, b = call.need(0), call.need(1)
    return Cost(None, a.bytes + b.bytes + a.result_bytes)


def _liger_backward(call: Call) -> Cost:
    """Liger's gated activations: gradient, gate and up read; both gradients written over gate and up."""
    return Cost(None, 5 * call.need(0).bytes)


FORMULAS = {
    **dict.fromkeys(OPERANDS, _pointwise),
    # Liger-Kernel's autograd functions (liger_kernel/ops/geglu.py, swiglu.py): c = act(a) · b.
    "LigerGELUMulFunction": _liger,
    "LigerSiLUMulFunction": _liger,
    "LigerGELUMulFunctionBackward": _liger_backward,
    "LigerSiLUMulFunctionBackward": _liger_backward,
    "native_dropout": _native_dropout,
    "_fused_dropout": _native_dropout,
    "glu": _glu,
    "glu_backward": _glu_backward,
    "elu_backward": _elu_backward,
    "log_sigmoid": _log_sigmoid,
    "log_sigmoid_forward": _log_sigmoid,
    **dict.fromkeys(
        (
            f"{library}::{function}"
            for library in ("_C", "sgl_kernel")
            for function in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")
        ),
        _gated,
    ),
}
