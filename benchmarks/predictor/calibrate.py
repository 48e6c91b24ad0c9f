"""Fit the predictor's time model to the recorded sweep, and write what the package ships.

    python benchmarks/predictor/calibrate.py rows.json.gz [rows.json.gz …] --gpu H200 --source "…" --output DIRECTORY

writes ``<gpu>.npz`` (measured calls as corrections of the model) and ``<gpu>.json`` (the model's constants).
``--warm-only`` names sweeps recorded after a flush that left the cache full of lines still to be written back: their
first calls pay for that, so their cold times are taken from the neighbours in the other sweeps.
``--without FILE`` leaves out every product that a program of this list of sizes contains, so that the judged programs
stay unseen (``evaluate.py`` writes the list).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.knowledge import gpus
from foretrace.knowledge.kernels import decode
from foretrace.prediction.clock.memory import MemoryRates, memory_us
from foretrace.prediction.clock.neighbours import COUNT, SOFTENING
from foretrace.prediction.clock.points import attention_point, memory_point, product_group, product_points
from foretrace.prediction.clock.products import ProductRates, attention_us, product_us

SIZES = {"bf16": 2, "fp16": 2, "fp32": 4}
START = {
    "tflops": 0.85, "cache_tbps": 0.02, "tile_start_us": 0.8, "store_us": 2.0, "latency_us": 1.8,
    "cold_tbps": 0.7, "warm_tbps": 1.5, "split_us": 1.0, "split_tbps": 1.2,
}  # fmt: skip
# Rates are kept as shares of the datasheet's, so that they mean something on another GPU.
SHARES = {"tflops": "peak", "cache_tbps": "peak", "cold_tbps": "memory", "warm_tbps": "memory", "split_tbps": "memory"}
# No product moves its operands faster than memory does, nor much faster than L2 does.
MOST = {"cold_tbps": 0.95, "warm_tbps": 3.0, "split_tbps": 3.0}
# A point whose neighbours foretell it this well adds nothing.
CLOSE = 0.06
# operator of the sweep → the aten operator whose kernel it is, bytes read and written an element of (x, y, …)
MEMORY: dict[str, tuple[str, float, float]] = {
    **{op: (f"aten::{op}", 1, 1) for op in ("gelu", "silu", "relu", "exp", "softmax", "log_softmax", "layer_norm")},
    **{op: (f"aten::{op}", 2, 1) for op in ("mul", "add", "gelu_backward", "silu_backward", "add_")},
    "gelu_tanh": ("aten::gelu tanh", 1, 1),
    "mul_scalar": ("aten::mul scalar", 1, 1),
    "add_scalar": ("aten::add scalar", 1, 1),
    "where": ("aten::where", 2.5, 1),
    "fill_": ("aten::fill_", 0, 1),
    "zero_": ("memset", 0, 1),
    "clone": ("memcpy", 1, 1),
    "copy_expanded": ("aten::copy_ expanded", 0, 1),
    "to_fp32": ("aten::copy_ bf16 to fp32", 0, 0),
    "to_bf16": ("aten::copy_ fp32 to bf16", 0, 0),
    "rms_norm": ("aten::rms_norm", 1, 1),
    "sum_all": ("aten::sum", 1, 0),
    "sum_rows": ("aten::sum", 1, 0),
    "sum_columns": ("aten::sum", 1, 0),
    "mean_last": ("aten::mean", 1, 0),
    "amax_last": ("aten::amax", 1, 0),
    "transpose_copy": ("aten::copy_ transposed", 1, 1),
    "add_bias": ("aten::add broadcast", 1, 1),
    "embedding": ("aten::embedding", 1, 1),
    "cat_last": ("aten::cat", 2, 2),
}


def read(paths: list[Path], *, warm_only: bool) -> list[Any]:
    """The lines of ``rows.py``, each with whether its cold times do not count."""
    lines: list[Any] = []
    for path in paths:
        with gzip.open(path, "rt") as text:
            lines += [[*json.loads(line), warm_only] for line in text]
    return lines


def is_memset(row: list[Any]) -> bool:
    return row[0].startswith("Memset")


class Product:
    """All recordings of one product: the rows besides memsets, their median durations cold and warm."""

    def __init__(self, point: dict[str, Any], lines: list[Any]) -> None:
        self.m, self.n, self.k, self.batch = point["m"], point["n"], point["k"], point.get("batch", 1)
        self.dtype, self.layout, self.bias = point["dtype"], point["layout"], point["bias"]
        cold = [[row for row in line[1] if not is_memset(row)] for line in lines]
        # The last call: what the flush left behind is out of the cache by then.
        warm = [[row for row in line[2][-1] if not is_memset(row)] for line in lines]
        main = cold[0][0][0]
        # On Hopper's own kernels the memset follows from the tiles (knowledge/lowering); elsewhere it is a habit.
        library = decode(main).family == "nvjet"
        self.names = (*(["memset"] if is_memset(lines[0][1][0]) and not library else []), *(r[0] for r in cold[0]))
        clean = [rows for rows, line in zip(cold, lines, strict=True) if not line[3]]
        self.cold = float(np.median([sum(us for _, us, _ in rows) for rows in clean])) if clean else math.nan
        self.warm = float(np.median([sum(us for _, us, _ in rows) for rows in warm]))
        extra = [sum(us for name, us, _ in rows if name != _main(rows)) / sum(us for _, us, _ in rows) for rows in warm]
        self.extra = float(np.median(extra))

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, columns, reduction, batch."""
        return self.m, self.n, self.k, self.batch


