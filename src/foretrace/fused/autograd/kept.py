"""What a forward kept for its backward: handed over so that memory goes back as soon as it is used up.

A pre-activation may be overwritten by its own gradient, which saves the largest buffer of a backward, only when nobody
can ever see it again: the graph is not retained, and this backward holds the last reference.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from foretrace.errors import InputError

# What a forward saved, in its order.
Saved = tuple[Any, ...]

__all__ = ["Kept", "Saved", "forbid_second_derivative", "graph_is_released", "is_held_once", "memory_of", "refusing"]


class Kept:
    """The tensors a forward kept; `take` hands one over and forgets it, so that the taker alone holds it.

    ``made``: `memory_of` the pre-activations as forward made them; without it they are nobody's to overwrite.
    """

    __slots__ = ("hidden", "made", "preact", "x")

    def __init__(
        self,
        x: Tensor | None,
        preact: Tensor | None,
        hidden: Tensor | None,
        made: tuple[int, int] | None = None,
    ) -> None:
        self.x = x
        self.preact = preact
        self.hidden = hidden
        self.made = made

    def take_hidden(self) -> Tensor:
        """Return hidden, which must have been kept, and forget it."""
        hidden, self.hidden = self.hidden, None
        assert hidden is not None
        return hidden

    def take_preact(self) -> Tensor | None:
        """Return the pre-activations and forget them."""
        preact, self.preact = self.preact, None
        return preact

    def owns_preact(self) -> bool:
        """Whether this object holds the only reference to the pre-activations and to the memory forward made for them.

        A hook may have saved something else and given back a tensor over memory of its own, which no count can tell.
        """
        return self.preact is not None and self.made == memory_of(self.preact) and _references(self) == _alone()


def memory_of(tensor: Tensor) -> tuple[int, int]:
    """Address and storage of a tensor: what stays the same while nobody puts another in its place."""
    return tensor.data_ptr(), tensor.untyped_storage()._cdata


def _references(kept: Kept) -> tuple[int, int, int]:
    """Count who holds the pre-activations: Python, autograd and other C++ owners, views of the same memory."""
    preact = cast(Tensor, kept.preact)
    return (
        sys.getrefcount(preact),
        preact._use_count(),  # type: ignore[attr-defined]
        torch._C._storage_Use_Count(preact.untyped_storage()._cdata),
    )


@functools.cache
def _alone() -> tuple[int, int, int] | None:
    """Return the counts of a tensor that nobody else holds; ``None`` where this PyTorch does not tell them.

    They are measured, because how many references a look costs is not promised.
    """
    try:
        return _references(Kept(None, torch.empty(1), None))
    except AttributeError:
        return None


def is_held_once(tensor: Tensor, made: tuple[int, int]) -> bool:
    """Whether the caller's variable is all that holds a tensor and its memory; ``made``: as for `Kept`."""
    alone = _held_once()
    storage = tensor.untyped_storage()._cdata
    return (
        alone is not None
        and made == (tensor.data_ptr(), storage)
        and alone
        == (
            sys.getrefcount(tensor),
            tensor._use_count(),  # type: ignore[attr-defined]
            torch._C._storage_Use_Count(storage),
        )
    )


@functools.cache
def _held_once() -> tuple[int, int, int] | None:
    """As `_alone`, for a tensor in a variable of the caller."""
    tensor = torch.empty(1)
    counts: list[Any] = []

    def count(tensor: Tensor) -> None:
        counts.append(sys.getrefcount(tensor))
        counts.append(tensor._use_count())  # type: ignore[attr-defined]
        counts.append(torch._C._storage_Use_Count(tensor.untyped_storage()._cdata))

    try:
        count(tensor)
    except AttributeError:
        return None
    return counts[0], counts[1], counts[2]


# Absent where this PyTorch does not tell.
_keeps_graph: Callable[[], bool] | None = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
if not hasattr(torch._C._FunctionBase, "maybe_clear_saved_tensors"):
    _keeps_graph = None


def graph_is_released(ctx: Any) -> bool:
    """Let go of the saved tensors if the graph is not retained, and return whether that was so.

    Call it after the saved tensors were read. ``False`` where this PyTorch does not tell.
    """
    if _keeps_graph is None or _keeps_graph():
        return False
    ctx.maybe_clear_saved_tensors()
    return True


def refusing(results: Sequence[Tensor | None], *sources: Tensor) -> tuple[Tensor | None, ...]:
    """Return gradients that can be used, and raise when they are differentiated by whatever leads to ``sources``."""
    return tuple(
        None if result is None else _Refuse.apply(result, *sources)  # type: ignore[no-untyped-call]
        for result in results
    )


def forbid_second_derivative(
    backward: Callable[..., tuple[Tensor | None, ...]],
) -> Callable[..., tuple[Tensor | None, ...]]:
    """Make the gradients of a gradient an error that says so, instead of numbers with terms missing.

    A gradient depends on every input, but is computed from tensors that do not lead back to them. So forward returns,
    besides its result, an empty tensor, the token, and saves it last: an output leads back to all inputs. Where the
    gradient is asked to be differentiable it comes out of `_Refuse`, which has the token for an input: any path from a
    gradient to an input then meets the error. (`torch.autograd.function.once_differentiable` leaves no path at all,
    and an input without one merely seems unused.)

    ``backward`` takes the saved tensors if they were read already, since a checkpoint lets them be read only once.
    Otherwise it reads them, and alone holds them.
    """

    @functools.wraps(backward)
    def guarded(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * len(ctx.needs_input_grad)
        # As forward ran: autocast cast what there was to cast, and would now cast some products and not others.
        with torch._C._DisableAutocast():
            if not torch.is_grad_enabled():
                return backward(ctx, grad)
            saved: Saved = ctx.saved_tensors
            with torch.no_grad():
                results = backward(ctx, grad, saved)
            return refusing(results, saved[-1], grad)

    return guarded


class _Refuse(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, gradient: Tensor, *__: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(_: Any, *__: Any) -> Any:
        raise InputError(
            "foretrace.fused has no second derivative: where gradients are differentiated again, compute this layer "
            "with torch.nn.functional.linear and an activation, or call it inside torch.func.grad"
        )
