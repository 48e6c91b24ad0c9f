"""TMA descriptors: what Hopper's copy engine needs to know of a tensor, built once and found again.

A descriptor is a pure function of an address, a shape, strides, an element type and a box. Those make its key, so a
tensor that moved, or another one in the same place with another shape, can never meet a stale descriptor. The cache
holds no tensor alive.

Limits of the hardware: CUDA driver API, ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from foretrace.errors import InputError

__all__ = [
    "Descriptor",
    "column_descriptor",
    "descriptor",
    "pair_descriptor",
    "pair_is_swapped",
    "pair_legal",
    "tma_legal",
    "tma_storable",
]

# The copy engine addresses units of 16 bytes: bases and strides are multiples of it.
UNIT = 16
# Strides of a tensor map are 40 bits of bytes, extents 32 bits of elements.
LARGEST_STRIDE = 1 << 40
LARGEST_EXTENT = 1 << 32
# One layer of a model needs about ten descriptors, so this holds hundreds of layers; an entry is about 1 KiB.
REMEMBERED = 8192

_kinds: dict[tuple[Any, ...], int] = {}


class Address:
    """Stands where Triton expects the tensor behind a descriptor, and keeps no memory alive."""

    __slots__ = ("_pointer", "dtype")

    def __init__(self, pointer: int, dtype: torch.dtype) -> None:
        self._pointer = pointer
        self.dtype = dtype

    def data_ptr(self) -> int:
        """The address, bytes."""
        return self._pointer


class Descriptor:
    """A Triton (or Gluon) tensor descriptor and what a launch asks about it.

    ``triton``: the object a kernel takes. ``kind``: equal for descriptors the compiler cannot tell apart.
    ``device``: the CUDA device's index, -1 for host memory. ``encoded``: kernel arguments, by what the compiled
    kernel wants (swizzle and box), filled by `foretrace.fused.kernels.launch`.
    """

    __slots__ = ("device", "encoded", "kind", "triton")

    def __init__(self, triton: Any, kind: int, device: int) -> None:
        self.triton = triton
        self.kind = kind
        self.device = device
        self.encoded: dict[int, list[Any]] = {}


def _legal(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], element_size: int) -> bool:
    """Whether [..., columns] with these strides (elements) can be read through a descriptor."""
    if pointer % UNIT or (strides[-1] != 1 and shape[-1] != 1):
        return False
    for extent in shape:
        if not 0 < extent <= LARGEST_EXTENT:
            return False
    for stride in strides[:-1]:
        size = stride * element_size
        if not 0 < size < LARGEST_STRIDE or size % UNIT:
            return False
    return True


def _usable_strides(shape: tuple[int, ...], strides: tuple[int, ...], element_size: int) -> tuple[int, ...]:
    """The strides of a 2-D tensor. With a single row PyTorch's stride means nothing, and any legal one does."""
    if shape[0] != 1:
        return strides
    unit = UNIT // element_size
    return (-(-max(1, shape[1]) // unit) * unit, strides[1])


def _build(
    base: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    box: tuple[int, ...],
    layout: Any,
    device: int,
) -> Descriptor:
    if not _legal(base.data_ptr(), shape, strides, dtype.itemsize):
        raise InputError(
            f"a tensor of shape {tuple(shape)} with strides {tuple(strides)} at an address {base.data_ptr() % UNIT} "
            "bytes past a multiple of 16 cannot be read by TMA (rows contiguous, address and strides multiples of 16 "
            "bytes); use the portable kernels."
        )
    made: Any
    if layout is None:
        # Not at the top: the portable kernels must load where Triton has no descriptors yet.
        from triton.tools.tensor_descriptor import TensorDescriptor

        made = TensorDescriptor(base, list(shape), [*strides[:-1], 1], list(box))
    else:
        from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonTensorDescriptor

        made = GluonTensorDescriptor(base, list(shape), [*strides[:-1], 1], list(box), layout)
    kind = _kinds.setdefault((dtype, box, layout), len(_kinds))
    return Descriptor(made, kind, device)


@lru_cache(maxsize=REMEMBERED)
def _remembered(
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    box: tuple[int, ...],
    layout: Any,
    device: int,
) -> Descriptor:
    strides = _usable_strides(shape, strides, dtype.itemsize)
    return _build(Address(pointer, dtype), shape, strides, dtype, box, layout, device)


@lru_cache(maxsize=REMEMBERED)
def _remembered_pair(
    pointers: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    box: tuple[int, ...],
    device: int,
) -> Descriptor:
    shape, strides = _pair(pointers, shape, strides, dtype.itemsize)
    return _build(Address(min(pointers), dtype), shape, strides, dtype, box, None, device)


def _pair(
    pointers: tuple[int, int], shape: tuple[int, ...], strides: tuple[int, ...], element_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of [2, rows, columns]. Where the distance is no whole number of elements it is 0: illegal."""
    distance, rest = divmod(abs(pointers[1] - pointers[0]), element_size)
    return (2, *shape), (0 if rest else distance, *_usable_strides(shape, strides, element_size))


def tma_legal(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` ([rows, columns]) can be read through a descriptor.

    Columns must be contiguous, the address and the row stride multiples of 16 bytes, and nothing empty; the number
    of columns itself is free: what a box sees beyond it is zero.
    """
    if tensor.dim() != 2:
        return False
    size = tensor.element_size()
    return _legal(tensor.data_ptr(), tensor.shape, _usable_strides(tensor.shape, tensor.stride(), size), size)


def tma_storable(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` can also be written: rows must end on a 16-byte boundary.

    Hopper's copy engine was seen to write up to the next 16 bytes past a row's end (triton-lang/triton#11583).
    """
    return tma_legal(tensor) and tensor.shape[1] * tensor.element_size() % UNIT == 0


def descriptor(tensor: torch.Tensor, box: tuple[int, ...], layout: Any = None) -> Descriptor:
    """The descriptor of a 2-D ``tensor`` that moves boxes of ``box`` elements.

    ``layout``: Gluon's ``NVMMASharedLayout``, None for Triton. Raises `InputError` where `tma_legal` is False.
    """
    device = tensor.get_device()
    shape, strides, dtype = tensor.shape, tensor.stride(), tensor.dtype
    if len(shape) != 2:
        raise InputError(f"TMA takes 2-D tensors here, this one has shape {tuple(shape)}; use the portable kernels.")
    if device < 0:
        # Host memory: the interpreter, which reads the tensor itself.
        return _build(tensor, shape, _usable_strides(shape, strides, dtype.itemsize), dtype, box, layout, device)
    return _remembered(tensor.data_ptr(), shape, strides, dtype, box, layout, device)


def column_descriptor(
    tensor: torch.Tensor, start: int, stop: int, box: tuple[int, int], layout: Any = None
) -> Descriptor:
    """``descriptor(tensor[:, start:stop], box, layout)`` without the view, which costs more than the look-up."""
    device = tensor.get_device()
    if device < 0:
        return descriptor(tensor[:, start:stop], box, layout)
    dtype = tensor.dtype
    pointer = tensor.data_ptr() + start * dtype.itemsize
    return _remembered(pointer, (tensor.shape[0], stop - start), tensor.stride(), dtype, box, layout, device)


def pair_is_swapped(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether ``second`` lies at the lower address, so that `pair_descriptor` sees it as member 0."""
    return second.data_ptr() < first.data_ptr()


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.shape == second.shape and first.stride() == second.stride() and first.dtype == second.dtype


def pair_legal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two [rows, columns] tensors can be read as one [2, rows, columns] through a single descriptor."""
    if first.dim() != 2 or not _alike(first, second):
        return False
    pointers = (first.data_ptr(), second.data_ptr())
    size = first.element_size()
    return _legal(min(pointers), *_pair(pointers, first.shape, first.stride(), size), size)


def pair_descriptor(first: torch.Tensor, second: torch.Tensor, box: tuple[int, int, int]) -> Descriptor:
    """One descriptor of [2, rows, columns] over two tensors, wherever each of them lies; lower address first.

    The leading stride is the distance between the two, so nothing is copied and stacked, interleaved and separate
    weights look alike. A box never leaves either tensor, because the extent of each dimension bounds it: rows past
    the last are zero. Raises `InputError` where `pair_legal` is False.
    """
    if not _alike(first, second):
        raise InputError(
            f"weights of shapes {tuple(first.shape)} and {tuple(second.shape)} with strides {first.stride()} and "
            f"{second.stride()} cannot be read as a pair by TMA; use the portable kernels."
        )
    device = first.get_device()
    pointers = (first.data_ptr(), second.data_ptr())
    if device < 0:
        shape, strides = _pair(pointers, first.shape, first.stride(), first.element_size())
        lower = second if pointers[1] < pointers[0] else first
        return _build(lower, shape, strides, lower.dtype, box, None, device)
    return _remembered_pair(pointers, first.shape, first.stride(), first.dtype, box, device)
