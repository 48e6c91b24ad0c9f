"""What is recorded to fit the predictor, and what is recorded to judge it. No program is in both lists.

The judged programs were written down before the first of them was recorded, and are not changed to suit the result.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["CALIBRATION", "EVALUATION", "Configuration"]


@dataclass(frozen=True)
class Configuration:
    """One step to record: a built-in workload with its sizes, element type, variant and mode."""

    workload: str
    sizes: tuple[int, ...]  # linear: rows, in, out; mlp: rows, dim, hidden
    dtype: str
    variant: str
    mode: str

    @property
    def name(self) -> str:
        """A file name without its suffix."""
        return "_".join((self.workload, "x".join(map(str, self.sizes)), self.dtype, self.variant, self.mode))

    @property
    def flags(self) -> dict[str, int]:
        """The sizes as the flags of ``foretrace run`` and ``foretrace predict`` name them."""
        names = ("batch", "in_dim", "out_dim") if self.workload == "linear" else ("seq", "dim", "hidden")
        flags = dict(zip(names, self.sizes, strict=True))
        return flags if self.workload == "linear" else {"batch": 1, **flags}

    def as_dict(self) -> dict[str, Any]:
        """As it is kept in a result file."""
        return asdict(self)


def _each(workload: str, dtype: str, variant: str, mode: str, *sizes: tuple[int, ...]) -> list[Configuration]:
    return [Configuration(workload, size, dtype, variant, mode) for size in sizes]


EVALUATION: tuple[Configuration, ...] = (
    *_each("mlp", "bf16", "eager", "forward",
           (1, 4096, 8192), (7, 1024, 4096), (32, 2048, 5632), (100, 768, 3072), (256, 8192, 8192), (640, 1536, 6144),
           (1024, 5120, 8192), (3000, 1024, 2816), (8192, 768, 3072), (16384, 2048, 8192)),
    *_each("mlp", "bf16", "compile", "forward",
           (4, 2048, 8192), (64, 1280, 5120), (512, 4096, 8192), (2048, 768, 2048), (6144, 3072, 8192),
           (16384, 512, 2048)),
    *_each("mlp", "bf16", "eager", "train",
           (16, 1024, 2816), (300, 2048, 8192), (2048, 2560, 6912), (8192, 1024, 4096), (16384, 768, 3072)),
    *_each("mlp", "bf16", "compile", "train",
           (128, 4096, 8192), (1024, 768, 3072), (4096, 2048, 5632), (12288, 1024, 4096)),
    *_each("mlp", "fp32", "eager", "forward",
           (2, 1024, 4096), (128, 768, 3072), (1000, 2048, 5632), (4096, 1280, 5120)),
    *_each("mlp", "fp32", "compile", "forward", (48, 2048, 8192), (2048, 1024, 4096)),
    *_each("mlp", "fp32", "eager", "train", (64, 1536, 6144), (2048, 768, 3072)),
    *_each("mlp", "fp32", "compile", "train", (512, 1024, 4096), (4096, 768, 2048)),
    *_each("linear", "bf16", "eager", "forward",
           (1, 8192, 8192), (20, 4096, 5120), (512, 3072, 768), (4096, 1024, 4096), (16384, 8192, 6144)),
    *_each("linear", "bf16", "compile", "forward", (256, 1024, 8192), (10000, 2048, 2048)),
    *_each("linear", "bf16", "eager", "train", (8, 2560, 2560), (1536, 4096, 4096), (8192, 512, 8192)),
    *_each("linear", "bf16", "compile", "train", (3072, 768, 768)),
    *_each("linear", "fp32", "eager", "forward", (16, 768, 3072), (2048, 4096, 1024)),
    *_each("linear", "fp32", "eager", "train", (777, 1024, 1024)),
    *_each("linear", "fp32", "compile", "train", (1024, 5120, 1280)),
)  # fmt: skip

CALIBRATION: tuple[Configuration, ...] = (
    *_each("mlp", "bf16", "eager", "forward",
           (3, 2048, 4096), (48, 768, 2048), (200, 4096, 4096), (1536, 1024, 3072), (4096, 768, 3072),
           (8192, 2048, 5504)),
    *_each("mlp", "bf16", "compile", "forward",
           (1, 1024, 4096), (24, 4096, 8192), (384, 1536, 4096), (3072, 1024, 4096), (8192, 1536, 4096),
           (12288, 768, 2304)),
    *_each("mlp", "bf16", "eager", "train", (40, 768, 3072), (1000, 1024, 4096), (6144, 1536, 4096)),
    *_each("mlp", "bf16", "compile", "train", (20, 1024, 4096), (500, 2048, 5632), (2560, 1024, 3072),
           (8192, 768, 2048)),
    *_each("mlp", "fp32", "eager", "forward", (16, 768, 2048), (1536, 1024, 2816)),
    *_each("mlp", "fp32", "compile", "forward", (1000, 768, 3072),),
    *_each("mlp", "fp32", "eager", "train", (1024, 768, 2048)),
    *_each("mlp", "fp32", "compile", "train", (2048, 1024, 2816)),
    *_each("linear", "bf16", "eager", "forward", (5, 4096, 4096), (2048, 2048, 8192)),
    *_each("linear", "bf16", "compile", "train", (1024, 1024, 4096), (6144, 2048, 2048)),
    *_each("linear", "bf16", "eager", "train", (256, 1536, 6144), (4096, 2048, 2048)),
    *_each("linear", "fp32", "eager", "train", (2048, 1024, 2048)),
    *_each("linear", "fp32", "compile", "forward", (300, 768, 4096)),
)  # fmt: skip

assert not {c.name for c in CALIBRATION} & {c.name for c in EVALUATION}
