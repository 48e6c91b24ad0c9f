"""Guess first, then let a test look, on every commit: ``pytest examples/06_pytest``.

The counts of operators are judged on any machine; those of kernels, and times, need a GPU, and without one the tests
that ask for them are skipped with the reason. The baseline is in ``__foretrace__/``: after a change that is meant,
``pytest examples/06_pytest --foretrace-update``, and commit the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from model import FeedForward

if TYPE_CHECKING:
    from foretrace.integrations.pytest_plugin import Profiled


@pytest.fixture
def model() -> FeedForward:
    torch.manual_seed(0)
    return FeedForward().to("cuda" if torch.cuda.is_available() else "cpu").eval()


@pytest.fixture
def x(model: FeedForward) -> torch.Tensor:
    return torch.randn(16, 32, device=model.up.weight.device)


@torch.no_grad()
@pytest.mark.foretrace(
    "op aten::addmm: calls == 2",  # a bias is added in the product's epilogue
    "op aten::copy_: calls <= 2",  # on a CPU addmm copies its bias; nothing else may copy
    "op aten::item: calls == 0",
)
def test_it_calls_what_it_should(model: FeedForward, x: torch.Tensor) -> None:
    assert model(x).shape == x.shape


@torch.no_grad()
@pytest.mark.foretrace(kernels=3, gemm=2, memcpys=0, synchronizations=0, max_step_us=500)
def test_it_runs_three_kernels(model: FeedForward, x: torch.Tensor, profiled: Profiled) -> None:
    step = profiled(model, x)
    assert step.result.shape == x.shape
    step.check("op aten::gelu: calls == 1")


@pytest.mark.foretrace(baseline=True)
@torch.no_grad()
def test_nothing_became_more(model: FeedForward, x: torch.Tensor, profiled: Profiled) -> None:
    profiled(model, x)
