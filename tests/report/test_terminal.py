"""The terminal report: one screen first, warnings before numbers, no number that was not measured."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.model.report import Has, Health, Report
from foretrace.report import SECTIONS, View, render
from foretrace.report.text import width_of
from report.samples import (
    GEMM_NAME,
    MUL_NAME,
    cpu_report,
    elementwise,
    finding,
    gemm,
    group,
    kernel,
    mlp_report,
    node,
    step,
    timing,
    trace_info,
    transfer,
)

HOSTILE = "\x1b[2J[bold]evil[/bold]\x9b31m\u202e\n"


def section(name: str, report: Report, **view: object) -> str:
    """One section without the title above it."""
    text = render(report, View(sections=(name,), **view))  # type: ignore[arg-type]
    return text[text.index(SECTIONS[name].upper()) :]


def test_one_screen_says_what_it_is_the_verdict_and_where_the_time_goes():
    text = render(mlp_report())
    assert len(text.splitlines()) <= 40
    assert text.startswith(
        "foretrace  mlp_eager.json.gz\n"
        "NVIDIA H200 · torch 2.11.0 · 3 steps · with shapes, without stacks or memory\n"
        "\n"
        "VERDICT  mixed\n"
    )
    order = [text.index(word) for word in ("VERDICT", "STEPS", "KERNELS", "FINDINGS", "Not recorded", "More:")]
    assert order == sorted(order)


def test_a_long_report_still_fits_on_one_screen():
    report = mlp_report(
        steps=[step(i, period_us=400.0 + (i * 37) % 11) for i in range(500)],
        groups=[group(short_name=f"kernel {i}") for i in range(80)],
        findings=[finding(title=f"finding {i}") for i in range(40)],
        health=[Health(check="gpu_rows_missing", state="bad", detail="12 launches have no kernel")],
    )
    text = render(report)
    assert len(text.splitlines()) <= 42
    assert re.search(r"\+ 49\d more steps \(--all\)", text)
    assert re.search(r"\+ \d+ more kernels \(--all\)", text)
    assert re.search(r"\+ \d+ more; why, where", text)


def test_many_steps_show_the_first_slowest_fastest_median_and_last():
    periods = [900.0, 400.0, 410.0, 420.0, 430.0, 2000.0, 440.0]
    text = render(mlp_report(steps=[step(i, period_us=p) for i, p in enumerate(periods)]))
    for label, remark in (
        ("#2", "first"),
        ("#7", "slowest"),
        ("#3", "fastest"),
        ("#6", "median"),
        ("#8", "last"),
    ):
        assert re.search(rf"^  {label} +{remark} ", text, re.MULTILINE)
    assert "+ 2 more steps" in text


def test_what_forbids_trust_comes_before_the_verdict():
    report = mlp_report(
        trace=trace_info(repairs=["the gzip stream is cut off"]),
        health=[
            Health(check="unlinked_gpu_time", state="ok", detail="every GPU row has its launch"),
            Health(check="implausible_timestamps", state="bad", detail="one event is longer than the trace"),
            Health(check="negative_launch_delay", state="suspect", detail="3 kernels start before their launch"),
        ],
    )
    text = render(report)
    assert text.index("DO NOT TRUST  implausible timestamps: one event") < text.index("VERDICT")
    assert text.index("SUSPECT       negative launch delay: 3 kernels") < text.index("VERDICT")
    assert text.index("REPAIRED      the gzip stream is cut off") < text.index("VERDICT")
    assert "every GPU row has its launch" not in text
    assert "DO NOT TRUST" in render(report, View(sections=("gemms",)))


def test_a_trace_without_gpu_rows_shows_operators_and_no_gpu_number():
    text = render(cpu_report())
    assert "CPU only" in text
    assert "· whole trace ·" in text
    assert "OPERATORS  on the CPU" in text
    assert "GPU\n" not in text
    assert "kernel time" not in text
    everything = render(cpu_report(), View(everything=True))
    assert "self GPU" not in everything


def test_what_is_unknown_is_a_dash_and_never_zero():
    steps = [step(0), step(1, synchronizations=None, gpu_idle_us=None)]
    rows = section("steps", mlp_report(steps=steps)).splitlines()
    unknown = next(row for row in rows if "#3" in row)
    assert unknown.split().count("–") == 3  # idle, the busy share that rests on it, synchronizations


def test_gpu_work_of_no_step_is_said_on_the_first_screen():
    kernels = [kernel(), kernel(step=None, duration_us=4000.0), kernel(step=None, duration_us=50.0)]
    text = render(mlp_report(kernels=kernels, transfers=[transfer(step=None, duration_us=10.0)]))
    assert "Launched by none of these steps: 2 kernels and 1 copy or memset, 4.06 ms in all" in text
    assert "no step" in section("transfers", mlp_report(transfers=[transfer(step=None)]))
    assert "Launched by none" not in render(mlp_report())


def test_the_unprofiled_time_is_said_under_the_steps():
    text = render(mlp_report(trace=trace_info(unprofiled=timing())))
    assert "Without the profiler a step takes 241 µs (median of 50, interquartile range 1.20 µs" in text
    assert "Without the profiler" not in render(mlp_report())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_every_line_keeps_the_width_and_the_key_columns_survive(width):
    text = render(mlp_report(), View(width=width, everything=True))
    too_long = [row for row in text.splitlines() if width_of(row) > width]
    assert not too_long
    assert "busy" in text
    assert "share" in text


def test_full_names_are_never_cut():
    text = section("kernels", mlp_report(), width=60)
    joined = re.sub(r"\s+", "", text)
    assert GEMM_NAME in joined
    assert re.sub(r"\s+", "", MUL_NAME) in joined


def test_the_gemm_table_has_torchs_order_and_names_its_peak():
    text = section("gemms", mlp_report())
    assert re.search(r"8192 +3072 +768 +bf16 +TN +256x128 +bias +6 +38\.65 GFLOP", text)
    assert "of peak: share of bf16 tensor, 989 TFLOP/s" in text


def test_shares_of_different_peaks_are_marked():
    rows = [gemm(), gemm(m=64, n=8, k=8, of_peak=0.016, peak="memory, 4800 GB/s")]
    text = section("gemms", mlp_report(gemms=rows))
    assert "68.9 a" in text
    assert "1.6 b" in text
    assert "of peak: share of a bf16 tensor, 989 TFLOP/s; b memory, 4800 GB/s" in text


def test_gemms_without_shapes_say_why():
    text = section("gemms", mlp_report(gemms=[gemm(m=None, n=None, k=None, flops=None), gemm()]))
    assert "shapes were not recorded" in text


def test_a_share_above_the_peak_is_never_shown():
    rows = [elementwise(of_peak=1.4, cache_assisted=True), elementwise(of_peak=1.4), elementwise()]
    text = section("elementwise", mlp_report(elementwise=rows))
    assert "cache-assisted" in text
    assert "above peak" in text
    assert "140" not in text


def test_the_chain_is_a_tree_of_operator_launch_and_kernel():
    text = section("chain", mlp_report())
    assert text.splitlines()[2:] == [
        "  ProfilerStep#2",
        "  ├─ 2× aten::linear",
        "  │  ├─ aten::t",
        "  │  │  └─ aten::transpose",
        "  │  └─ aten::matmul",
        "  │     └─ aten::mm",
        "  │        ├─ cudaMemsetAsync → Memset (Device)  0.784 µs",
        f"  │        └─ cudaLaunchKernelExC → {GEMM_NAME}  56.7 µs",
        "  └─ aten::gelu",
    ]


def test_a_chain_deeper_than_pythons_stack_renders_in_its_width():
    chain = node("leaf", "kernel", us=1.0)
    for depth in range(3000):
        chain = node(f"frame {depth}", "operator", chain)
    text = section("chain", mlp_report(chain=[chain]), everything=True)
    assert "→ leaf  1.00 µs" in text
    assert max(map(width_of, text.splitlines())) <= 100


def test_a_graph_launch_shows_all_its_kernels():
    launch = node("cudaGraphLaunch", "launch", node("gemm_a", "kernel", us=3.0), node("gemm_b", "kernel", us=4.0))
    text = section("chain", mlp_report(chain=[launch]))
    assert "  cudaGraphLaunch\n  ├─ → gemm_a  3.00 µs\n  └─ → gemm_b  4.00 µs\n" in text


def test_findings_give_their_reason_evidence_source_and_remedy():
    text = section("findings", mlp_report())
    for words in (
        "gelu and mul pass 50.3 MB through HBM  saves 31.8 µs a step",
        "written to HBM and read again",
        "do: Compile the module",
        "source: model.py:17",
        "aten::gelu  at 120 µs, event 41",
        "rule hbm_round_trip, 1 time in this trace",
        "9 transposes cost no GPU time",
        "rule metadata_only, 9 times in this trace",
    ):
        assert words in text


def test_only_the_metadata_operators_are_listed_as_launching_nothing():
    text = section("metadata-only", mlp_report())
    assert "aten::t" in text
    assert "aten::mm" not in text


def test_top_limits_every_table():
    groups = [group(short_name=f"kernel {i}") for i in range(9)]
    for view in (View(top=2), View(top=2, sections=("kernels",))):
        text = render(mlp_report(groups=groups), view)
        assert "kernel 1 " in text
        assert "kernel 2 " not in text
        assert "+ 7 more kernels (--all)" in text


@given(
    numbers=st.lists(st.none() | st.floats(), min_size=4, max_size=4),
    times=st.lists(st.floats(), min_size=4, max_size=4),
    name=st.text(),
    width=st.integers(40, 130),
)
def test_no_value_breaks_the_layout(numbers, times, name, width):
    one, two, three, four = numbers
    busy = step(wall_us=times[0], period_us=times[1], gpu_busy_us=one, gpu_idle_us=two, label=name)
    report = mlp_report(
        steps=[busy, step(1)],
        groups=[group(total_us=times[2], median_us=times[3], calls_per_step=three, of_peak=four, short_name=name)],
        gemms=[gemm(tflops=one, of_peak=two, median_us=times[0], kernel=name)],
        elementwise=[elementwise(gbps=three, of_peak=four, short_name=name)],
        findings=[finding(saving_us=one, title=name, explanation=name)],
        kernels=[kernel(step=None, duration_us=times[1])],
    )
    text = render(report, View(width=width, everything=True))
    assert max(map(width_of, text.splitlines())) <= width
    assert text.replace("\n", "").isprintable()


def test_one_row_more_is_shown_instead_of_counted():
    for many in range(1, 40):
        text = render(mlp_report(groups=[group()] * many, findings=[finding()] * many))
        assert "+ 1 more" not in text


def test_brief_has_no_footer():
    text = render(mlp_report(), View(brief=True))
    assert "FINDINGS" in text
    assert "More:" not in text


def test_all_shows_every_section():
    text = render(mlp_report(), View(everything=True))
    for name, heading in SECTIONS.items():
        # Allocator rows are in hardly any trace; without them the section is shown only where it is asked for.
        assert (heading.upper() in text) == (name != "memory")


@pytest.mark.parametrize("color", [False, True])
def test_names_from_a_trace_are_never_interpreted(color):
    report = mlp_report(
        trace=trace_info(path=f"/tmp/{HOSTILE}.json", torch_version=HOSTILE, warnings=[HOSTILE], repairs=[HOSTILE]),
        groups=[group(name=HOSTILE, short_name=HOSTILE, op=HOSTILE)],
        gemms=[gemm(kernel=HOSTILE, epilogue=[HOSTILE])],
        elementwise=[elementwise(kernel=HOSTILE, short_name=HOSTILE, parts=[HOSTILE])],
        chain=[node(HOSTILE, "operator", node(HOSTILE, "launch", node(HOSTILE, "kernel", us=1.0)))],
        findings=[finding(title=HOSTILE, explanation=HOSTILE, source=HOSTILE)],
        health=[Health(check=HOSTILE, state="bad", detail=HOSTILE)],
    )
    text = render(report, View(everything=True, color=color, width=160))
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text) if color else text
    assert bare.replace("\n", "").isprintable()
    assert "[bold]evil[/bold]" in bare
    assert ("\x1b[" in text) == color


def test_empty_sections_say_so():
    empty = mlp_report(
        steps=[step(idle=[], phases=None)],
        kernels=[],
        transfers=[],
        groups=[],
        operators=[],
        gemms=[],
        elementwise=[],
        chain=[],
        gaps=[],
        findings=[],
        health=[],
    )
    for name in set(SECTIONS) - {"steps"}:
        body = section(name, empty).splitlines()[1:]
        assert len(body) == 1
        assert body[0].endswith(".")


def test_graph_replays_are_named_in_the_title():
    has = Has(shapes=True, stacks=True, gpu=True, memory=True, graphs=True)
    assert "GPU graph replays" in render(mlp_report(trace=trace_info(has=has)))
    assert "Not recorded" not in render(mlp_report(trace=trace_info(has=has)))


def test_a_repair_that_a_check_already_told_is_not_told_twice():
    report = mlp_report()
    report.trace.repairs = ["the text is cut off", "a byte order mark was skipped"]
    report.health = [Health(check="repaired", state="bad", detail="the file was mended: the text is cut off")]
    shown = render(report)
    assert shown.count("the text is cut off") == 1
    assert "a byte order mark was skipped" in shown
