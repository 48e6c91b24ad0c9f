"""What an autotune found is kept: for every process alike, and only where it still holds."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foretrace.errors import InputError
from foretrace.fused.dispatch import autotune as autotune_module
from foretrace.fused.dispatch import cache, clear, plan_for
from foretrace.fused.dispatch import plans as plans_module
from foretrace.fused.dispatch.autotune import autotune, tune_problem
from foretrace.fused.dispatch.cache import Tuned, bucket, load, path_of, store
from foretrace.fused.dispatch.choice import Choice
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.machine import Gpu
from foretrace.fused.modules import GatedMLP
from foretrace.fused.plan import Problem

MLP = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=False)
GPU = "NVIDIA H200"
FOUND = Tuned("expand=tma project=plain", (("expand=tma project=plain", 170.5),), (("expand=hopper", "wrong"),))


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("FORETRACE_FUSED_OVERRIDE", raising=False)
    monkeypatch.setattr(cache, "_unwritten", {})
    clear()
    yield
    clear()


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch):
    """As if this process had an H200 and the Triton of the kernels."""
    for module in (plans_module, autotune_module):
        monkeypatch.setattr(module, "gpu_of", lambda architecture: Gpu(0, GPU) if architecture == "sm_90" else None)
        monkeypatch.setattr(module, "current", lambda: Environment((2, 11), (3, 6)))
        monkeypatch.setattr(module, "shipped", lambda architecture: ())


class Stopwatch:
    """Portable is fastest, hopper is wrong."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, choices: Sequence[Choice]) -> dict[Choice, float | str]:
        self.calls += 1
        times = {"portable": 50.0, "hopper": "wrong: result 0 is off by 1 in norm"}
        return {choice: times.get(choice.expand.name, 100.0) for choice in choices}


def test_what_was_stored_is_found():
    assert load(MLP, GPU) is None
    assert store(MLP, GPU, FOUND) == FOUND
    assert load(MLP, GPU) == FOUND


def test_row_counts_share_a_result_up_to_the_next_power_of_two():
    store(MLP, GPU, FOUND)
    assert load(replace(MLP, m=4097), GPU) == FOUND
    assert load(replace(MLP, m=4096), GPU) is None
    assert [bucket(m) for m in (0, 1, 15, 16, 17, 32, 33)] == [0, 1, 15, 16, 32, 32, 64]


def test_a_result_holds_for_one_gpu_and_one_problem(monkeypatch: pytest.MonkeyPatch):
    store(MLP, GPU, FOUND)
    assert load(MLP, "NVIDIA H100") is None
    assert load(replace(MLP, activation="silu"), GPU) is None
    monkeypatch.setattr(cache, "_version", lambda name: "9.9")
    assert load(MLP, GPU) is None


def test_the_first_result_stays_unless_it_is_measured_again():
    other = Tuned("expand=plain project=plain", (("expand=plain project=plain", 1.0),))
    store(MLP, GPU, FOUND)
    assert store(MLP, GPU, other) == FOUND
    assert store(MLP, GPU, other, again=True) == other


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', '{"key": {}, "best": 3, "costs": {}, "refused": {}}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(text: str):
    path = path_of(MLP, GPU)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert load(MLP, GPU) is None
    assert store(MLP, GPU, FOUND) == FOUND


