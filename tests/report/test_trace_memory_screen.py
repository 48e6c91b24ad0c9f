"""The memory of a trace on the screen: a line on the first one, tables whose sums close in the section."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

from foretrace import explain
from foretrace.knowledge.allocator_rows import LITTLE_ON_CPU
from foretrace.model.report import Report
from foretrace.model.trace_memory import (
    Allocating,
    DeviceMemory,
    Intermediate,
    Intermediates,
    StepMemory,
    TraceMemory,
)
from foretrace.report import View, render
from foretrace.report.text import width_of
from report.samples import cpu_report, finding, group, mlp_report

LLAMA = Path(__file__).parents[1] / "data" / "traces_memory" / "llama_train.json.gz"
MIB = 1 << 20


@lru_cache
def llama() -> Report:
    return explain(LLAMA)


def allocating(op: str | None = "aten::mm", mib: int = 1, **changes: object) -> Allocating:
    fields: dict[str, object] = {"within": None, "phase": None, "modules": [], "allocations": 2}
    return Allocating(op=op, bytes=mib * MIB, **(fields | changes))  # type: ignore[arg-type]


def step(index: int = 0, peak: int | None = 900, **changes: object) -> StepMemory:
    """A step whose sizes are in MiB."""
    fields: dict[str, object] = {
        "label": f"ProfilerStep#{index + 2}",
        "start_bytes": 100 * MIB,
        "end_bytes": 100 * MIB,
        "peak_event": 5,
        "peak_start_us": 1.0,
        "peak_op": "aten::mm",
        "peak_within": None,
        "allocations": 4,
        "allocated_bytes": 800 * MIB,
        "frees": 4,
        "freed_bytes": 800 * MIB,
        "reserved_bytes": 1000 * MIB,
        "reserved_grown_bytes": 0,
        "largest": [allocating(mib=800)],
        "alive_at_peak": [allocating(mib=800)],
        "held_before_bytes": 100 * MIB,
    }
    peak_bytes = None if peak is None else peak * MIB
    return StepMemory(step=index, peak_bytes=peak_bytes, **(fields | changes))  # type: ignore[arg-type]


def device(*steps: StepMemory, name: str = "cuda:0", process: int | None = None) -> DeviceMemory:
    return DeviceMemory(device=name, process=process, rows=8, steps=list(steps))


def report(*devices: DeviceMemory) -> Report:
    return mlp_report(memory=TraceMemory(devices=list(devices)))


def said(shown: Report) -> list[str]:
    """What the first screen says of memory."""
    lines = render(shown).splitlines()
    start = next((place for place, text in enumerate(lines) if text.startswith("MEMORY")), None)
    if start is None:
        return []
    end = next(place for place in range(start, len(lines)) if not lines[place])
    return lines[start:end]


def section(shown: Report, **view: object) -> str:
    return render(shown, View(sections=("memory",), **view))  # type: ignore[arg-type]


# ---- the first screen ----


def test_the_first_screen_says_the_peak_of_a_real_trace() -> None:
    assert said(llama()) == [
        "MEMORY  peak 5794 MiB of 6410 MiB reserved, at aten::_log_softmax_backward_data (--section memory)"
    ]
    # One line of them says that the source lines which were asked for are not in the file.
    assert len(render(llama()).splitlines()) <= 41
    assert "MEMORY  peak" in render(llama(), View(brief=True))  # what `foretrace run` shows


def test_the_step_with_the_highest_peak_is_the_one_on_the_first_screen() -> None:
    steps = [step(0, 700), step(1, 900, peak_op="aten::mul"), step(2, 800)]
    assert said(report(device(*steps))) == [
        "MEMORY  peak 900 MiB of 1000 MiB reserved in step #3, at aten::mul (--section memory)"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peak_within": "aten::linear"}, "peak 900 MiB of 1000 MiB reserved, at aten::linear ("),
        ({"peak_op": None}, "peak 900 MiB of 1000 MiB reserved, outside of operators ("),
        ({"peak_event": None, "peak_op": None}, "peak 900 MiB of 1000 MiB reserved, at its start ("),
        # The cache was emptied before the step ended, so this is not what the peak was reserved in.
        ({"reserved_bytes": 300 * MIB}, "peak 900 MiB, at aten::mm ("),
        ({"reserved_bytes": None}, "peak 900 MiB, at aten::mm ("),
        ({"peak": None}, "800 MiB allocated in all, the peak is not known ("),
    ],
)
def test_what_is_not_known_of_a_peak_is_not_said(changes: dict[str, object], words: str) -> None:
    assert said(report(device(step(**changes))))[0].startswith(f"MEMORY  {words}")  # type: ignore[arg-type]


def test_the_fullest_gpus_are_named_and_the_cpu_beside_them_is_not() -> None:
    devices = [device(step(peak=100 * (number + 1)), name=f"cuda:{number}") for number in range(4)]
    assert said(report(*devices, device(step(peak=5000), name="cpu"))) == [
        "MEMORY  cuda:3 peak 400 MiB of 1000 MiB reserved, at aten::mm",
        "        cuda:2 peak 300 MiB of 1000 MiB reserved, at aten::mm (2 more: --section memory)",
    ]


def test_without_a_gpu_it_is_the_memory_of_the_cpu() -> None:
    memory = TraceMemory(devices=[device(step(peak=12, reserved_bytes=None), name="cpu")])
    assert said(cpu_report(memory=memory)) == [
        "MEMORY  peak 12 MiB on the CPU since the profiler began, at aten::mm (--section memory)"
    ]


def test_where_no_memory_was_recorded_there_is_no_line() -> None:
    assert said(mlp_report()) == []
    assert said(report(device())) == []
    assert render(mlp_report()) == render(report(device())).replace("transfers, memory,", "transfers,")


def test_a_full_screen_stays_one() -> None:
    shown = report(device(step()), device(step(), name="cuda:1"))
    shown.groups = [group(short_name=f"kernel {number}") for number in range(80)]
    shown.findings = [finding(title=f"finding {number}") for number in range(40)]
    assert len(render(shown).splitlines()) <= 40
    assert len(said(shown)) == 2


# ---- tables that close ----


def mebibytes_of(rows: list[str]) -> int:
    return sum(int(row.split()[-2]) for row in rows)


def table_rows(text: str, title: str) -> list[str]:
    """The rows below a title: those that end in a size, up to the next remark or blank line."""
    below = text[text.index(title) :].splitlines()[1:]
    rows = below[1 + next(place for place, row in enumerate(below) if "operator" in row) :]
    return rows[: next((place for place, row in enumerate(rows) if not re.search(r"\S {2,}.*B$", row)), len(rows))]


def many(kinds: int) -> Report:
    entries = [allocating(f"aten::op{number}", 100 - number) for number in range(kinds)]
    total = sum(entry.bytes for entry in entries)
    return report(
        device(
            step(
                peak=total // MIB + 100,
                largest=entries,
                alive_at_peak=entries,
                allocated_bytes=total,
                held_before_bytes=100 * MIB,
            )
        )
    )


@pytest.mark.parametrize("title", ["Alive at the peak", "Largest allocations"])
@pytest.mark.parametrize("view", [{}, {"everything": True}, {"top": 3}, {"top": 39}, {"top": 0}])
def test_the_rows_sum_to_the_whole(title: str, view: dict[str, object]) -> None:
    rows = table_rows(section(many(40), **view), title)
    assert mebibytes_of(rows) == sum(100 - number for number in range(40))
    others = [row for row in rows if "others (--all)" in row]
    assert len(others) == (0 if view in ({"everything": True}, {"top": 39}) else 1)


def test_all_shows_every_operator_of_a_real_step() -> None:
    rows = table_rows(section(llama(), everything=True), "Largest allocations")
    assert len(rows) == 39
    text = section(llama())
    assert re.search(r"\+ 33 others \(--all\) +800 +6915 MiB\n  15988 MiB in all\.", text)
    assert re.search(r"\+ 7 others \(--all\) +123 +675.4 MiB\n", text)
    assert "1666 MiB more were allocated before the recording: 5794 MiB in all." in text
    assert re.search(r"\+ 4 others \(--all\) +28 +1.141 MiB\n", text)  # of the intermediates


def test_one_operator_more_is_shown_instead_of_summed() -> None:
    assert "aten::op6" in section(many(7))
    assert "others" not in section(many(7))
    assert "+ 2 others (--all)" in section(many(8))


# ---- names ----


LONG = "aten::_log_softmax_backward_data"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_names_of_operators_are_whole(width: int) -> None:
    text = section(llama(), width=width)
    tables = text[text.index("MEMORY BY STEP") :]
    assert tables.count(LONG) == 2  # at the peak, and alive there
    assert not re.search(r"aten::\w*…", tables)
    assert not re.search(r"Linear_\d|…", tables)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_every_line_keeps_the_width(width: int) -> None:
    assert all(width_of(row) <= width for row in section(llama(), width=width).splitlines())
    assert all(width_of(row) <= width for row in render(llama(), View(width=width)).splitlines())


def test_several_modules_are_named_by_their_classes() -> None:
    entries = [
        allocating(mib=3, modules=["Linear_4", "Linear_5", "MLP_0"]),
        allocating("aten::mul", 2, modules=["MLP_11"]),
        allocating("aten::add", 1),
    ]
    rows = table_rows(section(report(device(step(largest=entries)))), "Largest allocations")
    assert [row.split()[1:-3] for row in rows] == [["Linear,", "MLP"], ["MLP_11"], []]


# ---- what the peak would be ----


def fusable(mib: int, without: int | None, kept: int = 0) -> str:
    tensor = Intermediate(
        role="gate", op="mm", read_by=["silu"], tensors=1, bytes=mib * MIB, kept_bytes=kept * MIB, event=1
    )
    peak = None if without is None else without * MIB
    found = Intermediates(tensors=[tensor], bytes=mib * MIB, kept_bytes=kept * MIB, peak_without_bytes=peak)
    return " ".join(section(report(device(step(intermediates=found)))).split())


def test_the_peak_of_a_real_step_without_intermediates_is_explained() -> None:
    text = " ".join(section(llama()).split())
    assert "without the other 1265 MiB the peak would be 5410 MiB instead of 5794 MiB, all else as it is" in text
    assert "all else as it is: 384 MiB less, since most of it is not alive at the peak." in text


def test_why_the_peak_falls_by_less_than_the_intermediates() -> None:
    assert "In all 200 MiB; without them the peak would be 700 MiB instead of 900 MiB, all else as it is. Who" in (
        fusable(200, 700)
    )
    assert "850 MiB instead of 900 MiB, all else as it is: 50 MiB less, since most of it is not alive" in (
        fusable(200, 850)
    )
    assert "150 MiB less, since a part of it is not alive at the peak" in fusable(200, 750)
    assert "without them the peak would stay at 900 MiB: none of it is alive then" in fusable(200, 900)
    assert "In all 200 MiB. Who" in fusable(200, None)
    assert "reads 200 MiB again. Who" in fusable(200, 900, kept=200)


# ---- the CPU beside a GPU ----


def test_a_cpu_that_allocates_next_to_nothing_takes_one_line() -> None:
    for everything in (False, True):
        text = section(llama(), everything=everything)
        assert text.endswith("\n  cpu  208 allocator rows, at most 828 B allocated in a step\n")


@pytest.mark.parametrize("allocated", [LITTLE_ON_CPU - 1, LITTLE_ON_CPU])
def test_a_cpu_that_allocates_more_has_its_tables(allocated: int) -> None:
    cpu = device(step(allocated_bytes=allocated), name="cpu")
    text = section(report(device(step()), cpu), everything=True)
    assert ("Alive at the peak" in text[text.index("  cpu  ") :]) == (allocated == LITTLE_ON_CPU)
    # Where nothing but the CPU computes, it is what the section is about.
    assert "Alive at the peak" in section(cpu_report(memory=TraceMemory(devices=[cpu])))
