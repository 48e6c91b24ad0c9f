"""Element types: every spelling a trace, a driver or a user writes, and what one element weighs.

Kineto writes the C++ type name into ``Input type`` (``c10::BFloat16``, ``long int``), torch's own spelling
is ``torch.bfloat16``, Triton's is ``*bf16``, and a scalar argument such as ``dtype=`` appears among the
``Concrete Inputs`` as the number of the ``ScalarType`` enumerator. Sources: ``c10/core/ScalarType.h``
(names, sizes and numbers) and ``c10/util/typeid.cpp`` (C++ spellings; both ``long`` and ``long int`` occur,
depending on the compiler).
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Dtype", "dtype", "from_code", "is_tensor_list", "itemsize", "promote"]

Kind = Literal["bool", "int", "float", "complex"]


class Dtype(msgspec.Struct, frozen=True):
    """One element type.

    ``name`` is the short name used throughout foretrace (``bf16``, ``fp32``, ``int64``), ``torch`` torch's
    attribute name, ``itemsize`` bytes an element, ``code`` the ``ScalarType`` number, ``None`` where it has
    none.
    """

    name: str
    torch: str
    itemsize: int
    kind: Kind
    code: int | None
    spellings: tuple[str, ...] = ()


# Sub-byte types are stored two to a byte: ``float4_e2m1fn_x2`` is one byte that holds two values.
_TABLE = (
    Dtype("uint8", "uint8", 1, "int", 0, ("unsigned char", "u8")),
    Dtype("int8", "int8", 1, "int", 1, ("signed char", "char", "i8")),
    Dtype("int16", "int16", 2, "int", 2, ("short", "short int", "i16")),
    Dtype("int32", "int32", 4, "int", 3, ("int", "i32")),
    Dtype("int64", "int64", 8, "int", 4, ("long", "long int", "long long", "i64")),
    Dtype("fp16", "float16", 2, "float", 5, ("c10::Half", "half", "__half", "f16")),
    Dtype("fp32", "float32", 4, "float", 6, ("float", "f32")),
    Dtype("fp64", "float64", 8, "float", 7, ("double", "f64")),
    Dtype("complex32", "complex32", 4, "complex", 8, ("c10::complex<c10::Half>", "chalf")),
    Dtype("complex64", "complex64", 8, "complex", 9, ("c10::complex<float>", "cfloat")),
    Dtype("complex128", "complex128", 16, "complex", 10, ("c10::complex<double>", "cdouble")),
    Dtype("bool", "bool", 1, "bool", 11, ("i1",)),
    Dtype("qint8", "qint8", 1, "int", 12, ("c10::qint8",)),
    Dtype("quint8", "quint8", 1, "int", 13, ("c10::quint8",)),
    Dtype("qint32", "qint32", 4, "int", 14, ("c10::qint32",)),
    Dtype("bf16", "bfloat16", 2, "float", 15, ("c10::BFloat16", "__nv_bfloat16", "nv_bfloat16")),
    Dtype("fp8_e5m2", "float8_e5m2", 1, "float", 23, ("c10::Float8_e5m2", "fp8e5")),
    Dtype("fp8_e4m3fn", "float8_e4m3fn", 1, "float", 24, ("c10::Float8_e4m3fn", "fp8e4nv")),
    Dtype("fp8_e5m2fnuz", "float8_e5m2fnuz", 1, "float", 25, ("c10::Float8_e5m2fnuz", "fp8e5b16")),
    Dtype("fp8_e4m3fnuz", "float8_e4m3fnuz", 1, "float", 26, ("c10::Float8_e4m3fnuz", "fp8e4b8")),
    Dtype("uint16", "uint16", 2, "int", 27, ("unsigned short", "unsigned short int", "u16")),
    Dtype("uint32", "uint32", 4, "int", 28, ("unsigned int", "u32")),
    Dtype("uint64", "uint64", 8, "int", 29, ("unsigned long", "unsigned long int", "u64")),
    Dtype("fp8_e8m0fnu", "float8_e8m0fnu", 1, "float", 44, ("c10::Float8_e8m0fnu",)),
    Dtype("fp4_e2m1", "float4_e2m1fn_x2", 1, "float", 45, ("c10::Float4_e2m1fn_x2",)),
)

_BY_NAME: dict[str, Dtype] = {}
for _d in _TABLE:
    for _spelling in (_d.name, _d.torch, f"torch.{_d.torch}", f"*{_d.name}", *_d.spellings):
        _BY_NAME[_spelling] = _d
        _BY_NAME[_spelling.lower()] = _d
        _BY_NAME[f"*{_spelling}"] = _d
_BY_CODE = {d.code: d for d in _TABLE if d.code is not None}


def dtype(spelling: object) -> Dtype | None:
    """The element type a spelling names; ``None`` for scalars, lists, empty strings and unknown names."""
    if not isinstance(spelling, str):
        return None
    found = _BY_NAME.get(spelling)
    if found is None and spelling:
        found = _BY_NAME.get(spelling.strip().lower())
        if found is None and "::" in spelling:  # at::BFloat16, older spellings of the same type
            found = _BY_NAME.get("c10::" + spelling.rsplit("::", 1)[1].lower())
    return found


def itemsize(spelling: object) -> int | None:
    """Bytes one element takes, ``None`` where the spelling names no element type."""
    found = dtype(spelling)
    return None if found is None else found.itemsize


def from_code(code: object) -> Dtype | None:
    """The element type of a ``ScalarType`` number, given as int or as the string a trace holds."""
    try:
        return _BY_CODE.get(int(code))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


def is_tensor_list(spelling: object) -> bool:
    """Whether an ``Input type`` stands for a list of tensors; such a row does not say the members' types."""
    return isinstance(spelling, str) and "TensorList" in spelling