def test_a_folder_that_cannot_be_written_keeps_the_result_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(blocked))
    assert store(MLP, GPU, FOUND) == FOUND
    assert load(MLP, GPU) == FOUND


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("FORETRACE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache.directory() == tmp_path / "xdg" / "foretrace" / "fused"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.directory() == tmp_path / ".cache" / "foretrace" / "fused"


WRITER = """
import sys, time
from foretrace.fused.dispatch.cache import Tuned, load, store
from foretrace.fused.plan import Problem
problem = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=False)
sys.stdin.readline()
seen = set()
for turn in range(40):
    best = f"expand=plain[by={sys.argv[1]},turn={turn}] project=plain"
    seen.add(store(problem, "NVIDIA H200", Tuned(best, ((best, 1.0),))).best)
    seen.add(load(problem, "NVIDIA H200").best)
print("\\n".join(sorted(seen)))
"""


def test_processes_that_tune_at_once_agree(tmp_path: Path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(3)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    seen = set()
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        seen |= set(output.split("\n")) - {""}
    assert len(seen) == 1  # one process decided, every reader saw that and nothing else
    assert [path.suffix for path in (tmp_path / "fused").iterdir()] == [".json"]  # and nothing was left lying


def test_a_tuned_problem_is_planned_by_what_was_measured(h200: None):
    assert plan_for(MLP).source == "model"
    watch = Stopwatch()
    tuned = tune_problem(MLP, measure=watch)
    assert tuned.best == "expand=portable project=plain"
    assert dict(tuned.refused)["expand=hopper project=plain"].startswith("wrong")
    plan = plan_for(MLP)
    assert (plan.expand.name, plan.source) == ("portable", "autotune")
    assert plan.costs[0] == ("expand=portable project=plain", 50.0)
    assert f"measured on this {GPU}" in plan.reason
    count = watch.calls
    assert tune_problem(MLP, measure=watch) == tuned
    assert watch.calls == count  # once is enough
    tune_problem(MLP, measure=watch, again=True)
    assert watch.calls > count


def test_a_tuned_choice_that_cannot_serve_a_problem_is_passed_over(h200: None):
    store(replace(MLP, aligned=False), GPU, FOUND)
    assert plan_for(replace(MLP, aligned=False)).source == "model"


def test_the_variable_tunes_on_first_use(h200: None, monkeypatch: pytest.MonkeyPatch):
    tried = []

    def tune(problem: Problem) -> None:
        tried.append(problem)
        store(problem, GPU, FOUND)

    monkeypatch.setattr(autotune_module, "tune_problem", tune)
    monkeypatch.setattr(plans_module, "may_measure", lambda: True)
    monkeypatch.setenv("FORETRACE_FUSED_AUTOTUNE", "1")
    assert plan_for(replace(MLP, m=8000)).source == "autotune"
    assert plan_for(MLP).expand.name == "tma"
    assert tried == [MLP]


def test_too_little_memory_to_tune_does_not_stop_the_program(h200: None, monkeypatch: pytest.MonkeyPatch):
    def tune(problem: Problem) -> None:
        raise torch.cuda.OutOfMemoryError("no memory")

    monkeypatch.setattr(autotune_module, "tune_problem", tune)
    monkeypatch.setattr(plans_module, "may_measure", lambda: True)
    monkeypatch.setenv("FORETRACE_FUSED_AUTOTUNE", "1")
    with pytest.warns(RuntimeWarning, match="too little GPU memory to tune gated_mlp of 8192 × 768 × 3072 × 768"):
        assert plan_for(MLP).source == "model"


def test_nothing_is_measured_while_a_graph_is_captured(h200: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans_module, "may_measure", lambda: False)
    monkeypatch.setenv("FORETRACE_FUSED_AUTOTUNE", "1")
    assert plan_for(MLP).source == "model"


def test_where_only_plain_can_run_there_is_nothing_to_tune(h200: None):
    assert tune_problem(replace(MLP, dtype="float64")) == Tuned("expand=plain project=plain", ())


def test_on_a_cpu_there_is_nothing_to_measure_on():
    layer, x = GatedMLP(8, 12), torch.ones(2, 8)
    with pytest.raises(InputError, match="on an NVIDIA GPU; move the layer and its inputs"):
        autotune(layer, x)
    with pytest.raises(InputError, match="takes no architecture="):
        autotune(layer, x, architecture="sm_90")


def test_without_the_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(autotune_module, "gpu_of", lambda architecture: None)
    monkeypatch.setattr(autotune_module, "current", lambda: Environment((2, 11), (3, 6)))
    with pytest.raises(InputError, match="has none of architecture sm_90"):
        autotune(MLP)


def test_a_call_without_fused_layers_is_an_error():
    with pytest.raises(InputError, match="used no fused layer"):
        autotune(lambda: None)


def test_a_file_says_what_it_is_for():
    store(MLP, GPU, FOUND)
    document = json.loads(path_of(MLP, GPU).read_text())
    assert document["key"]["gpu"] == GPU
    assert document["key"]["problem"]["n"] == 3072
    assert set(document["key"]["versions"]) == {"torch", "triton", "foretrace"}
    assert os.access(path_of(MLP, GPU), os.R_OK)
