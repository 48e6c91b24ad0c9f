"""The default configurations compile for Ampere and Hopper without spilling registers, on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
import torch
from interpreter import run_apart

# The dearest variants: bias, everything kept, everything wanted, the activation with the most instructions.
ACTIVATION = "gelu"


def compiled(capability: int, module: ModuleType, call: Callable[[], Any]) -> None:
    """Compile what `call` would launch and hold it against the architecture."""
    from offline import Offline

    from foretrace.fused.kernels import tiles
    from foretrace.knowledge.kernels import decode

    offline = Offline(capability)
    limits = (offline.shared_memory, capability == 90)
    with (
        mock.patch.object(module, "launcher", offline.launcher),
        mock.patch.object(tiles, "_device_limits", return_value=limits),
    ):
        call()
    assert offline.resources
    for resources in offline.resources:
        assert resources.stack == 0, f"spills: {resources}"
        assert resources.shared <= offline.shared_memory, resources
        found = decode(resources.name)
        assert (found.family, found.unknown) == ("foretrace", []), resources


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def check_gate_up(capability: int, m: int, n: int, k: int, dtype: torch.dtype) -> None:
    from foretrace.fused.kernels import portable

    x, weight, bias = tensor(m, k, dtype=dtype), tensor(n, k, dtype=dtype), tensor(n, dtype=dtype)
    call = partial(portable.gate_up, x, weight, weight, bias, bias, ACTIVATION, keep=True)
    compiled(capability, portable, call)


def check_linear_act(capability: int, m: int, n: int, k: int) -> None:
    from foretrace.fused.kernels import portable

    call = partial(portable.linear_act, tensor(m, k), tensor(n, k), tensor(n), ACTIVATION, keep=True)
    compiled(capability, portable, call)


def check_gate_up_backward(capability: int, m: int, n: int, k: int, dtype: torch.dtype) -> None:
    from foretrace.fused.kernels import portable_backward

    call = partial(
        portable_backward.gate_up_backward,
        tensor(m, k, dtype=dtype),
        tensor(k, n, dtype=dtype),
        tensor(m, 2 * n, dtype=dtype),
        ACTIVATION,
        want_hidden=True,
        want_bias=True,
    )
    compiled(capability, portable_backward, call)


def check_elementwise(capability: int) -> None:
    from foretrace.fused.kernels import elementwise

    both = tensor(8192, 6144)
    gate, up = both[:, :3072], both[:, 3072:]
    compiled(capability, elementwise, partial(elementwise.gated_act, gate, up, ACTIVATION))
    grad = tensor(8192, 3072)
    backward = partial(elementwise.gated_act_backward, grad, gate, up, ACTIVATION, want_hidden=True)
    compiled(capability, elementwise, backward)


def check_elementwise_sums(capability: int, columns: int) -> None:
    from foretrace.fused.kernels import elementwise, elementwise_sums

    grad, preact = tensor(8192, columns), tensor(8192, columns)
    backward = partial(elementwise.act_backward, grad, preact, ACTIVATION, want_hidden=True, want_bias=True)
    compiled(capability, elementwise_sums, backward)


def check_weight_gradient(capability: int, rows: int) -> None:
    from foretrace.fused.kernels import small_gradient

    call = partial(small_gradient.weight_gradient, tensor(rows, 6144)[:, :3072], tensor(rows, 768))
    compiled(capability, small_gradient, call)


CASES: dict[str, Callable[[], None]] = {
    f"{what} sm_{capability}": partial(check, capability)
    for capability in (80, 90)
    for what, check in {
        "gate_up": partial(check_gate_up, m=8192, n=3072, k=768, dtype=torch.bfloat16),
        "gate_up of few rows": partial(check_gate_up, m=16, n=3072, k=768, dtype=torch.bfloat16),
        "gate_up of odd sizes": partial(check_gate_up, m=8192, n=3001, k=431, dtype=torch.bfloat16),
        "gate_up in float32": partial(check_gate_up, m=8192, n=3072, k=768, dtype=torch.float32),
        "linear_act": partial(check_linear_act, m=8192, n=3072, k=768),
        "gate_up_backward": partial(check_gate_up_backward, m=8192, n=3072, k=768, dtype=torch.bfloat16),
        "gate_up_backward of odd sizes": partial(check_gate_up_backward, m=8192, n=3001, k=431, dtype=torch.bfloat16),
        "elementwise": check_elementwise,
        "elementwise sums": partial(check_elementwise_sums, columns=4096),
        "elementwise sums of odd sizes": partial(check_elementwise_sums, columns=3001),
        "weight gradient of a row": partial(check_weight_gradient, rows=1),
        "weight gradient of 16 rows": partial(check_weight_gradient, rows=16),
        "weight gradient of 32 rows": partial(check_weight_gradient, rows=32),
    }.items()
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache: Path = tmp_path_factory.mktemp("triton")
    return run_apart(__file__, "CASES", environment={"TRITON_CACHE_DIR": str(cache)})


@pytest.mark.parametrize("case", CASES)
def test_default_configuration_compiles(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
