"""Statements made of samples, and the driver's answer about clocks."""

from __future__ import annotations

import pytest

from foretrace.capture.bench.limits import drifted
from foretrace.capture.bench.load import parse_load
from foretrace.capture.bench.outcome import compare, note_timing, pays_after
from foretrace.model.bench import CopyRate, GemmRate, Limits, Ratio, Result, Work
from foretrace.timing import Measurement


def timed(name: str, *samples: float, state: str = "ok", first: tuple[float, ...] = ()) -> Result:
    result = Result(name=name, variant=name, state=state, first_calls_us=list(first))  # type: ignore[arg-type]
    note_timing(result, Measurement(samples, "perf_counter", 0), Work(floor_us=5.0), compiled=bool(first))
    return result


def test_compiling_pays_after_its_time_over_the_gain_of_a_call() -> None:
    ratio = Ratio(median=0.8, low=0.75, high=0.9)
    found = pays_after(1_000_000.0, 100.0, ratio, "faster")
    assert (found.state, found.calls, found.low, found.high) == ("after", 50_000, 40_000, 100_000)
    assert pays_after(1.0, 100.0, ratio, "slower").state == "never"
    assert pays_after(1.0, 100.0, ratio, "none").state == "unknown"


def test_setup_is_what_the_first_calls_took_above_the_median() -> None:
    result = timed("compile", *[10.0] * 7, first=(2_000.0, 30.0, 9.0))
    assert result.setup_us == 1_990.0 + 20.0
    assert result.of_floor == 2.0
    eager = timed("eager", *[10.0] * 7)
    assert eager.setup_us is None
    assert eager.missing["setup_us"] == "it is not compiled"


def test_a_difference_smaller_than_two_equal_calls_show_is_none() -> None:
    results = [timed("a", *[100.0] * 20), timed("b", *[99.2] * 20), timed("c", *[98.0] * 20)]
    compare(results)
    assert [result.difference for result in results] == ["first", "none", "faster"]


def test_noise_that_covers_one_is_no_difference() -> None:
    noisy = [90.0, 112.0, 95.0, 108.0, 101.0, 97.0, 104.0, 93.0]
    results = [timed("a", *[100.0] * 8), timed("b", *noisy)]
    compare(results)
    assert results[1].difference == "none"


def test_after_a_first_variant_that_failed_there_are_no_ratios() -> None:
    failed = Result(name="a", variant="a", state="failed", reason="no compiler")
    results = [failed, timed("b", *[1.0] * 8)]
    compare(results)
    assert failed.ratio is None
    assert results[1].ratio is None
    assert results[1].missing["ratio"] == "a, the first variant, was not timed"


# ---- clocks ----


def test_the_row_of_this_gpu_is_read() -> None:
    answer = "GPU-aa, 1980, 312.5, 0x0000000000000000\nGPU-bb, 1200, 699.8, 0x0000000000000024\n"
    load = parse_load(answer, "bb")
    assert (load.sm_clock_mhz, load.power_w) == (1200.0, 699.8)
    assert load.slowed_by == ["the power limit", "heat (software)"]
    assert parse_load(answer, "aa").slowed_by == []


def test_what_the_driver_does_not_say_is_missing() -> None:
    load = parse_load("GPU-aa, [N/A], 300, [Not Supported]\n", "")
    assert load.sm_clock_mhz is None
    assert load.missing == {"sm_clock_mhz": "the driver says [N/A]", "slowed_by": "the driver says [Not Supported]"}
    assert parse_load("GPU-aa, 1, 2, 0x0\nGPU-bb, 1, 2, 0x0\n", "cc").missing
    assert parse_load("", "").missing["power_w"] == "nvidia-smi listed no GPU"


@pytest.mark.parametrize(("end", "sentences"), [(99.0, 0), (90.0, 1), (None, 0)])
def test_a_device_that_slowed_down_is_told(end: float | None, sentences: int) -> None:
    gemm = GemmRate(dtype="bf16", size=1, flops=1, tflops=100.0, best_us=1, median_us=1, runs=1, end_tflops=end)
    copy = CopyRate(size=1, bytes=1, gbps=100.0, best_us=1, median_us=1, runs=1, end_gbps=100.0)
    found = drifted(Limits(gemm=[gemm], copy=copy))
    assert len(found) == sentences
    assert all("bf16 GEMM rate fell by 10.0 %" in sentence for sentence in found)
