"""What follows from the numbers of one step."""

from __future__ import annotations

import pytest

from report.samples import step


@pytest.mark.parametrize(
    ("idle", "period", "share"),
    [
        (25.0, 100.0, 0.75),
        (0.0, 100.0, 1.0),
        (100.0, 100.0, 0.0),
        (101.0, 100.0, 0.0),
        (None, 100.0, None),
        (0, 0, None),
    ],
)
def test_the_gpu_is_busy_for_what_is_not_idle(idle: float | None, period: float, share: float | None) -> None:
    # Busy time is that of the step's own work, which may end behind its period.
    assert step(gpu_idle_us=idle, period_us=period, gpu_busy_us=500.0).busy_share == share
