"""Record the calibration sweep of the predictor on a GPU: matrix products and memory-bound operators, one by one.

    python benchmarks/predictor/sweep.py --output DIRECTORY

writes ``sweep_NN.trace.json.gz`` (what the profiler saw) and ``sweep_NN.points.json`` (what was asked, in order).
Each point is recorded as: a copy of 128 MB, which separates the points in the trace; a sum over 128 MB, which leaves
the L2 cache full of lines that need not be written back; then the operator three times. The first call finds its
operands in memory, the others find what fits in the cache. No operator rows are recorded, so the files stay small.

Inputs are random; every point is called twice before the profiler is on, so that no kernel is loaded inside the
recording. A call that takes long is preceded by a pause, so that the power limit does not slow the clock.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

CALLS = 3
CHUNK = 1500
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 100, 112, 128, 144, 160, 192, 200, 224, 256]
ROWS += [300, 320, 384, 448, 500, 512, 576, 640, 768, 896, 1000, 1024, 1152, 1280, 1536, 1792, 2000, 2048, 2560, 3000]
ROWS += [3072, 3584, 4096, 5000, 5120, 6144, 7168, 8192, 10000, 10240, 12288, 14336, 16384, 20000, 32768]
WIDTHS = [512, 576, 640, 704, 768, 896, 1000, 1024, 1152, 1280, 1408, 1536, 1600, 1792, 1920, 2048, 2304, 2560, 2816]
WIDTHS += [3072, 3200, 3584, 4096, 4608, 5120, 5504, 5632, 6144, 6912, 7168, 8192]
WIDE = [32, 64, 96, 128, 192, 256, 320, 384, 9216, 10240, 11008, 12288, 13824, 14336, 16384, 22016, 28672, 32000]


# Element type → share of the points, most FLOPs of one product (a step of a second is nobody's).
PLAN = {"bf16": (0.62, 3.0e12), "fp32": (0.33, 4.0e11), "fp16": (0.05, 1.0e12)}
LAYOUTS = (("TN", False), ("TN", False), ("NN", False), ("NN", False), ("NT", False), ("NT", False), ("TN", True))

COPIED = (("NN", False), ("NN", False), ("NN", False), ("TN", False))


def gemm_points(seed: int, count: int, *, over_rows: bool = False) -> list[dict[str, Any]]:
    """Sizes of products: rows log-uniform, widths of real models, in the layouts of forward and backward.

    One point in twenty has a width that is no multiple of eight, and one in twenty is a batch of products. With
    ``over_rows`` the reduction of every point runs over the rows, as that of a weight's gradient does, in the layouts
    it has when the gradient was copied first.
    """
    rng = random.Random(seed)

    def rows() -> int:
        return rng.choice(ROWS) if rng.random() < 0.6 else int(2 ** rng.uniform(0, 15))

    def width() -> int:
        return rng.choice(WIDTHS) if rng.random() < 0.85 else rng.choice(WIDE)

    points: list[dict[str, Any]] = []
    while len(points) < count:
        dtype = rng.choices(list(PLAN), [share for share, _ in PLAN.values()])[0]
        layout, bias = rng.choice(COPIED if over_rows else LAYOUTS)
        tokens, a, b = rows(), width(), width()
        batch = 1
        special = rng.random()
        if special < 0.05:
            a = rng.choice((a + rng.randrange(1, 8), 50257, 333, 1001))
        elif special < 0.1 and not bias:
            batch, tokens = rng.choice((2, 4, 8, 12, 16, 32, 64, 128)), min(tokens, 4096)
            a, b = (rng.choice((64, 128, 256, 512, 1024, 2048)) for _ in range(2))
        m, n, k = (a, b, tokens) if layout == "NT" or over_rows else (tokens, a, b)
        sizes = (m * k * batch, k * n * batch, m * n * batch)
        if 2.0 * m * n * k * batch <= PLAN[dtype][1] and max(sizes) < 1 << 30:
            point = {"op": "gemm", "dtype": dtype, "layout": layout, "bias": bias, "m": m, "n": n, "k": k}
            points.append(point if batch == 1 else {**point, "batch": batch})
    return points


SIZES = [1, 64, 1024, 16384, 65536, 262144, 1 << 20, 1 << 21, 3 << 20, 1 << 22, 6 << 20, 1 << 23, 12 << 20, 1 << 24]
SIZES += [24 << 20, 1 << 25, 1 << 26, 1 << 27, 1 << 28]
MATRICES = [(r, c) for r in (1, 16, 128, 1024, 2048, 4096, 8192, 16384) for c in (512, 768, 1024, 2048, 4096, 8192)]
MATRICES += [(256, 14336), (2048, 14336), (8192, 3072), (4096, 32000), (16384, 16384)]
FLAT = [
    *("gelu_tanh", "gelu", "silu", "relu", "exp", "mul", "add", "add_", "mul_scalar", "add_scalar", "where"),
    *("gelu_backward", "silu_backward", "to_fp32", "to_bf16", "fill_", "zero_", "clone", "copy_expanded", "sum_all"),
]
TABLE = [
    *("sum_rows", "sum_columns", "mean_last", "amax_last", "softmax", "log_softmax", "softmax_backward"),
    *("layer_norm", "rms_norm", "layer_norm_backward", "transpose_copy", "add_bias", "embedding", "cat_last"),
]


def memory_points() -> list[dict[str, Any]]:
    """Pointwise operators by size, and row-wise ones by shape."""
    points: list[dict[str, Any]] = []
    for dtype in ("bf16", "fp32"):
        points += [{"op": op, "dtype": dtype, "shape": [size]} for op in FLAT for size in SIZES]
        points += [{"op": op, "dtype": dtype, "shape": list(shape)} for op in TABLE for shape in MATRICES]
    for dtype in ("bf16", "fp32"):
        for op in ("sdpa", "sdpa_causal", "sdpa_backward", "sdpa_causal_backward"):
            for batch, heads, length, width in (
                (1, 16, 1024, 64), (4, 16, 1024, 64), (8, 16, 1024, 64), (2, 32, 2048, 128), (1, 32, 4096, 128),
                (16, 12, 512, 64), (32, 12, 128, 64), (1, 16, 8192, 128), (4, 16, 256, 64),
            ):  # fmt: skip
                points.append({"op": op, "dtype": dtype, "shape": [batch, heads, length, width]})
    random.Random(7).shuffle(points)
    return points


class Pool:
    """Random numbers to cut operands from, so that making them costs no time."""

    def __init__(self) -> None:
        self.store: dict[tuple[str, int], torch.Tensor] = {}

    def take(self, dtype: str, *shape: int, which: int = 0) -> torch.Tensor:
        """Return the first elements of pool ``which`` in this shape; the contents are random normal numbers."""
        size = 1
        for extent in shape:
            size *= extent
        have = self.store.get((dtype, which))
        if have is None or have.numel() < size:
            have = torch.randn(max(size, 1 << 26), device="cuda", dtype=DTYPES[dtype])
            self.store[dtype, which] = have
        return have[:size].view(*shape)


def gemm_call(pool: Pool, p: dict[str, Any]) -> Callable[[], Any]:
    m, n, k, dtype = p["m"], p["n"], p["k"], p["dtype"]
    batch = (p["batch"],) if "batch" in p else ()
    first, second = pool.take(dtype, *batch, m, k, which=0), pool.take(dtype, *batch, k, n, which=1)
    out = pool.take(dtype, *batch, m, n, which=2)
    if p["layout"] == "TN":
        second = pool.take(dtype, *batch, n, k, which=1).mT
    elif p["layout"] == "NT":
        first = pool.take(dtype, *batch, k, m, which=0).mT
    if batch:
        return lambda: torch.bmm(first, second, out=out)
    if p["bias"]:
        bias = pool.take(dtype, n, which=3)
        return lambda: torch.addmm(bias, first, second, out=out)
    return lambda: torch.mm(first, second, out=out)


def memory_call(pool: Pool, p: dict[str, Any]) -> Callable[[], Any]:
    op, shape = p["op"], p["shape"]
    dtype = p["dtype"]
    if op.startswith("sdpa"):
        q, k, v = (pool.take(dtype, *shape, which=i) for i in range(3))
        causal = "causal" in op
        if not op.endswith("backward"):
            return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        grad = pool.take(dtype, *shape, which=3).clone()
        return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
    x, y, z = (pool.take(dtype, *shape, which=i) for i in range(3))
    aten = torch.ops.aten
    if op == "embedding":
        index = torch.randint(0, 32000, (shape[0],), device="cuda")
        table = pool.take(dtype, 32000, shape[1], which=1)
        return lambda: functional.embedding(index, table)
    if len(shape) == 2:
        width = shape[1:]
        weight, bias = pool.take(dtype, shape[1], which=3), pool.take(dtype, shape[1], which=4)
        if op == "layer_norm_backward":
            _, mean, rstd = torch.native_layer_norm(x, width, weight, bias, 1e-5)
            mask = [True, True, True]
            return lambda: aten.native_layer_norm_backward(y, x, width, mean, rstd, weight, bias, mask)
        soft = x.softmax(-1) if op == "softmax_backward" else x
        return {
            "sum_rows": lambda: x.sum(0),
            "sum_columns": lambda: x.sum(1),
            "softmax": lambda: x.softmax(-1),
            "log_softmax": lambda: x.log_softmax(-1),
            "softmax_backward": lambda: aten._softmax_backward_data(y, soft, -1, DTYPES[dtype]),
            "layer_norm": lambda: functional.layer_norm(x, width, weight, bias),
            "rms_norm": lambda: functional.rms_norm(x, width, weight),
            "transpose_copy": lambda: x.t().contiguous(),
            "add_bias": lambda: torch.add(x, bias, out=z),
            "mean_last": lambda: x.mean(-1, keepdim=True),
            "amax_last": lambda: x.amax(-1),
            "cat_last": lambda: torch.cat((x, y), -1),
        }[op]
    half = pool.take("bf16", *shape, which=2)
    single = pool.take("fp32", *shape, which=2)
    scalar = pool.take(dtype, 1, which=3)
    mask = torch.zeros(shape, device="cuda", dtype=torch.bool) if op == "where" else None
    return {
        "gelu_tanh": lambda: aten.gelu.out(x, approximate="tanh", out=z),
        "gelu": lambda: aten.gelu.out(x, approximate="none", out=z),
        "silu": lambda: aten.silu.out(x, out=z),
        "relu": lambda: x.relu(),
        "exp": lambda: torch.exp(x, out=z),
        "mul": lambda: torch.mul(x, y, out=z),
        "add": lambda: torch.add(x, y, out=z),
        "add_": lambda: z.add_(x),
        "mul_scalar": lambda: torch.mul(x, 0.5, out=z),
        "add_scalar": lambda: torch.add(x, 0.5, out=z),
        "gelu_backward": lambda: aten.gelu_backward.grad_input(x, y, approximate="tanh", grad_input=z),
        "silu_backward": lambda: aten.silu_backward.grad_input(x, y, grad_input=z),
        "to_fp32": lambda: single.copy_(pool.take("bf16", *shape, which=0)),
        "to_bf16": lambda: half.copy_(pool.take("fp32", *shape, which=0)),
        "fill_": lambda: z.fill_(1.0),
        "zero_": lambda: z.zero_(),
        "clone": lambda: z.copy_(x),
        "copy_expanded": lambda: z.copy_(scalar.expand(shape)),
        "sum_all": lambda: x.sum(),
        "where": lambda: torch.where(mask, x, y),
    }[op]


def record(points: list[dict[str, Any]], pool: Pool, path: Path) -> None:
    """Record the points in order; those that this torch cannot run are left out and said so."""
    source, target = (torch.empty(128 << 20, dtype=torch.uint8, device="cuda") for _ in range(2))
    numbers = source.view(torch.float32).normal_()
    kept: list[tuple[dict[str, Any], Callable[[], Any], float]] = []
    for point in points:
        try:
            call = gemm_call(pool, point) if point["op"] == "gemm" else memory_call(pool, point)
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            kept.append((point, call, time.perf_counter() - start))
        except RuntimeError as error:
            print("left out", point, str(error).splitlines()[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _, call, seconds in kept:
            if seconds > 300e-6:
                torch.cuda.synchronize()
                time.sleep(min(0.04, 12 * seconds))
            target.copy_(source)
            numbers.sum()
            for _ in range(CALLS):
                call()
        target.copy_(source)
        torch.cuda.synchronize()
    raw = path.with_name("raw.json")
    profile.export_chrome_trace(str(raw))
    with raw.open("rb") as text, gzip.open(path, "wb", compresslevel=5) as packed:
        shutil.copyfileobj(text, packed)
    raw.unlink()
    path.with_name(path.name.replace(".trace.json.gz", ".points.json")).write_text(json.dumps([p for p, _, _ in kept]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=20261)
    parser.add_argument("--products", type=int, default=9000, help="how many matrix products to record")
    parser.add_argument("--over-rows", action="store_true", help="products whose reduction runs over the rows")
    parser.add_argument("--only-products", action="store_true", help="leave the memory-bound operators out")
    parser.add_argument("--budget-s", type=float, default=480.0, help="stop after this many seconds")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    pool = Pool()
    memory = [] if args.only_products else memory_points()
    products = gemm_points(args.seed, args.products, over_rows=args.over_rows)
    chunks = [memory[i : i + CHUNK] for i in range(0, len(memory), CHUNK)]
    chunks += [products[i : i + CHUNK] for i in range(0, len(products), CHUNK)]
    for number, chunk in enumerate(chunks):
        if time.monotonic() - started > args.budget_s:
            print(f"out of time after {number} of {len(chunks)} chunks")
            break
        record(chunk, pool, args.output / f"sweep_{number:02d}.trace.json.gz")
        print(f"{number + 1}/{len(chunks)} {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
