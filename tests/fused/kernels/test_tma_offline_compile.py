"""The default configurations of the TMA and decode kernels compile for Hopper without spilling, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from interpreter import run_apart

# The dearest variants: both biases, everything kept and wanted, the activation with the most instructions.
ACTIVATION = "gelu"
M, K, N = 8192, 768, 3072


def check(module: ModuleType, call: Callable[[], Any]) -> None:
    from offline import Offline

    from foretrace.knowledge.kernels import decode

    offline = Offline(90)

    with mock.patch.object(module, "launcher", offline.launcher):
        call()
    (resources,) = offline.resources
    assert resources.stack == 0, f"spills: {resources}"
    assert resources.shared <= offline.shared_memory, resources
    found = decode(resources.name)
    assert (found.family, found.unknown) == ("foretrace", []), resources


def tensor(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def check_forward(step: str, options: dict[str, int]) -> None:
    from foretrace.fused.kernels import tma_forward

    weight, bias = tensor(2 * N, K), tensor(N)
    arguments = (weight[:N], weight[N:], bias, bias) if step == "gate_up" else (weight[:N], bias)
    run = getattr(tma_forward, step)
    check(tma_forward, lambda: run(tensor(M, K), *arguments, ACTIVATION, keep=True, **options))


def check_backward(step: str, width: int, bias: bool, options: Mapping[str, int] = MappingProxyType({})) -> None:
    from foretrace.fused.kernels import tma_backward

    run = getattr(tma_backward, step)
    wants = {"want_hidden": True, "want_bias": bias, **options}
    check(tma_backward, lambda: run(tensor(M, K), tensor(K, N), tensor(M, width), ACTIVATION, **wants))


def check_variants(step: str, width: int) -> None:
    """What an autotune tries beside the defaults."""
    from foretrace.fused.dispatch.candidates import CANDIDATES

    (candidate,) = (one for one in CANDIDATES if one.name == "tma")
    variants = [dict(variant.options) for variant in candidate.variants if variant.step == step]
    assert variants
    for options in variants:
        check_backward(step, width, True, options)


def check_small(m: int) -> None:
    from foretrace.fused.kernels import small

    weight, bias = tensor(2 * N, 4096), tensor(N)
    check(small, lambda: small.gate_up(tensor(m, 4096), weight[:N], weight[N:], bias, bias, ACTIVATION, keep=True))
    check(small, lambda: small.project(tensor(m, N), tensor(4096, N), tensor(4096)))


CASES = {
    "gate_up": partial(check_forward, "gate_up", {}),
    "gate_up, a tile a program": partial(
        check_forward, "gate_up", {"block_n": 64, "num_warps": 4, "num_stages": 3, "persistent": 0}
    ),
    "linear_act": partial(check_forward, "linear_act", {}),
    "gate_up_backward": partial(check_backward, "gate_up_backward", 2 * N, False),
    "gate_up_backward, biases": partial(check_backward, "gate_up_backward", 2 * N, True),
    "linear_act_backward": partial(check_backward, "linear_act_backward", N, True),
    "gate_up_backward, variants": partial(check_variants, "gate_up_backward", 2 * N),
    "linear_act_backward, variants": partial(check_variants, "linear_act_backward", N),
    "decode, 1 row": partial(check_small, 1),
    "decode, 16 rows": partial(check_small, 16),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return run_apart(__file__, "CASES")


@pytest.mark.parametrize("case", CASES)
def test_tma_configuration_compiles(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
