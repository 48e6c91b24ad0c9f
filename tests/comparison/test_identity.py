"""Which program two traces ran, and what follows: related or not, the same work or not, a result or drift."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, MUL, OTHER_MM, Call, mm, program
from foretrace import compare, explain
from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.comparison.products import Products, products_of, same_share
from foretrace.model.comparison import Comparison
from foretrace.model.prediction import PredictionInfo
from foretrace.model.report import Report
from foretrace.model.sidefile import Machine, SideFile, Software, Unprofiled, write_side

BATCH_4 = {"batch": 4, "dim": 32}


def product(rows: int, op: str = "aten::mm") -> Call:
    return Call(op, None, shapes=((rows, 32), (32, 16)))


EAGER_ROWS = [Call(f"aten::op{number}", None) for number in range(9)]
GENERATED = [Call("TorchDynamo Cache Lookup", None), Call("Torch-Compiled Region: 0/0", None)]


def saved(folder: Path, name: str, build: TraceBuilder, *, median_us: float = 300.0, **side) -> Path:
    """A recording with a side file: an mlp of batch 4, timed in one process."""
    path = build.write(folder / f"{name}.json")
    timing = Unprofiled(median_us=median_us, iqr_us=2.0, runs=20, method="perf_counter")
    said = {"workload": "mlp", "parameters": BATCH_4, "variant": "eager", "mode": "forward", **side}
    write_side(path, SideFile(unprofiled=timing, **said))
    return path


def change(found: Comparison, name: str):
    return next(metric for metric in found.metrics if metric.name == name).changes[1]


def speedup(found: Comparison, of: str = "end_to_end"):
    return next(speedup for speedup in found.pairs[0].speedups if speedup.of == of)


# Without GPU rows


def cpu(calls) -> TraceBuilder:
    return program(calls, build=TraceBuilder(gpu=None))


def test_one_workload_is_related_however_little_of_it_aligns(tmp_path):
    eager = saved(tmp_path, "a", cpu([*EAGER_ROWS, product(64)]))
    compiled = saved(tmp_path, "b", cpu([*GENERATED, Call("aten::other", None)]), variant="compile", median_us=200.0)
    found = compare([eager, compiled], fail_on=["end_to_end > +3%"])
    assert found.pairs[0].related
    assert found.pairs[0].same_work is None  # generated code may hold the product
    assert speedup(found).ratio == 1.5
    assert found.gates[0].state == "held"


@pytest.mark.parametrize(("rows", "related"), [(64, True), (128, False)])
def test_without_side_files_products_of_equal_size_relate_two_traces(rows, related):
    (pair,) = compare([cpu([*EAGER_ROWS, product(64)]).trace(), cpu([*GENERATED, product(rows)]).trace()]).pairs
    assert pair.related is related
    assert pair.same_work is (True if related else None)


def test_other_parameters_and_other_flops_are_other_work(tmp_path):
    four = saved(tmp_path, "a", cpu([*EAGER_ROWS, product(64)]))
    one = saved(tmp_path, "b", cpu([*EAGER_ROWS, product(16)]), parameters={**BATCH_4, "batch": 1}, median_us=100.0)
    found = compare([four, one])
    assert found.pairs[0].same_work is False
    assert found.pairs[0].notes[0].startswith("Not the same work: batch 4 → 1; 0.250 times the FLOPs.")
    assert speedup(found).ratio is None
    (bare,) = compare([cpu([*EAGER_ROWS, product(n)]).trace() for n in (64, 16)]).pairs
    assert bare.notes[0].startswith("Not the same work: 0.250 times the FLOPs.")


def test_another_mode_is_other_work(tmp_path):
    paths = [saved(tmp_path, mode, cpu(EAGER_ROWS), mode=mode) for mode in ("forward", "train")]
    assert "mode forward → train" in compare(paths).pairs[0].notes[0]


def test_the_innermost_rows_are_the_products_and_a_transposed_one_is_the_same():
    def products(*calls: Call) -> Products | None:
        trace = cpu(calls).trace()
        return products_of(KernelCosts(Context(trace)), trace.steps[0].index)

    once = products(Call("aten::mm", None, shapes=((64, 32), (32, 16)), within="aten::matmul"))
    assert once is not None
    assert (once.sizes, once.flops) == ({(16, 64, 32, 1): 1}, 2 * 64 * 32 * 16)
    turned = products(Call("aten::mm", None, shapes=((16, 32), (32, 64))))
    assert same_share(once, turned) == 1
    assert products(*EAGER_ROWS) is None
    assert same_share(once, None) is None


def test_gpu_rows_on_one_side_alone_are_neither_removed_nor_other_work():
    found = compare([program(EAGER).trace(), cpu([Call(c.op, None, shapes=c.shapes) for c in EAGER]).trace()])
    (pair,) = found.pairs
    assert pair.related
    assert pair.same_work is None
    assert (pair.places, pair.categories) == ([], [])
    assert pair.notes == ["Only one of the traces holds GPU work: GPU numbers cannot be compared."]
    for name in ("gpu_time", "cpu_time", "kernels", "flops"):
        assert change(found, name).direction == "unknown"
    assert not [text for text in found.conclusion[0].changed if "removed" in text]


# Two runs


def test_one_program_recorded_twice_differs_by_drift_and_a_gate_still_speaks(tmp_path):
    paths = [saved(tmp_path, name, program(EAGER), median_us=us) for name, us in (("a", 100.0), ("b", 200.0))]
    found = compare(paths, fail_on=["end_to_end > +3%"])
    assert speedup(found).ratio is None
    assert "drift between two runs of the same program" in speedup(found).reason
    (conclusion,) = found.conclusion
    assert not [text for text in conclusion.changed if "end to end" in text]
    assert [text for text in conclusion.same if "end to end 100 µs → 200 µs (" in text and "drift between" in text]
    assert found.gates[0].state == "failed"
    assert "foretrace bench" in found.gates[0].detail


@pytest.mark.parametrize("other", [{"machine": Machine(threads=8)}, {"software": Software(torch="2.13.0")}])
def test_another_machine_or_version_is_more_than_drift(tmp_path, other):
    paths = [
        saved(tmp_path, "a", program(EAGER), median_us=100.0),
        saved(tmp_path, "b", program(EAGER), median_us=200.0, **other),
    ]
    assert speedup(compare(paths)).ratio == 0.5


def test_one_variant_with_other_kernels_is_quoted_with_a_caution(tmp_path):
    paths = [
        saved(tmp_path, "a", program(EAGER), median_us=100.0),
        saved(tmp_path, "b", program([EAGER[0].renamed(OTHER_MM), *EAGER[1:]]), median_us=200.0),
    ]
    found = compare(paths)
    assert speedup(found).ratio == 0.5
    assert "two runs" in speedup(found).reason
    assert [text for text in found.conclusion[0].changed if "clocks and neighbours differ" in text]


def test_another_variant_is_a_result(tmp_path):
    paths = [saved(tmp_path, v, c, variant=v) for v, c in (("eager", program(EAGER)), ("compile", program(COMPILED)))]
    assert "two runs" not in (change(compare(paths), "end_to_end").reason or "")


# Predictions


def predicted(calls, variant: str) -> Report:
    report = explain(program(calls, steps=1).trace())
    report.trace.predicted = True
    words = dict.fromkeys(("version", "program", "gpu", "mode"), "")
    lists = dict.fromkeys(("peaks", "basis", "notes", "groups", "rows"), ())
    numbers = dict.fromkeys(("gpu_busy_us", "cpu_us", "kernels", "memsets", "memcpys"), 0)
    unknown = dict.fromkeys(("flops", "bytes", "compute_floor_us", "memory_floor_us"))
    interval = {"gpu_busy_low_us": 150, "gpu_busy_high_us": 160}
    said = {**words, **lists, **numbers, **unknown, **interval, "variant": variant, "predicted": True, "unknown": {}}
    report.prediction = msgspec.convert(said, PredictionInfo)
    return report


def test_a_prediction_of_another_variant_is_an_expected_change():
    found = compare([program(EAGER).trace(), predicted(COMPILED, "compile")])
    said = "\n".join([*found.pairs[0].notes, *(s.reason or "" for s in found.pairs[0].speedups)])
    assert "Predicted for compile, recorded eager: the expected change of GPU time is 170 µs → 162 µs" in said
    assert "between 150 µs and 160 µs" in said
    assert "error" not in said
    # The other way round as well.
    turned = compare([predicted(EAGER, "eager"), program([*GENERATED, *COMPILED]).trace()])
    assert any("Predicted for eager, recorded compile" in note for note in turned.pairs[0].notes)


def test_fused_kernels_without_a_named_variant_are_another_variant_too():
    found = compare([predicted(EAGER, "eager"), program(COMPILED).trace()])
    assert any(
        note.startswith("Predicted for eager, recorded with other kernels fused") for note in found.pairs[0].notes
    )


def test_where_the_side_file_names_the_predicted_variant_the_difference_is_the_error(tmp_path):
    missed = [*EAGER[:4], Call("aten::mul", MUL, 40.0), mm(kernel=OTHER_MM)]
    found = compare([predicted(EAGER, "eager"), saved(tmp_path, "a", program(missed))])
    assert "prediction's error" in speedup(found, "gpu_time").reason
    assert any("below the measured one" in note for note in found.pairs[0].notes)


# Gates


def test_a_gate_on_a_change_between_unrelated_traces_fails():
    unlike = program([Call("aten::sort", "void other_kernel(int)", 90.0)])
    found = compare([program(EAGER).trace(), unlike.trace()], fail_on=["gpu_time > +3%", "memcpys > 0"])
    assert [gate.state for gate in found.gates] == ["failed", "held"]
    assert "unrelated" in found.gates[0].detail
