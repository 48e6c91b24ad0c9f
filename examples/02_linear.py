# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""One nn.Linear with bias.

    python examples/02_linear.py --batch 1024 --in_dim 32 --out_dim 64
    python examples/02_linear.py --batch 1024 --in_dim 32 --out_dim 64 --compile

Guess first, then look. A product and the addition of a bias: one kernel or two? aten::t appears in the
chain: what does the transpose cost? What is left for --compile to save?
"""

from __future__ import annotations

import argparse

import torch

import foretrace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--in_dim", "--in-dim", type=int, default=32)
    parser.add_argument("--out_dim", "--out-dim", type=int, default=64)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"device": device, "dtype": torch.bfloat16}
    layer = torch.nn.Linear(args.in_dim, args.out_dim, **options)
    x = torch.randn(args.batch, args.in_dim, **options)
    model = torch.compile(layer) if args.compile else layer

    @torch.no_grad()
    def step() -> None:
        with torch.profiler.record_function("linear_fwd"):
            model(x)

    for _ in range(3):
        step()

    how = "compile" if args.compile else "eager"
    path = f"traces/02_linear/{args.batch}_{args.in_dim}_{args.out_dim}_{how}"
    with foretrace.profile(path, wait=1, warmup=1, active=3) as recording:
        for _ in recording.steps():
            step()
    recording.explain()
    print(f"\ntrace: {recording.path}")


if __name__ == "__main__":
    main()
