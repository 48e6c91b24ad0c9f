"""Gradients of weights from few rows on a GPU: accuracy, repeatability, and that training really takes the kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fused_products import canaries, close, data, no_worse_than

pytest.importorskip("triton")

from torch.nn.functional import linear, silu
from torch.profiler import ProfilerActivity, profile

from foretrace.fused import gated_mlp, override
from foretrace.fused.dispatch.choice import parse_choice
from foretrace.fused.kernels.small_gradient import weight_gradient
from foretrace.fused.plan import Packing, Plan

BF16, FP16 = torch.bfloat16, torch.float16
# What sums of a few float32 products lose.
LOST = 1e-5


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(("n", "k"), [(3072, 768), (5632, 2048), (43, 300), (1, 7), (129, 1)])
@pytest.mark.parametrize("rows", [1, 2, 16, 17, 32])
def test_weight_gradient(rows: int, n: int, k: int, dtype: torch.dtype) -> None:
    grad, x = data(rows, 2 * n, dtype, 0, "cuda")[:, n:], data(rows, k, dtype, 1, "cuda")
    expected = grad.double().t() @ x.double()
    with canaries():
        made = weight_gradient(grad, x)
    close(made, expected, LOST)
    no_worse_than(grad.t() @ x, made, expected)
    assert all(torch.equal(weight_gradient(grad, x), made) for _ in range(3))


def test_written_to_every_other_row() -> None:
    grad, x = data(9, 640, BF16, 0, "cuda"), data(9, 384, BF16, 1, "cuda")
    both = torch.full((1280, 384), 7.0, dtype=BF16, device="cuda")
    weight_gradient(grad, x, both[1::2])
    assert torch.equal(both[1::2], weight_gradient(grad, x))
    assert bool((both[::2] == 7.0).all())


def plan(words: str) -> Plan:
    choice = parse_choice(words)
    return Plan(choice.expand, choice.project, choice.backward, choice.save, "override", "the test said so")


def gradients_of(layer: Any, tensors: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(layer(*tensors), tensors, grad))


def trained(rows: int, words: str, packing: Packing) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The gradients of x, gate (or both stacked), up and down, ours and in float64."""
    k, n = 256, 384
    x, down, grad = (data(*sizes, BF16, seed, "cuda") for sizes, seed in (((rows, k), 0), ((k, n), 3), ((rows, k), 4)))
    both = data(2 * n, k, BF16, 1, "cuda")
    down = down / n**0.5
    if packing == "separate":
        gate, up = both.chunk(2)
        tensors = [one.clone().requires_grad_() for one in (x, gate, up, down)]
        y = gated_mlp(*tensors, activation="silu", plan=plan(words))
    else:
        gate, up = both[::2], both[1::2]
        tensors = [one.clone().requires_grad_() for one in (x, both, down)]
        y = gated_mlp(tensors[0], tensors[1], None, tensors[2], activation="silu", packing=packing, plan=plan(words))
    found = torch.autograd.grad(y, tensors, grad)
    exact = [one.double().requires_grad_() for one in (x, gate, up, down)]
    right = silu(linear(exact[0], exact[1])) * linear(exact[0], exact[2])
    expected = list(torch.autograd.grad(linear(right, exact[3]), exact, grad.double()))
    if packing != "separate":
        expected[1:3] = [torch.stack(expected[1:3], 1).reshape(2 * n, k)]
    return list(found), expected


@pytest.mark.parametrize("packing", ["separate", "interleaved"])
@pytest.mark.parametrize("words", ["expand=portable backward=portable", "expand=elementwise backward=elementwise"])
@pytest.mark.parametrize("rows", [1, 16, 32, 33, 300])  # around the limits of the kernel and of the other order
def test_gradients_of_a_layer(rows: int, words: str, packing: Packing) -> None:
    for found, expected in zip(*trained(rows, words, packing), strict=True):
        # bf16 products of bf16 intermediates; a wrong order or a lost half is off by far more.
        assert float((found.double() - expected).norm() / expected.norm()) < 0.006


# The profiler's own, about what it forgets between cycles; there is one.
@pytest.mark.filterwarnings("ignore:.*clears events:UserWarning")
@pytest.mark.parametrize(
    ("rows", "words", "kernels"),
    [
        (16, "expand=portable backward=portable", 2),
        (33, "expand=portable backward=portable", 0),
        (16, "expand=plain backward=plain", 0),
    ],
)
def test_training_takes_the_kernel_where_rows_are_few(rows: int, words: str, kernels: int) -> None:
    trained(rows, words, "separate")
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        trained(rows, words, "separate")
    names = [event.name for event in profiled.events()]
    assert sum(name.startswith("foretrace_small_weight_gradient") for name in names) == kernels


# The compiler's own: it recommends TF32, and starts its workers with fork.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_compiled_training_takes_the_kernel_where_its_rows_are_few() -> None:
    def layer(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return gated_mlp(x, gate, up, down, activation="silu")

    sizes = ((16, 256), (384, 256), (384, 256), (256, 384), (16, 256))
    *tensors, grad = (data(*size, BF16, seed, "cuda") for seed, size in enumerate(sizes))
    tensors = [one.requires_grad_() for one in tensors]
    compiled = torch.compile(layer, fullgraph=True, dynamic=False)
    exact = [one.detach().double().requires_grad_() for one in tensors]
    right = linear(silu(linear(exact[0], exact[1])) * linear(exact[0], exact[2]), exact[3])
    expected = torch.autograd.grad(right, exact, grad.double())
    with override(expand="portable", backward="portable"):
        gradients_of(compiled, tensors, grad)
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            found = gradients_of(compiled, tensors, grad)
    names = [event.name for event in profiled.events()]
    assert sum(name.startswith("foretrace_small_weight_gradient") for name in names) == 2
    for one, right in zip(found, expected, strict=True):
        assert float((one.double() - right).norm() / right.norm()) < 0.006
