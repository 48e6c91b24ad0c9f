"""CUDA graph launches: what each replays, and what cannot be known of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import calls_in_steps, often
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.report import Finding
from foretrace.model.words import share_of, time

__all__ = ["find"]

Int64 = NDArray[np.int64]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding over all graph launches of the steps."""
    trace = facts.context.trace
    launches = calls_in_steps(facts, Call.LAUNCH_GRAPH)
    if not len(launches) or not facts.context.has_gpu:
        return
    replayed = trace.gpu_rows[trace.links.graph[trace.gpu_rows]]
    replayed = replayed[np.isin(trace.links.launch[replayed], launches)]
    is_kernel = trace.kind[replayed] == RowKind.KERNEL
    counts = _rows_of(trace.links.launch[replayed[is_kernel]], launches)
    more = _rows_of(trace.links.launch[replayed[~is_kernel]], launches)
    total = int(trace.duration[facts.context.gpu_rows].sum())
    share = int(trace.duration[replayed].sum()) / total if total else 0.0
    each = f"{counts[0]}" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
    copies = ""
    if len(set(more)) == 1 and more[0]:
        copies = f" and {more[0]} " + ("memset or copy" if more[0] == 1 else "memsets or copies")
    yield facts.finding(
        "cuda_graph",
        launches.tolist(),
        source_row=int(launches[0]),
        often=often(facts, len(launches)),
        kernels=f"{each} kernel{'' if each == '1' else 's'}{copies}" + (" each" if len(launches) > 1 else ""),
        share=share_of(share),
        cpu=time(float(np.median(trace.duration[launches])) / 1000),
    )


def _rows_of(owners: Int64, launches: Int64) -> list[int]:
    """How many of ``owners`` are each of ``launches``."""
    owners = np.sort(owners)
    found: list[int] = (np.searchsorted(owners, launches, "right") - np.searchsorted(owners, launches, "left")).tolist()
    return found
