"""How the pointer-based GEMMs are cut into tiles: the order of tiles, and sizes that fit a GPU."""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
import triton
import triton.language as tl

from foretrace.errors import InputError

__all__ = [
    "DotPrecision",
    "Tile",
    "choose_tile",
    "column_parts",
    "dot_precision",
    "grouped_position",
    "with_dense_rows",
]

DotPrecision = Literal["ieee", "tf32"]

# What a block may use where the device does not say: sm_86 and sm_89, the smallest of Ampere and later.
SMALLEST_SHARED_MEMORY = 99 * 1024


@triton.jit
def grouped_position(tile: int, tiles_m: int, tiles_n: int, GROUP: tl.constexpr) -> tuple[int, int]:
    """Row and column of a tile: GROUP rows of tiles are walked column by column, so that operands stay in L2."""
    width = GROUP * tiles_n
    first = tile // width * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + tile % width % height, tile % width // height


@triton.jit
def column_parts(tile: tl.tensor, PARTS: tl.constexpr) -> tl.tensor:
    """The tile's columns cut into 1, 2 or 4 parts, left to right: a tuple. No value changes its thread."""
    rows: tl.constexpr = tile.shape[0]
    half: tl.constexpr = tile.shape[1] // 2
    if PARTS == 1:
        return (tile,)
    else:
        left, right = tile.reshape(rows, 2, half).permute(0, 2, 1).split()
        if PARTS == 2:
            return left, right
        else:
            a, b = left.reshape(rows, 2, half // 2).permute(0, 2, 1).split()
            c, d = right.reshape(rows, 2, half // 2).permute(0, 2, 1).split()
            return a, b, c, d


@dataclass(frozen=True, slots=True)
class Tile:
    """One configuration of a pointer-based GEMM.

    A program computes block_m rows and block_n columns (of gate and of up alike), block_k input features a step.
    group: see `grouped_position`. subtiles: parts the epilogue handles one after the other, 1, 2 or 4; more parts,
    fewer registers.
    """

    block_m: int
    block_n: int
    block_k: int
    group: int = 8
    num_warps: int = 8
    num_stages: int = 3
    subtiles: int = 1

    def __post_init__(self) -> None:
        blocks = (self.block_m, self.block_n, self.block_k)
        if any(block < 16 or block & (block - 1) for block in blocks):
            raise InputError(f"block sizes {blocks} cannot be used; give powers of two, 16 or more.")
        if self.subtiles not in (1, 2, 4) or self.group < 1 or self.num_warps not in (1, 2, 4, 8, 16):
            raise InputError(f"{self} cannot be used: subtiles are 1, 2 or 4, warps 1 to 16 by twos, groups positive.")

    def changed(self, options: dict[str, int]) -> Tile:
        """Return the tile with some of its fields replaced by the caller's options."""
        unknown = options.keys() - asdict(self).keys()
        if unknown:
            raise InputError(f"unknown option {min(unknown)!r}; a pointer-based kernel has {', '.join(asdict(self))}.")
        return replace(self, **options)


def choose_tile(x: torch.Tensor, weights: tuple[torch.Tensor, ...], *, backward: bool = False) -> Tile:
    """Return a tile that fits the device for x [M, K] times each of 1 or 2 weights.

    weights: [N, K], or [K, N] in the backward pass. The choice is the same for M between two powers of two.
    """
    size = x.element_size()
    aligned = all(operand.data_ptr() % 16 == 0 and operand.stride(0) * size % 16 == 0 for operand in (x, *weights))
    columns = weights[0].shape[1 if backward else 0]
    rows = min(128, max(16, triton.next_power_of_2(x.shape[0])))
    few = x.shape[0] * columns <= 128 * 128 * 64
    tensor_cores = size < 4 or dot_precision() == "tf32"
    return default_tile(rows, few, len(weights), backward, size, tensor_cores, aligned, *_device_limits(x.get_device()))


@lru_cache(maxsize=1024)
def default_tile(
    rows: int,
    few: bool,
    accumulators: int,
    backward: bool,
    element_size: int,
    tensor_cores: bool,
    aligned: bool,
    shared_memory: int,
    wide: bool,
) -> Tile:
    """Return the tile for at most ``rows`` rows. Registers and spills of every case were read from compiled kernels.

    few: results of less than 64 tiles. tensor_cores: false for exact float32 products. aligned: all operands allow
    16-byte loads. shared_memory: bytes a block may use. wide: tensor cores read both operands from shared memory.
    """
    if not tensor_cores:
        # Products on the FMA units are unrolled: larger tiles take minutes to compile and spill.
        return Tile(min(rows, 32), 32, 16, num_warps=4, num_stages=2)
    if not aligned:
        # Every element is loaded by itself, through a register and with an address of its own.
        return Tile(min(rows, 64), 32 if backward else 64 // accumulators, 32, num_warps=4, num_stages=2)
    # Fewer tiles than processors: smaller ones keep more of them busy. Two accumulators and the operands of both do
    # not fit the registers at full width.
    crowded = accumulators == 2 and (not wide or element_size == 4)
    block_n = 64 if few or crowded else 128
    block_k = 128 // element_size
    stage_bytes = (rows + accumulators * block_n) * 128
    if 3 * stage_bytes > shared_memory - 1024:
        block_k //= 2
        stage_bytes //= 2
    num_stages = min(4 if stage_bytes <= 32 * 1024 else 3, (shared_memory - 1024) // stage_bytes)
    num_warps = 8 if rows * block_n * accumulators >= 128 * 128 else 4
    return Tile(rows, block_n, block_k, 8, num_warps, num_stages, subtiles=4 if backward else accumulators)


@lru_cache(maxsize=64)
def _device_limits(device: int) -> tuple[int, bool]:
    """`default_tile`'s shared_memory and wide of a CUDA device (-1: no device, the kernels are interpreted)."""
    if device < 0:
        return SMALLEST_SHARED_MEMORY, False
    properties = torch.cuda.get_device_properties(device)
    return getattr(properties, "shared_memory_per_block_optin", SMALLEST_SHARED_MEMORY), properties.major == 9


def dot_precision() -> DotPrecision:
    """How float32 products are formed: as PyTorch was told for its own matrix products on the GPU."""
    matmul = torch.backends.cuda.matmul
    chosen = getattr(matmul, "fp32_precision", None)
    if chosen is None:
        # Before torch 2.9.
        return "tf32" if matmul.allow_tf32 else "ieee"
    if chosen == "none":
        chosen = torch.backends.fp32_precision  # type: ignore[attr-defined]
    return "tf32" if chosen == "tf32" else "ieee"


def with_dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself where its columns are consecutive, else a copy (an expanded gradient has stride 0)."""
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] == 1 else tensor.contiguous()
