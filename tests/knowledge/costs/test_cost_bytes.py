"""Bytes: for most operators the definition itself is the oracle, evaluated on tensors by brute force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses

from foretrace.knowledge.costs import op_cost

BF16 = "c10::BFloat16"
GEGLU = [64, 128, 3072]  # the intermediate of the sample MLP, 50.3 MB in bf16
A = torch.randn(4, 6)
H = A.bfloat16()
INTS = torch.arange(15).reshape(3, 5)
MASK = A > 0


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size)


# Every input read once, every result written once: (program, operator).
TOUCH_EVERYTHING: dict[str, tuple[Callable[[], Any], str]] = {
    "gelu": (lambda: F.gelu(H), "gelu"),
    "two types": (lambda: A + H, "add"),
    "a number": (lambda: A * 2.0, "mul"),
    "an integer tensor and a number": (lambda: INTS * 2.5, "mul"),
    "true division of integers": (lambda: INTS / 2, "div"),
    "comparison": (lambda: A > 0.5, "gt"),
    "broadcast": (lambda: randn(4, 1) + randn(1, 6), "add"),
    "expanded operand": (lambda: randn(4, 1).expand(4, 6) + A, "add"),
    "transposed operand": (lambda: A.t() + randn(6, 4), "add"),
    "overlapping windows": (lambda: torch.arange(9.0).unfold(0, 3, 1) * 2.0, "mul"),
    "where": (lambda: torch.where(MASK, A, H), "where"),
    "masked_fill": (lambda: A.masked_fill(MASK, 0.0), "masked_fill"),
    "clamp by numbers": (lambda: A.clamp(0, 1), "clamp"),
    "clamp by tensors": (lambda: torch.clamp(A, randn(6), randn(4, 6)), "clamp"),
    "logical": (lambda: torch.logical_and(MASK, MASK), "logical_and"),
    "not": (lambda: ~MASK, "bitwise_not"),
    "isnan": (lambda: A.isnan(), "isnan"),
    "power": (lambda: A**2, "pow"),
    "integer power": (lambda: INTS**2, "pow"),
    "1 - x": (lambda: 1 - A, "rsub"),
    "lerp": (lambda: torch.lerp(A, randn(4, 6), 0.5), "lerp"),
    "addcmul": (lambda: torch.addcmul(A, randn(4, 6), randn(6)), "addcmul"),
    "glu": (lambda: F.glu(A), "glu"),
    "tril": (lambda: A.tril(), "tril"),
    "dropout": (lambda: torch.native_dropout(A, 0.5, True), "native_dropout"),
    "sum": (lambda: A.sum(), "sum"),
    "sum of a dim": (lambda: A.sum(-1), "sum"),
    "sum into another type": (lambda: H.sum(0, dtype=torch.float32), "sum"),
    "sum of integers": (lambda: MASK.sum(0), "sum"),
    "mean": (lambda: A.mean(1, keepdim=True), "mean"),
    "amax": (lambda: A.amax((0, 1)), "amax"),
    "max": (lambda: A.max(), "max"),
    "max of a dim": (lambda: A.max(1), "max"),
    "maximum of two": (lambda: torch.maximum(A, randn(6)), "maximum"),
    "argmax": (lambda: A.argmax(-1), "argmax"),
    "var": (lambda: A.var(1), "var"),
    "var_mean": (lambda: torch.var_mean(A, 1), "var_mean"),
    "any": (lambda: MASK.any(), "any"),
    "all": (lambda: MASK.all(1), "all"),
    "norm": (lambda: torch.linalg.vector_norm(A, 2, dim=1), "linalg_vector_norm"),
    "logsumexp": (lambda: A.logsumexp(1), "logsumexp"),
    "softmax": (lambda: A.softmax(-1), "_softmax"),
    "log_softmax": (lambda: H.log_softmax(-1), "_log_softmax"),
    "cumsum": (lambda: A.cumsum(0), "cumsum"),
    "cumsum of integers": (lambda: MASK.cumsum(0), "cumsum"),
    "sort": (lambda: A.sort(), "sort"),
    "topk": (lambda: A.topk(2), "topk"),
    "mse": (lambda: F.mse_loss(A, randn(4, 6)), "mse_loss"),
    "layer norm": (lambda: F.layer_norm(A, (6,), randn(6), randn(6)), "native_layer_norm"),
    "group norm": (lambda: F.group_norm(randn(2, 4, 3, 3), 2, randn(4), randn(4)), "native_group_norm"),
    "clone": (lambda: A.clone(), "clone"),
    "conversion": (lambda: A.to(torch.bfloat16), "_to_copy"),
    "arange": (lambda: torch.arange(2, 20, 3), "arange"),
    "arange of floats": (lambda: torch.arange(0.0, 1.0, 0.25), "arange"),
    "flip": (lambda: A.flip(0), "flip"),
    "repeat": (lambda: A.repeat(2, 3), "repeat"),
    "max pool": (lambda: F.max_pool2d(randn(1, 2, 9, 9), 3, 2, 1), "max_pool2d_with_indices"),
    "max pool, ceil": (lambda: F.max_pool2d(randn(1, 2, 8, 8), 3, 2, ceil_mode=True), "max_pool2d_with_indices"),
    "average pool": (lambda: F.avg_pool2d(randn(1, 2, 9, 9), 3, 2, 1), "avg_pool2d"),
    "adaptive pool": (lambda: F.adaptive_avg_pool2d(randn(1, 2, 9, 9), (3, 3)), "_adaptive_avg_pool2d"),
    "upsampling": (lambda: F.interpolate(randn(1, 2, 4, 4), size=(8, 8)), "upsample_nearest2d"),
}


@pytest.mark.parametrize("name", TOUCH_EVERYTHING)
def test_all_operands_are_touched_once(name: str, one_row: Any) -> None:
    program, op = TOUCH_EVERYTHING[name]
    row = one_row(program, f"aten::{op}")
    assert row.cost.bytes == row.bytes_touched, row.cost.reason
    assert row.cost.flops is None  # pointwise work is not counted


BACKWARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu_backward": F.gelu,
    "silu_backward": F.silu,
    "threshold_backward": F.relu,
    "tanh_backward": torch.tanh,
    "sigmoid_backward": torch.sigmoid,
    "elu_backward": F.elu,
    "glu_backward": F.glu,
    "leaky_relu_backward": F.leaky_relu,
    "hardswish_backward": F.hardswish,
    "mish_backward": F.mish,
    "softplus_backward": F.softplus,
    "_softmax_backward_data": lambda x: x.softmax(-1),
    "_log_softmax_backward_data": lambda x: x.log_softmax(-1),
    "mse_loss_backward": lambda x: F.mse_loss(x, torch.zeros(4, 6), reduction="none"),
}


@pytest.mark.parametrize("op", BACKWARD)
def test_gradients_are_touched_once(op: str, one_row: Any) -> None:
    x = torch.randn(4, 6, requires_grad=True)
    y = BACKWARD[op](x)
    gradient = torch.randn_like(y)
    row = one_row(lambda: torch.autograd.grad(y, x, gradient), f"aten::{op}")
    assert row.cost.bytes == row.bytes_touched, row.cost.reason


def test_layer_norm_backward_reads_the_weight_but_not_the_bias(one_row: Any) -> None:
    x, w, b = (torch.randn(*s, requires_grad=True) for s in ((4, 6), (6,), (6,)))
    y = F.layer_norm(x, (6,), w, b)
    gradient = torch.randn_like(y)
    row = one_row(lambda: torch.autograd.grad(y, (x, w, b), gradient), "aten::native_layer_norm_backward")
    assert row.cost.bytes == row.bytes_touched - 6 * 4


def test_statistics_of_16_bit_inputs_are_fp32() -> None:
    cost = op_cost(
        "aten::native_layer_norm",
        shapes=[[4, 197, 768], [], [768], [768], []],
        dtypes=[BF16, "ScalarList", BF16, BF16, "Scalar"],
        concrete=["", "[768]", "", "", "1e-12"],
    )
    assert cost.bytes == 2 * (2 * 4 * 197 * 768 + 2 * 768) + 2 * 4 * (4 * 197)


def test_batch_norm_in_training_also_updates_its_running_statistics(one_row: Any) -> None:
    def norm(training: bool) -> Any:
        x = randn(2, 4, 3, 3)
        return lambda: F.batch_norm(x, randn(4), randn(4), randn(4), randn(4), training=training)

    training = one_row(norm(True), "aten::native_batch_norm")
    assert training.cost.bytes == training.bytes_touched + 2 * 4 * 4
    evaluation = one_row(norm(False), "aten::native_batch_norm")
    assert evaluation.cost.bytes == evaluation.bytes_touched


def test_the_pointwise_half_of_the_geglu_mlp() -> None:
    intermediate = 64 * 128 * 3072 * 2  # 50.3 MB
    gelu = op_cost("aten::gelu", shapes=[GEGLU, []], dtypes=[BF16, ""])
    mul = op_cost("aten::mul", shapes=[GEGLU, GEGLU], dtypes=[BF16, BF16])
    backward = op_cost("aten::gelu_backward", shapes=[GEGLU, GEGLU, []], dtypes=[BF16, BF16, ""])
    assert intermediate == 50_331_648
    assert gelu.bytes == 2 * intermediate
    assert mul.bytes == 3 * intermediate
    assert backward.bytes == 3 * intermediate


def test_in_place_operators_read_and_write_their_first_operand() -> None:
    add = op_cost("aten::add_", shapes=[[8, 8], [8], []], dtypes=["float", "float", "Scalar"])
    assert add.bytes == 4 * (64 + 8 + 64)


def test_copies_and_fills_do_not_read_what_they_overwrite() -> None:
    copy = op_cost("aten::copy_", shapes=[[8, 8], [8, 8], []], dtypes=[BF16, "float", "Scalar"])
    assert copy.bytes == 64 * 2 + 64 * 4
    assert op_cost("aten::zero_", shapes=[[8, 8]], dtypes=["float"]).bytes == 256
    assert op_cost("aten::fill_", shapes=[[8, 8], []], dtypes=["float", "Scalar"]).bytes == 256
    assert op_cost("aten::normal_", shapes=[[8, 8], [], []], dtypes=["float", "", ""]).bytes == 256


def test_an_out_operand_is_written_not_read() -> None:
    # mul.out(self, number, out): DistributedDataParallel scales gradients into its buckets this way
    cost = op_cost("aten::mul", shapes=[[8, 8], [], [8, 8]], dtypes=[BF16, "double", BF16])
    assert cost.bytes == 2 * 64 + 8 + 2 * 64


def test_lookups_read_rows_not_tables() -> None:
    embedding = op_cost("aten::embedding", shapes=[[32000, 1024], [4, 8], []], dtypes=[BF16, "long int", "Scalar"])
    assert embedding.bytes == 32 * 8 + 2 * 32 * 1024 * 2
    # more lookups than rows: the table is read once at most
    small = op_cost("aten::embedding", shapes=[[2, 16], [100]], dtypes=["float", "long int"])
    assert small.bytes == 2 * 16 * 4 + 100 * 8 + 100 * 16 * 4
    select = op_cost(
        "aten::index_select", shapes=[[100, 4], [], [7]], dtypes=["float", "Scalar", "int"], concrete=["", "0", ""]
    )
    assert select.bytes == 2 * 7 * 4 * 4 + 7 * 4
    gather = op_cost("aten::gather", shapes=[[100, 4], [], [7, 1]], dtypes=["float", "Scalar", "long int"])
    assert gather.bytes == 2 * 7 * 4 + 7 * 8


def test_scatters_touch_only_what_they_change() -> None:
    add = op_cost("aten::scatter_add_", shapes=[[1000], [], [7], [7]], dtypes=["float", "Scalar", "long", "float"])
    assert add.bytes == 7 * 8 + 7 * 4 + 2 * 7 * 4


def test_loss_over_a_vocabulary_reads_one_value_a_target() -> None:
    cost = op_cost(
        "aten::nll_loss_forward",
        shapes=[[4096, 8192], [4096], [], [], []],
        dtypes=["float", "long int", "", "Scalar", "Scalar"],
        concrete=["", "", "", "1", "-100"],
    )
    assert cost.bytes == 4096 * 8 + 4096 * 4 + 2 * 4


def test_lists_of_tensors_need_their_element_size_from_elsewhere() -> None:
    shapes: list[Any] = [[[32, 64], [32, 64]], []]
    unknown = op_cost("aten::cat", shapes=shapes, dtypes=["TensorList", "Scalar"])
    assert unknown.bytes is None
    assert unknown.reason is not None
    assert "element type" in unknown.reason
    known = op_cost("aten::cat", shapes=shapes, dtypes=["TensorList", "Scalar"], list_itemsize=2)
    assert known.bytes == 2 * 2 * 2 * 32 * 64


def test_fused_adamw_reads_four_lists_and_writes_three() -> None:
    parameters = [[10, 10], [5]]
    cost = op_cost(
        "aten::_fused_adamw_",
        shapes=[parameters, parameters, parameters, parameters, [], [[], []], [], []],
        dtypes=["TensorList"] * 6 + ["Scalar", "Scalar"],
        list_itemsize=4,
    )
    assert cost.bytes == 7 * 105 * 4


def test_foreach_in_place_and_copies() -> None:
    shapes: list[Any] = [[[10], [5]], [[10], [5]], []]
    kinds = ["TensorList", "TensorList", "Scalar"]
    assert op_cost("aten::_foreach_add_", shapes=shapes, dtypes=kinds, list_itemsize=2).bytes == 3 * 15 * 2
    assert op_cost("aten::_foreach_copy_", shapes=shapes, dtypes=kinds, list_itemsize=2).bytes == 2 * 15 * 2


def test_members_of_long_lists_are_not_recorded() -> None:
    cost = op_cost("aten::_foreach_mul_", shapes=[[], []], dtypes=["TensorList", "Scalar"], list_itemsize=4)
    assert cost.bytes is None
    assert cost.reason is not None
    assert "long tensor list" in cost.reason


def test_old_traces_without_concrete_arguments() -> None:
    # the dims of the sum are not in the file, so neither is the size of its result
    cost = op_cost("aten::sum", shapes=[[4, 6], [], []], dtypes=["float", "", "Scalar"])
    assert cost.bytes is None
    assert cost.reason


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("aten::t", "view"),
        ("aten::empty", "moves no data"),
        ("aten::cross_entropy_loss", "made of other operators"),
        ("MmBackward0", "backward graph"),
        ("autograd::engine::evaluate_function: MulBackward0", "backward graph"),
        ("c10d::allreduce_", "communicates"),
        ("mylib::rotary_embedding", "no cost formula"),
    ],
)
def test_operators_without_a_cost_say_why(op: str, words: str) -> None:
    cost = op_cost(op, shapes=[[8, 8]], dtypes=["float"])
    assert (cost.flops, cost.bytes) == (None, None)
    assert cost.reason is not None
    assert words in cost.reason
