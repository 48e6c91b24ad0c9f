"""Results against the float64 reference: what is rounding, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.capture.bench.reference import Yardstick, check, collect, make_yardstick
from foretrace.capture.bench.tools import copy_of, persistent_bytes
from foretrace.capture.workloads import Program
from foretrace.model.bench import Check

torch = pytest.importorskip("torch")


def program(dtype: Any = None) -> Program:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64, dtype=dtype)
    return Program(layer, (torch.randn(512, 64, dtype=dtype),), {})


def verdict(made: Program, change: Any) -> Check:
    yardstick = make_yardstick(made, "forward", 0)
    with torch.no_grad():
        return check({"output": change(made.function(*made.inputs))}, yardstick)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_eager_passes_and_its_error_is_that_of_its_type(dtype: Any) -> None:
    found = verdict(program(dtype), lambda y: y)
    assert found.state == "passed"
    (tensor,) = found.tensors
    assert tensor.relative_error is not None
    assert tensor.relative_error < 2 * torch.finfo(dtype).eps
    assert tensor.relative_error == tensor.eager_relative_error
    assert found.max_error_ulps is not None
    assert found.max_error_ulps <= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_more_exact_result_passes(dtype: Any) -> None:
    made = program(dtype)
    exact = torch.nn.functional.linear(
        made.inputs[0].double(), made.function.weight.double(), made.function.bias.double()
    )
    assert verdict(made, lambda _: exact.to(dtype)).state == "passed"


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 1.0001), (torch.bfloat16, 1.01), (torch.float16, 1.002)])
def test_a_scaled_result_is_wrong_in_every_type(dtype: Any, factor: float) -> None:
    assert verdict(program(dtype), lambda y: y * factor).state == "wrong"


def test_one_wrong_element_of_many_is_found() -> None:
    def change(y: Any) -> Any:
        y = y.clone()
        y.view(-1)[12345] += 0.25
        return y

    found = verdict(program(torch.bfloat16), change)
    assert found.state == "wrong"
    assert "an element of output is off by 0.2" in (found.reason or "")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_value_that_is_no_number_is_wrong(value: float) -> None:
    def change(y: Any) -> Any:
        y = y.clone()
        y.view(-1)[7] = value
        return y

    assert verdict(program(), change).state == "wrong"


def test_infinity_that_float64_has_too_is_right() -> None:
    made = Program(lambda x: x.masked_fill(x > 0, float("-inf")), (torch.randn(8, 8),), {})
    assert make_yardstick(made, "forward", 0).reason is None
    with torch.no_grad():
        assert verdict(made, lambda y: y).state == "passed"


def test_another_shape_type_or_number_of_outputs_is_wrong() -> None:
    assert "512, 64" in (verdict(program(), lambda y: y.t()).reason or "")
    assert "fp64" in (verdict(program(), lambda y: y.double()).reason or "")
    yardstick = make_yardstick(program(), "forward", 0)
    assert check({}, yardstick).reason == "there is no output"


def test_integers_must_be_those_of_float64() -> None:
    made = Program(lambda x: x.argmax(-1), (torch.randn(64, 16),), {})
    assert verdict(made, lambda y: y).state == "passed"
    assert "other than in float64" in (verdict(made, lambda y: y + 1).reason or "")


def test_a_module_that_cannot_be_copied_or_run_in_float64_is_unchecked() -> None:
    class Picky(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            if x.dtype == torch.float64:
                raise TypeError("half or float, please")
            return x + 1

    yardstick = make_yardstick(Program(Picky(), (torch.ones(4),), {}), "forward", 0)
    assert yardstick.reason == "the program cannot be run in float64: TypeError: half or float, please"
    assert check({"output": torch.ones(4)}, yardstick).state == "unknown"


def test_a_program_that_returns_nothing_is_unchecked() -> None:
    yardstick = make_yardstick(Program(lambda: None, (), {}), "forward", 0)
    assert yardstick.reason == "the program returns no tensor"
    assert check({"output": torch.tensor(float("nan"))}, Yardstick(reason="whatever")).state == "wrong"


def test_outputs_and_gradients_have_names() -> None:
    layer = torch.nn.Linear(2, 2)
    x = torch.ones(1, 2, requires_grad=True)
    made = Program(layer, (x,), {})
    y = layer(x)
    y.sum().backward()
    assert set(collect((y, y), made, "train")) == {
        "output 0",
        "output 1",
        "gradient of input 0",
        "gradient of weight",
        "gradient of bias",
    }


def test_a_copy_has_weights_and_inputs_of_its_own() -> None:
    made = program()
    copied = copy_of(made)
    assert torch.equal(copied.function.weight, made.function.weight)
    assert copied.function.weight.data_ptr() != made.function.weight.data_ptr()
    assert copied.inputs[0].data_ptr() != made.inputs[0].data_ptr()
    assert persistent_bytes(made) == 4 * (64 * 64 + 64 + 512 * 64)
