"""The analytical default ranks implementations as they were measured, and never fails."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.fused.dispatch import model
from foretrace.fused.dispatch.choice import ROLES, Choice, Role, choice_of
from foretrace.fused.dispatch.choose import modelled, options_of
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.model import device_of, expense
from foretrace.fused.dispatch.tables import shipped
from foretrace.fused.dispatch.training import step
from foretrace.fused.plan import Operation, Problem

H200 = Environment(torch=(2, 11), triton=(3, 6))
NEWER = Environment(torch=(2, 13), triton=(3, 9))


def gated(m: int, k: int, n: int, **changes: object) -> Problem:
    problem = Problem("gated_mlp", m, n, k, k, "bfloat16", "gelu_tanh", "sm_90", training=False)
    return replace(problem, **changes)


def cost(role: str, name: str, problem: Problem) -> float:
    device = device_of(problem.architecture)
    assert device is not None
    found = expense(role, name, problem, device)
    assert found is not None
    return found.us


SMALL, LARGE = gated(8192, 768, 3072), gated(8192, 4096, 14336)
LINEAR = replace(gated(8192, 1024, 4096, precision="fast", bias=True), operation="linear_act", out=0)


# µs measured on the H200: medians with the L2 flushed.
@pytest.mark.parametrize(
    ("role", "name", "problem", "measured"),
    [
        ("expand", "hopper", SMALL, 106.5),
        ("expand", "hopper", replace(SMALL, training=True), 111.0),
        ("expand", "tma", SMALL, 117.0),
        ("expand", "tma", replace(SMALL, training=True), 138.0),
        ("backward", "hopper", replace(SMALL, training=True), 89.0),
        ("backward", "tma", replace(SMALL, training=True), 125.0),
        ("backward", "elementwise", replace(SMALL, training=True), 122.0),
        ("expand", "hopper", LARGE, 2700.0),
        ("expand", "hopper", replace(LARGE, training=True), 2700.0),
        ("expand", "tma", LARGE, 2850.0),
        ("backward", "hopper", replace(LARGE, training=True), 1445.0),
        ("backward", "tma", replace(LARGE, training=True), 1650.0),
        ("backward", "elementwise", replace(LARGE, training=True), 1715.0),
        ("expand", "hopper", LINEAR, 100.0),
        ("expand", "library", LINEAR, 111.0),
        ("expand", "tma", gated(256, 4096, 14336), 100.4),
        ("expand", "small", gated(16, 4096, 14336), 59.1),
    ],
)
def test_a_step_is_expected_within_10_percent_of_what_was_measured(
    role: str, name: str, problem: Problem, measured: float
):
    assert cost(role, name, problem) == pytest.approx(measured, rel=0.1)


def test_the_order_of_what_was_measured_is_kept():
    training = replace(SMALL, training=True)
    assert cost("backward", "hopper", training) < 0.8 * cost("backward", "elementwise", training)
    assert cost("backward", "elementwise", training) < cost("backward", "tma", training)
    assert cost("expand", "hopper", LINEAR) < cost("expand", "library", LINEAR)
    # the products alone take cuBLAS 114
    assert cost("expand", "hopper", training) < 114


def unfused(name: str) -> bool:
    return all(step.partition("=")[2] in ("plain", "elementwise", "preact") for step in name.split())


@pytest.mark.parametrize("training", [False, True])
def test_left_alone_the_model_serves_the_measured_shapes_nearly_as_well_as_the_table(training: bool):
    found = []
    for row in (row for table in shipped("sm_90") for row in table.rows if row.training == training):
        problem = gated(row.m, row.k, row.n, training=training, activation=row.activation)
        label = replace(choice_of(modelled(problem, H200)), save="preact").label("gated_mlp", training)
        # Which implementations, not with which options: each at its best.
        times: dict[str, float] = {}
        for name, us in row.costs:
            times.setdefault(re.sub(r"\[.*?\]", "", name), us)
        chosen = times.get(re.sub(r"\[.*?\]", "", label))
        if chosen is not None:
            assert chosen <= 1.06 * row.costs[0][1], problem
            assert chosen <= 1.02 * min(us for name, us in times.items() if unfused(name)), problem
            found.append(chosen / row.costs[0][1])
    assert len(found) >= 40
    assert sum(found) / len(found) < 1.01


# What was taken for these, hopper and tma, was up to 9 % slower than eager and compile.
@pytest.mark.parametrize(("k", "n", "training"), [(3584, 18944, False), (5120, 13824, False), (5120, 13824, True)])
def test_tiles_that_are_mostly_empty_are_left_to_others(k: int, n: int, training: bool):
    plan = modelled(gated(48, k, n, training=training), H200)
    assert {plan.expand.name, plan.backward.name} <= {"plain", "elementwise", "portable"}


def test_idle_multiprocessors_slow_the_weights_down():
    full, beyond = gated(64, 4096, 128 * 132), gated(64, 4096, 128 * 140)
    assert cost("expand", "tma", beyond) > 1.4 * cost("expand", "tma", full)  # 8 tiles have a wave of their own
    assert cost("expand", "elementwise", beyond) < 1.1 * cost("expand", "elementwise", full)


@pytest.mark.parametrize("architecture", ["sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize("operation", ["gated_mlp", "linear_act", "mlp"])
@pytest.mark.parametrize(("k", "n"), [(4096, 1024), (768, 3072), (1024, 8192), (8192, 4096)])
def test_a_row_more_is_never_much_cheaper(operation: Operation, architecture: str, k: int, n: int):
    problem = replace(
        gated(1, k, n), operation=operation, architecture=architecture, out=0 if "act" in operation else k
    )
    for name in ("portable", "tma", "hopper", "elementwise", "plain"):
        costs = [cost("expand", name, replace(problem, m=m)) for m in (*range(1, 40), 64, 65, 128, 129, 256, 257, 4096)]
        assert all(after > 0.9 * before for before, after in pairwise(costs)), name


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize("operation", ["gated_mlp", "linear_act"])
@pytest.mark.parametrize("role", ["expand", "backward"])
@pytest.mark.parametrize("m", [1, 17, 48, 128, 300, 8192])
@pytest.mark.parametrize("n", [96, 1024, 14336])
def test_the_model_cuts_tiles_as_the_portable_kernel_does(
    m: int, n: int, role: Role, operation: Operation, architecture: str
):
    tiles = pytest.importorskip("foretrace.fused.kernels.tiles")
    backward, hopper = role == "backward", architecture == "sm_90"
    accumulators = 2 if operation == "gated_mlp" and not backward else 1
    shared = 227 * 1024 if hopper else 163 * 1024 if architecture == "sm_80" else 99 * 1024
    few = m * n <= 128 * 128 * 64
    rows = min(128, max(16, 1 << (m - 1).bit_length()))
    tile = tiles.default_tile(rows, few, accumulators, backward, 2, True, True, shared, hopper)
    problem = replace(gated(m, 768, n), operation=operation, architecture=architecture)
    kernel = model._FUSED["portable"]
    assert model._tile(role, kernel, kernel.forward, problem) == (tile.block_m, accumulators * tile.block_n)


def test_what_unaligned_operands_cost_is_not_known():
    problem = gated(4096, 1001, 3001, architecture="sm_89", aligned=False)
    portable = next(option for option in options_of("expand", problem, NEWER) if option.name == "portable")
    assert (portable.cost_us, portable.reason) == (None, None)
    assert modelled(problem, NEWER).expand.name == "elementwise"


def test_float32_of_one_row_takes_the_time_of_its_bytes():
    problem = replace(LINEAR, m=1, k=4096, n=11008, dtype="float32", precision="exact")
    assert cost("expand", "plain", problem) < 1.3 * 4096 * 11008 * 4 / 4.3e6


def test_nobody_is_chosen_for_starting_sooner_who_is_much_slower_on_the_gpu():
    problem = replace(LINEAR, m=75, k=4096, n=768, bias=False)
    device = device_of("sm_90")
    assert device is not None
    chosen, plain = (
        expense("expand", name, problem, device) for name in (modelled(problem, H200).expand.name, "plain")
    )
    assert chosen is not None
    assert plain is not None
    assert chosen.gpu <= 1.5 * plain.gpu


def test_deep_pipelines_where_the_products_decide():
    small, large = (modelled(replace(one, training=True), H200).backward for one in (SMALL, LARGE))
    assert (small.name, small.options) == ("hopper", ())
    assert (large.name, large.options) == ("hopper", (("slots", 1), ("stages", 4)))


def test_the_sum_of_the_bias_gradient_costs_whoever_does_not_have_it_in_the_epilogue():
    without, having = (replace(SMALL, training=True, bias=bias) for bias in (False, True))
    for name in ("hopper", "elementwise", "plain"):
        assert cost("backward", name, having) > cost("backward", name, without) + 20
    assert cost("backward", "tma", having) == cost("backward", "tma", without)


def test_without_a_gate_the_elementwise_kernel_adds_up_the_bias_gradient_in_passing():
    linear = replace(LINEAR, training=True, precision="exact")
    without = replace(linear, bias=False)
    # One small reduction is left of what is a pass over the gradient for PyTorch.
    assert cost("backward", "elementwise", linear) < cost("backward", "elementwise", without) + 5
    assert cost("backward", "plain", linear) > cost("backward", "plain", without) + 15
    assert modelled(linear, H200).backward.name == "elementwise"
    assert modelled(without, H200).backward.name == "plain"
    # Where the sums are small PyTorch's operators, which start sooner, stay ahead.
    assert modelled(replace(linear, m=64), H200).backward.name == "plain"


def test_choices_on_hopper():
    assert modelled(gated(8192, 768, 3072), H200).expand.name == "hopper"
    assert modelled(gated(8192, 768, 3072), NEWER).expand.name == "tma"
    assert modelled(gated(8192, 768, 3072, training=True), H200).backward.name == "hopper"
    decode = modelled(gated(1, 4096, 14336), H200)
    assert (decode.expand.name, decode.project.name) == ("small", "small")
    assert modelled(gated(8192, 768, 3072, dtype="float32"), H200).expand.name == "elementwise"
    assert modelled(gated(8192, 768, 3072, aligned=False), H200).expand.name in ("elementwise", "portable")


def test_the_pointer_kernel_wins_only_where_the_inner_size_is_small():
    assert cost("expand", "portable", gated(8192, 256, 3072)) < cost("expand", "elementwise", gated(8192, 256, 3072))
    assert cost("expand", "portable", gated(8192, 4096, 14336)) > cost(
        "expand", "elementwise", gated(8192, 4096, 14336)
    )


def test_an_untried_architecture_gets_elementwise_kernels_and_the_library():
    plan = modelled(gated(8192, 768, 3072, architecture="sm_100", training=True), NEWER)
    assert (plan.expand.name, plan.project.name, plan.backward.name) == ("elementwise", "plain", "elementwise")


def test_a_single_pass_is_left_to_pytorch_when_a_kernel_of_ours_wins_nothing():
    linear = replace(gated(64, 4096, 14336), operation="linear_act", out=0, architecture="sm_100")
    assert modelled(linear, NEWER).expand.name == "plain"


def test_constants_of_a_gpu_nobody_entered_are_those_of_the_nearest_older_one():
    assert device_of("sm_121") == device_of("sm_120")
    assert device_of("sm_87") == device_of("sm_86")
    assert device_of("sm_70") is None
    assert device_of("cpu") is None


def test_where_nothing_else_can_run_the_plan_says_why():
    plan = modelled(gated(64, 64, 64, architecture="cpu"), H200)
    assert plan.source == "only choice"
    assert "this is cpu" in plan.reason
    assert plan.expand.name == plan.project.name == plan.backward.name == "plain"


@given(
    st.sampled_from(["gated_mlp", "mlp", "linear_act", "gated_act"]),
    st.integers(0, 1 << 20),
    st.integers(0, 40_000),
    st.integers(0, 20_000),
    st.sampled_from(["bfloat16", "float16", "float32", "float64"]),
    st.sampled_from(["sm_70", "sm_80", "sm_86", "sm_90", "sm_100", "sm_121", "cpu", "gfx90a"]),
    st.booleans(),
    st.sampled_from(["separate", "gate_up", "interleaved"]),
    st.sampled_from([H200, NEWER, Environment((2, 4), (3, 0)), Environment((2, 11), None)]),
)
def test_every_problem_has_a_plan_of_possible_implementations(
    operation, m, n, k, dtype, architecture, training, packing, environment
):
    out = k if operation in ("gated_mlp", "mlp") else 0
    problem = Problem(operation, m, n, k, out, dtype, "silu", architecture, training, packing=packing)
    plan = modelled(problem, environment)
    assert plan == modelled(problem, environment)
    for role in ROLES:
        options = {option.name: option for option in options_of(role, problem, environment)}
        chosen = getattr(plan, role)
        assert chosen.name == "plain" or options[chosen.name].reason is None
        assert all(option.reason or option.cost_us is not None for option in options.values() if plan.costs)
    assert all(value is None or value >= 0 for _, value in plan.costs)


def linear(m: int, k: int, n: int, **changes: object) -> Problem:
    return replace(gated(m, k, n, **changes), operation="linear_act", out=0)


def test_where_the_host_decides_a_training_step_is_left_to_pytorch_unless_kernels_save_it_more_than_python_costs():
    # Measured: 417 µs of host time by kernels and 303 by eager, for one layer; 529 and 651 for a gated MLP.
    one_layer, gated_mlp = linear(16, 256, 512, training=True, bias=True), gated(16, 256, 512, training=True)
    plan = modelled(one_layer, H200)
    assert (plan.expand.name, plan.backward.name) == ("plain", "plain")
    assert "the host to decide" in plan.reason
    assert modelled(gated_mlp, H200).expand.name == "small"


def test_where_the_gpu_decides_a_training_step_is_fused_however_little_the_host_saves():
    plan = modelled(linear(8192, 1024, 4096, training=True, bias=True), H200)
    assert (plan.expand.name, plan.backward.name) == ("hopper", "elementwise")


def test_without_a_backward_small_layers_are_fused():
    assert modelled(linear(16, 256, 512, bias=True), H200).expand.name == "small"


@pytest.mark.parametrize("operation", ["gated_mlp", "mlp", "linear_act", "gated_act"])
def test_a_training_step_has_products_for_every_gradient(operation: str):
    """In the limit of large layers a step is its products: three times forward's, two where there is no product."""
    problem = replace(LARGE, operation=operation, training=True, out=4096 if operation.endswith("mlp") else 0)
    device = device_of("sm_90")
    assert device is not None
    found = step(Choice(), problem, device)
    assert found is not None
    products = {"gated_mlp": 9, "mlp": 6, "linear_act": 3, "gated_act": 0}[operation]
    flops = products * 2 * 8192 * 4096 * 14336
    ideal = flops / (device.half * 1e6)
    # Passes over the hidden units besides: up to 16, of 61 µs each, and the gaps between kernels.
    assert ideal <= found.gpu <= 1.05 * ideal + 16 * 61 + 20


def test_pytorch_pays_for_halves_of_a_weight_and_for_one_row():
    """Two products where gate does not come first, zeros around each half's gradient; cuBLAS is slow with one row."""
    device = device_of("sm_90")
    assert device is not None

    def plain(problem: Problem) -> float:
        found = step(Choice(), problem, device)
        assert found is not None
        return found.gpu

    one, two, halves = (
        plain(gated(40, 2048, 8192, training=True, packing=packing)) for packing in ("gate_up", "separate", "up_gate")
    )
    assert one < two < halves
    assert modelled(gated(40, 2048, 8192, training=True, packing="interleaved"), H200).expand.name != "plain"
    layer = replace(gated(1, 4096, 14336, training=True), operation="mlp")
    # A product of one row and the gradient of its weight: measured 186 µs for 28672 × 4096, of 16 rows 76.
    assert plain(layer) > 1.4 * plain(replace(layer, m=16))
    assert modelled(layer, H200).expand.name == "small"
