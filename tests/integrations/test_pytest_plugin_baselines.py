"""Baseline files and what is said of a difference: names, damage, other GPUs, other versions of torch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.analysis import explain
from foretrace.analysis.baseline import made_on, part_of
from foretrace.analysis.context import Context
from foretrace.comparison.baseline import against
from foretrace.errors import InputError
from foretrace.integrations.pytest_plugin.baselines import accept, file_stem, read
from foretrace.knowledge.baseline import guarded, operator_name, waits
from foretrace.model.baseline import (
    Baseline,
    KernelCount,
    MadeOn,
    OperatorCount,
    Part,
    TransferCount,
    baseline_text,
    read_baseline,
    write_baseline,
)
from foretrace.report.baseline import render_drift
from foretrace.report.view import View
from foretrace.trace import load

TRACES = Path(__file__).parents[1] / "data" / "traces"
H200 = MadeOn(torch="2.11.0", gpu="NVIDIA H200", dtypes=["bf16"])
CPU = MadeOn(torch="2.11.0", gpu=None, dtypes=["fp32"])
LINEAR = {("aten::linear",): 1, ("aten::linear", "aten::addmm"): 1}


def part(
    operators: dict[tuple[str, ...], int] | None = None,
    kernels: list[KernelCount] | None = None,
    totals: dict[str, int] | None = None,
    **more: Any,
) -> Part:
    counted = [OperatorCount(path=list(path), count=count) for path, count in (operators or LINEAR).items()]
    fields = {"label": "the test", "transfers": None, "waits": None, **more}
    return Part(totals=totals or {}, kernels=kernels, operators=counted, **fields)


def baseline(*parts: Part, on: MadeOn = CPU) -> Baseline:
    return Baseline(test="test_it.py::test_it", made_on=on, parts=list(parts) or [part()])


def kernel(kind: str, operator: str, count: int = 1, epilogue: tuple[str, ...] = ()) -> KernelCount:
    name = f"{kind} of {operator}"
    return KernelCount(kernel=name, kind=kind, operator=operator, path=[operator], epilogue=list(epilogue), count=count)


def of_trace(name: str) -> Baseline:
    trace = load(TRACES / f"{name}.json.gz")
    report, context = explain(trace), Context(trace=trace)
    return Baseline(test="t", made_on=made_on(report, context), parts=[part_of(report, context, "the test")])


# ---- the file ----


def test_a_baseline_holds_counts_by_name_and_place_and_no_time() -> None:
    eager = of_trace("mlp_eager")
    assert eager.made_on == MadeOn(torch=None, gpu="NVIDIA H200", dtypes=["bf16"])
    (only,) = eager.parts
    assert only.totals == {"kernels": 5, "launches": 7, "memcpys": 0, "memsets": 2, "synchronizations": 0}
    assert [(k.kernel, k.operator, k.count) for k in only.kernels or []] == [
        ("elementwise<8> gelu", "aten::gelu", 1),
        ("elementwise<8> mul", "aten::mul", 1),
        ("nvjet 192x128 64x5 TN", "aten::mm", 1),
        ("nvjet 256x128 64x4 TN", "aten::mm", 2),
    ]
    assert [(t.kind, t.operator, t.count) for t in only.transfers or []] == [("memset", "aten::mm", 2)]
    assert OperatorCount(path=["aten::linear", "aten::matmul", "aten::mm"], count=3) in (only.operators or [])
    assert "_us" not in baseline_text(eager)


@pytest.mark.parametrize("name", ["mlp_compile", "mlp_cudagraph", "mlp_train_eager"])
def test_a_baseline_names_nothing_that_changes_from_run_to_run(name: str) -> None:
    text = baseline_text(of_trace(name))
    assert "CompiledFxGraph" not in text
    assert "Torch-Compiled Region" not in text
    assert "ProfilerStep" not in text


def test_a_baseline_reads_back_and_has_one_entry_a_line(tmp_path: Path) -> None:
    eager = of_trace("mlp_eager")
    path = tmp_path / "__foretrace__" / "it.json"
    assert write_baseline(path, eager)
    assert not write_baseline(path, eager), "nothing is written where nothing changed"
    assert read_baseline(path) == eager
    lines = path.read_text().splitlines()
    entries = sum(len(listed or []) for one in eager.parts for listed in (one.kernels, one.transfers, one.operators))
    assert sum('"count"' in line for line in lines) == entries
    assert all(line.count('"count"') <= 1 for line in lines)
    assert [child.name for child in path.parent.iterdir()] == ["it.json"]


DAMAGE = {
    "": "is no JSON",
    "<<<<<<< HEAD": "is no JSON",
    "\xff": "is no JSON",
    "[]": "names no schema",
    "{}": "names no schema",
    '{"schema": "foretrace.baseline/2"}': "has the schema foretrace.baseline/2",
    '{"schema": "foretrace.baseline/1"}': "is damaged",
    '{"schema": "foretrace.baseline/1", "test": 3, "made_on": null, "parts": []}': "is damaged",
}


@pytest.mark.parametrize("content", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_file_is_one_sentence_that_says_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        read_baseline(path)
    said = str(caught.value)
    assert DAMAGE[content] in said
    assert said.endswith("make it anew with pytest --foretrace-update")
    assert "\n" not in said
    assert accept(path, baseline()) == ("written", None), "an update replaces it"


@given(st.binary(max_size=200))
def test_no_file_makes_reading_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        read_baseline(path)


def test_a_file_of_another_test_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    write_baseline(tmp_path / "it.json", baseline())
    with pytest.raises(InputError, match=r"is of test_it\.py::test_it, not of test_it\.py::test_IT"):
        read(tmp_path / "it.json", "test_it.py::test_IT")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_baseline(tmp_path / "file" / "it.json", baseline())
    assert read(tmp_path / "none.json", "t") is None


def item(name: str) -> Any:
    return SimpleNamespace(nodeid=f"somewhere/test_it.py::{name}", path=Path("/x/somewhere/test_it.py"))


def test_names_of_files() -> None:
    assert file_stem(item("test_a")) == "test_it.test_a"
    assert file_stem(item("TestB::test_a")) == "test_it.TestB.test_a"
    assert file_stem(item("test_a[bf16-3]")) == "test_it.test_a-bf16-3"
    assert file_stem(item("test_a[../../etc]")).startswith("test_it.test_a-.._.._etc-")
    assert len(file_stem(item(f"test_a[{'x' * 500}]"))) <= 120


@given(st.sets(st.text(st.characters(codec="utf-8", exclude_characters="]"), max_size=8), min_size=2, max_size=6))
def test_no_two_choices_share_a_file_whatever_they_are_called(choices: set[str]) -> None:
    stems = [file_stem(item(f"test_a[{choice}]")) for choice in choices]
    assert len({stem.lower() for stem in stems}) == len(choices)
    assert not any(set(stem) & set("/\\:\0 ") for stem in stems)


# ---- differences ----


def texts(old: Baseline, new: Baseline) -> list[str]:
    return [change.text for change in against(old, new).more]


def test_nothing_changed() -> None:
    drift = against(of_trace("mlp_eager"), of_trace("mlp_eager"))
    assert (drift.changes, drift.notes, drift.unseen) == ([], [], None)
    assert "nothing that was compared became more or less" in render_drift(drift, "it.json")
    assert "\x1b[" in render_drift(drift, "it.json", view=View(color=True))
    assert "\x1b[" not in render_drift(drift, "it.json")


def test_views_and_fewer_operators_are_told_and_are_no_increase() -> None:
    drift = against(baseline(), baseline(part({("aten::linear",): 1, ("aten::view",): 2})))
    assert [(change.text, change.more) for change in drift.changes] == [
        ("fewer a step: 1 × aten::addmm", False),
        ("2 rows a step more that neither compute nor copy: aten::view", False),
    ]


def test_a_copy_is_one_change_named_by_what_the_program_calls() -> None:
    copy = {("aten::contiguous",): 2, ("aten::contiguous", "aten::clone"): 2}
    copy[("aten::contiguous", "aten::clone", "aten::copy_")] = 2
    drift = against(baseline(), baseline(part({**LINEAR, **copy})))
    (change,) = drift.changes
    assert change.text == "2 calls of aten::contiguous a step more, with aten::clone, aten::copy_ inside"
    assert change.why is not None
    assert "copies a tensor" in change.why


def test_a_call_that_only_moved_is_no_increase() -> None:
    moved = baseline(part({("aten::linear",): 1, ("aten::addmm",): 1}))
    assert texts(baseline(), moved) == []


def test_a_lost_epilogue_of_kernels() -> None:
    old = part(kernels=[kernel("gemm", "aten::addmm", epilogue=("bias",))], totals={"kernels": 1})
    apart = part(kernels=[kernel("gemm", "aten::mm"), kernel("elementwise", "aten::add")], totals={"kernels": 2})
    assert texts(baseline(old, on=H200), baseline(apart, on=H200)) == [
        "a GEMM lost its epilogue (bias): gemm of aten::addmm by aten::addmm is now gemm of aten::mm by aten::mm and "
        "elementwise of aten::add by aten::add",
        "1 → 2 kernels a step",
    ]
    # The other way round the epilogue was won.
    assert texts(baseline(apart, on=H200), baseline(old, on=H200)) == []


def test_more_of_a_kind_is_an_increase_even_where_the_sum_is_the_same() -> None:
    old = part(kernels=[kernel("elementwise", "aten::add", 2)], totals={"kernels": 2})
    new = part(kernels=[kernel("elementwise", "aten::add"), kernel("copy", "aten::copy_")], totals={"kernels": 2})
    assert texts(baseline(old, on=H200), baseline(new, on=H200)) == [
        "1 copy kernel a step more: copy of aten::copy_ by aten::copy_"
    ]


def test_another_kernel_for_the_same_work_is_told_and_is_no_increase() -> None:
    one, other = (
        part(kernels=[msgspec.structs.replace(kernel("gemm", "aten::mm"), kernel=name)]) for name in ("a", "b")
    )
    drift = against(baseline(one, on=H200), baseline(other, on=H200))
    assert [(change.text, change.more) for change in drift.changes] == [("a by aten::mm is now b by aten::mm", False)]


def test_on_another_gpu_kernels_are_not_compared_and_copies_are() -> None:
    totals = {"kernels": 5, "launches": 5, "memcpys": 0}
    more = {"kernels": 9, "launches": 10, "memcpys": 1}
    copy = TransferCount(copy="Memcpy DtoH", kind="memcpy", operator="aten::item", path=["aten::item"], count=1)
    old = baseline(part(kernels=[kernel("gemm", "aten::mm")], totals=totals, transfers=[]), on=H200)
    new = baseline(
        part(kernels=[kernel("copy", "aten::mm")], totals=more, transfers=[copy]),
        on=MadeOn(torch="2.11.0", gpu="NVIDIA B200", dtypes=["bf16"]),
    )
    drift = against(old, new)
    assert [change.text for change in drift.changes] == ["0 → 1 copy a step: Memcpy DtoH by aten::item"]
    assert len(drift.notes) == 1
    assert "made on NVIDIA H200, this is NVIDIA B200" in drift.notes[0]


def test_with_another_torch_only_the_program_s_own_calls_are_compared() -> None:
    new = baseline(
        part({("aten::linear",): 1, ("aten::linear", "aten::mm"): 1, ("aten::relu",): 1}),
        on=MadeOn(torch="2.13.0", gpu=None, dtypes=["fp32"]),
    )
    drift = against(baseline(), new)
    assert [change.text for change in drift.changes] == ["1 call of aten::relu a step more"]
    assert "made with torch 2.11.0, this is 2.13.0" in drift.notes[0]


def test_without_the_gpu_of_the_baseline_its_kernels_are_said_to_be_unseen() -> None:
    old = baseline(part(kernels=[kernel("gemm", "aten::mm")], totals={"kernels": 1}), on=H200)
    drift = against(old, baseline())
    assert drift.more == []
    assert drift.unseen == "the baseline was made on NVIDIA H200, and nothing ran on a GPU here"
    assert "holds no kernels" in against(baseline(), old).notes[0]


def test_another_number_of_recordings_is_an_increase_that_says_so() -> None:
    assert texts(baseline(), baseline(part(), part())) == ["the test is recorded 2 times, in the baseline 1 time"]


def test_what_is_guarded_and_what_waits() -> None:
    assert [guarded(name) for name in ("aten::mm", "aten::contiguous", "mine::op", "triton_poi_fused_add")] == [
        True
    ] * 4
    assert not any(guarded(name) for name in ("aten::view", "aten::empty", "MulBackward0", "autograd::engine::x"))
    assert waits("aten::item")
    assert waits("aten::nonzero")
    assert not waits("aten::mm")
    assert operator_name("triton_poi_fused_gelu_mul_0") == "triton_poi_fused_gelu_mul"
    assert operator_name("Torch-Compiled Region: 0/0") is None


def test_a_drift_as_text_is_narrow_and_puts_increases_first() -> None:
    drift = against(of_trace("mlp_compile"), of_trace("mlp_eager"))
    text = render_drift(drift, "__foretrace__/it.json")
    assert max(map(len, text.splitlines())) <= 100
    leads = [line[:10].strip() for line in text.splitlines() if line[:10].strip() in ("MORE", "changed", "note")]
    assert leads == sorted(leads, key=["MORE", "changed", "note"].index)
    assert leads[0] == "MORE"
    assert json.loads(baseline_text(of_trace("mlp_eager")))["schema"] == "foretrace.baseline/1"
