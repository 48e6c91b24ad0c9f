"""A bench as text."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.model.bench import (
    Bench,
    Check,
    CopyRate,
    Flushing,
    GemmRate,
    Limits,
    Load,
    PaysAfter,
    Ratio,
    Result,
    ShapeResult,
    Sweep,
    SweepTotal,
    Work,
)
from foretrace.model.sidefile import GpuState, Machine
from foretrace.report.bench import render_bench
from foretrace.report.view import View


def variant(name: str, **more: Any) -> Result:
    settings: dict[str, Any] = {
        "state": "ok",
        "median_us": 240.0,
        "interval_us": (239.0, 241.5),
        "of_floor": 1.5,
        "peak_memory_bytes": 231_000_000,
        "check": Check(state="passed", relative_error=0.0031),
    }
    return Result(name=name, variant=name, **{**settings, **more})


COMPILED = variant(
    "compile",
    median_us=180.0,
    interval_us=(179.0, 181.0),
    of_floor=1.125,
    difference="faster",
    ratio=Ratio(median=0.75, low=0.745, high=0.755),
    setup_us=6_000_000.0,
    pays_after=PaysAfter(state="after", calls=100_000, low=99_000, high=101_000),
)


def bench(*variants: Result, **more: Any) -> Bench:
    first = variant("eager", difference="first", ratio=Ratio(median=1.0))
    settings: dict[str, Any] = {
        "workload": "mlp",
        "parameters": {"batch": 64, "dtype": "bf16"},
        "mode": "forward",
        "device": "cuda",
        "seed": 0,
        "method": "cuda_events",
        "rounds": 200,
        "flush": Flushing(on=False, reason="the data is larger than the L2"),
        "limits": Limits(
            gemm=[GemmRate(dtype="bf16", size=8192, flops=1, tflops=700.0, best_us=1, median_us=1, runs=20)],
            copy=CopyRate(size=1, bytes=2, gbps=4200.0, best_us=1, median_us=1, runs=20),
        ),
        "work": Work(
            flops=112 * 10**9, bytes_read=30_000_000, bytes_written=9_000_000, floor_us=160.0, floor_by="compute"
        ),
        "load": Load(),
        "compiler_start_us": 9e6,
        "gpus": [GpuState(index=0, name="NVIDIA H200")],
    }
    return Bench(variants=[first, *variants], **{**settings, **more})


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_one_table_and_a_few_sentences() -> None:
    text = render_bench(bench(COMPILED))
    lines = text.splitlines()
    assert lines[0] == "mlp · batch 64 dtype bf16 · forward · 200 rounds · NVIDIA H200"
    (row,) = [line for line in lines if line.startswith("  compile ")]
    assert squeezed(row) == "compile 180 179–181 0.750× 1.12 231 MB 3.1e-03 6.00 s 100000 right"
    said = squeezed(text)
    assert "compile is faster than eager: 0.750 times its time (0.745 to 0.755); the 6.00 s" in said
    assert "won back after 100000 calls" in said
    assert "the compiler took 9.00 s to get ready, once" in said
    assert "700 TFLOP/s bf16 GEMM and 4200 GB/s copy" in said
    assert "compile comes closest, at 88.9 % of what is possible" in said
    assert "CPU" not in said


def test_the_start_of_the_compiler_is_said_where_calls_win_time_back() -> None:
    said = squeezed(render_bench(bench(COMPILED, compiler_start_us=17_000_000.0), View(width=200)))
    assert "won back after 100000 calls, without the 17.0 s in which the compiler gets ready once." in said


def test_a_program_of_several_graphs_says_so() -> None:
    said = squeezed(render_bench(bench(variant("compile", graphs_compiled=2)), View(width=200)))
    assert "compile became 2 graphs" in said


def test_no_difference_is_called_none() -> None:
    same = variant("compile", difference="none", ratio=Ratio(median=1.01, low=0.99, high=1.02))
    text = squeezed(render_bench(bench(same)))
    assert "No difference between compile and eager was found: the ratio of times is 0.990 to 1.02." in text
    assert " same " in text
    close = variant("compile", difference="none", ratio=Ratio(median=0.995, low=0.992, high=0.998))
    assert "is 0.992 to 0.998, as close as two equal programs come." in squeezed(render_bench(bench(close)))


def test_a_wrong_variant_has_no_speed_up_and_says_what_is_wrong() -> None:
    wrong = variant("compile", state="wrong", reason="output is off by 0.01 of its norm, eager by 0.003", of_floor=0.5)
    text = squeezed(render_bench(bench(wrong)))
    assert "compile is wrong: output is off by 0.01 of its norm" in text
    assert "×" not in text.replace("× floor", "")
    assert "eager comes closest" in text


def test_a_failed_variant_is_a_row_of_dashes_and_a_sentence() -> None:
    failed = Result(name="compile", variant="compile", state="failed", reason="there is no C++ compiler")
    text = render_bench(bench(failed))
    (row,) = [line for line in text.splitlines() if line.strip().startswith("compile ") and "failed:" not in line]
    assert set(row.split()) == {"compile", "–", "failed"}
    assert "compile failed: there is no C++ compiler" in text


def test_times_of_a_cpu_are_marked_as_such() -> None:
    text = render_bench(bench(COMPILED, device="cpu", gpus=[], machine=Machine(cpu="Some CPU")))
    assert "µs here" in text
    assert "The times are those of this CPU" in squeezed(text)
    assert "Some CPU" in text


def test_unknown_is_said_with_its_reason() -> None:
    few = variant("compile", ratio=Ratio(median=0.8), interval_us=None, missing={"ratio.low": "4 rounds are too few"})
    work = Work(missing={"floor_us": "the operators could not be counted"})
    text = squeezed(render_bench(bench(few, work=work)))
    assert "whether that is a difference is unknown: 4 rounds are too few" in text
    assert "There is no floor to hold the times against: the operators could not be counted." in text
    unchecked = variant("compile", state="unchecked", reason="two eager calls differ")
    assert "Results were not checked: two eager calls differ." in squeezed(render_bench(bench(unchecked)))


def test_below_the_floor_is_explained_by_caches() -> None:
    text = squeezed(render_bench(bench(variant("graph", of_floor=0.8))))
    assert "graph is below that: caches served part of the bytes" in text
    assert "125" not in text


@pytest.mark.parametrize("width", [40, 80, 100])
def test_nothing_is_wider_than_asked_for(width: int) -> None:
    found = bench(COMPILED, warnings=["the GPU's clocks were held down by the power limit"], sweep=SWEEP)
    assert all(len(line) <= width for line in render_bench(found, View(width=width)).splitlines())
    assert "\x1b[" in render_bench(found, View(width=width, color=True))


SWEEP = Sweep(
    axes={"batch": [1, 8]},
    shapes=[
        ShapeResult(variant=name, parameters={"batch": size}, compiles=made, first_call_us=1e6, median_us=100.0)
        for name, made in (("eager", None), ("compile", 1))
        for size in (1, 8)
    ],
    totals=[
        SweepTotal(variant="eager"),
        SweepTotal(variant="compile", compiles=2, setup_us=2e6, notes=["a note on it"]),
        SweepTotal(variant="other", reason="it does not run"),
    ],
)


def test_a_sweep_is_a_table_of_shapes_and_what_they_compiled() -> None:
    text = render_bench(bench(COMPILED, sweep=SWEEP))
    assert "compile: 2 shapes took 2 compiles (2.00 s in first calls)." in text
    assert "a note on it" in text
    assert "other failed: it does not run" in text
    rows = [line.split() for line in text.splitlines() if line.strip().startswith(("1 ", "8 "))]
    assert rows == [[size, "100", "1.00", "s", "100", "1", "1.00", "s"] for size in ("1", "8")]
