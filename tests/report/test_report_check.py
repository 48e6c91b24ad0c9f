"""A check as text: what a reader must find in it, whatever the trace calls things."""

from __future__ import annotations

from foretrace.model.expectations import Account, Checked, Outcome, Scope, StepOutcome, Surprise
from foretrace.model.report import Evidence
from foretrace.report.check import render_check
from foretrace.report.view import View


def outcome(**changes: object) -> Outcome:
    fields: dict[str, object] = {
        "expectation": "gemm == 3",
        "quantity": "gemm",
        "scope": Scope(),
        "unit": "count",
        "expected": "3",
        "observed": "3",
        "state": "held",
    }
    return Outcome(**(fields | changes))  # type: ignore[arg-type]


def checked(*outcomes: Outcome, **changes: object) -> Checked:
    states = [one.state for one in outcomes]
    fields: dict[str, object] = {
        "trace": "/data/mlp.json.gz",
        "gpus": ["NVIDIA H200"],
        "steps": ["ProfilerStep#2", "ProfilerStep#3"],
        "state": "broken" if "broken" in states else "unknown" if "unknown" in states else "held",
        "held": states.count("held"),
        "broken": states.count("broken"),
        "unknown": states.count("unknown"),
        "outcomes": list(outcomes),
        "surprises": [],
        "alarms": [],
    }
    return Checked(**(fields | changes))  # type: ignore[arg-type]


BROKEN = outcome(
    state="broken",
    observed="4",
    steps=[
        StepOutcome(index=0, label="ProfilerStep#2", state="held", observed=3),
        StepOutcome(index=1, label="ProfilerStep#3", state="broken", observed=4),
    ],
    accounts=[
        Account(
            text="splitKreduce, launched by aten::mm",
            why="The library split K.",
            rule="split_k",
            source="cuBLAS",
            count=1,
            evidence=[Evidence(event=7, name="splitKreduce\x1b[31m", start_us=12.5)] * 5,
        )
    ],
)


def test_a_broken_clause_says_where_by_what_and_why():
    text = render_check(checked(BROKEN))
    assert "BROKEN   gemm == 3  is 4" in text
    assert "broken in ProfilerStep#3; held in 1 other step" in text
    assert "→ splitKreduce, launched by aten::mm" in text
    assert "The library split K." in text
    assert "at 12.5 µs, event 7" in text
    assert "and 2 more events" in text
    assert "rule split_k · cuBLAS" in text


def test_a_reason_is_given_once():
    text = render_check(checked(BROKEN, BROKEN))
    assert text.count("The library split K.") == 1
    assert "rule split_k · explained above" in text


def test_nothing_a_trace_says_reaches_the_terminal_as_a_command():
    assert "\x1b" not in render_check(checked(BROKEN))
    assert "\x1b[31m" not in render_check(checked(BROKEN), View(color=True))


def test_an_unknown_clause_says_why():
    text = render_check(checked(outcome(state="unknown", observed=None, reason="no shapes were recorded")))
    assert "unknown  gemm == 3\n           why: no shapes were recorded" in text


def test_places_are_headings_and_clauses_stand_without_them():
    scope = Scope(step="#3", region="mlp_fwd")
    text = render_check(checked(outcome(scope=scope, expectation="step #3, region mlp_fwd: gemm == 3")))
    assert "STEP #3, region mlp_fwd\n  held     gemm == 3\n" in text


def test_numbers_with_a_unit_are_said_in_words():
    one = outcome(
        quantity="gpu_busy_us", unit="us", expectation="gpu_busy_us == 200..220", expected="200 µs to 220 µs",
        observed="210 µs",
    )  # fmt: skip
    assert "held     gpu_busy_us 200 µs to 220 µs  is 210 µs" in render_check(checked(one))


def test_alarms_and_predictions_come_first():
    text = render_check(checked(outcome(), alarms=["the file was cut off"], predicted=True))
    assert text.index("PREDICTED") < text.index("DO NOT TRUST") < text.index("gemm == 3")


def test_the_sum():
    assert render_check(checked(outcome(), BROKEN)).endswith("2 expectations: 1 held and 1 broken\n")
    unknown = outcome(state="unknown", observed=None)
    guesses = render_check(checked(outcome(), BROKEN, unknown), guess=True)
    assert guesses.endswith("Your guesses: 1 of 2 right; 1 cannot be told from this trace\n")


def test_surprises_are_told_at_the_end():
    one = Surprise(quantity="memsets", text="2 memsets by aten::mm", why="A library clears memory.", rule="r")
    text = render_check(checked(outcome(), surprises=[one]))
    assert "  • 2 memsets by aten::mm\n    A library clears memory.\n" in text


def test_no_line_is_wider_than_asked():
    for width in (40, 60, 100):
        assert max(map(len, render_check(checked(BROKEN), View(width=width)).splitlines())) <= width
