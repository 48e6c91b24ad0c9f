"""FP32 on vector units, GEMMs far below peak, unfused attention."""

from __future__ import annotations

import pytest
from timelines import GEMM, SOFTMAX, Program, of_trace, pointwise

import foretrace
from foretrace.analysis.findings.utilisation import wave_efficiency
from foretrace.cli.demo import SAMPLES
from foretrace.knowledge.kernels import Decoded
from foretrace.knowledge.products import on_vector_units

SGEMM = "ampere_sgemm_128x64_nn"
SQUARE = [4096, 4096]


def test_fp32_on_vector_units_where_tf32_was_there() -> None:
    program = Program(gpu="NVIDIA A100-SXM4-80GB")
    program.build.meta["deviceProperties"][0].update(computeMajor=8, numSms=108)
    program.step().run("aten::mm", SQUARE, SQUARE, dtypes="float", kernel=SGEMM, us=8000)
    (finding,) = program.findings("fp32_gemm")
    # 19.5 against 156 TFLOP/s leaves an eighth.
    assert finding.saving_us == pytest.approx(8000 * (1 - 19.5 / 156))
    assert "TF32" in finding.explanation


def test_without_shapes_the_products_are_named_but_no_saving_is_claimed() -> None:
    program = Program(gpu="NVIDIA A100-SXM4-80GB")
    program.build.meta["deviceProperties"][0].update(computeMajor=8, numSms=108)
    (finding,) = program.step().run("aten::mm", dtypes=[], kernel=SGEMM, us=8000).findings("fp32_gemm")
    assert finding.saving_us is None
    assert "without shapes" in finding.explanation


@pytest.mark.parametrize(
    "kernel",
    [
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x6_nn_align4>(Params)",
        "sm80_xmma_gemm_tf32f32_tf32f32_f32_nn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x8_kernel",
    ],
)
def test_tf32_kernels_are_fine(kernel: str) -> None:
    program = Program().step().run("aten::mm", SQUARE, SQUARE, dtypes="float", kernel=kernel, us=900)
    assert not program.findings("fp32_gemm")


def test_a_matrix_instruction_or_unit_in_the_name_decides() -> None:
    def named(family: str, **fields: str) -> bool:
        return on_vector_units(Decoded("", "", "gemm", family, {"dtype": "fp32", **fields}, []))

    assert named("cublas", tile="128x64")
    assert not named("cublas", tile="128x64", instruction="16x8x8")
    assert named("cutlass", unit="SIMT")
    assert not named("cutlass", unit="tensor cores")
    assert not named("tensile", tile="64x16", instruction="16x16x1")
    assert not named("unknown")


def test_without_a_datasheet_nothing_is_claimed() -> None:
    program = Program(gpu="Some GPU").step().run("aten::mm", SQUARE, SQUARE, dtypes="float", kernel=SGEMM)
    assert not program.findings("fp32_gemm")


def test_half_precision_traces_are_silent() -> None:
    for name in ("mlp_eager", "mlp_train_eager", "ddp_rank0"):
        assert not of_trace(name, "fp32_gemm")


def test_a_gemm_of_few_tiles_leaves_multiprocessors_idle() -> None:
    # 512 × 512 is 4 × 2 tiles of 128 × 256; at 21.5 GFLOP in 200 µs it reaches 11 % of 989 TFLOP/s.
    program = Program().step().run("aten::mm", [512, 40960], [40960, 512], kernel=GEMM, us=200)
    (finding,) = program.findings("low_gemm_utilisation")
    assert "8 tiles of 128×256" in finding.explanation


def test_a_gemm_near_its_peak_is_not_mentioned() -> None:
    assert not of_trace("mlp_eager", "low_gemm_utilisation")


def test_a_gemm_that_is_over_at_once_is_not_mentioned() -> None:
    assert not of_trace("linear_eager", "low_gemm_utilisation")


def test_a_generated_kernel_far_below_the_bandwidth_says_with_what_blocks_it_ran() -> None:
    report = foretrace.explain(SAMPLES / "h200_geglu_forward" / "compile.trace.json.gz")
    (finding,) = [finding for finding in report.findings if finding.rule == "low_bandwidth"]
    assert finding.title.startswith("triton_poi gelu·mul at 55.9 % of the memory bandwidth (25.3 % of the kernel time)")
    assert "It ran with XBLOCK=512." in finding.explanation


def test_faster_kernels_of_more_time_do_not_hide_a_slow_one() -> None:
    program = Program().step()
    wide = [[8192, 3072]] * 3  # 151 MB: 31.5 µs at the datasheet's rate
    for name, us in (("add", 37.0), ("mul", 37.0), ("sub", 37.0), ("gelu_mul", 79.0)):
        calls = 3 if us < 40 else 1
        kernel = f"triton_poi_fused_{name}_0"
        for _ in range(calls):
            program.run(kernel, *wide, kernel=kernel, us=us)
    (finding,) = program.findings("low_bandwidth")
    assert finding.title.startswith("triton_poi gelu·mul at 39.8 % of the memory bandwidth (19.2 % of the kernel time)")


@pytest.mark.parametrize(
    "name",
    [
        "mlp_compile",  # 37.0 µs for the same work
        "mlp_eager",  # GELU reaches 64 %: no compilation chose its blocks
    ],
)
def test_pointwise_kernels_as_fast_as_they_come_are_not_mentioned(name: str) -> None:
    assert not of_trace(name, "low_bandwidth")


def test_waves() -> None:
    assert wave_efficiency(132, 132) == 1.0
    assert wave_efficiency(133, 132) == pytest.approx(133 / 264)
    assert wave_efficiency(66, 132) == 0.5


def _attention(program: Program, *, masked: bool = True) -> Program:
    scores = [128, 1024, 1024]
    program.run("aten::bmm", [128, 1024, 64], [128, 64, 1024], kernel=GEMM, us=100)
    if masked:
        program.run("aten::div", [8, 16, 1024, 1024], kernel=pointwise("DivFunctor"), us=120)
    program.run("aten::_softmax", [8, 16, 1024, 1024], kernel=SOFTMAX, us=150)
    return program.run("aten::bmm", scores, [128, 1024, 64], kernel=GEMM, us=100)


@pytest.mark.parametrize("masked", [True, False])
def test_bmm_softmax_bmm_is_attention(masked: bool) -> None:
    report = _attention(Program().step(), masked=masked).report()
    (finding,) = [f for f in report.findings if f.rule == "slow_attention"]
    assert finding.saving_us == pytest.approx(270 if masked else 150)
    # The same kernels are not claimed a second time.
    assert not [f for f in report.findings if f.rule in ("hbm_round_trip", "gemm_then_pointwise")]


def test_a_classifiers_softmax_is_no_attention() -> None:
    program = Program().step().run("aten::mm", [4096, 1024], [1024, 1000], kernel=GEMM)
    program.run("aten::_softmax", [4096, 1000], kernel=SOFTMAX)
    assert not program.run("aten::bmm", [8, 64, 64], [8, 64, 64], kernel=GEMM).findings("slow_attention")
