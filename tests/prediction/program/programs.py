"""Small models on the meta device, and how the tests read a program."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from foretrace.knowledge import gpus
from foretrace.prediction.program import trace_program
from foretrace.prediction.work import Operator, Program, Work

H200 = gpus.find("H200")


class Gated(nn.Module):
    """A gated MLP: ``down(act(gate(x)) * up(x))``."""

    def __init__(self, dim: int = 768, hidden: int = 3072, *, bias: bool = False, activation: str = "tanh") -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=bias)
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate(x)
        act = functional.silu(gate) if self.activation == "silu" else functional.gelu(gate, approximate=self.activation)
        return self.down(act * self.up(x))


class Mlp(nn.Module):
    """Two linear layers with biases and an exact GELU between them."""

    def __init__(self, dim: int = 1024, hidden: int = 4096) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.gelu(self.first(x)))


class Residual(nn.Module):
    """``x + linear(norm(x))``."""

    def __init__(self, dim: int = 1024, *, rms: bool = False) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim) if rms else nn.LayerNorm(dim)
        self.linear = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x))


class Attention(nn.Module):
    """Causal self-attention of 16 heads."""

    def __init__(self, dim: int = 1024) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, dim = x.shape
        q, k, v = (part.view(batch, seq, 16, dim // 16).transpose(1, 2) for part in self.qkv(x).split(dim, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, dim))


class OwnRms(nn.Module):
    """An RMS norm written out, as Llama has it."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * h.to(x.dtype)


class Llama(nn.Module):
    """Embedding, two blocks of attention and SwiGLU, head and loss."""

    def __init__(self, vocabulary: int = 8192, dim: int = 1024) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)
        self.norms = nn.ModuleList(OwnRms(dim) for _ in range(5))
        self.attention = nn.ModuleList(Attention(dim) for _ in range(2))
        self.mlp = nn.ModuleList(Gated(dim, 2816, activation="silu") for _ in range(2))
        self.head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        for index in range(2):
            x = x + self.attention[index](self.norms[2 * index](x))
            x = x + self.mlp[index](self.norms[2 * index + 1](x))
        scores = self.head(self.norms[4](x)).float()
        return functional.cross_entropy(scores.view(-1, scores.shape[-1]), tokens.view(-1))


def traced(
    make: Any,
    *shape: int,
    mode: str = "forward",
    variant: str = "eager",
    dtype: torch.dtype = torch.bfloat16,
    release: tuple[int, int] | None = (2, 11),
    **more: Any,
) -> Program:
    """One step of ``make()`` on an input of this shape, as torch 2.11 on an H200 would run it."""
    with torch.device("meta"):
        module = make().to(dtype)
        x = (
            torch.zeros(shape, dtype=torch.long)
            if len(shape) == 2 and shape[0] < 8
            else torch.empty(shape, dtype=dtype)
        )
    if mode == "train" and x.is_floating_point():
        x.requires_grad_()
    return trace_program(module, (x,), {}, name="test", variant=variant, mode=mode, gpu=H200, release=release, **more)


def short(work: Work) -> str:
    """``gemm mm``, ``copy copy_``; a generated kernel by its name without the number."""
    if work.generated:
        return work.op.rpartition("_")[0]
    return f"{work.kind} {work.op.removeprefix('aten::')}"


def rows(program: Program) -> list[tuple[int, Operator]]:
    """Every operator with its depth, in order."""
    found: list[tuple[int, Operator]] = []
    pending = [(0, node) for node in reversed(program.roots)]
    while pending:
        depth, node = pending.pop()
        found.append((depth, node))
        pending.extend((depth + 1, child) for child in reversed(node.children))
    return found
