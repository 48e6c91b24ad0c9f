"""Kernel rows, their costs and rooflines, and the tables made of them."""

import pytest

from builders import TraceBuilder
from foretrace.analysis import explain

BF16 = "c10::BFloat16"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
MUL = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, "
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)"
)


def mm(build: TraceBuilder, at: float, duration: float, m=8192, n=3072, k=768) -> None:
    """One ``aten::mm`` of x[m, k] and a transposed weight, and its kernel."""
    build.op("aten::mm", at, 20, shapes=[[m, k], [k, n]], dtypes=[BF16, BF16], strides=[[k, 1], [1, k]])
    build.kernel(GEMM, at + 20, duration, launch=build.launch(at + 5))


def mul(build: TraceBuilder, at: float, duration: float, shape=(8192, 3072)) -> None:
    build.op("aten::mul", at, 10, shapes=[list(shape)] * 2, dtypes=[BF16] * 2, strides=[[shape[1], 1]] * 2)
    build.kernel(MUL, at + 20, duration, launch=build.launch(at + 2))


def test_a_matrix_product_has_its_flops_bytes_rate_and_share_of_peak():
    build = TraceBuilder()
    mm(build, 0, 50)
    report = explain(build.trace())
    (kernel,) = report.kernels
    assert kernel.flops == 2 * 8192 * 3072 * 768
    assert kernel.bytes == 2 * (8192 * 768 + 768 * 3072 + 8192 * 3072)
    assert kernel.achieved_tflops == pytest.approx(38.65e9 / 50e-6 / 1e12, rel=1e-3)
    assert kernel.bound == "compute"
    assert kernel.of_peak == pytest.approx(773.1 / 989.4, rel=1e-3)
    assert "bf16" in kernel.peak
    (gemm,) = report.gemms
    assert (gemm.m, gemm.n, gemm.k, gemm.batch, gemm.layout, gemm.tile) == (8192, 3072, 768, 1, "TN", "256x128")


def test_a_pointwise_kernel_has_bytes_and_no_flops():
    build = TraceBuilder()
    mul(build, 0, 36)
    (kernel,) = explain(build.trace()).kernels
    assert kernel.flops is None
    assert kernel.bytes == 3 * 8192 * 3072 * 2
    assert kernel.bound == "memory"
    assert kernel.of_peak == pytest.approx(150_994_944 / 36e-6 / 4.8e12, rel=1e-3)


def test_a_rate_above_the_memory_bandwidth_is_cache_assisted_and_no_share_of_peak():
    build = TraceBuilder()
    mul(build, 0, 20)
    report = explain(build.trace())
    (kernel,) = report.kernels
    assert kernel.achieved_gbps == pytest.approx(7549.7, rel=1e-3)
    assert kernel.cache_assisted
    assert kernel.of_peak is None
    assert report.elementwise[0].of_peak is None


def test_a_short_kernel_far_below_both_peaks_is_bound_by_latency():
    build = TraceBuilder()
    mul(build, 0, 2, shape=(64, 64))
    (kernel,) = explain(build.trace()).kernels
    assert kernel.bound == "latency"


def test_an_unknown_gpu_gives_rates_but_no_shares_and_says_so():
    build = TraceBuilder(gpu="Imaginary 9000")
    mm(build, 0, 50)
    report = explain(build.trace())
    (kernel,) = report.kernels
    assert kernel.achieved_tflops is not None
    assert (kernel.of_peak, kernel.peak, kernel.bound) == (None, None, "unknown")
    assert any("Imaginary 9000" in warning for warning in report.trace.warnings)


def test_without_shapes_nothing_is_counted_and_the_report_says_why():
    build = TraceBuilder()
    build.op("aten::mm", 0, 20)
    build.kernel(GEMM, 20, 50, launch=build.launch(5))
    report = explain(build.trace())
    (kernel,) = report.kernels
    assert (kernel.flops, kernel.bytes, kernel.of_peak) == (None, None, None)
    assert not report.trace.has.shapes
    assert report.coverage.flops_counted == 0.0
    assert any("record_shapes" in warning for warning in report.trace.warnings)


