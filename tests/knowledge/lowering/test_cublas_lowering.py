"""The memset before Hopper's products, at numbers counted by hand and in every recording at hand."""

from itertools import pairwise
from pathlib import Path

import pytest

import foretrace
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.lowering.cublas import (
    COUNTER_BYTES,
    TILE_COUNTER,
    clears_tile_counter,
    has_tile_counter,
)

TRACES = Path(__file__).parents[2] / "data" / "traces"
SMS = 132  # of an H200: 330 tiles are dealt in order, 331 are not
WIDE = decode("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT")
NARROW = decode("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT")


@pytest.mark.parametrize(
    ("kernel", "sizes", "tiles", "counter"),
    [
        # The sample MLP, 8192 × 768 × 3072: its gate and up projections have the memset, its down projection has not.
        (WIDE, (8192, 3072, 1), 768, True),
        (NARROW, (8192, 768, 1), 256, False),
        (WIDE, (128, 256, 330), 330, False),
        (WIDE, (128, 256, 331), 331, True),
    ],
)
def test_more_than_two_and_a_half_tiles_a_multiprocessor(kernel, sizes, tiles, counter):
    m, n, batch = sizes
    tile_m, tile_n = kernel.decoded["tile_m"], kernel.decoded["tile_n"]
    assert -(-m // tile_m) * -(-n // tile_n) * batch == tiles
    assert has_tile_counter(kernel, m, n, batch, SMS) is counter


@pytest.mark.parametrize("name", ["ampere_sgemm_128x64_tn", "Memset (Device)", "triton_poi_fused_mul_0", "nvjet_odd"])
def test_of_other_kernels_nothing_is_known(name):
    assert has_tile_counter(decode(name), 8192, 8192, 1, SMS) is None


def test_a_memset_of_four_bytes_beside_such_a_kernel_clears_the_counter():
    assert clears_tile_counter(WIDE, COUNTER_BYTES)
    assert not clears_tile_counter(WIDE, 65536)
    assert not clears_tile_counter(WIDE, None)
    assert not clears_tile_counter(decode("ampere_sgemm_128x64_tn"), COUNTER_BYTES)
    assert "more than 2.5 tiles" in TILE_COUNTER


def products(path):
    """``(decoded kernel, m, n, batch, whether the row before it is a memset)`` of each product of a recording."""
    trace = foretrace.load(path)
    report = foretrace.explain(trace)
    rows = sorted(trace.gpu_rows.tolist(), key=lambda row: int(trace.start[row]))
    cleared = {
        (trace.name(row), trace.start_us(row)): trace.kind[before] == RowKind.MEMSET for before, row in pairwise(rows)
    }
    shapes = {}
    for gemm in report.gemms:
        shapes.setdefault((gemm.kernel, gemm.flops), []).append((gemm.m, gemm.n, gemm.batch or 1))
    for kernel in report.kernels:
        known = shapes.get((kernel.name, kernel.flops), [])
        before = cleared.get((kernel.name, kernel.start_us))
        if len(known) == 1 and before is not None:
            yield decode(kernel.name), *known[0], bool(before)


@pytest.mark.parametrize("name", ["mlp_eager", "mlp_compile", "mlp_liger", "mlp_train_eager", "linear_eager"])
def test_the_law_holds_in_recordings(name):
    judged = [
        (has_tile_counter(kernel, m, n, batch, SMS), seen)
        for kernel, m, n, batch, seen in products(TRACES / f"{name}.json.gz")
        if kernel.family == "nvjet"
    ]
    assert judged
    assert all(law is seen for law, seen in judged)
