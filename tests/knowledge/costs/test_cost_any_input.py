"""Properties that hold whatever a trace contains."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge import costs
from foretrace.knowledge.costs import op_cost, triton_cost

OPS = sorted(costs._FORMULAS)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.text(max_size=5), st.floats(allow_nan=True))
shapes = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4), max_leaves=8)
kinds = st.one_of(
    st.sampled_from(["float", "c10::BFloat16", "long int", "bool", "Scalar", "ScalarList", "TensorList", "", "double"]),
    st.text(max_size=6),
    scalars,
)
texts = st.one_of(st.sampled_from(["", "1", "0", "-1", "True", "[0]", "[1, 2]", "[]", "1e-5", "[x]", "inf"]), scalars)
lists = st.one_of(st.none(), st.lists(shapes, max_size=12))


@given(
    st.sampled_from(OPS), st.booleans(), st.lists(shapes, max_size=12), st.lists(kinds, max_size=12), lists,
    st.one_of(st.none(), st.lists(texts, max_size=12)), st.one_of(st.none(), st.just(2)),
)  # fmt: skip
def test_any_row_is_answered(op: str, inplace: bool, s: Any, d: Any, strides: Any, concrete: Any, size: Any) -> None:
    name = f"aten::{op}{'_' if inplace else ''}"
    cost = op_cost(name, shapes=s, dtypes=d, strides=strides, concrete=concrete, list_itemsize=size)
    assert cost.bytes is None or (isinstance(cost.bytes, int) and cost.bytes >= 0)
    assert cost.flops is None or cost.flops >= 0
    assert cost.bytes is not None or cost.reason


sizes = st.lists(st.integers(0, 9), min_size=2, max_size=4)


@given(st.sampled_from(OPS), st.lists(sizes, max_size=6), st.sampled_from(["float", "c10::Half", "int"]), st.data())
def test_any_plausible_row_has_a_non_negative_cost(op: str, s: Any, kind: str, data: st.DataObject) -> None:
    concrete = data.draw(st.lists(texts, min_size=len(s), max_size=len(s)))
    cost = op_cost(f"aten::{op}", shapes=s, dtypes=[kind] * len(s), concrete=concrete)
    assert cost.bytes is None or cost.bytes >= 0
    assert cost.bytes is not None or cost.reason


@given(st.lists(shapes, max_size=6), st.lists(kinds, max_size=6), lists, st.lists(texts, max_size=6))
def test_any_triton_row_is_answered(s: Any, d: Any, strides: Any, concrete: Any) -> None:
    for kind in ("poi", "red", "per", "tem", "for"):
        name = f"triton_{kind}_fused_add_mm_mul_0"
        cost = triton_cost(name, shapes=s, dtypes=d, strides=strides, concrete=concrete, ops=["add", "mm", "mul"])
        assert cost.bytes is None or cost.bytes >= 0
        assert cost.bytes is not None or cost.reason


dims = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(dims, st.data())
def test_broadcasting_is_symmetrical_and_as_torch_does_it(full: list[int], data: st.DataObject) -> None:
    def shrink(shape: list[int]) -> list[int]:
        kept = [data.draw(st.sampled_from([size, 1])) for size in shape]
        return kept[data.draw(st.integers(0, len(kept))) :]

    a, b = shrink(full), shrink(full)
    one = op_cost("aten::add", shapes=[a, b], dtypes=["float", "float"]).bytes
    other = op_cost("aten::add", shapes=[b, a], dtypes=["float", "float"]).bytes
    result = torch.empty(torch.broadcast_shapes(a, b)).numel()
    operands = torch.empty(a).numel() + torch.empty(b).numel()
    assert one == other == 4 * (operands + result)


@given(st.integers(0, 64), st.integers(0, 64), st.integers(0, 64))
def test_products_have_the_shapes_their_flops_say(m: int, n: int, k: int) -> None:
    cost = op_cost("aten::mm", shapes=[[m, k], [k, n]], dtypes=["float", "float"], strides=[[k, 1], [n, 1]])
    (gemm,) = cost.gemms
    assert cost.flops == gemm.flops == 2 * m * n * k
    assert cost.bytes == 4 * (m * k + k * n + m * n)
    assert gemm.layout == "NN"
