"""What the cache keeps from one step to the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.prediction.clock.cache import missing_shares
from foretrace.prediction.work import Access, Work

MB = 1 << 20


def work(reads, writes=()):
    return Work(
        "elementwise",
        "aten::mul",
        "bf16",
        tuple(Access(storage, size) for storage, size in reads),
        tuple(Access(storage, size) for storage, size in writes),
        elements=1,
    )


ACCESSES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 200 * MB)), max_size=3)


@given(st.lists(st.tuples(ACCESSES, ACCESSES), max_size=8), st.floats(1 * MB, 100 * MB))
def test_a_share_is_a_share(steps, capacity):
    shares = missing_shares([work(reads, writes) for reads, writes in steps], capacity)
    assert len(shares) == len(steps)
    assert all(0 <= share <= 1 for share in shares)


def test_a_small_working_set_stays():
    shares = missing_shares([work([(0, MB), (1, MB)], [(2, MB)]), work([(2, MB)], [(3, MB)])], 40 * MB)
    assert shares == pytest.approx([0, 0], abs=1e-3)


def test_a_huge_one_does_not():
    step = [work([(storage, 400 * MB)], [(storage + 10, 400 * MB)]) for storage in range(3)]
    assert missing_shares(step, 40 * MB) == pytest.approx([1.0] * 3, abs=1e-4)


def test_a_result_that_is_read_at_once_is_there_and_after_a_stream_it_is_not():
    made, stream, used = work([(0, MB)], [(1, 8 * MB)]), work([(5, 400 * MB)]), work([(1, 8 * MB)])
    at_once = missing_shares([made, used, stream], 40 * MB)[1]
    later = missing_shares([made, stream, used], 40 * MB)[2]
    assert at_once < 0.2
    assert later > 0.99


def test_a_step_that_repeats_finds_what_the_last_one_left():
    """A weight of 10 MB, read once a step and nothing else: only the very first step brings it in."""
    (share,) = missing_shares([work([(0, 10 * MB)])], 40 * MB)
    assert share < 0.01


def test_a_working_set_as_large_as_the_cache_is_partly_there():
    shares = missing_shares([work([(0, 20 * MB)]), work([(1, 20 * MB)])], 40 * MB)
    assert all(0.1 < share < 0.9 for share in shares)


@given(st.integers(1, 300))
def test_a_larger_cache_misses_no_more(megabytes):
    step = [work([(0, megabytes * MB)], [(1, megabytes * MB)]), work([(1, megabytes * MB)], [(2, megabytes * MB)])]
    small, large = (sum(missing_shares(step, capacity)) for capacity in (30 * MB, 60 * MB))
    assert large <= small + 1e-9


def test_what_reads_nothing_misses_nothing():
    assert missing_shares([work([], [(0, 100 * MB)])], 40 * MB) == [0.0]
    assert missing_shares([], 40 * MB) == []