def _main(rows: list[Any]) -> str:
    return str(max(rows, key=lambda row: row[1])[0])


def products_of(lines: list[Any], unseen: set[tuple[Any, ...]]) -> list[Product]:
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for line in lines:
        p = line[0]
        if p["op"] == "gemm":
            key = (p["m"], p["n"], p["k"], p.get("batch", 1), p["dtype"], p["layout"], p["bias"])
            if key[:6] not in unseen:
                found[key].append(line)
    return [Product(group[0][0], group) for group in found.values()]


def rates_of(shares: dict[str, float], gpu: gpus.Gpu, dtype: str) -> ProductRates:
    peak = gpu.peak_tflops["fp32" if dtype == "fp32" else "bf16"]
    scale = {"peak": peak, "memory": gpu.memory_bandwidth_gbps / 1e3}
    values = {name: value * scale.get(SHARES.get(name, ""), 1.0) for name, value in shares.items()}
    return ProductRates(multiprocessors=gpu.sms, element_bytes=SIZES[dtype], **values)


def fit_products(products: list[Product], gpu: gpus.Gpu, dtype: str) -> dict[str, float]:
    """Constants that make the model's typical error smallest; a search along one constant after another."""
    products = [product for product in products if not math.isnan(product.cold)]
    chosen = np.random.default_rng(3).permutation(len(products))[:1500]
    some = [products[i] for i in chosen]
    sizes = [np.array([getattr(p, name) for p in some], dtype=float) for name in ("m", "n", "k", "batch")]
    cold, warm = (np.array([getattr(p, name) for p in some]) for name in ("cold", "warm"))

    def loss(shares: dict[str, float]) -> float:
        rates = rates_of(shares, gpu, dtype)
        errors = [
            np.abs(np.log(product_us(rates, *sizes, warm=is_warm) / measured))
            for is_warm, measured in ((False, cold), (True, warm))
        ]
        return float(np.mean([np.minimum(error, 0.5).mean() for error in errors]))

    shares = dict(START)
    best, step = loss(shares), 1.3
    for _ in range(14):
        before = best
        for name in START:
            for factor in (step, 1 / step):
                trial = {**shares, name: min(shares[name] * factor, MOST.get(name, math.inf))}
                value = loss(trial)
                if value < best:
                    shares, best = trial, value
                    break
        if best > before - 1e-4:
            step = math.sqrt(step)
    print(f"{dtype}: mean |log error| of the bare model {best:.3f}", {k: round(v, 4) for k, v in shares.items()})
    return {name: float(f"{value:.4g}") for name, value in shares.items()}


