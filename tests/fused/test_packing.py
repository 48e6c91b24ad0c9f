"""Every order of gate and up is the same layer."""

from __future__ import annotations

import pytest
import torch
from mlp_cases import PACKINGS, SAVES, gated_tensors, gradients, plain_plan, randn

from foretrace.errors import InputError
from foretrace.fused.functional import gated_mlp
from foretrace.fused.weights import check_packing, dense_rows, packed, split, stacked


def test_split_names_the_rows() -> None:
    weight = torch.tensor([[0], [1], [2], [3]])
    assert [part.flatten().tolist() for part in split(weight, None, "gate_up")] == [[0, 1], [2, 3]]
    assert [part.flatten().tolist() for part in split(weight, None, "up_gate")] == [[2, 3], [0, 1]]
    assert [part.flatten().tolist() for part in split(weight, None, "interleaved")] == [[0, 2], [1, 3]]


@pytest.mark.parametrize("packing", PACKINGS)
def test_packed_is_the_inverse_of_split(packing: str) -> None:
    gate_first = torch.arange(6).reshape(6, 1)
    gate, up = split(*packed(gate_first, packing), packing)
    assert torch.cat([gate, up]).equal(gate_first)


def test_an_unknown_packing_is_refused() -> None:
    with pytest.raises(InputError, match="'chunked' is not one of separate, gate_up, up_gate, interleaved"):
        check_packing("chunked")


def test_neighbours_in_memory_are_one_weight() -> None:
    both = torch.arange(24.0).reshape(6, 4)
    found = stacked(both[:3], both[3:])
    assert found is not None
    assert found.equal(both)
    assert found.data_ptr() == both.data_ptr()
    bias = stacked(both[0], both[1])
    assert bias is not None
    assert bias.equal(both[:2].flatten())


def test_parts_of_one_flat_parameter_are_neighbours() -> None:
    flat = torch.arange(24.0)
    found = stacked(flat[:12].view(3, 4), flat[12:].view(3, 4))
    assert found is not None
    assert found.equal(flat.view(6, 4))


def test_others_are_not() -> None:
    both = torch.zeros(6, 4)
    assert stacked(both[3:], both[:3]) is None  # up comes first
    assert stacked(both[0::2], both[1::2]) is None  # interleaved
    assert stacked(both[:2], both[3:5]) is None  # a gap
    assert stacked(both[:3], both[3:].clone()) is None
    assert stacked(both[:3], both[3:5]) is None
    assert stacked(both[:3], both[3:].double()) is None


def test_transposed_weights_are_copied_and_others_are_not() -> None:
    weight = torch.zeros(3, 4)
    assert dense_rows(weight) is weight
    assert dense_rows(weight[:, 1:3]).data_ptr() == weight[:, 1:3].data_ptr()
    assert dense_rows(torch.zeros(4, 3).t()).stride() == (4, 1)
    assert dense_rows(torch.zeros(1, 4).expand(3, 4)).stride() == (4, 1)


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("packing", PACKINGS)
def test_packings_agree_with_separate_weights(packing: str, save: str) -> None:
    separate = gated_tensors()
    x, gate, up, down, gate_bias, up_bias, down_bias = separate
    assert gate is not None
    assert up is not None
    assert gate_bias is not None
    assert up_bias is not None
    weight, no_up = packed(torch.cat([gate, up]).detach(), packing)
    bias, no_up_bias = packed(torch.cat([gate_bias, up_bias]).detach(), packing)
    given = [x, weight, no_up, down, bias, no_up_bias, down_bias]
    given = [one if one is None else one.detach().clone().requires_grad_() for one in given]
    plan = plain_plan(save)  # type: ignore[arg-type]
    y = gated_mlp(*given, packing=packing, plan=plan)  # type: ignore[arg-type]
    expected = gated_mlp(*separate)  # type: ignore[arg-type]
    torch.testing.assert_close(y, expected)
    grad = randn(*y.shape, grad=False)
    dx, dgate, dup, ddown, dgate_bias, dup_bias, ddown_bias = gradients(expected, separate, grad)
    assert dgate is not None
    assert dup is not None
    assert dgate_bias is not None
    assert dup_bias is not None
    weights, biases = packed(torch.cat([dgate, dup]), packing), packed(torch.cat([dgate_bias, dup_bias]), packing)
    wanted = [dx, *weights, ddown, *biases, ddown_bias]
    for found, right in zip(gradients(y, given, grad), wanted, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize("packing", ["gate_up", "up_gate", "interleaved"])
def test_a_stacked_weight_has_no_up(packing: str) -> None:
    x, weight, _, down, *_ = gated_tensors(packing, bias=False)
    with pytest.raises(InputError, match=r"up_weight is \[10, 4\], and must be None"):
        gated_mlp(x, weight, weight, down, packing=packing)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="an even number of rows"):
        gated_mlp(x, weight[:5], None, down, packing=packing)  # type: ignore[arg-type, index]


def test_separate_weights_need_up() -> None:
    x, gate, _, down, *_ = gated_tensors(bias=False)
    with pytest.raises(InputError, match=r"up_weight is None, and must be gate_weight's \[5, 4\]"):
        gated_mlp(x, gate, None, down)  # type: ignore[arg-type]
