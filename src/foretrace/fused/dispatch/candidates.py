"""Which implementations there are, and what each needs. Every kernel's limits are said here and nowhere else.

A limit is a function that returns why an implementation cannot serve a problem, or ``None`` when it can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from foretrace.fused.dispatch.choice import ROLES, Role
from foretrace.fused.dispatch.environment import Environment, capability
from foretrace.fused.plan import Implementation, Operation, Plan, Problem
from foretrace.fused.steps import STEPS_OF, names

__all__ = [
    "CANDIDATES",
    "DEEP",
    "EMPTY",
    "GRADIENT_ROWS",
    "NARROW",
    "NARROW_BACK",
    "Candidate",
    "Options",
    "Variant",
    "has_step",
    "possible",
    "refusal",
    "untried",
    "weight_gradients",
]

HALF: Final = ("bfloat16", "float16")
# A tile of the decode kernels has 16 rows, the smallest a tensor core's product takes.
SMALL_ROWS: Final = 16
# Up to here a kernel of ours makes the gradient of a weight, which no plan names; `weight_gradients` says when.
GRADIENT_ROWS: Final = 32
# Triton 3.6 is the one version whose Gluon names and semantics the Hopper kernels were written for and run on.
GLUON: Final = (3, 6)
# Host-side descriptors (triton.tools.tensor_descriptor) and their use in loads of rank three.
TMA_TRITON: Final = (3, 4)
PORTABLE_TRITON: Final = (3, 2)


@dataclass(frozen=True, slots=True)
class Question:
    """Can this step of this problem be done here?"""

    problem: Problem
    environment: Environment
    role: Role


Limit = Callable[[Question], str | None]
# In the order of their names, as everywhere.
Options = tuple[tuple[str, int], ...]
# Of the Hopper kernel's shared memory in backward more for the products and less for the epilogue than by default.
DEEP: Final[Options] = (("slots", 1), ("stages", 4))
# Its tiles of half the width, for shapes whose wide ones leave multiprocessors idle; forward has room for six stages.
NARROW: Final[Options] = (("block_n", 128), ("stages", 6))
# Why nobody serves a problem without rows or features.
EMPTY: Final = "there is nothing to compute"
NARROW_BACK: Final[Options] = (("block_n", 128), ("stages", 4))


@dataclass(frozen=True, slots=True)
class Variant:
    """Options that an autotune tries besides the defaults, in a ``step``, for at least so many ``rows`` of input."""

    step: str
    options: Options
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """An implementation of some steps (`foretrace.fused.steps` lists them), and its limits.

    ``limits``: the first that refuses is the reason given, so that what a person can mend, a version, comes last.
    ``tried``: compute capabilities it was run on; elsewhere it is chosen only by a measurement.
    """

    name: str
    limits: tuple[Limit, ...] = ()
    tried: tuple[int, ...] | None = None
    variants: tuple[Variant, ...] = ()

    def implementations(self, problem: Problem, role: Role) -> list[Implementation]:
        """Return the default and every variant for a step of a problem."""
        step = step_of(problem.operation, role)
        varied = [one.options for one in self.variants if one.step == step and problem.m >= one.rows]
        return [Implementation(self.name), *(Implementation(self.name, options) for options in varied)]


def _gpu(asked: Question) -> str | None:
    found = capability(asked.problem.architecture)
    if found is None or found < (8, 0):
        return f"needs an NVIDIA GPU of compute capability 8.0 or later, this is {asked.problem.architecture}"
    return None


def _triton(least: tuple[int, int]) -> Limit:
    def limit(asked: Question) -> str | None:
        if asked.environment.triton is None:
            return "needs Triton, which is not installed"
        if asked.environment.triton < least:
            return f"needs Triton {least[0]}.{least[1]} or later, this is {_dotted(asked.environment.triton)}"
        return None

    return limit


def _gluon(asked: Question) -> str | None:
    if asked.environment.triton != GLUON:
        this = (
            "none is installed" if asked.environment.triton is None else f"this is {_dotted(asked.environment.triton)}"
        )
        return f"needs exactly Triton {_dotted(GLUON)}, whose Gluon it was written for; {this}"
    return None


def _hopper(asked: Question) -> str | None:
    if capability(asked.problem.architecture) != (9, 0):
        return f"needs Hopper (sm_90), this is {asked.problem.architecture}"
    return None


def _dtype(*allowed: str) -> Limit:
    def limit(asked: Question) -> str | None:
        return (
            None if asked.problem.dtype in allowed else f"needs {' or '.join(allowed)}, this is {asked.problem.dtype}"
        )

    return limit


def _few_rows(asked: Question) -> str | None:
    """In float32 there are no tensor cores to use, only the matrix-vector kernel."""
    most = 1 if asked.problem.dtype == "float32" else SMALL_ROWS
    return (
        None
        if asked.problem.m <= most
        else f"is for at most {most} row{'s' if most > 1 else ''}, these are {asked.problem.m}"
    )


def _nonempty(asked: Question) -> str | None:
    problem = asked.problem
    # an activation alone has no inner size, and only an MLP a second product
    inner = 1 if problem.operation == "gated_act" else problem.k
    out = problem.out if problem.operation in ("gated_mlp", "mlp") else 1
    return None if min(problem.m, problem.n, inner, out) > 0 else EMPTY


def _tma(asked: Question) -> str | None:
    """TMA: base addresses and strides of whole 16 bytes; a store writes up to the next 16 bytes of a row."""
    if not asked.problem.aligned:
        return "TMA needs pointers and row strides of whole 16 bytes"
    problem = asked.problem
    second = ("K", problem.k) if asked.role == "expand" else ("out", problem.out)
    for name, size in (("N", problem.n), second):
        if size % 8:
            return f"TMA needs {name} to be a multiple of 8, it is {size}"
    return None


def _library(asked: Question) -> str | None:
    if asked.problem.activation != "gelu_tanh":
        return "cuBLASLt has an epilogue for the tanh GELU only"
    if not asked.problem.bias:
        return "cuBLASLt's epilogue comes with a bias, there is none"
    if asked.problem.training:
        return "cuBLASLt's epilogue does not keep the pre-activations that backward needs"
    if asked.problem.precision != "fast":
        # Its error norm is that of rounding, but its far negative tail has not been measured against eager's.
        return 'cuBLASLt\'s GELU is used with precision="fast" only, its negative tail is not known to be exact'
    return None


# In order of preference where costs are equal. Plain comes first: what wins nothing is not worth a kernel.
CANDIDATES: Final[tuple[Candidate, ...]] = (
    Candidate("plain"),
    Candidate(
        "elementwise",
        (_gpu, _dtype(*HALF, "float32"), _nonempty, _triton(PORTABLE_TRITON)),
    ),
    Candidate("library", (_gpu, _library, _dtype(*HALF), _nonempty)),
    Candidate(
        "small",
        (_gpu, _dtype(*HALF, "float32"), _few_rows, _nonempty, _triton(PORTABLE_TRITON)),
        tried=(80, 86, 89, 90),
        # One row is a matrix-vector product: wide blocks would not fit its registers, and nothing is split.
        variants=(
            Variant("gate_up", (("pdl", 1),)),
            Variant("gate_up", (("block_n", 64),), rows=2),
            *(
                Variant(step, options, rows)
                for step in ("linear_act", "project")
                for options, rows in (((("pdl", 1),), 1), *(((("split", parts),), 2) for parts in (1, 2, 4)))
            ),
        ),
    ),
    Candidate(
        "portable",
        # float32 is possible too, and far slower than cuBLAS with the elementwise kernel
        (_gpu, _dtype(*HALF), _nonempty, _triton(PORTABLE_TRITON)),
        tried=(80, 86, 89, 90),
    ),
    Candidate(
        "tma",
        (_gpu, _hopper, _dtype(*HALF), _tma, _nonempty, _triton(TMA_TRITON)),
        tried=(90,),
        variants=(
            Variant("gate_up", (("block_n", 64), ("num_stages", 3), ("num_warps", 4), ("persistent", 0))),
            Variant("gate_up", (("group", 16),)),
            Variant("linear_act", (("block_n", 128), ("num_stages", 3), ("num_warps", 4), ("persistent", 0))),
            *(
                Variant(step, options)
                for step in ("gate_up_backward", "linear_act_backward")
                for options in (
                    (("persistent", 1),),
                    # Three smaller blocks on a multiprocessor, which the registers would not hold otherwise.
                    (("block_m", 64), ("maxnreg", 168), ("num_warps", 4), ("subtiles", 4)),
                    (("block_n", 64), ("maxnreg", 168), ("num_warps", 4)),
                )
            ),
        ),
    ),
    Candidate(
        "hopper",
        (_gpu, _hopper, _dtype(*HALF), _tma, _nonempty, _gluon),
        tried=(90,),
        variants=(
            *(Variant(step, options) for step in ("gate_up", "linear_act") for options in ((("group", 16),), NARROW)),
            *(
                Variant(step, options)
                for step in ("gate_up_backward", "linear_act_backward")
                for options in (DEEP, NARROW_BACK)
            ),
        ),
    ),
)


def step_of(operation: Operation, role: Role) -> str | None:
    """Return the name of a step in `foretrace.fused.steps`; ``None``: the operation has none."""
    return STEPS_OF[operation][ROLES.index(role)]


def has_step(name: str, operation: Operation, role: Role) -> bool:
    """Whether there is an implementation of that name."""
    step = step_of(operation, role)
    return step is not None and name in names(step)


def refusal(candidate: Candidate, role: Role, problem: Problem, environment: Environment) -> str | None:
    """Return the first reason why a candidate cannot do this step; ``None``: it can."""
    if not has_step(candidate.name, problem.operation, role):
        return f"has no kernel for this step of {problem.operation}"
    asked = Question(problem, environment, role)
    for limit in candidate.limits:
        reason = limit(asked)
        if reason is not None:
            return reason
    return None


def untried(candidate: Candidate, problem: Problem) -> str | None:
    """Return why a possible candidate may be chosen by measurement only; ``None``: the model may choose it."""
    found = capability(problem.architecture)
    if candidate.tried is None or (found is not None and found[0] * 10 + found[1] in candidate.tried):
        return None
    return f"has not been run on {problem.architecture}; an autotune would check and time it"


def possible(role: Role, problem: Problem, environment: Environment) -> list[Candidate]:
    """Return the candidates that can do a step, in order of preference; ``plain`` is always among them."""
    return [c for c in CANDIDATES if refusal(c, role, problem, environment) is None]


def weight_gradients(problem: Problem, plan: Plan) -> str:
    """Return what makes the gradients of weights: ``small`` for few rows, unless a plan is all PyTorch's; ``plain``."""
    ours = {plan.expand.name, plan.project.name, plan.backward.name} != {"plain"}
    few = 0 < problem.m <= GRADIENT_ROWS and problem.dtype in HALF and problem.operation != "gated_act"
    return "small" if ours and few else "plain"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
