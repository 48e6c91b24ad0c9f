"""An annotated copy says more, changes nothing, and holds nothing that Perfetto would drop."""

from __future__ import annotations

import gzip
from collections import defaultdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.analysis import explain
from foretrace.errors import InputError
from foretrace.knowledge.tracks import TRACK_CATEGORY, TRACK_PROCESS
from foretrace.model.prediction import METADATA_KEY, PredictedRow, PredictionInfo
from foretrace.model.sidefile import SideFile, read_side, write_side
from foretrace.view.annotate import write_annotated
from foretrace.view.annotate_tracks import held
from foretrace.view.slim import slim
from readings import document as document_of

DATA = Path(__file__).parents[1] / "data"
SAMPLES = Path(__file__).parents[2] / "src" / "foretrace" / "cli" / "samples"
TRACES = sorted([*DATA.glob("traces*/*.json.gz"), *SAMPLES.glob("**/*.trace.json.gz")])
NAMES = [f"{path.parent.name}/{path.name.partition('.')[0]}" for path in TRACES]
EAGER = DATA / "traces" / "mlp_eager.json.gz"

Event = dict[str, Any]

# Times keep every digit.
document = partial(document_of, parse_float=str)
# What is not written meanwhile is explained once.
explained = lru_cache(maxsize=None)(explain)


def added(path: Path) -> list[Event]:
    return [e for e in document(path)["traceEvents"] if e.get("cat") == TRACK_CATEGORY]


def threads(path: Path) -> dict[str, list[Event]]:
    """Slices and instants of the added threads, by thread name."""
    found = added(path)
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    table: dict[str, list[Event]] = {name: [] for name in names.values()}
    for event in found:
        if event["ph"] in "Xi":
            table[names[event["tid"]]].append(event)
    return table


def counters(path: Path) -> dict[str, list[tuple[str, float]]]:
    table: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for event in added(path):
        if event["ph"] == "C":
            table[event["name"]].append((event["ts"], float(*event["args"].values())))
    return table


