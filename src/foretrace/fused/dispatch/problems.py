"""Which problems a call poses, found by making it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from foretrace.errors import InputError
from foretrace.fused.dispatch.overrides import Noted, recording
from foretrace.fused.plan import Problem

__all__ = ["gated_problem", "problems_of"]


def problems_of(
    target: Problem | Callable[..., Any],
    inputs: tuple[Any, ...],
    named: dict[str, Any],
    architecture: str | None = None,
) -> Counter[Problem]:
    """Return the problems of a target, in order, and how often each is met.

    These are itself, or those for which ``target(*inputs, **named)`` asks plans; ``architecture``: asked as on a GPU of
    this kind, and computed in plain PyTorch.

    Raises `InputError` when there is none.
    """
    if isinstance(target, Problem):
        return Counter([target if architecture is None else replace(target, architecture=architecture)])
    if not callable(target):
        raise InputError(f"{type(target).__name__} cannot be called; give a Problem, a module or a function")
    with recording(architecture=architecture) as asked:
        target(*inputs, **named)
    return _some(asked)


def gated_problem(inputs: tuple[Any, ...], named: dict[str, Any], architecture: str | None = None) -> Counter[Problem]:
    """Return the problem of ``gated_mlp`` with these arguments; nothing is computed."""
    from foretrace.fused.functional import gated_mlp

    with recording(stop=True, architecture=architecture) as asked, contextlib.suppress(Noted):
        gated_mlp(*inputs, **named)
    return _some(asked)


def _some(asked: list[Problem]) -> Counter[Problem]:
    if not asked:
        raise InputError(
            "the call used no fused layer; give one of foretrace.fused, or a model that contains one (fused.replace "
            "and fused.from_module convert MLPs), with tensors on a CPU or a GPU"
        )
    return Counter(asked)
