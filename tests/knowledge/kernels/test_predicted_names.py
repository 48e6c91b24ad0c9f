"""foretrace's own kernel names: every field comes back as it went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.kernels import KINDS, decode, describe
from foretrace.knowledge.kernels.predicted import spell


def test_a_gemm():
    name = spell("gemm", dtype="bf16", layout="TN", tile="128x256", stages=4, splitk=True, epilogue=["bias", "gelu"])
    assert name == "predicted::gemm<dtype=bf16, layout=TN, tile=128x256, stages=4, splitk=yes, epilogue=bias+gelu>"
    found = decode(name)
    assert (found.kind, found.family, found.unknown) == ("gemm", "predicted", [])
    assert found.decoded == {
        "dtype": "bf16",
        "layout": "TN",
        "tile": "128x256",
        "stages": 4,
        "splitk": True,
        "epilogue": ["bias", "gelu"],
    }
    assert found.short_name == "predicted gemm bf16 TN 128x256 bias·gelu"


def test_a_fused_kernel_names_its_operators():
    found = decode(spell("fused", dtype="bf16", ops=("gelu", "mul")))
    assert found.decoded["ops"] == ["gelu", "mul"]
    assert "operators gelu, mul" in describe(found)


def test_a_helper_kernel_says_its_role():
    assert decode(spell("reduction", role="split-K reduction")).decoded == {"role": "split-K reduction"}


def test_what_is_unknown_or_empty_is_left_out():
    assert spell("copy", dtype=None, ops=(), splitk=False) == "predicted::copy"
    assert decode("predicted::copy").kind == "copy"


@given(
    st.sampled_from(KINDS),
    st.fixed_dictionaries(
        {},
        optional={
            "dtype": st.sampled_from(["bf16", "fp32", "tf32", "fp8_e4m3"]),
            "layout": st.sampled_from(["TN", "NN", "NT"]),
            "tile": st.from_regex(r"[1-9]\d{0,2}x[1-9]\d{0,2}", fullmatch=True),
            "stages": st.integers(1, 12),
            "ops": st.lists(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), min_size=1, max_size=4),
        },
    ),
)
def test_every_name_reads_back(kind, fields):
    found = decode(spell(kind, **fields))
    assert (found.kind, found.decoded, found.unknown) == (kind, fields, [])
    assert len(found.short_name) <= 48


@pytest.mark.parametrize("bad", [{"colour": "red"}, {"dtype": "a, b"}, {"tile": "<1>"}])
def test_what_could_not_be_read_is_not_written(bad):
    with pytest.raises(ValueError, match="name"):
        spell("gemm", **bad)
    with pytest.raises(ValueError, match="no kernel kind"):
        spell("matmul")


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("predicted::gemm<bf16>", ["bf16"]),
        ("predicted::gemm<dtype=bf16, colour=red>", ["colour=red"]),
        ("predicted::matmul", ["matmul"]),
        ("predicted::gemm<", ["gemm<"]),
    ],
)
def test_a_part_that_is_not_understood_is_said(name, unknown):
    assert decode(name).unknown == unknown
