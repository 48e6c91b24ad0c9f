"""The costs of foretrace's own operators."""

from __future__ import annotations

import pytest

from foretrace.knowledge.costs import op_cost
from foretrace.knowledge.costs.call import GemmShape

BF16 = "c10::BFloat16"
M, K, N, OUT = 32, 8, 16, 12


def cost(name: str, *shapes: list[int], concrete: list[str] | None = None, outputs: list[list[int]] | None = None):
    types = [BF16 if shape else "" for shape in shapes]
    return op_cost(f"foretrace::{name}", shapes=list(shapes), dtypes=types, concrete=concrete, outputs=outputs)


def test_gate_and_up_are_one_product_whose_result_is_half_as_wide() -> None:
    found = cost("gate_up", [M, K], [N, K], [N, K])
    assert (found.gemms[0].m, found.gemms[0].n, found.gemms[0].k) == (M, 2 * N, K)
    assert found.flops == 2 * M * 2 * N * K
    assert found.bytes == 2 * (M * K + 2 * N * K + M * N)


def test_a_stacked_weight_is_the_same_product() -> None:
    assert cost("gate_up", [2, M // 2, K], [2 * N, K], []) == cost("gate_up", [2, M // 2, K], [N, K], [N, K])


def test_what_is_kept_for_backward_is_written_too() -> None:
    shapes = ([M, K], [N, K], [N, K], [], [], [], [])
    kept = 2 * M * 2 * N
    without = cost("gate_up", *shapes, concrete=["", "", "", "", "", "silu", "False"]).bytes
    assert cost("gate_up", *shapes, concrete=["", "", "", "", "", "silu", "True"]).bytes == without + kept
    assert cost("gate_up", *shapes, outputs=[[M, N], [M, 2 * N]]).bytes == without + kept
    assert cost("gate_up", *shapes, outputs=[[M, N], [0, 2 * N]]).bytes == without


def test_linear_act() -> None:
    found = cost("linear_act", [M, K], [N, K], [N])
    assert (found.flops, found.bytes) == (2 * M * N * K, 2 * (M * K + N * K + M * N))


def test_backward_reads_the_preactivations_and_writes_their_gradient() -> None:
    found = cost("gate_up_backward", [M, OUT], [OUT, N], [M, 2 * N])
    assert (found.flops, found.bytes) == (2 * M * N * OUT, 2 * (M * OUT + OUT * N + 2 * M * 2 * N))


def test_the_gradient_of_a_weight_is_the_product_of_two_kept_matrices() -> None:
    found = cost("weight_gradient", [M, N], [M, K], [])
    assert found.gemms == [GemmShape(N, K, M, 1, "bf16", "NT")]
    assert (found.flops, found.bytes) == (2 * M * N * K, 2 * (M * N + M * K + N * K))
    # As the product of the library in its place, and whether or not it is told where to write.
    assert cost("weight_gradient", [M, N], [M, K], [N, K]) == found
    library = op_cost("aten::mm", shapes=[[N, M], [M, K]], dtypes=[BF16, BF16], strides=[[1, N], [K, 1]])
    assert library == found


def test_the_elementwise_steps_only_move_bytes() -> None:
    assert (cost("gated_act", [M, N], [M, N]).flops, cost("gated_act", [M, N], [M, N]).bytes) == (None, 2 * 3 * M * N)
    assert cost("gated_act_backward", [M, N], [M, N], [M, N]).bytes == 2 * 5 * M * N
    assert cost("act", [M, N]).bytes == 2 * 2 * M * N
    assert cost("act_backward", [M, N], [M, N]).bytes == 2 * 3 * M * N


@pytest.mark.parametrize("name", ["gated_mlp", "gated_mlp_training", "gated_mlp_backward", "mlp"])
def test_a_layer_is_made_of_other_rows(name: str) -> None:
    assert cost(name, [M, K]).reason == f"foretrace::{name} is made of other operators, which are counted"


def test_what_does_not_fit_is_said() -> None:
    assert "do not fit" in (cost("gate_up", [M, K], [N, K + 1], [N, K + 1]).reason or "")
    assert "do not fit" in (cost("weight_gradient", [M, N], [M + 1, K], []).reason or "")
    assert "record_shapes" in (cost("linear_act", [M, K]).reason or "")
