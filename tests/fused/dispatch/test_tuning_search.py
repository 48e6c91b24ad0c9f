"""The search of an autotune, with a stopwatch that is made up."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from foretrace.fused.dispatch.choice import Choice
from foretrace.fused.dispatch.choose import modelled
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.tuning import search
from foretrace.fused.plan import Problem

H200 = Environment(torch=(2, 11), triton=(3, 6))
TRAINING = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=True)
FORWARD = replace(TRAINING, training=False)
DECODE = replace(FORWARD, m=8)


class Stopwatch:
    """Times are sums over the steps; ``refuse`` says why a choice must not be used."""

    def __init__(self, refuse: Callable[[Choice], str | None] = lambda choice: None, **times: float) -> None:
        self.times = times
        self.refuse = refuse
        self.calls: list[Sequence[Choice]] = []

    def __call__(self, choices: Sequence[Choice]) -> dict[Choice, float | str]:
        self.calls.append(choices)
        return {choice: self.refuse(choice) or self.us(choice) for choice in choices}

    def us(self, choice: Choice) -> float:
        words = choice.label("gated_mlp", True).replace("=", "_").split()[:3]
        return sum(self.times.get(word, 100.0) for word in words)


def test_the_best_of_every_step_are_tried_together():
    watch = Stopwatch(expand_tma=50.0, backward_elementwise=60.0)
    tuned = search(TRAINING, H200, modelled(TRAINING, H200), watch)
    assert tuned.best == "expand=tma project=plain backward=elementwise save=preact"
    assert tuned.costs[0] == (tuned.best, 210.0)
    assert len(watch.calls) == 2
    assert watch.calls[1][0].expand.name == "tma"  # beside the leaders of the first round
    assert len(watch.calls[1]) == 3


def test_variants_with_options_can_win():
    watch = Stopwatch(**{"expand_hopper[group_16]": 10.0})
    tuned = search(FORWARD, H200, modelled(FORWARD, H200), watch)
    assert tuned.best == "expand=hopper[group=16] project=plain"


def test_everything_possible_is_tried_and_plain_is_among_it():
    watch = Stopwatch()
    search(DECODE, H200, modelled(DECODE, H200), watch)
    tried = {choice.label("gated_mlp", False) for choices in watch.calls for choice in choices}
    assert "expand=plain project=plain" in tried
    for name in ("elementwise", "small", "portable", "tma", "hopper"):
        assert f"expand={name} project=small" in tried
    assert "expand=small project=plain" in tried


def test_a_wrong_choice_is_refused_however_fast_it_is():
    watch = Stopwatch(lambda c: "wrong: all zero" if c.expand.name == "hopper" else None, expand_hopper=1.0)
    tuned = search(FORWARD, H200, modelled(FORWARD, H200), watch)
    assert "hopper" not in tuned.best
    refused = dict(tuned.refused)
    assert refused["expand=hopper project=plain"] == "wrong: all zero"
    assert not set(refused) & {label for label, _ in tuned.costs}


def test_plain_remains_when_all_else_is_refused():
    watch = Stopwatch(lambda choice: None if choice.expand.name == "plain" else "raised")
    assert search(FORWARD, H200, modelled(FORWARD, H200), watch).best == "expand=plain project=plain"
    nothing = Stopwatch(lambda choice: "raised")
    assert search(FORWARD, H200, modelled(FORWARD, H200), nothing).best == "expand=plain project=plain"


def test_equal_times_are_decided_by_name():
    found = [search(FORWARD, H200, modelled(FORWARD, H200), Stopwatch()).best for _ in range(2)]
    assert found == ["expand=elementwise project=plain"] * 2
