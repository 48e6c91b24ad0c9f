"""Measure once which choice is fastest on this GPU, and keep the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from foretrace.errors import InputError
from foretrace.fused.dispatch import cache
from foretrace.fused.dispatch.cache import Tuned
from foretrace.fused.dispatch.choice import Choice
from foretrace.fused.dispatch.choose import choose, modelled
from foretrace.fused.dispatch.environment import capability, current
from foretrace.fused.dispatch.machine import gpu_of
from foretrace.fused.dispatch.plans import clear
from foretrace.fused.dispatch.problems import problems_of
from foretrace.fused.dispatch.tables import shipped
from foretrace.fused.dispatch.trial import Trial
from foretrace.fused.dispatch.tuning import Measure, search
from foretrace.fused.plan import Plan, Problem

__all__ = ["autotune", "tune_problem"]

# One measurement at a time: two would slow each other.
_lock = threading.Lock()


def autotune(
    target: Problem | Callable[..., Any], *inputs: Any, again: bool = False, **named: Any
) -> dict[Problem, Tuned]:
    """Measure every choice for a problem, or for each problem that ``target(*inputs, **named)`` meets.

    ``target``: a `Problem`, or a module or function, which is called once. Operands of the same sizes are made from
    random numbers; yours are not touched. Every choice is compared with a reference of higher precision first, and
    one that raises, is wrong, or does not repeat its bits is refused with the reason. Results are kept on disk
    (``FORETRACE_CACHE_DIR``, else the user's cache folder) for this GPU and these versions of torch, Triton and
    foretrace; what is already there is returned unless ``again``. Row counts above 16 are measured at the next power of
    two, which answers for all up to it. Takes seconds a problem, and GPU memory for operands and reference.

    Raises `InputError` when the target calls no fused layer, or there is no GPU of the problem's architecture.
    """
    if "architecture" in named:
        raise InputError(
            "an autotune measures on a GPU of this process, so that it takes no architecture=; leave it out, or see "
            "explain(…, architecture=) for what is expected of another GPU"
        )
    problems = problems_of(target, inputs, named)
    return {problem: tune_problem(problem, again=again) for problem in problems}


def tune_problem(problem: Problem, *, again: bool = False, measure: Measure | None = None) -> Tuned:
    """Measure one problem, as `autotune` does. ``measure``: what runs and times choices instead of a `Trial`."""
    problem = replace(problem, m=cache.bucket(problem.m))
    gpu = gpu_of(problem.architecture)
    if gpu is None:
        if capability(problem.architecture) is None:
            raise InputError("an autotune measures on an NVIDIA GPU; move the layer and its inputs to one")
        raise InputError(
            f"an autotune measures on a GPU, and this process has none of architecture {problem.architecture}; "
            "run it where the program runs"
        )
    if modelled(problem, current()).source == "only choice":
        return Tuned(best=Choice().label(problem.operation, problem.training), costs=())
    with _lock:
        known = None if again else cache.load(problem, gpu.name)
        if known is not None:
            return known
        base = choose(problem, current(), shipped(problem.architecture))
        tuned = _on_gpu(problem, base, gpu.index) if measure is None else search(problem, current(), base, measure)
        kept = cache.store(problem, gpu.name, tuned, again=again)
    clear()
    return kept


def _on_gpu(problem: Problem, base: Plan, index: int) -> Tuned:
    import torch

    # Whatever the call that is being tuned for runs under, the measurement is to be the same.
    with (
        torch.cuda.device(index),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cuda", enabled=False),
    ):
        return search(problem, current(), base, Trial(problem, f"cuda:{index}"))
