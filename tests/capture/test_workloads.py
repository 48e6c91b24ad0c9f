"""Built-in workloads, variants and modes."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.capture.variants import check_variant, make_step
from foretrace.capture.workloads import WORKLOADS, Program, build, choose_values
from foretrace.errors import CaptureError, InputError

torch = pytest.importorskip("torch")

SMALL: dict[str, dict[str, int]] = {
    "matmul-add": {"size": 4},
    "linear": {"batch": 4, "in_dim": 3, "out_dim": 2},
    "mlp": {"batch": 2, "seq": 3, "dim": 4, "hidden": 5},
}


def program(name: str, *, train: bool = False, dtype: str = "fp32") -> Program:
    torch.manual_seed(0)
    return build(WORKLOADS[name], SMALL[name], dtype, "cpu", train=train)


# ---- what they compute ----


def test_matmul_add_is_the_article_s() -> None:
    made = program("matmul-add")
    x, w, b = made.inputs
    assert x.shape == w.shape == b.shape == (4, 4)
    torch.testing.assert_close(made.function(x, w, b), x @ w + b)
    assert made.annotation == "matmul_add"


def test_linear_has_a_bias() -> None:
    made = program("linear")
    assert made.function.bias is not None
    assert made.function(*made.inputs).shape == (4, 2)
    assert made.annotation == "linear_fwd"


def test_mlp_is_a_geglu_without_bias() -> None:
    made = program("mlp")
    (x,), module = made.inputs, made.function
    gate, up, down = (getattr(module, name).weight for name in ("gate", "up", "down"))
    expected = (torch.nn.functional.gelu(x @ gate.T, approximate="tanh") * (x @ up.T)) @ down.T
    torch.testing.assert_close(module(x), expected)
    assert [name for name, _ in module.named_parameters()] == ["gate.weight", "up.weight", "down.weight"]
    assert made.annotation == "mlp_fwd"


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_dtypes_reach_parameters_and_inputs(name: str) -> None:
    made = program(name, dtype="bf16")
    tensors = [*made.inputs, *(made.function.parameters() if hasattr(made.function, "parameters") else [])]
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}


# ---- sizes ----


def test_on_a_gpu_the_defaults_are_the_article_s() -> None:
    assert choose_values(WORKLOADS["mlp"], {}, None, "cuda") == (
        {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072},
        "bf16",
        [],
    )
    assert choose_values(WORKLOADS["linear"], {}, None, "cuda")[0] == {"batch": 1024, "in_dim": 32, "out_dim": 64}
    assert choose_values(WORKLOADS["matmul-add"], {}, None, "cuda")[0] == {"size": 64}


def test_on_a_cpu_smaller_defaults_are_used_and_named() -> None:
    sizes, dtype, notes = choose_values(WORKLOADS["mlp"], {}, None, "cpu")
    assert (sizes["batch"], dtype) == (4, "fp32")
    assert notes == ["batch 4 instead of 64", "fp32 instead of bf16"]


def test_what_is_given_is_kept_on_a_cpu() -> None:
    sizes, dtype, notes = choose_values(WORKLOADS["mlp"], {"batch": 64}, "bf16", "cpu")
    assert (sizes["batch"], dtype, notes) == (64, "bf16", [])


def test_a_flag_of_another_workload_is_refused_with_those_it_has() -> None:
    with pytest.raises(InputError, match=r"matmul-add has no --in-dim; it has --size, --dtype"):
        choose_values(WORKLOADS["matmul-add"], {"in_dim": 3}, None, "cpu")


def test_sizes_are_at_least_one() -> None:
    with pytest.raises(InputError, match="--batch must be at least 1"):
        choose_values(WORKLOADS["mlp"], {"batch": 0}, None, "cpu")


@pytest.mark.parametrize("batch", [10**11, 10**18, 10**30])
def test_sizes_beyond_the_memory_are_named(batch: int) -> None:
    sizes = {**SMALL["mlp"], "batch": batch, "seq": 10**4}
    with pytest.raises(InputError, match=rf"^mlp with batch {batch}, seq 10000, dim 4, .*give smaller sizes \([^[]"):
        build(WORKLOADS["mlp"], sizes, "fp32", "cpu", train=False)


# ---- modes ----


def test_forward_makes_no_gradients() -> None:
    assert make_step(program("mlp"), "eager", "forward")().requires_grad is False


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_train_gives_gradients_to_inputs_and_parameters(name: str) -> None:
    made = program(name, train=True)
    make_step(made, "eager", "train")()
    tensors = [*made.inputs, *(made.function.parameters() if hasattr(made.function, "parameters") else [])]
    assert all(tensor.grad is not None for tensor in tensors)


def test_gradients_do_not_add_up_over_steps() -> None:
    made = program("linear", train=True)
    step = make_step(made, "eager", "train")
    step()
    first = made.function.weight.grad.clone()
    step()
    torch.testing.assert_close(made.function.weight.grad, first)


def test_train_backpropagates_the_sum_of_all_outputs() -> None:
    x = torch.ones(3, requires_grad=True)

    def function(x: Any) -> Any:
        return {"a": x * 2, "rest": (x * 3, 7, x.detach())}

    make_step(Program(function, (x,), {}), "eager", "train")()
    torch.testing.assert_close(x.grad, torch.full((3,), 5.0))


def test_train_without_an_output_that_has_gradients_is_explained() -> None:
    step = make_step(Program(lambda: torch.ones(3), (), {}), "eager", "train")
    with pytest.raises(InputError, match="none"):
        step()


# ---- variants ----


def test_unknown_variants_are_refused() -> None:
    with pytest.raises(InputError, match="choose from eager, compile"):
        check_variant("jit", "cpu")


def test_compiling_on_a_cpu_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert check_variant("compile", "cpu", which=lambda name: "/usr/bin/g++" if name == "g++" else None) is None
    with pytest.raises(CaptureError, match="apt install g"):
        check_variant("compile", "cpu", which=lambda _: None)
    assert check_variant("eager", "cpu", which=lambda _: None) is None


def test_a_wrong_cxx_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CaptureError, match="CXX=no-such-compiler"):
        check_variant("compile", "cpu")


def test_reduce_overhead_on_a_cpu_says_what_it_is() -> None:
    said = check_variant("compile-reduce-overhead", "cpu", which=lambda _: "/usr/bin/g++")
    assert said is not None
    assert "CUDA graphs" in said
