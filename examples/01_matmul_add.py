# /// script
# requires-python = ">=3.11"
# dependencies = ["foretrace[torch]"]
#
# [tool.uv.sources]
# foretrace = { path = "..", editable = true }
# ///
"""Two operators, two kernels: torch.add(torch.matmul(x, w), b).

    python examples/01_matmul_add.py                       cold: the first recorded step pays for loading
    python examples/01_matmul_add.py --warmup              warm
    python examples/01_matmul_add.py --size 4096 --warmup  large enough to keep a GPU busy
    python examples/01_matmul_add.py --warmup --compile    one operator (addmm): is it one kernel too?

Guess first, then look. How many kernels does a step launch? Is the GPU or the CPU the one that waits, at
size 64, at size 4096? Does --compile halve the launches?
"""

from __future__ import annotations

import argparse

import torch

import foretrace

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def matmul_add(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.matmul(x, w), b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--warmup", action="store_true", help="run three steps before the profiler")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w, b = (torch.randn(args.size, args.size, device=device, dtype=DTYPES[args.dtype]) for _ in range(3))
    function = torch.compile(matmul_add) if args.compile else matmul_add

    def step() -> None:
        with torch.profiler.record_function("matmul_add"):
            function(x, w, b)

    for _ in range(3 if args.warmup else 0):
        step()

    heat, how = "warm" if args.warmup else "cold", "compile" if args.compile else "eager"
    path = f"traces/01_matmul_add/{args.size}_{args.dtype}_{heat}_{how}"
    with foretrace.profile(path, wait=1, warmup=1, active=3) as recording:
        for _ in recording.steps():
            step()
    recording.explain()
    print(f"\ntrace: {recording.path}")


if __name__ == "__main__":
    main()
