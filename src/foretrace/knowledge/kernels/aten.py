"""PyTorch's own kernels (``at::native::…``): which loop, which functor, which vector width.

An elementwise loop is a template over a functor: a struct (``CUDAFunctor_add<float>``), a struct around another one
(``AUnaryFunctor<…, MulFunctor<float>>``: one operand is a scalar) or a lambda inside a function
(``GeluCUDAKernelImpl(…)::{lambda()#2}…{lambda(c10::BFloat16)#1}``, whose last parameter list names the type).
Source: ``aten/src/ATen/native/cuda`` of PyTorch 1.8 to 2.13.
"""

from __future__ import annotations

import re
from typing import Any

from . import aten_tables as tables
from ._base import Found, dtype_of
from .cpp import CppName, last_identifier, split_arguments
from .words import kind_by_words

__all__ = ["match"]

_LAMBDA = re.compile(r"\{lambda\(([^()]*)\)#\d+\}")
_OPAQUE = re.compile(r"OpaqueType<\(?(?:int\))?(\d+)")
_SUFFIXES = ("_kernel", "_cuda", "_impl", "_out", "_internal", "CUDA", "Kernel", "Impl", "Internal")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_JITERATED = re.compile(r"([a-z][a-z0-9_]*?)(?:_vectorized(\d+))?_kernel$")
_WRAPPERS = frozenset({"AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "UnaryFunctor"})
_IMPLEMENTATIONS = ("gpu_kernel_impl_nocast", "gpu_kernel_impl", "gpu_index_kernel", "gpu_kernel_with_index_impl")


def match(parsed: CppName) -> Found | None:
    """Decode a kernel of PyTorch, or ``None``."""
    base, qualified = parsed.base, parsed.qualified
    shared = base in tables.LOOPS or base in tables.MULTI_TENSOR
    if not qualified.startswith(("at::", "anon::", "torch::", "c10::", "caffe2::")) and not shared:
        return _compiled_at_run_time(parsed)
    if base in tables.LOOPS:
        return _loop(parsed)
    if base in tables.MULTI_TENSOR:
        return _multi_tensor(parsed)
    if base == "reduce_kernel":
        return _reduce(parsed)
    if not qualified.startswith(("at::", "torch::", "c10::", "caffe2::")) and base not in tables.NAMED:
        return None
    return _named(parsed)


def functor_name(text: str) -> str:
    """The operator a functor's text stands for (``gelu``, ``mul``), or its identifier when it is not known."""
    for _ in range(4):
        text = text.removeprefix("at::native::").removeprefix("anon::")
        cut = text.find("(")
        brace = text.find("<")
        head = text[: min(x for x in (cut, brace, len(text)) if x >= 0)]
        identifier = head.rpartition("::")[2].strip()
        if identifier in _WRAPPERS and brace >= 0:
            arguments = split_arguments(text[brace + 1 :])
            inner = next(
                (a for a in arguments if "Functor" in a or "lambda" in a or "_kernel" in a or "std::" in a), ""
            )
            if not inner and arguments:
                inner = arguments[-1]
            text = inner
        elif identifier in tables.TRANSPARENT and brace >= 0:
            text = next(iter(split_arguments(text[brace + 1 :])[tables.TRANSPARENT[identifier] :]), "")
        else:
            break
    return tables.FUNCTORS.get(identifier) or _plain(identifier)


def _plain(identifier: str) -> str:
    name = identifier.removeprefix("launch_").removesuffix("Functor").removesuffix("Ops").removesuffix("Op")
    stripped = True
    while stripped:
        stripped = False
        for suffix in _SUFFIXES:
            if name.endswith(suffix) and len(name) > len(suffix):
                name, stripped = name[: -len(suffix)], True
    name = _CAMEL.sub("_", name).lower().strip("_")
    return tables.SYNONYMS.get(name, name)


def _dtype_in(functor: str) -> str | None:
    """Element type: of the last lambda with parameters, else of the first template argument that is a type."""
    lambdas = [found for found in _LAMBDA.findall(functor[:4000]) if found.strip()]
    if lambdas:
        types = [dtype for part in lambdas[-1].split(",") if (dtype := dtype_of(part.strip()))]
        return next((dtype for dtype in types if dtype != "bool"), types[0] if types else None)
    opening = functor.find("<")
    if opening < 0:
        return None
    for argument in split_arguments(functor[opening + 1 : opening + 400].rstrip(">"))[:2]:
        if dtype := dtype_of(argument.rstrip("> ")):
            return dtype
    return None


def _compiled_at_run_time(parsed: CppName) -> Found | None:
    """The pointwise kernels PyTorch compiles with NVRTC (jiterator): ``lcm_vectorized4_kernel``, ``digamma_kernel``."""
    found = _JITERATED.match(parsed.text)
    if not found:
        return None
    name = found[1].removeprefix("calc_").removesuffix("_kernel").removesuffix("_forward")
    if not found[2] and name not in tables.KNOWN:
        return None
    decoded: dict[str, Any] = {"functor": name, "compiled": "at run time"}
    if found[2]:
        decoded["vector_width"] = int(found[2])
    short = f"elementwise<{found[2]}> {name}" if found[2] else f"elementwise {name}"
    return Found("elementwise", "aten", short, decoded)


def _loop(parsed: CppName) -> Found:
    base = parsed.base
    arguments = parsed.arguments
    decoded: dict[str, Any] = {}
    loop, width_at = tables.LOOPS[base]
    if width_at is not None and len(arguments) > width_at and arguments[width_at].isdigit():
        decoded["vector_width" if loop == "vectorized_elementwise" else "unroll"] = int(arguments[width_at])
    functor = next((argument for argument in arguments if len(argument) > 3 and not dtype_of(argument)), "")
    for name in _IMPLEMENTATIONS:
        at = functor.find(name + "<")
        if 0 <= at < 200:
            functor = functor[at + len(name) + 1 :]
            break
    if not functor:
        return Found(tables.LOOP_KINDS.get(loop, "elementwise"), "aten", loop, decoded, ["functor"], weak=True)
    name = functor_name(functor)
    decoded["functor"] = name
    if functor.startswith(("at::native::AUnaryFunctor", "at::native::BUnaryFunctor")):
        decoded["scalar_operand"] = True
    if dtype := _dtype_in(functor):
        decoded["dtype"] = dtype
    elif opaque := _OPAQUE.search(functor):
        decoded["element_bytes"] = int(opaque[1])
    kind = _kind_of_functor(name, functor, loop)
    width = decoded.get("vector_width")
    # The width already says that the loop is vectorized, and the column is narrow.
    short = f"{loop.removeprefix('vectorized_')}<{width}> {name}" if width else f"{loop} {name}"
    known = name in tables.KNOWN or name.removesuffix("_backward") in tables.KNOWN or bool(kind_by_words(name))
    unknown = [] if known or kind != "elementwise" else [name]
    return Found(kind, "aten", short, decoded, unknown)


def _kind_of_functor(name: str, functor: str, loop: str) -> str:
    if name in tables.COPIES:
        return "copy"
    if loop in tables.LOOP_KINDS:
        if "ReduceAdd" in functor or "ReduceM" in functor or "reduce_add" in functor:
            return "reduction"
        return tables.LOOP_KINDS[loop]
    if any(word in name for word in ("norm", "softmax")) and name not in tables.KNOWN:
        return kind_by_words(name) or "elementwise"
    return "elementwise"


def _reduce(parsed: CppName) -> Found:
    text = parsed.template
    decoded: dict[str, Any] = {}
    operation = ""
    inside = text.partition("ReduceOp<")[2]
    arguments = split_arguments(inside[:6000])
    if arguments and (dtype := dtype_of(arguments[0])):
        decoded["dtype"] = dtype
    if len(arguments) > 1:
        operation = arguments[1].removeprefix("at::native::")
        if operation.startswith("func_wrapper_t<"):
            operation = next(iter(split_arguments(operation[15:])[1:]), operation)
        operation = functor_name(operation)
    if len(arguments) > 3 and (out := dtype_of(arguments[3])) and out != decoded.get("dtype"):
        decoded["out_dtype"] = out
    if operation:
        decoded["reduction op"] = operation
    if parsed.arguments[1:2] and parsed.arguments[1].isdigit():
        decoded["outputs_per_thread"] = int(parsed.arguments[1])
    return Found("reduction", "aten", f"reduce {operation}", decoded, [] if operation else ["reduction op"])


def _multi_tensor(parsed: CppName) -> Found:
    """``multi_tensor_apply_kernel<metadata, functor, operation, …>`` of PyTorch's foreach operators and of Apex."""
    functor = next((a for a in parsed.arguments[:4] if "Metadata" not in a and len(a) > 3 and not dtype_of(a)), "")
    identifier = last_identifier(functor)
    family = "aten" if parsed.qualified.startswith("at::") else "apex"
    decoded: dict[str, Any] = {"functor": identifier, "foreach": True}
    if dtype := _dtype_in(functor):
        decoded["dtype"] = dtype
    lowered = identifier.lower()
    operation = next(
        (
            functor_name(a)
            for a in parsed.arguments[2:4]
            if a.startswith(("std::", "at::native::")) and "Metadata" not in a
        ),
        "",
    )
    if any(word in lowered for word in ("adam", "sgd", "adagrad", "lamb", "novograd", "lars", "rmsprop")):
        name = next(w for w in ("adam", "sgd", "adagrad", "lamb", "novograd", "lars", "rmsprop") if w in lowered)
        decoded["functor"] = name
        return Found("optimizer", family, f"multi_tensor {name}", decoded)
    if "norm" in lowered or "maxnorm" in lowered:
        return Found("reduction", family, f"multi_tensor {identifier.removesuffix('Functor')}", decoded)
    if operation:
        decoded["functor"] = operation
    if operation == "copy" or "copyfunctor" in lowered:
        decoded["functor"] = "copy"
        return Found("copy", family, "multi_tensor copy", decoded)
    return Found("elementwise", family, f"multi_tensor {decoded['functor'] or 'apply'}", decoded)


def _named(parsed: CppName) -> Found:
    base = parsed.base
    kind = tables.NAMED.get(base)
    weak = base in tables.AMBIGUOUS
    if kind is None:
        for pattern, candidate in tables.PATTERNS:
            if pattern.search(base):
                kind = candidate
                break
    if kind is None:
        kind = kind_by_words(base)
    unknown: list[str] = []
    if kind is None:
        # The function or the file's namespace around the kernel may still say it.
        kind = kind_by_words(parsed.scope.removeprefix("at::").removeprefix("native::"))
        weak = True
    if kind is None:
        kind, unknown = "other", [base]
    decoded: dict[str, Any] = {}
    for argument in parsed.arguments[:4]:
        # Copies see their elements as opaque words; the types after it are those of indices.
        if opaque := _OPAQUE.search(argument):
            decoded["element_bytes"] = int(opaque[1])
            break
        if dtype := dtype_of(argument):
            decoded["dtype"] = dtype
            break
    lowered = base.lower()
    if "backward" in lowered or "_bwd" in lowered or "grad" in lowered:
        decoded["direction"] = "backward"
    elif "forward" in lowered or "_fwd" in lowered:
        decoded["direction"] = "forward"
    if "CatArray" in base:
        decoded["functor"] = "cat"
    if kind == "softmax" and ("LogSoftMax" in parsed.template or ", true>" in parsed.text[:120]):
        decoded["functor"] = "log_softmax" if "LogSoftMax" in parsed.template else "softmax"
    if base == "reduce_kernel" or kind == "sort":
        decoded.pop("direction", None)
    return Found(kind, "aten", base.removesuffix("_kernel").removesuffix("_cuda"), decoded, unknown, weak)
