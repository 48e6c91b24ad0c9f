# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch,triton,kernels]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""The GeGLU MLP by other kernels: eager, compiled, Liger's module, and foretrace's fused one.

    python examples/03_kernels_mlp.py --batch 64 --seq 128 --dim 768 --hidden 3072
    python examples/03_kernels_mlp.py --only eager foretrace

Guess first, then look. Everybody computes the same three products. Compiling merges GELU and product into one
kernel, Liger brings such a kernel of its own: what is left to save? How many kernels does a step need at least, and
which traffic goes away when gate and up never leave the chip? The prediction is printed before anything runs.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from types import SimpleNamespace

import torch
from torch import nn

import foretrace
from foretrace import fused

VARIANTS = ("eager", "compile", "liger", "foretrace")


class GeGLU(nn.Module):
    """The MLP of Gemma: gate and up projection, a gated activation between them, and the projection down."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, hidden, bias=False)
        self.up_proj = nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)
        self.act_fn = nn.GELU(approximate="tanh")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shapes: x and the result [batch, seq, dim]; gate and up [batch, seq, hidden]."""
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def liger_mlp(mlp: GeGLU) -> nn.Module:
    """Liger's module with the parameters of ``mlp``."""
    from liger_kernel.transformers.geglu import LigerGEGLUMLP

    hidden, dim = mlp.gate_proj.weight.shape
    made = LigerGEGLUMLP(SimpleNamespace(hidden_size=dim, intermediate_size=hidden)).to(mlp.gate_proj.weight)
    made.load_state_dict(mlp.state_dict())
    return made


MAKE = {
    "eager": lambda mlp: mlp,
    "compile": torch.compile,
    "liger": liger_mlp,
    "foretrace": fused.GatedMLP.from_module,
}


def main() -> None:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # 64 on a GPU; a CPU would take minutes for that, so 4 there unless it is given.
    parser.add_argument("--batch", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=3072)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--gpu", default="H200", help="the GPU to predict for (default: H200)")
    args = parser.parse_args()
    shape = (args.batch, args.seq, args.dim)

    print(f"PREDICTED for {args.gpu}: a forward step, before anything runs")
    predicted = {}
    for name in args.only:
        with torch.device("meta"):
            model, x = GeGLU(args.dim, args.hidden).bfloat16(), torch.empty(shape, dtype=torch.bfloat16)
        predicted[name] = foretrace.predict(model, (x,), gpu=args.gpu, variant=name).info
        told = predicted[name]
        print(
            f"  {name:<10}{told.kernels} kernels, {told.gpu_busy_low_us:.0f} to {told.gpu_busy_high_us:.0f} µs of GPU"
        )

    chosen = [name for name in args.only if name != "liger" or (on_gpu and find_spec("liger_kernel"))]
    for name in set(args.only) - set(chosen):
        print(f"{name} is left out: it needs a GPU and the package liger-kernel")
    if not on_gpu:
        print("no GPU here: foretrace's module runs in plain PyTorch, and no time below says anything about a GPU")

    mlp = GeGLU(args.dim, args.hidden).to(device, torch.bfloat16)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    traces = {}
    for name in chosen:
        model = MAKE[name](mlp)

        @torch.no_grad()
        def step(model=model) -> None:
            with torch.profiler.record_function("mlp_fwd"):
                model(x)

        for _ in range(3):
            step()
        path = f"traces/03_kernels_mlp/{args.batch}_{args.seq}_{args.dim}_{args.hidden}_{name}"
        with foretrace.profile(path, wait=1, warmup=1, active=3) as recording:
            for _ in recording.steps():
                step()
        traces[name] = recording

    print("\nRECORDED  the median step")
    for name, recording in traces.items():
        steps = sorted(recording.report().steps, key=lambda step: step.wall_us)
        middle = steps[len(steps) // 2]
        gpu = f"{middle.gpu_busy_us:.0f} µs of GPU" if middle.gpu_busy_us is not None else "no GPU time"
        print(f"  {name:<10}{middle.kernels or 0} kernels, {gpu}, {middle.wall_us:.0f} µs with the profiler")

    last = traces[chosen[-1]]
    print(f"\n{chosen[-1]} EXPLAINED\n")
    last.explain()
    print(f"\ntrace: {last.path}")


if __name__ == "__main__":
    main()
