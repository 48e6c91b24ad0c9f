"""Details of single operators that decide what a prediction counts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import H200, rows, short, traced  # noqa: E402

from foretrace.knowledge import gpus  # noqa: E402
from foretrace.prediction.program import trace_program  # noqa: E402
from foretrace.prediction.work import Operator, Program  # noqa: E402


def called(function: Any, *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, gpu: Any = H200) -> Program:
    tensors = tuple(torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    return trace_program(function, tensors, name="test", gpu=gpu, release=(2, 11))


def below(program: Program, name: str) -> list[tuple[int, Operator]]:
    """The rows of the first product that copies an operand."""
    all_rows = rows(program)
    start = next(i for i, (_, node) in enumerate(all_rows) if node.name == name and node.children)
    depth = all_rows[start][0]
    end = next((i for i in range(start + 1, len(all_rows)) if all_rows[i][0] <= depth), len(all_rows))
    return [(level - depth, node) for level, node in all_rows[start:end]]


def test_an_expanded_factor_is_cloned_below_the_product_as_in_a_trace() -> None:
    found = below(traced(lambda: torch.nn.Linear(768, 3072, bias=False), 8192, 768, mode="train"), "aten::mm")
    assert [(depth, node.name) for depth, node in found] == [
        (0, "aten::mm"),
        (1, "aten::clone"),
        (2, "aten::empty_like"),
        (3, "aten::empty"),
        (2, "aten::copy_"),
    ]
    copy = found[-1][1]
    target, source, _ = copy.inputs
    assert target is not None
    assert source is not None
    assert (target.shape, target.strides, source.strides) == (source.shape, (source.shape[1], 1), (0, 0))
    assert copy.concrete == ("", "", "False")
    (work,) = copy.work
    assert (work.reads[0].bytes, work.writes[0].bytes) == (2, 2 * target.shape[0] * target.shape[1])


def test_work_below_an_operator_comes_before_its_own() -> None:
    program = called(lambda a, b: a.expand(64, 64) @ b, (64, 1), (64, 64))
    assert [(node.name, short(work)) for node, work in program.items()] == [
        ("aten::copy_", "copy copy_"),
        ("aten::mm", "gemm mm"),
    ]


def test_a_matrix_to_add_to_is_copied_into_the_result() -> None:
    program = called(torch.addmm, (64, 64), (64, 32), (32, 64))
    assert [(node.name, short(work)) for node, work in program.items()] == [
        ("aten::copy_", "memcpy copy_"),
        ("aten::addmm", "gemm addmm"),
    ]


def test_an_empty_product_launches_nothing_and_one_over_nothing_fills() -> None:
    assert called(torch.mm, (0, 64), (64, 64)).work() == []
    assert [short(item) for item in called(torch.mm, (64, 0), (0, 64)).work()] == ["elementwise fill_"]


@pytest.mark.parametrize(("dim", "row"), [(-1, 32000), (0, 64)])
def test_a_softmax_has_the_length_of_its_rows(dim: int, row: int) -> None:
    (work,) = called(lambda x: x.softmax(dim), (64, 32000)).work()
    assert (work.kind, work.reduced) == ("softmax", row)


@pytest.mark.parametrize(
    ("loss", "kernels"),
    [
        ("mse_loss", ["elementwise", "reduction"]),
        ("smooth_l1_loss", ["elementwise", "reduction"]),
        ("binary_cross_entropy_with_logits", ["elementwise"] * 4 + ["reduction"]),
    ],
)
def test_a_loss_is_a_pass_and_its_mean(loss: str, kernels: list[str]) -> None:
    function = getattr(torch.nn.functional, loss)
    assert [item.kind for item in called(function, (64, 64), (64, 64)).work()] == kernels
    unreduced = called(lambda x, y: function(x, y, reduction="none"), (64, 64), (64, 64)).work()
    assert [item.kind for item in unreduced] == kernels[:-1]


def test_a_product_of_8_bit_integers_is_one_of_8_bits() -> None:
    (work,) = called(torch._int_mm, (64, 64), (64, 64), dtype=torch.int8).work()
    assert (work.kind, work.dtype, work.flops) == ("gemm", "int8", 2 * 64**3)


@pytest.mark.parametrize(
    ("function", "crossed"),
    [
        (lambda x: x.t().contiguous(), True),
        (lambda x: x + x.t(), True),
        (lambda x: x.view(64, 8, 8).transpose(0, 1).contiguous(), False),  # rows of 8 stay rows
        (lambda x: x / x.sum(-1, keepdim=True).expand(64, 64), False),
        (lambda x: x + 1, False),
    ],
)
def test_a_transposition_reads_along_another_dimension(function: Any, crossed: bool) -> None:
    assert called(function, (64, 64)).work()[-1].crossed is crossed


def test_on_amd_attention_is_not_cudnns() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    shapes = [(2, 4, 128, 64)] * 3
    program = called(attend, *shapes, gpu=gpus.find("MI300X"))
    assert [item.op for item in program.work()] == ["aten::_flash_attention_forward"]
    assert any("AMD" in note for note in program.notes)


def test_recurrent_layers_say_what_is_not_predicted() -> None:
    with torch.device("meta"):
        layer, x = torch.nn.GRU(8, 8), torch.empty(3, 2, 8)
    program = trace_program(layer, (x,), name="gru", gpu=H200)
    assert any("cuDNN runs recurrent layers" in note for note in program.notes)


def test_the_kernels_beside_grouped_attentions_backward_move_what_they_must() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) * 2

    q, k, v = (
        torch.empty(2, heads, 128, 64, dtype=torch.bfloat16, device="meta", requires_grad=True) for heads in (8, 4, 4)
    )
    work = trace_program(attend, (q, k, v), name="test", gpu=H200, mode="train", release=(2, 11)).work()
    beside = [item for item in work if item.op.endswith("attention_backward") and item.kind == "attention"]
    elements = 2 * 8 * 128 * 64
    moved = [(sum(a.bytes for a in item.reads), sum(a.bytes for a in item.writes)) for item in beside]
    assert beside[1].flops is not None
    assert [pair for index, pair in enumerate(moved) if index != 1] == [
        (4 * elements, 2 * 8 * 128 * 4),  # gradient and result: a number a row
        (4 * elements, 2 * elements),  # fp32 sums: bf16
        (2 * elements, elements),  # two heads: one
        (2 * elements, elements),
    ]


@pytest.mark.parametrize("training", [True, False])
def test_the_fast_path_of_transformer_layers_is_said_not_to_be_predicted(training: bool) -> None:
    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).train(training)
        x = torch.empty(2, 16, 64)
    notes = trace_program(layer, (x,), name="layer", gpu=H200).notes
    assert any("fast path" in note for note in notes) is not training
