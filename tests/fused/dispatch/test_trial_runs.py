"""A choice is run and compared before it is timed. On a CPU only plain steps run; wrong ones are made up."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from foretrace.fused import functional
from foretrace.fused.dispatch.choice import Choice, parse_choice
from foretrace.fused.dispatch.trial import Trial
from foretrace.fused.plan import Problem
from foretrace.timing import HostClock

MLP = Problem("gated_mlp", 5, 43, 37, 31, "float32", "gelu", "cpu", training=True, bias=True)
# Not the choice of plain PyTorch, so that the functions get a plan; its steps are plain all the same.
ASKED = Choice(save="recompute")


def clock() -> HostClock:
    ticks = itertools.count(step=1000)
    return HostClock(counter_ns=lambda: next(ticks))


@pytest.mark.parametrize(
    "problem",
    [
        MLP,
        replace(MLP, training=False),
        replace(MLP, dtype="bfloat16", packing="interleaved", n=44),
        replace(MLP, dtype="float16", packing="up_gate", bias=False),
        replace(MLP, operation="mlp", activation="relu2"),
        replace(MLP, operation="linear_act", out=0, activation="silu", aligned=False),
        replace(MLP, operation="gated_act", k=0, out=0, activation="sigmoid"),
    ],
    ids=lambda problem: f"{problem.operation}-{problem.dtype}-{problem.packing}-{problem.training}",
)
def test_plain_steps_are_right_and_are_timed(problem: Problem):
    trial = Trial(problem, "cpu", clock())
    if problem.operation == "gated_act":
        assert trial([Choice()]) == {Choice(): 1.0}
    else:
        assert trial([Choice(), ASKED]) == {Choice(): 1.0, ASKED: 1.0}


def test_a_choice_that_raises_is_refused_with_what_it_said():
    found = Trial(MLP, "cpu", clock())([Choice(), parse_choice("expand=library")])
    assert found[Choice()] == 1.0
    assert str(found[parse_choice("expand=library")]).startswith("raised InputError: 'library' has no step 'gate_up'")


def tampered(change: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """gated_mlp whose output is changed when it gets a plan; the change knows how many calls there were before."""
    calls = itertools.count()
    right = functional.gated_mlp

    def gated_mlp(*operands: Any, plan: Any = None, **named: Any) -> torch.Tensor:
        y = right(*operands, plan=plan, **named)
        return y if plan is None else change(y, next(calls))

    return gated_mlp


def one_element(y: torch.Tensor, value: float) -> torch.Tensor:
    mask = torch.zeros_like(y)
    mask[-1, -1] = 1
    return torch.where(mask.bool(), value, y)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y, turn: y * 1.001, "wrong: result 0 is off by 0.001 in norm"),
        (lambda y, turn: one_element(y, float("nan")), "wrong: result 0"),
        (lambda y, turn: one_element(y, 0.0), "wrong: result 0"),
        (lambda y, turn: y + (y - y.detach()) * 0.01, "wrong: result 1"),
        (lambda y, turn: y * (1 + turn * 2**-23), "two runs differ"),
    ],
    ids=["a little off", "an element never written", "one wrong element", "wrong gradient", "not repeatable"],
)
def test_what_is_wrong_is_refused(change, reason: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(functional, "gated_mlp", tampered(change))
    found = Trial(MLP, "cpu", clock())([Choice(), ASKED])
    assert isinstance(found[Choice()], float)
    assert str(found[ASKED]).startswith(reason)


def test_a_trial_leaves_the_random_numbers_of_the_program_alone():
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    Trial(MLP, "cpu", clock())([Choice()])
    assert torch.equal(torch.randn(2), expected)


def test_operands_are_the_same_every_time_and_as_aligned_as_the_problem_says():
    first, second = Trial(MLP, "cpu", clock()), Trial(MLP, "cpu", clock())
    assert all(torch.equal(first.operands[name], second.operands[name]) for name in first.operands)
    assert first.operands["x"].data_ptr() % 16 == 0
    assert Trial(replace(MLP, aligned=False), "cpu", clock()).operands["x"].data_ptr() % 16 == 4
