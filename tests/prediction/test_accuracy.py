"""How far predictions lie from recordings that nothing was fitted to.

The programs and their traces are those of ``benchmarks/predictor``; the bounds are the project's promise. All tests of
this file share one judgement of 50 programs, which takes a while: keep them in one file, so that it is made once.
"""

import json
import sys
from pathlib import Path

import pytest

import foretrace
from foretrace.knowledge.calibration import calibration_for
from foretrace.knowledge.gpus import find
from foretrace.prediction.clock import schedule
from foretrace.prediction.clock.points import product_group
from prediction.programs import geglu

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "benchmarks" / "results" / "predictor" / "evaluation"

pytest.importorskip("torch", reason="tracing a program needs the torch extra")
pytestmark = [
    pytest.mark.skipif(not TRACES.is_dir(), reason="the recordings come with the repository, not with the package"),
    pytest.mark.xdist_group("accuracy"),
]


@pytest.fixture(scope="module")
def evaluate():
    """``benchmarks/predictor/evaluate.py``; its folder is a place for scripts, not a package."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "predictor"))
    try:
        import evaluate as module
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture(scope="module")
def lines(evaluate):
    machine = json.loads((TRACES / "machine.json").read_text())
    major, minor = map(int, machine["torch"].split(".")[:2])
    return [
        evaluate.judge(one, TRACES / f"{one.name}.trace.json.gz", "H200", (major, minor)) for one in evaluate.EVALUATION
    ]


@pytest.fixture(scope="module")
def judged(evaluate, lines):
    """m, n, k, batch, element type and layout of every matrix product of the judged programs."""
    assert lines  # predicted before, and kept
    return evaluate.products()


@pytest.fixture(scope="module")
def figures(evaluate, lines):
    return evaluate.summary(lines)


def test_the_judged_programs_are_many_and_of_every_sort(lines):
    assert len(lines) >= 30
    sorts = {(line["workload"], line["dtype"], line["variant"], line["mode"]) for line in lines}
    assert len(sorts) >= 14
    rows = {line["sizes"][0] for line in lines}
    assert (min(rows), max(rows)) == (1, 16384)


def test_the_gpu_time_of_a_step(figures):
    assert figures["median_error"] <= 0.10
    assert figures["worst_error"] <= 0.30


def test_the_three_largest_kernels(figures, lines):
    assert figures["median_error_of_three_largest_kernels"] <= 0.10
    assert all(line["largest"] for line in lines if line["counts"]["kernels"][0] == line["counts"]["kernels"][1])


def test_the_number_of_kernels(figures):
    assert figures["kernel_counts_right"] >= 0.90


def test_the_intervals_hold_what_they_say(figures):
    """About 80 % of measured kernels lie inside; a step, whose errors partly cancel, more often."""
    assert 0.70 <= figures["kernels_inside_interval"] <= 0.90
    assert figures["inside_interval"] >= 0.75


def test_a_roofline_from_the_datasheet_alone_is_far_worse(figures):
    assert figures["roofline_median_error"] > 3 * figures["median_error"]
    assert figures["roofline_worst_error"] > 0.5


def test_the_committed_result_is_this_one(figures, lines):
    """``benchmarks/results/predictor/evaluation.json``, which README and documentation quote."""
    stored = json.loads(TRACES.with_suffix(".json").read_text())
    assert stored["summary"] == pytest.approx(figures, abs=0.002)
    names = ("workload", "sizes", "dtype", "variant", "mode")
    assert [[line[name] for name in names] for line in stored["results"]] == [
        [list(line[name]) if name == "sizes" else line[name] for name in names] for line in lines
    ]


@pytest.mark.parametrize("page", ["benchmarks/predictor/README.md", "docs/concepts/prediction.md"])
def test_the_pages_quote_the_committed_result(evaluate, page):
    stored = json.loads(TRACES.with_suffix(".json").read_text())
    assert evaluate.table(stored["summary"]) in (ROOT / page).read_text()


def test_no_product_of_a_judged_program_was_measured_for_the_calibration(judged):
    calibration = calibration_for(find("H200"))
    assert len(judged) > 140
    for m, n, k, batch, dtype, layout in sorted(judged):
        group = product_group(dtype, layout)
        sizes, flags = calibration.array(group, "sizes"), calibration.array(group, "flags")
        same = (sizes == (m, n, k, batch)).all(axis=1) & ((flags & 2 != 0) == (dtype == "fp16"))
        assert not same.any(), (m, n, k, batch, dtype, layout)


def test_the_judged_products_are_those_in_the_recordings(judged):
    """Else leaving them out would leave the wrong ones out."""
    sizes = {product[:4] for product in judged}
    for name in ("mlp_300x2048x8192_bf16_eager_train", "linear_777x1024x1024_fp32_eager_train"):
        gemms = foretrace.explain(TRACES / f"{name}.trace.json.gz").gemms
        assert gemms
        assert {(gemm.m, gemm.n, gemm.k, gemm.batch or 1) for gemm in gemms if gemm.m} <= sizes


def test_the_articles_figures_of_an_a100():
    """A GPU that nobody measured for this: the eager and the compiled MLP of 8192 · 768 · 3072 in bf16."""
    a100 = find("A100-SXM4-80GB")
    gate, _, up, _, down = ([row.us for row in rows if row.row == "kernel"] for rows in schedule(geglu(), a100))
    assert sum(gate) == pytest.approx(190, rel=0.25)
    assert sum(up) == pytest.approx(190, rel=0.25)
    assert sum(down) == pytest.approx(170, rel=0.25)


def test_the_articles_fused_kernel_of_an_a100(evaluate):
    mlp = evaluate.Configuration("mlp", (8192, 768, 3072), "bf16", "compile", "forward")
    info = evaluate.predict(mlp, "A100-SXM4-80GB", (2, 11)).info
    (fused,) = [row for row in info.rows if row.kind == "fused"]
    assert fused.us == pytest.approx(89, rel=0.25)
    assert fused.low_us < 89 < fused.high_us
