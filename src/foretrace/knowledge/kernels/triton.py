"""Triton kernels: those Inductor generates (``torch.compile``) and hand-written ones with Triton's argument suffix.

``triton_poi_fused__unsafe_view_gelu_mul_0``: a template (``poi`` pointwise, ``red`` reduction, ``per`` persistent
reduction, ``tem`` GEMM, convolution or attention template, ``for`` foreach), the operators fused, a counter. The
operators are joined by ``_`` and have it in their own names, so they are split by a table of operator names: the
split that leaves the least unread, then the one of the fewest operators. Source:
``torch/_inductor/codegen/triton.py`` and ``…/utils.py`` (``get_fused_kernel_name``) of PyTorch 2.0 to 2.13.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from . import aten_tables
from ._base import Found, word_set
from .aten_ops import longest_operator, operator_names
from .cpp import CppName
from .words import kind_by_words

__all__ = ["match", "split_operators"]

_INDUCTOR = re.compile(r"triton_(?P<kind>[a-z]{3,4})_fused_?(?P<ops>\w*)$")
_TEMPLATE = re.compile(
    r"triton_(?P<ops>mm|bmm|addmm|baddbmm|mm_plus_mm|convolution\w*|conv\w*|flex_\w+|scaled_mm\w*"
    r"|tem_\w+|grouped_mm\w*|persistent_\w*mm\w*|\w*_mm)(?:_(?P<number>\d+))?$"
)
_LONGEST_TEMPLATE = 200
_ANONYMOUS = re.compile(r"triton_(?:__?0d|_\d*$|__\d|\d*$|_$|mix)\w*")
_SIGNATURE = re.compile(r"_0(?=[0-9dce]*[dce])[0-9dce]*$")
_KINDS = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent reduction",
    "tem": "template",
    "for": "foreach",
    "mix": "mixed reduction",
    "unk": "unknown",
    "spl": "split scan",
}

# Operators that only describe the memory anew, and those that leave nothing to do for a generated kernel.
_VIEWS = word_set(
    "view _unsafe_view reshape _reshape_alias permute transpose t squeeze unsqueeze expand slice select "
    "as_strided alias detach split split_with_sizes unbind chunk narrow diagonal unfold flatten unflatten "
    "view_as expand_as view_as_real view_as_complex numpy_T mT mH matrix_H movedim moveaxis swapaxes "
    "swapdims squeeze_copy broadcast_to broadcast_in_dim unsafe_split unsafe_chunk lift_fresh lift "
    "lift_fresh_copy empty empty_like empty_strided new_empty new_empty_strided empty_permuted view_dtype "
    "_conj conj collapse_view split_dim view_of tensor_split hsplit vsplit dsplit ravel adjoint real imag"
)
_COPIES = word_set(
    "clone _to_copy copy cat stack constant_pad_nd index index_put slice_scatter select_scatter gather "
    "scatter contiguous flip roll repeat convert_element_type as_strided_scatter device_put copy_ "
    "_unsafe_index _unsafe_index_put _unsafe_masked_index to repeat_interleave"
)
# Operators that run as kernels of their own: in a generated kernel's name they stand for the layout of their input.
_EXTERN = word_set(
    "mm bmm _scaled_mm _int_mm _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_backward _flash_attention_forward "
    "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward "
    "_efficient_attention_forward convolution_backward scaled_dot_product_attention _grouped_mm"
)
_NORMS = ("layer_norm", "group_norm", "batch_norm", "rms_norm", "instance_norm")
_SOFTMAXES = ("softmax", "logsumexp")


def match(parsed: CppName) -> Found | None:
    """Decode an Inductor name or a hand-written Triton name with an argument suffix, or ``None``."""
    text = parsed.text
    if "<" in text or "(" in text:
        return None
    if text.startswith("triton_"):
        if found := _INDUCTOR.match(text):
            return _generated(found)
        if _ANONYMOUS.match(text):
            # Before PyTorch 2.1 the operators were not part of the name.
            return Found("other", "inductor", "triton kernel", {"triton_kind": None}, ["operators"], weak=True)
        if found := _TEMPLATE.match(text[:_LONGEST_TEMPLATE]):
            return _template(found["ops"], "template")
    return None


def signature_free(name: str) -> str:
    """A Triton name without the argument signature that old versions appended (``_fwd_kernel_0d1d2de``)."""
    return _SIGNATURE.sub("", name) or name


def canonical(operator: str) -> str:
    """The operator's name without what makes it internal: ``_unsafe_view`` is ``view``, ``add_`` is ``add``."""
    name = operator.removeprefix("_unsafe_")
    return name.rstrip("_") if name.rstrip("_") in operator_names() else name


def _generated(found: re.Match[str]) -> Found:
    letters = found["kind"]
    text = _without_number(signature_free(found["ops"]))
    if letters == "tem":
        return _template(text, "template")
    raw, unread = split_operators(text)
    decoded: dict[str, Any] = {"triton_kind": _KINDS.get(letters, letters)}
    views = [operator for operator in raw if operator in _VIEWS]
    work = [operator for operator in raw if operator not in _VIEWS]
    decoded["ops"] = _distinct(canonical(operator) for operator in raw)
    decoded["view_ops"] = _distinct(canonical(operator) for operator in views)
    names = [canonical(operator) for operator in work] + unread
    kind = _kind(letters, work, unread)
    shown = names or decoded["view_ops"] or ["kernel"]
    short = f"triton_{letters} " + "·".join(_distinct(shown))
    unknown = list(unread)
    if letters not in _KINDS:
        unknown.append(letters)
    if not raw and not unread:
        unknown.append("operators")
    return Found(kind, "inductor", short, decoded, unknown, weak=not raw and not unread)


