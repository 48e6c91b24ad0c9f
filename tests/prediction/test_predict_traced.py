"""From a module to the timeline, with torch: the predicted tree is the one a GPU's recording has."""

import threading
from pathlib import Path
from typing import Any

import pytest

import foretrace
from foretrace.analysis import explain
from foretrace.cli.subject import Subject
from foretrace.prediction.expect import to_toml
from foretrace.prediction.predict import Prediction, predict_program
from prediction.programs import H200, Roofline

torch: Any = pytest.importorskip("torch", reason="tracing a program needs the torch extra")

SAMPLE = Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"


def predicted(workload: str, *, variant: str = "eager", train: bool = False, dtype: str = "bf16") -> Prediction:
    from foretrace.prediction.program import meta_target, trace_program

    subject = Subject(workload, {}, dtype, train=train)
    subject.settle("meta")
    built = meta_target(subject.make)
    mode = "train" if train else "forward"
    program = trace_program(
        built.function, built.inputs, name=workload, variant=variant, mode=mode, gpu=H200, annotation=built.annotation
    )
    return predict_program(program, H200, clock=Roofline())


def test_the_eager_mlp_is_the_recorded_one_operator_for_operator():
    report, recorded = predicted("mlp").report(), explain(SAMPLE, steps=[1])

    def rows(of):
        return [(k.kind, k.op, k.op_path, k.flops, k.bytes) for k in of.kernels]

    assert {o.name: o.calls for o in report.operators} == {o.name: o.calls for o in recorded.operators}
    assert rows(report) == rows(recorded)
    assert {o.name for o in report.operators if o.metadata_only} == {
        o.name for o in recorded.operators if o.metadata_only
    }


@pytest.mark.parametrize("workload", ["matmul-add", "linear", "mlp"])
@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
def test_every_kernel_has_its_launch_its_operator_and_its_phase(workload, train):
    prediction = predicted(workload, train=train)
    report = prediction.report()
    assert (report.coverage.kernels_linked, report.coverage.kernels_with_op) == (1.0, 1.0)
    assert [check.detail for check in report.health if check.state != "ok"] == []
    assert len(report.kernels) == prediction.info.kernels
    assert prediction.info.unknown == {}
    phases = {kernel.phase for kernel in report.kernels}
    assert phases == ({"forward", "backward"} if train else {None})


@pytest.mark.parametrize("workload", ["matmul-add", "linear", "mlp"])
def test_flops_counted_from_the_timeline_are_the_planned_ones(workload):
    for variant in ("eager", "compile"):
        for train in (False, True):
            prediction = predicted(workload, variant=variant, train=train)
            counted = [kernel.flops for kernel in prediction.report().kernels]
            assert counted == [row.flops for row in prediction.info.rows if row.row == "kernel"]


def test_compiling_leaves_the_products_and_joins_the_rest():
    eager, compiled = predicted("mlp"), predicted("mlp", variant="compile")
    products = [[row.shape for row in one.info.rows if row.kind == "gemm"] for one in (eager, compiled)]
    assert products[0] == products[1]
    assert [row.kind for row in compiled.info.rows if row.kind != "gemm"] == ["fused"]
    assert any(operator.name.startswith("Torch-Compiled Region") for operator in compiled.report().operators)


def test_work_of_the_programs_own_threads_is_said_to_be_missing():
    linear = torch.nn.Linear(8, 8, device="meta")

    def in_a_thread(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(linear(x)))
        thread.start()
        thread.join()
        return found[0]

    prediction = foretrace.predict(in_a_thread, (torch.empty(4, 8, device="meta"),), gpu="H200")
    assert "threads of the program" in prediction.info.unknown
    assert 'kernels = ">= 0"' in to_toml(prediction.expectation())


def test_an_operator_without_a_rule_makes_every_count_a_lower_bound():
    prediction = foretrace.predict(torch.linalg.svdvals, (torch.empty(8, 8, device="meta"),), gpu="H200")
    assert prediction.info.unknown
    clauses = to_toml(prediction.expectation())
    assert f'kernels = ">= {prediction.info.kernels}"' in clauses
    assert "gpu_busy_us" not in clauses


def test_attention_over_an_empty_batch_needs_no_rate_of_its_bookkeeping():
    from foretrace.prediction.program import trace_program

    x = torch.empty(0, 4, 16, 64, dtype=torch.bfloat16, device="meta")
    attend = torch.nn.functional.scaled_dot_product_attention
    program = trace_program(attend, (x, x, x), name="attention", gpu=H200)
    assert predict_program(program, H200, clock=Roofline()).report().prediction is not None


def test_flops_are_expected_only_where_a_recording_can_tell_them():
    from foretrace.prediction.program import trace_program

    attend = torch.nn.functional.scaled_dot_product_attention
    x = torch.empty(2, 4, 128, 64, dtype=torch.bfloat16, device="meta", requires_grad=True)
    for mode, expected in (("forward", True), ("train", False)):  # backward is several kernels, of which one has them
        program = trace_program(attend, (x, x, x), name="attention", mode=mode, gpu=H200)
        prediction = predict_program(program, H200, clock=Roofline())
        assert prediction.info.flops
        assert ("flops" in to_toml(prediction.expectation())) is expected
