"""The clock as a whole, on programs written by hand: the sample MLP, attention, memsets, generated kernels."""

from math import log
from pathlib import Path
from statistics import median

import pytest

import foretrace
from foretrace.knowledge.calibration.margins import MEASURED, REDUCTION, STAND_IN
from foretrace.knowledge.gpus import find
from foretrace.knowledge.kernels import decode
from foretrace.prediction.clock import host_us, launch_us, schedule
from foretrace.prediction.work import Access, Operator, Program, Work
from prediction.programs import H200, geglu

SAMPLE = Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"
MB = 1 << 20


def program(*operators):
    return Program("p", list(operators), "eager", "forward", {})


def one(work, concrete=(), gpu=H200):
    ((row,),) = schedule(program(Operator(work.op, work=[work], concrete=concrete)), gpu)
    return row


def memory_bound(op="aten::mul", reads=(64 * MB, 64 * MB), written=64 * MB, kind="elementwise", dtype="bf16", **more):
    read = tuple(Access(index, size) for index, size in enumerate(reads))
    return Work(kind, op, dtype, read, (Access(99, written),), written // 2, **more)


def half_width(row):
    return log(row.high_us / row.us)


def test_the_sample_mlp_is_within_the_interval_and_has_its_rows():
    """The trace that ships with the package: gate, gelu, up, mul, down; a memset before gate and up."""
    rows = [row for rows in schedule(geglu(), H200) for row in rows]
    assert [row.kind for row in rows] == ["memset", "gemm", "elementwise", "memset", "gemm", "elementwise", "gemm"]
    report = foretrace.explain(SAMPLE)
    steps = report.steps
    assert [(step.kernels, step.memsets) for step in steps] == [(5, 2)] * len(steps)
    busy = median(step.gpu_busy_us for step in steps)
    assert sum(row.low_us for row in rows) < busy < sum(row.high_us for row in rows)
    assert sum(row.us for row in rows) == pytest.approx(busy, rel=0.05)
    recorded = [k.duration_us for k in report.kernels if k.step == steps[-1].index]
    assert [row.us for row in rows if row.row == "kernel"] == pytest.approx(recorded, rel=0.15)


def test_plans_come_in_the_order_of_the_work():
    inner = Operator("aten::mul", work=[memory_bound()])
    outer = Operator("outer", children=[inner], work=[memory_bound("aten::relu", reads=(MB,), written=MB)])
    tree = program(outer, Operator("aten::gelu", work=[memory_bound("aten::gelu")]))
    assert [decode(rows[0].name).decoded["ops"] for rows in schedule(tree, H200)] == [
        [work.op.removeprefix("aten::")] for work in tree.work()
    ]
    assert len(tree.work()) == 3


def test_an_operators_own_measurements_are_narrower_than_a_stand_ins():
    measured, stand_in = one(memory_bound("aten::mul")), one(memory_bound("aten::atan2"))
    assert (half_width(measured), half_width(stand_in)) == (pytest.approx(MEASURED), pytest.approx(STAND_IN))
    assert stand_in.us == measured.us
    total = one(memory_bound("aten::sum", reads=(64 * MB,), written=2, kind="reduction", reduced=32 * MB))
    assert half_width(total) == pytest.approx(REDUCTION)


def test_another_gpu_widens_the_interval_and_scales_with_its_bandwidth():
    here, there = one(memory_bound()), one(memory_bound(), gpu=find("A100"))
    assert half_width(there) > half_width(here)
    assert there.us / here.us == pytest.approx(4800 / 2039, rel=0.05)
    assert here.basis == "bandwidth, corrected by measured calls of the H200"
    assert there.basis == "bandwidth, corrected by measured calls of the H200, scaled by the datasheets"


def test_no_memory_bound_kernel_beats_memory():
    moved = 3 * 256 * MB
    row = one(memory_bound(reads=(256 * MB, 256 * MB), written=256 * MB))
    assert row.bytes == moved
    assert row.us > moved / H200.memory_bandwidth_gbps / 1e3


def test_what_the_kernel_before_wrote_is_read_from_the_cache():
    first = memory_bound("aten::relu", reads=(8 * MB,), written=8 * MB)
    second = Work("elementwise", "aten::relu", "bf16", (Access(99, 8 * MB),), (Access(98, 8 * MB),), 4 * MB)
    stranger = Work("elementwise", "aten::relu", "bf16", (Access(97, 8 * MB),), (Access(98, 8 * MB),), 4 * MB)
    flush = memory_bound("aten::relu", reads=(512 * MB,), written=512 * MB)

    def last_us(*work):
        (*_, (row,)) = schedule(program(*(Operator(item.op, work=[item]) for item in work)), H200)
        return row.us

    assert last_us(flush, first, second) < 0.8 * last_us(flush, first, stranger)


def attention(op, causal, gpu=H200):
    size = 4 * 16 * 1024 * 64 * 2
    work = Work(
        kind="attention",
        op=op,
        dtype="bf16",
        reads=tuple(Access(index, size) for index in range(3)),
        writes=(Access(9, size),),
        elements=size // 2,
        flops=4 * 4 * 16 * 1024 * 1024 * 64,
    )
    place = 4 if "flash" in op else 6
    return one(work, ("",) * place + (str(causal),), gpu)


@pytest.mark.parametrize(
    "op", ["aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention"]
)
def test_causal_attention_is_cheaper(op):
    full, causal = attention(op, False), attention(op, True)
    assert 0.4 < causal.us / full.us < 0.95
    assert full.us > full.flops / H200.peak_tflops["bf16"] / 1e6
    assert full.basis == "the sustained rate, corrected by measured attention of the H200"


def test_attention_on_another_gpu():
    here = attention("aten::_scaled_dot_product_flash_attention", False)
    there = attention("aten::_scaled_dot_product_flash_attention", False, find("A100"))
    assert there.us > 2 * here.us
    assert half_width(there) > half_width(here)


def test_a_convolution_runs_at_the_rate_of_products():
    work = Work("convolution", "aten::cudnn_convolution", "bf16", (Access(1, MB),), (Access(2, MB),), MB, flops=10**11)
    row = one(work)
    assert row.us > 10**11 / H200.peak_tflops["bf16"] / 1e6
    assert row.basis == "the sustained rate of matrix products"


def test_convolutions_of_fp32_take_tf32_where_cudnn_has_it():
    def convolution(gpu):
        accesses = (Access(1, MB),), (Access(2, MB),)
        return one(Work("convolution", "aten::convolution", "fp32", *accesses, MB, flops=10**12), gpu=find(gpu))

    for gpu, key, unit in (("H200", "tf32", "tf32"), ("V100 16GB", "fp32", "fp32"), ("MI300X", "fp32", "fp32")):
        row = convolution(gpu)
        floor = 10**12 / find(gpu).peak_tflops[key] / 1e6
        assert floor < row.us < 2.5 * floor, gpu
        assert decode(row.name).decoded["dtype"] == unit


def test_what_a_convolution_writes_has_to_reach_the_memory():
    reads, writes = (Access(1, MB),), (Access(2, 100 * MB),)
    row = one(Work("convolution", "aten::convolution", "bf16", reads, writes, 50 * MB, flops=10**9))
    assert row.us > 100 * MB / H200.memory_bandwidth_gbps / 1e3


def test_an_unknown_operator_of_an_unknown_type_still_streams_its_bytes():
    row = one(memory_bound("mylib::thing", dtype="float8_e4m3fn", kind="other"))
    assert row.us > 192 * MB / H200.memory_bandwidth_gbps / 1e3
    assert decode(row.name).kind == "other"


def test_memsets_and_copies_are_rows_of_the_copy_engine():
    fill = one(Work("memset", "aten::zero_", "fp32", (), (Access(1, 4),), 1))
    copy = one(memory_bound("aten::copy_", reads=(MB,), written=MB, kind="memcpy"))
    assert (fill.row, fill.name, fill.bytes) == ("memset", "Memset (Device)", 4)
    assert (copy.row, copy.name) == ("memcpy", "Memcpy DtoD (Device -> Device)")
    assert 0.5 < fill.us < 1.5


def test_a_generated_kernel_keeps_its_name_and_pays_for_an_exponential():
    plain, costly = (
        one(memory_bound("triton_poi_fused_x_0", reads=(4 * MB, 4 * MB), written=4 * MB, generated=True, parts=parts))
        for parts in (("mul",), ("gelu", "mul"))
    )
    assert plain.name == costly.name == "triton_poi_fused_x_0"
    assert costly.us >= plain.us


def test_an_expanded_gradient_is_walked_in_full_but_comes_from_the_cache():
    """The gradient of a sum is one number, expanded: summing it reads 4 bytes again and again."""

    def total(read):
        flush = memory_bound("aten::relu", reads=(512 * MB,), written=512 * MB)
        reduce = Work(
            "reduction", "aten::sum", "bf16", (Access(5, read),), (Access(6, 4096),), 8 * MB,
            reduced=4096, vectorised=False,
        )  # fmt: skip
        return schedule(program(Operator("a", work=[flush]), Operator("b", work=[reduce])), H200)[1][0].us

    real, expanded = total(16 * MB), total(4)
    assert real * 0.5 < expanded < real * 0.85


def test_host_times_come_from_the_table():
    assert host_us(Operator("aten::mm", work=[memory_bound()])) == 10.0
    assert host_us(Operator("aten::never_seen", work=[memory_bound()])) > host_us(Operator("aten::never_seen"))
    assert launch_us(H200) == launch_us(find("A100")) == 4.0


def test_a_broadcast_pass_is_walked_in_full_and_costs_more_than_a_stream():
    """An operand that is one row is few bytes, but its kernel computes an address an element."""
    stream = one(memory_bound("aten::mul", reads=(8 * MB, 8 * MB), written=8 * MB))
    broadcast = one(memory_bound("aten::mul", reads=(8 * MB, 2048), written=8 * MB, vectorised=False))
    of_a_scalar = one(memory_bound("aten::div", reads=(2, 8), written=8 * MB, vectorised=False))
    assert broadcast.us > 1.5 * stream.us
    assert of_a_scalar.us == pytest.approx(broadcast.us, rel=0.25)


def test_a_convolution_that_computes_little_takes_as_long_as_its_bytes():
    def convolution(flops):
        reads = (Access(1, 256 * MB), Access(2, 1024))
        return one(
            Work("convolution", "aten::convolution", "bf16", reads, (Access(3, 256 * MB),), 128 * MB, flops=flops)
        )

    depthwise, dense = convolution(9 * 128 * MB * 2), convolution(9 * 128 * MB * 2 * 4096)
    assert depthwise.us > 2 * 256 * MB / H200.memory_bandwidth_gbps / 1e3
    assert dense.us > 5 * depthwise.us
