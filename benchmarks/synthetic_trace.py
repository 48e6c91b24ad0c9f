"""Write a synthetic Kineto trace of a wanted size: the same bytes for the same size and seed.

    python benchmarks/synthetic_trace.py --size-mb 500 /tmp/synthetic.json

Ten steps of a training loop, recorded with ``record_shapes=True`` and without Python stacks (the most common way to
get a large file). Per layer: a linear of three nested operators and one launch, a pointwise operator with its launch,
the same backward on a second thread, now and then a memset or an all-reduce on a stream of its own; each launch with
its kernel row and the two ends of its ``ac2g`` arrow; a synchronization and a ``ProfilerStep`` per step. Text layout,
field order and number format are Kineto's. ``distributedInfo`` is there because HTA asks for a rank.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

__all__ = ["write_synthetic_trace"]

HEADER = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320,
      "computeMajor": 9, "computeMinor": 0,
      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
      "regsPerBlock": 65536, "warpSize": 32,
      "sharedMemPerBlock": 49152, "numSms": 132
    }
    ],
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
      "record_shapes": 1,
      "cuda_driver_version": 13000,
      "cuda_runtime_version": 13000,
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""

FOOTER = """
  {
    "ph": "X", "cat": "Trace", "ts": 5116853748000.000, "dur": %.3f,
    "pid": "Spans", "tid": "PyTorch Profiler",
    "name": "PyTorch Profiler (0)",
    "args": {
      "Op count": 0
    }
  }
  ],
  "traceName": "synthetic.json"
}
"""

OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "%s", "pid": 4242, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Sequence number": %d, "Fwd thread id": 0, \
"Concrete Inputs": ["", "", ""], "Input type": ["c10::BFloat16", "c10::BFloat16", ""], \
"Input Strides": [[%d, %d, 1], [%d, 1], []], "Input Dims": [[%d, %d, %d], [%d, %d], []], "Ev Idx": %d
    }
  },
"""

CALL = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "%s", "pid": 4242, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "cbid": 211, "correlation": %d
    }
  },
  {
    "ph": "s", "id": %d, "pid": 4242, "tid": %d, "ts": %.3f,
    "cat": "ac2g", "name": "ac2g"
  },
"""

KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,
      "queued": 0, "device": 0, "context": 1,
      "stream": %d, "correlation": %d,
      "registers per thread": 168,
      "shared memory": 213188,
      "blocks per SM": 1,
      "warps per SM": 12,
      "grid": [%d, 66, 1],
      "block": [384, 1, 1],
      "est. achieved occupancy %%": 0
    }
  },
  {
    "ph": "f", "id": %d, "pid": 0, "tid": %d, "ts": %.3f,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  },
"""

TRANSFER = """  {
    "ph": "X", "cat": "%s", "name": "%s", "pid": 0, "tid": 7,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,
      "device": 0, "context": 1,
      "stream": 7, "correlation": %d,
      "bytes": %d, "memory bandwidth (GB/s)": %.3f
    }
  },
"""

STEP = """  {
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#%d", "pid": 4242, "tid": 4242,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d
    }
  },
"""

SYNCHRONIZE = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 4242, "tid": 4242,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "cbid": 131, "correlation": %d
    }
  },
