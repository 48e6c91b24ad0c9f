"""What memory_summary() and memory_stats() say: the same counters, once cut to the unit of their column, once exact."""

from __future__ import annotations

import json
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.memory.reading.summaries import parse_stats, read_stats, read_summary
from foretrace.model.memory import Memory

MIB = 1 << 20
NAMES = {
    "allocated_bytes": "Allocated memory",
    "active_bytes": "Active memory",
    "requested_bytes": "Requested memory",
    "reserved_bytes": "GPU reserved memory",
    "inactive_split_bytes": "Non-releasable memory",
    "allocation": "Allocations",
    "active": "Active allocs",
    "segment": "GPU reserved segments",
    "inactive_split": "Non-releasable allocs",
}
COLUMNS = ("current", "peak", "allocated", "freed")


def stats(
    *, allocated: int, active: int, requested: int, reserved: int, holes: int, peak: int = 900 * MIB, **more: int
) -> dict[str, int]:
    """memory_stats() of one device, as a flat dictionary."""
    now = dict(zip(NAMES, (allocated, active, requested, reserved, holes, 40, 41, 12, 7), strict=True))
    values = {f"{name}.all.current": value for name, value in now.items()}
    values |= {f"{name}.all.{column}": peak for name in NAMES for column in COLUMNS[1:]}
    return values | {"num_ooms": 0, "num_alloc_retries": 0} | more


USUAL = stats(
    allocated=300 * MIB, active=310 * MIB, requested=299 * MIB, reserved=1000 * MIB, holes=390 * MIB, num_ooms=2,
    num_alloc_retries=1,
)  # fmt: skip


def size(value: int, rows_first: int) -> str:
    """A size as the table has it: cut, never rounded, to the unit that suits the column's first row."""
    unit, scale = "B", 1
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if rows_first / scale < 768 * 1024:
            break
        unit, scale = larger, scale * 1024
    return f"{value // scale:6d} {unit:3}"


