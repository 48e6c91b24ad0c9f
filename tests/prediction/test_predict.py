"""A prediction: rows and totals, the explained timeline, and what a recording should hold."""

import json
from pathlib import Path

import msgspec
import pytest

import foretrace
from foretrace.analysis import explain
from foretrace.errors import InputError
from foretrace.knowledge.gpus import all_gpus, find
from foretrace.knowledge.kernels.predicted import spell
from foretrace.model.prediction import METADATA_KEY
from foretrace.model.report import Report
from foretrace.prediction.expect import check, parse_toml, to_toml
from foretrace.prediction.plan import Planned
from foretrace.prediction.predict import find_gpu, predict_program
from foretrace.prediction.summary import expectation_of
from foretrace.prediction.work import Operator, Product, Program, Work
from foretrace.report import to_json
from foretrace.report.terminal import render
from foretrace.trace.load import parse
from foretrace.trace.writer import encode_trace
from prediction.programs import H200, Roofline, geglu, linear, pointwise, tensor
from schemas import validator

SAMPLE = Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"


class Clock(Roofline):
    """A clock whose rows a test gives."""

    def rows(self, work: Work) -> list[Planned]:
        raise NotImplementedError

    def schedule(self, program, _gpu):
        return [self.rows(work) for work in program.work()]


def alone(*roots: Operator) -> Program:
    return Program("p", list(roots), "eager", "forward", {})


@pytest.fixture(scope="module")
def mlp():
    return predict_program(geglu(), H200, clock=Roofline(memset=True))


def test_the_totals_are_those_of_the_rows(mlp):
    info = mlp.info
    assert (info.kernels, info.memsets, info.memcpys) == (5, 3, 0)
    assert info.gpu_busy_us == pytest.approx(sum(row.us for row in info.rows))
    assert info.gpu_busy_low_us < info.gpu_busy_us < info.gpu_busy_high_us
    assert info.flops == 3 * 2 * 8192 * 768 * 3072
    assert info.compute_floor_us == pytest.approx(info.flops / 989.4e6)
    assert info.peaks == [
        "bf16 tensor, dense, H200 datasheet",
        "memory bandwidth, NVIDIA H200 SXM 141GB datasheet",
    ]
    assert info.basis == ["datasheet roofline (98.6 % of the GPU time)", "measured (1.4 % of the GPU time)"]


def test_explaining_the_timeline_counts_what_was_planned(mlp):
    report = mlp.report()
    planned = [row for row in mlp.info.rows if row.row == "kernel"]
    assert [(k.event, k.kind, k.flops, k.bytes, k.bound) for k in report.kernels] == [
        (row.event, row.kind, row.flops, row.bytes, row.bound) for row in planned
    ]
    (step,) = report.steps
    assert (step.kernels, step.memsets, step.memcpys, step.launches) == (5, 3, 0, 8)
    assert step.gpu_busy_us == pytest.approx(mlp.info.gpu_busy_us, abs=0.01)
    assert step.wall_us == mlp.info.cpu_us
    assert {h.check: h.state for h in report.health if h.state != "ok"} == {}
    assert report.coverage.kernels_linked == report.coverage.kernels_with_op == 1.0


def test_the_report_says_that_it_is_predicted(mlp):
    report = mlp.report()
    assert report.trace.predicted
    assert report.prediction == mlp.info
    assert "PREDICTED, not measured" in render(report).splitlines()[1]
    validator(Report).validate(json.loads(to_json(report)))


def test_a_recording_does_not():
    report = explain(SAMPLE)
    assert not report.trace.predicted
    assert report.prediction is None


def test_the_written_timeline_is_the_same_prediction(mlp, tmp_path):
    path = mlp.write(tmp_path / "mlp.trace.json.gz")
    report = explain(path)
    assert report.prediction == mlp.info
    assert report.kernels == mlp.report().kernels
    with pytest.raises(InputError, match="exists"):
        mlp.write(path)


@pytest.mark.parametrize("said", [{"predicted": True}, {"predicted": True, "rows": "none"}])
def test_damaged_words_about_the_prediction_still_say_that_it_is_one(mlp, said):
    report = explain(parse(encode_trace(mlp.timeline.events, {**mlp.timeline.meta, METADATA_KEY: said})))
    assert report.trace.predicted
    assert report.prediction is None


def test_the_predicted_tree_is_that_of_a_real_recording(mlp):
    """Same operators, same order of kernels by kind, same owners, as the H200 ran them."""
    real = explain(SAMPLE, steps=[1])
    predicted = mlp.report()

    def operators(report):
        return {operator.name: operator.calls for operator in report.operators}

    def rows(report):
        return [(kernel.kind, kernel.op, kernel.op_path, kernel.flops, kernel.bytes) for kernel in report.kernels]

    assert operators(predicted) == operators(real)
    assert rows(predicted) == rows(real)


# ---- the verdict ----


def verdict(**clock):
    return predict_program(geglu(), H200, clock=Roofline(**clock)).report().verdict


