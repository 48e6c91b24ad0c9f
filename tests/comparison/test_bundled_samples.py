"""The bundled recordings of the GeGLU MLP, before and after its products were fused: what the next trace proves."""

from pathlib import Path

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.comparison import compare
from foretrace.model.comparison import Metric, Pair


def sample(mode: str, variant: str) -> Path:
    return SAMPLES / f"h200_geglu_{mode}" / f"{variant}.trace.json.gz"


def metric_of(mode: str, before: str, after: str, name: str) -> Metric:
    found = compare([sample(mode, before), sample(mode, after)])
    return next(metric for metric in found.metrics if metric.name == name)


def compared(mode: str, before: str, after: str) -> Pair:
    (pair,) = compare([sample(mode, before), sample(mode, after)]).pairs
    return pair


@pytest.mark.parametrize(
    ("mode", "before", "speedup"),
    [("forward", "eager", 1.46), ("forward", "compile", 1.41), ("train", "eager", 1.36), ("train", "compile", 1.20)],
)
def test_the_fused_step_is_the_same_work_and_wholly_aligned(mode: str, before: str, speedup: float):
    pair = compared(mode, before, "foretrace")
    assert pair.related
    assert pair.same_work is True
    assert pair.aligned_gpu_share is not None
    assert pair.aligned_gpu_share > 0.98
    (found,) = (one.ratio for one in pair.speedups if one.of == "gpu_time")
    assert found == pytest.approx(speedup, abs=0.01)


@pytest.mark.parametrize("before", ["eager", "compile"])
def test_one_kernel_stands_for_the_first_half_of_the_mlp(before: str):
    fused = [place for place in compared("forward", before, "foretrace").places if place.category == "fused"]
    assert len(fused) == 1
    assert "foretrace hopper gate_up gelu_tanh" in fused[0].title


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_the_first_step_is_cold_in_each_of_them(mode: str):
    found = compare([sample(mode, variant) for variant in ("eager", "compile", "foretrace")])
    assert [side.cold for side in found.sides] == ["ProfilerStep#2"] * 3


def test_a_cold_step_does_not_hide_how_much_less_cpu_time_compiled_training_takes():
    change = metric_of("train", "eager", "compile", "cpu_time").changes[1]
    assert change is not None
    assert change.direction == "less"
    assert change.relative == pytest.approx(-0.237, abs=0.001)


def test_what_no_longer_travels_through_memory_does_so_again_the_other_way_round():
    there, back = (compared("forward", *names) for names in (("eager", "foretrace"), ("foretrace", "eager")))
    # Three results of 8192×3072, written and read, the input read once more, and two memsets of 4 bytes.
    assert there.bytes_vanished == 314_572_808
    assert back.bytes_vanished == -there.bytes_vanished
    (drift,) = [note for note in back.notes if "identical by name" in note]
    assert drift.startswith("Kernels identical by name take 3.3 % less for the same work")


def test_bytes_that_are_unknown_name_their_kernel_and_leave_the_known_part():
    told, unknown = metric_of("train", "eager", "compile", "bytes").values
    assert unknown.median is None
    assert unknown.at_least == pytest.approx(823e6, abs=1e6)
    assert told.median is not None
    assert told.median > unknown.at_least
    assert unknown.reason is not None
    assert unknown.reason.startswith("the bytes of triton_poi gelu·gelu_backward·mul are unknown (the row of ")
    assert "does not say whether its result is separate or written in place" in unknown.reason
    (line,) = compare([sample("train", "eager"), sample("train", "compile")]).conclusion
    (said,) = [text for text in line.changed if text.startswith("2 mul + gelu_backward")]
    assert said.endswith(
        "(what travels through memory cannot be compared: the bytes of triton_poi gelu·gelu_backward·mul are unknown)"
    )


def test_reversed_it_comes_apart():
    pair = compared("train", "foretrace", "compile")
    assert pair.same_work is True
    assert sum(place.category == "split" for place in pair.places) == 4
