"""A comparison as text and as Markdown: it fits, it is safe to show, it says what the data says."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, Call, program
from foretrace import compare, explain
from foretrace.report.compare_markdown import comparison_markdown
from foretrace.report.compare_terminal import render_comparison
from foretrace.report.view import View

TRACES = Path(__file__).parents[1] / "data" / "traces"


def of(*names: str, **options):
    return compare([TRACES / f"{name}.json.gz" for name in names], **options)


@pytest.fixture(scope="module")
def three():
    return of("mlp_eager", "mlp_compile", "mlp_liger", fail_on=["kernels > +0", "gpu_time < -1%"])


def test_the_text_tells_the_story(three):
    text = render_comparison(three)
    for said in (
        "mlp_eager → mlp_compile",
        "gelu + mul → triton_poi gelu·mul",
        "101 MB",
        "3 gemm, 2 memset, identical by name",
        "rows of torch.compile appear",
        "GPU time: 1.14× faster",
        "end to end unknown: no unprofiled timing lies beside the trace",
        "2 of 4 failed",
    ):
        assert said in text


def test_markdown_ends_in_the_conclusion_table(three):
    text = comparison_markdown(three)
    assert "| setup | what changed | what stayed the same |" in text
    assert "gelu + mul → triton\\_poi gelu·mul" in text
    assert "| kernels &gt;" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    bars = [line.replace("\\|", "").count("|") for line in rows]
    assert len(set(bars)) <= 5  # one width a table


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_lines_fit_the_terminal(three, width):
    assert max(len(row) for row in render_comparison(three, View(width=width)).splitlines()) <= width


def test_many_traces_take_several_tables_and_none_is_left_out():
    found = of("mlp_eager", *["mlp_compile", "mlp_liger", "mlp_cudagraph"] * 2)
    text = render_comparison(found)
    assert text.count("GPU time       ") >= 2
    head = text[text.index("A STEP") : text.index("CONCLUSION")]
    for label in [side.label for side in found.sides]:
        assert label in head


def test_an_unrelated_trace_gets_a_warning_and_no_table_of_kernels():
    text = render_comparison(of("linear_eager", "mlp_eager"))
    assert "! These traces are unrelated" in text
    assert text.endswith("changed  unrelated to the baseline: nothing is compared\n")
    assert "KERNEL" not in text.upper().split("A STEP")[1].split("CONCLUSION")[1]
    assert "unrelated" in comparison_markdown(of("linear_eager", "mlp_eager"))


def test_a_prediction_is_not_called_profiled():
    guess = explain(program(EAGER).trace())
    guess.trace.predicted = True
    found = compare([guess, program(COMPILED, around=["TorchDynamo Cache Lookup"]).trace()])
    for text in (render_comparison(found), comparison_markdown(found)):
        (told,) = [line for line in text.splitlines() if "period (predicted)" in line]
        (seen,) = [line for line in text.splitlines() if "period (profiled)" in line]
        assert "–" in told
        assert "–" in seen
        assert "of CPU time, profiled" not in text
    assert "end to end unknown: it is not predicted; in a loop the slower of GPU time and CPU" in render_comparison(
        found
    )


def test_more_bytes_through_memory_are_told_as_such():
    there, back = program(EAGER).trace(), program(COMPILED).trace()
    assert " less through" in render_comparison(compare([there, back]))
    text = render_comparison(compare([back, there]))
    assert "less through" not in text
    assert "4.10 kB more" in text
    assert "4.10 kB more through memory" in text.partition("CONCLUSION")[2]
    assert "| 4.10 kB more |" in comparison_markdown(compare([back, there]))


def test_why_a_time_is_not_compared_is_said():
    guess = program(EAGER).trace()
    report = explain(guess)
    report.trace.predicted = True
    found = compare([guess, program(EAGER).trace()])
    change = found.metrics[[m.name for m in found.metrics].index("cpu_time")].changes[1]
    change.direction, change.reason = "unknown", "it was predicted without the profiler"
    assert "CPU time not compared: it was predicted without the profiler" in render_comparison(found)


def test_what_a_trace_calls_things_can_do_no_harm():
    nasty = "evil\x1b[31m|`<b>*_kernel"
    found = compare([program(EAGER).trace(), program([*EAGER, Call("aten::x", nasty)]).trace()])
    assert "\x1b" not in render_comparison(found)
    text = comparison_markdown(found)
    assert "\x1b" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")


def test_a_trace_without_gpu_is_shown():
    build = TraceBuilder(gpu=None)
    build.op("aten::relu", 0, 10)
    assert "unrelated" in render_comparison(compare([build.trace(), program(COMPILED).trace()]))