def test_a_step_whose_gpu_work_outlasts_its_dispatch_is_bound_by_its_kernels():
    said = verdict(host_us=1.0)
    assert said.bound == "compute"
    assert said.because[0].startswith("predicted, not measured: 170 µs of GPU work a step, 39.0 µs")


def test_a_step_that_takes_longer_to_dispatch_is_overhead_bound_without_talk_of_profiling():
    said = verdict(host_us=50.0)
    assert said.bound == "overhead"
    assert "launch-bound at this size" in said.because[1]
    assert not any("profil" in reason for reason in said.because)


def test_in_between_neither_sets_the_pace():
    assert verdict(host_us=7.5).bound == "mixed"


def test_where_a_slower_host_would_decide_the_verdict_says_what_it_speaks_of():
    open_question = "this speaks of the GPU's work alone: host time is not calibrated"
    assert verdict(host_us=1.0).because[-1].startswith(open_question)  # 39 µs of dispatch beside 170 µs of GPU work
    assert not any("not calibrated" in said for said in verdict(host_us=0.1).because)
    for host_us in (7.5, 50.0):  # where the CPU counts already, only its time is open
        assert verdict(host_us=host_us).because[-1].startswith("host time is not calibrated: recorded steps took up to")


def test_findings_claim_nothing_about_a_profiler():
    report = predict_program(geglu(), H200, clock=Roofline(host_us=50.0)).report()
    rules = {finding.rule: finding for finding in report.findings}
    assert "Predicted: dispatching the step takes the CPU" in rules["cpu_starved"].explanation
    assert not {"missing_records", "profile_overhead"} & rules.keys()
    assert not any("as profiled" in finding.title for finding in report.findings)


# ---- the expectation ----


def test_the_expectation_holds_for_its_own_timeline(mlp):
    result = check(mlp.trace(), mlp.expectation())
    assert [outcome.state for outcome in result.outcomes] == ["held"] * len(result.outcomes)


def test_the_expectation_is_a_file_that_reads_back(mlp):
    text = to_toml(mlp.expectation())
    assert parse_toml(text) == mlp.expectation()
    assert {"kernels = 5", "gemm = 3", "elementwise = 2", 'launches = "5..11"'} <= set(text.splitlines())
    assert "memsets" not in text  # whether a library clears memory is its own choice


def test_a_bound_is_expected_only_where_it_is_clear(mlp):
    def bounds(**changed):
        info = msgspec.structs.replace(mlp.info, **changed)
        return [clause.words for clause in expectation_of(info, "compute").clauses if clause.quantity == "bound"]

    alike = [msgspec.structs.replace(row, bound="compute") for row in mlp.info.rows]
    assert bounds(rows=alike, cpu_us=10.0) == [("compute",)]
    # A host may take five times as long as is predicted of it, and then sets the pace.
    assert bounds(rows=alike, cpu_us=mlp.info.gpu_busy_low_us / 4) == []
    memory = [msgspec.structs.replace(row, bound="memory") for row in mlp.info.rows]
    assert bounds(rows=memory, cpu_us=10.0) == []


def test_a_time_below_a_microsecond_leaves_room_for_what_durations_scatter():
    class Quick(Clock):
        def rows(self, _work):
            return [Planned("kernel", "k", "elementwise", 0.8, 0.75, 0.85, None, 64)]

    two = alone(*(pointwise("aten::gelu", (tensor(8, storage=1),), 2) for _ in range(2)))
    lines = to_toml(predict_program(two, H200, clock=Quick()).expectation()).splitlines()
    assert 'elementwise_us = "1..2.2"' in lines  # 2 kernels of 0.8 µs, each 0.3 µs sooner or later


def test_a_pointwise_kernel_of_inductor_may_run_by_its_other_launch_configuration():
    class Known(Clock):
        def rows(self, work):
            return [Planned("kernel", work.op, "fused", 40.0, 36.0, 44.0, None, 64)]

    def upper(name):
        work = Work("fused", name, "bf16", (), (), 8, generated=True)
        expected = predict_program(alone(Operator(name, work=[work])), H200, clock=Known()).expectation()
        return next(clause.range.high for clause in expected.clauses if clause.quantity == "fused_us")

    assert upper("triton_poi_fused_gelu_mul_0") - upper("foretrace::gated_act") == pytest.approx(18, abs=0.01)


# ---- what cannot be predicted ----


def test_an_unknown_gpu_is_one_sentence_with_close_names():
    with pytest.raises(InputError, match=r"no datasheet of a GPU called 'H20O' is known; did you mean .*H200"):
        find_gpu("H20O")
    with pytest.raises(InputError, match="known are"):
        find_gpu("abacus")


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_is_found_by_its_own_name(gpu):
    assert find_gpu(gpu.name) is gpu


def test_a_rate_the_datasheet_lacks_is_said():
    volta = find("V100")
    with pytest.raises(InputError, match=r"the datasheet of V100.* states no bf16 rate, which aten::mm needs"):
        predict_program(geglu(), volta, clock=Roofline())