"""

GEMMS = tuple(
    f"nvjet_sm90_tst_{tile}_64x4_{cluster}_h_bz_coopA_{layout}"
    for tile in ("128x256", "256x128", "192x192")
    for cluster in ("1x2", "2x1")
    for layout in ("TNT", "NNT", "NTN")
)
POINTWISE = tuple(
    "void at::native::vectorized_elementwise_kernel<4, at::native::"
    f"{functor}, std::array<char*, {arity}ul> >(int, at::native::{functor}, std::array<char*, {arity}ul>)"
    for functor, arity in (
        ("CUDAFunctor_add<c10::BFloat16>", 3),
        (
            "BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
            "at::native::binary_internal::MulFunctor<float> >",
            3,
        ),
        (
            "GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const",
            2,
        ),
        ("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const", 2),
    )
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEPS = 10  # what people record; a large file comes from large steps
LAYERS = 48  # forward and backward operators a step: 48 x 2 launches each way
BASE_US = 5116853748000.0


class _Clock:
    """Where the CPU and the streams have got to, and the ids handed out so far."""

    def __init__(self) -> None:
        self.cpu = BASE_US + 50.0
        self.stream = {7: self.cpu, 13: self.cpu}
        self.external = 0
        self.correlation = 1000
        self.index = 0


def _launch(
    clock: _Clock, chance: random.Random, thread: int, kernel: str, stream: int, api: str, mean_us: float
) -> str:
    clock.correlation += 1
    number = clock.correlation
    start, cost = clock.cpu, 3.0 + 4.0 * chance.random()
    clock.cpu += cost
    begin = max(clock.stream[stream], start + cost + 1.5)
    duration = mean_us * (0.8 + 0.4 * chance.random())
    clock.stream[stream] = begin + duration + 0.8
    call = CALL % (api, thread, start, cost, clock.external, number, number, thread, start)
    return call + KERNEL % (
        kernel,
        stream,
        begin,
        duration,
        clock.external,
        stream,
        number,
        chance.randrange(1, 64),
        number,
        stream,
        begin,
    )


def _operator(
    clock: _Clock,
    chance: random.Random,
    names: tuple[str, ...],
    thread: int,
    body: tuple[str, int, str, float],
) -> str:
    """Nested operators of the given names around one launch; children are written before the outer closes."""
    begins = []
    for _ in names:
        begins.append(clock.cpu)
        clock.cpu += 1.0 + chance.random()
    clock.external += len(names)
    kernel, stream, api, mean_us = body
    inner = _launch(clock, chance, thread, kernel, stream, api, mean_us)
    parts = []
    hidden = chance.choice((768, 1024, 3072, 4096))
    for depth, (name, begin) in enumerate(zip(names, begins, strict=True)):
        clock.index += 1
        duration = clock.cpu - begin + 0.5 * (len(names) - depth)
        parts.append(
            OPERATOR
            % (
                name,
                thread,
                begin,
                duration,
                clock.external - len(names) + depth + 1,
                clock.index,
                128 * hidden,
                hidden,
                hidden,
                64,
                128,
                hidden,
                hidden,
                hidden,
                clock.index,
            )
        )
    clock.cpu += 0.5 * len(names) + 0.3
    return "".join(parts) + inner


def _micro_batch(clock: _Clock, chance: random.Random) -> Iterator[str]:
    for layer in range(LAYERS):
        gemm = (chance.choice(GEMMS), 7, "cudaLaunchKernelExC", 55.0)
        yield _operator(clock, chance, ("aten::linear", "aten::matmul", "aten::mm"), 4242, gemm)
        point = (chance.choice(POINTWISE), 7, "cudaLaunchKernel", 21.0)
        yield _operator(clock, chance, (chance.choice(("aten::gelu", "aten::mul", "aten::add")),), 4242, point)
        if layer % 8 == 0:
            yield _memset(clock)
    for layer in range(LAYERS):
        gemm = (chance.choice(GEMMS), 7, "cudaLaunchKernelExC", 60.0)
        root = "autograd::engine::evaluate_function: MmBackward0"
        yield _operator(clock, chance, (root, "MmBackward0", "aten::mm"), 4343, gemm)
        point = (chance.choice(POINTWISE), 7, "cudaLaunchKernel", 30.0)
        yield _operator(clock, chance, ("GeluBackward0", "aten::gelu_backward"), 4343, point)
        if layer % 12 == 0:
            reduce = (NCCL, 13, "cudaLaunchKernelExC", 180.0)
            yield _operator(clock, chance, ("c10d::allreduce_", "nccl:all_reduce"), 4343, reduce)


def _memset(clock: _Clock) -> str:
    clock.correlation += 1
    number = clock.correlation
    at = max(clock.stream[7], clock.cpu + 5.0)
    clock.stream[7] = at + 2.0
    call = CALL % ("cudaMemsetAsync", 4242, clock.cpu, 3.0, clock.external, number, number, 4242, clock.cpu)
    clock.cpu += 3.5
    return call + TRANSFER % ("gpu_memset", "Memset (Device)", at, 0.8, clock.external, number, 4, 0.005)


def _end_of_step(number: int, begin: float, clock: _Clock) -> str:
    clock.correlation += 1
    waited = max(max(clock.stream.values()) - clock.cpu, 1.0)
    text = SYNCHRONIZE % (clock.cpu, waited, clock.correlation)
    clock.cpu += waited + 2.0
    clock.external += 1
    clock.index += 1
    text += STEP % (number, begin - 1.0, clock.cpu - begin, clock.external, clock.index)
    clock.cpu += 5.0
    return text


def write_synthetic_trace(path: Path, size_bytes: int, seed: int = 0) -> int:
    """Write ``STEPS`` steps of equal size, ``size_bytes`` in all; returns the number of bytes written."""
    chance = random.Random(seed)
    clock = _Clock()
    written = 0
    with path.open("w", encoding="ascii") as out:
        written += out.write(HEADER)
        for number in range(1, STEPS + 1):
            begin = clock.cpu
            while written < size_bytes * number / STEPS:
                written += out.write("".join(_micro_batch(clock, chance)))
            written += out.write(_end_of_step(number, begin, clock))
        written += out.write(FOOTER % (clock.cpu - BASE_US))
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--size-mb", type=float, default=500.0, help="size in 10⁶ bytes")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    written = write_synthetic_trace(options.path, int(options.size_mb * 1e6), options.seed)
    print(f"{options.path}: {written / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