def table(values: dict[str, int], device: int = 0, *, leave_out: tuple[str, ...] = ()) -> str:
    """The table that torch prints of these counters."""
    lines = [
        f"|      PyTorch CUDA memory summary, device ID {device:<17d} |",
        f"|  CUDA OOMs: {values['num_ooms']:<12d} |  cudaMalloc retries: {values['num_alloc_retries']:<8d}  |",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
    ]
    for name, row in NAMES.items():
        if name in leave_out:
            continue
        line = [values[f"{name}.all.{column}"] for column in COLUMNS]
        cells = [size(cell, cell) if name.endswith("_bytes") else f"{cell:7d}   " for cell in line]
        lines.append(f"| {row:<21} | {' | '.join(cells)} |")
        lines.append(f"|       from large pool | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rules(memory: Memory) -> list[str]:
    return [finding.rule for finding in memory.findings]


def states(memory: Memory) -> dict[str, str]:
    return {check.check: check.state for check in memory.health}


def test_counters_are_exact_and_add_up():
    memory = read_stats(USUAL, "stats.json")
    assert (memory.source.format, memory.source.resolution_bytes, memory.source.device) == ("stats", 1, None)
    assert memory.totals.requested_bytes is None  # the counter has the pending frees in it
    assert memory.totals.allocated_bytes == 300 * MIB
    assert memory.totals.active_bytes == 310 * MIB
    assert memory.totals.reserved_bytes == 1000 * MIB
    assert memory.free.holes_bytes == memory.fragmentation.hard_bytes == 390 * MIB
    assert memory.free.whole_segments_bytes == memory.fragmentation.soft_bytes == 300 * MIB
    assert memory.free.holes == 7
    assert memory.free.largest_hole_bytes is None
    assert memory.fragmentation.rounding_bytes is None
    assert memory.fragmentation.pending_bytes == 10 * MIB
    assert memory.fragmentation.stream_bytes is None
    assert memory.peak is not None
    assert (memory.peak.requested_bytes, memory.peak.unexplained_bytes, memory.peak.alive) == (900 * MIB, 900 * MIB, [])
    assert states(memory) == {
        "expandable": "ok", "requested_pending": "suspect", "blocks": "suspect", "streams": "suspect",
    }  # fmt: skip


def test_retries_failures_holes_and_peaks_are_findings():
    memory = read_stats(USUAL, "stats.json")
    assert rules(memory) == ["out_of_memory_counted", "allocator_retries", "holes", "peaks"]
    assert [finding.title for finding in memory.findings] == [
        "2 allocations failed for want of memory",
        "the allocator emptied its cache 1 time to serve a request",
        "390 MiB (39.0 % of what is reserved) lie in holes between live blocks",
        "at most 900 MiB was allocated and 900 MiB reserved",
    ]


def test_a_calm_allocator_has_no_warning():
    calm = stats(allocated=MIB, active=MIB, requested=MIB, reserved=2 * MIB, holes=MIB)
    assert rules(read_stats(calm, "s")) == ["peaks"]


def test_a_summary_says_the_same_cut_to_its_unit():
    memory = read_summary(table(USUAL, 3), "log.txt")
    assert (memory.source.format, memory.source.device) == ("summary", 3)
    # 300 MiB print as KiB, 1000 MiB as MiB: the coarsest counts.
    assert memory.source.resolution_bytes == MIB
    assert memory.totals == read_stats(USUAL, "s").totals
    assert memory.free == read_stats(USUAL, "s").free
    assert rules(memory) == ["out_of_memory_counted", "allocator_retries", "holes", "peaks"]
    assert [(one.device, one.reserved_bytes, one.segments) for one in memory.devices] == [(3, 1000 * MIB, 12)]
    assert states(memory)["cut"] == "ok"


def test_a_summary_within_a_log_the_last_of_a_device_counts():
    earlier = table(stats(allocated=MIB, active=MIB, requested=MIB, reserved=2 * MIB, holes=MIB))
    other = table(stats(allocated=MIB, active=MIB, requested=MIB, reserved=4 * MIB, holes=MIB), 1)
    lines = "\n".join(f"[rank0] 12:00:01 | INFO | {line}" for line in (earlier + other + table(USUAL)).splitlines())
    memory = read_summary(f"epoch 1 | loss 3.2\n{lines}\nepoch 2 | loss 3.1\n", "log.txt")
    assert memory.totals.reserved_bytes == 1000 * MIB
    assert sorted(one.device for one in memory.devices) == [0, 1]
    assert read_summary(lines, "log.txt", device=1).totals.reserved_bytes == 4 * MIB


def test_a_summary_as_one_string_of_a_json_log():
    assert read_summary(json.dumps(table(USUAL)), "log.json").totals.reserved_bytes == 1000 * MIB


def test_the_units_of_older_versions_and_what_they_do_not_record():
    text = table(USUAL, leave_out=("requested_bytes",)).replace("MiB", "MB ").replace("KiB", "KB ")
    memory = read_summary(text, "old.txt")
    assert memory.totals.allocated_bytes == 300 * MIB
    assert (memory.totals.requested_bytes, memory.fragmentation.rounding_bytes, memory.peak) == (None, None, None)
    assert "requested" in states(memory)


def test_a_table_that_is_cut_off_leaves_open_what_it_lacks():
    text = table(USUAL)
    memory = read_summary(text[: text.index("GPU reserved memory")], "log.txt")
    assert memory.totals.active_bytes == 310 * MIB
    assert (memory.totals.reserved_bytes, memory.free.holes_bytes, memory.free.whole_segments_bytes) == (None,) * 3
    assert memory.devices == []
    assert "reserved_bytes and inactive_split_bytes" in next(c.detail for c in memory.health if c.check == "missing")


def test_holes_that_were_never_counted_are_unknown_not_none():
    # expandable_segments: the allocator leaves their holes out of inactive_split.
    expandable = stats(allocated=MIB, active=MIB, requested=MIB, reserved=9 * MIB, holes=0)
    expandable["inactive_split_bytes.all.allocated"] = 0
    memory = read_stats(expandable, "s")
    assert (memory.free.holes_bytes, memory.free.whole_segments_bytes) == (None, None)
    assert states(memory)["expandable"] == "suspect"


def test_counters_that_contradict_each_other_are_said_to():
    memory = read_stats(stats(allocated=5, active=5, requested=5, reserved=6, holes=2), "s")
    assert (memory.free.holes_bytes, memory.free.whole_segments_bytes) == (None, None)
    assert states(memory)["adds_up"] == "bad"


def nested(values: dict[str, int]) -> dict:
    found: dict = {}
    for key, value in values.items():
        *path, last = key.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(USUAL),
        json.dumps(nested(USUAL)),
        repr(USUAL),
        f"OrderedDict({list(USUAL.items())!r})",  # Python before 3.12
        f"OrderedDict({USUAL!r})",
        f"collections.OrderedDict({USUAL!r})\n",
        repr(OrderedDict(USUAL)),
        json.dumps(list(USUAL.items())),
    ],
)
def test_every_way_to_write_the_dictionary_down(text: str):
    memory = read_stats(parse_stats(text, "s"), "s", device=2)
    assert memory.totals == read_stats(USUAL, "s").totals
    assert memory.source.device == 2


@pytest.mark.parametrize("made", [lambda a, b: [a, b], lambda a, b: {"0": a, "1": b}, lambda a, b: {"cuda:0": a, 1: b}])
def test_several_devices_the_fullest_is_shown_unless_one_is_asked_for(made):
    smaller = stats(allocated=MIB, active=MIB, requested=MIB, reserved=2 * MIB, holes=MIB)
    both = made(smaller, nested(USUAL))
    assert read_stats(both, "s").source.device == 1
    assert [one.device for one in read_stats(both, "s").devices] == [0, 1]
    assert read_stats(both, "s", device=0).totals.reserved_bytes == 2 * MIB
    with pytest.raises(InputError, match=r"^s says nothing of device 7; it has device 0 and 1\.$"):
        read_stats(both, "s", device=7)


