"""Capture a call as a CUDA graph, to time its replay: the GPU's work without the host's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from foretrace.errors import CaptureError

__all__ = ["capture_graph"]


def capture_graph(call: Callable[[], Any], device: str, warmup: int = 3) -> tuple[Callable[[], Any], Any]:
    """Capture ``call`` on ``device``; returns the replay, and the tensors each replay overwrites.

    The replay keeps ``call`` and all it refers to: a graph knows addresses only, and would go on reading those of
    operands that were freed.

    ``call`` runs ``warmup`` times on a side stream first, as capture demands (lazily made handles and workspaces
    must exist). Raises :class:`CaptureError` saying why the call cannot be captured (a synchronisation, a copy to
    the host, a stream of its own).
    """
    import torch

    cuda: Any = torch.cuda
    target = torch.device(device)
    try:
        side = cuda.Stream(target)
        side.wait_stream(cuda.current_stream(target))
        with cuda.stream(side):
            for _ in range(warmup):
                call()
        cuda.current_stream(target).wait_stream(side)
        graph = cuda.CUDAGraph()
        # A capture that fails leaves its own stream as the current one; the outer context takes it back.
        with cuda.stream(cuda.current_stream(target)), cuda.graph(graph):
            result = call()
        graph.replay()
        cuda.synchronize(target)
    except (RuntimeError, AssertionError) as error:
        _free_generator(target)
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CaptureError(f"it cannot be captured as a CUDA graph: {said}") from error
    return partial(_replay, graph, call), result


def _replay(graph: Any, _kept: Callable[[], Any]) -> None:
    graph.replay()


def _free_generator(target: Any) -> None:
    """After a failed capture torch's random numbers still believe in it, and every later ``randn`` would raise."""
    import torch

    with contextlib.suppress(Exception):
        index = torch.cuda.current_device() if target.index is None else target.index
        generator: Any = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(generator.clone_state())
