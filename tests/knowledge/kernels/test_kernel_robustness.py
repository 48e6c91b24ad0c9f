"""Any text is a kernel name: the decoder never raises, is deterministic, and takes time linear in the length."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.kernels import KINDS, decode, describe
from foretrace.knowledge.kernels.cpp import parse, split_arguments
from foretrace.knowledge.kernels.triton import split_operators

# Pieces of real names, so that random names reach deep into the grammars.
_PIECES = """
void |at::native::|(anonymous namespace)::|vectorized_elementwise_kernel<|4, |float|c10::BFloat16|> >|(|)|<|>|
,| |{lambda(|)#1}|::operator()() const|reduce_kernel<512, 1, |ReduceOp<|func_wrapper_t<|triton_|poi_fused_|
tem_|mm|_17|__|_unsafe_view|_gelu|_mul|nvjet_|sm90_|tst_|256x128|_64x4|_TNT|cutlass|_80_|tensorop_|s16816gemm|
_align8|Cijk_|Ailk_|Bljk_|BBS_|MT16x16x32_|_ZN|3foo|I|E|sm80_xmma_|gemm_|bf16bf16_|tilesize64x64x64|nccl|
DevKernel_|AllReduce_|Sum_|fmha|Sm100aKernel_|Qkv|flash::|flash_fwd_kernel<|Flash_fwd_kernel_traits<64, |
cudnn|::|volta_|scudnn_|128x64|_nn|Memcpy |HtoD |(Pageable -> Device)|igemm_fwd_|gtcx3_|ck::|cub::Device|->|
operator<|_0d1d2de|
"""
PIECES = st.sampled_from([piece for line in _PIECES.splitlines() for piece in line.split("|") if piece])


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)))
def test_any_text_decodes(name: str) -> None:
    d = decode(name)
    decode.cache_clear()

    assert d == decode(name)
    assert d.name == name
    assert d.kind in KINDS
    assert 0 < len(d.short_name) <= 48
    assert describe(d)
    msgspec.json.encode(d.decoded)


@pytest.mark.parametrize(
    "piece",
    ["<", "(", "_kernel_cuda", "triton_poi_fused_", "_add", "{lambda(", "_ZN3foo", "cutlass_80_", "1x1_", "::a<b, ",
     "ncclKernel_", "persistent_mm", "C<1>, ", "_0d"],
)  # fmt: skip
def test_a_hundred_thousand_characters_take_no_longer_than_a_blink(piece: str) -> None:
    for prefix in (
        "",
        "void at::native::vectorized_elementwise_kernel<4, ",
        "triton_poi_fused_",
        "void cutlass::device_kernel<",
    ):
        name = prefix + piece * (100_000 // len(piece)) + "!"
        start = time.process_time()
        decode(name)
        assert time.process_time() - start < 1.0, (prefix, piece)


def test_a_name_cut_anywhere_keeps_its_kind_once_the_head_is_there() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel("
        "at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >"
    )
    for length in range(name.index("silu_kernel"), len(name)):
        assert decode(name[:length]).kind == "elementwise"


@given(st.text(alphabet="<>(){}[], :ab-"))
def test_parsing_cpp_loses_no_argument(text: str) -> None:
    parse(text)
    assert "".join("".join(split_arguments(text)).split()).count("a") == text.count("a")


def test_operators_are_split_by_their_names() -> None:
    assert split_operators("_to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view") == (
        ["_to_copy", "add", "addmm", "mean", "mul", "pow", "rsqrt", "transpose", "view"],
        [],
    )
    assert split_operators("max_pool2d_with_indices_backward_native_batch_norm_backward")[0] == [
        "max_pool2d_with_indices_backward",
        "native_batch_norm_backward",
    ]
    assert split_operators("frob_nicate_add") == (["add"], ["frob_nicate"])
    assert split_operators("") == ([], [])


def test_importing_the_decoder_loads_nothing_heavy() -> None:
    code = (
        "import sys, foretrace.knowledge.kernels as k; k.decode('_Z3fooi'); k.decode('triton_poi_fused_add_0');"
        "print([m for m in ('numpy', 'rich', 'torch', 'polars') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