def test_the_flops_of_an_operator_go_to_its_product_not_to_its_helper():
    build = TraceBuilder()
    build.op("aten::mm", 0, 40, shapes=[[64, 8192], [8192, 64]], dtypes=[BF16, BF16], strides=[[8192, 1], [64, 1]])
    build.kernel("sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize64x64x64_stage4_warpsize2x2x1_tensor16x8x16"
                 "_kernel", 20, 9, launch=build.launch(5))  # fmt: skip
    build.kernel("void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, false, false>"
                 "(cublasSplitKParams<float>)", 30, 3, launch=build.launch(12))  # fmt: skip
    product, helper = explain(build.trace()).kernels
    assert product.flops == 2 * 64 * 64 * 8192
    assert helper.flops is None


@pytest.mark.parametrize(
    ("main", "helper"),
    [
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4"
            "_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4"
            "_execute_split_k_kernel__5x_cublas",
        ),
        (
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, true>(float*)",
            "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, false, true>"
            "(cublasLt::cublasSplitKParams<float>)",
        ),
    ],
)
def test_of_two_kernels_of_one_product_the_longer_has_the_flops_and_none_are_missing(main, helper):
    build = TraceBuilder()
    build.op(
        "aten::mm", 0, 40, shapes=[[64, 8192], [8192, 64]], dtypes=["float", "float"], strides=[[8192, 1], [64, 1]]
    )
    build.kernel(main, 20, 6, launch=build.launch(5))
    build.kernel(helper, 30, 5, launch=build.launch(12))
    report = explain(build.trace())
    assert [kernel.flops for kernel in report.kernels] == [2 * 64 * 64 * 8192, None]
    assert (report.coverage.products_counted, report.coverage.flops_counted) == (1.0, 1.0)


def test_groups_are_by_name_most_time_first_and_shares_add_up():
    build = TraceBuilder()
    for at, duration in ((0, 50), (100, 52), (200, 60)):
        mm(build, at, duration)
    mul(build, 300, 36)
    groups = explain(build.trace()).groups
    assert [g.calls for g in groups] == [3, 1]
    assert (groups[0].median_us, groups[0].min_us, groups[0].total_us) == (52.0, 50.0, 162.0)
    assert sum(g.share for g in groups) == pytest.approx(1.0)


def test_an_unlinked_kernel_keeps_its_row_and_its_time():
    build = TraceBuilder()
    build.step(1, 0, 100)
    mm(build, 10, 50)
    build.kernel(MUL, 90, 36)  # no launch in the window
    report = explain(build.trace())
    assert [k.step for k in report.kernels] == [0, None]
    assert sum(g.total_us for g in report.groups) == 86.0
    assert report.coverage.kernels_linked == pytest.approx(50 / 86)
    assert report.steps[0].kernels == 1


def test_copies_and_memsets_are_no_kernels():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.memcpy(10, 5, name="Memcpy HtoD (Pageable -> Device)", bytes=4096,
                 launch=build.call("cudaMemcpyAsync", 5, 3))  # fmt: skip
    build.memset(20, 1, bytes=4, launch=build.call("cudaMemsetAsync", 15, 3))
    report = explain(build.trace())
    assert report.kernels == []
    assert [(t.kind, t.direction, t.bytes) for t in report.transfers] == [("memcpy", "HtoD", 4096), ("memset", None, 4)]
    (step,) = report.steps
    assert (step.kernels, step.memcpys, step.memsets, step.launches, step.kernel_launches) == (0, 1, 1, 2, 0)
    assert report.coverage.kernels_linked is None


def test_a_selected_step_restricts_every_table():
    build = TraceBuilder()
    for number in range(3):
        build.step(number, 1000 * number, 900)
        mm(build, 1000 * number + 10, 50 + number)
    report = explain(build.trace(), steps=[1])
    assert [s.label for s in report.steps] == ["ProfilerStep#1"]
    assert [k.duration_us for k in report.kernels] == [51.0]
    assert [o.calls for o in report.operators if o.name == "aten::mm"] == [1]


