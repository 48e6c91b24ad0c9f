"""Compiled programs: what Inductor fuses, and the rows around it.

The counts and names were compared with Inductor's own code generation for an H200 and with captures on one.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import Attention, Gated, Mlp, Residual, rows, short, traced  # noqa: E402


def compiled(make: Any, *shape: int, **more: Any) -> list[str]:
    return [short(item) for item in traced(make, *shape, variant="compile", **more).work()]


def test_the_activation_and_the_product_with_it_are_one_kernel() -> None:
    program = traced(Gated, 64, 128, 768, variant="compile")
    gate, up, fused, down = program.work()
    assert [gate.kind, up.kind, down.kind] == ["gemm"] * 3
    assert fused.op == "triton_poi_fused__unsafe_view_gelu_mul_0"
    assert (fused.kind, fused.generated, fused.elements) == ("fused", True, 8192 * 3072)
    assert {access.storage for access in fused.reads} == {gate.writes[0].storage, up.writes[0].storage}
    assert [access.bytes for access in fused.writes] == [8192 * 3072 * 2]
    assert down.reads[0].storage == fused.writes[0].storage


def test_the_rows_around_a_compiled_graph_are_those_of_a_trace() -> None:
    names = [node.name for _, node in rows(traced(Gated, 64, 128, 768, variant="compile"))]
    assert "TorchDynamo Cache Lookup" in names
    assert any(name.startswith("## Call CompiledFxGraph") for name in names)
    assert "aten::gelu" not in names


def test_a_linear_has_nothing_to_fuse() -> None:
    (gemm,) = traced(lambda: torch.nn.Linear(32, 64), 1024, 32, variant="compile").work()
    assert gemm.op == "aten::addmm"
    assert gemm.product is not None
    assert gemm.product.bias


def test_torch_2_11_takes_a_bias_out_of_the_product_for_the_activation_to_add() -> None:
    assert compiled(Mlp, 8, 1024, 1024) == ["gemm mm", "triton_poi_fused_addmm_gelu_view", "gemm addmm"]


def test_torch_2_13_leaves_a_16_bit_bias_where_it_is() -> None:
    found = compiled(Mlp, 8, 1024, 1024, release=(2, 13))
    assert found == ["gemm addmm", "triton_poi_fused_gelu_view", "gemm addmm"]
    found = compiled(Mlp, 8, 1024, 1024, release=(2, 13), dtype=torch.float32)
    assert found[0] == "gemm mm"


def test_backward_of_a_gated_mlp() -> None:
    assert compiled(Gated, 64, 128, 768, mode="train")[4:] == [
        "memset sum",
        "reduction sum",
        "elementwise fill_",
        "copy copy_",
        "gemm mm",
        "gemm mm",
        "triton_poi_fused__unsafe_view_gelu_gelu_backward_mul_view",
        "gemm mm",
        "gemm mm",
        "gemm mm",
        "gemm mm",
        "triton_poi_fused_add_view",
    ]


def test_in_two_dimensions_the_sum_of_two_products_is_left_to_the_library() -> None:
    assert compiled(Gated, 4096, 768, mode="train")[-2:] == ["memcpy copy_", "gemm addmm"]


def test_the_gradient_of_a_bias_is_a_sum_in_two_kernels() -> None:
    found = traced(lambda: torch.nn.Linear(1024, 4096), 1024, 1024, mode="train", variant="compile").work()
    first, second = (item for item in found if item.generated)
    assert (short(first), short(second)) == ("triton_red_fused_sum", "triton_per_fused_sum")
    assert second.reads[0].storage == first.writes[0].storage
    assert second.writes[0].bytes == 4096 * 2


def test_a_short_sum_along_columns_joins_the_code_that_makes_the_matrix() -> None:
    # 64 rows are summed by one kernel, whose loops the pointwise code before it follows.
    found = compiled(lambda: Gated(512, 2048, bias=True), 64, 512, mode="train", dtype=torch.float32)
    assert [name for name in found if name.startswith("triton")][-2:] == [
        "triton_per_fused_sum",
        "triton_per_fused_gelu_gelu_backward_mul_sum",
    ]


def test_a_norm_is_one_kernel_and_the_residual_another() -> None:
    assert compiled(Residual, 8, 1024, 1024) == [
        "triton_per_fused_native_layer_norm",
        "gemm mm",
        "triton_poi_fused_add_addmm_view",
    ]


def test_backward_of_a_norm_sums_rows_and_columns_in_one_kernel_where_the_matrix_is_large() -> None:
    found = compiled(Residual, 8, 1024, 1024, mode="train")
    at = found.index("triton_per_fused_add_native_layer_norm_native_layer_norm_backward_view")
    assert found[at + 1 : at + 3] == ["reduction sum", "reduction sum"]
    small = compiled(Residual, 512, 1024, mode="train")
    assert "triton_per_fused_add_native_layer_norm_native_layer_norm_backward" in small
    assert small.count("reduction sum") == 1  # that of the loss


def test_attention_stays_a_library_call() -> None:
    assert compiled(Attention, 8, 1024, 1024) == [
        "gemm mm",
        "memset _cudnn_attention_forward",
        "attention _cudnn_attention_forward",
        "gemm mm",
    ]


def test_the_same_code_twice_is_one_kernel_by_name() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Gated(512, 2048) for _ in range(2))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    found = [item.op for item in traced(Twice, 64, 128, 512, variant="compile").work() if item.generated]
    assert len(found) == 2
    assert len(set(found)) == 1


def test_both_halves_of_a_split_buffer_are_read() -> None:
    class Split(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            gate, up = x.chunk(2, -1)
            return torch.nn.functional.silu(gate) * up

    (fused,) = traced(Split, 64, 128, variant="compile").work()
    assert [access.bytes for access in fused.reads] == [64 * 128 * 2]
    assert [access.bytes for access in fused.writes] == [64 * 64 * 2]


def test_graph_breaks_are_told() -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.sin() * 2
            torch._dynamo.graph_break()
            return (y.cos() + 1).relu()

    program = traced(Broken, 64, 128, variant="compile")
    assert [short(item) for item in program.work()] == ["triton_poi_fused_mul_sin", "triton_poi_fused_add_cos_relu"]
    assert any("graph break" in note for note in program.notes)
