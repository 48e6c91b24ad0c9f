"""The device's limits, with a clock that says how long each call took."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.timing import HostClock, interleave
from foretrace.timing.limits import copy_limit, gemm_limit

torch = pytest.importorskip("torch")


class Ticks:
    """Every look at the clock finds it 1 ms later."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


def test_a_gemm_is_two_flops_for_each_of_n_cubed() -> None:
    limit = gemm_limit("cpu", torch.float32, sizes=(8, 8), clock=HostClock(Ticks()), runs=3)
    assert (limit.size, limit.amount) == (8, 2 * 8**3)
    assert limit.timing.samples_us == (1000.0, 1000.0, 1000.0)
    assert limit.rate == pytest.approx(1024 / 1e-3)
    assert limit.repeat().runs == 3


def test_products_grow_until_they_are_long_enough_or_the_last_size_is_reached() -> None:
    assert gemm_limit("cpu", torch.float32, sizes=(8, 40), clock=HostClock(Ticks()), runs=1).size == 32


def test_a_copy_counts_what_is_read_and_what_is_written() -> None:
    limit = copy_limit("cpu", size=1000, clock=HostClock(Ticks()), runs=2)
    assert (limit.size, limit.amount) == (1000, 2000)
    assert limit.rate == pytest.approx(2000 / 1e-3)


def test_the_best_sample_is_the_limit() -> None:
    times = iter([0, 9_000, 10_000, 12_000, 20_000, 25_000])
    limit = copy_limit("cpu", size=10, clock=HostClock(lambda: next(times, 30_000)), runs=2)
    assert limit.rate == pytest.approx(20 / (min(limit.timing.samples_us) * 1e-6))


def test_this_cpu_has_a_rate() -> None:
    assert gemm_limit("cpu", torch.float32, sizes=(64, 64), runs=2).rate > 1e6


def test_what_comes_before_a_call_is_not_timed() -> None:
    now = [0]
    order: list[str] = []

    def spend(what: str, ns: int) -> Any:
        def call() -> None:
            order.append(what)
            now[0] += ns

        return call

    found = interleave(
        {"a": spend("a", 1_000), "b": spend("b", 2_000)},
        clock=HostClock(lambda: now[0]),
        warmup=0,
        runs=2,
        before=spend("flush", 50_000),
    )
    assert order == ["flush", "a", "flush", "b", "flush", "b", "flush", "a"]
    assert found["a"].samples_us == (1.0, 1.0)
    assert found["b"].samples_us == (2.0, 2.0)
