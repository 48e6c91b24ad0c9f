"""A small feed-forward layer: what the tests beside it guard."""

from __future__ import annotations

import torch
from torch import nn


class FeedForward(nn.Module):
    """Up projection, GELU, down projection; both with a bias."""

    def __init__(self, dim: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x and the result [rows, dim]."""
        return self.down(nn.functional.gelu(self.up(x)))
