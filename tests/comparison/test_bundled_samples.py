"""The bundled recordings of the GeGLU MLP, before and after its products were fused: what the next trace proves."""

from pathlib import Path

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.comparison import compare
from foretrace.model.comparison import Pair


def sample(mode: str, variant: str) -> Path:
    return SAMPLES / f"h200_geglu_{mode}" / f"{variant}.trace.json.gz"


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


def test_reversed_it_comes_apart():
    pair = compared("train", "foretrace", "compile")
    assert pair.same_work is True
    assert sum(place.category == "split" for place in pair.places) == 4
