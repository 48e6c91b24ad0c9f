"""The suites: which cases, which entrants, which clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fused_bench.accuracy import accuracy
from fused_bench.case import Case
from fused_bench.decode import decode
from fused_bench.entrants import Entrant
from fused_bench.hostcost import host
from fused_bench.neverslower import held_out, never_slower
from fused_bench.opponents import OPPONENTS
from fused_bench.ours import OURS, choices_for, forced
from fused_bench.session import Session, measure_case
from fused_bench.shapes import LLAMA, SMALL, linear_cases, mlp_cases

__all__ = ["SUITES", "entrants_for"]


def entrants_for(session: Session, case: Case, *, implementations: bool = False) -> list[Entrant]:
    """Everyone who could take part, and the choices forced by the command line.

    ``implementations``: also each implementation of ours by name, as far as it is possible here, and its tuning options
    where the session wants variants.
    """
    words = list(session.forced)
    if implementations:
        choices = choices_for(case, session.device.name, variants=session.variants)
        words += [choice for choice in choices if choice not in words]
    return [*OPPONENTS.values(), *OURS.values(), *(forced(choice) for choice in words)]


def mlp(session: Session) -> None:
    """The gated MLP, forward."""
    cases = mlp_cases("forward", session.shapes, session.dtype)
    session.each("mlp", cases, lambda case: measure_case(session, case, entrants_for(session, case)))


def train(session: Session) -> None:
    """The gated MLP, forward and backward: GPU time, wall time of a training loop, and peak memory."""
    cases = mlp_cases("train", session.shapes, session.dtype)
    clocks = ("events", "wall", "graph")
    session.each(
        "train",
        cases,
        lambda case: measure_case(session, case, entrants_for(session, case), clocks=clocks, with_memory=True),
    )


def linear(session: Session) -> None:
    """Linear + bias + GELU, forward and with backward; each implementation too, which makes rows of the tuned table."""
    cases = linear_cases(session.shapes, session.dtype)

    def run(case: Case) -> dict[str, Any] | None:
        return measure_case(session, case, entrants_for(session, case, implementations=True))

    session.each("linear", cases, run)


def memory(session: Session) -> None:
    """Peak memory of a training step, nothing timed."""
    shapes = session.shapes or [SMALL, LLAMA]
    cases = [Case("gated_mlp", *shape, "gelu_tanh", "train", session.dtype) for shape in shapes]
    cases += [replace(case, activation="silu") for case in cases]
    session.each(
        "memory",
        cases,
        lambda case: measure_case(session, case, entrants_for(session, case), clocks=(), with_memory=True),
    )


SUITES: dict[str, Callable[[Session], None]] = {
    "mlp": mlp,
    "train": train,
    "decode": decode,
    "linear": linear,
    "never-slower": never_slower,
    "held-out": held_out,
    "accuracy": accuracy,
    "host": host,
    "memory": memory,
}
