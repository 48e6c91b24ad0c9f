"""The steps of a layer and the implementations of each, by name; modules are imported when they are first wanted.

A step is a plain function on 2-D tensors of one dtype and device, without autograd, whose last dimension has stride 1.
``options`` are integers that tune it. x [M, K], gate and up [N, K], down [out, N], hidden [M, N]; pre-activations are
one tensor [M, 2N], gate first, or [M, N] where there is no gate::

    gate_up(x, gate, up, gate_bias, up_bias, activation, *, keep, precision, **options) -> hidden, preact | None
    linear_act(x, weight, bias, activation, *, keep, precision, **options) -> hidden, preact | None
    project(hidden, weight, bias, **options) -> y
    gate_up_backward(grad_out, down, preact, activation, *, want_hidden, want_bias, into, **options)
        -> dpreact, hidden | None, column sums of dpreact in float32 | None
    linear_act_backward(…)  the same for one product
    gated_act(gate, up, activation, *, precision, **options) -> hidden
    gated_act_backward(grad_hidden, gate, up, activation, *, grad_gate, grad_up, want_hidden, **options)
        -> dgate, dup, hidden | None
    act_backward(grad_hidden, preact, activation, *, into, want_hidden, want_bias, **options)
        -> dpreact, hidden | None, column sums of dpreact in float32 | None
    weight_gradient(grad, x, out) -> gradᵀ·x, written to out if that is not None

``into`` is a buffer for dpreact and may be ``preact`` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from inspect import signature
from typing import Any, Final, get_args

from foretrace.errors import InputError
from foretrace.fused.plan import Implementation, Operation, Plan, Save
from foretrace.fused.rows import watched

__all__ = ["STEPS_OF", "Bound", "bind", "find", "names"]

# For each operation the steps that a plan's expand, project and backward stand for; None: it has no such step.
STEPS_OF: Final[dict[Operation, tuple[str, str | None, str]]] = {
    "gated_mlp": ("gate_up", "project", "gate_up_backward"),
    "mlp": ("linear_act", "project", "linear_act_backward"),
    "linear_act": ("linear_act", None, "act_backward"),
    "gated_act": ("gated_act", None, "gated_act_backward"),
}

_ROOM: Final = __name__.rpartition(".")[0]
_FUSED: Final = ("gate_up", "linear_act", "gate_up_backward", "linear_act_backward")
_ELEMENTWISE: Final = ("gated_act", "gated_act_backward", "act", "act_backward")

# implementation → step → module of this package, and function if it is not called as the step is
_HOMES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "plain": {step: ("plain", step) for step in (*_FUSED, *_ELEMENTWISE, "project")},
    "elementwise": {
        **{step: ("unfused", step) for step in _FUSED},
        **{step: ("kernels.elementwise", step) for step in _ELEMENTWISE},
    },
    "portable": {
        **{step: ("kernels.portable", step) for step in ("gate_up", "linear_act")},
        **{step: ("kernels.portable_backward", step) for step in ("gate_up_backward", "linear_act_backward")},
    },
    "tma": {step: ("kernels.tma", step) for step in _FUSED},
    "hopper": {step: ("kernels.hopper.products", step) for step in _FUSED},
    "small": {
        **{step: ("kernels.small", step) for step in ("gate_up", "linear_act", "project")},
        "weight_gradient": ("kernels.small_gradient", "weight_gradient"),
    },
    "library": {"linear_act": ("unfused", "library_linear_act")},
}
# One kernel of ours does the whole step. The others are made of operators that have rows in a profile themselves.
_ONE_KERNEL: Final = ("portable", "tma", "hopper", "small")


def names(step: str) -> tuple[str, ...]:
    """Return the implementations of a step, by name."""
    return tuple(name for name, homes in _HOMES.items() if step in homes)


@cache
def find(step: str, name: str) -> Callable[..., Any]:
    """Return an implementation of a step, imported on first use; it has a row in a profile (`foretrace.fused.rows`).

    Raises :class:`InputError` for a step or an implementation that does not exist.
    """
    home = _HOMES.get(name, {}).get(step)
    if home is None:
        raise InputError(f"{name!r} has no step {step!r}; implementations of it: {', '.join(names(step)) or 'none'}")
    module, function = home
    found: Callable[..., Any] = getattr(import_module(f"{_ROOM}.{module}"), function)
    return watched(step, found) if name in _ONE_KERNEL else found


class Bound:
    """A plan whose implementations were looked up: the functions to call, with their options.

    ``plain``: all of them are PyTorch's own operators, so that eager's autograd serves as well.
    """

    __slots__ = ("backward", "expand", "plain", "plan", "project", "save")

    def __init__(self, operation: Operation, plan: Plan) -> None:
        if plan.save not in get_args(Save):
            raise InputError(f"a plan with save={plan.save!r} is not known; choose from {', '.join(get_args(Save))}")
        expand, project, backward = STEPS_OF[operation]
        self.plan = plan
        self.save = plan.save
        self.expand = _with_options(expand, plan.expand)
        self.project = _with_options(project or "project", plan.project if project else Implementation("plain"))
        self.backward = _with_options(backward, plan.backward)
        if plan.backward.name == "hopper":
            self.expand = self._preparing(self.expand, backward, dict(plan.backward.options))
        used = [plan.expand, plan.backward, *([plan.project] if project else [])]
        self.plain = all(one.name == "plain" for one in used)

    def _preparing(self, expand: Callable[..., Any], backward: str, options: dict[str, int]) -> Callable[..., Any]:
        """The same step, which starts to compile what backward needs when it is first called for training."""

        def first(x: Any, weight: Any, *others: Any, keep: bool, **words: Any) -> Any:
            if keep:
                self.expand = expand
                prepare = import_module(f"{_ROOM}.kernels.hopper.products").prepare_backward
                # The last positional argument of every expanding step is the activation.
                prepare(backward == "gate_up_backward", x, weight.shape[0], others[-1], **options)
            return expand(x, weight, *others, keep=keep, **words)

        return first


def _with_options(step: str, implementation: Implementation) -> Callable[..., Any]:
    function = find(step, implementation.name)
    if not implementation.options:
        return function
    options = dict(implementation.options)
    unknown = sorted(options.keys() - signature(function).parameters.keys())
    if unknown:
        raise InputError(f"{implementation.name!r} has no option {unknown[0]!r} for its step {step!r}; leave it out")
    return partial(function, **options)


_bound: dict[tuple[Operation, int], Bound] = {}


def bind(operation: Operation, plan: Plan) -> Bound:
    """Return a plan with its implementations looked up; one look-up when the same plan object comes again."""
    # By identity, because hashing a plan costs more than all the rest. The entry keeps its plan alive, so that
    # the number cannot come to mean another one.
    found = _bound.get((operation, id(plan)))
    if found is None:
        if len(_bound) > 4096:  # plans made anew for every call
            _bound.clear()
        found = _bound[operation, id(plan)] = Bound(operation, plan)
    return found
