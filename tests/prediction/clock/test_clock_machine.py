"""A GPU as the clock sees it: rates from its datasheet, calls from the calibration."""

import numpy as np
import pytest

from foretrace.knowledge.calibration.margins import OTHER_GPU
from foretrace.knowledge.gpus import all_gpus, find
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.points import PRODUCT_AXES
from foretrace.prediction.clock.schedule import machine

H200, H100, A100 = (Machine(find(name)) for name in ("H200", "H100", "A100"))


def test_only_the_measured_gpu_is_exact_and_its_architecture_related():
    assert (H200.calibration.exact, H200.related) == (True, True)
    assert (H100.calibration.exact, H100.related) == (False, True)
    assert (A100.calibration.exact, A100.related) == (False, False)


def test_rates_are_shares_of_the_datasheets():
    here, there = H200.product_rates("bf16"), A100.product_rates("bf16")
    peaks = [find(name).peak_tflops["bf16"] for name in ("H200", "A100")]
    assert here.tflops / peaks[0] == pytest.approx(there.tflops / peaks[1])
    assert here.tflops < peaks[0]
    assert (here.multiprocessors, there.multiprocessors) == (132, 108)
    assert here.tile_start_us == there.tile_start_us
    assert here.cold_tbps <= find("H200").memory_bandwidth_gbps / 1e3
    assert H200.memory.cold_tbps / 4.8 == pytest.approx(A100.memory.cold_tbps / 2.039)
    assert H200.cache_bytes < find("H200").l2_bytes


def test_element_sizes_and_units():
    assert [H200.product_rates(name).element_bytes for name in ("bf16", "fp16", "fp32", "fp64")] == [2, 2, 4, 8]
    assert H200.product_rates("fp32").tflops < find("H200").peak_tflops["fp32"]
    assert H200.product_rates("fp16").tflops == H200.product_rates("bf16").tflops


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_of_the_table_has_a_clock(gpu):
    clock = Machine(gpu)
    assert clock.product_rates("fp32").tflops > 0
    cold, warm = clock.memory_bound_us("aten::mul bf16", 300_000_000)
    assert cold > 300_000_000 / gpu.memory_bandwidth_gbps / 1e3
    assert warm > 0


def test_groups_are_read_once():
    assert H200.group("16-bit TN") is H200.group("16-bit TN")
    assert H200.group("aten::nonsense bf16") is None
    assert machine(find("H200")) is machine(find("H200"))


def test_a_measured_call_corrects_the_bandwidth():
    """A gelu of 50 MB takes longer than a relu of as many bytes, in bf16: its arithmetic shows."""
    relu, gelu = (H200.memory_bound_us(f"aten::{op} bf16", 25_000_000)[1] for op in ("relu", "gelu"))
    assert gelu > relu
    assert H200.memory_bound_us("nothing measured", 4_800_000)[0] == pytest.approx(
        H200.memory.latency_us + 4.8 / H200.memory.cold_tbps
    )


def test_a_group_of_products_knows_its_patterns():
    group = H200.product_group("bf16", "TN")
    assert group.features.shape == (len(group.warm), len(PRODUCT_AXES))
    assert group.pattern.max() < len(H200.calibration.patterns)
    assert np.isfinite(group.features).all()


def test_another_gpu_widens_every_interval_and_says_so():
    assert H200.half_width(0.1) == 0.1
    assert A100.half_width(0.0) == OTHER_GPU
    assert A100.half_width(0.1) > H100.half_width(0.0) > 0.1
    assert H200.basis("measured") == "measured"
    assert A100.basis("measured") == "measured, scaled by the datasheets"
