"""The names of foretrace's own kernels: implementation, step, and what else they spell out."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.knowledge.kernels import decode, describe

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("foretrace_hopper_forward", "gemm", {"implementation": "hopper", "direction": "forward"}),
    ("foretrace_hopper_backward", "gemm", {"direction": "backward", "epilogue": ["activation_backward"]}),
    (
        "foretrace_tma_gate_up_gelu_tanh_128x256x64_4stages",
        "gemm",
        {"epilogue": ["gelu_tanh", "mul"], "tile": "128x256", "tile_k": 64, "stages": 4, "activation": "gelu_tanh"},
    ),
    ("foretrace_portable_linear_act_relu2", "gemm", {"ops": ["mm", "relu2"], "epilogue": ["relu2"]}),
    ("foretrace_portable_gate_up_backward_gelu", "gemm", {"epilogue": ["gelu_backward", "mul"]}),
    ("foretrace_small_project_kernel", "gemm", {"step": "project"}),
    ("foretrace_small_reduce", "gemm", {"role": "split-K reduction"}),
    ("foretrace_small_gate_up_vector", "gemm", {"method": "vector", "epilogue": ["activation", "mul"]}),
    (
        "foretrace_small_weight_gradient_vector_8x256x1",
        "gemm",
        {
            "implementation": "small",
            "step": "weight_gradient",
            "direction": "backward",
            "ops": ["mm"],
            "method": "vector",
            "tile": "8x256",
            "tile_k": 1,
        },
    ),
    (
        "foretrace_small_weight_gradient_dot_64x128x32_2stages",
        "gemm",
        {"method": "dot", "direction": "backward", "tile": "64x128", "tile_k": 32, "stages": 2},
    ),
    ("foretrace_portable_forward", "gemm", {"direction": "forward"}),
    ("foretrace_elementwise_forward", "fused", {"ops": ["activation"]}),
    ("foretrace_elementwise_gated_act_silu", "fused", {"ops": ["silu", "mul"]}),
    ("foretrace_elementwise_act_silu", "elementwise", {"ops": ["silu"]}),
    (
        "foretrace_elementwise_act_backward_sums_gelu_tanh_8x256",
        "fused",
        {"ops": ["gelu_tanh_backward", "sum"], "direction": "backward", "tile": "8x256"},
    ),
    ("foretrace_elementwise_gated_act_backward_0d1d2d3de", "fused", {"ops": ["activation_backward", "mul"]}),
]


@pytest.mark.parametrize(("name", "kind", "fields"), CASES, ids=[case[0] for case in CASES])
def test_a_name_says_what_the_kernel_is(name: str, kind: str, fields: dict[str, Any]) -> None:
    found = decode(name)
    assert (found.kind, found.family, found.unknown) == (kind, "foretrace", [])
    assert {key: found.decoded[key] for key in fields} == fields
    assert "foretrace's fused modules" in describe(found)


def test_the_gradient_of_a_weight_is_a_product_and_nothing_more() -> None:
    found = decode("foretrace_small_weight_gradient_dot_64x128x16_1stages")
    assert found.short_name == "foretrace small weight_gradient 64x128"
    assert "epilogue" not in found.decoded
    assert "activation" not in found.decoded


def test_what_a_name_adds_is_not_guessed() -> None:
    assert decode("foretrace_tma_gate_up_split").unknown == ["split"]
    assert decode("foretrace_something_else").family != "foretrace"
    assert decode("my_foretrace_tma_gate_up").family != "foretrace"


@pytest.mark.parametrize("name", ["foretrace::gate_up", "foretrace::gated_mlp"])
def test_an_operator_is_said_to_be_no_kernel(name: str) -> None:
    said = describe(decode(name))
    assert said.startswith(f"{name}: an operator of foretrace's fused modules, no kernel")
    assert decode("foretrace::").family != "foretrace"
