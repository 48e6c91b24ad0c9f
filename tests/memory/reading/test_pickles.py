"""Our pickle reader against Python's own: the same for data, a refusal for anything else, an error for damage."""

from __future__ import annotations

import os
import pickle
import pickletools
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foretrace.memory.reading.pickle_operations import HIGHEST_PROTOCOL, NotPlainError, PickleError
from foretrace.memory.reading.pickles import load_plain

PROTOCOLS = range(HIGHEST_PROTOCOL + 1)


def plain(with_bytes: bool) -> st.SearchStrategy[Any]:
    """Data as a pickle of any protocol holds it; bytes and sets are calls before protocols 3 and 4."""
    text = st.text(st.characters(exclude_categories=()), max_size=8)
    keys = st.none() | st.booleans() | st.integers() | text | st.tuples(st.integers(), text)
    leaves = keys | st.floats(allow_nan=False) | st.just(2**70)
    if with_bytes:
        leaves |= st.binary(max_size=300) | st.frozensets(keys, max_size=3) | st.sets(keys, max_size=3)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(keys, inner, max_size=4)
            | inner.map(lambda item: [item, (item, item), {"again": item}])
        ),
        max_leaves=12,
    )


def same(left: Any, right: Any) -> bool:
    """Equal in value, type and in what is shared."""
    return pickle.dumps(left) == pickle.dumps(right)


@given(data=plain(with_bytes=False), protocol=st.sampled_from(PROTOCOLS))
@example(data=[list(range(1500)), dict.fromkeys(range(1500)), "x" * 300, (), (1,), (1, 2, 3, 4)], protocol=1)
@example(data=[-1, 255, 256, 65536, 2**31, -(2**31), 2**63, 2**64, -(2**2100)], protocol=2)
def test_data_is_read_like_python_reads_it(data: Any, protocol: int) -> None:
    stream = pickle.dumps(data, protocol)
    assert same(load_plain(stream), pickle.loads(stream))
    assert load_plain(stream) == data


@given(data=plain(with_bytes=True), protocol=st.sampled_from((4, 5)))
def test_bytes_and_sets_too(data: Any, protocol: int) -> None:
    stream = pickle.dumps(data, protocol)
    assert load_plain(stream) == pickle.loads(stream) == data
    assert load_plain(pickletools.optimize(stream)) == data


def test_references_are_shared_and_cycles_close() -> None:
    inner: list[Any] = []
    ring: list[Any] = [inner, inner]
    ring.append(ring)
    for protocol in PROTOCOLS:
        read = load_plain(pickle.dumps(ring, protocol))
        assert read[0] is read[1]
        assert read[2] is read


def test_a_long_text_and_many_frames() -> None:
    data = ["é" * 70_000, [str(i) for i in range(40_000)]]
    for protocol in PROTOCOLS:
        assert load_plain(pickle.dumps(data, protocol)) == data


@pytest.mark.parametrize(
    ("stream", "value"),
    [
        (b"S'it\\'s \\x41\\n\\101 \\q'\n.", "it's A\nA \\q"),
        (b"U\x03abc.", "abc"),
        (b"T\x02\x00\x00\x00\xc3\xa9.", "é"),
        (b"U\x01\xe9.", "é"),
        (b"I01\n.", True),
        (b"I00\n.", False),
        (b"I-7\n.", -7),
        (b"L12L\n.", 12),
        (b"F1.5\n.", 1.5),
        (b"\x8b\x02\x00\x00\x00\x00\x80.", -32768),
        (b"\x8a\x00.", 0),
        (b"(K\x01K\x02l.", [1, 2]),
        (b"(K\x01K\x02d.", {1: 2}),
        (b"K\x01K\x020.", 1),
        (b"K\x01(K\x02K\x031.", 1),
        (b"K\x012\x86.", (1, 1)),
        (b"K\x07r\xff\xff\x00\x000j\xff\xff\x00\x00.", 7),
        (b"\x96\x02\x00\x00\x00\x00\x00\x00\x00ab.", bytearray(b"ab")),
        (b"N.and what follows", None),
    ],
)
def test_opcodes_that_nobody_writes_today(stream: bytes, value: Any) -> None:
    read = load_plain(stream)
    assert read == value
    assert type(read) is type(value)


def test_depth_is_no_trouble() -> None:
    deep = load_plain(b"]" * 300_000 + b"a" * 299_999 + b".")
    levels = 0
    while deep:
        deep = deep[0]
        levels += 1
    assert levels == 299_999


