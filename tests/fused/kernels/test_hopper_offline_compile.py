"""The Gluon kernels compile for Hopper with the Triton that is installed, and their accumulators stay in registers.

They were run with the versions in `products.VERSIONS`; that a newer one compiles them is what can be known without a
GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from interpreter import run_apart

# The activation with the most instructions.
ACTIVATION = "gelu"
M, K, N = 8192, 768, 3072
# A few words spilled outside the main loop cost nothing; accumulators would be hundreds of bytes.
FEW_BYTES = 64


def check(call: Callable[[], Any]) -> None:
    from offline import Offline

    from foretrace.fused.kernels.hopper import products

    offline = Offline(90)

    installed = frozenset({tuple(int(part) for part in products.triton.__version__.split(".")[:2])})
    with mock.patch.object(products, "launcher", offline.launcher), mock.patch.object(products, "VERSIONS", installed):
        call()
    (resources,) = offline.resources
    assert resources.stack <= FEW_BYTES, f"spills: {resources}"
    assert resources.shared <= offline.shared_memory, resources


def tensor(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def check_gate_up(keep: bool, **options: int) -> None:
    from foretrace.fused.kernels.hopper import products

    weight, bias = tensor(2 * N, K), tensor(N)
    check(lambda: products.gate_up(tensor(M, K), weight[:N], weight[N:], bias, bias, ACTIVATION, keep=keep, **options))


def check_linear_act(keep: bool) -> None:
    from foretrace.fused.kernels.hopper import products

    check(lambda: products.linear_act(tensor(M, K), tensor(N, K), tensor(N), ACTIVATION, keep=keep))


def check_backward(step: str, width: int, **options: int) -> None:
    from foretrace.fused.kernels.hopper import products

    run = getattr(products, step)
    wants = {"want_hidden": False, "want_bias": False}
    check(lambda: run(tensor(M, K), tensor(K, N), tensor(M, width), ACTIVATION, **wants, **options))


CASES = {
    "gate_up": partial(check_gate_up, False),
    "gate_up, everything kept": partial(check_gate_up, True),
    "gate_up, narrow tiles": partial(check_gate_up, True, block_n=128, stages=6),
    "linear_act, everything kept": partial(check_linear_act, True),
    "gate_up_backward": partial(check_backward, "gate_up_backward", 2 * N),
    "gate_up_backward, four stages": partial(check_backward, "gate_up_backward", 2 * N, stages=4, slots=1),
    "gate_up_backward, narrow tiles": partial(check_backward, "gate_up_backward", 2 * N, block_n=128, stages=4),
    "linear_act_backward": partial(check_backward, "linear_act_backward", N),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return run_apart(__file__, "CASES")


@pytest.mark.parametrize("case", CASES)
def test_hopper_kernel_compiles(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
