"""The quantities an expectation can speak of: their units, and where they can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from foretrace.knowledge.kernels import KINDS

__all__ = ["FIELDS", "LIST_FIELDS", "QUANTITIES", "SCOPES", "Quantity", "find", "ratio_of", "suggestion"]

Unit = Literal["count", "us", "bytes", "flop", "share", "ratio", "words"]
Where = Literal["any", "step", "trace", "inner"]

SCOPES = ("step", "region", "module", "op")


@dataclass(frozen=True)
class Quantity:
    """One quantity.

    ``where``: ``any`` scope; a whole ``step`` only; the whole ``trace`` only; or ``inner``: a region, module or
    operator. ``gpu``: whether it rests on GPU rows.
    """

    name: str
    unit: Unit
    where: Where = "any"
    gpu: bool = False


_COUNTS = (
    Quantity("kernels", "count", gpu=True),
    Quantity("memcpys", "count", gpu=True),
    Quantity("memsets", "count", gpu=True),
    Quantity("launches", "count"),
    Quantity("kernel_launches", "count"),
    Quantity("graph_launches", "count"),
    Quantity("occupancy_queries", "count"),
    Quantity("synchronizations", "count"),
    Quantity("metadata_only", "count", gpu=True),
    Quantity("calls", "count", "inner"),
    Quantity("recompiles", "count", "step"),
    Quantity("graph_breaks", "count", "step"),
)
_TIMES = (
    Quantity("gpu_busy_us", "us", gpu=True),
    Quantity("gpu_idle_us", "us", "step", gpu=True),
    Quantity("wall_us", "us"),
    Quantity("period_us", "us", "step"),
    Quantity("cpu_us", "us"),
    Quantity("unprofiled_us", "us", "trace"),
)
_WORK = (
    Quantity("flops", "flop", gpu=True),
    Quantity("bytes", "bytes", gpu=True),
    Quantity("peak_memory_bytes", "bytes"),
)
_WORDS = (
    Quantity("bound", "words", gpu=True),
    Quantity("order", "words", gpu=True),
    Quantity("occupancy_query_before", "words", gpu=True),
    Quantity("same_kernels_as", "words", gpu=True),
)
_KINDS = tuple(Quantity(kind, "count", gpu=True) for kind in KINDS)
_KIND_TIMES = tuple(Quantity(f"{kind}_us", "us", gpu=True) for kind in KINDS)

QUANTITIES = {
    quantity.name: quantity
    for quantity in (*_COUNTS, *_KINDS, Quantity("kernel", "count", gpu=True), *_TIMES, *_KIND_TIMES, *_WORK, *_WORDS)
}

# What a kernel pattern can ask about: fields of the report's kernel rows and of their decoded names.
_ROW_FIELDS = ("name", "short_name", "kind", "op", "phase", "module", "bound")
_DECODED_FIELDS = """
    a_dtype acc_dtype algorithm align arch b_dtype causal cluster collective cta_pair direction dtype epilogue
    epilogue_dtype functor head_dim instruction layout ops output_layout out_dtype parts protocol role schedule splitk
    stages threads tile tile_k tile_m tile_n triton_kind vector_width
"""
FIELDS = (*_ROW_FIELDS, *_DECODED_FIELDS.split())
# Fields that hold several names; a pattern of several asks for all of them.
LIST_FIELDS = frozenset({"epilogue", "parts", "ops"})


def ratio_of(name: str) -> tuple[str, str] | None:
    """``gpu_busy_us / wall_us`` → its two quantities; None for a name without a slash."""
    above, slash, below = name.partition("/")
    return (above.strip(), below.strip()) if slash else None


def find(name: str) -> Quantity | None:
    """The quantity of a name, or of a ratio of two numbers; None where there is none."""
    parts = ratio_of(name)
    if parts is None:
        return QUANTITIES.get(name)
    above, below = (QUANTITIES.get(part) for part in parts)
    if above is None or below is None or "kernel" in parts:
        return None
    if "words" in (above.unit, below.unit):
        return None
    narrow = [q.where for q in (above, below) if q.where != "any"]
    if len(set(narrow)) > 1:
        return None
    unit: Unit = "share" if above.unit == below.unit else "ratio"
    return Quantity(" / ".join(parts), unit, narrow[0] if narrow else "any", above.gpu or below.gpu)


def suggestion(word: str, among: tuple[str, ...] | list[str]) -> str:
    """``; did you mean gemm?`` for a misspelt word, or empty."""
    close = get_close_matches(word.lower(), among, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
