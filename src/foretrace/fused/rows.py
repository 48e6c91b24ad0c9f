"""A row in a profile for each step that is one kernel of ours, with its operands, as ATen's operators have one.

Our kernels are launched past the dispatcher, so that a profile would show a kernel that nobody asked for, and nothing
could tell its FLOPs. While no profiler is running a watched function costs one look at a flag more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch.autograd import profiler

__all__ = ["row", "watched"]

Step = TypeVar("Step", bound=Callable[..., Any])


def watched(step: str, function: Step) -> Step:
    """The same function, with a row ``foretrace::<step>`` in a running profile.

    The row holds the positional arguments and, last, ``keep`` where it is given: `foretrace.knowledge.costs.fused`
    reads them so. Under torch.compile the operator is opaque, and what runs inside it is watched when it runs.
    """
    name = f"foretrace::{step}"

    @functools.wraps(function)
    def run(*args: Any, **options: Any) -> Any:
        # The flag is that of all threads, which torch sets when any profiler starts; torch 2.4 has it.
        if not profiler._is_profiler_enabled:
            return function(*args, **options)
        return _recorded(name, function, args, options)

    return run  # type: ignore[return-value]  # it takes and returns what the function does


def row(step: str) -> Callable[[Step], Step]:
    """`watched` as a decorator."""
    return functools.partial(watched, step)


def _recorded(name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    from torch._C._profiler import _RecordFunctionFast

    shown = [*args, options["keep"]] if "keep" in options else list(args)
    try:
        row = _RecordFunctionFast(name, shown)
    except TypeError:  # before torch 2.5 a row has a name only
        row = _RecordFunctionFast(name)
    with row:
        return function(*args, **options)
