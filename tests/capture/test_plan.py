"""The schedule: which step does what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.capture import Plan
from foretrace.errors import InputError

PLANS = st.builds(Plan, wait=st.integers(0, 5), warmup=st.integers(0, 5), active=st.integers(1, 5))


def test_the_default_is_one_one_three() -> None:
    assert [Plan().phase(step) for step in range(6)] == ["wait", "warmup", *["active"] * 3, "done"]
    assert [step for step in range(6) if Plan().is_last_active(step)] == [4]


@given(PLANS)
def test_there_is_one_cycle_and_it_ends(plan: Plan) -> None:
    phases = [plan.phase(step) for step in range(plan.total + 20)]
    assert phases.count("active") == plan.active
    assert set(phases[plan.total :]) == {"done"}  # a second cycle could only overwrite the first


@given(PLANS, st.integers(0, 30))
def test_recorded_counts_complete_active_steps(plan: Plan, steps: int) -> None:
    assert plan.recorded(steps) == [plan.phase(step) for step in range(steps)].count("active")


def test_the_strip_shows_what_was_reached() -> None:
    assert Plan(1, 1, 3).strip(4) == "-WRRr"
    assert Plan(1, 1, 3).strip(9) == "-WRRR"


def test_the_error_says_what_is_needed_and_what_to_do() -> None:
    assert "needs 5 steps (wait 1 + warmup 1 + active 3) and got 2" in str(Plan().not_reached(2))
    assert "step() was never called" in str(Plan().not_reached(0))


@pytest.mark.parametrize("counts", [{"active": 0}, {"wait": -1}, {"warmup": -1}, {"active": 1.5}, {"active": True}])
def test_counts_that_make_no_schedule_are_refused(counts: dict[str, int]) -> None:
    with pytest.raises(InputError):
        Plan(**counts)
