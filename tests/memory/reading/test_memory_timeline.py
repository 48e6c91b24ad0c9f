"""The profiler's memory timeline in the forms torch writes: real files of two training steps, and made ones.

The model is Linear(64, 128), ReLU, Linear(128, 10) with Adam on a batch of 32, in float32 on the CPU.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.memory.reading.timeline import read_timeline
from foretrace.model.memory import Memory, Peak

DATA = Path(__file__).parents[2] / "data" / "memory"
RAW = DATA / "timeline_mlp_cpu.raw.json.gz"
SUMS = DATA / "timeline_mlp_cpu.json.gz"

BEFORE, CREATE, CHANGE, DESTROY = 1, 2, 3, 4
PARAMETER, OPTIMIZER, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL, UNKNOWN = range(8)

WEIGHTS = 4 * (64 * 128 + 128 + 128 * 10 + 10)


def peak(memory: Memory) -> Peak:
    assert memory.peak is not None
    return memory.peak


def by_category(memory: Memory) -> dict[str, int]:
    return {alive.where: alive.bytes for alive in peak(memory).alive}


def states(memory: Memory) -> dict[str, str]:
    return {check.check: check.state for check in memory.health}


@pytest.mark.parametrize("file", [RAW, SUMS])
def test_the_peak_of_a_real_training_step_by_category(file: Path):
    memory = read_timeline(file.read_bytes(), file.name)
    found = peak(memory)
    assert memory.source.format == "timeline"
    assert (found.requested_bytes, found.ago_us, found.unexplained_bytes) == (227520, 2367, 0)
    # Adam keeps two moments a weight and its step counters; in the second step the first one's gradients are gone.
    assert by_category(memory) == {
        "optimizer state": 2 * WEIGHTS + 16,
        "parameters": WEIGHTS + 4 * 64 * 128,
        "gradients": WEIGHTS,
        "activations": 32772,
        "inputs": 4 * 32 * 64 + 8,
        "temporaries": 4,
    }
    assert not found.complete


def test_only_the_raw_form_counts_tensors():
    raw = {alive.where: alive.blocks for alive in peak(read_timeline(RAW.read_bytes(), "t")).alive}
    assert raw["optimizer state"] == 4 * 2 + 4
    assert raw["gradients"] == 4
    assert "counts" not in states(read_timeline(RAW.read_bytes(), "t"))
    assert states(read_timeline(SUMS.read_bytes(), "t"))["counts"] == "suspect"


def test_the_file_may_be_gzipped_or_not_text_or_already_read():
    text = gzip.decompress(RAW.read_bytes())
    expected = peak(read_timeline(RAW.read_bytes(), "t"))
    for data in (text, text.decode(), json.loads(text)):
        assert peak(read_timeline(data, "t")) == expected


def test_what_a_timeline_cannot_say_is_unknown_with_the_reason():
    memory = read_timeline([[1000, CREATE, 5, GRADIENT]], "t")
    assert {memory.totals.reserved_bytes, memory.free.holes_bytes, memory.fragmentation.hard_bytes} == {None}
    assert (memory.source.device, memory.devices) == (None, [])
    assert states(memory) == {"allocator": "suspect", "device": "suspect", "places": "ok", "sizes": "ok"}
    told = read_timeline([[1000, CREATE, 5, GRADIENT]], "t", device=3)
    assert told.source.device == 3
    assert "device" not in states(told)


def test_the_peak_is_the_first_moment_and_what_was_there_before_counts():
    memory = read_timeline(
        [
            [-1, BEFORE, 100, PARAMETER],
            [5_000, CREATE, 40, TEMPORARY],
            [6_000, CHANGE, -40, TEMPORARY],
            [6_000, CHANGE, 40, GRADIENT],
            [7_000, CREATE, 30, UNKNOWN],
            [8_000, DESTROY, -30, UNKNOWN],
            [9_000, CREATE, 30, UNKNOWN],
            [9_000, DESTROY, -100, PARAMETER],
        ],
        "t",
    )
    found = peak(memory)
    assert (found.requested_bytes, found.time_us, found.ago_us) == (170, 7, 2)
    assert [(alive.where, alive.bytes, alive.blocks) for alive in found.alive] == [
        ("parameters", 100, 1),
        ("gradients", 40, 1),
        ("unknown", 30, 1),
    ]
    assert "17.6 %" in next(check.detail for check in memory.health if check.check == "categories")


def test_what_was_there_before_is_dated_to_the_first_entry_with_a_time():
    memory = read_timeline([[-1, BEFORE, 100, INPUT], [5_000, DESTROY, -100, INPUT], [9_000, CREATE, 1, INPUT]], "t")
    assert (peak(memory).requested_bytes, peak(memory).time_us, peak(memory).ago_us) == (100, 5, 4)
    assert peak(read_timeline([[-1, BEFORE, 100, INPUT]], "t")).time_us is None


def test_two_raw_entries_are_not_mistaken_for_sums():
    assert peak(read_timeline([[1_000, CREATE, 5, INPUT], [2_000, CREATE, 6, INPUT]], "t")).requested_bytes == 11


def test_a_category_that_gives_more_than_it_had_is_said_and_the_sum_holds():
    memory = read_timeline(
        [[1_000, CREATE, 50, INPUT], [2_000, DESTROY, -9, GRADIENT], [3_000, CREATE, 60, INPUT]], "t"
    )
    assert by_category(memory) == {"inputs": 110, "gradients": -9}
    assert peak(memory).requested_bytes == 101
    assert states(memory)["negative"] == "bad"


ROW = [1_000, CREATE, 5, INPUT]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("{", "it is not JSON, or cut off"),
        pytest.param("[" * 100_000, "it is not JSON, or cut off", id="deep"),
        (b"\xff\xfe\x00", "it is not text"),
        (RAW.read_bytes()[:-200], "its compressed data is damaged or cut off"),
        ("{}", "it holds no list"),
        ('"text"', "it holds no list"),
        ([ROW, [1, 2, 3]], "its row 1 is not 4 whole numbers"),
        ([[1.5, CREATE, 5, INPUT]], "its row 0 is not 4 whole numbers"),
        ([[True, CREATE, 5, INPUT]], "its row 0 is not 4 whole numbers"),
        ([ROW, 7], "its row 1 is not 4 whole numbers"),
        ([[1 << 70, CREATE, 5, INPUT]], "a number in it is beyond 64 bits"),
        ([[1, CREATE, 1 << 62, INPUT], [1, CREATE, 1 << 62, INPUT]], "its sizes are beyond reason"),
        ([ROW, [1_000, 5, 5, INPUT]], "its entry 1 does what none does"),
        ([ROW, [1_000, CREATE, 5, 8]], "its entry 1 does what none does"),
        ([ROW, [1_000, CREATE, -5, INPUT]], "its entry 1 does what none does"),
        ([ROW, [1_000, DESTROY, 5, INPUT]], "its entry 1 does what none does"),
        ([[1_000, DESTROY, -5, INPUT]], "it frees more than was ever held"),
        ([[1, 2], [[0] * 9]], "it has 2 times and 1 sums"),
        ([[1], [[0] * 8]], "its row 0 is not 9 whole numbers"),
        ([[], [[0] * 9]], "it has 0 times and 1 sums"),
    ],
)
def test_what_is_no_timeline_is_refused_in_one_sentence(data, what: str):
    with pytest.raises(InputError) as refused:
        read_timeline(data, "t.json")
    assert str(refused.value).startswith(f"t.json is no memory timeline of torch.profiler: {what}; export_memory_")


@pytest.mark.parametrize("data", ["[]", "[[], []]", []])
def test_a_timeline_without_entries_says_so(data):
    with pytest.raises(InputError, match=r"^t is a memory timeline without an entry"):
        read_timeline(data, "t")


def test_the_picture_holds_no_numbers():
    page = "<html>\n<head><title>GPU Memory Timeline HTML</title></head><img src='data:image/png;base64,iVBO'></html>"
    with pytest.raises(InputError, match=r"as a picture, which holds no numbers; export it once more"):
        read_timeline(page.encode(), "t.html")


actions = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1 << 40), st.integers(0, 30)), min_size=1, max_size=30)


@given(actions)
def test_the_peak_of_any_timeline_is_the_most_that_was_held(made: list[tuple[int, int, int]]):
    """Each step creates a tensor, or destroys the oldest one; the truth is a list of what lives."""
    living: list[tuple[int, int]] = []
    entries, sums, most = [], [], []
    for time, (category, size, choice) in enumerate(made, start=1):
        if living and choice < 12:
            category, size = living.pop(0)
            entries.append([time * 1000, DESTROY, -size, category])
        else:
            living.append((category, size))
            entries.append([time * 1000, CREATE, size, category])
        sums.append([0] + [sum(s for c, s in living if c == k) for k in range(8)])
        most.append(sum(size for _, size in living))
    times = list(range(1, len(made) + 1))
    raw, summed = read_timeline(entries, "t"), read_timeline([times, sums], "t")
    for memory in (raw, summed):
        assert peak(memory).requested_bytes == max(most)
        assert peak(memory).time_us == 1 + most.index(max(most))
        assert sum(alive.bytes for alive in peak(memory).alive) == max(most)
    assert by_category(raw) == by_category(summed)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=20,
)


@given(json_like | st.lists(st.lists(st.integers(-5, 9), min_size=4, max_size=4), max_size=6))
def test_any_json_is_read_or_refused(data: object):
    try:
        memory = read_timeline(json.dumps(data), "t")
    except InputError:
        return
    assert sum(alive.bytes for alive in peak(memory).alive) == peak(memory).requested_bytes


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes):
    with pytest.raises(InputError, match=r"^t is "):
        read_timeline(data, "t")
