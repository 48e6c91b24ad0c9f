"""Predicted fused products take the time of the kernel that dispatch chose, not of the one that the clock knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import foretrace
from foretrace.capture.paces import paces_of
from foretrace.fused.dispatch.choice import parse_choice
from foretrace.fused.dispatch.choose import plan_of
from foretrace.fused.dispatch.model import device_of, expense
from foretrace.fused.dispatch.tables import Row, Table
from foretrace.fused.plan import Plan, Problem
from foretrace.knowledge.gpus import peak_for
from foretrace.prediction.predict import Prediction, find_gpu

torch: Any = pytest.importorskip("torch", reason="tracing a program needs the torch extra")
fused: Any = pytest.importorskip("foretrace.fused")

M, N, K = 8192, 3072, 768
# µs between two kernels, which dispatch counts and a kernel's own time does not hold.
GAP = 1.5
PROBLEM = Problem("gated_mlp", M, N, K, K, "bfloat16", "gelu_tanh", "sm_90", False)


def beside_hopper(problem: Problem, plan: Plan, tables: tuple[Table, ...]) -> dict[str, float]:
    return paces_of(problem, plan, tables).beside_hopper


def plan(label: str, source: Any = "model", us: float | None = None) -> Plan:
    return plan_of(parse_choice(label), source, "the test says so", ((label, us),))


def table(costs: dict[str, float], problem: Problem = PROBLEM) -> Table:
    return Table("sm_90_test", "sm_90", "a test", (Row.of(problem, costs),))


def modelled(name: str) -> float:
    """µs of the kernel from input to hidden, by dispatch's model."""
    device = device_of("sm_90")
    assert device is not None
    cost = expense("expand", name, PROBLEM, device)
    assert cost is not None
    return cost.gpu


# ---- the ratio ----


def test_without_a_measurement_kernels_compare_as_the_model_costs_them() -> None:
    ratios = beside_hopper(PROBLEM, plan("expand=tma"), ())
    assert ratios == {"expand": pytest.approx(modelled("tma") / modelled("hopper"))}
    assert ratios["expand"] > 1
    assert beside_hopper(PROBLEM, plan("expand=portable"), ())["expand"] > 1.2


@pytest.mark.parametrize("label", ["expand=hopper", "expand=small project=small", "expand=plain", "expand=elementwise"])
def test_what_the_clock_knows_itself_is_compared_with_nothing(label: str) -> None:
    assert beside_hopper(PROBLEM, plan(label), ()) == {}


def test_on_a_gpu_that_the_model_does_not_know_nothing_is_compared() -> None:
    assert beside_hopper(replace(PROBLEM, architecture="gfx942"), plan("expand=portable"), ()) == {}


def test_measured_calls_say_how_much_longer_a_kernel_takes() -> None:
    """Both calls differ by the one kernel, so their difference is its."""
    costs = {"expand=hopper[group=16] project=plain": 160.0, "expand=tma project=plain": 190.0}
    found = beside_hopper(PROBLEM, plan("expand=tma project=plain", "table", 190.0), (table(costs),))
    assert found["expand"] == pytest.approx(1 + 30.0 / modelled("hopper"))


def test_a_row_without_the_hopper_kernel_leaves_the_model_s_ratio() -> None:
    costs = {"expand=tma project=plain": 190.0, "expand=plain project=plain": 250.0}
    found = beside_hopper(PROBLEM, plan("expand=tma project=plain", "table", 190.0), (table(costs),))
    assert found == beside_hopper(PROBLEM, plan("expand=tma"), ())


def test_of_a_training_step_both_kernels_share_the_measured_difference() -> None:
    training = replace(PROBLEM, training=True)
    ours, hopper = (f"expand={name} project=plain backward={name} save=preact" for name in ("tma", "hopper"))
    measured = beside_hopper(training, plan(ours, "table", 640.0), (table({hopper: 540.0, ours: 640.0}, training),))
    guessed = beside_hopper(training, plan(ours), ())
    assert set(measured) == {"expand", "backward"}
    more = {role: measured[role] / guessed[role] for role in guessed}
    assert more["expand"] == pytest.approx(more["backward"])
    assert more["expand"] > 1.05


@pytest.mark.parametrize(("m", "architecture"), [(17, "sm_90"), (128, "sm_90"), (128, "sm_80"), (8192, "sm_89")])
def test_where_kernels_were_not_compared_a_time_is_expected_instead(m: int, architecture: str) -> None:
    few = replace(PROBLEM, m=m, architecture=architecture)
    device = device_of(architecture)
    assert device is not None
    cost = expense("expand", "portable", few, device)
    assert cost is not None
    found = paces_of(few, plan("expand=portable"), ())
    assert found.beside_hopper == {}
    assert found.expected_us == {"expand": pytest.approx(cost.gpu - GAP)}
    assert paces_of(PROBLEM, plan("expand=portable"), ()).expected_us == {}


def test_no_ratio_makes_a_kernel_faster_than_the_hopper_kernel() -> None:
    """Few tiles of 128 × 256 leave multiprocessors idle, which the clock's time does not hold."""
    backward = replace(PROBLEM, m=320, n=5632, k=2048, out=2048, training=True)
    found = paces_of(backward, plan("expand=tma project=plain backward=portable save=preact"), ())
    assert set(found.beside_hopper) == {"expand"}
    assert set(found.expected_us) == {"backward"}


def test_no_gpu_is_taken_for_faster_than_its_datasheet() -> None:
    ada = replace(PROBLEM, architecture="sm_89")
    slow, fast = (paces_of(ada, plan("expand=portable"), (), find_gpu(gpu)) for gpu in ("RTX 4090", "L40S"))
    assert slow.expected_us["expand"] > 1.5 * fast.expected_us["expand"]
    assert fast.expected_us["expand"] == pytest.approx(
        paces_of(ada, plan("expand=portable"), ()).expected_us["expand"], 0.01
    )


