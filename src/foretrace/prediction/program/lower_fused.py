"""The kernels of fused MLPs: a product with an epilogue, or one pointwise kernel between products of the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from foretrace.knowledge.lowering.fused import LIGER_KERNELS, epilogue_of
from foretrace.prediction.program.lower_moves import Fresh, Rule, plain
from foretrace.prediction.program.operands import Call, touched
from foretrace.prediction.work import Product, Work

__all__ = ["FUSED"]


def _gate_up(call: Call, _: Fresh) -> list[Work]:
    x, gate, _, gate_bias = call.args[:4]
    (m, k), n = x.shape, 2 * gate.shape[0]
    epilogue = epilogue_of("gate_up", call.argument("activation"), bias=gate_bias is not None)
    return [_product(call, Product(m, n, k, 1, "TN"), epilogue)]


def _gate_up_backward(call: Call, _: Fresh) -> list[Work]:
    gradient, down = call.args[:2]
    (m, k), n = gradient.shape, down.shape[1]
    return [_product(call, Product(m, n, k, 1, "NN"), epilogue_of("gate_up_backward", call.argument("activation")))]


def _linear_act(call: Call, _: Fresh) -> list[Work]:
    x, weight, bias = call.args[:3]
    (m, k), n = x.shape, weight.shape[0]
    epilogue = epilogue_of("linear_act", call.argument("activation"), bias=bias is not None)
    return [_product(call, Product(m, n, k, 1, "TN"), epilogue)]


def _linear_act_backward(call: Call, _: Fresh) -> list[Work]:
    gradient, down = call.args[:2]
    (m, k), n = gradient.shape, down.shape[1]
    epilogue = epilogue_of("linear_act_backward", call.argument("activation"))
    return [_product(call, Product(m, n, k, 1, "NN"), epilogue)]


def _project(call: Call, _: Fresh) -> list[Work]:
    """The product of few rows by a kernel of foretrace's, which adds the bias."""
    hidden, weight, bias = call.args[:3]
    (m, k), n = hidden.shape, weight.shape[0]
    return [_product(call, Product(m, n, k, 1, "TN"), () if bias is None else ("bias",))]


def _weight_gradient(call: Call, _: Fresh) -> list[Work]:
    """The gradient of a weight from few rows by a kernel of foretrace's, which writes it once."""
    gradient, x = call.args[:2]
    (m, n), k = gradient.shape, x.shape[1]
    return [_product(call, Product(n, k, m, 1, "NT"), ())]


def _product(call: Call, product: Product, epilogue: tuple[str, ...]) -> Work:
    results = [item for item in call.outputs if item.elements]
    return Work(
        kind="gemm",
        op=call.op,
        dtype=call.outputs[0].dtype,
        reads=touched(call.operands()),
        writes=touched(results),
        elements=product.m * product.n,
        reduced=product.k,
        flops=2 * product.m * product.n * product.k,
        product=product,
        epilogue=epilogue,
        beside_hopper=float(call.argument("beside_hopper", 1.0)),
        expected_us=float(call.argument("expected_us", 0.0)) or None,
    )


def _gated_act(call: Call, _: Fresh) -> list[Work]:
    return [replace(plain(call, "fused"), parts=(*_parts(call), "mul"), generated=True)]


def _act(call: Call, _: Fresh) -> list[Work]:
    return [replace(plain(call, "elementwise"), parts=_parts(call), generated=True)]


def _act_backward(call: Call, fresh: Fresh) -> list[Work]:
    """The gradient, and with a bias its sums over strips of rows, which a reduction of the library adds up."""
    (work,) = _act(call, fresh)
    return [replace(work, kind="fused", parts=(*work.parts, "sum"))] if call.argument("bias") else [work]


def _parts(call: Call) -> tuple[str, ...]:
    activation = call.argument("activation").partition("_")[0]
    return (f"{activation}_backward" if call.base.endswith("_backward") else activation,)


def _liger_act(call: Call, fresh: Fresh) -> list[Work]:
    forward, backward = LIGER_KERNELS[call.argument("activation")]
    (work,) = _gated_act(call, fresh)
    return [replace(work, op=backward if call.base.endswith("_backward") else forward)]


FUSED: Mapping[str, Rule] = {
    "gate_up": _gate_up,
    "gate_up_backward": _gate_up_backward,
    "linear_act": _linear_act,
    "linear_act_backward": _linear_act_backward,
    "project": _project,
    "weight_gradient": _weight_gradient,
    "act": _act,
    "act_backward": _act_backward,
    **dict.fromkeys(("gated_act", "gated_act_backward"), _gated_act),
    **dict.fromkeys(("liger_act", "liger_act_backward"), _liger_act),
}
