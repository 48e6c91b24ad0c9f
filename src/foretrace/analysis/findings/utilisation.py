"""Kernels far below the rate that bounds them: GEMMs, with what their tiles say, and generated pointwise ones."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, prod
from statistics import median

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kernels import INDUCTOR
from foretrace.knowledge.limits import (
    LOW_BANDWIDTH_SHARE,
    LOW_BANDWIDTH_US,
    LOW_PEAK_SHARE,
    SHOWN_KINDS,
    TINY_KERNEL_US,
    WAVE_EFFICIENCY,
    WORTH_GEMM_SHARE,
)
from foretrace.model.report import Finding
from foretrace.model.words import share_of, time

__all__ = ["find", "wave_efficiency"]


def find(facts: Facts) -> Iterable[Finding]:
    """At most a few findings of each of the two kinds."""
    yield from _gemms(facts)
    yield from _pointwise(facts)


def _pointwise(facts: Facts) -> Iterable[Finding]:
    """``low_bandwidth``: Inductor's kernels by name, whose speed hangs on block sizes chosen anew by each process."""
    groups: dict[str, list[int]] = {}
    for row in facts.in_steps:
        kernel = facts.kernel_at[row]
        generated = kernel.kind in ("elementwise", "fused") and facts.context.decoded(row).family == INDUCTOR
        if generated and kernel.bound == "memory" and kernel.of_peak is not None:
            groups.setdefault(kernel.name, []).append(row)
    slow = []
    for rows in groups.values():
        time_us = _time(facts, rows)
        share = median(facts.kernel_at[row].of_peak or 0.0 for row in rows)
        middle = median(facts.kernel_at[row].duration_us for row in rows)
        large = middle >= LOW_BANDWIDTH_US and time_us >= WORTH_GEMM_SHARE * facts.kernel_us
        if share < LOW_BANDWIDTH_SHARE and large:
            slow.append((time_us, share, middle, rows))
    for time_us, share, middle, rows in sorted(slow, key=lambda item: -item[0])[:SHOWN_KINDS]:
        number, each = facts.tally(len(rows))
        op = int(facts.context.attribution.op[rows[0]])
        blocks = facts.context.trace.args(op).get("kernel_kwargs") if op >= 0 else None
        yield facts.finding(
            "low_bandwidth",
            rows,
            source_row=facts.anchor(rows[0]),
            kernel=facts.kernel_at[rows[0]].short_name,
            number=number,
            each=each,
            share=share_of(share),
            of_all=share_of(time_us / facts.kernel_us),
            median=time(middle),
            blocks=f" It ran with {blocks}." if isinstance(blocks, str) else "",
        )


def _time(facts: Facts, rows: list[int]) -> float:
    return sum(facts.kernel_at[row].duration_us for row in rows)


def _gemms(facts: Facts) -> Iterable[Finding]:
    """``low_gemm_utilisation``: by shape and kernel, those with a large share of the kernel time."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for row in facts.in_steps:
        kernel = facts.kernel_at[row]
        shape = facts.costs.of(row).gemm if kernel.kind == "gemm" else None
        if shape is not None and kernel.bound in ("compute", "latency") and kernel.of_peak is not None:
            key: tuple[object, ...] = (kernel.name, shape.m, shape.n, shape.k, shape.batch)
            groups.setdefault(key, []).append(row)
    slow = []
    for key, rows in groups.items():
        time_us = _time(facts, rows)
        share = median(facts.kernel_at[row].of_peak or 0.0 for row in rows)
        if time_us < TINY_KERNEL_US * len(rows):
            continue  # launch and latency decide, not tiles
        if share < LOW_PEAK_SHARE and time_us >= WORTH_GEMM_SHARE * facts.kernel_us:
            slow.append((time_us, share, key, rows))
    for time_us, share, _, rows in sorted(slow, key=lambda item: -item[0])[:SHOWN_KINDS]:
        kernel = facts.kernel_at[rows[0]]
        shape = facts.costs.of(rows[0]).gemm
        assert shape is not None  # the groups hold nothing else
        number, each = facts.tally(len(rows))
        batch = f"{shape.batch}×" if shape.batch != 1 else ""
        yield facts.finding(
            "low_gemm_utilisation",
            rows,
            source_row=facts.anchor(rows[0]),
            shape=f"{batch}{shape.m}×{shape.n}×{shape.k}",
            number=number,
            each=each,
            share=share_of(share),
            peak=kernel.peak or "the peak",
            time=facts.spent(time_us),
            of_all=share_of(time_us / facts.kernel_us),
            why=_why(facts, rows[0]),
        )


def wave_efficiency(tiles: int, sms: int) -> float:
    """Share of the multiprocessors' time that holds tiles, if each takes one tile at a time: 0..1."""
    return tiles / (ceil(tiles / sms) * sms)


def _why(facts: Facts, row: int) -> str:
    """What tiles, blocks and the number of multiprocessors say, where they are known."""
    kernel = facts.kernel_at[row]
    shape = facts.costs.of(row).gemm
    tile_m, tile_n = kernel.decoded.get("tile_m"), kernel.decoded.get("tile_n")
    sms = {gpu.id: gpu.sms for gpu in facts.context.gpus}.get(kernel.device or 0)
    if not sms or shape is None:
        return ""
    if not tile_m or not tile_n or not isinstance(tile_m, int) or not isinstance(tile_n, int):
        blocks = prod(kernel.grid) if kernel.grid else 0
        return f" It launches {blocks} blocks, and the GPU has {sms} multiprocessors." if 0 < blocks < sms else ""
    tiles = ceil(shape.m / tile_m) * ceil(shape.n / tile_n) * shape.batch
    filled = shape.m * shape.n * shape.batch / (tiles * tile_m * tile_n)
    tile = f"{tile_m}×{tile_n}"
    if filled < WAVE_EFFICIENCY:
        return f" Its {tile} tiles cover {1 / filled:.1f} times the result: m or n is no multiple of them."
    if kernel.decoded.get("splitk") or kernel.decoded.get("sliced"):
        return ""
    if tiles < sms:
        return f" The result has {tiles} tiles of {tile}, the GPU {sms} multiprocessors: the rest are idle."
    used = wave_efficiency(tiles, sms)
    if used < WAVE_EFFICIENCY:
        return (
            f" {tiles} tiles of {tile} on {sms} multiprocessors are {tiles / sms:.2f} waves: the last one leaves "
            f"{share_of(1 - used)} of the time of all multiprocessors unused."
        )
    return ""
