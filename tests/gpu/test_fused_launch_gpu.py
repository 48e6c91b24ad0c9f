"""The direct launch on a GPU: the same kernel, the current stream, graphs, hooks, and a fraction of the host time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from foretrace.fused.kernels.launch import (  # noqa: E402
    RUN_VERSIONS,
    VERSION,
    Launcher,
    descriptor,
    launcher,
    pair_descriptor,
)


@triton.jit
def scale_kernel(source, target, count, factor, BLOCK: tl.constexpr):  # noqa: N803
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets, mask=offsets < count) * factor, mask=offsets < count)


@triton.jit
def copy_box_kernel(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # noqa: N803
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    target.store([row, column], source.load([row, column]))


def scale(source: torch.Tensor, target: torch.Tensor, factor: int) -> None:
    count = source.numel()
    launcher(scale_kernel, BLOCK=256)((triton.cdiv(count, 256),), source, target, count, factor)


def numbers(count: int, device: str = "cuda") -> torch.Tensor:
    return torch.arange(count, device=device, dtype=torch.float32)


def test_every_specialisation_gets_its_own_kernel_and_the_right_result() -> None:
    for _ in range(3):  # compiled, then direct
        for count, first, factor in ((1000, 0, 3), (1024, 0, 1), (1000, 1, 16), (1, 0, 3), (1000, 0, 1 << 20)):
            source = numbers(count + 1)[first : first + count]
            target = torch.full((count + 8,), -1.0, device="cuda")
            scale(source, target, factor)
            assert torch.equal(target[:count], source * factor)
            assert bool((target[count:] == -1.0).all())


def test_known_versions_of_triton_are_launched_directly() -> None:
    assert VERSION in RUN_VERSIONS, "read this version's launcher (see launch.py) and add it"
    call = Launcher(scale_kernel, {"BLOCK": 256}, {"num_warps": 4})
    source, target = numbers(512), numbers(512)
    call((2,), source, target, 512, 3)
    assert call._direct
    assert len(call._starts) == 1


def test_it_runs_on_the_current_stream() -> None:
    side = torch.cuda.Stream()
    source, target = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    scale(source, target, 3)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        source.fill_(2.0)
        scale(source, target, 3)
    # The default stream does not wait for it.
    early = target.clone()
    torch.cuda.current_stream().synchronize()
    assert bool((early == 0.0).all())
    side.synchronize()
    assert bool((target == 6.0).all())


def test_it_can_be_captured_and_replayed() -> None:
    source, target = numbers(1000), torch.zeros(1000, device="cuda")
    scale(source, target, 3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale(source, target, 3)
    source.add_(1.0)
    target.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(target, source * 3)


def test_a_launch_hook_is_called() -> None:
    source, target = numbers(1000), numbers(1000)
    scale(source, target, 3)
    seen: list[str] = []

    def hook(metadata: Any) -> None:
        seen.append(metadata.get()["name"])

    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        scale(source, target, 3)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)
    scale(source, target, 3)
    assert seen == ["scale_kernel"]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_tensors_device_counts_not_the_current_one() -> None:
    for _ in range(2):
        source, target = numbers(1000, "cuda:1"), numbers(1000, "cuda:1")
        with torch.cuda.device(0):
            scale(source, target, 3)
        assert torch.equal(target, source * 3)


def _microseconds(*calls: Callable[[], object], bursts: int = 100, length: int = 20) -> list[float]:
    """Host time of each call: the best of many short bursts, taken in turns.

    On a busy machine most bursts are interrupted, a few are not. They are short also because a full launch queue waits.
    """
    best = [float("inf")] * len(calls)
    for call in calls:
        for _ in range(20):
            call()
    for _ in range(bursts):
        for number, call in enumerate(calls):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(length):
                call()
            best[number] = min(best[number], (time.perf_counter() - start) / length * 1e6)
    torch.cuda.synchronize()
    return best


def test_a_direct_launch_costs_the_host_less_than_a_usual_one() -> None:
    source, target = numbers(256), numbers(256)
    call = launcher(scale_kernel, BLOCK=256)
    direct, usual = _microseconds(
        lambda: call((1,), source, target, 256, 3),
        lambda: scale_kernel[(1,)](source, target, 256, 3, BLOCK=256),
    )
    print(f"direct {direct:.1f} us, kernel[grid] {usual:.1f} us")
    assert direct < 0.75 * usual


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="needs TMA")
class TestDescriptors:
    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        grid = (triton.cdiv(source.shape[0], 64), triton.cdiv(source.shape[1], 64))
        call = launcher(copy_box_kernel, ROWS=64, COLUMNS=64)
        call(grid, descriptor(source, (64, 64)), descriptor(target, (64, 64)))

    def test_a_tensor_in_the_same_place_with_another_shape_gets_another_descriptor(self) -> None:
        memory = torch.randn(1 << 16, device="cuda").half()
        for rows, columns in ((64, 128), (128, 64), (100, 72), (64, 128)):
            source = memory[: rows * columns].view(rows, columns)
            target = torch.full((rows + 1, columns), -1.0, device="cuda", dtype=torch.float16)
            self.copy(source, target[:rows])
            assert torch.equal(target[:rows], source)
            assert bool((target[rows:] == -1.0).all())

    def test_a_tensor_that_moved_is_found_again(self) -> None:
        for seed in range(4):
            source = torch.full((128, 64), float(seed), device="cuda", dtype=torch.float16)
            target = torch.empty_like(source)
            self.copy(source, target)
            assert torch.equal(target, source)

    def test_one_descriptor_a_tensor_and_no_memory_is_held(self) -> None:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        tensor = torch.zeros(128, 64, device="cuda", dtype=torch.float16)
        assert descriptor(tensor, (64, 64)) is descriptor(tensor, (64, 64))
        assert pair_descriptor(tensor[:64], tensor[64:], (2, 64, 64)) is pair_descriptor(
            tensor[:64], tensor[64:], (2, 64, 64)
        )
        del tensor
        assert torch.cuda.memory_allocated() == before

    def test_host_time_with_descriptors(self) -> None:
        source, target = (torch.zeros(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
        first, second = descriptor(source, (64, 64)).triton, descriptor(target, (64, 64)).triton
        direct, usual = _microseconds(
            lambda: self.copy(source, target),
            lambda: copy_box_kernel[(1,)](first, second, ROWS=64, COLUMNS=64),
        )
        print(f"direct {direct:.1f} us, kernel[grid] with ready descriptors {usual:.1f} us")
        assert direct < usual
