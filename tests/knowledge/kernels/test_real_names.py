"""The decoder held against names from real traces, and against what launched them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretrace.knowledge.kernels import KINDS, Decoded, decode

DATA = Path(__file__).parents[2] / "data"

# Operators that do one kind of work. Where a library surrounds that work with kernels of another kind, the kinds it may
# show are listed: a convolution may lower to a plain GEMM and moves its operands between memory formats; a GEMM library
# copies an operand it cannot read in place.
JUDGED: list[tuple[str, set[str]]] = [
    ("mm addmm bmm baddbmm mv addmv_ dot _scaled_mm _int_mm _addmm_activation", {"gemm", "copy"}),
    (
        "cudnn_convolution cudnn_convolution_transpose cudnn_convolution_backward_input miopen_convolution "
        "cudnn_convolution_backward_weight convolution_backward _slow_conv2d_forward",
        {"convolution", "gemm", "copy"},
    ),
    (
        "_flash_attention_forward _flash_attention_backward _efficient_attention_forward _efficient_attention_backward",
        {"attention"},
    ),
    (
        "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward native_batch_norm "
        "native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward miopen_batch_norm",
        {"normalization"},
    ),
    ("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data", {"softmax"}),
    (
        "sum mean max min amax amin argmax argmin any all prod var std cumsum max_pool2d_with_indices "
        "max_pool2d_with_indices_backward avg_pool2d linalg_vector_norm",
        {"reduction"},
    ),
    ("copy_ cat _foreach_copy_ clone index", {"copy"}),
    ("topk kthvalue", {"sort"}),
    ("_fused_adam_ _fused_adamw_ _fused_sgd_", {"optimizer"}),
    (
        "add add_ sub mul mul_ div exp log sqrt rsqrt sigmoid tanh gelu silu elu relu clamp clamp_min clamp_min_ pow "
        "cos sin neg eq where masked_fill_ fill_ arange mse_loss mse_loss_backward threshold_backward normal_ "
        "bitwise_not _foreach_add_ upsample_nearest1d digamma lcm",
        {"elementwise"},
    ),
]
OPERATOR_KINDS = {operator: kinds for operators, kinds in JUDGED for operator in operators.split()}
LIBRARY_KINDS = {
    "aiter::rmsnorm": {"normalization"},
    "aiter::add_rmsnorm": {"normalization"},
    "aiter::mha_batch_prefill": {"attention"},
    "aiter::_groupnorm_run": {"normalization"},
    "_C::rms_norm": {"normalization"},
    "_C::fused_add_rms_norm": {"normalization"},
    "_C::rotary_embedding": {"fused"},
    "_C_cache_ops::reshape_and_cache_flash": {"copy"},
    "sgl_kernel::silu_and_mul": {"fused"},
    "sgl_kernel::rotary_embedding": {"fused"},
    "vllm::unified_attention_with_output": {"attention"},
    "record_param_comms": {"communication"},
}


def rows(file: str) -> list[list[str]]:
    lines = (DATA / file).read_text().splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def expected(operator: str) -> set[str] | None:
    if operator in LIBRARY_KINDS:
        return LIBRARY_KINDS[operator]
    return OPERATOR_KINDS.get(operator.removeprefix("aten::")) if operator.startswith("aten::") else None


@pytest.mark.parametrize(
    ("file", "operator_column", "least_judged"), [("kernel_names.tsv", 2, 220), ("kernel_names_h200.tsv", 1, 110)]
)
def test_the_kind_is_right_where_the_operator_decides_it(file: str, operator_column: int, least_judged: int) -> None:
    judged = [(row[0], row[operator_column], kinds) for row in rows(file) if (kinds := expected(row[operator_column]))]
    wrong = [
        (decode(name).kind, operator, name[:90]) for name, operator, kinds in judged if decode(name).kind not in kinds
    ]

    assert len(judged) >= least_judged
    assert len(wrong) <= 0.02 * len(judged), wrong


def test_at_most_three_percent_have_no_kind() -> None:
    names = [row[0] for row in rows("kernel_names.tsv")]
    other = [name for name in names if decode(name).kind == "other"]

    assert len(other) <= 0.03 * len(names), other


def test_kind_and_family_of_every_name_as_reviewed(regolden: bool) -> None:
    got = [[d.kind, d.family, d.short_name] for row in rows("kernel_names.tsv") for d in [decode(row[0])]]

    if regolden:
        golden = DATA / "kernel_names_golden.tsv"
        kept = [line for line in golden.read_text().splitlines() if line.startswith("#")]
        golden.write_text("\n".join(kept + ["\t".join(row) for row in got]) + "\n")
    assert got == rows("kernel_names_golden.tsv")


def test_every_name_decodes_into_the_promised_shape() -> None:
    for file in ("kernel_names.tsv", "kernel_names_h200.tsv"):
        for row in rows(file):
            d = decode(row[0])
            assert isinstance(d, Decoded)
            assert d.name == row[0]
            assert d.kind in KINDS
            assert 0 < len(d.short_name) <= 48
            assert all(isinstance(part, str) for part in d.unknown)


# What a name spells out, found independently of the grammars: a tile, two layout letters, a type.
TILES = (
    re.compile(r"nvjet_\w+?_(\d+x\d+)_\d+x\d+_"),
    re.compile(r"_MT(\d+x\d+)x\d+"),
    re.compile(r"tilesize(\d+x\d+)x\d+"),
    re.compile(r"_bt(\d+x\d+)x\d+"),
    re.compile(r"(?:gemm|cudnn|fprop|dgrad|wgrad)_(?:[a-z0-9]+_)*?(\d+x\d+)_(?!cudnn)"),
)
LAYOUTS = (
    re.compile(r"nvjet_\w+_([NT]{2})[NT]?$"),
    re.compile(r"(?:gemm|cudnn)_\w*?_([nt]{2})(?:_|$)"),
)
TYPES = {"bf16": "bf16", "fp16_s": "fp16", "sgemm": "fp32", "dgemm": "fp64", "gcgemm": "complex64", "BBS": "bf16"}


def test_tile_and_layout_are_decoded_wherever_the_name_holds_them() -> None:
    counted = {"tile": 0, "layout": 0}
    for row in rows("kernel_names.tsv") + rows("kernel_names_h200.tsv"):
        name = row[0].split("(")[0]
        if "::GemmShape" in name or name.startswith("_Z") or "reduction" in name:
            continue
        d = decode(row[0])
        for key, patterns in (("tile", TILES), ("layout", LAYOUTS)):
            spelled = next((found[1] for pattern in patterns if (found := pattern.search(name))), None)
            if spelled and d.kind in ("gemm", "convolution"):
                assert d.decoded.get(key, "").lower() == spelled.lower(), (key, name)
                counted[key] += 1

    assert counted["tile"] > 150
    assert counted["layout"] > 80


def test_a_type_is_decoded_wherever_a_gemm_name_holds_one() -> None:
    gemms = [row[0] for row in rows("kernel_names.tsv") if decode(row[0]).kind == "gemm"]
    for name in gemms:
        head = name.split("(")[0][:60]
        for token, dtype in TYPES.items():
            if (
                token in head
                and not head.startswith(("_matmul", "void gemm", "void magma"))
                and "relu_bf16" not in head
            ):
                found = decode(name).decoded
                assert found.get("dtype") == dtype or found.get("out_dtype") == dtype, name
                break


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def blocks(m: int, n: int, tile_m: int, tile_n: int, along_m: int, along_n: int) -> int:
    """Thread blocks that cover m × n, the tiles of a cluster always launched together."""
    return ceil_div(ceil_div(m, tile_m), along_m) * along_m * ceil_div(ceil_div(n, tile_n), along_n) * along_n


def test_tile_m_and_tile_n_lie_along_torchs_m_and_n() -> None:
    """GEMMs measured on an H200 whose grid fits one orientation of the tile only: the decoded one must be it."""
    families = set()
    for name, *numbers in rows("gemm_grids_h200.tsv"):
        m, n, _k, batch, x, y, z = map(int, numbers)
        d = decode(name)
        tile_m, tile_n = d.decoded["tile_m"], d.decoded["tile_n"]
        assert tile_m != tile_n
        if d.family == "nvjet":
            along_n, along_m = map(int, d.decoded["cluster"].split("x"))
            assert x * y * z == batch * blocks(m, n, tile_m, tile_n, along_m, along_n), name
        else:
            # CUTLASS folds the grid: `fold` neighbouring rows of tiles lie along x (threadblock swizzle).
            rows_of_tiles, columns = ceil_div(m, tile_m), ceil_div(n, tile_n)
            folded = {
                (a * fold, ceil_div(b, fold))
                for a, b in ((rows_of_tiles, columns), (columns, rows_of_tiles))
                for fold in (1, 2, 4, 8, 16)
            }
            assert (x, y) in folded, name
        families.add(d.family)

    assert families == {"nvjet", "cutlass", "xmma"}
