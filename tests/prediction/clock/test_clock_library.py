"""The rows of a matrix product: kernels, split sums, counters; on the GPU that was measured and on another."""

from math import log

import pytest

from foretrace.knowledge.calibration.margins import MODEL_ONLY, OTHER_GPU
from foretrace.knowledge.gpus import find
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.lowering.cublas import SPLIT_K_ROLE
from foretrace.prediction.clock.library import product_rows
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.work import Access, Product, Work

H200 = Machine(find("H200"))
H100 = Machine(find("H100"))
A100 = Machine(find("A100"))


def product(m, n, k, batch=1, *, layout="TN", dtype="bf16", bias=False):
    size = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}[dtype]
    return Work(
        kind="gemm",
        op="aten::addmm" if bias else "aten::bmm" if batch > 1 else "aten::mm",
        dtype=dtype,
        reads=(Access(1, size * batch * m * k), Access(2, size * batch * n * k)),
        writes=(Access(3, size * batch * m * n),),
        elements=batch * m * n,
        flops=2 * batch * m * n * k,
        product=Product(m, n, k, batch, layout, bias=bias),
    )


def rows(*sizes, clock=H200, missing=1.0, **more):
    return product_rows(product(*sizes, **more), missing, clock)


def half_width(row):
    return log(row.high_us / row.us)


def test_a_large_product_is_cleared_for_and_then_runs_as_one_kernel():
    """The gate projection of the sample MLP: 768 tiles of 256 × 128 on 132 multiprocessors."""
    cleared, kernel = rows(8192, 3072, 768)
    assert (cleared.row, cleared.name, cleared.bytes, cleared.flops) == ("memset", "Memset (Device)", 4, None)
    assert 0.6 < cleared.us < 1.0
    assert (kernel.row, kernel.kind, decode(kernel.name).family) == ("kernel", "gemm", "nvjet")
    assert kernel.flops == 2 * 8192 * 3072 * 768
    assert kernel.bytes == 2 * (8192 * 768 + 3072 * 768 + 8192 * 3072)


def test_its_down_projection_has_too_few_tiles_for_a_counter():
    (kernel,) = rows(8192, 768, 3072)
    assert decode(kernel.name).family == "nvjet"


def test_a_product_of_few_rows_is_split_and_summed():
    split, total = rows(1, 4096, 8192)
    assert split.name.count("splitK") == 1
    assert decode(total.name).decoded["role"] == SPLIT_K_ROLE
    assert (split.flops, total.flops, total.bytes) == (2 * 4096 * 8192, None, None)
    assert split.us > total.us > 0.5


def test_fp32_products_run_on_fp32_kernels():
    found = [row for row in rows(2048, 4096, 1024, dtype="fp32") if row.row == "kernel"]
    assert all("nvjet" not in row.name for row in found)
    assert sum(row.us for row in found) > 2 * 2048 * 4096 * 1024 / find("H200").peak_tflops["fp32"] / 1e6


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("layout", ["TN", "NN", "NT"])
@pytest.mark.parametrize("sizes", [(1, 512, 512), (64, 5000, 768), (1000, 1001, 333), (4096, 4096, 4096, 4)])
def test_every_row_has_a_name_that_reads_back_and_an_interval_around_its_time(sizes, layout, dtype):
    for row in rows(*sizes, layout=layout, dtype=dtype):
        assert row.row == "memset" or decode(row.name).kind == row.kind
        assert 0 < row.low_us < row.us < row.high_us


def test_operands_in_memory_take_longer():
    cold, mixed, warm = (sum(row.us for row in rows(16, 4096, 4096, missing=share)) for share in (1.0, 0.5, 0.0))
    assert cold > mixed > warm
    assert mixed == pytest.approx((cold + warm) / 2)


def test_the_more_neighbours_disagree_the_wider_the_interval():
    widths = {round(half_width(rows(m, 4096, 1024)[-1]), 6) for m in (3, 48, 300, 1536, 8192)}
    assert len(widths) == 5
    assert min(widths) > 0.05


def test_far_from_everything_measured_only_the_model_speaks():
    (kernel,) = [row for row in rows(8, 8, 8_000_000) if SPLIT_K_ROLE not in str(decode(row.name).decoded)]
    assert kernel.basis == "the tile model alone"
    assert half_width(kernel) == pytest.approx(MODEL_ONLY)


def test_an_element_type_nobody_measured_has_the_model_alone():
    found = rows(4096, 4096, 4096, dtype="fp64")
    assert {row.basis for row in found} == {"the tile model alone"}
    assert sum(row.us for row in found) > 2 * 4096**3 / find("H200").peak_tflops["fp64_tensor"] / 1e6


def test_a_gpu_of_the_same_architecture_has_the_kernels_and_a_wider_interval():
    (_, here), (_, there) = rows(8192, 3072, 768), rows(8192, 3072, 768, clock=H100)
    assert there.name == here.name
    assert half_width(there) > half_width(here)
    assert there.basis == "the tile model, corrected by measured products of the H200, scaled by the datasheets"


def test_another_architecture_has_names_of_our_own():
    (kernel,) = rows(8192, 3072, 768, clock=A100, bias=True)
    decoded = decode(kernel.name)
    assert decoded.family == "predicted"
    assert decoded.decoded["layout"] == "TN"
    assert decoded.decoded["epilogue"] == ["bias"]
    assert not decoded.unknown
    assert kernel.basis == "the tile model with constants of the H200, scaled by the datasheets"
    assert half_width(kernel) == pytest.approx((MODEL_ONLY**2 + OTHER_GPU**2) ** 0.5)


def test_a_modelled_split_has_a_sum_after_it_and_both_take_the_products_time():
    split, total = rows(16, 512, 65536, clock=A100)
    assert decode(split.name).decoded["splitk"] is True
    assert decode(total.name).decoded["role"] == SPLIT_K_ROLE
    assert (split.flops, total.flops) == (2 * 16 * 512 * 65536, None)
    assert total.us <= split.us


def test_an_element_type_the_datasheet_lacks_is_a_key_error():
    with pytest.raises(KeyError, match="bf16"):
        rows(64, 64, 64, clock=Machine(find("V100")))