def test_a_key_nested_without_end_is_refused_before_it_is_hashed() -> None:
    with pytest.raises(PickleError, match="nested too deep"):
        load_plain(b"})" + b"\x85" * 500_000 + b"Ns.")
    with pytest.raises(PickleError, match="nested too deep"):
        load_plain(b"})" + b"2\x86" * 60 + b"Ns.")


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


class Stateful:
    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_that_names_something_is_refused_by_that_name(protocol: int) -> None:
    for hostile in (Attack(), {"segments": [Attack()]}):
        with pytest.raises(NotPlainError, match=rf"asks for {os.system.__module__}\.system; .* nothing of it was run"):
            load_plain(pickle.dumps(hostile, protocol))
    with pytest.raises(NotPlainError, match=r"asks for .*(Stateful|_reconstructor)"):
        load_plain(pickle.dumps([Stateful()], protocol))
    with pytest.raises(NotPlainError, match=r"asks for builtins|asks for __builtin__"):
        load_plain(pickle.dumps(print, protocol))


@pytest.mark.parametrize(
    ("stream", "wanted"),
    [
        (b"cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"K\x01K\x02\x93.", "<int>.<int>"),
        (b"(S'true'\nios\nsystem\n.", "os.system"),
        (b"cos\x1b[31m\nsystem\n.", "os?[31m.system"),
        (b"K\x01)R.", "a call"),
        (b"K\x01)\x81.", "an object of a class"),
        (b"K\x01)}\x92.", "an object of a class"),
        (b"(K\x01o.", "an object of a class"),
        (b"K\x01}b.", "the state of an object"),
        (b"Pabc\n.", "an object stored elsewhere"),
        (b"K\x01Q.", "an object stored elsewhere"),
        (b"\x82\x01.", "a registered extension"),
        (b"\x83\x01\x00.", "a registered extension"),
        (b"\x84\x01\x00\x00\x00.", "a registered extension"),
        (b"\x80\x05\x97.", "a buffer stored elsewhere"),
        (b"\x80\x05K\x01\x98.", "a buffer stored elsewhere"),
    ],
)
def test_everything_that_is_more_than_data_is_refused(stream: bytes, wanted: str) -> None:
    with pytest.raises(NotPlainError) as refused:
        load_plain(stream)
    assert f"asks for {wanted}" in str(refused.value)
    assert str(refused.value).isprintable()


@given(data=plain(with_bytes=False), protocol=st.sampled_from(PROTOCOLS))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=40)
def test_a_stream_cut_anywhere_is_an_error(data: Any, protocol: int) -> None:
    stream = pickle.dumps(data, protocol)
    for length in range(len(stream)):
        with pytest.raises(PickleError):
            load_plain(stream[:length])


def test_a_cut_stream_says_so() -> None:
    stream = pickle.dumps({"segments": ["x" * 100]}, 4)
    with pytest.raises(PickleError, match="is cut off after 50 bytes"):
        load_plain(stream[:50])


@given(
    data=plain(with_bytes=False),
    protocol=st.sampled_from(PROTOCOLS),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_damage_raises_nothing_but_our_error(data: Any, protocol: int, changes: list[tuple[int, int]]) -> None:
    stream = bytearray(pickle.dumps(data, protocol))
    for where, value in changes:
        stream[where % len(stream)] = value
    with suppress(PickleError):
        load_plain(bytes(stream))


@given(st.binary(max_size=60))
@settings(max_examples=400)
def test_any_bytes_raise_nothing_but_our_error(stream: bytes) -> None:
    with suppress(PickleError):
        load_plain(stream)


def test_what_is_no_pickle_and_what_is_too_new() -> None:
    with pytest.raises(PickleError, match="is no pickle"):
        load_plain(b"hello")
    with pytest.raises(PickleError, match="protocol 6, and protocols up to 5"):
        load_plain(b"\x80\x06N.")
    with pytest.raises(PickleError, match="no operation 0xff"):
        load_plain(b"\x80\x04\xff.")
    with pytest.raises(PickleError, match="put together"):
        load_plain(b"K\x01K\x02.")


def test_progress_ends_at_the_whole() -> None:
    seen: list[tuple[int, int]] = []
    stream = pickle.dumps([[str(i)] * 3 for i in range(100_000)])
    load_plain(stream, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(stream), len(stream))
    assert len(seen) >= len(stream) >> 20
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_reading_leaves_the_recursion_limit_alone() -> None:
    before = sys.getrecursionlimit()
    load_plain(pickle.dumps([[[1]]]))
    assert sys.getrecursionlimit() == before
