"""The tables behind predicted kernels, at numbers seen in traces of an H200."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge import gpus
from foretrace.knowledge.lowering.attention import AttentionCall, choose_attention
from foretrace.knowledge.lowering.eager import layer_norm_kernels, multi_tensor_launches
from foretrace.knowledge.lowering.inductor import is_persistent, keeps_half_addmm, mixes_orders, split_factor
from foretrace.knowledge.lowering.reductions import Reduction, shares_results

H200 = gpus.find("H200")


def llama(layers: int, vocabulary: int, hidden: int) -> list[int]:
    """Element counts of the parameters of a Llama-like model of width 1024 with 512 for keys and values."""
    layer = [1024 * 1024, 512 * 1024, 512 * 1024, 1024 * 1024, *[hidden * 1024] * 3, 1024, 1024]
    return [vocabulary * 1024, *layer * layers, 1024, vocabulary * 1024]


@pytest.mark.parametrize("lists", [1, 2, 3])
def test_an_adamw_step_of_twelve_layers_takes_thirteen_launches_an_operator(lists: int) -> None:
    assert len(list(multi_tensor_launches(llama(12, 32000, 4096), lists))) == 13


def test_the_fused_adamw_of_four_layers_takes_four_launches() -> None:
    assert len(list(multi_tensor_launches(llama(4, 8192, 2816), 4, scalars=True))) == 4


@given(st.lists(st.integers(0, 10**7), max_size=200), st.integers(1, 5), st.booleans())
def test_every_element_is_in_one_launch(sizes: list[int], lists: int, scalars: bool) -> None:
    seen = [0] * len(sizes)
    for launch in multi_tensor_launches(sizes, lists, scalars=scalars):
        assert launch
        for index, part in launch:
            seen[index] += part
    assert seen == sizes


@pytest.mark.parametrize(
    ("shape", "shared"),
    [
        (Reduction(outputs=1, inputs=6291456, inner=True, contiguous=True, flat=True), True),
        (Reduction(outputs=1024, inputs=4096, inner=False, contiguous=True, flat=False), True),
        (Reduction(outputs=4096, inputs=1024, inner=True, contiguous=True, flat=False), False),
        (Reduction(outputs=1, inputs=512, inner=True, contiguous=True, flat=True), False),
    ],
)
def test_blocks_share_a_result_where_there_are_few_and_long_ones(shape: Reduction, shared: bool) -> None:
    assert shares_results(shape, H200) is shared
    assert shares_results(shape, None) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.booleans())
def test_a_reduction_is_never_cut_into_more_parts_than_it_has_elements(outputs: int, length: int, inner: bool) -> None:
    assert 1 <= split_factor(outputs, length, H200, inner=inner) <= length


def test_long_sums_are_cut_and_many_rows_are_not() -> None:
    assert split_factor(3072, 8192, H200, inner=False) > 1
    assert split_factor(8192, 3072, H200, inner=True) == 1


def test_rows_of_a_thousand_stay_in_registers() -> None:
    assert is_persistent(1024, inner=True)
    assert not is_persistent(1025, inner=True)
    assert not is_persistent(128, inner=False)


def test_what_depends_on_the_release_of_torch() -> None:
    assert not keeps_half_addmm((2, 11))
    assert keeps_half_addmm((2, 13))
    assert mixes_orders(8192, 1024, (2, 11))
    assert not mixes_orders(8192, 1024, (2, 4))
    assert not mixes_orders(2048, 1024, (2, 11))


def test_a_layer_norm_of_odd_rows_takes_two_kernels() -> None:
    assert layer_norm_kernels(768, "bf16") == 1
    assert layer_norm_kernels(770, "bf16") == 2
    assert layer_norm_kernels(768, "fp64") == 2


@pytest.mark.parametrize(
    ("change", "capability", "release", "chosen"),
    [
        ({}, "9.0", (2, 11), "cudnn"),
        ({}, "9.0", (2, 5), "flash"),
        ({}, "8.0", (2, 11), "flash"),
        ({"mask": True}, "8.0", (2, 11), "efficient"),
        ({"dtype": "fp32"}, "9.0", (2, 11), "efficient"),
        ({"dtype": "fp64"}, "9.0", (2, 11), "math"),
        ({"head": 256}, "9.0", (2, 11), "flash"),
        ({"rows_contiguous": False}, "9.0", (2, 11), "math"),
    ],
)
def test_attention_backends(change: dict[str, object], capability: str, release: tuple[int, int], chosen: str) -> None:
    facts: dict[str, object] = {
        "dtype": "bf16",
        "head": 64,
        "mask": False,
        "dropout": False,
        "rows_contiguous": True,
        "same_head": True,
    }
    call = AttentionCall(**{**facts, **change})  # type: ignore[arg-type]
    assert choose_attention(call, capability, release) == (chosen, None)
