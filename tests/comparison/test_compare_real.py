"""The article's story, from the traces captured on an H200."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from pathlib import Path

import pytest

from foretrace import compare
from foretrace.comparison.compare import read_subject
from foretrace.comparison.places import align_steps
from foretrace.model.comparison import Comparison, Pair

TRACES = Path(__file__).parents[1] / "data" / "traces"
ALL = sorted(path.name.removesuffix(".json.gz") for path in TRACES.glob("*.json.gz"))


@lru_cache
def comparison(*names: str) -> Comparison:
    return compare([TRACES / f"{name}.json.gz" for name in names])


def pair(*names: str) -> Pair:
    return comparison(*names).pairs[-1]


def counts(found: Pair) -> dict[str, tuple[int, int]]:
    return {c.category: (c.a_kernels, c.b_kernels) for c in found.categories}


def metric(found: Comparison, name: str):
    return next(m for m in found.metrics if m.name == name)


def test_linear_compiled_has_the_same_gemm_no_views_and_nothing_to_fuse():
    found = comparison("linear_eager", "linear_compile")
    assert counts(found.pairs[0]) == {"identical": (1, 1)}
    assert found.pairs[0].places[0].change.direction == "same"
    views = {c.name for c in found.pairs[0].operators if c.role == "view" and not c.b_calls}
    assert views == {"aten::t", "aten::transpose", "aten::as_strided"}
    assert "every kernel: there was nothing to fuse" in found.conclusion[0].same
    assert metric(found, "cpu_time").changes[1].direction == "more"
    assert metric(found, "gpu_time").changes[1].direction == "same"


@pytest.mark.parametrize("other", ["mlp_compile", "mlp_liger"])
def test_mlp_fused_keeps_three_gemms_and_turns_gelu_and_mul_into_one_kernel(other):
    found = pair("mlp_eager", other)
    assert counts(found) == {"identical": (3, 3), "fused": (2, 1)}
    (fused,) = [place for place in found.places if place.category == "fused"]
    assert [row.op for row in fused.a] == ["aten::gelu", "aten::mul"]
    assert (fused.a_bytes, fused.b_bytes, fused.bytes_vanished) == (251_658_240, 150_994_944, 100_663_296)
    assert {place.a[0].kind for place in found.places if place.category == "identical"} == {"gemm", "memset"}
    assert found.same_work is True
    assert 1.05 < found.speedups[0].ratio < 1.20
    assert found.speedups[1].ratio is None


def test_the_rows_of_the_compiler_appear_for_compile_and_not_for_liger():
    found = comparison("mlp_eager", "mlp_compile", "mlp_liger")
    rows = [{c.name for c in p.operators if c.role == "compile"} for p in found.pairs]
    assert {"TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue", "## Call CompiledFxGraph"} <= rows[0]
    assert rows[1] == set()
    assert "no lookup, guard or prologue rows of torch.compile" in found.conclusion[1].same


def test_a_graph_replay_is_aligned_and_its_copy_is_told():
    found = pair("mlp_eager", "mlp_cudagraph")
    assert counts(found) == {"identical": (3, 3), "fused": (2, 1), "added": (0, 1)}
    (copy,) = found.copies
    assert copy.op == "aten::_foreach_copy_"
    assert "CUDA graph" in copy.why
    assert metric(comparison("mlp_eager", "mlp_cudagraph"), "launches").values[1].median == 2


def test_compiled_against_its_graph_replay_differs_in_the_copy_alone():
    assert counts(pair("mlp_compile", "mlp_cudagraph")) == {"identical": (4, 4), "added": (0, 1)}


def test_training_holds_the_forward_pass_and_is_other_work():
    found = pair("mlp_eager", "mlp_train_eager")
    assert counts(found) == {"identical": (5, 5), "added": (0, 18)}
    assert "3 times the FLOPs" in found.notes[0]
    assert found.speedups[0].ratio is None


def test_matmul_and_add_against_linear_is_a_bias_fused_into_the_gemm():
    assert counts(pair("matmul_add_eager", "linear_eager")) == {"fused": (2, 1)}


def test_different_programs_are_unrelated():
    assert not pair("linear_eager", "mlp_eager").related


@pytest.mark.parametrize(("one", "other"), list(product(ALL, ALL)))
def test_any_two_account_for_every_row(one, other):
    a, b = (read(name) for name in (one, other))
    alignment = align_steps(a.items, b.items)
    assert sorted(i for spot in alignment.spots for i in spot.a) == list(range(len(a.items)))
    assert sorted(j for spot in alignment.spots for j in spot.b) == list(range(len(b.items)))
    if one == other:
        assert {spot.category for spot in alignment.spots} == {"identical"}


@lru_cache
def read(name: str):
    return read_subject(TRACES / f"{name}.json.gz")
