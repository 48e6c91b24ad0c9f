"""Zeroed counters for kernels whose last block to arrive finishes the work, without a memset at every call.

A kernel gets a slice of 32-bit counters that are zero and leaves them zero. Two launches may share a slice only if
they can never run at the same time:

- Outside of CUDA graphs every (device, stream, thread) has a slice of its own, and launches on a stream run one after
  the other. (A dependent launch that starts early waits for its predecessor before it counts.) The thread counts
  because a per-thread default stream has one handle for several streams.
- A graph may be replayed on any stream, beside anything. Each launch captured in a graph therefore gets a slice that
  nobody else ever gets; two replays of one graph at a time are forbidden anyway, since they share all their memory.

Slices are cut from a slab. It is allocated by a thread and on a stream of its own: a slab allocated while
``torch.compile`` warms up for a graph would end up in that graph's private memory pool, which must not outlive it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

__all__ = ["zeroed_counters"]

# 512 slices of 256 counters (8192 output features by 32): enough for the split products of a few captured models.
SLAB = 1 << 17

# torch.cuda.current_stream makes an object at each call.
_raw_stream: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda device: torch.cuda.current_stream(device).cuda_stream
)
_lock = threading.Lock()
_slabs: dict[int, torch.Tensor] = {}
# Slabs that are used up: captured graphs count in slices of them for as long as they live, which nobody is told.
_full: list[torch.Tensor] = []
_taken: dict[int, int] = {}
_mine: dict[tuple[int, int, int], torch.Tensor] = {}


def zeroed_counters(like: torch.Tensor, count: int) -> torch.Tensor:
    """``count`` zero int32 counters on the device of ``like``, for one launch on its current stream.

    The kernel must leave them zero. During a capture that no call outside preceded, or once the slab is used up,
    they are zeroed by a memset inside the graph instead.
    """
    device = like.get_device()
    if device < 0:
        return torch.zeros(count, dtype=torch.int32)
    if torch.cuda.is_current_stream_capturing():
        with _lock:
            counters = _slice(device, count)
        return like.new_zeros(count, dtype=torch.int32) if counters is None else counters
    key = (device, _raw_stream(device), threading.get_ident())
    found = _mine.get(key)
    if found is None or found.numel() < count:
        with _lock:
            found = _slice(device, count)
            if found is None:
                if device in _slabs:
                    _full.append(_slabs[device])
                _slabs[device] = _new_slab(device, max(SLAB, count))
                _taken[device] = 0
                found = _slice(device, count)
                assert found is not None
            _mine[key] = found
    return found


def _slice(device: int, count: int) -> torch.Tensor | None:
    """The next ``count`` counters of the slab, from a 128-byte line of their own; None if there are not so many."""
    slab = _slabs.get(device)
    if slab is None:
        return None
    first = _taken[device]
    if first + count > slab.numel():
        return None
    _taken[device] = first + -(-count // 32) * 32
    return slab[first : first + count]


def _new_slab(device: int, count: int) -> torch.Tensor:
    made: list[torch.Tensor] = []

    def make() -> None:
        with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
            made.append(torch.zeros(count, dtype=torch.int32, device="cuda"))
            torch.cuda.current_stream().synchronize()

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError("the counters of the split product could not be allocated")
    return made[0]
