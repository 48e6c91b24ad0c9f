"""What a comparison says of its numbers: differences, noise, refusals, conclusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, MM, OTHER_MM, Call, mm, program
from foretrace import InputError, compare, explain
from foretrace.knowledge.kernels.predicted import spell
from foretrace.model.comparison import Comparison, Pair
from foretrace.model.prediction import PredictedRow, PredictionInfo
from foretrace.model.report import Report
from foretrace.model.sidefile import SideFile, Unprofiled, write_side


def metric(comparison: Comparison, name: str):
    return next(m for m in comparison.metrics if m.name == name)


def pair_of(a: TraceBuilder, b: TraceBuilder) -> Pair:
    (pair,) = compare([a.trace(), b.trace()]).pairs
    return pair


def slower(calls, factor: float):
    return [replace(call, us=call.us * factor) for call in calls]


# Differences and noise


def test_a_trace_against_itself_differs_in_nothing():
    trace = program(EAGER, wander=0.3).trace()
    found = compare([trace, trace])
    (pair,) = found.pairs
    assert {place.change.direction for place in pair.places} == {"same"}
    assert {m.changes[1].direction for m in found.metrics if m.values[0].median is not None} == {"same"}
    assert (pair.operators, pair.copies, pair.withheld, pair.same_work) == ([], [], None, True)
    assert found.conclusion[0].changed == []


def test_a_difference_inside_the_spread_over_steps_is_none():
    found = compare([program(EAGER, wander=4).trace(), program(slower(EAGER, 1.05), wander=4).trace()])
    change = metric(found, "gpu_time").changes[1]
    assert (change.direction, change.reason) == ("same", "inside the spread over steps")
    assert change.absolute > 0
    ratio = found.pairs[0].speedups[0]
    assert ratio.ratio is None
    assert "inside the spread" in ratio.reason


def test_a_difference_beyond_it_is_told_with_its_ratio():
    found = compare([program(slower(EAGER, 2)).trace(), program(EAGER).trace()])
    change = metric(found, "gpu_time").changes[1]
    assert change.direction == "less"
    assert change.relative == pytest.approx(-0.5, abs=0.01)
    assert found.pairs[0].speedups[0].ratio == pytest.approx(2, abs=0.02)


def test_with_one_step_the_spread_is_unknown_and_said_to_be():
    found = compare([program(EAGER, steps=1).trace(), program(slower(EAGER, 2), steps=1).trace()])
    gpu = metric(found, "gpu_time")
    assert gpu.values[0].low is None
    assert "one step" in gpu.values[0].reason
    assert gpu.changes[1].reason == "the spread is unknown"


def test_a_single_step_inside_the_spread_of_several_is_no_difference():
    wandering = program(EAGER, wander=4).trace()
    inside = compare([wandering, program(slower(EAGER, 1.05), steps=1).trace()])
    change = metric(inside, "gpu_time").changes[1]
    assert (change.direction, change.reason) == ("same", "inside the spread over steps")
    outside = compare([wandering, program(slower(EAGER, 2), steps=1).trace()])
    change = metric(outside, "gpu_time").changes[1]
    assert (change.direction, change.reason) == ("more", "the spread is unknown")
    assert outside.pairs[0].speedups[0].reason == "the spread is unknown"
    assert outside.pairs[0].speedups[0].ratio < 1


def test_counts_have_no_noise():
    found = compare([program(EAGER).trace(), program(COMPILED).trace()])
    assert metric(found, "kernels").changes[1].absolute == -1
    assert metric(found, "gemm").changes[1].direction == "same"


def test_a_cold_first_step_does_not_count_among_cpu_times():
    build = TraceBuilder()
    build.step(0, 0, 4900)
    build.op("aten::mm", 10, 20)
    build.kernel(MM, 30, 10, launch=build.launch(15, 2))
    for number in (1, 2):
        build.step(number, 5000 + 100 * number, 90)
        build.op("aten::mm", 5010 + 100 * number, 20)
        build.kernel(MM, 5030 + 100 * number, 10, launch=build.launch(5015 + 100 * number, 2))
    found = compare([build.trace(), build.trace()])
    assert found.sides[0].cold == "ProfilerStep#0"
    assert metric(found, "wall").values[0].median == 90


def test_of_two_steps_none_is_cold():
    build = TraceBuilder()
    for number, start, length in ((0, 0, 600), (1, 600, 200)):
        build.step(number, start, length)
        build.op("aten::mm", start + 10, length - 100)
        build.kernel(MM, start + 30, 10, launch=build.launch(start + 15, 2))
    assert compare([build.trace(), build.trace()]).sides[0].cold is None
    assert not [finding for finding in explain(build.trace()).findings if finding.rule == "cold_first_step"]


def test_cpu_time_leaves_out_what_the_thread_waited():
    build = TraceBuilder()
    for number in range(3):
        build.step(number, 100 * number, 90)
        build.op("aten::mm", 100 * number + 5, 20)
        build.kernel(MM, 100 * number + 30, 10, launch=build.launch(100 * number + 6, 2))
        build.call("cudaStreamSynchronize", 100 * number + 30, 40)
    found = compare([build.trace(), build.trace()])
    assert metric(found, "cpu_time").values[0].median == 50
    assert metric(found, "wall").values[0].median == 90


# What is refused


def unlike() -> TraceBuilder:
    calls = [Call(f"aten::conv{i}", f"cudnn_kernel_{i}", 30.0, within="aten::convolution") for i in range(6)]
    return program(calls)


def test_unrelated_traces_are_said_to_be_and_nothing_is_concluded():
    found = compare([program(EAGER).trace(), unlike().trace()])
    (pair,) = found.pairs
    assert not pair.related
    assert "unrelated" in pair.notes[0]
    assert {change.direction for m in found.metrics if (change := m.changes[1])} == {"unknown"}
    assert all(speedup.ratio is None for speedup in pair.speedups)
    assert "unrelated" in found.conclusion[0].changed[0]


def test_a_trace_that_compiled_while_recorded_gives_no_speed_up():
    build = program(slower(EAGER, 2))
    build.annotation("_compile.compile_inner", 12, 3)
    found = compare([build.trace(), program(EAGER).trace()])
    (pair,) = found.pairs
    assert "compiled while it was recorded" in pair.withheld
    assert "No speed-up is quoted" in pair.notes[0]
    assert metric(found, "gpu_time").changes[1].direction == "unknown"
    assert metric(found, "kernels").changes[1].direction == "same"
    assert all(speedup.ratio is None for speedup in pair.speedups)


def test_a_recording_that_cannot_be_trusted_gives_no_change_of_a_time():
    build = program(slower(EAGER, 2))
    for number in range(40):  # launches whose kernels were dropped
        build.launch(30 + number, 0.5)
    found = compare([build.trace(), program(EAGER).trace()])
    assert explain(build.trace()).verdict.bound == "unknown"
    assert "cannot be trusted" in found.pairs[0].notes[0]
    assert metric(found, "gpu_time").changes[1].direction == "unknown"
    assert found.sides[0].warnings


def test_other_shapes_are_other_work():
    twice = [replace(call, shapes=((128, 32), (32, 16))) if call.op == "aten::mm" else call for call in EAGER]
    pair = pair_of(program(EAGER), program(twice))
    assert pair.related
    assert pair.same_work is False
    assert "64·32·16 → 128·32·16 (3×)" in pair.notes[0]
    assert all(speedup.ratio is None for speedup in pair.speedups)


def test_added_products_are_other_work():
    pair = pair_of(program([mm(), mm()]), program([mm(), mm(), mm(), mm()]))
    assert pair.same_work is False
    assert "2 times the FLOPs" in pair.notes[0]


def test_other_gpus_are_named():
    pair = pair_of(program(EAGER), program(EAGER, build=TraceBuilder(gpu="NVIDIA H100 80GB HBM3")))
    assert pair.notes[0] == "Different GPUs: NVIDIA H200 against NVIDIA H100 80GB HBM3."


def test_two_spellings_of_one_gpu_are_one():
    assert not pair_of(program(EAGER), program(EAGER, build=TraceBuilder(gpu="NVIDIA H200 SXM 141GB"))).notes


def test_a_predicted_trace_is_called_so():
    report = explain(program(EAGER).trace())
    report.trace.predicted = True
    found = compare([report, program(EAGER).trace()])
    assert found.sides[0].predicted
    assert found.pairs[0].notes[0] == "The baseline is predicted, not measured."
    assert found.pairs[0].speedups[0].ratio is None
    assert "prediction's error" in found.pairs[0].speedups[0].reason
    # CPU time was predicted without the profiler, and recorded with it.
    for name in ("cpu_time", "wall", "period"):
        assert metric(found, name).changes[1].direction == "unknown"
        assert "without the profiler" in metric(found, name).changes[1].reason
    assert metric(found, "kernels").changes[1].direction == "same"


def predicted(calls: Sequence[Call], interval: tuple[float, float] | None = None, *, each: float = 0.0) -> Report:
    """A prediction of the calls, with an interval of the whole and of ``each`` row (as a share of its time)."""
    report = explain(program(calls, steps=1).trace())
    report.trace.predicted = True
    if interval is not None:
        words = dict.fromkeys(("version", "program", "gpu", "variant", "mode"), "")
        lists = dict.fromkeys(("peaks", "basis", "notes", "groups", "rows"), ())
        numbers = dict.fromkeys(("gpu_busy_us", "cpu_us", "kernels", "memsets", "memcpys"), 0)
        unknown = dict.fromkeys(("flops", "bytes", "compute_floor_us", "memory_floor_us"))
        low, high = interval
        said = {**words, **lists, **numbers, **unknown, "gpu_busy_low_us": low, "gpu_busy_high_us": high}
        report.prediction = msgspec.convert({**said, "predicted": True, "unknown": {}}, PredictionInfo)
        report.prediction.rows = [
            PredictedRow(
                event=kernel.event,
                row="kernel",
                name=kernel.name,
                kind=kernel.kind,
                op="",
                shape=None,
                us=kernel.duration_us,
                low_us=kernel.duration_us * (1 - each),
                high_us=kernel.duration_us * (1 + each),
                flops=None,
                bytes=None,
                floor_us=None,
                bound="unknown",
                basis=None,
            )
            for kernel in report.kernels
            if each
        ]
    return report


def test_a_predicted_kernel_is_the_measured_one_of_its_kind_size_and_place():
    gelu = spell("elementwise", dtype="bf16", ops=["gelu"])
    guess = predicted([EAGER[0].renamed(OTHER_MM), EAGER[1].renamed(gelu), *EAGER[2:]])
    found = compare([guess, program(EAGER).trace()])
    titles = {place.title: place.category for place in found.pairs[0].places if place.category != "identical"}
    assert titles == {
        "nvjet 256x128 64x4 TN, predicted as nvjet 192x128 64x5 TN": "predicted",
        "elementwise<8> gelu": "predicted",
    }
    (conclusion,) = found.conclusion
    assert not [text for text in conclusion.changed if "predicted as" in text]  # a guessed name is no change
    assert [text for text in conclusion.same if "1 gemm, 1 elementwise, of the predicted kind and size" in text]
    assert "every kernel" not in conclusion.same


def test_how_far_a_prediction_is_off_is_said():
    def off(factor: float, low: float, high: float) -> str:
        guess = predicted(slower(EAGER, factor), interval=(low, high))
        (pair,) = compare([guess, program(EAGER).trace()]).pairs
        (note,) = [note for note in pair.notes if "GPU time" in note]
        return note

    total = sum(call.us for call in EAGER)
    said = "The predicted GPU time is 10.0 % above the measured one, which is {} its interval ({} µs to {} µs)."
    assert off(1.1, total - 20, total + 20) == said.format("inside", 150, 190)
    assert off(1.1, total + 10, total + 20) == said.format("outside", 180, 190)


def test_a_measured_time_inside_the_predicted_interval_is_as_predicted():
    found = compare([predicted(slower(EAGER, 1.1), interval=(150, 190)), program(EAGER).trace()])
    change = metric(found, "gpu_time").changes[1]
    assert (change.direction, change.reason) == ("same", "inside the predicted interval")
    # Two predictions err to the same side, so that their difference may be told all the same.
    both = compare([predicted(EAGER, interval=(150, 190)), predicted(slower(EAGER, 0.9), interval=(140, 180))])
    assert metric(both, "gpu_time").changes[1].direction == "less"
    assert both.pairs[0].speedups[0].ratio == pytest.approx(1 / 0.9)


def test_a_row_outside_its_predicted_interval_did_not_stay_the_same():
    took = [EAGER[0], replace(EAGER[1], us=12.5), *EAGER[2:]]  # gelu: predicted 10 µs, 9 to 11
    guess, seen = predicted(EAGER, interval=(150, 190), each=0.1), program(took).trace()
    found = compare([guess, seen])
    (pair,), (conclusion,) = found.pairs, found.conclusion
    (off,) = [place for place in pair.places if place.off is not None]
    assert (off.title, off.off, off.predicted_low_us, off.predicted_high_us) == ("elementwise<8> gelu", "above", 9, 11)
    assert (off.change.direction, off.change.reason) == ("more", "outside the predicted interval")
    assert [text for text in conclusion.changed if text.startswith("above the predicted 9.00 µs to 11.0 µs: elem")]
    assert not [text for text in conclusion.same if text == "every kernel" or "2 elementwise" in text]
    assert [text for text in conclusion.same if "3 gemm, 1 elementwise, identical by name" in text]
    assert [note for note in pair.notes if note.startswith("1 of 5 GPU rows lies outside its predicted interval")]
    # The other way round the measured time is the baseline's.
    (back,) = [place for place in compare([seen, guess]).pairs[0].places if place.off is not None]
    assert (back.off, back.change.direction) == ("above", "less")


def test_no_row_of_a_recording_that_cannot_be_trusted_is_called_outside_its_interval():
    took = [EAGER[0], EAGER[1], replace(EAGER[2], us=80), *EAGER[3:]]  # the second of two like products
    guess, seen = predicted(EAGER, interval=(150, 190), each=0.1), explain(program(took).trace())
    seen.health[0].state = "bad"
    found = compare([guess, seen])
    (pair,), (conclusion,) = found.pairs, found.conclusion
    assert pair.withheld is not None
    assert not [note for note in pair.notes if "interval" in note]
    assert not [text for text in conclusion.changed if "predicted" in text]
    assert {place.off for place in pair.places} == {None}
    assert {place.change.direction for place in pair.places} == {"unknown"}
    assert [text for text in conclusion.same if "3 gemm, 2 elementwise, identical by name" in text]
    assert [place.count for place in pair.places if place.a[0].name == MM] == [2]


def test_rows_inside_their_predicted_intervals_are_as_predicted():
    found = compare([predicted(slower(EAGER, 1.05), interval=(150, 190), each=0.1), program(EAGER).trace()])
    changes = [place.change for place in found.pairs[0].places]
    assert {(change.direction, change.reason) for change in changes} == {("same", "inside the predicted interval")}
    assert "every kernel" in found.conclusion[0].same
    assert not [note for note in found.pairs[0].notes if "outside" in note]


def test_like_rows_inside_and_outside_their_intervals_are_told_apart():
    took = [EAGER[0], EAGER[1], replace(EAGER[2], us=80), *EAGER[3:]]  # the second of two like products
    (pair,) = compare([predicted(EAGER, interval=(150, 190), each=0.1), program(took).trace()]).pairs
    assert {(p.count, p.off) for p in pair.places if p.a[0].name == MM} == {(1, None), (1, "above")}


def test_what_is_not_predicted_is_not_put_down_to_a_missing_timing():
    found = compare([predicted(EAGER), program(EAGER).trace()])
    for name in ("end_to_end", "peak_memory"):
        told, seen = metric(found, name).values
        assert "not predicted" in told.reason
        assert "foretrace run" in seen.reason


def test_a_predicted_kernel_of_another_kind_is_replaced():
    guess = predicted([EAGER[0], EAGER[1].renamed(spell("reduction", dtype="bf16", ops=["sum"])), *EAGER[2:]])
    (pair,) = compare([guess, program(EAGER).trace()]).pairs
    assert {place.category for place in pair.places} == {"identical", "replaced"}


def test_two_predictions_are_compared_like_two_recordings():
    (pair,) = compare([predicted(EAGER), predicted([EAGER[0].renamed(OTHER_MM), *EAGER[1:]])]).pairs
    assert {place.category for place in pair.places} == {"identical", "replaced"}


# The two sides of the machine


def test_a_copy_that_appears_is_told_with_its_reason():
    addmm = Call("aten::addmm", MM, 40.0, ((16,), (64, 32), (32, 16)), within="aten::linear")
    seed = Call("aten::addmm", None, 3.0, copy_bytes=2048)
    (copy,) = pair_of(program([addmm, addmm]), program([seed, addmm, addmm])).copies
    assert (copy.name, copy.count, copy.bytes) == ("Memcpy DtoD (Device -> Device)", 1, 2048)
    assert "beta = 1" in copy.why


def test_views_that_are_gone_and_rows_of_the_compiler_that_appear_are_told_apart():
    views = [Call("aten::t", None), Call("aten::transpose", None)]
    compiled = program(EAGER, around=("TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/0"))
    found = compare([program([*views, *EAGER]).trace(), compiled.trace()])
    changes = {change.name: change for change in found.pairs[0].operators}
    assert {name: c.role for name, c in changes.items()} == {
        "aten::t": "view",
        "aten::transpose": "view",
        "TorchDynamo Cache Lookup": "compile",
        "Torch-Compiled Region": "compile",
    }
    changed = "\n".join(found.conclusion[0].changed)
    assert "2 fewer view operators (aten::t, aten::transpose)" in changed
    assert "rows of torch.compile appear: Torch-Compiled Region, TorchDynamo Cache Lookup" in changed
    assert "every kernel: there was nothing to fuse" in found.conclusion[0].same


def with_module(name: str, us: float) -> TraceBuilder:
    build = program([mm(us)])
    build.python(f"nn.Module: {name}", 2, 200)
    return build


def test_modules_are_compared_by_name():
    (module,) = pair_of(with_module("Linear_0", 10.0), with_module("Linear_0", 20.0)).modules
    assert module.name == "Linear_0"
    assert module.b_us == 2 * module.a_us


# Sources


def written(folder: Path, name: str, calls, median_us: float | None = None, method: str = "cuda_events") -> Path:
    path = program(calls).write(folder / f"{name}.json")
    if median_us is not None:
        timing = Unprofiled(median_us=median_us, iqr_us=2.0, runs=20, method=method)
        write_side(path, SideFile(unprofiled=timing, peak_memory_bytes=1000))
    return path


def test_end_to_end_comes_from_the_side_files(tmp_path):
    paths = [written(tmp_path, "a", EAGER, 300.0), written(tmp_path, "b", COMPILED, 200.0)]
    found = compare(paths)
    change = metric(found, "end_to_end").changes[1]
    assert (change.direction, change.absolute) == ("less", -100)
    assert found.pairs[0].speedups[1].ratio == 1.5
    assert metric(found, "peak_memory").values[0].median == 1000
    assert [side.label for side in found.sides] == ["a", "b"]


def test_without_side_files_it_is_unknown_and_says_how_to_get_it(tmp_path):
    found = compare([written(tmp_path, "a", EAGER, 300.0), written(tmp_path, "b", COMPILED)])
    assert metric(found, "end_to_end").values[1].median is None
    assert "foretrace run" in metric(found, "end_to_end").changes[1].reason


def test_timings_of_two_kinds_are_not_compared(tmp_path):
    paths = [written(tmp_path, "a", EAGER, 300.0), written(tmp_path, "b", EAGER, 200.0, "perf_counter")]
    assert "different ways" in metric(compare(paths), "end_to_end").changes[1].reason


def test_a_report_and_its_json_compare_like_the_trace(tmp_path):
    path = written(tmp_path, "a", EAGER)
    report = explain(path)
    (tmp_path / "r.json").write_bytes(msgspec.json.encode(report))
    for source in (report, tmp_path / "r.json"):
        (pair,) = compare([path, source]).pairs
        assert [place.category for place in pair.places] == ["identical"] * len(pair.places)
        assert pair.operators == []


def test_many_traces_keep_their_order():
    found = compare([program(EAGER).trace(), program(COMPILED).trace(), program(EAGER[:4]).trace()])
    assert [m.median for m in metric(found, "kernels").values] == [5, 4, 4]
    assert [(pair.a, pair.b) for pair in found.pairs] == [(0, 1), (0, 2)]
    assert len({side.label for side in found.sides}) == 3


def test_a_trace_without_steps_against_one_with_them_is_said():
    pair = pair_of(program(EAGER), program(EAGER, annotated=False))
    assert any("no profiler steps" in note for note in pair.notes)
    assert "3 times the FLOPs" in pair.notes[0]


def test_one_trace_is_no_comparison():
    with pytest.raises(InputError, match="at least two"):
        compare([program(EAGER).trace()])


@pytest.mark.parametrize("empty", [TraceBuilder(meta={"traceName": "x"}), TraceBuilder(gpu=None)])
def test_an_empty_or_cpu_trace_is_no_crash(empty):
    empty.op("aten::relu", 0, 10)
    (pair,) = compare([program(EAGER).trace(), empty.trace()]).pairs
    assert not pair.related


def test_two_cpu_traces_are_compared_by_their_operators():
    calls = [Call(f"aten::op{number}", None) for number in range(4)]
    pair = pair_of(program(calls), program([*calls, Call("aten::extra", None)]))
    assert pair.related
    assert [(c.name, c.a_calls, c.b_calls) for c in pair.operators] == [("aten::extra", 0, 1)]
