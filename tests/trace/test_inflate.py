"""What a gzip file holds is found out without holding it."""

from __future__ import annotations

import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.formats import DEFLATE_RATIO
from foretrace.trace.inflate import CUT_OFF, DAMAGED, inflated_head, inflated_size, is_packed, opened, unpacked


def read_of(data: bytes):
    return io.BytesIO(data).read


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.integers(0, 200), st.booleans())
def test_all_members_count_and_begin_a_file(parts: list[bytes], size: int, padded: bool):
    data = b"".join(gzip.compress(part) for part in parts) + bytes(7 * padded)
    whole = b"".join(parts)
    assert inflated_size(read_of(data), 1000) == len(whole)
    assert inflated_head(read_of(data), size) == (whole[:size], None)
    assert opened(io.BytesIO(data)).read() == whole


def test_counting_ends_above_the_limit():
    data = gzip.compress(bytes(300_000)) * 10
    assert 200_000 < inflated_size(read_of(data), 200_000) <= 3_000_000
    assert inflated_size(read_of(data), 5_000_000) == 3_000_000
    assert len(data) * DEFLATE_RATIO >= 3_000_000


def test_what_comes_before_damage_is_given_and_counted():
    data = gzip.compress(b"abc" * 1000)
    assert inflated_head(read_of(data[:-8]), 10_000) == (b"abc" * 1000, CUT_OFF)
    assert inflated_head(read_of(data[:10] + b"\xff" * 40), 10_000) == (b"", DAMAGED)
    assert inflated_head(read_of(data + b"rubbish"), 10_000) == (b"abc" * 1000, None)
    assert inflated_size(read_of(data + b"rubbish"), 10_000) == 3000
    # Damage behind what was asked for is not seen: no more is inflated.
    assert inflated_head(read_of(data[:-8]), 2) == (b"ab", None)


def test_a_file_packed_several_times_is_unpacked_so_often():
    data = b"text"
    for _ in range(3):
        data = gzip.compress(data)
    assert unpacked(io.BytesIO(data)).read() == b"text"
    assert gzip.decompress(unpacked(io.BytesIO(data), 2).read()) == b"text"


@pytest.mark.parametrize(("data", "packed"), [(gzip.compress(b"", mtime=0), True), (b"{}", False), (b"", False)])
def test_what_is_packed_is_told_by_content(data: bytes, packed: bool):
    file = io.BytesIO(data)
    file.read(1)
    assert is_packed(file) is packed
    assert file.tell() == 0
