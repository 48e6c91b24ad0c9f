"""Which problems a call poses, found by making it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from foretrace.errors import InputError
from foretrace.fused.dispatch.overrides import Noted, recording
from foretrace.fused.plan import Problem

__all__ = ["gated_problem", "problems_of"]


def problems_of(target: Problem | Callable[..., Any], *inputs: Any, **named: Any) -> list[Problem]:
    """Return the problems of a target, each once: itself, or those for which ``target(*inputs, **named)`` asks plans.

    Raises `InputError` when there is none.
    """
    if isinstance(target, Problem):
        return [target]
    if not callable(target):
        raise InputError(f"{type(target).__name__} cannot be called; give a Problem, a module or a function")
    with recording() as asked:
        target(*inputs, **named)
    return _some(asked)


def gated_problem(*inputs: Any, **named: Any) -> list[Problem]:
    """Return the problem of ``gated_mlp`` with these arguments; nothing is computed."""
    from foretrace.fused.functional import gated_mlp

    with recording(stop=True) as asked, contextlib.suppress(Noted):
        gated_mlp(*inputs, **named)
    return _some(asked)


def _some(asked: list[Problem]) -> list[Problem]:
    if not asked:
        raise InputError(
            "the call used no fused layer; give one of foretrace.fused, or a model that contains one, with tensors "
            "on a CPU or a GPU"
        )
    return asked
