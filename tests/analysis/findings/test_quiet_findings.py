"""CPU work that launches nothing, and memsets that nobody wrote."""

from __future__ import annotations

from timelines import GEMM, Program, of_trace, pointwise

import foretrace
from builders import TraceBuilder


def test_the_transposes_of_a_linear_are_a_letter_of_the_layout() -> None:
    (finding,) = of_trace("linear_eager", "metadata_only")
    assert finding.count == 9
    assert "t, transpose, as_strided" in finding.explanation
    assert "layout (TN)" in finding.explanation


def test_a_reshape_that_copied_is_not_metadata() -> None:
    program = Program().step()
    program.run("aten::copy_", [8, 8], kernel=GEMM, inside=("aten::reshape", "aten::clone"))
    assert not program.findings("metadata_only")


def test_without_a_gpu_nothing_is_said_about_launches() -> None:
    build = TraceBuilder(gpu=None)
    build.op("aten::t", 0, 10, shapes=[[4, 4]], dtypes=["float"])
    assert not foretrace.explain(build.trace()).findings


def test_occupancy_queries_are_counted_by_operator() -> None:
    program = Program().step().run("aten::mm", [64, 64], [64, 64], kernel="ampere_sgemm_64x64_nn", query=True)
    (finding,) = program.findings("occupancy_queries")
    assert finding.title.startswith("1 occupancy query a step")
    assert "aten::mm" in finding.title


def test_nvjet_asks_no_occupancy() -> None:
    assert not of_trace("mlp_eager", "occupancy_queries")


def test_memsets_belong_to_the_operator_around_them() -> None:
    (finding,) = of_trace("mlp_eager", "library_memsets")
    assert finding.title.startswith("2 memsets of 4 B a step by aten::mm")
    assert "more than 2.5 tiles a multiprocessor" in finding.explanation


def test_only_a_counters_memset_is_told_as_one() -> None:
    nvjet = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
    for kernel, size, told in ((nvjet, 4, True), (nvjet, 8192, False), ("ampere_sgemm_64x64_nn", 4, False)):
        program = Program().step().run("aten::mm", [64, 64], [64, 64], kernel=kernel, memset=size)
        (finding,) = program.findings("library_memsets")
        assert ("through a counter" in finding.explanation) is told


def test_the_memsets_of_products_are_told_among_others() -> None:
    (finding,) = of_trace("mlp_train_eager", "library_memsets")
    assert "by aten::mm, aten::sum" in finding.title
    assert "counts or accumulates in. Those of products: cuBLAS's nvjet" in finding.explanation


def test_a_graph_replays_memsets() -> None:
    (finding,) = of_trace("mlp_cudagraph", "library_memsets")
    assert "a CUDA graph" in finding.title
    assert "captured" in finding.explanation


def test_zeroing_a_tensor_is_the_programs_own_memset() -> None:
    program = Program().step().run("aten::zero_", [64, 64], memset=8192)
    program.run("aten::gelu", [64, 64], kernel=pointwise("GeluCUDAKernelImpl"))
    assert not program.findings("library_memsets")
