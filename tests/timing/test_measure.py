"""Timing against a clock that only moves when the timed call moves it."""

from __future__ import annotations

import pytest

from foretrace.timing import CudaEventClock, HostClock, clock_for, interleave, measure


class FakeTime:
    """Nanoseconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_samples_are_what_the_calls_took() -> None:
    time = FakeTime()
    durations = iter([9_000, 1_000, 2_000, 4_000])

    def call() -> None:
        time.now += next(durations)

    result = measure(call, clock=HostClock(time), warmup=1, runs=3)
    assert result.samples_us == (1.0, 2.0, 4.0)  # the slow first call was warm-up
    assert result.median_us == 2.0
    assert result.iqr_us == 1.5
    assert (result.runs, result.warmup, result.method) == (3, 1, "perf_counter")


def test_queued_work_is_waited_for_before_each_mark() -> None:
    time = FakeTime()
    queued = [0]

    def synchronize() -> None:
        time.now += queued[0]
        queued[0] = 0

    def call() -> None:
        queued[0] += 7_000

    assert measure(call, clock=HostClock(time, synchronize), warmup=0, runs=2).samples_us == (7.0, 7.0)


def test_calls_take_turns_and_the_order_flips() -> None:
    order: list[str] = []
    result = interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, warmup=0, runs=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert set(result) == {"a", "b"}


def test_of_many_calls_neighbours_change_and_every_round_has_its_reverse() -> None:
    order: list[str] = []
    interleave({name: lambda name=name: order.append(name) for name in "abcdef"}, warmup=0, runs=20)
    rounds = [order[at : at + 6] for at in range(0, 120, 6)]
    assert rounds[0] == list("abcdef")
    assert all(sorted(each) == list("abcdef") for each in rounds)
    assert all(one == other[::-1] for one, other in zip(rounds[::2], rounds[1::2], strict=True))
    before_a = {each[each.index("a") - 1] for each in rounds if each[0] != "a"}
    assert len(before_a) == 5


def test_drift_touches_interleaved_calls_alike() -> None:
    # Both calls cost the same, but the machine slows down all the while.
    time = FakeTime()

    def call() -> None:
        time.now += 1_000 + time.now // 100

    result = interleave({"a": call, "b": call}, clock=HostClock(time), warmup=0, runs=40)
    assert result["a"].median_us == pytest.approx(result["b"].median_us, rel=0.02)


def test_a_budget_buys_more_runs_but_never_more_than_allowed() -> None:
    def sleepless() -> None:
        sum(range(200))

    assert measure(sleepless, warmup=0, runs=2, budget_s=30.0, max_runs=17).runs == 17
    assert measure(sleepless, warmup=0, runs=2, budget_s=0.0).runs == 2


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="runs"):
        measure(lambda: None, runs=0)
    with pytest.raises(ValueError, match="warmup"):
        measure(lambda: None, warmup=-1)


def test_errors_of_the_call_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 // 0)


def test_the_clock_follows_the_device() -> None:
    pytest.importorskip("torch")
    assert isinstance(clock_for("cpu"), HostClock)
    assert isinstance(clock_for("cuda:1"), CudaEventClock)  # only made here: no GPU is touched
