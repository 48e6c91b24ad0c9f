"""What cannot run without data is one sentence that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import H200  # noqa: E402

from foretrace.errors import InputError  # noqa: E402
from foretrace.prediction.program import trace_program  # noqa: E402


def said(function: Any, *, mode: str = "forward", variant: str = "eager") -> str:
    x = torch.empty(8, 8, device="meta", requires_grad=mode == "train")
    with pytest.raises(InputError) as raised:
        trace_program(function, (x,), name="mine", gpu=H200, mode=mode, variant=variant)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_values_are_needed_and_the_line_that_needs_them_is_named() -> None:
    sentence = said(lambda x: x * x.sum().item())
    assert sentence.startswith("mine cannot be predicted: it needs the values of tensors")
    assert "test_program_failures.py:" in sentence


def test_a_size_that_depends_on_values() -> None:
    assert "it needs the values of tensors" in said(lambda x: x[x > 0])


def test_an_operator_without_shapes_is_named() -> None:
    assert "(aten::bincount)" in said(lambda x: torch.bincount(x.flatten().long()))


def train(x: torch.Tensor) -> torch.Tensor:
    loss = torch.nn.functional.linear(x, torch.zeros(8, 8, device="meta", requires_grad=True)).sum()
    loss.backward()
    return loss


def test_a_function_that_trains_itself() -> None:
    assert "run it" in said(train).replace("runs it", "run it")
    assert "torch.enable_grad()" in said(train)
    assert "return the loss before its backward" in said(train, mode="train")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device can be had here")
def test_compiled_code_that_names_a_device() -> None:
    sentence = said(lambda x: x + torch.randn(64, 8, device="cuda")[:8], variant="compile")
    assert "write device=x.device" in sentence


def test_what_fails_while_dynamo_traces_is_dug_out_of_its_report() -> None:
    sentence = said(lambda x: torch.cat([torch.tensor([], device=x.device), x[:, 0] @ x[0, :4]]), variant="compile")
    assert sentence.startswith("mine failed while torch.compile traced it without data: RuntimeError: ")


def test_what_the_program_itself_raises_is_repeated() -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no such head")

    assert "ValueError: no such head, at test_program_failures.py:" in said(wrong)


def test_a_variant_that_only_a_gpu_can_tell() -> None:
    assert "--variant compile is the nearest" in said(lambda x: x, variant="compile-max-autotune")
    assert "is not known" in said(lambda x: x, variant="fast")
