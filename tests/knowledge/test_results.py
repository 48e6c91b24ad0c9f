"""What operators read and return, as far as a trace's row tells."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.results import Tensor, is_fill, is_pointwise, transfer

BF16 = "c10::BFloat16"


def bf16(*shape: int) -> Tensor:
    elements = 1
    for size in shape:
        elements *= size
    return Tensor(elements, shape[-1], "bf16", 2)


@pytest.mark.parametrize(
    ("op", "shapes", "result"),
    [
        ("aten::mm", [[8192, 768], [768, 3072]], bf16(8192, 3072)),
        ("aten::addmm", [[64], [1024, 32], [32, 64]], bf16(1024, 64)),
        ("aten::bmm", [[128, 1024, 64], [128, 64, 1024]], bf16(128, 1024, 1024)),
        ("aten::add", [[1024, 64], [64]], bf16(1024, 64)),
        ("aten::mul", [[4, 1], [1, 8]], bf16(4, 8)),
        ("aten::add_", [[1024, 64], [64]], bf16(1024, 64)),
        ("aten::_softmax", [[8, 16, 64, 64]], bf16(8, 16, 64, 64)),
    ],
)
def test_results_follow_from_operands(op: str, shapes: list[list[int]], result: Tensor) -> None:
    assert transfer(op, shapes=shapes, dtypes=[BF16] * len(shapes)).result == result


def test_comparisons_return_booleans() -> None:
    found = transfer("aten::gt", shapes=[[8, 8], []], dtypes=[BF16, "Scalar"])
    assert found.result == Tensor(64, 8, "bool", 1)


def test_a_copy_reads_the_source_and_returns_the_target() -> None:
    found = transfer("aten::copy_", shapes=[[8, 8], [8, 8]], dtypes=["float", BF16])
    assert found.reads == (bf16(8, 8),)
    assert found.result == Tensor(64, 8, "fp32", 4)


def test_a_fill_reads_nothing() -> None:
    assert transfer("aten::fill_", shapes=[[8, 8], []], dtypes=[BF16, "Scalar"]).reads == ()


def test_an_expanded_operand_is_the_tensor_behind_it() -> None:
    found = transfer("aten::div", shapes=[[4, 1024]], dtypes=[BF16], strides=[[1, 0]])
    assert found.reads == (Tensor(4, 1, "bf16", 2),)


def test_cat_joins_along_its_dimension_and_passes_over_empty_tensors() -> None:
    shapes: list[Any] = [[[0], [4, 32], [4, 32]], []]
    found = transfer("aten::cat", shapes=shapes, dtypes=["TensorList", "Scalar"], concrete=["", "-1"])
    assert found.result == Tensor(256, 64, None, None)


def test_vectors_are_operands_of_one_row() -> None:
    assert transfer("aten::add", shapes=[[1024, 64], [64]], dtypes=[BF16, BF16]).vectors == (64,)
    assert transfer("aten::add", shapes=[[64], [64]], dtypes=[BF16, BF16]).vectors == ()


def test_kinds_of_operators() -> None:
    assert is_pointwise("aten::gelu")
    assert is_pointwise("aten::add_")
    assert not is_pointwise("aten::mm")
    assert is_fill("aten::zero_")
    assert is_fill("aten::new_zeros")
    assert not is_fill("aten::mm")


_values = st.recursive(st.integers(-2, 9) | st.none() | st.text(max_size=3), lambda s: st.lists(s, max_size=3))


@given(
    op=st.sampled_from(["aten::mm", "aten::add_", "aten::where", "aten::cat", "aten::copy_", "x", ""]),
    shapes=st.lists(_values, max_size=4),
    dtypes=st.lists(st.sampled_from([BF16, "float", "TensorList", "Scalar", ""]), max_size=4),
)
def test_nothing_a_row_can_hold_raises(op: str, shapes: list[Any], dtypes: list[str]) -> None:
    transfer(op, shapes=shapes, dtypes=dtypes)
