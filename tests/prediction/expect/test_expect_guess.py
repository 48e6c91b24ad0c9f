"""The guessing game: answers become an expectation, bad answers are asked again."""

from __future__ import annotations

from foretrace import expect
from foretrace.prediction.expect.guess import QUESTIONS, ask


def play(**answers: str | list[str]) -> tuple[object, list[str]]:
    """Answer the questions by quantity; what is not named is left empty."""
    pending = {name: [given] if isinstance(given, str) else list(given) for name, given in answers.items()}
    said: list[str] = []

    def read(prompt: str) -> str:
        (question,) = [q for q in QUESTIONS if prompt.startswith(q.text)]
        left = pending.get(question.quantity, [])
        return (left.pop(0) if left else "") + "\n"

    return ask(read, said.append), said


def test_answers_are_an_expectation():
    guessed, said = play(kernels="5", gemm="3", elementwise="1..2", occupancy_query_before="y", bound="Memory")
    wanted = expect(kernels=5, gemm=3, elementwise="1..2", occupancy_query_before="gemm", bound="memory")
    assert (guessed, said) == (wanted, [])


def test_no_query_is_a_count_of_none():
    assert play(occupancy_query_before="n")[0] == expect(occupancy_queries=0)


def test_one_time_stands_for_what_lies_around_it():
    assert play(gpu_busy_us="200 us")[0] == expect(gpu_busy_us="160..240")
    assert play(gpu_busy_us="200..300")[0] == expect(gpu_busy_us="200..300")


def test_nothing_is_no_guess():
    guessed, _ = play()
    assert guessed == expect()


def test_an_answer_that_cannot_be_taken_is_asked_again_three_times_at_most():
    guessed, said = play(kernels=["many", "2"], gemm=["3", "2"], memcpys=["a", "b", "c", "0"])
    assert guessed == expect(kernels=2, gemm=2)
    assert len(said) == 5
    assert "3 gemm cannot be among 2 kernels" in said[1]


def test_the_end_of_the_input_ends_the_questions():
    answers = iter(["5\n", None])
    assert ask(lambda _: next(answers), print) == expect(kernels=5)
