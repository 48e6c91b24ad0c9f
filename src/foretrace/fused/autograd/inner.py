"""The first half of an MLP as its backward sees it: one product or two, and the gradients of what went in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from foretrace.fused.autograd.weight_gradient import weight_gradient
from foretrace.fused.planning import Call
from foretrace.fused.weights import dense, dense_rows, packed, split, stacked

__all__ = ["GatedInner", "Inner", "LinearInner", "accumulate", "chunks", "rounded"]

# Rows that are worth a launch of their own: with fewer, the products no longer fill a GPU.
_LEAST_ROWS = 1024

# Rows of a piece, for one more reason: its end must not cut a tile in two.
_TILE_ROWS = 256

# On NVIDIA GPUs, products of 16-bit operands are written in float32 since PyTorch 2.8, and added to float32 since 2.10.
# On AMD's they are refused. (No strings are compared: this one knows that it is a version.)
_WRITES_FLOAT32: Final = torch.version.hip is None and torch.__version__ >= "2.8"
_ADDS_TO_FLOAT32: Final = torch.version.hip is None and torch.__version__ >= "2.10"


class Inner(Protocol):
    """Input to hidden, for any rows, and the way back from the gradient of the pre-activations [rows, width]."""

    call: Call

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return hidden and, if ``keep``, the pre-activations of these rows."""

    def input_gradient(self, dpreact: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the gradient of these rows of the input, written to ``out`` if given."""

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor, several: bool = False) -> None:
        """Add what these rows contribute to the wanted gradients of the weights; ``several``: as for `accumulate`."""

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of the weights, ``None`` for those not wanted, and forget them."""

    def bias_gradients(self, sums: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the biases from the column sums of the pre-activations' gradient."""


def chunks(rows: int, parts: int) -> list[slice]:
    """Split rows into at most ``parts`` pieces, of whole tiles and worth a launch each."""
    parts = max(1, min(parts, rows // _LEAST_ROWS))
    each = -(-rows // parts)
    each = -(-each // _TILE_ROWS) * _TILE_ROWS if parts > 1 else max(each, 1)
    return [slice(start, min(start + each, rows)) for start in range(0, max(rows, 1), each)]


def accumulate(call: Call, total: Tensor | None, grad: Tensor, x: Tensor, several: bool = False) -> Tensor:
    """Return ``total + gradᵀ x``, added in place; without a total, ``gradᵀ x``. grad [M, N], x [M, K].

    ``several``: other pieces of the rows follow. A total of theirs is float32 if the operands have 16 bits, so that it
    is rounded once, by `rounded`, however many pieces there are.
    """
    if total is not None:
        return _multiply_into(total, grad.t(), x, add=True)
    dtype = _sum_dtype(grad.dtype, several)
    out = None if dtype == grad.dtype else grad.new_empty((grad.shape[1], x.shape[1]), dtype=dtype)
    return _write(call, grad, x, out)


def rounded(total: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return a total of `accumulate` in the dtype of its operands: itself if it has it."""
    return total if total is None or total.dtype == dtype else total.to(dtype)


def _sum_dtype(dtype: torch.dtype, several: bool) -> torch.dtype:
    return torch.float32 if several and dtype.itemsize == 2 else dtype


def _write(call: Call, grad: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
    """Return ``gradᵀ x``, written to ``out``, of the operands' dtype or of float32, if that is given."""
    if out is None or out.dtype == grad.dtype:
        return weight_gradient(call, grad, x, out)
    return _multiply_into(out, grad.t(), x, add=False)


def _multiply_into(total: Tensor, left: Tensor, right: Tensor, add: bool) -> Tensor:
    """Write ``left right`` to a total of float32, or add it to one of float32 or of the operands' dtype."""
    if total.dtype == left.dtype and add:
        return total.addmm_(left, right)
    if not left.is_cuda:
        left, right = left.float(), right.float()
        return torch.addmm(total, left, right, out=total) if add else torch.mm(left, right, out=total)
    if _ADDS_TO_FLOAT32 and add:
        return torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
    if _WRITES_FLOAT32 and not add:
        return torch.mm(left, right, out_dtype=torch.float32, out=total)
    product = torch.mm(left, right, out_dtype=torch.float32) if _WRITES_FLOAT32 else torch.mm(left, right)
    return total.add_(product) if add else total.copy_(product)


class LinearInner:
    """One product: ``act(x weightᵀ + bias)``. ``wanted``: whether the gradients of weight and bias are."""

    def __init__(self, weight: Tensor, bias: Tensor | None, call: Call, wanted: Sequence[bool] = ()) -> None:
        self._weight, self._bias = dense_rows(weight), dense(bias)
        self.call = call
        self._wanted = wanted
        self._gradient: Tensor | None = None

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """See `Inner`."""
        call = self.call
        result: tuple[Tensor, Tensor | None] = call.bound.expand(
            x, self._weight, self._bias, call.activation, keep=keep, precision=call.precision
        )
        return result

    def input_gradient(self, dpreact: Tensor, out: Tensor | None = None) -> Tensor:
        """See `Inner`."""
        return torch.mm(dpreact, self._weight) if out is None else torch.mm(dpreact, self._weight, out=out)

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor, several: bool = False) -> None:
        """See `Inner`."""
        if self._wanted[0]:
            self._gradient = accumulate(self.call, self._gradient, dpreact, x, several)

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        total, self._gradient = self._gradient, None
        return (rounded(total, self._weight.dtype),)

    def bias_gradients(self, sums: Tensor | None) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        return (sums.to(self._weight.dtype) if sums is not None and self._wanted[1] else None,)


class GatedInner:
    """Two products: ``act(x gateᵀ + gate_bias) * (x upᵀ + up_bias)``, packed in any way.

    ``wanted``: whether the gradients of gate weight, up weight, gate bias and up bias are.
    """

    def __init__(
        self,
        weights: tuple[Tensor, Tensor | None],
        biases: tuple[Tensor | None, Tensor | None],
        call: Call,
        wanted: Sequence[bool] = (),
    ) -> None:
        gate, up = split(*weights, call.packing)
        self._gate, self._up = dense_rows(gate), dense_rows(up)
        gate_bias, up_bias = split(*biases, call.packing)
        self._gate_bias, self._up_bias = dense(gate_bias), dense(up_bias)
        self.half = self._gate.shape[0]
        self._packing = call.packing
        self.call = call
        self._wanted = wanted
        self._both = stacked(self._gate, self._up) if wanted else None
        # the wanted gradients of the weights, as the caller packs them
        self._gradients: tuple[Tensor | None, Tensor | None] = (None, None)
        # where products go: views of the above, and the columns of the pre-activations' gradient they take
        self._targets: list[tuple[Tensor, slice]] | None = None

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """See `Inner`."""
        call = self.call
        result: tuple[Tensor, Tensor | None] = call.bound.expand(
            x,
            self._gate,
            self._up,
            self._gate_bias,
            self._up_bias,
            call.activation,
            keep=keep,
            precision=call.precision,
        )
        return result

    def input_gradient(self, dpreact: Tensor, out: Tensor | None = None) -> Tensor:
        """See `Inner`."""
        if self._both is not None:
            return torch.mm(dpreact, self._both) if out is None else torch.mm(dpreact, self._both, out=out)
        for_gate, for_up = dpreact[:, : self.half], dpreact[:, self.half :]
        result = torch.mm(for_gate, self._gate) if out is None else torch.mm(for_gate, self._gate, out=out)
        return result.addmm_(for_up, self._up)

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor, several: bool = False) -> None:
        """See `Inner`."""
        if self._targets is not None:
            for target, columns in self._targets:
                accumulate(self.call, target, dpreact[:, columns], x)
        elif self._packing == "gate_up" or (self._packing == "separate" and self._wanted[0] and self._wanted[1]):
            # One product whose result is all there is to make.
            both = accumulate(self.call, None, dpreact, x, several)
            self._targets = [(both, slice(None))]
            packs = self._packing == "gate_up"
            self._gradients = (both, None) if packs else (both[: self.half], both[self.half :])
        else:
            self._targets = self._make_targets(_sum_dtype(self._gate.dtype, several))
            for target, columns in self._targets:
                _write(self.call, dpreact[:, columns], x, target)

    def _make_targets(self, dtype: torch.dtype) -> list[tuple[Tensor, slice]]:
        want_gate, want_up = self._wanted[0], self._wanted[1]
        n = self.half
        first, second = slice(0, n), slice(n, 2 * n)
        if self._packing == "separate":
            gradient = torch.empty_like(self._gate, dtype=dtype, memory_format=torch.contiguous_format)
            self._gradients = (gradient, None) if want_gate else (None, gradient)
            return [(gradient, first if want_gate else second)] if want_gate or want_up else []
        if not want_gate:
            return []
        both = self._gate.new_empty((2 * n, self._gate.shape[1]), dtype=dtype)
        self._gradients = (both, None)
        gate, up = split(both, None, self._packing)
        return [(gate, first), (up, second)]

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        first, second = self._gradients
        self._gradients, self._targets = (None, None), None
        return rounded(first, self._gate.dtype), rounded(second, self._gate.dtype)

    def bias_gradients(self, sums: Tensor | None) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        if sums is None:
            return (None, None)
        gate, up = packed(sums.to(self._gate.dtype), self._packing)
        return (gate if self._wanted[2] else None, up if self._wanted[3] else None)