def test_a_last_step_with_nothing_in_it_halves_no_number():
    build = TraceBuilder()
    for number in range(2):
        build.step(number, 1000 * number, 900)
        mm(build, 1000 * number + 10, 50)
    build.step(2, 2000, 40)
    report = explain(build.trace())
    assert len(report.steps) == 3
    assert report.groups[0].calls_per_step == 1.0
    assert any("ProfilerStep#2 holds no work" in warning for warning in report.trace.warnings)


def test_launches_without_kernels_are_no_cpu_work():
    """The GPU part of the recording was lost: an operator's CPU time is the time to launch it, not to do it."""
    build = TraceBuilder(gpu=None)
    build.op("aten::mm", 0, 20, shapes=[[512, 512], [512, 512]], dtypes=[BF16, BF16])
    build.launch(5)
    report = explain(build.trace())
    assert all(o.cpu_gflops is None for o in report.operators)
    assert not [f for f in report.findings if f.rule == "cpu_work"]


def test_a_call_of_a_compiled_graph_is_a_row_of_the_operator_table():
    build = TraceBuilder()
    build.op("Torch-Compiled Region: 0/0", 0, 100)
    build.annotation("## Call CompiledFxGraph fabc ##", 10, 80)
    build.op("aten::mm", 20, 30)
    rows = {o.name: o for o in explain(build.trace()).operators}
    assert rows["## Call CompiledFxGraph fabc ##"].self_cpu_us == 50.0
    assert rows["Torch-Compiled Region: 0/0"].self_cpu_us == 20.0


def test_chunks_of_one_kernel_share_the_bytes_by_their_blocks():
    name = (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>"
        ", unsigned int, 1, 64, 64>(at::native::(anonymous namespace)::OpaqueType<4u>*)"
    )
    build = TraceBuilder()
    build.op("aten::cat", 0, 40, shapes=[[[1000], [3000]], []], dtypes=["TensorList", "Scalar"], concrete=["", "0"])
    build.kernel(name, 20, 5, launch=build.launch(5), grid=[1, 1, 1])
    build.kernel(name, 30, 9, launch=build.launch(12), grid=[3, 1, 1])
    assert [k.bytes for k in explain(build.trace()).kernels] == [8000, 24000]


def test_a_grid_that_cannot_be_shares_nothing():
    name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 64, 64>(float*)"
    build = TraceBuilder()
    build.op("aten::cat", 0, 40, shapes=[[[1000], [3000]], []], dtypes=["TensorList", "Scalar"], concrete=["", "0"])
    build.kernel(name, 20, 5, launch=build.launch(5), grid=[1, 1, 1])
    build.kernel(name, 30, 9, launch=build.launch(12), grid=[-1, 1, 1])
    assert [k.bytes for k in explain(build.trace()).kernels] == [None, None]


def test_sizes_beyond_64_bits_are_unknown():
    build = TraceBuilder()
    n = 10**12
    build.op("aten::mm", 0, 40, shapes=[[n, n], [n, n]], dtypes=[BF16, BF16])
    build.kernel(GEMM, 20, 50, launch=build.launch(5))
    (kernel,) = explain(build.trace()).kernels
    assert (kernel.flops, kernel.bytes, kernel.bound) == (None, None, "unknown")


def test_what_a_graph_replays_is_no_operators_own_work():
    build = TraceBuilder()
    build.op("Torch-Compiled Region: 0/0", 0, 40)
    graph = build.call("cudaGraphLaunch", 5, 5)
    build.kernel("k1", 20, 50, launch=graph)
    build.kernel("k2", 80, 50, launch=graph)
    report = explain(build.trace())
    (region,) = report.operators
    assert (region.self_gpu_us, region.gpu_us, region.kernels) == (0.0, 100.0, 2)
    assert [k.op for k in report.kernels] == [None, None]


def test_device_properties_of_odd_types_name_no_device():
    build = TraceBuilder(meta={"deviceProperties": [{"id": ["x"], "name": 7, "numSms": True}, 5, {"id": True}]})
    build.kernel("k", 10, 5, launch=build.launch(2))
    gpus = explain(build.trace()).trace.gpus
    assert [(g.name, g.sms) for g in gpus][:1] == [(None, None)]
