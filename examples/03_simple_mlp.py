# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""A GeGLU MLP: down(gelu(gate(x)) * up(x)).

    python examples/03_simple_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072
    python examples/03_simple_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072 --compile

Guess first, then look. Three projections and two pointwise operators: how many kernels? Which of them does
--compile merge, and do the matrix products get faster? What does it save end to end?
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import foretrace


class GeGLU(nn.Module):
    """Gate and up projection, a gated activation between them, and the projection down."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x and the result [batch, seq, dim]; gate and up [batch, seq, hidden]."""
        return self.down(nn.functional.gelu(self.gate(x), approximate="tanh") * self.up(x))


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # 64 on a GPU; a CPU would take minutes for that, so 4 there unless it is given.
    parser.add_argument("--batch", type=int, default=64 if device == "cuda" else 4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=3072)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    mlp = GeGLU(args.dim, args.hidden).to(device, torch.bfloat16)
    x = torch.randn(args.batch, args.seq, args.dim, device=device, dtype=torch.bfloat16)
    model = torch.compile(mlp) if args.compile else mlp

    @torch.no_grad()
    def step() -> None:
        with torch.profiler.record_function("mlp_fwd"):
            model(x)

    for _ in range(3):
        step()

    how = "compile" if args.compile else "eager"
    path = f"traces/03_simple_mlp/{args.batch}_{args.seq}_{args.dim}_{args.hidden}_{how}"
    with foretrace.profile(path, wait=1, warmup=1, active=3) as recording:
        for _ in recording.steps():
            step()
    recording.explain()
    print(f"\ntrace: {recording.path}")


if __name__ == "__main__":
    main()
