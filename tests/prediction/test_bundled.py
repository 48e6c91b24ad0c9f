"""Predictions beside the recordings that come with foretrace: what a new user compares first."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.cli.subject import Subject
from foretrace.prediction.expect import check
from foretrace.prediction.predict import Prediction
from foretrace.trace.load import load

pytest.importorskip("torch", reason="tracing a program needs the torch extra")

SAMPLES = Path(foretrace.__file__).parent / "cli" / "samples"
CASES = [(variant, mode) for mode in ("forward", "train") for variant in ("eager", "compile", "foretrace")]


@cache
def predicted(variant: str, mode: Any) -> Prediction:
    """As ``foretrace predict mlp --gpu H200 --torch 2.11``."""
    from foretrace.prediction.program import meta_target

    subject = Subject("mlp", {}, "bf16", train=mode == "train")
    subject.settle("meta")
    built = meta_target(subject.make)
    return foretrace.predict(
        built.function,
        built.inputs,
        gpu="H200",
        variant=variant,
        mode=mode,
        annotation=built.annotation,
        release=(2, 11),
    )


@pytest.mark.parametrize(("variant", "mode"), CASES)
def test_the_recording_holds_what_the_prediction_expects(variant: str, mode: str) -> None:
    trace = load(SAMPLES / f"h200_geglu_{mode}" / f"{variant}.trace.json.gz")
    result = check(trace, predicted(variant, mode).expectation())
    assert [outcome for outcome in result.outcomes if outcome.state != "held"] == []
    expected = {outcome.quantity for outcome in result.outcomes}
    assert {"kernels", "gemm", "flops", "gpu_busy_us", "gemm_us"} <= expected


@pytest.mark.parametrize(("variant", "mode"), CASES)
def test_nothing_of_these_programs_is_guessed(variant: str, mode: str) -> None:
    """Compiling them starts a thread that redraws a progress bar; it dispatches nothing."""
    assert predicted(variant, mode).info.unknown == {}


@pytest.mark.parametrize(("variant", "mode"), CASES)
def test_the_verdict_says_that_the_host_is_not_calibrated(variant: str, mode: str) -> None:
    """Recorded, the steps took up to 4.7 times the predicted CPU time, and the CPU decided in most of them."""
    prediction = predicted(variant, mode)
    info = prediction.info
    said = any(
        "the GPU's work alone: host time is not calibrated" in why for why in prediction.report().verdict.because
    )
    assert said == (info.gpu_busy_us < 5 * info.cpu_us)
    assert said or (variant, mode) == ("foretrace", "forward")


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_the_verdict_and_the_table_tell_one_bound_of_a_generated_kernel(mode: str, tmp_path: Path) -> None:
    """Which operands a generated kernel writes in place, its row does not say; the prediction knows."""
    prediction = predicted("compile", mode)
    planned = [(row.event, row.flops, row.bytes, row.bound) for row in prediction.info.rows if row.row == "kernel"]
    read_back = foretrace.explain(prediction.write(tmp_path / "predicted.trace.json.gz"))
    for report in (prediction.report(), read_back):
        assert [(k.event, k.flops, k.bytes, k.bound) for k in report.kernels] == planned
        assert not any("unknown bound" in why for why in report.verdict.because)
