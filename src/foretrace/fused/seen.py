"""Calls that were seen before: one comparison instead of every check again.

The comparison is the one ``torch.compile`` guards its graphs with, a single call into C++ for all tensors: their types,
dtypes, devices, shapes, strides and whether they require grad, and the modes of this thread that change what an
operator means (autocast, transforms, inference, dispatch modes). What it does not see is part of the key, or looked at
here: the words of the call, grad mode, forward-mode differentiation, the addresses' alignment, and the plan in force.
Where this PyTorch has no such guards nothing is ever seen before, and every call is checked in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from foretrace.fused.dispatch import plan_for_key
from foretrace.fused.plan import Plan
from foretrace.fused.planning import Call

__all__ = ["find", "remember"]

# Anything else is checked in full each time.
_OWN: Final = (Tensor, torch.nn.Parameter)
# Keys to remember, and calls to one key: they differ in strides, devices, dtypes or modes.
_MOST: Final = 4096
_EACH: Final = 8


class _Seen(NamedTuple):
    """``same`` compares tensors with those seen. ``asked``: the plan that was passed, or None.

    ``aligned``: how many of the tensors, the first, were at multiples of 16 bytes, as kernels need; 0 on a CPU.
    """

    same: Callable[..., bool]
    asked: Plan | None
    aligned: int
    call: Call


_seen: dict[tuple[Any, ...], list[_Seen]] = {}


def find(words: tuple[Any, ...], given: Sequence[Tensor], plan: Plan | None) -> Call | None:
    """Return the call for these tensors, if all that decides about it is as it was when it was checked.

    ``words``: what names the call besides its tensors: the operation, its rules, which arguments are None, x's shape
    (so that few entries have to be compared), and whether grad mode is on. No compiler may be tracing.
    """
    known = _seen.get(words)
    if known is None or forward_ad._current_level >= 0:
        return None
    for tensor in given:
        # The comparison asks for strides, which nested tensors have not: the process would abort.
        if type(tensor) not in _OWN or tensor.is_nested:
            return None
    for same, asked, aligned, call in known:
        if asked is plan and same(*given):
            bits = 0
            for tensor in given[:aligned]:
                bits |= tensor.data_ptr()
            if bits & 15 == 0 and (call.key is None or plan_for_key(call.key) is call.bound.plan):
                return call
    return None


def remember(words: tuple[Any, ...], given: Sequence[Tensor], matrices: int, plan: Plan | None, call: Call) -> None:
    """Keep a call that was checked, for `find`. ``matrices``: the first tensors, which kernels read by TMA."""
    known = _seen.get(words)
    if known is None:
        # Kept when it comes again: row counts that never repeat are to cost nothing.
        if len(_seen) >= _MOST:
            _seen.clear()
        _seen[words] = []
        return
    aligned = matrices if given[0].get_device() >= 0 else 0
    if any(tensor.data_ptr() & 15 for tensor in given[:aligned]):
        return
    same = _comparison(given)
    if same is not None:
        if len(known) >= _EACH:
            known.clear()
        known.append(_Seen(same, plan, aligned, call))


def _comparison(given: Sequence[Tensor]) -> Callable[..., bool] | None:
    """Whether tensors, in this order and all different, are like these; None where it cannot be told."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    if guards is None:
        return None
    try:
        same: Callable[..., bool] = guards.TensorGuards(
            *given,
            dynamic_dims_sizes=[list(tensor.shape) for tensor in given],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in given],
        ).check
        return same if same(*given) is True else None
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None
