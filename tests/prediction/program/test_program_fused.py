"""What an MLP becomes with foretrace's fused modules or Liger's: kernels, their work, and gradients."""

from __future__ import annotations

from typing import Any

import pytest

import foretrace
from foretrace import fused
from foretrace.capture.predicting import fused_on
from foretrace.errors import InputError
from foretrace.fused.dispatch.explain import Explanation
from foretrace.fused.plan import Problem
from foretrace.knowledge.kernels import decode
from foretrace.prediction.dispatch import FusedModules, FusedPlan, FusedProblem
from foretrace.prediction.predict import find_gpu

torch: Any = pytest.importorskip("torch", reason="tracing a program needs the torch extra")
nn = torch.nn

M, K, N = 8192, 768, 3072


class GatedMLP(nn.Module):
    def __init__(self, act: Any, *, bias: bool = False, dtype: Any = torch.bfloat16) -> None:
        super().__init__()
        options = {"bias": bias, "device": "meta", "dtype": dtype}
        self.gate_proj, self.up_proj = nn.Linear(K, N, **options), nn.Linear(K, N, **options)
        self.down_proj = nn.Linear(N, K, **options)
        self.act_fn = act

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def predict(variant: str, *, act: Any = None, gpu: str = "H200", mode: str = "forward", bias: bool = False, dtype=None):
    model = GatedMLP(act or nn.GELU(approximate="tanh"), bias=bias, dtype=dtype or torch.bfloat16)
    x = torch.empty(2, M // 2, K, device="meta", dtype=dtype or torch.bfloat16, requires_grad=mode == "train")
    return foretrace.predict(model, (x,), gpu=gpu, variant=variant, mode=mode, release=(2, 11))  # type: ignore[arg-type]


def kinds(prediction: Any) -> list[tuple[str, str | None]]:
    return [(row.kind, row.op) for row in prediction.info.rows if row.row == "kernel"]


def test_gate_and_up_are_one_kernel_that_writes_the_hidden_alone() -> None:
    prediction = predict("foretrace")
    assert kinds(prediction) == [("gemm", "foretrace::gate_up"), ("gemm", "aten::mm")]
    first = prediction.info.rows[0]
    assert first.flops == 2 * M * 2 * N * K
    assert first.bytes == 2 * (M * K + 2 * N * K + M * N)
    assert first.name == "predicted::gemm<dtype=bf16, layout=TN, ops=mm+gelu_tanh+mul, epilogue=gelu_tanh+mul>"
    assert any("dispatch runs gated_mlp of 8192 rows as expand=" in note for note in prediction.info.notes)
    assert any(note.endswith("assumed: Triton 3.6, which torch 2.11 brings") for note in prediction.info.notes)


def test_training_keeps_the_preactivations_and_has_two_fused_products() -> None:
    prediction = predict("foretrace", mode="train")
    fused = [row for row in prediction.info.rows if (row.op or "").startswith("foretrace::")]
    assert [row.op for row in fused] == ["foretrace::gate_up", "foretrace::gate_up_backward"]
    assert fused[0].bytes == 2 * (M * K + 2 * N * K + M * N + 2 * M * N)
    assert fused[1].flops == 2 * M * N * K
    assert decode(fused[1].name).decoded["epilogue"] == ["gelu_tanh_backward", "mul"]
    products = [row for row in prediction.info.rows if row.kind == "gemm"]
    eager = predict("eager", mode="train")
    assert sum(row.flops or 0 for row in products) == sum(row.flops or 0 for row in eager.info.rows)


def test_the_backward_product_hides_its_epilogue_in_part() -> None:
    """On an H200 the kernel took 89 µs, forward with the pre-activations kept 112, and the whole step 548 to 556."""
    prediction = predict("foretrace", mode="train")
    rows = {row.op: row for row in prediction.info.rows if row.kind == "gemm"}
    assert rows["foretrace::gate_up"].us == pytest.approx(112, rel=0.05)
    assert rows["foretrace::gate_up_backward"].us == pytest.approx(89, rel=0.12)
    assert rows["foretrace::gate_up_backward"].low_us < 89 < rows["foretrace::gate_up_backward"].high_us
    low, high = prediction.info.gpu_busy_low_us, prediction.info.gpu_busy_high_us
    assert low < 548 < 556 < high


@pytest.mark.parametrize("bias", [False, True])
def test_every_parameter_gets_its_gradient(bias: bool) -> None:
    from foretrace.prediction.program.fused import with_fused, with_liger

    options = {"bias": bias, "device": "meta", "dtype": torch.bfloat16}
    gated = [fused.GatedMLP(K, N, packing=packing, **options) for packing in ("separate", "up_gate", "interleaved")]
    plain = [fused.MLP(K, N, **options), fused.LinearAct(K, N, **options)]
    for implementation, save in (("hopper", "preact"), ("elementwise", "recompute"), ("plain", "input")):
        for module in (*gated, *plain):
            chosen = FusedPlan(implementation, "small", implementation, save, "the test says so")
            asked = FusedModules(lambda _, chosen=chosen: chosen, lambda function: (function, None), "")
            check_gradients(module, with_fused(module, asked, []))
    model = GatedMLP(nn.SiLU(), bias=bias)
    check_gradients(model, with_liger(model))


def check_gradients(model: Any, replaced: Any) -> None:
    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    replaced(x).sum().backward()
    for tensor in (x, *model.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.shape == tensor.shape
        tensor.grad = None


@pytest.mark.parametrize(("gpu", "dtype"), [("H200", torch.float32), ("B200", torch.bfloat16)])
def test_elsewhere_one_elementwise_kernel_stands_between_three_products(gpu: str, dtype: Any) -> None:
    found = kinds(predict("foretrace", gpu=gpu, dtype=dtype))
    assert [op for kind, op in found if kind == "fused"] == ["foretrace::gated_act"]
    assert {op for kind, op in found if kind == "gemm"} == {"aten::mm"}


@pytest.mark.parametrize(("act", "kernel"), [(nn.SiLU(), "_swiglu"), (nn.GELU(approximate="tanh"), "_geglu_tanh")])
def test_liger_has_three_products_and_its_own_kernel(act: Any, kernel: str) -> None:
    prediction = predict("liger", act=act, mode="train")
    names = [row.name for row in prediction.info.rows if decode(row.name).family == "liger"]
    assert names == [f"{kernel}_forward_kernel", f"{kernel}_backward_kernel"]
    assert [kind for kind, _ in kinds(predict("liger", act=act))] == ["gemm", "gemm", "fused", "gemm"]


def test_fused_takes_less_time_than_liger_and_liger_less_than_eager() -> None:
    model = GatedMLP(nn.SiLU())
    x = torch.empty(8192, K, device="meta", dtype=torch.bfloat16)
    times = [
        foretrace.predict(model, (x,), gpu="H200", variant=variant).info.gpu_busy_us
        for variant in ("foretrace", "liger", "eager")
    ]
    assert times == sorted(times)
    assert times[0] < times[2]


def test_the_report_counts_what_was_planned() -> None:
    for mode in ("forward", "train"):
        prediction = predict("foretrace", mode=mode)
        planned = [row for row in prediction.info.rows if row.row == "kernel"]
        counted = prediction.report().kernels
        assert [kernel.flops for kernel in counted] == [row.flops for row in planned]
        forward = next(kernel for kernel in counted if kernel.op == "foretrace::gate_up")
        assert forward.bytes == next(row.bytes for row in planned if row.op == "foretrace::gate_up")


def test_a_comparison_says_what_went_into_the_fused_product() -> None:
    model = GatedMLP(nn.GELU(approximate="tanh"))
    x = torch.empty(8192, K, device="meta", dtype=torch.bfloat16)
    before, after = (
        foretrace.predict(model, (x,), gpu="H200", variant=name).trace() for name in ("eager", "foretrace")
    )
    comparison = foretrace.compare([before, after])
    titles = {place.category: place.title for pair in comparison.pairs for place in pair.places}
    assert titles["fused"].startswith("2 mm + ")
    assert "gelu + mul" in titles["fused"].partition(" → ")[0]
    assert "removed" not in titles


def test_a_program_without_a_gated_mlp_is_refused_with_the_reason() -> None:
    x = torch.empty(2, K, device="meta")
    with pytest.raises(InputError, match="found nothing to replace in Linear"):
        foretrace.predict(nn.Linear(K, K, device="meta"), (x,), gpu="H200", variant="foretrace")
    with pytest.raises(InputError, match=r"an activation that is not known \(Mish\)"):
        predict("foretrace", act=nn.Mish())
    with pytest.raises(InputError, match="Liger has no gated MLP with gelu"):
        predict("liger", act=nn.GELU())
    with pytest.raises(InputError, match="is a plain function"):
        foretrace.predict(torch.relu, (x,), gpu="H200", variant="foretrace")


# ---- what dispatch would run ----


@pytest.mark.parametrize(("gpu", "architecture"), [("A100", "sm_80"), ("B200", "sm_100"), ("H100", "sm_90")])
@pytest.mark.parametrize("m", [1, 8192])
def test_the_prediction_and_explain_agree(gpu: str, architecture: str, m: int) -> None:
    asked = ("gated_mlp", m, N, K, K, "bfloat16", "gelu_tanh")
    plan = fused_on(find_gpu(gpu), None).plan(FusedProblem(*asked, False, False, "separate", True, "exact"))
    explained = fused.explain(Problem(*asked, architecture, False))
    assert isinstance(explained, Explanation)
    ours = (plan.expand, plan.project)
    # Which kernel of ours serves Hopper depends on the Triton that is there.
    if architecture == "sm_90":
        assert [name == "plain" for name in ours] == [
            step.name == "plain" for step in (explained.plan.expand, explained.plan.project)
        ]
    else:
        assert ours == (explained.plan.expand.name, explained.plan.project.name)


def test_which_kernel_serves_hopper_depends_on_the_triton_of_the_release() -> None:
    asked = FusedProblem("gated_mlp", M, N, K, K, "bfloat16", "gelu_tanh", True, False, "separate", True, "exact")
    found = {release: fused_on(find_gpu("H200"), release) for release in ((2, 11), (2, 13), (2, 99), (2, 2))}
    assert [modules.plan(asked).expand for modules in found.values()] == ["hopper", "tma", "tma", "plain"]
    assert found[2, 13].assumed == "assumed: Triton 3.7, which torch 2.13 brings"
    assert "later than 3.7, as torch 2.99" in found[2, 99].assumed
    assert "older" in found[2, 2].assumed


def test_one_row_takes_the_decode_kernels() -> None:
    model = fused.GatedMLP(K, N, device="meta", dtype=torch.bfloat16)
    x = torch.empty(1, K, device="meta", dtype=torch.bfloat16)
    prediction = foretrace.predict(model, (x,), gpu="H200", release=(2, 11))
    assert kinds(prediction) == [("gemm", "foretrace::gate_up"), ("gemm", "foretrace::project")]
    assert sum(row.bytes or 0 for row in prediction.info.rows) == 2 * (2 * K + 3 * N * K + 2 * N)


def test_a_model_that_holds_fused_modules_is_predicted_as_dispatch_runs_it() -> None:
    options = {"device": "meta", "dtype": torch.bfloat16}
    x = torch.empty(M, K, **options)
    modules = {
        "foretrace::gate_up": fused.GatedMLP(K, N, packing="interleaved", **options),
        "foretrace::linear_act": fused.MLP(K, N, **options),
    }
    for name, module in modules.items():
        rows = kinds(foretrace.predict(nn.Sequential(module), (x,), gpu="H200", release=(2, 11)))
        assert rows[0] == ("gemm", name)
        assert len(rows) == 2
    single = foretrace.predict(fused.LinearAct(K, N, **options), (x,), gpu="H200", release=(2, 11))
    assert [op for _, op in kinds(single)] == ["foretrace::linear_act"]
    compiled = foretrace.predict(fused.LinearAct(K, N, **options), (x,), gpu="H200", variant="compile")
    assert any("holds modules of foretrace.fused" in note for note in compiled.info.notes)


@pytest.mark.parametrize("bias", [False, True])
def test_the_elementwise_kernel_of_a_layer_without_a_gate_adds_up_the_bias_gradient(bias: bool) -> None:
    rows = backward_of(fused.LinearAct(K, N, bias=bias, device="meta", dtype=torch.bfloat16), "elementwise")
    moved = 2 * 3 * M * N
    if not bias:
        assert [(row.kind, row.op, row.bytes) for row in rows] == [("elementwise", "foretrace::act_backward", moved)]
        return
    # 12 blocks of columns: 85 strips would be 1020 programs; of whole blocks of 8 rows there are 79.
    partial = 4 * 79 * N
    assert [(row.kind, row.op, row.bytes) for row in rows] == [
        ("fused", "foretrace::act_backward", moved + partial),
        ("reduction", "aten::sum", partial + 4 * N),
    ]


@pytest.mark.parametrize("implementation", ["plain", "hopper"])
def test_a_bias_gradient_of_a_layer_without_a_gate_is_one_reduction_that_casts(implementation: str) -> None:
    options = {"device": "meta", "dtype": torch.bfloat16}
    layer = fused.LinearAct(K, N, bias=True, **options) if implementation == "plain" else fused.MLP(K, N, **options)
    (reduction,) = [row for row in backward_of(layer, implementation) if row.kind == "reduction"]
    assert (reduction.op, reduction.bytes) == ("aten::sum", 2 * M * N + 2 * N)


def test_pytorch_s_operators_write_gradients_where_they_belong() -> None:
    single = fused.LinearAct(K, N, activation="gelu_tanh", bias=False, device="meta", dtype=torch.bfloat16)
    assert [(row.op, row.bytes) for row in backward_of(single, "plain")] == [("aten::gelu_backward", 2 * 3 * M * N)]
    gated = fused.GatedMLP(K, N, activation="silu", packing="gate_up", bias=False, device="meta", dtype=torch.bfloat16)
    found = [(row.op, row.bytes) for row in backward_of(gated, "plain")]
    assert found == [
        ("aten::silu", 2 * 2 * M * N),
        ("aten::mul", 2 * 3 * M * N),
        ("aten::silu_backward", 2 * 3 * M * N),
        ("aten::mul", 2 * 3 * M * N),
    ]


def backward_of(module: Any, implementation: str) -> list[Any]:
    """The kernels of backward, from the given gradient of the result to the first product for a weight's or x's."""
    from foretrace.prediction.predict import predict as predict_with

    chosen = FusedPlan("hopper", "plain", implementation, "preact", "the test says so")
    asked = FusedModules(lambda _: chosen, lambda function: (function, None), "")
    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    rows = predict_with(module, (x,), gpu="H200", mode="train", fused=asked).info.rows
    kernels = [row for row in rows if row.row == "kernel"]
    first = next(at for at, row in enumerate(kernels) if row.op.endswith(("act_backward", "::silu", "::gelu_backward")))
    last = next(at for at, row in enumerate(kernels) if at > first and row.kind == "gemm")
    return kernels[first:last]


def products_of_backward(
    module: Any, rows: int, plan: tuple[str, str, str, str], dtype: Any = None, width: int = K
) -> list[Any]:
    """Operator and shape of every product of a training step after the two of forward, for ``rows`` of ``width``."""
    x = torch.empty(rows, width, device="meta", dtype=dtype or torch.bfloat16, requires_grad=True)
    return products_of(training_step(module, x, plan))[2:]


def training_step(module: Any, x: Any, plan: tuple[str, str, str, str]) -> list[Any]:
    """What a training step under a plan runs on the GPU, without the helpers of products."""
    from foretrace.prediction.predict import predict as predict_with

    asked = FusedModules(lambda _: FusedPlan(*plan, "the test says so"), lambda function: (function, None), "")
    rows = predict_with(module, (x,), gpu="H200", mode="train", fused=asked).info.rows
    # Helper kernels have no FLOPs.
    return [row for row in rows if row.kind != "gemm" or row.flops is not None]


def products_of(kernels: list[Any]) -> list[Any]:
    return [(row.op, row.shape) for row in kernels if row.kind == "gemm"]


HOPPER, INPUT = ("hopper", "plain", "hopper", "preact"), ("hopper", "plain", "hopper", "input")
PLAIN, ELEMENTWISE = ("plain", "plain", "plain", "preact"), ("elementwise", "plain", "elementwise", "preact")
PACKINGS = ("separate", "gate_up", "up_gate", "interleaved")
OPTIONS = {"bias": False, "device": "meta", "dtype": torch.bfloat16}


@pytest.mark.parametrize(
    ("rows", "operator"),
    [(1, "foretrace::weight_gradient"), (32, "foretrace::weight_gradient"), (33, "aten::mm"), (K, "aten::mm")],
)
def test_weights_get_their_gradients_last_and_from_few_rows_by_a_kernel(rows: int, operator: str) -> None:
    assert products_of_backward(fused.MLP(K, N, **OPTIONS), rows, HOPPER) == [
        ("foretrace::linear_act_backward", f"{rows}×{N}×{K} NN"),
        ("aten::mm", f"{rows}×{K}×{N} NN"),
        (operator, f"{K}×{N}×{rows} NT"),
        (operator, f"{N}×{K}×{rows} NT"),
    ]
    gated = products_of_backward(fused.GatedMLP(K, N, **OPTIONS), rows, HOPPER)
    assert [op for op, _ in gated] == [
        *("foretrace::gate_up_backward", "aten::mm", "aten::addmm_", operator, operator),
    ]
    assert gated[-2:] == [(operator, f"{K}×{N}×{rows} NT"), (operator, f"{2 * N}×{K}×{rows} NT")]


def test_with_more_rows_than_outputs_the_second_weight_comes_first() -> None:
    assert [op for op, _ in products_of_backward(fused.MLP(16, N, **OPTIONS), 32, HOPPER, width=16)] == [
        "foretrace::weight_gradient",
        "foretrace::linear_act_backward",
        "aten::mm",
        "foretrace::weight_gradient",
    ]


def test_what_is_computed_again_is_used_before_it_goes() -> None:
    step = "foretrace::weight_gradient"
    again = products_of_backward(fused.MLP(K, N, **OPTIONS), 16, ("hopper", "plain", "hopper", "recompute"))
    assert [op for op, _ in again] == ["foretrace::linear_act_backward", step, "aten::mm", step]
    from_input = products_of_backward(fused.MLP(K, N, **OPTIONS), 16, INPUT)
    assert [op for op, _ in from_input] == [
        *("foretrace::linear_act", step, "foretrace::linear_act_backward", step, "aten::mm"),
    ]


def test_what_the_kernel_of_few_rows_cannot_do_stays_with_the_library() -> None:
    options = {"bias": False, "device": "meta"}
    single = products_of_backward(fused.MLP(K, N, dtype=torch.float32, **options), 16, HOPPER, torch.float32)
    plain = products_of_backward(fused.MLP(K, N, **OPTIONS), 16, ("plain", "plain", "plain", "preact"))
    assert "foretrace::weight_gradient" not in {op for op, _ in (*single, *plain)}


def test_the_predictor_and_the_modules_say_the_same_of_few_rows() -> None:
    from foretrace.fused.autograd import weight_gradient
    from foretrace.fused.dispatch.candidates import GRADIENT_ROWS
    from foretrace.knowledge.lowering.fused import FEW_ROWS, weights_come_last

    assert GRADIENT_ROWS == FEW_ROWS
    for shape in ((16, 16), (16, 17), (17, 16)):
        assert weights_come_last(*shape) == weight_gradient.weights_come_last(torch.empty(shape, device="meta"))


# ---- stacked weights, and gradients that nobody wants ----


@pytest.mark.parametrize("plan", [HOPPER, ELEMENTWISE])
@pytest.mark.parametrize("packing", PACKINGS)
def test_gate_and_up_are_one_factor_where_they_lie_one_after_the_other(packing: str, plan: Any) -> None:
    rows = 64
    x = torch.empty(rows, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    found = products_of(training_step(fused.GatedMLP(K, N, packing=packing, **OPTIONS), x, plan))
    one = [("aten::mm", f"{rows}×{2 * N}×{K} TN")]
    two = [("aten::mm", f"{rows}×{N}×{K} TN")] * 2
    step = "aten::mm" if plan is ELEMENTWISE else "foretrace::gate_up_backward"
    expand = one if packing == "gate_up" else two
    assert found == [
        *(expand if plan is ELEMENTWISE else [("foretrace::gate_up", one[0][1])]),
        ("aten::mm", f"{rows}×{K}×{N} TN"),
        (step, f"{rows}×{N}×{K} NN"),
        *(
            [("aten::mm", f"{rows}×{K}×{2 * N} NN")]
            if packing == "gate_up"
            else [("aten::mm", f"{rows}×{K}×{N} NN"), ("aten::addmm_", f"{rows}×{K}×{N} NN")]
        ),
        ("aten::mm", f"{K}×{N}×{rows} NT"),
        *(
            [("aten::mm", f"{2 * N}×{K}×{rows} NT")]
            if packing in ("separate", "gate_up")
            else [("aten::mm", f"{N}×{K}×{rows} NT")] * 2
        ),
    ]


@pytest.mark.parametrize("packing", PACKINGS)
def test_pytorch_s_autograd_puts_the_gradients_of_halves_together(packing: str) -> None:
    x = torch.empty(64, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    kernels = training_step(fused.GatedMLP(K, N, packing=packing, **OPTIONS), x, PLAIN)
    whole = packing == "gate_up"
    shapes = [shape for _, shape in products_of(kernels)]
    assert shapes[: 2 if whole else 3] == [
        *([f"64×{2 * N}×{K} TN"] if whole else [f"64×{N}×{K} TN"] * 2),
        f"64×{K}×{N} TN",
    ]
    assert len(shapes) == (6 if whole else 9)
    # Each half's gradient is copied into zeros as large as the stacked weight, and both are added.
    together = [row.op for row in kernels if row.kind != "gemm" and row.bytes and row.bytes >= 2 * 2 * N * K]
    filled = ["aten::fill_", "aten::copy_"]
    assert together == ([*filled, *filled, "aten::add"] if packing in ("up_gate", "interleaved") else [])


@pytest.mark.parametrize("packing", ["up_gate", "interleaved"])
def test_from_few_rows_each_half_of_a_stacked_gradient_is_a_kernel(packing: str) -> None:
    module = fused.GatedMLP(K, N, packing=packing, **OPTIONS)
    step = "foretrace::weight_gradient"
    for plan in (HOPPER, ELEMENTWISE):
        backward = products_of_backward(module, 16, plan)
        assert backward[-3:] == [(step, f"{K}×{N}×16 NT"), *[(step, f"{N}×{K}×16 NT")] * 2]


def test_a_bias_of_alternating_elements_is_copied_on_its_way_in_and_out() -> None:
    options = {**OPTIONS, "bias": True}
    x = torch.empty(64, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
    found = {}
    for packing in PACKINGS:
        steps = training_step(fused.GatedMLP(K, N, packing=packing, **options), x, HOPPER)
        found[packing] = [row.bytes for row in steps if row.op == "aten::copy_" and row.bytes < 64 * K]
    # All cast the sums, which are made in float32; a bias of one half is copied to or from its place.
    cast, half = 2 * N * (4 + 2), N * (2 + 2)
    assert found == {
        "separate": [cast],
        "gate_up": [cast],
        "up_gate": [cast, half, half],
        "interleaved": [half, half, cast, half, half],
    }


def frozen(module: Any, *names: str) -> Any:
    """The module with only the parameters of layers of these names trained."""
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.partition(".")[0] in names)
    return module


def test_only_the_gradients_that_are_wanted_are_made() -> None:
    rows = 64
    through, of_x = ("foretrace::gate_up_backward", f"{rows}×{N}×{K} NN"), f"{rows}×{K}×{N} NN"
    both = [("aten::mm", of_x), ("aten::addmm_", of_x)]
    of_down, of_half = ("aten::mm", f"{K}×{N}×{rows} NT"), ("aten::mm", f"{N}×{K}×{rows} NT")
    cases: dict[tuple[str, ...], list[Any]] = {
        (): [through, *both],
        ("gate_proj", "up_proj"): [through, *both, ("aten::mm", f"{2 * N}×{K}×{rows} NT")],
        ("up_proj", "down_proj"): [through, *both, of_down, of_half],
        ("gate_proj",): [through, *both, of_half],
    }
    for names, expected in cases.items():
        assert products_of_backward(frozen(fused.GatedMLP(K, N, **OPTIONS), *names), rows, HOPPER) == expected, names
    stacked = products_of_backward(frozen(fused.GatedMLP(K, N, packing="interleaved", **OPTIONS)), rows, HOPPER)
    assert stacked == [through, *both]
    single = products_of_backward(frozen(fused.MLP(K, N, **OPTIONS), "fc1"), rows, HOPPER)
    assert single == [
        ("foretrace::linear_act_backward", f"{rows}×{N}×{K} NN"),
        ("aten::mm", of_x),
        of_half,
    ]


def test_an_input_without_a_gradient_saves_its_products() -> None:
    x = torch.empty(64, K, device="meta", dtype=torch.bfloat16)
    kernels = training_step(fused.GatedMLP(K, N, packing="up_gate", **OPTIONS), x, HOPPER)
    assert products_of(kernels)[2:] == [
        ("foretrace::gate_up_backward", f"64×{N}×{K} NN"),
        ("aten::mm", f"{K}×{N}×64 NT"),
        *[("aten::mm", f"{N}×{K}×64 NT")] * 2,
    ]


@pytest.mark.parametrize("save", ["preact", "recompute", "input"])
def test_the_second_weight_alone_needs_nothing_but_hidden(save: str) -> None:
    x = torch.empty(64, K, device="meta", dtype=torch.bfloat16)
    module = frozen(fused.GatedMLP(K, N, **OPTIONS), "down_proj")
    kernels = training_step(module, x, ("hopper", "plain", "hopper", save))
    again = [("foretrace::gate_up", f"64×{2 * N}×{K} TN")] if save == "input" else []
    assert products_of(kernels)[2:] == [*again, ("aten::mm", f"{K}×{N}×64 NT")]
    # No pre-activations are written, neither in forward nor when it is run again.
    steps = [row for row in kernels if row.op == "foretrace::gate_up"]
    assert {row.bytes for row in steps} == {2 * (64 * K + 2 * N * K + 64 * N)}


TRAINED = (
    ("gate_proj", "up_proj", "gate_up_proj", "fc1", "down_proj", "fc2"),
    ("gate_proj", "gate_up_proj", "fc1"),
    ("up_proj", "down_proj", "fc2"),
    ("down_proj", "fc2"),
    (),
)


@pytest.mark.parametrize("rows", [16, 40])
@pytest.mark.parametrize("save", ["auto", "preact", "recompute", "input"])
@pytest.mark.parametrize("packing", [*PACKINGS, None])
def test_the_modules_run_the_products_that_are_predicted(
    packing: str | None, save: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways of running without a kernel: PyTorch's autograd, and the steps in PyTorch's operators."""
    from foretrace.fused import inputs
    from foretrace.prediction.program.fused import with_fused

    # Under a dispatch mode the modules would leave everything to autograd; this one only looks.
    monkeypatch.setattr(inputs, "_transformed", lambda: False)
    # A plan of PyTorch's operators alone is autograd's, unless the module says what to keep.
    plan = FusedPlan(*PLAIN, "")
    asked = FusedModules(lambda _: plan, lambda function: (function, None), "")
    for bias in (False, True):
        for names in TRAINED:
            for wants in (True, False):
                if not (names or wants):  # nothing to train
                    continue
                seen = []
                for device in ("cpu", "meta"):
                    options = {"bias": bias, "out_features": 24, "save": save, "device": device}
                    made = fused.GatedMLP(8, 16, packing=packing, **options) if packing else fused.MLP(8, 16, **options)
                    module = frozen(made, *names)
                    x = torch.zeros(rows, 8, device=device, requires_grad=wants)
                    run = module if device == "cpu" else with_fused(module, asked, [])
                    seen.append(operators_of(run, x, only_products=save != "auto"))
                assert seen[0] == seen[1], (bias, names, wants)
                assert {"mm", "addmm"} & {name for name, _ in seen[0]}


def operators_of(module: Any, x: Any, *, only_products: bool) -> list[Any]:
    """What launches kernels in a training step, or its products alone: name, shapes and strides of operands."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Any] = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = function.overloadpacket.__name__
            wanted = name in ("mm", "addmm", "addmm_") if only_products else not (function.is_view or name in VIEWS)
            if wanted:
                found.append((name, [(*item.shape, *item.stride()) for item in args if isinstance(item, torch.Tensor)]))
            return function(*args, **(kwargs or {}))

    with Look():
        y = module(x)
        y.backward(torch.ones_like(y))
    return found


# Views by another name.
VIEWS = ("_unsafe_view", "detach")


def test_where_no_kernel_can_run_pytorch_s_operators_are_predicted() -> None:
    assert [op for _, op in kinds(predict("foretrace", gpu="MI300X"))] == [
        *("aten::mm", "aten::mm", "aten::gelu", "aten::mul", "aten::mm")
    ]


def test_layers_that_are_no_plain_linear_stay_as_they_are() -> None:
    class Adapted(nn.Linear):
        pass

    module = fused.MLP(K, N, device="meta", dtype=torch.bfloat16)
    module.fc2 = Adapted(N, K, device="meta", dtype=torch.bfloat16)
    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16)
    prediction = foretrace.predict(module, (x,), gpu="H200", release=(2, 11))
    assert any("no plain nn.Linear" in note for note in prediction.info.notes)


def test_mlps_of_two_layers_are_replaced_as_run_and_bench_replace_them() -> None:
    model = nn.Sequential(nn.Linear(K, N), nn.GELU(), nn.Linear(N, K)).to("meta", torch.bfloat16)
    x = torch.empty(M, K, device="meta", dtype=torch.bfloat16)
    prediction = foretrace.predict(model, (x,), gpu="H200", variant="foretrace", release=(2, 11))
    assert [op for _, op in kinds(prediction)] == ["foretrace::linear_act", "aten::addmm"]
    assert "foretrace replaced Sequential → foretrace MLP" in prediction.info.notes
