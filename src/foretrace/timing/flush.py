"""Empty the GPU's L2 cache between calls, so that no call finds there what the one before left."""

from __future__ import annotations

from typing import Any

__all__ = ["Flush", "l2_bytes"]


def l2_bytes(device: str) -> int | None:
    """Bytes of L2 of a CUDA device as the driver says; ``None`` where it does not."""
    import torch

    size = getattr(torch.cuda.get_device_properties(torch.device(device)), "L2_cache_size", None)
    return int(size) if size else None


class Flush:
    """Overwrites a buffer of twice the L2's size on the current stream of ``device``.

    Call it before the mark that begins a timed region: on the same stream it is done by then. While it runs, the
    host can already enqueue what is timed.
    """

    def __init__(self, device: str, size: int) -> None:
        import torch

        self.bytes = 2 * size
        self._buffer: Any = torch.empty(self.bytes, dtype=torch.int8, device=device)

    def __call__(self) -> None:
        """Enqueue the overwriting."""
        self._buffer.zero_()
