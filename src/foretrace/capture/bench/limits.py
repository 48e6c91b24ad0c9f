"""The device's limits as parts of the document: before the variants, and once more after them."""

from __future__ import annotations

from foretrace.capture.bench.tools import said
from foretrace.knowledge.benching import DRIFT
from foretrace.knowledge.dtypes import dtype as known_dtype
from foretrace.model.bench import CopyRate, GemmRate, Limits, Work
from foretrace.model.words import share_of
from foretrace.timing import Clock
from foretrace.timing.limits import Limit, copy_limit, gemm_limit

__all__ = ["drifted", "measure_again", "measure_limits"]


def measure_limits(device: str, work: Work, clock: Clock | None, *, wanted: bool = True) -> tuple[Limits, list[Limit]]:
    """Measure the GEMM rate of each type the work multiplies, and the bandwidth; never raises.

    Also returns the measurements themselves, in the order of the document, so that they can be repeated.
    """
    import torch

    found = Limits()
    if not wanted:
        found.missing = dict.fromkeys(("gemm", "copy"), "limits were not to be measured")
        return found, []
    kept = []
    for name in work.flops_by_dtype:
        kind = known_dtype(name)
        try:
            limit = gemm_limit(device, getattr(torch, kind.torch if kind is not None else name), clock=clock)
        except Exception as error:
            found.missing["gemm"] = f"a large {name} product could not be timed: {said(error)}"
            continue
        kept.append(limit)
        found.gemm.append(
            GemmRate(
                dtype=name,
                size=limit.size,
                flops=limit.amount,
                tflops=limit.rate / 1e12,
                best_us=min(limit.timing.samples_us),
                median_us=limit.timing.median_us,
                runs=limit.timing.runs,
            )
        )
    if not work.flops_by_dtype:
        found.missing["gemm"] = "no matrix product was counted, so its rate is of no use"
    try:
        limit = copy_limit(device, clock=clock)
    except Exception as error:
        found.missing["copy"] = f"a large copy could not be timed: {said(error)}"
        return found, kept
    kept.append(limit)
    found.copy = CopyRate(
        size=limit.size,
        bytes=limit.amount,
        gbps=limit.rate / 1e9,
        best_us=min(limit.timing.samples_us),
        median_us=limit.timing.median_us,
        runs=limit.timing.runs,
    )
    return found, kept


def measure_again(limits: Limits, kept: list[Limit]) -> None:
    """Fill in what the device did when the variants were done."""
    rows: list[GemmRate | CopyRate] = [*limits.gemm, *([limits.copy] if limits.copy is not None else [])]
    for row, limit in zip(rows, kept, strict=True):
        rate = limit.amount / (min(limit.repeat().samples_us) * 1e-6)
        if isinstance(row, GemmRate):
            row.end_tflops = rate / 1e12
        else:
            row.end_gbps = rate / 1e9


def drifted(limits: Limits) -> list[str]:
    """A sentence for each rate that fell while the variants ran."""
    said_of = [(f"the {row.dtype} GEMM rate", row.tflops, row.end_tflops) for row in limits.gemm]
    if limits.copy is not None:
        said_of.append(("the bandwidth", limits.copy.gbps, limits.copy.end_gbps))
    return [
        f"{name} fell by {share_of(1 - end / start)} during the run: the device slowed down, or something else used it"
        for name, start, end in said_of
        if end is not None and end < (1 - DRIFT) * start
    ]
