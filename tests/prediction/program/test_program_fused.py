"""What an MLP becomes with foretrace's fused modules or Liger's: kernels, their work, and gradients."""

from __future__ import annotations

from typing import Any

import pytest

import foretrace
from foretrace.errors import InputError
from foretrace.knowledge import gpus
from foretrace.knowledge.kernels import decode

torch: Any = pytest.importorskip("torch", reason="tracing a program needs the torch extra")
nn = torch.nn

M, K, N = 256, 64, 128


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
    return foretrace.predict(model, (x,), gpu=gpu, variant=variant, mode=mode)  # type: ignore[arg-type]


def kinds(prediction: Any) -> list[tuple[str, str | None]]:
    return [(row.kind, row.op) for row in prediction.info.rows if row.row == "kernel"]


def test_gate_and_up_are_one_kernel_that_writes_the_hidden_alone() -> None:
    prediction = predict("foretrace")
    assert kinds(prediction) == [("gemm", "foretrace::gate_up"), ("gemm", "aten::mm")]
    first = prediction.info.rows[0]
    assert first.flops == 2 * M * 2 * N * K
    assert first.bytes == 2 * (M * K + 2 * N * K + M * N)
    assert first.name == "predicted::gemm<dtype=bf16, layout=TN, ops=mm+gelu_tanh+mul, epilogue=gelu_tanh+mul>"
    assert any("the dispatcher's choice is not asked" in note for note in prediction.info.notes)


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


@pytest.mark.parametrize("bias", [False, True])
def test_every_parameter_gets_its_gradient(bias: bool) -> None:
    from foretrace.prediction.program.fused import with_fused

    for variant in ("foretrace", "liger"):
        model = GatedMLP(nn.SiLU(), bias=bias)
        x = torch.empty(M, K, device="meta", dtype=torch.bfloat16, requires_grad=True)
        with_fused(model, variant, gpus.find("H200"), [])(x).sum().backward()
        for tensor in (x, *model.parameters()):
            assert tensor.grad is not None
            assert tensor.grad.shape == tensor.shape


@pytest.mark.parametrize(("gpu", "dtype"), [("H200", torch.float32), ("MI300X", torch.bfloat16)])
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
    eager, fused = (foretrace.predict(model, (x,), gpu="H200", variant=name).trace() for name in ("eager", "foretrace"))
    comparison = foretrace.compare([eager, fused])
    titles = {place.category: place.title for pair in comparison.pairs for place in pair.places}
    assert titles["fused"].startswith("2 mm + ")
    assert "gelu + mul → " in titles["fused"]
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