def test_private_pools_are_named_with_what_they_hold():
    pools = {
        "reserved_bytes_by_private_pools.0_1.all.current": 20 * MIB,
        "reserved_bytes_by_private_pools.0_1.large_pool.current": 20 * MIB,
        "reserved_bytes_by_private_pools.0_2.all.current": 2 * MIB,
        "reserved_bytes_by_private_pools.0_3.all.current": 0,
    }
    (found,) = [finding for finding in read_stats(USUAL | pools, "s").findings if finding.rule == "private_pools"]
    assert (found.bytes, found.title) == (22 * MIB, "22 MiB of what is reserved belong to 2 private pools")
    by_tuple = nested(USUAL) | {"reserved_bytes_by_private_pools": {(0, 1): {"all": {"current": 5}}}}
    assert "private_pools" in rules(read_stats(by_tuple, "s"))


@pytest.mark.parametrize("data", [{}, [], None, 3, "text", {"loss": 1.5}, {"0": {}}, [[1, 2]], {"a": {"b": [None]}}])
def test_what_holds_no_counters_is_refused(data: object):
    with pytest.raises(InputError, match=r"^s holds none of the counters of torch\.cuda\.memory_stats\(\)"):
        read_stats(data, "s")


@pytest.mark.parametrize(
    "text", ["", "{'a': open('x')}", "hello", pytest.param("{" * 5000, id="deep"), "OrderedDict(", "{[]: 1}"]
)
def test_text_that_is_no_dictionary_is_refused_and_never_run(text: str):
    with pytest.raises(InputError, match="neither JSON nor a Python dictionary"):
        parse_stats(text, "s")


@pytest.mark.parametrize(("name", "value"), [("active_bytes.all.current", -1), ("segment.all.peak", 1 << 70)])
def test_counters_beyond_reason_are_refused(name: str, value: int):
    with pytest.raises(InputError, match=rf"^s has a counter that no allocator has: {name} is {value};"):
        read_stats(USUAL | {name: value}, "s")
    assert read_stats(USUAL | {"max_split_size": -1}, "s").totals == read_stats(USUAL, "s").totals


@pytest.mark.parametrize(
    "text", ["", "epoch 1", "PyTorch CUDA memory summary, device ID 0", "Allocated memory | 1 B |"]
)
def test_text_without_a_summary_is_refused(text: str):
    with pytest.raises(InputError, match=r"^log\.txt holds no memory summary"):
        read_summary(text, "log.txt")


def test_the_table_torch_itself_prints(monkeypatch: pytest.MonkeyPatch):
    memory = pytest.importorskip("torch.cuda.memory")
    values = {key.replace(".all.", f".{pool}."): value for key, value in USUAL.items()
              for pool in ("all", "large_pool", "small_pool")}  # fmt: skip
    values |= {f"oversize_{what}.{column}": 0 for what in ("allocations", "segments") for column in COLUMNS}
    monkeypatch.setattr(memory, "_get_device_index", lambda device, **_: device)
    monkeypatch.setattr(memory, "memory_stats", lambda **_: values)
    exact = read_stats(USUAL, "s")
    for abbreviated in (False, True):
        read = read_summary(memory.memory_summary(1, abbreviated=abbreviated), "s")
        assert (read.totals, read.free, read.peak) == (exact.totals, exact.free, exact.peak)
        assert [finding.title for finding in read.findings] == [finding.title for finding in exact.findings]


sizes = st.integers(0, 1 << 45)


@given(sizes, sizes, sizes, sizes, sizes)
def test_any_counters_print_and_read_back_to_within_their_unit(
    rounding: int, asked: int, late: int, cut: int, whole: int
):
    allocated = asked + rounding
    active = allocated + late
    made = stats(
        allocated=allocated, active=active, requested=asked, reserved=active + cut + whole, holes=cut, peak=active
    )
    exact, read = read_stats(made, "s"), read_summary(table(made), "s")
    unit = read.source.resolution_bytes
    for name in ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"):
        is_, was = getattr(read.totals, name), getattr(exact.totals, name)
        if None in (is_, was):
            # What pending frees had asked for is counted with it.
            assert (name, late > 0) == ("requested_bytes", True)
        else:
            assert was - unit < is_ <= was
    for memory in (exact, read):
        free, totals = memory.free, memory.totals
        if free.holes_bytes is not None:
            parts = free.holes_bytes + free.whole_segments_bytes + totals.active_bytes
            assert abs(totals.reserved_bytes - parts) <= (3 * unit if memory is read else 0)
    assert exact.free.holes_bytes in (cut, None)
    assert exact.fragmentation.rounding_bytes == (None if late else rounding)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*list(USUAL)[1:4], "0", "all"]), inner)
    ),
    max_leaves=12,
)


@given(json_like)
def test_any_other_json_is_refused_in_one_sentence(data: object):
    with pytest.raises(InputError, match=r"^s holds none of the counters"):
        read_stats(data, "s")


@given(st.text(alphabet="|PyTorch CUDA memory summary, device ID 01\nAllocated MiB", max_size=200))
def test_any_text_is_read_or_refused(text: str):
    for reader in (lambda: read_summary(text, "s"), lambda: read_stats(parse_stats(text, "s"), "s")):
        with pytest.raises(InputError, match=r"^s "):
            reader()
