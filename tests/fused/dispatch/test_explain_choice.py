"""``fused.explain``: which implementation for each step, why, from where, and what the others would cost."""

import json
from pathlib import Path

import pytest
import torch

from foretrace import fused
from foretrace.errors import InputError
from foretrace.fused.dispatch import cache, clear, override
from foretrace.fused.dispatch import explain as explain_module
from foretrace.fused.dispatch import plans as plans_module
from foretrace.fused.dispatch.cache import Tuned
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.explain import Explanation, Explanations, explain
from foretrace.fused.dispatch.machine import Gpu
from foretrace.fused.dispatch.tables import Row, Table
from foretrace.fused.plan import Problem

MLP = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=False)


@pytest.fixture(autouse=True)
def as_with_the_triton_of_the_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for module in (plans_module, explain_module):
        monkeypatch.setattr(module, "current", lambda: Environment((2, 11), (3, 6)))
        monkeypatch.setattr(module, "gpu_of", lambda architecture: None)
    monkeypatch.setattr(plans_module, "shipped", lambda architecture: ())
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FORETRACE_FUSED_OVERRIDE", raising=False)
    clear()
    yield
    clear()


def test_a_problem_nobody_measured_is_explained_by_the_model():
    found = explain(MLP)
    assert isinstance(found, Explanation)
    lines = str(found).splitlines()
    assert lines[0] == ("gated_mlp, forward: 8192 rows, 768 → 3072 → 768, bfloat16, gelu_tanh (exact), sm_90")
    assert lines[1] == "  expand (input to hidden): hopper"
    assert "    small        is for at most 16 rows, these are 8192" in lines
    assert any(line.startswith("    tma ") and line.endswith("µs expected") for line in lines)
    assert lines[-1] == "  from: model (the analytical model expects it to be the fastest)"


def test_a_table_shows_what_the_others_were_measured_to_cost(monkeypatch: pytest.MonkeyPatch):
    costs = {"expand=tma project=plain": 171.0, "expand=plain project=plain": 243.04}
    table = Table("sm_90_h200", "sm_90", "NVIDIA H200", (Row.of(MLP, costs),))
    monkeypatch.setattr(plans_module, "shipped", lambda architecture: (table,))
    text = str(explain(MLP))
    assert "  expand (input to hidden): tma\n" in text
    assert "  from: table (the fastest of 2 measured on NVIDIA H200)\n" in text
    assert "    243.0 µs measured: expand=plain project=plain" in text


def test_an_autotune_shows_what_it_refused(monkeypatch: pytest.MonkeyPatch):
    for module in (plans_module, explain_module):
        monkeypatch.setattr(module, "gpu_of", lambda architecture: Gpu(0, "NVIDIA H200"))
    best = "expand=tma project=plain"
    cache.store(
        MLP, "NVIDIA H200", Tuned(best, ((best, 171.0),), (("expand=hopper project=plain", "two runs differ"),))
    )
    found = explain(MLP)
    assert isinstance(found, Explanation)
    assert found.to_dict()["source"] == "autotune"
    assert str(found).endswith("    refused: expand=hopper project=plain: two runs differ")


def test_an_override_is_named_as_one():
    with override(expand="tma[group=16]"):
        text = str(explain(MLP))
    assert "expand (input to hidden): tma[group=16]" in text
    assert "from: override (asked for instead of the model's choice)" in text


def test_it_is_plain_data_too():
    found = explain(MLP, training=True)
    assert isinstance(found, Explanation)
    document = json.loads(json.dumps(found.to_dict()))
    assert document["choice"] == {"expand": "hopper", "project": "plain", "backward": "hopper", "save": "preact"}
    assert document["problem"]["n"] == 3072
    small = next(option for option in document["options"]["project"] if option["name"] == "small")
    assert small == {"name": "small", "cost_us": None, "reason": "is for at most 16 rows, these are 8192"}
    assert document["measured_us"] == {}


def test_tensors_are_explained_without_computing_anything(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.nn.functional, "linear", None)
    x, gate, up, down = (
        torch.empty(shape, dtype=torch.bfloat16) for shape in ((2, 9, 64), (96, 64), (96, 64), (64, 96))
    )
    found = fused.explain(x, gate, up, down, activation="silu", architecture="sm_90")
    assert isinstance(found, Explanation)
    assert found.problem == Problem("gated_mlp", 18, 96, 64, 64, "bfloat16", "silu", "sm_90", training=False)


def test_a_module_is_called_once_and_each_of_its_problems_explained():
    layers = torch.nn.Sequential(fused.GatedMLP(16, 32), fused.LinearAct(16, 8), fused.GatedMLP(8, 32))
    found = fused.explain(layers, torch.randn(3, 16))
    assert isinstance(found, Explanations)
    assert [one.problem.operation for one in found] == ["gated_mlp", "linear_act", "gated_mlp"]
    assert all(one.plan.source == "only choice" for one in found)
    assert str(found).count("from: only choice") == 3
    assert "µs expected" not in str(found)  # the model is of GPUs


def test_what_holds_no_fused_layer_is_an_error():
    with pytest.raises(InputError, match="used no fused layer"):
        fused.explain(torch.nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(InputError, match="cannot be called"):
        fused.explain(3)