def _without_number(text: str) -> str:
    """``gelu_mul_0`` without the counter at its end; a bare counter leaves nothing."""
    rest, _, number = text.rpartition("_")
    return rest if number.isdigit() else text


def _kind(letters: str, work: list[str], unread: list[str]) -> str:
    counted = [operator for operator in work if operator not in _EXTERN]
    names = [canonical(operator) for operator in counted]
    if any(name.startswith(("_fused_adam", "_fused_sgd", "_foreach_adam")) for name in names):
        return "optimizer"
    if letters in ("red", "per", "mix", "spl"):
        return _reduction_kind(names)
    if names and not unread and all(name in _COPIES for name in names):
        return "copy"
    if len(names) + len(unread) >= 2:
        return "fused"
    if not names and not unread:
        # Only views, or only the inputs of a library call: the kernel changes where the data lie.
        return "copy" if work else "elementwise"
    return _single_kind(names[0] if names else unread[0])


def _reduction_kind(names: list[str]) -> str:
    if any(norm in name for name in names for norm in _NORMS):
        return "normalization"
    if any(soft in name for name in names for soft in _SOFTMAXES):
        return "softmax"
    present = set(names)
    if "rsqrt" in present and present & {"mean", "var_mean", "var", "pow", "sum"}:
        return "normalization"
    if "exp" in present and present & {"amax", "max"} and "sum" in present:
        return "softmax"
    if any(name in ("sort", "topk", "argsort") for name in names) and not present & {"sum", "mean", "amax", "argmax"}:
        return "sort"
    if "flex_attention" in present or "flex_attention_backward" in present:
        return "attention"
    return "reduction"


def _single_kind(name: str) -> str:
    if any(norm in name for norm in _NORMS):
        return "normalization"
    if any(soft in name for soft in _SOFTMAXES):
        return "softmax"
    if "embedding" in name:
        return "embedding"
    if "pool" in name:
        return "reduction"
    if name in aten_tables.KNOWN:
        return "elementwise"
    return {"sort": "sort", "topk": "sort"}.get(name, "elementwise")


def _template(text: str, kind_name: str) -> Found:
    """A GEMM, convolution or attention template; the other operators are its prologue and epilogue."""
    raw, unread = split_operators(text)
    joined = "_".join(raw) or text
    if "attention" in joined or "attention" in text or "flex" in text:
        kind, main = "attention", "flex_attention"
    elif "conv" in joined or "conv" in text:
        kind, main = "convolution", "convolution"
    else:
        kind = "gemm"
        main = next((operator for operator in raw if operator.rstrip("_").endswith(("mm", "mv", "mm_plus_mm"))), "mm")
    decoded: dict[str, Any] = {"triton_kind": kind_name}
    decoded["ops"] = _distinct(canonical(operator) for operator in raw) or [main]
    decoded["view_ops"] = _distinct(canonical(operator) for operator in raw if operator in _VIEWS)
    epilogue = [canonical(operator) for operator in raw if operator not in _VIEWS and operator != main]
    if epilogue:
        decoded["fused_ops"] = epilogue
    if "backward" in text:
        decoded["direction"] = "backward"
    short = "triton_tem " + "·".join([canonical(main), *_distinct(epilogue)])
    return Found(kind, "inductor", short, decoded, unread)


def _distinct(names: Any) -> list[str]:
    return list(dict.fromkeys(names))


@lru_cache(maxsize=8192)
def _split(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    table = operator_names()
    longest = longest_operator()
    size = len(text)
    # best[i]: (letters unread, operators used) for text[i:], and the step taken from i: (end, operator or None).
    best: list[tuple[int, int]] = [(0, 0)] * (size + 2)
    step: list[tuple[int, str | None]] = [(size, None)] * (size + 2)
    for start in range(size - 1, -1, -1):
        if start and text[start - 1] != "_":
            best[start] = (size, size)
            continue
        end = text.find("_", start)
        end = size if end < 0 else end
        unread = best[min(end + 1, size)] if end < size else (0, 0)
        choice = (unread[0] + (end - start) + 1, unread[1] + 1)
        where: tuple[int, str | None] = (end, None)
        for stop in range(min(size, start + longest + 1), start, -1):
            if stop < size and text[stop] != "_":
                continue
            word = text[start:stop]
            if word in table or (word.endswith("_") and word[:-1] in table):
                rest = best[stop + 1] if stop < size else (0, 0)
                cost = (rest[0], rest[1] + 1)
                if cost < choice:
                    choice, where = cost, (stop, word)
        best[start], step[start] = choice, where
    operators: list[str] = []
    unknown: list[str] = []
    position, open_run = 0, False
    while position < size:
        end, operator = step[position]
        if operator is not None:
            operators.append(operator)
            open_run = False
        elif end > position:
            word = text[position:end]
            if open_run:
                unknown[-1] += "_" + word
            else:
                unknown.append(word)
            open_run = True
        position = end + 1
    return tuple(operators), tuple(unknown)


def split_operators(text: str) -> tuple[list[str], list[str]]:
    """Split the fused part of an Inductor name into operators, and the parts that are no operator PyTorch knows."""
    operators, unknown = _split(text[:2000].strip() if text else "")
    return list(operators), list(unknown)


def hand_written(parsed: CppName) -> Found | None:
    """A plain identifier that Triton's argument suffix or its ``_kernel`` habit gives away."""
    text = parsed.text
    name = signature_free(text)
    if name == text or "<" in text or "(" in text:
        return None
    kind = kind_by_words(name)
    return Found(kind or "other", "triton", name.strip("_"), {}, [] if kind else [name], weak=kind is None)
