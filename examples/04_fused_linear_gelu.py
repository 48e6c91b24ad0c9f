# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch,triton]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""One nn.Linear and its GELU: two kernels, or one whose epilogue applies the activation.

    python examples/04_fused_linear_gelu.py --batch 8192 --in_dim 1024 --out_dim 4096
    python examples/04_fused_linear_gelu.py --batch 8192 --in_dim 1024 --out_dim 4096 --fused
    python examples/04_fused_linear_gelu.py --batch 8192 --in_dim 1024 --out_dim 4096 --fused --train

Guess first, then look. The product writes its result and GELU reads it again: how many bytes is that, and how long do
they take on your GPU? What must the fused kernel still write when a backward is to follow?
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from torch import nn

import foretrace
from foretrace import fused


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # 8192 rows on a GPU; 256 on a CPU unless they are given.
    parser.add_argument("--batch", type=int, default=8192 if on_gpu else 256)
    parser.add_argument("--in_dim", "--in-dim", type=int, default=1024)
    parser.add_argument("--out_dim", "--out-dim", type=int, default=4096)
    parser.add_argument("--fused", action="store_true", help="foretrace's LinearAct in place of the two modules")
    parser.add_argument("--train", action="store_true", help="forward and backward")
    args = parser.parse_args()

    options = {"device": "cuda" if on_gpu else "cpu", "dtype": torch.bfloat16}
    model = nn.Sequential(nn.Linear(args.in_dim, args.out_dim, **options), nn.GELU(approximate="tanh"))
    x = torch.randn(args.batch, args.in_dim, **options, requires_grad=args.train)
    if args.fused:
        model = fused.LinearAct.from_module(model)
        print(fused.explain(model, x, training=args.train))
        if not on_gpu:
            print("no GPU here: foretrace's module runs in plain PyTorch")

    def step() -> None:
        with torch.profiler.record_function("linear_gelu"), nullcontext() if args.train else torch.no_grad():
            result = model(x)
        if args.train:
            result.sum().backward()

    for _ in range(3):
        step()

    how = "_".join(["fused" if args.fused else "eager", *(["train"] if args.train else [])])
    path = f"traces/04_fused_linear_gelu/{args.batch}_{args.in_dim}_{args.out_dim}_{how}"
    with foretrace.profile(path, wait=1, warmup=1, active=3) as recording:
        for _ in recording.steps():
            step()
    recording.explain()
    print(f"\ntrace: {recording.path}")


if __name__ == "__main__":
    main()
