"""Results allocated between canaries, to see that nothing is written past an end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

CANARY = 777.0
MARGIN = 256


@contextmanager
def guarded_allocations() -> Iterator[list[torch.Tensor]]:
    """Every ``torch.empty`` inside has canaries before and after; a dead one fails at the end."""
    plain = torch.empty
    around: list[torch.Tensor] = []

    def empty(*shape: Any, **how: Any) -> torch.Tensor:
        size = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        whole = plain(size.numel() + 2 * MARGIN, **how).fill_(CANARY)
        around.append(whole)
        inner = whole[MARGIN : MARGIN + size.numel()]
        # What is never written must not look right by chance.
        return inner.fill_(float("nan")).view(size)

    with mock.patch.object(torch, "empty", empty):
        yield around
    for whole in around:
        margins = torch.cat([whole[:MARGIN], whole[-MARGIN:]])
        assert bool((margins == CANARY).all()), "something was written before the start or past the end of a result"
