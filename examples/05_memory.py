# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""A GeGLU MLP's memory: which operator holds what at the peak, and which tensors a fused kernel would not write.

    python examples/05_memory.py --batch 64 --seq 128 --dim 768 --hidden 3072
    python examples/05_memory.py --batch 64 --seq 128 --dim 768 --hidden 3072 --train

Guess first, then look. gate(x) and up(x) are [batch, seq, hidden], x and the result [batch, seq, dim]: how many of the
wide tensors are alive at the peak, and how many of them with --train? Which of them has nobody but the next elementwise
operator ever read? On a GPU: how much more than that does the allocator reserve, and could it serve 1 GiB more?
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from torch import nn

import foretrace
from foretrace.report import View, render


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
    parser.add_argument("--train", action="store_true", help="forward and backward")
    args = parser.parse_args()

    how = "train" if args.train else "forward"
    path = f"traces/05_memory/{args.batch}_{args.seq}_{args.dim}_{args.hidden}_{how}"
    with foretrace.profile(path, wait=2, warmup=1, active=2, memory=True) as recording:
        # Built inside the block: the allocator's history then knows who asked for the parameters, too.
        mlp = GeGLU(args.dim, args.hidden).to(device, torch.bfloat16)
        x = torch.randn(args.batch, args.seq, args.dim, device=device, dtype=torch.bfloat16, requires_grad=args.train)
        for _ in recording.steps():
            with nullcontext() if args.train else torch.no_grad():
                result = mlp(x)
            if args.train:
                result.sum().backward()

    print(render(recording.report(), View(sections=("memory",))))
    show_snapshot(recording)
    print(f"\ntrace: {recording.path}")


def show_snapshot(recording: foretrace.Recording) -> None:
    """What torch prints of the allocator, and what foretrace reads from its snapshot: on a GPU only."""
    memory = recording.side.memory
    if memory is None or memory.snapshot is None:
        print(f"no snapshot: {recording.side.missing['memory.snapshot']}.")
        print(
            "A GPU would add what its allocator reserves, where the holes are, who pins them, and torch's own summary."
        )
        return
    from foretrace.memory.examining import examine_file
    from foretrace.report.memory import render_memory

    print(torch.cuda.memory_summary(abbreviated=True))
    # What the device has free is in the side file beside it.
    print(render_memory(examine_file(str(recording.path.with_name(memory.snapshot)), request_bytes=1 << 30)))


if __name__ == "__main__":
    main()
