"""Which shapes each suite measures: the ones promises are made about, and a wide grid for "never slower"."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from fused_bench.case import Case, Mode

__all__ = [
    "GATED_ACTIVATIONS", "LLAMA", "SMALL", "grid", "held_out", "linear_cases", "mlp_cases", "parse_shapes",
]  # fmt: skip

# (rows, hidden size, intermediate size): 64 x 128 tokens of a BERT-sized model, and of a Llama-3-8B-sized one.
SMALL = (8192, 768, 3072)
LLAMA = (8192, 4096, 14336)
LINEAR = (8192, 1024, 4096)
GATED_ACTIVATIONS = ("gelu_tanh", "silu", "gelu")
DECODE_ROWS = (1, 2, 4, 8, 16)

# (hidden size, intermediate size) of models that exist or nearly: K 512 to 8192, N 1536 to 28672. With the rows below
# this makes 11 x 7 shapes, of which those above the FLOP limit are left out.
WIDTHS = (
    (512, 1536), (768, 3072), (1024, 2816), (1024, 4096), (1536, 8960),
    (2048, 5632), (2048, 8192), (3072, 8192), (4096, 11008), (4096, 14336), (8192, 28672),
)  # fmt: skip
ROWS = (1, 16, 128, 512, 2048, 8192, 16384)
# Shapes that no table was made from, of other models and of rows that batches of any length have: what dispatch does
# where it has to estimate.
OTHER_WIDTHS = ((896, 4864), (1152, 6912), (2304, 9216), (2560, 9728), (3584, 18944), (5120, 13824))
OTHER_ROWS = (3, 48, 300, 1000, 3000, 6000, 12000)
# A forward beyond this many FLOPs takes 20 ms on an H200 and tells nothing that a smaller one does not.
MOST_FORWARD_FLOPS = 1.3e13


def parse_shapes(words: Sequence[str]) -> list[tuple[int, int, int]]:
    """Read ``8192x768x3072`` (rows, input features, intermediate features). Raises ``ValueError`` for anything else."""
    shapes = []
    for word in words:
        sizes = word.lower().split("x")
        if len(sizes) != 3 or not all(size.isdecimal() and int(size) > 0 for size in sizes):
            raise ValueError(f"a shape is rows x input features x intermediate features, as 8192x768x3072, not {word}")
        shapes.append((int(sizes[0]), int(sizes[1]), int(sizes[2])))
    return shapes


def mlp_cases(mode: Mode, shapes: Sequence[tuple[int, int, int]] | None, dtype: str) -> list[Case]:
    """The gated MLP with the three activations models use, at the small and the Llama shape."""
    if shapes is not None:
        return [
            Case("gated_mlp", *shape, activation, mode, dtype) for shape in shapes for activation in GATED_ACTIVATIONS
        ]
    small = [Case("gated_mlp", *SMALL, activation, mode, dtype) for activation in GATED_ACTIVATIONS]
    return [*small, Case("gated_mlp", *LLAMA, "gelu_tanh", mode, dtype), Case("gated_mlp", *LLAMA, "silu", mode, dtype)]


def linear_cases(shapes: Sequence[tuple[int, int, int]] | None, dtype: str) -> list[Case]:
    """Linear + bias + GELU in both forms, forward and with backward."""
    return [
        Case("linear_act", *shape, activation, mode, dtype, bias=True)
        for shape in shapes or [LINEAR]
        for mode in ("forward", "train")
        for activation in ("gelu_tanh", "gelu")
    ]


def decode_cases(shapes: Sequence[tuple[int, int, int]] | None, dtype: str) -> list[Case]:
    """Few rows against the Llama-sized weights."""
    wanted = shapes or [(rows, *LLAMA[1:]) for rows in DECODE_ROWS]
    return [Case("gated_mlp", *shape, "silu", "forward", dtype) for shape in wanted]


def grid(shapes: Sequence[tuple[int, int, int]] | None, dtype: str) -> list[Case]:
    """Every shape of the grid, forward and training; shuffled, so that a run cut short or a part saw all kinds.

    Activations take turns over the shapes: their cost differs less than the shapes do.
    """
    return _both_modes(shapes if shapes is not None else _shapes(WIDTHS, ROWS), dtype)


def held_out(shapes: Sequence[tuple[int, int, int]] | None, dtype: str) -> list[Case]:
    """As `grid`, of shapes that the shipped table does not have."""
    return _both_modes(shapes if shapes is not None else _shapes(OTHER_WIDTHS, OTHER_ROWS), dtype)


def _shapes(widths: Sequence[tuple[int, int]], rows: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(m, k, n) for k, n in widths for m in rows if 6.0 * m * k * n <= MOST_FORWARD_FLOPS]


def _both_modes(shapes: Sequence[tuple[int, int, int]], dtype: str) -> list[Case]:
    cases = []
    for index, shape in enumerate(shapes):
        case = Case("gated_mlp", *shape, GATED_ACTIVATIONS[index % 2], "forward", dtype)
        cases += [case, replace(case, mode="train")]
    random.Random(7).shuffle(cases)  # the same order in every run
    return cases
