"""Corrections by the nearest measured calls: exact hits, far points, votes, disagreement."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.prediction.clock.neighbours import COUNT, Measured


def measured(features, warm, *, cold=None, pattern=None, extra=None):
    features = np.array(features, dtype=float)
    warm = np.array(warm, dtype=float)
    return Measured(
        features,
        warm if cold is None else np.array(cold, dtype=float),
        warm,
        np.zeros(len(warm), dtype=np.int64) if pattern is None else np.array(pattern),
        np.zeros(len(warm)) if extra is None else np.array(extra, dtype=float),
    )


def test_a_call_that_was_measured_is_its_own_best_neighbour():
    """Its weight is 1 / 0.02; each of six neighbours at distance 3 weighs 1 / 9.02."""
    points = [[0.0, 0.0], *([3.0, 0.0],) * 6]
    near = measured(points, [0.5, *(0.0,) * 6], cold=[0.7, *(0.0,) * 6]).near(np.zeros(2))
    assert near.distance == 0
    assert near.is_near
    share = 50 / (50 + 6 / 9.02)
    assert (near.warm, near.cold) == (pytest.approx(0.5 * share), pytest.approx(0.7 * share))


def test_a_point_far_from_all_is_no_evidence():
    group = measured([[0.0, 0.0]], [0.3])
    assert group.near(np.array([2.0, 0.0])).is_near
    far = group.near(np.array([2.1, 0.0]))
    assert not far.is_near
    assert (far.warm, far.distance) == (pytest.approx(0.3), pytest.approx(2.1))


def test_only_the_nearest_count():
    line = measured([[float(x)] for x in range(100)], [1.0] * COUNT + [-50.0] * (100 - COUNT))
    assert line.near(np.array([0.0])).warm == pytest.approx(1.0)


def test_the_pattern_is_that_of_the_heavier_neighbours_and_so_is_its_extra():
    group = measured([[0.0], [1.0], [1.1], [1.2]], [0.0] * 4, pattern=[7, 3, 3, 3], extra=[0.2, 0.0, 0.0, 0.0])
    close = group.near(np.array([0.1]))
    assert (close.pattern, close.extra) == (7, pytest.approx(0.2))
    outvoted = group.near(np.array([0.9]))
    assert (outvoted.pattern, outvoted.extra) == (3, 0.0)


def test_agreement_has_no_spread_and_disagreement_has():
    points = [[0.0], [0.0]]
    assert measured(points, [0.2, 0.2]).near(np.array([0.0])).spread == 0
    assert measured(points, [0.1, 0.3]).near(np.array([0.0])).spread == pytest.approx(0.1)
    # Half of the calls' variance is that of cold times, half that of warm ones.
    apart = measured(points, [0.2, 0.2], cold=[0.1, 0.3]).near(np.array([0.0]))
    assert apart.spread == pytest.approx(0.1 / 2**0.5)


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-1, 1), st.floats(0, 0.9)), min_size=1, max_size=20),
    st.floats(-20, 20),
)
def test_a_correction_lies_between_its_neighbours(calls, at):
    features, warm, extra = ([[x] for x, _, _ in calls], [w for _, w, _ in calls], [e for _, _, e in calls])
    near = measured(features, warm, extra=extra).near(np.array([at]))
    assert min(warm) - 1e-9 <= near.warm <= max(warm) + 1e-9
    assert min(extra) - 1e-9 <= near.extra <= max(extra) + 1e-9
    assert 0 <= near.spread <= max(warm) - min(warm) + 1e-9
    assert near.distance == pytest.approx(min(abs(x - at) for x, _, _ in calls))
