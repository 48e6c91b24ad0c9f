"""Bytes of generated Triton kernels. Filled in below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foretrace.knowledge.costs.call import Cost


def triton_cost(
    name: str,
    *,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    strides: Sequence[Any] | None = None,
    concrete: Sequence[str] | None = None,
    ops: Sequence[str],
) -> Cost:
    """Later."""
    return Cost(reason="not decided")
