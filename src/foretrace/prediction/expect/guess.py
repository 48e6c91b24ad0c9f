"""The guessing game: questions about a step that is not recorded yet, and the expectation the answers make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foretrace.errors import InputError
from foretrace.knowledge.expectations import GUESS_TOLERANCE
from foretrace.model.expectations import Clause, Expectation
from foretrace.prediction.expect.language import clauses_of
from foretrace.prediction.expect.sense import problems
from foretrace.prediction.expect.values import range_value

__all__ = ["QUESTIONS", "Question", "ask"]


@dataclass(frozen=True)
class Question:
    """One question; ``quantity`` is what the answer is about, ``example`` shows how to answer."""

    quantity: str
    text: str
    example: str


# No example may be the answer for the program people try first.
_NUMBER = "a number, or a range as in 10..20"
QUESTIONS = (
    Question("kernels", "How many kernels does one step launch?", _NUMBER),
    Question("gemm", "How many of them are matrix products?", _NUMBER),
    Question("elementwise", "How many are pointwise, one operator each?", _NUMBER),
    Question("fused", "How many do the pointwise work of several operators at once?", _NUMBER),
    Question("memcpys", "How many memory copies?", _NUMBER),
    Question("memsets", "How many memsets?", _NUMBER),
    Question("occupancy_query_before", "Does the CPU ask for the occupancy before each matrix product?", "y or n"),
    Question("synchronizations", "How often does the CPU wait for the GPU?", _NUMBER),
    Question("bound", "What sets the pace?", "compute, memory, overhead or mixed"),
    Question(
        "gpu_busy_us", "How long does the GPU work a step?", f"as in 1.5 ms; within {100 * GUESS_TOLERANCE:g} % counts"
    ),
)
_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})
_TRIES = 3


def ask(read: Callable[[str], str | None], say: Callable[[str], None]) -> Expectation:
    """Ask every question once, again where an answer cannot be understood.

    Args:
        read: shows a prompt and returns the answer, ``None`` when there are no more.
        say: shows one sentence about an answer that cannot be taken.

    Returns:
        What was guessed; an empty answer is no guess.
    """
    clauses: list[Clause] = []
    for question in QUESTIONS:
        for _ in range(_TRIES):
            answer = read(f"{question.text} [{question.example}] ")
            if answer is None:
                return Expectation(tuple(clauses))
            if not answer.strip():
                break
            try:
                taken = _taken(question, answer.strip())
                for _, sentence in problems([*clauses, *taken]):
                    raise InputError(sentence)
            except InputError as error:
                say(str(error))
                continue
            clauses += taken
            break
    return Expectation(tuple(clauses))


def _taken(question: Question, answer: str) -> list[Clause]:
    """The clause an answer makes; ``InputError`` where it is none."""
    name = question.quantity
    if name == "occupancy_query_before":
        if answer.lower() in _YES:
            return clauses_of(name, "gemm")
        if answer.lower() in _NO:
            return clauses_of("occupancy_queries", 0)
        raise InputError("answer y or n, or nothing")
    if name == "bound":
        return clauses_of(name, answer.lower())
    if name.endswith("_us"):
        wanted = range_value(answer, "us")
        if wanted.exact:
            # A time is guessed, not counted: one number stands for what lies around it.
            return clauses_of(name, (wanted.exact * (1 - GUESS_TOLERANCE), wanted.exact * (1 + GUESS_TOLERANCE)))
    return clauses_of(name, answer)