def thin(features: Any, cold: Any, warm: Any, pattern: Any) -> Any:
    """Indices of points to keep: a third at random, then those that the kept ones foretell badly."""
    order = np.random.default_rng(5).permutation(len(features))
    kept = order[: len(order) // 3]
    # Twice: a point kept late can mislead those that were passed over before it.
    for part in 2 * np.array_split(order[len(order) // 3 :], 8):
        rest = np.setdiff1d(part, kept)
        near, weight = neighbours(features[kept], features[rest])
        off = np.zeros(len(rest))
        for values in (cold, warm):
            off = np.maximum(off, np.abs((weight * values[kept][near]).sum(axis=1) - values[rest]))
        votes = [
            np.bincount(seen, weights=heavy).argmax() for seen, heavy in zip(pattern[kept][near], weight, strict=True)
        ]
        kept = np.concatenate((kept, rest[(off > CLOSE) | (np.array(votes) != pattern[rest])]))
    return np.sort(kept)


def neighbours(known: Any, asked: Any) -> tuple[Any, Any]:
    """For each asked point the nearest known ones and their weights, as the clock takes them; ``(asked, count)``."""
    near, weight = np.empty((len(asked), COUNT), dtype=np.int64), np.empty((len(asked), COUNT))
    square = (known**2).sum(axis=1)
    for start in range(0, len(asked), 256):
        part = asked[start : start + 256]
        squared = np.maximum(square + (part**2).sum(axis=1)[:, None] - 2 * part @ known.T, 0.0)
        found = np.argpartition(squared, COUNT - 1, axis=1)[:, :COUNT]
        near[start : start + 256] = found
        weight[start : start + 256] = 1 / (np.take_along_axis(squared, found, axis=1) + SOFTENING)
    return near, weight / weight.sum(axis=1, keepdims=True)


def features_of(members: list[Product]) -> Any:
    """Positions of products of one group, shape (products, axes)."""
    first = members[0]
    bias, fp16 = np.array([p.bias for p in members]), np.array([p.dtype == "fp16" for p in members])
    shape = np.array([p.sizes for p in members])
    return product_points(shape, first.layout, bias=bias, dtype=first.dtype, fp16=fp16)


def _fill(values: Any, features: Any) -> None:
    """Give points without a value the weighted mean of their nearest neighbours that have one; in place."""
    known, unknown = np.flatnonzero(~np.isnan(values)), np.flatnonzero(np.isnan(values))
    near, weight = neighbours(features[known], features[unknown])
    values[unknown] = (weight * values[known][near]).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--warm-only", type=Path, nargs="*", default=[])
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--without", type=Path)
    parser.add_argument("--cache-share", type=float, default=0.8, help="effective L2 over the datasheet's")
    args = parser.parse_args()
    gpu = gpus.find(args.gpu)
    assert gpu is not None
    unseen = {tuple(item) for item in json.loads(args.without.read_text())} if args.without else set()
    lines = read(args.rows, warm_only=False) + read(args.warm_only, warm_only=True)
    products = products_of(lines, unseen)
    constants: dict[str, Any] = {"products": {}}
    for dtype in ("bf16", "fp32"):
        constants["products"][dtype] = fit_products([p for p in products if p.dtype == dtype], gpu, dtype)
    arrays: dict[str, Any] = {}
    names: dict[tuple[str, ...], int] = {}
    groups: dict[str, list[Product]] = defaultdict(list)
    for product in products:
        groups[product_group(product.dtype, product.layout)].append(product)
    for group, members in sorted(groups.items()):
        rates = rates_of(constants["products"]["fp32" if group.startswith("fp32") else "bf16"], gpu, members[0].dtype)
        sizes = [np.array([getattr(p, name) for p in members], dtype=float) for name in ("m", "n", "k", "batch")]
        cold = np.log(np.array([p.cold for p in members]) / product_us(rates, *sizes, warm=False))
        warm = np.log(np.array([p.warm for p in members]) / product_us(rates, *sizes, warm=True))
        pattern = np.array([names.setdefault(p.names, len(names)) for p in members])
        features = features_of(members)
        _fill(cold, features)
        rows_of = np.array([len(p.names) for p in members])
        kept = thin(features, cold, warm, rows_of)
        print(f"{group}: {len(kept)} of {len(members)} points kept; model's median error cold "
              f"{np.median(np.abs(cold)):.3f}, warm {np.median(np.abs(warm)):.3f}")  # fmt: skip
        extra = np.array([p.extra for p in members])
        flags = np.array([p.bias + 2 * (p.dtype == "fp16") for p in members], dtype=np.uint8)
        shape = np.array([p.sizes for p in members])
        arrays |= {f"{group}/sizes": shape[kept].astype(np.uint16), f"{group}/flags": flags[kept]}
        arrays |= {
            f"{group}/pattern": pattern[kept].astype(np.uint16),
            f"{group}/extra": extra[kept].astype(np.float16),
        }
        arrays |= _corrections(group, cold[kept], warm[kept])
    patterns = json.dumps([list(key) for key in names]).encode()
    arrays["patterns"] = np.frombuffer(patterns, dtype=np.uint8)
    constants["memory"], more = calibrate_memory(lines, gpu)
    arrays |= more | calibrate_attention(lines, gpu, constants["products"])
    constants["cache_share"] = args.cache_share
    args.output.mkdir(parents=True, exist_ok=True)
    stem = args.output / gpu.short.lower()
    np.savez_compressed(stem.with_suffix(".npz"), **arrays)
    document = {"gpu": gpu.short, "arch": gpu.arch, "source": args.source, **constants}
    stem.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    print({path.name: path.stat().st_size for path in args.output.iterdir()})


def _corrections(group: str, cold: Any, warm: Any) -> dict[str, Any]:
    """Half precision is finer than the spread of repeated measurements (under 1 %)."""
    return {f"{group}/cold": cold.astype(np.float16), f"{group}/warm": warm.astype(np.float16)}


def calibrate_memory(lines: list[Any], gpu: gpus.Gpu) -> tuple[dict[str, Any], dict[str, Any]]:
    """Memory-bound operators: one straight line for all, and the corrections of each."""
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for line in lines:
        p = line[0]
        rows = [row for row in line[1] if not is_memset(row) or p["op"] == "zero_"]
        if p["op"] in MEMORY and len(rows) == 1 and not line[3]:
            found[p["op"], p["dtype"], tuple(p["shape"])].append(line)
    bandwidth = gpu.memory_bandwidth_gbps / 1e3
    table: dict[str, list[Any]] = defaultdict(list)
    for (op, dtype, shape), group in found.items():
        name, reads, writes = MEMORY[op]
        elements, size = math.prod(shape), SIZES[dtype]
        moved = int(elements * size * (reads + writes))
        if op in ("to_fp32", "to_bf16"):
            moved, dtype = elements * 6, "fp32" if op == "to_bf16" else "bf16"  # that of the operand
        reduced = 1
        if op in ("sum_all",):
            reduced = elements
        elif len(shape) == 2 and (op.startswith(("sum", "mean", "amax")) or "norm" in op or "softmax" in op):
            reduced = shape[0] if op == "sum_rows" else shape[1]
        if op.startswith(("sum", "mean", "amax")):
            moved += elements // reduced * size
        skip = is_memset(group[0][1][0]) and op != "zero_"
        cold = float(np.median([sum(us for _, us, _ in line[1][skip:]) for line in group]))
        warm = float(np.median([sum(us for _, us, _ in line[2][-1][skip:]) for line in group]))
        table[f"{name} {dtype}"].append((moved, reduced, op == "sum_rows", cold, warm))
    constants = {"latency_us": 1.0, "cold_tbps": 0.89, "warm_tbps": 1.6}
    rates = MemoryRates(constants["latency_us"], *(constants[key] * bandwidth for key in ("cold_tbps", "warm_tbps")))
    arrays: dict[str, Any] = {}
    for name, calls in sorted(table.items()):
        features = np.array([memory_point(moved, reduced, strided=strided) for moved, reduced, strided, _, _ in calls])
        cold = np.array([math.log(us / memory_us(rates, moved, warm=False)) for moved, _, _, us, _ in calls])
        warm = np.array([math.log(us / memory_us(rates, moved, warm=True)) for moved, _, _, _, us in calls])
        arrays |= {f"{name}/features": features.astype(np.float32), **_corrections(name, cold, warm)}
        print(f"{name}: {len(calls)} sizes, correction cold {cold.min():.2f} to {cold.max():.2f}")
    return constants, arrays


def calibrate_attention(lines: list[Any], gpu: gpus.Gpu, fitted: dict[str, Any]) -> dict[str, Any]:
    """The longest kernel of each attention call, as a correction of the rate of products."""
    table: dict[str, list[Any]] = defaultdict(list)
    for point, cold, warm, dirty in lines:
        if dirty or not point["op"].startswith("sdpa"):
            continue
        batch, heads, length, width = point["shape"]
        backward = point["op"].endswith("backward")
        rates = rates_of(fitted[point["dtype"]], gpu, point["dtype"])
        flops = 4 * batch * heads * length * length * width * (2.5 if backward else 1)
        moved = batch * heads * length * width * SIZES[point["dtype"]] * (8 if backward else 4)
        features = attention_point(flops, moved, causal="causal" in point["op"])
        logs = [math.log(max(us for _, us, _ in rows) / attention_us(rates, flops)) for rows in (cold, warm[-1])]
        table[f"attention {'backward ' if backward else ''}{point['dtype']}"].append((features, *logs))
    arrays: dict[str, Any] = {}
    for name, calls in table.items():
        features, cold, warm = (np.array(column) for column in zip(*calls, strict=True))
        arrays |= {f"{name}/features": features.astype(np.float32), **_corrections(name, cold, warm)}
    return arrays


if __name__ == "__main__":
    main()