def ns(text: str) -> int:
    whole, _, part = text.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def no_slice_is_dropped(found: list[Event]) -> None:
    """Perfetto drops a complete event that begins inside another one of its thread and ends behind it."""
    lanes: defaultdict[Any, list[tuple[int, int]]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            start = ns(event["ts"])
            lanes[event["pid"], event["tid"]].append((start, start + ns(event["dur"])))
    assert lanes or not found
    for spans in lanes.values():
        open_ends: list[int] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def same_report(one: Path, other: Path) -> None:
    read = explained if one in TRACES else explain
    before, after = msgspec.to_builtins(read(one)), msgspec.to_builtins(explain(other))
    for report in (before, after):
        for key in ("path", "format", "events"):  # of the file
            del report["trace"][key]
    for part, value in before.items():
        assert after[part] == value, part


@pytest.mark.parametrize("path", TRACES, ids=NAMES)
def test_the_original_is_all_there_and_its_report_the_same(tmp_path: Path, path: Path):
    copy = write_annotated(path, tmp_path / "a.json.gz")
    before, after = document(path), document(copy)
    count = len(before["traceEvents"])
    assert after["traceEvents"][:count] == before["traceEvents"]
    assert {e.get("cat") for e in after["traceEvents"][count:]} == {TRACK_CATEGORY}
    del before["traceEvents"], after["traceEvents"]
    assert after == before
    side = read_side(path)
    if side is not None:
        side.trace = copy.name
    assert read_side(copy) == side
    same_report(path, copy)
    no_slice_is_dropped(added(copy))


@pytest.mark.parametrize(
    "path", [path for path in TRACES if path.stat().st_size < 100_000], ids=lambda p: p.parent.name + "/" + p.name
)
def test_annotating_twice_is_annotating_once(tmp_path: Path, path: Path):
    once = write_annotated(path, tmp_path / "a.json")
    twice = write_annotated(once, tmp_path / "b.json")
    assert twice.read_bytes() == once.read_bytes()
    # And a slim copy is without the tracks, which would speak of what it no longer holds.
    assert added(slim(twice, tmp_path / "s.json").path) == []


def test_processes_and_threads_are_no_others(tmp_path: Path):
    build = TraceBuilder()
    build.op("aten::mm", 0, 10)
    build.kernel("gemm", 20, 10, launch=build.launch(2))
    taken = {2**31 - 2, 2**31 - 3, 2**31 - 4}
    for number in taken:
        build.op("aten::add", 0, 5, pid=number, tid=number)
        build.event(ph="M", name="thread_name", pid=number, tid=number - 10, args={"name": "x"})
    path = build.write(tmp_path / "t.json")
    found = added(write_annotated(path, tmp_path / "a.json"))
    assert len({e["pid"] for e in found}) == 1
    assert not {e["pid"] for e in found} & taken
    mine = {e["tid"] for e in found if e.get("tid")}
    assert mine
    assert not mine & (taken | {number - 10 for number in taken})


def test_findings_lie_on_the_rows_they_rest_on(tmp_path: Path):
    copy = write_annotated(EAGER, tmp_path / "a.json")
    report = explained(EAGER)
    rows = document(EAGER)["traceEvents"]
    expected = sorted(
        (finding.title, rows[one.event]["ts"], rows[one.event]["dur"])
        for finding in report.findings
        for one in finding.evidence
    )
    found = [e for name, es in threads(copy).items() if name.startswith("findings") for e in es]
    assert sorted((e["name"], f"{ns(e['ts']) / 1000}", f"{ns(e['dur']) / 1000}") for e in found) == sorted(
        (title, f"{ns(ts) / 1000}", f"{ns(dur) / 1000}") for title, ts, dur in expected
    )
    best = report.findings[0]
    args = next(e["args"] for e in found if e["name"] == best.title)
    assert (args["rule"], args["explanation"], args["suggestion"]) == (best.rule, best.explanation, best.suggestion)


def test_a_finding_without_rows_is_an_instant(tmp_path: Path):
    path = SAMPLES / "h200_mlp_eager.trace.json.gz"
    report = explain(slim(path, tmp_path / "s.json", steps=[2]).path)
    bare = [finding.title for finding in report.findings if not finding.evidence]
    assert bare  # that there is only one step rests on no row
    copy = write_annotated(tmp_path / "s.json", tmp_path / "a.json")
    assert [e["name"] for es in threads(copy).values() for e in es if e["ph"] == "i"] == bare


def test_steps_carry_their_numbers_and_the_verdict(tmp_path: Path):
    report = explained(EAGER)
    found = threads(write_annotated(EAGER, tmp_path / "a.json"))["steps & verdict"]
    assert [ns(e["dur"]) for e in found] == [round(step.period_us * 1000) for step in report.steps]
    assert [e["args"]["kernels"] for e in found] == [step.kernels for step in report.steps]
    assert found[0]["args"]["verdict"] == report.verdict.bound
    assert found[0]["args"]["because"] == report.verdict.because


def test_shares_of_peak_are_as_long_as_their_kernels_and_claim_nothing_between(tmp_path: Path):
    copy = write_annotated(EAGER, tmp_path / "a.json")
    kernels = [k for k in explained(EAGER).kernels if k.of_peak is not None]
    found = threads(copy)["rooflines, GPU 0 stream 7"]
    assert [ns(e["dur"]) for e in found] == [round(k.duration_us * 1000) for k in kernels]
    assert [e["args"]["kernel"] for e in found] == [k.short_name for k in kernels]
    both = counters(copy)
    compute = both["% of peak compute (known kernels), GPU 0 stream 7"]
    bandwidth = both["% of peak bandwidth (known kernels), GPU 0 stream 7"]
    shares = [round(100 * (k.of_peak or 0), 2) for k in kernels]
    assert sorted(value for _, value in (*compute, *bandwidth) if value) == sorted(shares)
    assert all(0 <= value <= 100 for _, value in (*compute, *bandwidth))


def test_a_kernel_of_unknown_share_has_no_roofline(tmp_path: Path):
    build = TraceBuilder()
    build.op("mine::op", 0, 10)
    build.kernel("somebodys_kernel", 20, 10, launch=build.launch(2))
    copy = write_annotated(build.write(tmp_path / "t.json"), tmp_path / "a.json")
    assert not [name for name in (*threads(copy), *counters(copy)) if "roofline" in name or "peak" in name]


def test_the_queue_counts_what_is_launched_and_has_not_started(tmp_path: Path):
    build = TraceBuilder(base_us=1000)
    build.op("aten::mm", 0, 60)
    for at, begins in ((10, 30), (20, 50), (40, 70)):
        build.kernel("k", begins, 10, launch=build.launch(at))
    build.kernel("unlinked", 90, 5, stream=9)
    build.kernel("linked", 80, 5, stream=9, launch=build.launch(75))
    both = counters(write_annotated(build.write(tmp_path / "t.json"), tmp_path / "a.json"))
    depth = [(ns(at) // 1000 - 1000, value) for at, value in both["queue depth, GPU 0 stream 7"]]
    assert depth == [(10, 1), (20, 2), (30, 1), (40, 2), (50, 1), (70, 0)]
    # What was launched out of sight waits in no queue that could be counted; the name says so.
    assert "queue depth, GPU 0 stream 9 (without 1 row of unknown launch)" in both


def test_a_gpu_is_busy_while_any_of_its_streams_is(tmp_path: Path):
    build = TraceBuilder(base_us=1000)
    for stream, begins, lasts in ((7, 10, 20), (9, 25, 10), (7, 40, 5)):
        build.kernel("k", begins, lasts, stream=stream)
    both = counters(write_annotated(build.write(tmp_path / "t.json"), tmp_path / "a.json"))
    busy = [(ns(at) // 1000 - 1000, value) for at, value in both["GPU 0 busy"]]
    assert busy == [(10, 1), (35, 0), (40, 1), (45, 0)]


def test_times_are_exact_to_the_nanosecond(tmp_path: Path):
    build = TraceBuilder(base_us=0)
    text = "1712345678901234.567"  # µs since 1970, as torch 2.2 wrote them: more than a float64 holds
    build.kernel("k", 0, 10.123)
    path = tmp_path / "t.json"
    path.write_bytes(build.text().replace(b'"ts": 0', b'"ts": ' + text.encode()))
    copy = write_annotated(path, tmp_path / "a.json")
    assert document(copy)["traceEvents"][0]["ts"] == text
    assert counters(copy)["GPU 0 busy"] == [(text, 1), ("1712345678901244.690", 0)]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.sampled_from([7, 9])), max_size=12))
def test_whatever_overlaps_nothing_added_is_dropped(tmp_path_factory: pytest.TempPathFactory, rows):
    folder = tmp_path_factory.mktemp("annotate")
    build = TraceBuilder()
    for number in range(3):
        build.step(number, 25 * number, 40)  # steps that overlap
    for start, duration, stream in rows:
        build.op("aten::mm", start, duration, shapes=[[64, 64], [64, 64]], dtypes=["c10::BFloat16"] * 2, tid=stream)
        launch = build.launch(start, duration / 2, tid=stream)
        build.kernel("ampere_bf16_s16816gemm_bf16_64x64_nn", start + 5, duration, launch=launch, stream=stream)
    path = build.write(folder / "t.json")
    copy = write_annotated(path, folder / "a.json")
    no_slice_is_dropped(added(copy))
    same_report(path, copy)


# Predictions


def predicted(path: Path, *, us: float) -> Path:
    """A predicted step of one product, which is said to take ``us``, give or take a tenth."""
    row = PredictedRow(
        event=3,
        row="kernel",
        name="nvjet_tst",
        kind="gemm",
        op="aten::mm",
        shape="64 × 64 × 64",
        us=us,
        low_us=0.9 * us,
        high_us=1.1 * us,
        flops=None,
        bytes=None,
        floor_us=None,
        bound="unknown",
        basis="a measured table",
    )
    totals = dict.fromkeys(("flops", "bytes", "compute_floor_us", "memory_floor_us"))
    words = dict.fromkeys(("version", "program", "gpu", "variant", "mode"), "x")
    lists: dict[str, Any] = {name: [] for name in ("peaks", "basis", "notes", "groups")}
    info = PredictionInfo(
        predicted=True,
        gpu_busy_us=us,
        gpu_busy_low_us=us,
        gpu_busy_high_us=us,
        cpu_us=us,
        unknown={},
        kernels=1,
        memsets=0,
        memcpys=0,
        rows=[row],
        **words,
        **totals,
        **lists,
    )
    build = TraceBuilder(meta={METADATA_KEY: msgspec.to_builtins(info)})
    return one_product(build, us=us).write(path)


def one_product(build: TraceBuilder, *, us: float) -> TraceBuilder:
    build.step(0, 0, 100)
    build.op("aten::mm", 10, 20, shapes=[[64, 64], [64, 64]], dtypes=["c10::BFloat16"] * 2)
    build.kernel("nvjet_tst", 50, us, launch=build.launch(12))
    return build


@pytest.mark.parametrize(
    ("measured", "word"),
    [(10.5, "as predicted"), (12, "longer than predicted"), (8, "shorter than predicted")],
)
def test_what_was_predicted_lies_beside_what_was_measured(tmp_path: Path, measured: float, word: str):
    plan = predicted(tmp_path / "plan.json", us=10)
    path = one_product(TraceBuilder(), us=measured).write(tmp_path / "t.json")
    copy = write_annotated(path, tmp_path / "a.json", predicted=plan)
    (event,) = threads(copy)["predicted"]
    assert event["name"] == f"10.0 µs ({word})"
    assert (ns(event["ts"]), ns(event["dur"])) == (1_000_050_000, 10_000)
    assert (event["args"]["interval"], event["args"]["rests on"]) == ("9.00 µs to 11.0 µs", "a measured table")
    assert "predicted" not in threads(write_annotated(path, tmp_path / "b.json"))
    same_report(path, copy)


def test_a_prediction_shows_its_own_intervals(tmp_path: Path):
    plan = predicted(tmp_path / "plan.json", us=10)
    copy = write_annotated(plan, tmp_path / "a.json")
    (event,) = threads(copy)["predicted, at most"]
    assert event["name"] == "10.0 µs, most likely 9.00 µs to 11.0 µs"
    assert ns(event["dur"]) == 11_000
    same_report(plan, copy)


def test_what_is_no_prediction_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no predicted timeline"):
        write_annotated(EAGER, tmp_path / "a.json", predicted=EAGER)
    assert list(tmp_path.iterdir()) == []


# Odd files


def test_a_damaged_trace_is_mended_in_the_copy(tmp_path: Path):
    text = gzip.decompress(EAGER.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(text[: len(text) // 2].replace(b"aten::linear", b"aten::\x01linear"))
    copy = write_annotated(path, tmp_path / "a.json")
    before, after = explain(path), explain(copy)
    assert before.trace.repairs
    assert after.trace.repairs == []
    assert after.kernels == before.kernels
    assert after.operators == before.operators
    no_slice_is_dropped(added(copy))


def test_an_empty_recording_gets_only_a_name(tmp_path: Path):
    copy = write_annotated(TraceBuilder().write(tmp_path / "t.json"), tmp_path / "a.json")
    assert [e["args"] for e in added(copy) if e["name"] == "process_name"] == [{"name": TRACK_PROCESS}]
    assert {e["ph"] for e in added(copy)} == {"M"}


def test_no_file_is_replaced_unasked(tmp_path: Path):
    target = tmp_path / "a.json"
    target.write_text("mine")
    with pytest.raises(InputError, match="--force"):
        write_annotated(EAGER, target)
    assert target.read_text() == "mine"
    write_annotated(EAGER, target, force=True)
    assert added(target)
    copy = tmp_path / "mine.json"
    copy.write_bytes(gzip.decompress(EAGER.read_bytes()))
    with pytest.raises(InputError, match="the trace itself"):
        write_annotated(copy, copy, force=True)
    write_side(tmp_path / "b.json", SideFile(label="another"))
    with pytest.raises(InputError, match="would be taken for"):
        write_annotated(copy, tmp_path / "b.json")


@pytest.mark.parametrize(
    ("spans", "samples"),
    [
        ([], []),
        ([(0, 100, 50), (10, 20, 30), (200, 210, 1)], [(0, 50), (10, 30), (20, 50), (100, 0), (200, 1), (210, 0)]),
        ([(0, 20, 50), (10, 30, 40)], [(0, 50), (10, 40), (30, 0)]),
        ([(0, 10, 50), (10, 20, 50)], [(0, 50), (20, 0)]),
        ([(5, 5, 50)], [(5, 0)]),
    ],
    ids=["none", "one inside another", "one behind another", "one after another", "without duration"],
)
def test_a_value_holds_until_its_stretch_ends(spans: list[Any], samples: list[Any]):
    assert held(spans) == samples


stretches = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 9)), max_size=8, unique_by=lambda one: one[0]
)


@given(stretches)
def test_the_stretch_that_began_last_is_shown_at_any_moment(pairs: list[tuple[int, int, int]]):
    spans = [(start, start + length, value) for start, length, value in pairs]
    samples = held(spans)
    for moment in range(-1, 32):
        around = [span for span in spans if span[0] <= moment < span[1]]
        shown = [value for at, value in samples if at <= moment]
        assert (shown[-1] if shown else 0) == (max(around)[2] if around else 0)
