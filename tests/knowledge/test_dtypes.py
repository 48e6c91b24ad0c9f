"""Every spelling of an element type, against torch where torch knows it."""

from __future__ import annotations

import itertools

import pytest
import torch

from foretrace.knowledge import dtypes
from foretrace.knowledge.dtypes import dtype, from_code, is_tensor_list, itemsize, promote


@pytest.mark.parametrize(
    ("spelling", "size"),
    [
        ("c10::BFloat16", 2), ("c10::Half", 2), ("float", 4), ("double", 8), ("int", 4), ("long", 8),
        ("long int", 8), ("short", 2), ("bool", 1), ("unsigned char", 1), ("signed char", 1),
        ("c10::Float8_e4m3fn", 1), ("c10::complex<float>", 8), ("torch.bfloat16", 2), ("bfloat16", 2),
        ("bf16", 2), ("FP16", 2), ("*bf16", 2), ("*fp32", 4), ("at::BFloat16", 2), ("i64", 8),
    ],
)  # fmt: skip
def test_spellings(spelling: str, size: int) -> None:
    assert itemsize(spelling) == size


@pytest.mark.parametrize("spelling", ["Scalar", "ScalarList", "TensorList", "GenericList", "", "Tensor", None, 3])
def test_what_is_no_element_type(spelling: object) -> None:
    assert dtype(spelling) is None
    assert itemsize(spelling) is None


def test_lists_of_tensors() -> None:
    assert is_tensor_list("TensorList")
    assert is_tensor_list("GenericList[TensorList]")
    assert not is_tensor_list("ScalarList")
    assert not is_tensor_list(None)


def test_sizes_are_torchs() -> None:
    for entry in dtypes._TABLE:
        found = getattr(torch, entry.torch, None)
        if found is not None:
            assert entry.itemsize == found.itemsize, entry.name


def test_codes_are_those_the_profiler_writes() -> None:
    x = torch.zeros(3)
    wanted = [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool, torch.uint8,
              torch.int8, torch.int16, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]  # fmt: skip
    with torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for kind in wanted:
            x.to(kind)
    codes = [e.concrete_inputs[1] for e in prof.events() if e.name == "aten::_to_copy"]
    found = [from_code(code) for code in codes]
    assert [None if d is None else d.torch for d in found] == [str(k).removeprefix("torch.") for k in wanted]


def test_a_code_that_is_none() -> None:
    assert from_code("") is None
    assert from_code("True") is None
    assert from_code(999) is None
    assert from_code(None) is None


NAMES = ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations_with_replacement(NAMES, 2)))
def test_promotion_is_torchs(left: str, right: str) -> None:
    a, b = dtype(left), dtype(right)
    assert a is not None
    assert b is not None
    expected = torch.promote_types(getattr(torch, left), getattr(torch, right))
    for operands in ([(a, 1), (b, 1)], [(b, 1), (a, 1)]):
        found = promote(operands)
        assert found is not None
        assert found.torch == str(expected).removeprefix("torch.")


@pytest.mark.parametrize(
    ("tensor", "number", "expected"),
    [
        ("bf16", "fp64", "bf16"),  # x * 2.0
        ("int64", "fp64", "fp32"),  # an integer tensor times a Python float
        ("bool", "int64", "int64"),
        ("int8", "int64", "int8"),
        ("fp16", "complex128", "complex64"),
    ],
)
def test_python_numbers_only_raise_the_kind(tensor: str, number: str, expected: str) -> None:
    t, n = dtype(tensor), dtype(number)
    assert t is not None
    assert n is not None
    found = promote([(t, 2), (n, 0)])
    assert found is not None
    assert found.name == expected


def test_no_operands() -> None:
    assert promote([]) is None
