"""Run every fused kernel once at small and awkward sizes, for a memory checker to watch.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python tests/gpu/sanitized_kernels.py

The last run, on an H200 with torch 2.11, Triton 3.6 and CUDA 13.0's memcheck: 96 calls, 0 errors.

Without PyTorch's cache every tensor is an allocation of its own, so that a step past its end is seen. Prints how many
calls were made; results are compared elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from foretrace.errors import InputError
from foretrace.fused import gated_mlp, linear_act, mlp
from foretrace.fused.dispatch.choice import parse_choice
from foretrace.fused.plan import Plan

# rows, input and intermediate features: what TMA can take, a single row, and sizes that fill no tile and no 16 bytes;
# 16 and 20 rows are few to the gradients of weights
SIZES = ((130, 72, 136), (1, 64, 128), (16, 256, 64), (20, 264, 136), (33, 64, 264), (5, 37, 43), (257, 129, 65))
CHOICES = (
    "expand=elementwise backward=elementwise",
    "expand=portable backward=portable",
    "expand=tma backward=tma",
    "expand=hopper backward=hopper",
    "expand=hopper[block_n=128,stages=6] backward=hopper[block_n=128,stages=4]",
    "expand=small project=small backward=elementwise",
)


def plan(words: str) -> Plan:
    """The plan of these words."""
    choice = parse_choice(words)
    return Plan(choice.expand, choice.project, choice.backward, choice.save, "override", "to be watched")


def tensors(*shapes: tuple[int, ...]) -> Iterator[Tensor]:
    """Random bf16 leaves."""
    for shape in shapes:
        yield torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def gated(words: str, m: int, k: int, n: int) -> None:
    """Forward and backward of a gated MLP with biases."""
    x, gate, up, down, gate_bias, up_bias, down_bias = tensors((m, k), (n, k), (n, k), (k, n), (n,), (n,), (k,))
    y = gated_mlp(x, gate, up, down, gate_bias, up_bias, down_bias, activation="gelu", plan=plan(words))
    y.backward(torch.randn_like(y))


def two_layers(words: str, m: int, k: int, n: int) -> None:
    """Forward and backward of a linear layer with an activation and a second one, with biases."""
    x, weight1, weight2, bias1, bias2 = tensors((m, k), (n, k), (k, n), (n,), (k,))
    y = mlp(x, weight1, weight2, bias1, bias2, activation="silu", plan=plan(words))
    y.backward(torch.randn_like(y))


def single(words: str, m: int, k: int, n: int) -> None:
    """Forward and backward of a linear layer with a bias and an activation; its backward has no product to fuse."""
    x, weight, bias = tensors((m, k), (n, k), (n,))
    words = " ".join(word for word in words.split() if not word.startswith(("project", "backward")))
    y = linear_act(x, weight, bias, "gelu_tanh", plan=plan(f"{words} backward=elementwise"))
    y.backward(torch.randn_like(y))


def main() -> int:
    """Make every call that the kernels take; those that refuse a size say so."""
    torch.manual_seed(0)
    made, refused = 0, []
    for words in CHOICES:
        for sizes in SIZES:
            for call in (gated, two_layers, single):
                try:
                    call(words, *sizes)
                    torch.cuda.synchronize()
                    made += 1
                except InputError as error:
                    refused.append(f"{words} at {sizes}: {error}")
    print(f"{made} calls made, {len(refused)} sizes refused")
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
