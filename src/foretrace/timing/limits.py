"""What this device can do: the rate of a large matrix product, and the bandwidth of a large copy.

Both are measured where and when the variants are, so that clocks, power limit and libraries are the same. The
best of the samples counts: a limit is what is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foretrace.timing.clocks import Clock, clock_for
from foretrace.timing.measure import Measurement, measure

__all__ = ["Limit", "copy_limit", "gemm_limit"]

# Square products from the first size on are doubled until one takes long enough to fill the device (GPU: 2 ms;
# CPU: 30 ms), or the last size is reached.
_GEMM_SIZES = {"cuda": (2048, 16384), "cpu": (256, 4096)}
_GEMM_LONG_US = {"cuda": 2_000.0, "cpu": 30_000.0}
# Far beyond every cache: 1 GiB, on a CPU 256 MiB; less where memory is short.
_COPY_BYTES = {"cuda": 1 << 30, "cpu": 1 << 28}
_RUNS = {"cuda": 20, "cpu": 5}


@dataclass(frozen=True)
class Limit:
    """One rate. ``amount``: FLOPs or bytes of a call; ``size``: rows of the square product, or bytes of the buffer.

    ``repeat`` measures it again with the same operands.
    """

    size: int
    amount: int
    timing: Measurement
    repeat: Callable[[], Measurement]

    @property
    def rate(self) -> float:
        """The best rate, FLOP/s or B/s."""
        return self.amount / (min(self.timing.samples_us) * 1e-6)


def gemm_limit(
    device: str,
    dtype: Any,
    *,
    sizes: tuple[int, int] | None = None,
    clock: Clock | None = None,
    runs: int | None = None,
) -> Limit:
    """Time ``x @ w.T`` of square matrices of a torch dtype, normally distributed, as ``nn.Linear`` has them.

    ``sizes``: first and last number of rows to try. Raises what torch raises for a type it has no product of.
    """
    import torch

    kind = device.partition(":")[0]
    clock = clock or clock_for(device)
    runs = runs or _RUNS[kind]
    size, last = sizes or _GEMM_SIZES[kind]
    while True:
        x, w = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))

        def call(x: Any = x, w: Any = w) -> object:
            return torch.mm(x, w.t())

        with torch.no_grad():
            once = measure(call, clock=clock, warmup=1, runs=1).median_us
        if once >= _GEMM_LONG_US[kind] or size * 2 > last:
            break
        size *= 2
    return _limit(call, size, 2 * size**3, clock, runs)


def copy_limit(device: str, *, size: int | None = None, clock: Clock | None = None, runs: int | None = None) -> Limit:
    """Time a copy from one buffer on the device to another; what it moves is counted twice, read and written.

    ``size``: bytes of a buffer. On a CPU a store may also read the line it writes to, which is not counted.
    """
    import torch

    kind = device.partition(":")[0]
    if size is None:
        size = _COPY_BYTES[kind]
        if kind == "cuda":
            free, _ = torch.cuda.mem_get_info()
            size = min(size, max(free // 8, 1 << 20))
    source = torch.ones(size, dtype=torch.int8, device=device)
    target = torch.zeros_like(source)
    return _limit(lambda: target.copy_(source), size, 2 * size, clock or clock_for(device), runs or _RUNS[kind])


def _limit(call: Callable[[], object], size: int, amount: int, clock: Clock, runs: int) -> Limit:
    import torch

    def once_more() -> Measurement:
        with torch.no_grad():
            return measure(call, clock=clock, warmup=2, runs=runs)

    return Limit(size, amount, once_more(), once_more)
