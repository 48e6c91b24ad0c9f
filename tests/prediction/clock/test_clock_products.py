"""The tile model of matrix products: floors, waves, splits, batches."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.prediction.clock.products import ProductRates, attention_us, best_tile, product_us

RATES = ProductRates(
    multiprocessors=100,
    element_bytes=2,
    tflops=800.0,
    cache_tbps=20.0,
    tile_start_us=0.5,
    store_us=3.0,
    latency_us=2.0,
    cold_tbps=4.0,
    warm_tbps=8.0,
    split_us=2.0,
    split_tbps=4.0,
)
SIDES = st.integers(1, 20_000)


def us(m, n, k, batch=1, *, warm=True, rates=RATES):
    (found,) = product_us(rates, *(np.array([float(side)]) for side in (m, n, k, batch)), warm=warm)
    return float(found)


@given(SIDES, SIDES, SIDES, st.integers(1, 64), st.booleans())
def test_nothing_is_faster_than_the_rates_allow(m, n, k, batch, warm):
    took = us(m, n, k, batch, warm=warm)
    bandwidth = RATES.warm_tbps if warm else RATES.cold_tbps
    arithmetic = 2.0 * m * n * k * batch / (RATES.tflops * 1e6)
    memory = 2 * batch * (m * n + m * k + n * k) / (bandwidth * 1e6)
    assert took >= (RATES.latency_us + max(arithmetic, memory)) * (1 - 1e-12)


@given(SIDES, SIDES, SIDES, st.integers(0, 3), st.floats(1.0, 4.0))
def test_more_work_takes_no_less(m, n, k, which, factor):
    sides = [m, n, k, 1]
    grown = list(sides)
    grown[which] = int(np.ceil(grown[which] * factor))
    assert us(*grown) >= us(*sides) * (1 - 1e-12)


@given(SIDES, SIDES, SIDES)
def test_operands_in_memory_take_no_less_than_operands_in_the_cache(m, n, k):
    assert us(m, n, k, warm=False) >= us(m, n, k, warm=True)


def test_a_large_product_comes_close_to_the_rate_of_its_main_loop():
    rate = 2.0 * 16384**3 / us(16384, 16384, 16384) / 1e6
    assert 0.85 * RATES.tflops < rate < RATES.tflops


NO_TRAFFIC = replace(RATES, cold_tbps=1e9, warm_tbps=1e9)


def test_one_tile_too_many_costs_a_whole_wave():
    """Results of the smallest tile, too short to split: 100 multiprocessors do 100 in a wave, 101 to 200 in two."""
    full, one_more, two = (us(64, 8, 64, batch, rates=NO_TRAFFIC) for batch in (100, 101, 200))
    assert one_more == two
    assert (one_more - NO_TRAFFIC.latency_us) == pytest.approx(2 * (full - NO_TRAFFIC.latency_us))


def test_what_the_same_tiles_cover_takes_the_same_time():
    assert us(64, 64 * 99 + 1, 8192, rates=NO_TRAFFIC) == us(64, 64 * 100, 8192, rates=NO_TRAFFIC)


def test_few_tiles_and_a_long_reduction_are_split():
    _, _, parts = best_tile(RATES, 64, 256, 65536, 1)
    assert parts > 1
    assert best_tile(RATES, 8192, 8192, 1024, 1)[2] == 1


def test_the_best_tile_suits_the_result():
    rows, columns, _ = best_tile(RATES, 8192, 8192, 8192, 1)
    assert rows * columns >= 128 * 128
    assert best_tile(RATES, 8, 8192, 4096, 1)[0] <= 16
    assert best_tile(RATES, 8192, 8, 4096, 1)[1] <= 16


def test_a_batch_fills_the_multiprocessors():
    """A product with a single tile leaves 99 of 100 idle; ten at a time cost next to nothing more."""
    assert us(128, 128, 512, batch=10) < 1.2 * us(128, 128, 512)
    assert us(128, 128, 512, batch=10_000) > 50 * us(128, 128, 512)


@given(st.lists(st.tuples(SIDES, SIDES, SIDES, st.integers(1, 8)), min_size=1, max_size=5))
def test_many_products_at_once_take_what_each_takes_alone(products):
    columns = [np.array(column, dtype=float) for column in zip(*products, strict=True)]
    assert product_us(RATES, *columns, warm=False) == pytest.approx([us(*p, warm=False) for p in products])


def test_more_products_than_fit_one_table():
    many = np.full(5000, 512.0)
    assert np.ptp(product_us(RATES, many, many, many, np.ones(5000), warm=True)) == 0


def test_attention_runs_at_the_rate_of_products():
    assert attention_us(RATES, 8e9) == 2.0 + 8e9 / 800e6