# ---- the prediction ----


def predict(
    gpu: str, release: tuple[int, int], *, train: bool = False, m: int = M, k: int = K, n: int = N
) -> Prediction:
    model = fused.GatedMLP(k, n, device="meta", dtype=torch.bfloat16)
    x = torch.empty(m, k, device="meta", dtype=torch.bfloat16, requires_grad=train)
    return foretrace.predict(model, (x,), gpu=gpu, mode="train" if train else "forward", release=release)


def gate_up(prediction: Prediction) -> Any:
    return next(row for row in prediction.info.rows if row.op == "foretrace::gate_up")


@pytest.mark.parametrize(("gpu", "release"), [("H200", "2.13"), ("H200", "2.11"), ("A100", "2.13")])
def test_the_prediction_agrees_with_explain(gpu: str, release: str) -> None:
    """Explain's figure is the model's, with the gap before a launch and 2 % of caution."""
    model = fused.GatedMLP(K, N, device="meta", dtype=torch.bfloat16)
    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16)
    explained = fused.explain(model, x, architecture=gpu, torch=release, training=False)
    expected = next(
        option.gpu_us for option in dict(explained.options)["expand"] if option.name == explained.plan.expand.name
    )
    major, minor = map(int, release.split("."))
    row = gate_up(predict(gpu, (major, minor)))
    assert row.us == pytest.approx(expected, rel=0.1)
    assert row.low_us < expected < row.high_us


@pytest.mark.parametrize(("train", "measured", "one"), [(False, 175.9, 117), (True, 616.9, 138)])
def test_the_tma_kernel_takes_what_it_was_measured_to(train: bool, measured: float, one: float) -> None:
    """The H200's tuned table, and the kernel by itself (`foretrace.fused.dispatch.model`)."""
    prediction = predict("H200", (2, 13), train=train)
    assert any("expand=tma" in note for note in prediction.info.notes)
    assert prediction.info.gpu_busy_low_us < measured < prediction.info.gpu_busy_high_us
    assert gate_up(prediction).us == pytest.approx(one, rel=0.05)
    assert "times what dispatch knows of this one beside it" in gate_up(prediction).basis


def test_the_hopper_kernel_takes_what_was_recorded() -> None:
    """Medians of the recordings that come with foretrace, torch 2.11."""
    assert gate_up(predict("H200", (2, 11))).us == pytest.approx(108, rel=0.03)
    rows = {row.op: row.us for row in predict("H200", (2, 11), train=True).info.rows}
    assert rows["foretrace::gate_up"] == pytest.approx(111, rel=0.04)
    assert rows["foretrace::gate_up_backward"] == pytest.approx(82.9, rel=0.03)


STEPS: dict[str, Any] = {"foretrace::gate_up": "expand", "foretrace::gate_up_backward": "backward"}


@pytest.mark.parametrize("gpu", ["H200", "A100", "RTX 4090", "L40S"])
@pytest.mark.parametrize(("k", "n"), [(768, 3072), (2048, 5632), (4096, 14336)])
@pytest.mark.parametrize("train", [False, True])
def test_predictions_and_explain_agree_for_any_number_of_rows(gpu: str, k: int, n: int, train: bool) -> None:
    """With dispatch's figure, which is that of one GPU of the architecture: the RTX 4090 is slower than the L40S."""
    device = device_of(fused.explain(*call(1, k, n), architecture=gpu).problem.architecture)
    peak = peak_for(find_gpu(gpu), "bf16", tensor_cores=True)
    assert device is not None
    assert peak is not None
    slower = max(1.0, device.half / (0.8 * peak[0]))
    seen = 0  # the other problems run on the library's products
    for m in (1, 17, 48, 128, 300, 2048, 8192):
        explained = fused.explain(*call(m, k, n), architecture=gpu, torch="2.13", training=train)
        options = dict(explained.options)
        for row in predict(gpu, (2, 13), train=train, m=m, k=k, n=n).info.rows:
            if row.op not in STEPS:
                continue
            step = STEPS[row.op]
            chosen = getattr(explained.plan, step).name
            expected = next(option.gpu_us for option in options[step] if option.name == chosen)
            low, high = expected - GAP, expected * slower
            close = 0.7 * low <= row.us <= 1.3 * high
            assert close or (row.low_us <= high and low <= row.high_us), (m, step, chosen, row, expected)
            assert row.floor_us is not None
            assert row.us >= row.floor_us
            assert row.high_us < 3 * row.low_us
            seen += 1
    assert seen


def call(m: int, k: int, n: int) -> tuple[Any, Any]:
    model = fused.GatedMLP(k, n, device="meta", dtype=torch.bfloat16)
    return model, torch.empty(m, k, device="meta", dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("gpu", "m", "k", "n", "modelled", "alone"),
    [("H200", 17, 2048, 5632, 6.4, 8.72), ("H200", 48, 2048, 5632, 6.7, 9.31), ("H200", 48, 768, 3072, 3.1, 4.21)],
)
def test_few_rows_of_a_backward_lie_between_both_estimates(
    gpu: str, m: int, k: int, n: int, modelled: float, alone: float
) -> None:
    rows = {row.op: row for row in predict(gpu, (2, 13), train=True, m=m, k=k, n=n).info.rows}
    row = rows["foretrace::gate_up_backward"]
    assert 0.98 * modelled < row.us < 1.02 * alone
    assert row.low_us < modelled < alone < row.high_us
    assert row.basis is not None
    assert "what dispatch expects of this kernel" in row.basis