_KIND_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}
_WRAPPED = {"fp64": "fp32", "complex128": "complex64"}  # a Python number takes torch's default type


def promote(operands: list[tuple[Dtype, int]]) -> Dtype | None:
    """The result type of a pointwise operator on ``(dtype, dimensions)`` operands.

    torch's rule (``c10::promoteTypes``, "Type promotion" in the torch docs): a zero-dimensional operand
    counts only where its kind (bool < int < float < complex) is above that of the dimensioned ones. Python
    numbers appear in traces as zero-dimensional ``double`` or ``long int``; where such a one decides, the
    result is torch's default type of that kind. ``None`` without operands.
    """
    dimensioned = [d for d, dims in operands if dims > 0]
    scalars = [d for d, dims in operands if dims == 0]
    result: Dtype | None = None
    for d in dimensioned:
        result = d if result is None else _pair(result, d)
    top: Dtype | None = None
    for d in scalars:
        top = d if top is None else _pair(top, d)
    if top is not None and (result is None or _KIND_RANK[top.kind] > _KIND_RANK[result.kind]):
        result = top if result is None else _BY_NAME[_WRAPPED.get(top.name, top.name)]
    return result


def _pair(a: Dtype, b: Dtype) -> Dtype:
    if a is b:
        return a
    low, high = sorted((a, b), key=lambda d: (_KIND_RANK[d.kind], d.itemsize))
    if low.kind == high.kind:
        if low.itemsize == high.itemsize and low.kind == "float" and high.itemsize == 2:
            return _BY_NAME["fp32"]  # fp16 with bf16 has no common 16-bit type
        if low.kind == "int" and low.itemsize == high.itemsize and {low.name, high.name} == {"int8", "uint8"}:
            return _BY_NAME["int16"]
        return high
    if high.kind == "complex" and low.kind == "float" and low.itemsize * 2 > high.itemsize:
        return _BY_NAME["complex128" if low.itemsize == 8 else "complex64"]
    return high
