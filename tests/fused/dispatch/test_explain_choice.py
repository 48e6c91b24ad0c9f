"""``fused.explain``: which implementation for each step, why, from where, and what the others would cost."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foretrace import fused
from foretrace.errors import InputError
from foretrace.fused import eager, plain
from foretrace.fused.dispatch import cache, clear, override
from foretrace.fused.dispatch import environment as environment_module
from foretrace.fused.dispatch import explain as explain_module
from foretrace.fused.dispatch import plans as plans_module
from foretrace.fused.dispatch.cache import Tuned
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.explain import Explanation, Explanations, explain
from foretrace.fused.dispatch.machine import Gpu
from foretrace.fused.dispatch.tables import Row, Table
from foretrace.fused.plan import Problem

SIZES = ((8192, 768), (3072, 768), (3072, 768), (768, 3072))
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
    assert lines[0] == ("gated_mlp, forward: 8,192 rows, 768 → 3,072 → 768, bfloat16, gelu_tanh (exact), sm_90")
    assert lines[1] == "  expand (input to hidden): hopper"
    assert "    small        is for at most 16 rows, these are 8192" in lines
    assert any(re.fullmatch(r"    tma +(\d+) µs expected: \1 on the GPU, 14 on the host", line) for line in lines)
    assert lines[-1] == "  from: model (the analytical model expects it to be the fastest)"


def test_figures_are_of_the_rows_that_the_plan_was_made_for():
    found = explain(replace(MLP, m=4160, n=4096, out=64))
    assert isinstance(found, Explanation)
    assert "  decided, and expected below, as for 5,120 rows" in str(found).splitlines()
    first = found.options[0][1][0]
    assert first.name == found.plan.expand.name
    assert "decided" not in str(explain(MLP))


def test_gradients_of_weights_of_few_rows_have_a_line():
    line = "  gradients of weights: small, as for all of at most 32 rows"
    few, more = replace(MLP, m=32, training=True), replace(MLP, m=33, training=True)
    assert line in str(explain(few)).splitlines()
    assert line not in str(explain(more)).splitlines()
    with override(expand="plain", project="plain", backward="plain"):  # then PyTorch does it all
        assert line not in str(explain(few)).splitlines()


def test_a_table_shows_what_the_others_were_measured_to_cost(monkeypatch: pytest.MonkeyPatch):
    costs = {"expand=tma project=plain": 171.0, "expand=plain project=plain": 243.04}
    table = Table("sm_90_h200", "sm_90", "NVIDIA H200", (Row.of(MLP, costs),))
    monkeypatch.setattr(plans_module, "shipped", lambda architecture: (table,))
    text = str(explain(MLP))
    assert "  expand (input to hidden): tma\n" in text
    assert "  from: table (the fastest of 2 measured on NVIDIA H200)\n" in text
    head = "  measured, the GPU's time of a whole call in a CUDA graph:\n"
    assert f"{head}    171.0 µs: expand=tma project=plain\n" in text
    assert "    243.0 µs: expand=plain project=plain" in text


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
    reason = "is for at most 16 rows, these are 8192"
    assert small == {"name": "small", "cost_us": None, "reason": reason, "gpu_us": None, "host_us": None}
    assert document["measured_us"] == {}


def test_tensors_are_explained_without_computing_anything(monkeypatch: pytest.MonkeyPatch):
    for module in (eager, plain):
        monkeypatch.setattr(module, "linear", None)
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


def test_the_release_of_torch_says_which_triton_runs_elsewhere():
    x, gate, up, down = (torch.empty(size, dtype=torch.bfloat16, device="meta") for size in SIZES)
    at = {"architecture": "H200", "training": False}
    known, later = (fused.explain(x, gate, up, down, **at, torch=release) for release in ("2.11", "2.13.0+cu130"))
    assert isinstance(known, Explanation)
    assert isinstance(later, Explanation)
    assert (known.plan.expand.name, later.plan.expand.name) == ("hopper", "tma")
    assert known.assumed == "assumed: Triton 3.6, which torch 2.11 brings"
    with pytest.raises(InputError, match=r"'new' is no version of torch; give one such as 2\.11"):
        fused.explain(x, gate, up, down, **at, torch="new")
    with pytest.raises(InputError, match="give architecture= as well"):
        fused.explain(x, gate, up, down, torch="2.11")


def test_what_holds_no_fused_layer_is_an_error():
    with pytest.raises(InputError, match="used no fused layer"):
        fused.explain(torch.nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(InputError, match="cannot be called"):
        fused.explain(3)


def test_equal_layers_are_explained_once_and_counted():
    layers = torch.nn.Sequential(*(fused.GatedMLP(16, 32) for _ in range(3)))
    for architecture in (None, "sm_90", "sm_90"):  # a second time with calls that were seen before
        found = fused.explain(layers, torch.randn(1, 16), architecture=architecture)
        assert isinstance(found, Explanation)
        assert found.met == found.to_dict()["met"] == 3
        assert str(found).splitlines()[0].startswith("gated_mlp, forward and backward: 1 row, 16 → 32 → 16, float32")
        assert str(found).splitlines()[0].endswith("; met 3 times")


def test_the_expected_time_of_the_chosen_steps_is_added_up_and_named():
    found = explain(MLP)
    assert isinstance(found, Explanation)
    (line,) = [line for line in str(found).splitlines() if line.startswith("  these 2 steps: ")]
    assert line.endswith(" µs expected, of each the longer of GPU and host; rates are those of the H200")
    costs = {
        role: {one.name: max(one.gpu_us or 0, one.host_us or 0) for one in options} for role, options in found.options
    }
    assert f"{costs['expand']['hopper'] + costs['project']['plain']:,.0f} µs" in line
    training = str(explain(replace(MLP, training=True)))
    assert "of each the longer of GPU and host; the gradients of x and of the weights come on top; rates" in training
    # Of a card that was not measured: whose figures these are is said.
    assert "rates are those of the L40S" in str(explain(replace(MLP, architecture="sm_89"), architecture="L4"))


def test_the_chosen_one_stands_first_and_then_the_quickest():
    for rows in (1, 17, 300, 8192):
        for training in (False, True):
            found = explain(replace(MLP, m=rows, training=training), architecture="H200", torch="2.13")
            assert isinstance(found, Explanation)
            lines = str(found).splitlines()
            for at, line in enumerate(lines):
                if role := re.fullmatch(r"  (?:expand|project|backward) \(.*\): (\w+).*", line):
                    listed = []
                    for below in lines[at + 1 :]:
                        option = re.fullmatch(r"    (\w+) +([\d,]+) µs expected: .*", below)
                        if option is None:
                            break
                        listed.append((option[1], int(option[2].replace(",", ""))))
                    assert listed[0][0] == role[1]
                    assert listed[1:] == sorted(listed[1:], key=lambda one: one[1])


def test_without_rows_there_is_nothing_to_expect():
    text = str(explain(replace(MLP, m=0)))
    assert "only choice (there is nothing to compute)" in text
    assert "µs expected, of each" not in text


def test_what_keeps_every_kernel_out_is_said_once():
    layer, x = fused.GatedMLP(16, 32), torch.randn(3, 16)
    assert str(fused.explain(layer, x)).count("needs an NVIDIA GPU") == 1
    with override(save="input"):
        text = str(fused.explain(layer, x))
    assert text.count("needs an NVIDIA GPU") == 1
    assert text.endswith("from: override (asked for instead of plain PyTorch, which was the only one)")
    assert "    portable, tma, hopper needs bfloat16 or float16, this is float32\n" in str(
        fused.explain(layer, x, architecture="sm_90")
    )


@pytest.mark.parametrize("save", ["auto", "preact", "recompute", "input"])
def test_a_gpu_one_has_not_explains_layers_without_values(save: str):
    layer = fused.GatedMLP(768, 3072, device="meta", dtype=torch.bfloat16, save=save)
    x = torch.empty(8192, 768, device="meta", dtype=torch.bfloat16)
    found = fused.explain(layer, x, architecture="H200")
    assert isinstance(found, Explanation)
    assert found.problem == replace(MLP, training=True)
    weights = [layer.weight for layer in (layer.gate_proj, layer.up_proj, layer.down_proj)]
    assert fused.explain(x, *weights, architecture="sm_90", training=False).problem == MLP
    with pytest.raises(InputError, match=r"on the meta device, .*architecture='sm_90'"):
        fused.explain(layer, x)
    assert layer(x).shape == x.shape


def test_of_a_gpu_that_is_not_here_the_triton_is_assumed_that_its_torch_brings(monkeypatch: pytest.MonkeyPatch):
    """What is installed here, or is not, says nothing of the machine with the GPU."""
    for module in (plans_module, environment_module):
        monkeypatch.setattr(module, "current", lambda: Environment((2, 11), None))
    layer = fused.GatedMLP(768, 3072, device="meta", dtype=torch.bfloat16)
    x = torch.empty(8192, 768, device="meta", dtype=torch.bfloat16)
    found = fused.explain(layer, x, architecture="H200", training=False)
    assert isinstance(found, Explanation)
    assert found.plan.expand.name == "hopper"
    assert str(found).endswith("  assumed: Triton 3.6, which torch 2.11 brings")
    assert found.to_dict()["assumed"] == "assumed: Triton 3.6, which torch 2.11 brings"


def test_an_override_is_judged_for_the_architecture_that_is_asked_about():
    layer, x = fused.GatedMLP(16, 32, dtype=torch.bfloat16), torch.ones(40, 16, dtype=torch.bfloat16)
    with override(expand="portable"):
        found = fused.explain(layer, x, architecture="sm_90")
        assert found.to_dict()["choice"]["expand"] == "portable"
        with pytest.raises(InputError, match="portable was asked for and cannot be used"):
            layer(x)
        with pytest.raises(InputError, match=r"cannot be used: .* this is sm_70"):
            fused.explain(layer, x, architecture="V100")


def test_an_architecture_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="architecture 'Hopper' is not known"):
        fused.explain(MLP, architecture="Hopper")
