"""What part a kernel plays beside the one people count: a split-K sum, a cast, a fill, a gradient's addition, …"""

from __future__ import annotations

from foretrace.knowledge.copying import FEEDS_GRAPH, on_purpose
from foretrace.knowledge.dtypes import dtype
from foretrace.knowledge.results import accumulates_gradient, is_fill
from foretrace.model.report import Kernel, Transfer
from foretrace.prediction.expect.subject import Subject

__all__ = ["ROLE_ORDER", "aten_path", "chain", "reason_of", "role"]

# What surprises most comes first.
ROLE_ORDER = (
    "split_k",
    "bias_apart",
    "graph_input",
    "hidden_copy",
    "requested_copy",
    "cast",
    "fill",
    "gradient_sum",
    "communication",
    "optimizer",
    "backward",
)
_BIASED = frozenset({"aten::linear", "aten::_convolution"})


def role(subject: Subject, kernel: Kernel) -> str | None:
    """The fact of ``knowledge/differences.py`` that tells why a kernel is there beside the main ones, or None."""
    if kernel.decoded.get("role") == "split-K reduction":
        return "split_k"
    if kernel.kind == "communication":
        return "communication"
    op = kernel.op or ""
    path = aten_path(kernel)
    if op == "aten::add_" and len(path) > 1 and path[-2] in _BIASED:
        return "bias_apart"
    if any(accumulates_gradient(name) for name in kernel.op_path):
        return "gradient_sum"
    if (op in FEEDS_GRAPH or op == "aten::cat") and kernel.kind == "copy":
        if any(other.graph for other in subject.kernels_by_step.get(kernel.step, [])):
            return "graph_input"
        if _is_cast(subject, kernel):
            return "cast"
        return "requested_copy" if on_purpose(path) else "hidden_copy"
    if is_fill(op):
        return "fill"
    return kernel.phase if kernel.phase in ("optimizer", "backward") else None


def aten_path(work: Kernel) -> list[str]:
    """The operators around a kernel, outermost first; annotations and compiled regions are left out."""
    return [name for name in work.op_path if "::" in name and not name.startswith("##")]


def chain(work: Kernel | Transfer) -> str:
    """``aten::linear → aten::matmul → aten::mm``: where a row comes from, in words."""
    if isinstance(work, Transfer):
        return work.op or ("a CUDA graph" if work.graph else "no operator")
    path = aten_path(work) or ([work.op] if work.op else [])
    if not path:
        return "a CUDA graph" if work.graph else "no operator"
    shown = path if len(path) <= 4 else [path[0], "…", *path[-2:]]
    return " → ".join(shown)


def reason_of(path: list[str]) -> str | None:
    """Why an operator makes a hidden copy: the text for the innermost one whose reason is known."""
    from foretrace.knowledge.rules_kernels import HIDDEN_COPY, HIDDEN_COPY_OPERATORS

    causes = (HIDDEN_COPY_OPERATORS.get(name.removeprefix("aten::")) for name in reversed(path))
    cause = next((cause for cause in causes if cause is not None), None)
    return HIDDEN_COPY[cause][0] if cause is not None else None


def _is_cast(subject: Subject, kernel: Kernel) -> bool:
    row = subject.row_of_event.get(kernel.event)
    if row is None or subject.context is None or kernel.op != "aten::copy_":
        return False
    op = int(subject.context.attribution.op[row])
    types = [found.name for t in subject.context.operands(op)["dtypes"][:2] if (found := dtype(t)) is not None]
    return len(types) == 2 and types[0] != types[1]
