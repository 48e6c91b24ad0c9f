"""What the copy engine can read and write, and what a descriptor of two weights looks like."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton.tools.tensor_descriptor")

from foretrace.errors import InputError
from foretrace.fused.kernels.descriptors import (
    column_descriptor,
    descriptor,
    pair_descriptor,
    pair_is_swapped,
    pair_legal,
    tma_legal,
    tma_storable,
)


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


LEGAL = {
    "contiguous": half(4, 64),
    "a slice of columns that starts at 16 bytes": half(4, 64)[:, 8:40],
    "columns that end anywhere": half(4, 64)[:, :37],
    "every other row": half(8, 64)[::2],
    "one row, whatever its stride": half(1, 64).as_strided((1, 64), (3, 1)),
    "one row of odd length": half(1, 37),
}
ILLEGAL = {
    "an odd row stride": half(4, 37),
    "an address off 16 bytes": half(4, 64)[:, 1:33],
    "transposed": half(64, 4).T,
    "expanded rows": half(1, 64).expand(4, 64),
    "expanded columns": half(4, 1).expand(4, 64),
    "no rows": half(0, 64),
    "no columns": half(4, 0),
    "three dimensions": half(2, 4, 64),
}


@pytest.mark.parametrize("tensor", LEGAL.values(), ids=LEGAL)
def test_readable(tensor: torch.Tensor) -> None:
    assert tma_legal(tensor)
    made = descriptor(tensor, (16, 64)).triton
    assert tuple(made.shape) == tuple(tensor.shape)
    assert made.strides[0] % 8 == 0


@pytest.mark.parametrize("tensor", ILLEGAL.values(), ids=ILLEGAL)
def test_not_readable_and_said_so(tensor: torch.Tensor) -> None:
    assert not tma_legal(tensor)
    with pytest.raises(InputError, match="use the portable kernels"):
        descriptor(tensor, (16, 64))


def test_rows_are_written_only_if_they_end_at_16_bytes() -> None:
    """triton-lang/triton#11583: a store was seen to reach up to the next 16 bytes past a row's end."""
    assert tma_storable(half(4, 64)[:, :40])
    assert tma_legal(half(4, 64)[:, :37])
    assert not tma_storable(half(4, 64)[:, :37])


@pytest.mark.parametrize("order", ["gate_up", "up_gate", "interleaved"])
def test_any_packing_is_one_tensor_of_two(order: str) -> None:
    stacked = half(64, 32)
    first, second, strides = {
        "gate_up": (stacked[:32], stacked[32:], [32 * 32, 32, 1]),
        "up_gate": (stacked[32:], stacked[:32], [32 * 32, 32, 1]),
        "interleaved": (stacked[0::2], stacked[1::2], [32, 64, 1]),
    }[order]
    made = pair_descriptor(first, second, (2, 16, 32)).triton
    assert made.base.data_ptr() == stacked.data_ptr()
    assert (made.shape, made.strides) == ([2, 32, 32], strides)
    assert pair_is_swapped(first, second) == (order == "up_gate")


def test_separate_weights_are_a_pair_too() -> None:
    first, second = half(32, 32), half(32, 32)
    made = pair_descriptor(first, second, (2, 16, 32)).triton
    assert made.strides[0] * 2 == abs(first.data_ptr() - second.data_ptr())


def test_weights_that_are_no_pair() -> None:
    weight = half(32, 32)
    assert not pair_legal(weight, weight)  # one tensor twice: no distance
    assert not pair_legal(weight, half(32, 64)[:, :32])  # other strides
    assert not pair_legal(weight, half(16, 32))
    for other in (weight, half(16, 32)):
        with pytest.raises(InputError, match="use the portable kernels"):
            pair_descriptor(weight, other, (2, 16, 32))


def test_descriptors_the_compiler_cannot_tell_apart_are_of_one_kind() -> None:
    one, other = half(4, 64), half(400, 128)
    assert descriptor(one, (16, 64)).kind == descriptor(other, (16, 64)).kind
    assert descriptor(one, (16, 64)).kind != descriptor(one, (16, 32)).kind
    assert descriptor(one, (16, 64)).kind != descriptor(one.bfloat16(), (16, 64)).kind


def test_columns_of_a_tensor_are_described_without_a_view() -> None:
    preact = half(4, 128)
    made = column_descriptor(preact, 64, 128, (16, 64)).triton
    assert made.base.data_ptr() == preact.data_ptr() + 64 * 2
    assert (tuple(made.shape), tuple(made.strides)) == ((4, 64), (128, 1))
