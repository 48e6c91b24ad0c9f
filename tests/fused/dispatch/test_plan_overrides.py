"""Plans are made once; a person's words come before every measurement."""

import threading
from dataclasses import astuple, replace

import pytest

from foretrace.errors import InputError
from foretrace.fused.dispatch import clear, override, plan_for, plan_for_key
from foretrace.fused.dispatch import plans as plans_module
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.overrides import recording
from foretrace.fused.dispatch.plans import coarse_rows
from foretrace.fused.plan import Implementation, Problem

MLP = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=True)


@pytest.fixture(autouse=True)
def as_on_an_h200_without_tables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans_module, "current", lambda: Environment((2, 11), (3, 6)))
    monkeypatch.setattr(plans_module, "shipped", lambda architecture: ())
    monkeypatch.setattr(plans_module, "gpu_of", lambda architecture: None)
    monkeypatch.delenv("FORETRACE_FUSED_OVERRIDE", raising=False)
    clear()
    yield
    clear()


def test_the_same_problem_gets_the_same_plan_object():
    assert plan_for(MLP) is plan_for(replace(MLP)) is plan_for_key(astuple(MLP))


def test_nearly_equal_row_counts_share_a_plan_object():
    assert plan_for(MLP) is plan_for(replace(MLP, m=8000))
    assert [coarse_rows(m) for m in (0, 1, 16, 17, 21, 33, 8192, 8193)] == [0, 1, 16, 20, 24, 40, 8192, 10240]


def test_a_block_chooses_by_name_and_says_so():
    with override(expand="portable", backward="plain", save="recompute"):
        plan = plan_for(MLP)
    assert (plan.expand.name, plan.project.name, plan.backward.name) == ("portable", "plain", "plain")
    assert (plan.save, plan.source) == ("recompute", "override")
    assert plan.reason == "asked for instead of the model's choice"
    assert plan_for(MLP).source == "model"


def test_words_with_options_and_inner_blocks():
    with override("expand=tma[group=16] backward=plain"):
        with override(expand="portable"):
            assert plan_for(MLP).expand.name == "portable"
            assert plan_for(MLP).backward.name == "plain"
        assert plan_for(MLP).expand == Implementation("tma", (("group", 16),))


def test_the_environment_variable_holds_words_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORETRACE_FUSED_OVERRIDE", "expand=plain")
    assert plan_for(MLP).expand.name == "plain"
    with override(expand="tma"):
        assert plan_for(MLP).expand.name == "tma"


def test_a_variable_that_is_not_understood_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORETRACE_FUSED_OVERRIDE", "expand=fastest")
    with pytest.raises(InputError, match=r"FORETRACE_FUSED_OVERRIDE=expand=fastest: .* choose from plain, elementwise"):
        plan_for(MLP)


def test_an_implementation_that_cannot_serve_is_an_error_with_the_reason():
    with override(expand="small"), pytest.raises(InputError, match="is for at most 16 rows, these are 8192"):
        plan_for(MLP)
    with override(expand="portable"), pytest.raises(InputError, match="this is cpu"):
        plan_for(replace(MLP, architecture="cpu"))


def test_words_for_steps_an_operation_has_not_are_ignored():
    with override(project="small", backward="plain"):
        plan = plan_for(Problem("linear_act", 8192, 3072, 768, 0, "bfloat16", "silu", "sm_90", training=False))
    assert plan.source == "model"


@pytest.mark.parametrize("wrong", [{"expand": "fast"}, {"project": "tma"}, {"save": "some"}, {"words": "expand"}])
def test_unknown_names_are_refused_at_once(wrong: dict[str, str]):
    with pytest.raises(InputError), override(**wrong):
        raise AssertionError("never entered")


def test_a_block_holds_in_its_own_thread_only():
    seen = []
    with override(expand="plain"):
        thread = threading.Thread(target=lambda: seen.append(plan_for(MLP).expand.name))
        thread.start()
        thread.join()
        assert plan_for(MLP).expand.name == "plain"
    assert seen == ["hopper"]


def test_a_recording_notes_each_problem_as_often_as_it_is_met_and_keeps_overrides():
    with override(expand="plain"), recording() as asked:
        assert plan_for(MLP).expand.name == "plain"
        plan_for(MLP)
        plan_for(replace(MLP, m=1))
    assert asked == [MLP, MLP, replace(MLP, m=1)]


def test_many_shapes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans_module, "_MOST", 4)
    for m in range(1, 17):
        plan_for(replace(MLP, m=m))
    assert len(plans_module._plans) <= 4


def test_problems_asked_about_for_another_gpu_are_computed_in_plain_pytorch():
    with override(expand="portable"), recording(architecture="sm_80") as asked:
        plan = plan_for(replace(MLP, architecture="cpu"))
    assert asked == [replace(MLP, architecture="sm_80")]
    assert (plan.expand.name, plan.source) == ("plain", "only choice")


def test_an_override_without_kernels_says_what_it_stands_instead_of():
    with override(save="input"):
        plan = plan_for(replace(MLP, architecture="cpu"))
    assert plan.reason == "asked for instead of plain PyTorch, which was the only one"
