"""Where calls lie among the measured ones, and what a memory-bound kernel takes before they correct it."""

import numpy as np
import pytest

from foretrace.prediction.clock.memory import MemoryRates, memory_us
from foretrace.prediction.clock.points import (
    PRODUCT_AXES,
    attention_point,
    dtype_and_layout,
    memory_point,
    product_group,
    product_points,
)

NO, YES = np.array([False]), np.array([True])


def point(m, n, k, batch=1, *, layout="TN", dtype="bf16", bias=NO, fp16=NO):
    (found,) = product_points(np.array([[m, n, k, batch]]), layout, bias=bias, dtype=dtype, fp16=fp16)
    return dict(zip((*PRODUCT_AXES[:-3], "t0", "t1", "t2"), found.tolist(), strict=True))


def test_a_doubling_is_one():
    here, there = point(1024, 512, 256), point(2048, 512, 256)
    assert there["m"] - here["m"] == 1
    assert (there["n"], there["k"], there["batch"]) == (here["n"], here["k"], here["batch"]) == (9, 8, 0)


def test_flags_are_axes_of_their_own():
    assert point(64, 64, 64)["bias"] == point(64, 64, 64)["fp16"] == 0
    assert point(64, 64, 64, bias=YES)["bias"] > 0
    assert point(64, 64, 64, fp16=YES)["fp16"] > 0


@pytest.mark.parametrize(
    ("layout", "sizes", "first", "second"),
    [
        ("TN", (7, 7, 64), False, False),  # both operands lie along k
        ("TN", (64, 64, 7), True, True),
        ("NN", (64, 7, 64), False, True),  # the second operand lies along n
        ("NN", (7, 64, 64), False, False),
        ("NT", (7, 64, 64), True, False),  # the first lies along m, the second along n
        ("NT", (64, 64, 7), False, False),
    ],
)
def test_misaligned_is_the_side_along_which_an_operand_lies(layout, sizes, first, second):
    found = point(*sizes, layout=layout)
    assert (found["first misaligned"] > 0, found["second misaligned"] > 0) == (first, second)


def test_the_result_lies_along_its_columns():
    assert point(64, 63, 64)["result misaligned"] > 0
    assert point(63, 64, 64)["result misaligned"] == 0


def test_a_result_lies_along_its_columns():
    assert point(64, 7, 64)["result misaligned"] > 0
    assert point(7, 64, 64)["result misaligned"] == 0


def test_sixteen_bytes_are_four_or_eight_elements():
    assert point(64, 64, 4, dtype="fp32")["first misaligned"] == 0
    assert point(64, 64, 4, dtype="bf16")["first misaligned"] > 0


def test_tiles_jump_where_sizes_do_not():
    just, over = point(128, 128, 64), point(129, 128, 64)
    assert over["m"] - just["m"] < 0.02
    assert over["t1"] - just["t1"] > 0.5


def test_bf16_and_fp16_share_a_group_and_a_group_tells_its_layout():
    assert product_group("bf16", "TN") == product_group("fp16", "TN") == "16-bit TN"
    assert dtype_and_layout(product_group("fp16", "NT")) == ("bf16", "NT")
    assert dtype_and_layout(product_group("fp32", "NN")) == ("fp32", "NN")


def test_memory_and_attention_points():
    assert memory_point(1024, 1, strided=False).tolist() == [10, 0, 0]
    assert memory_point(0, 0, strided=False).tolist() == [0, 0, 0]
    assert memory_point(1024, 256, strided=True)[1:].tolist() == [4, 1]
    masked = attention_point(2.0**20, 2**10, causal=True) - attention_point(2.0**20, 2**10, causal=False)
    assert masked[:2].tolist() == [0, 0]
    assert masked[2] > 2  # farther than anything counts as near


def test_a_memory_bound_kernel_takes_a_latency_and_its_bytes():
    rates = MemoryRates(latency_us=1.0, cold_tbps=4.0, warm_tbps=8.0)
    assert memory_us(rates, 0, warm=True) == 1.0
    assert memory_us(rates, 40_000_000, warm=False) == pytest.approx(11.0)
    assert memory_us(rates, 40_000_000, warm=True) == pytest.approx(6.0)
