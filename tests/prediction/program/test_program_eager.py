"""Eager programs: the tree of operators and the work each launches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import H200, Attention, Gated, Llama, Mlp, Residual, rows, short, traced  # noqa: E402

from foretrace.errors import InputError  # noqa: E402
from foretrace.prediction.program import meta_target, trace_program  # noqa: E402


def work(program: Any) -> list[str]:
    return [short(item) for item in program.work()]


def test_a_linear_without_bias_has_the_rows_of_a_real_trace() -> None:
    program = traced(lambda: torch.nn.Linear(768, 3072, bias=False), 64, 128, 768)
    assert [(depth, node.name) for depth, node in rows(program)] == [
        (0, "aten::linear"),
        (1, "aten::t"),
        (2, "aten::transpose"),
        (3, "aten::as_strided"),
        (1, "aten::matmul"),
        (2, "aten::reshape"),
        (3, "aten::view"),
        (2, "aten::mm"),
        (2, "aten::_unsafe_view"),
    ]


def test_the_product_of_a_linear_reads_a_transposed_weight() -> None:
    (gemm,) = traced(lambda: torch.nn.Linear(768, 3072, bias=False), 64, 128, 768).work()
    product = gemm.product
    assert product is not None
    assert (product.m, product.n, product.k, product.batch, product.layout) == (8192, 3072, 768, 1, "TN")
    assert gemm.flops == 2 * 8192 * 3072 * 768
    assert [access.bytes for access in gemm.reads] == [8192 * 768 * 2, 3072 * 768 * 2]
    assert [access.bytes for access in gemm.writes] == [8192 * 3072 * 2]


def test_a_bias_vector_goes_into_the_library_call() -> None:
    (gemm,) = traced(lambda: torch.nn.Linear(32, 64), 1024, 32).work()
    assert gemm.op == "aten::addmm"
    assert gemm.product is not None
    assert gemm.product.bias
    assert not gemm.product.accumulate


def test_what_one_operator_writes_the_next_reads() -> None:
    gate, gelu, up, mul, down = traced(Gated, 64, 128, 768).work()
    assert gelu.reads[0].storage == gate.writes[0].storage
    assert {access.storage for access in mul.reads} == {gelu.writes[0].storage, up.writes[0].storage}
    assert down.reads[0].storage == mul.writes[0].storage


def test_weights_and_inputs_are_there_before_the_step() -> None:
    program = traced(Gated, 64, 128, 768)
    assert sum(program.persistent.values()) == 3 * 768 * 3072 * 2 + 64 * 128 * 768 * 2


def test_a_training_step_copies_the_expanded_gradient_before_each_product() -> None:
    # The gradient of a sum is one value read everywhere, which cuBLAS cannot read.
    assert work(traced(Gated, 64, 128, 768, mode="train"))[5:13] == [
        "memset sum",
        "reduction sum",
        "elementwise fill_",
        "copy copy_",
        "gemm mm",
        "copy copy_",
        "gemm mm",
        "elementwise mul",
    ]


def test_gradients_are_dropped_so_nothing_is_added_to_them() -> None:
    names = [node.name for _, node in rows(traced(Gated, 64, 128, 768, mode="train"))]
    assert "torch::autograd::AccumulateGrad" in names
    assert "aten::add_" not in names


def test_backward_rows_carry_the_number_and_module_of_their_forward_rows() -> None:
    program = traced(Gated, 64, 128, 768, mode="train")
    (forward,) = [node for _, node in rows(program) if node.name == "aten::gelu"]
    (backward,) = [node for _, node in rows(program) if node.name == "GeluBackward0"]
    assert forward.sequence == backward.sequence is not None
    assert (forward.phase, backward.phase) == ("forward", "backward")
    products = [node.module for _, node in rows(program) if node.name == "aten::mm"]
    assert products == ["gate", "up", "down", "down", "down", "up", "up", "gate", "gate"]


def test_an_added_matrix_is_copied_and_accumulated_to() -> None:
    with torch.device("meta"):
        inputs = torch.empty(64, 64), torch.empty(64, 32), torch.empty(32, 64)
    copy, gemm = trace_program(torch.addmm, inputs, {}, name="addmm", gpu=H200).work()
    assert copy.kind == "memcpy"
    assert gemm.product is not None
    assert (gemm.product.bias, gemm.product.accumulate) == (False, True)


@pytest.mark.parametrize(("rms", "name"), [(False, "native_layer_norm"), (True, "_fused_rms_norm")])
def test_norms_are_one_kernel_forward_and_two_backward(rms: bool, name: str) -> None:
    found = work(traced(lambda: Residual(rms=rms), 8, 1024, 1024, mode="train"))
    assert found.count(f"normalization {name}") == 1
    assert found.count(f"normalization {name}_backward") == 2


def test_attention_on_hopper_is_cudnn_s() -> None:
    assert work(traced(Attention, 8, 1024, 1024)) == [
        "gemm mm",
        "memset _cudnn_attention_forward",
        "attention _cudnn_attention_forward",
        "gemm mm",
    ]


def test_attention_reads_queries_keys_and_values_of_one_buffer() -> None:
    (attention,) = (item for item in traced(Attention, 8, 1024, 1024).work() if item.kind == "attention")
    assert [access.bytes for access in attention.reads] == [3 * 8 * 1024 * 1024 * 2]
    assert attention.flops == 4 * 8 * 1024 * 1024 * 1024


def test_attention_in_fp32_is_the_memory_efficient_one() -> None:
    assert "attention _efficient_attention_forward" in work(traced(Attention, 8, 1024, 1024, dtype=torch.float32))


def test_an_older_torch_takes_flash_attention() -> None:
    assert "attention _flash_attention_forward" in work(traced(Attention, 8, 1024, 1024, release=(2, 4)))


def test_a_model_with_a_loss_has_no_operator_nobody_knows() -> None:
    program = traced(Llama, 4, 1024, mode="train")
    assert program.unknown == {}
    counts = [item.kind for item in program.work()]
    assert counts.count("attention") == 2 * (1 + 3)
    assert counts.count("gemm") == 3 * (2 * 5 + 1)
    assert counts.count("softmax") == 2


@pytest.mark.parametrize(("options", "names"), [({}, "_foreach_"), ({"fused": True}, "_fused_adamw_")])
def test_an_optimizer_walks_lists_of_parameters(options: dict[str, Any], names: str) -> None:
    def make() -> Any:
        model = Mlp().to("cuda")  # asked for, and not given: there is no GPU
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        x = torch.randn(64, 1024, device="cuda")

        @torch.enable_grad()
        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    program = trace_program(meta_target(make), (), {}, name="step", gpu=H200)
    updates = [node for _, node in rows(program) if node.phase == "optimizer" and node.work]
    assert updates
    assert all(names in node.name or "_foreach_add_" in node.name for node in updates)


def test_an_operator_nobody_knows_is_named_and_still_counted() -> None:
    with torch.device("meta"):
        x = torch.empty(64, 64)
    program = trace_program(torch.linalg.qr, (x,), {}, name="qr", gpu=H200)
    assert "aten::linalg_qr" in program.unknown
    assert [item.kind for item in program.work()] == ["other"]
    assert program.work()[0].note is not None


def test_values_cannot_be_read_where_there_are_none() -> None:
    with pytest.raises(InputError, match="needs the values of tensors"):
        trace_program(lambda x: x * x.sum().item(), (torch.empty(4, device="meta"),), {}, name="item")


@pytest.mark.parametrize("words", [{"variant": "compiled"}, {"mode": "backward"}])
def test_unknown_words_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="choose from"):
        trace_program(torch.sin, (torch.empty(4, device="meta"),), {}, name="sin", **words)


def test_inputs_on_the_cpu_are_moved() -> None:
    (sine,) = trace_program(torch.sin, (torch.zeros(4),), {}, name="sin", gpu=H200).work()
    assert (sine.kind, sine.op, sine.elements) == ("elementwise", "aten::sin", 4)
