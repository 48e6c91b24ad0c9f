"""The kernels of `foretrace.fused`, by their function names: ``foretrace_<implementation>_<step>``, then what is known.

``foretrace_hopper_forward``, ``foretrace_tma_gate_up_gelu_tanh_128x128x64_4stages``: the implementation (hopper, tma,
portable, small, elementwise), the step, and where the name says so the method (of few rows: vector or dot products),
the activation, the tile (rows × columns × k) and the stages. A trailing ``_kernel`` says nothing.
"""

from __future__ import annotations

import re
from typing import Any

from foretrace.knowledge.lowering.fused import epilogue_of

from ._base import Found
from .cpp import CppName
from .triton import signature_free

__all__ = ["match"]

_NAME = re.compile(
    r"foretrace_(?P<implementation>hopper|tma|portable|small|elementwise)"
    r"_(?P<step>gate_up_backward|linear_act_backward|gated_act_backward|act_backward_sums|act_backward"
    r"|gate_up|linear_act|gated_act|act|forward|backward|project|weight_gradient|reduce)"
    r"(?:_(?P<method>vector|dot))?"
    r"(?:_(?P<activation>gelu_tanh|gelu|silu|relu2|relu|sigmoid))?"
    r"(?:_(?P<tile>\d{1,4}x\d{1,4})(?:x(?P<tile_k>\d{1,4}))?)?"
    r"(?:_(?P<stages>\d{1,2})stages)?"
    r"(?P<rest>(?:_\w+)?)"
)
# What launches the kernels has rows in a trace as well, and is easily taken for one of them.
_OPERATOR = re.compile(r"foretrace::(?P<name>[a-z]\w*)")
# A step without an activation in its name still applies one.
_UNNAMED = "activation"


def match(parsed: CppName) -> Found | None:
    """Decode the name of a kernel of foretrace, or ``None``."""
    name = signature_free(parsed.text)
    if operator := _OPERATOR.fullmatch(name):
        return Found("other", "foretrace", name, {"operator": operator["name"]})
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    step = found["step"]
    pointwise = found["implementation"] == "elementwise"
    decoded: dict[str, Any] = {"implementation": found["implementation"], "step": step, "view_ops": []}
    if step != "reduce":
        decoded["direction"] = "backward" if "backward" in step or step == "weight_gradient" else "forward"
    if step == "reduce":
        decoded["role"] = "split-K reduction"
    elif pointwise:
        decoded["ops"] = _operators(step, found["activation"])
    elif step == "weight_gradient":
        decoded["ops"] = ["mm"]
    elif step != "project":
        decoded["ops"] = ["mm", *_operators(step, found["activation"])]
        decoded["epilogue"] = decoded["ops"][1:]
    for key in ("method", "activation", "tile"):
        if found[key] is not None:
            decoded[key] = found[key]
    for key in ("tile_k", "stages"):
        if found[key] is not None:
            decoded[key] = int(found[key])
    rest = found["rest"].strip("_").removesuffix("kernel").strip("_")
    # What serves gated and plain layers alike is taken for what it is made for.
    kind = "gemm" if not pointwise else "elementwise" if step in ("act", "act_backward") else "fused"
    words = [found["implementation"], step, *(found[key] for key in ("activation", "tile") if found[key] is not None)]
    return Found(kind, "foretrace", f"foretrace {' '.join(words)}", decoded, [rest] if rest else [])


def _operators(step: str, activation: str | None) -> list[str]:
    """What is done beside the product; `forward` and `backward` serve gated and plain layers alike."""
    named = activation or _UNNAMED
    if step in ("forward", "backward"):
        return [named if step == "forward" else f"{named}_backward"]
    if step == "act_backward_sums":  # and adds up the bias's gradient
        return [*_operators("act_backward", activation), "sum"]
    # The pointwise steps do what the epilogues of the products of the same name do.
    alike = step.replace("gated_act", "gate_up")
    alike = {"act": "linear_act", "act_backward": "linear_act_backward"}.get(alike, alike)
    return list(epilogue_of(alike, named))
