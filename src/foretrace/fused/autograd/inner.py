"""The first half of an MLP as its backward sees it: one product or two, and the gradients of what went in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from foretrace.fused.planning import Call
from foretrace.fused.weights import dense, dense_rows, packed, split, stacked

__all__ = ["GatedInner", "Inner", "LinearInner", "accumulate", "chunks"]

# Rows that are worth a launch of their own: with fewer, the products no longer fill a GPU.
_LEAST_ROWS = 1024

# Rows of a piece, for one more reason: its end must not cut a tile in two.
_TILE_ROWS = 256


class Inner(Protocol):
    """Input to hidden, for any rows, and the way back from the gradient of the pre-activations [rows, width]."""

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Return hidden and, if ``keep``, the pre-activations of these rows."""

    def input_gradient(self, dpreact: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the gradient of these rows of the input, written to ``out`` if given."""

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor) -> None:
        """Add what these rows contribute to the wanted gradients of the weights."""

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of the weights, ``None`` for those not wanted."""

    def bias_gradients(self, sums: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the biases from the column sums of the pre-activations' gradient."""


def chunks(rows: int, parts: int) -> list[slice]:
    """Split rows into at most ``parts`` pieces, of whole tiles and worth a launch each."""
    parts = max(1, min(parts, rows // _LEAST_ROWS))
    each = -(-rows // parts)
    each = -(-each // _TILE_ROWS) * _TILE_ROWS if parts > 1 else max(each, 1)
    return [slice(start, min(start + each, rows)) for start in range(0, max(rows, 1), each)]


def accumulate(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """Return ``total + left right``, added in place and summed in float32 inside the product; rounded once a call."""
    return torch.mm(left, right) if total is None else total.addmm_(left, right)


class LinearInner:
    """One product: ``act(x weightᵀ + bias)``. ``wanted``: whether the gradients of weight and bias are."""

    def __init__(self, weight: Tensor, bias: Tensor | None, call: Call, wanted: Sequence[bool] = ()) -> None:
        self._weight, self._bias = dense_rows(weight), dense(bias)
        self._call = call
        self._wanted = wanted
        self._gradient: Tensor | None = None

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """See `Inner`."""
        call = self._call
        result: tuple[Tensor, Tensor | None] = call.bound.expand(
            x, self._weight, self._bias, call.activation, keep=keep, precision=call.precision
        )
        return result

    def input_gradient(self, dpreact: Tensor, out: Tensor | None = None) -> Tensor:
        """See `Inner`."""
        return torch.mm(dpreact, self._weight) if out is None else torch.mm(dpreact, self._weight, out=out)

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor) -> None:
        """See `Inner`."""
        if self._wanted[0]:
            self._gradient = accumulate(self._gradient, dpreact.t(), x)

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        return (self._gradient,)

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
        self._call = call
        self._wanted = wanted
        self._both = stacked(self._gate, self._up) if wanted else None
        # the wanted gradients of the weights, as the caller packs them
        self._gradients: tuple[Tensor | None, Tensor | None] = (None, None)
        # where products go: views of the above, and the columns of the pre-activations' gradient they take
        self._targets: list[tuple[Tensor, slice]] | None = None

    def expand(self, x: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """See `Inner`."""
        call = self._call
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

    def add_weight_gradients(self, dpreact: Tensor, x: Tensor) -> None:
        """See `Inner`."""
        if self._targets is not None:
            for target, columns in self._targets:
                target.addmm_(dpreact[:, columns].t(), x)
        elif self._packing == "gate_up" or (self._packing == "separate" and self._wanted[0] and self._wanted[1]):
            # One product whose result is all there is to make.
            both = torch.mm(dpreact.t(), x)
            self._targets = [(both, slice(None))]
            packs = self._packing == "gate_up"
            self._gradients = (both, None) if packs else (both[: self.half], both[self.half :])
        else:
            self._targets = self._make_targets()
            for target, columns in self._targets:
                torch.mm(dpreact[:, columns].t(), x, out=target)

    def _make_targets(self) -> list[tuple[Tensor, slice]]:
        want_gate, want_up = self._wanted[0], self._wanted[1]
        n = self.half
        first, second = slice(0, n), slice(n, 2 * n)
        if self._packing == "separate":
            gradient = torch.empty_like(self._gate, memory_format=torch.contiguous_format)
            self._gradients = (gradient, None) if want_gate else (None, gradient)
            return [(gradient, first if want_gate else second)] if want_gate or want_up else []
        if not want_gate:
            return []
        both = self._gate.new_empty((2 * n, self._gate.shape[1]))
        self._gradients = (both, None)
        gate, up = split(both, None, self._packing)
        return [(gate, first), (up, second)]

    def weight_gradients(self) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        return self._gradients

    def bias_gradients(self, sums: Tensor | None) -> tuple[Tensor | None, ...]:
        """See `Inner`."""
        if sums is None:
            return (None, None)
        gate, up = packed(sums.to(self._gate.dtype), self._packing)
        return (gate if self._wanted[2] else None, up if self._wanted[3] else None)
