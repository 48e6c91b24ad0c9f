"""Autocast on the meta device casts as CUDA's autocast does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import H200, rows, short  # noqa: E402
from torch import nn  # noqa: E402

from foretrace.prediction.program import trace_program  # noqa: E402
from foretrace.prediction.work import Program  # noqa: E402


class Under(nn.Module):
    """Modules one after the other under autocast."""

    def __init__(self, *parts: nn.Module, device: str | None = "cuda", dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.device, self.dtype = device, dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device or x.device.type, dtype=self.dtype):
            for part in self.parts:
                x = part(x)
        return x


def traced(make: Any, *, mode: str = "forward", variant: str = "eager") -> Program:
    with torch.device("meta"):
        module, x = make(), torch.empty(64, 32)
    with warnings.catch_warnings():  # CUDA is not available: nothing of it may reach the user
        warnings.simplefilter("error")
        return trace_program(module, (x,), name="test", gpu=H200, variant=variant, mode=mode, release=(2, 11))


def test_a_linear_casts_its_input_weight_and_bias_and_multiplies_in_16_bits() -> None:
    program = traced(lambda: Under(nn.Linear(32, 16)))
    assert [short(item) for item in program.work()] == ["copy copy_"] * 3 + ["gemm addmm"]
    assert [item.dtype for item in program.work()] == ["bf16"] * 4
    names = [(depth, node.name) for depth, node in rows(program)]
    assert names[:4] == [(0, "aten::linear"), (1, "aten::to"), (2, "aten::_to_copy"), (3, "aten::empty_strided")]
    assert (1, "aten::linear") in names


@pytest.mark.parametrize("device", ["cuda", None])
def test_the_device_may_be_that_of_a_tensor(device: str | None) -> None:
    program = traced(lambda: Under(nn.Linear(32, 16, bias=False), device=device, dtype=torch.float16))
    assert program.work()[-1].dtype == "fp16"


def test_a_weight_that_is_used_twice_is_cast_once() -> None:
    def make() -> Under:
        layer = nn.Linear(32, 32, bias=False)
        return Under(layer, layer)

    assert [short(item) for item in traced(make).work()] == ["copy copy_", "copy copy_", "gemm mm", "gemm mm"]


def test_a_norm_and_a_softmax_run_in_fp32() -> None:
    work = traced(lambda: Under(nn.Linear(32, 32, bias=False), nn.LayerNorm(32), nn.Softmax(-1))).work()
    assert [(short(item), item.dtype) for item in work[2:]] == [
        ("gemm mm", "bf16"),
        ("copy copy_", "fp32"),
        ("normalization native_layer_norm", "fp32"),
        ("softmax _softmax", "fp32"),
    ]


def test_the_gradient_of_a_weight_is_cast_back() -> None:
    work = traced(lambda: Under(nn.Linear(32, 16, bias=False)), mode="train").work()
    (backward,) = (index for index, item in enumerate(work) if item.kind == "gemm" and index > 3)
    assert work[backward].dtype == "bf16"
    assert (work[-1].op, work[-1].dtype) == ("aten::copy_", "fp32")


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_recomputes_under_the_same_autocast(reentrant: bool) -> None:
    class Checkpointed(Under):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return torch.utils.checkpoint.checkpoint(self.parts[0], x, use_reentrant=reentrant)

    with torch.device("meta"):
        module, x = Checkpointed(nn.Linear(32, 16, bias=False)), torch.empty(64, 32, requires_grad=True)
    work = trace_program(module, (x,), name="test", gpu=H200, mode="train").work()
    assert {item.dtype for item in work if item.kind == "gemm"} == {"bf16"}


def test_compiled_code_multiplies_in_16_bits_too() -> None:
    work = traced(lambda: Under(nn.Linear(32, 16, bias=False)), variant="compile").work()
    assert [(item.kind, item.dtype) for item in work if item.kind == "gemm"] == [("gemm", "bf16")]


def test_afterwards_autocast_is_torchs_own() -> None:
    before = torch.autocast.__init__
    traced(lambda: Under(nn.Linear(32, 16)))
    assert torch.autocast.__init__ is before
    assert not torch.is_autocast_enabled("cuda")
    x = torch.empty(4, 32, device="meta")
    assert nn.Linear(32, 8, device="meta")(x).dtype == torch.float32