def test_a_step_without_gpu_work_has_no_times():
    view = Operator("aten::view", (tensor(4, storage=1), None))
    prediction = predict_program(alone(view), H200, clock=Roofline())
    info = prediction.info
    assert (info.kernels, info.gpu_busy_us) == (0, 0)
    assert (info.flops, info.bytes, info.compute_floor_us, info.memory_floor_us) == (None, None, None, None)
    assert prediction.report().verdict.bound == "unknown"
    assert "kernels = 0" in to_toml(prediction.expectation())


@pytest.mark.parametrize(("written", "rate"), [("tf32", 494.7e6), ("fp32", 66.9e6), (None, None)])
def test_an_fp32_product_is_held_against_the_units_its_name_says(written, rate):
    class Named(Clock):
        def rows(self, work):
            name = spell("gemm", dtype=written)
            return [Planned("kernel", name, "gemm", 9.0, 8.0, 10.0, work.flops, None)]

    work = Work("gemm", "aten::mm", "fp32", (), (), 4, flops=2**24, product=Product(2, 2, 2, 1, "NN"))
    (row,) = predict_program(alone(Operator("aten::mm", work=[work])), H200, clock=Named()).info.rows
    assert row.floor_us == (None if rate is None else pytest.approx(2**24 / rate))


def test_equal_rows_are_told_together_most_time_first(mlp):
    told = [(group.op, group.kind, group.shape, group.calls) for group in mlp.info.groups]
    assert told == [
        ("aten::mm", "gemm", "8192×3072×768 TN", 2),
        ("aten::mm", "gemm", "8192×768×3072 TN", 1),
        ("aten::mul", "elementwise", "25165824", 1),
        ("aten::gelu", "elementwise", "25165824", 1),
        ("aten::mm", "memset", None, 3),
    ]
    assert sum(group.share for group in mlp.info.groups) == pytest.approx(1.0)


def test_calls_are_operator_calls_and_helper_kernels_are_told_apart():
    class Helped(Clock):
        def rows(self, work):
            kernels = [("a", 1.0, None), (spell("gemm", dtype="bf16"), 9.0, work.flops), ("b", 1.0, None)]
            return [Planned("kernel", name, "gemm", us, us / 2, 2 * us, flops, None) for name, us, flops in kernels]

    work = [Work("gemm", "aten::mm", "bf16", (), (), 4, flops=2**32, product=Product(2, 2, 2, 1, "NN")) for _ in "12"]
    program = alone(*(Operator("aten::mm", work=[item]) for item in work))
    (group,) = predict_program(program, H200, clock=Helped()).info.groups
    assert (group.calls, group.kernels, group.flops, group.bound) == (2, 6, 2**33, "compute")


def test_an_fp16_product_is_held_against_the_fp16_rate_whatever_its_kernel_is_called():
    class Named(Clock):
        def rows(self, work):
            return [Planned("kernel", spell("gemm", dtype="bf16"), "gemm", 9.0, 8.0, 10.0, work.flops, None)]

    work = Work("gemm", "aten::mm", "fp16", (), (), 4, flops=2**24, product=Product(2, 2, 2, 1, "NN"))
    info = predict_program(alone(Operator("aten::mm", work=[work])), H200, clock=Named()).info
    assert info.peaks == ["fp16 tensor, dense, H200 datasheet"]


def test_what_no_rule_knows_is_handed_on():
    program = geglu(unknown={"aten::foo": "no rule"}, notes=["dropout is off"])
    info = predict_program(program, H200, clock=Roofline()).info
    assert (info.unknown, info.notes) == ({"aten::foo": "no rule"}, ["dropout is off"])


def test_a_kernel_far_above_its_floor_is_bound_by_latency():
    class Slow(Clock):
        def rows(self, _work):
            return [Planned("kernel", "k", "elementwise", 3.0, 2.0, 4.0, None, 64)]

    program = alone(pointwise("aten::gelu", (tensor(8, storage=1),), 2))
    assert predict_program(program, H200, clock=Slow()).info.rows[0].bound == "latency"


def test_no_interval_reaches_below_the_time_that_the_peak_rate_needs():
    class Eager(Clock):
        def rows(self, work):
            floor = (work.flops or 0) / 989.4e6
            return [
                Planned(
                    "kernel", spell("gemm", dtype="bf16"), "gemm", 1.1 * floor, 0.5 * floor, 2 * floor, work.flops, 64
                )
            ]

    info = predict_program(alone(linear(1, 2, 3, 768, 3072)), H200, clock=Eager()).info
    assert info.rows[0].floor_us is not None
    assert info.rows[0].low_us == pytest.approx(info.rows[0].floor_us)
    assert info.gpu_busy_low_us == pytest.approx(info.rows[0].floor_us)


def test_a_predicted_second_is_no_wrong_unit():
    class Slow(Clock):
        def rows(self, _work):
            return [Planned("kernel", "k", "elementwise", 3e6, 2e6, 4e6, None, 64)]

    report = predict_program(alone(pointwise("aten::gelu", (tensor(8, storage=1),), 2)), H200, clock=Slow()).report()
    assert {check.state for check in report.health} == {"ok"}
