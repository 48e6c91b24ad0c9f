"""The names of compiled kernels, and that the decoder of kernel names reads them all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from foretrace.knowledge.kernels import decode

pytest.importorskip("torch")

from foretrace.fused.kernels.naming import naming

TILE = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "STAGES": 4}


def name(call: Any, **constants: Any) -> str:
    made: str = call(SimpleNamespace(constants=constants, signature={}))
    return made


def test_step_activation_tile_and_stages_are_in_the_name() -> None:
    both = naming("portable", "gate_up", "linear_act")
    assert name(both, GATED=True, ACTIVATION="silu", **TILE) == "foretrace_portable_gate_up_silu_128x64x32_4stages"
    assert (
        name(both, GATED=False, ACTIVATION="relu2", **TILE) == "foretrace_portable_linear_act_relu2_128x64x32_4stages"
    )


def test_a_product_without_an_activation_is_a_projection() -> None:
    vector = naming("small", "linear_act", method="vector")
    constants = {"BLOCK_N": 4, "BLOCK_K": 2048, "STAGES": 4}
    assert name(vector, ACTIVATION="none", **constants) == "foretrace_small_project_vector_1x4x2048_4stages"


def test_a_tile_that_is_no_constant_is_given() -> None:
    forward = naming("hopper", "gate_up", "linear_act", tile=(128, 256, 64))
    made = name(forward, GATED=True, ACTIVATION="gelu", STAGES=4)
    assert made == "foretrace_hopper_gate_up_gelu_128x256x64_4stages"


@pytest.mark.parametrize(
    ("method", "constants", "rest"),
    [
        ("vector", {"BLOCK_M": 8, "BLOCK_N": 256}, "8x256x1"),
        ("dot", {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 16, "TILES": 1, "STAGES": 1}, "64x128x16_1stages"),
        ("dot", {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "TILES": 4, "STAGES": 2}, "64x128x32_2stages"),
    ],
)
def test_a_kernel_without_an_activation_names_none(method: str, constants: dict[str, int], rest: str) -> None:
    made = name(naming("small", "weight_gradient", method=method), **constants)
    assert made == f"foretrace_small_weight_gradient_{method}_{rest}"
    found = decode(made)
    assert (found.family, found.unknown) == ("foretrace", [])
    assert (found.decoded["step"], found.decoded["method"]) == ("weight_gradient", method)
    assert found.decoded["tile_k"] == constants.get("BLOCK_K", 1)
    assert found.decoded.get("stages") == constants.get("STAGES")


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid"])
@pytest.mark.parametrize(
    ("implementation", "step", "constants"),
    [
        ("tma", "gate_up", TILE),
        ("tma", "gate_up_backward", TILE),
        ("portable", "linear_act_backward", TILE),
        ("small", "linear_act", {"BLOCK_N": 4, "BLOCK_K": 2048, "STAGES": 4}),
        ("elementwise", "gated_act", {"BLOCK_ROWS": 4, "BLOCK_COLUMNS": 1024}),
        ("elementwise", "act_backward", {"BLOCK_ROWS": 1, "BLOCK_COLUMNS": 4096}),
        ("elementwise", "act_backward_sums", {"BLOCK_ROWS": 8, "BLOCK_COLUMNS": 256}),
    ],
)
def test_every_name_is_decoded_in_full(implementation: str, step: str, constants: dict[str, int], activation: str):
    found = decode(name(naming(implementation, step), ACTIVATION=activation, **constants))
    assert (found.family, found.unknown) == ("foretrace", [])
    assert (found.decoded["step"], found.decoded["activation"]) == (step, activation)
    assert found.decoded.get("stages") == constants.get("STAGES")
