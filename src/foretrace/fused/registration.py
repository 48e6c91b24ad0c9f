"""How a layer becomes operators of `torch.library`: one for inference, one that keeps, one for the gradients.

``NAME`` returns the output alone: it is what an exported program holds and what inference runs. Where a gradient is
wanted, its autograd key calls ``NAME_training``, which also returns what the backward needs and whose own backward is
``NAME_backward``. Where everything was kept a compiler sees more of that backward: our one kernel is ``NAME_through``,
and the products around it are PyTorch's own, which it starts more cheaply and between which it gives memory back.
All are functional: no input is written, and no result shares memory with an input or with another result. A tensor
that is not kept and a gradient that is not wanted are empty, for an operator cannot return None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from foretrace.errors import InputError
from foretrace.fused.plan import Operation

__all__ = ["NAMESPACE", "ProductLayer", "define", "operator", "refuse_second_derivative"]

# A copy of this package under another name (as the Hugging Face hub loads it) must not define the same operators twice.
NAMESPACE = re.sub(r"\W", "_", __name__.partition(".")[0])
_library: Any = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]

Shape = tuple[int, ...]


def operator(name: str) -> Any:
    """Return the operator ``name`` of this package."""
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Define an operator: its result on any device (``run``), and the result's shapes alone (``fake``).

    ``Library.impl`` and not ``torch.library.custom_op``, which checks its arguments in Python on every call.
    """
    name = schema.partition("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)


def register_gradient(name: str, backward: Callable[..., Any], keep: Callable[..., None]) -> None:
    """Give ``name`` a gradient, and ``name_backward`` an error instead of a second one."""
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=keep, lib=_library)


def refuse_second_derivative(*_: Any) -> None:
    """Raise :class:`InputError`: the backward of a backward."""
    raise InputError(
        "foretrace.fused has no second derivative; compute the layer from F.linear and an activation where the "
        "gradient itself is differentiated"
    )


@dataclass(frozen=True, slots=True)
class ProductLayer:
    """A layer made of products: its tensors (x [M, K] first, the output's bias last), then rules, which are words.

    ``forward`` and ``backward`` are the layer's functions of `foretrace.fused.autograd.compute`; backward reads the
    first ``read`` tensors. ``sizes`` gives, from the tensors, the features of hidden and of the second product (0:
    there is none, and hidden is the output), ``second`` the place of that product's weight; each hidden feature has
    ``sides`` pre-activations. ``shapes`` are those of the gradients, ``None`` for one that is not wanted; ``join``
    turns gradients that share memory into one tensor before, and ``part`` takes it apart after. ``open`` is the
    backward in PyTorch's products and ``NAME_through``, for what it says it can do; None: it is always one operator.
    """

    name: Operation
    tensors: str
    read: int
    rules: tuple[str, ...]
    forward: Callable[..., tuple[Tensor | None, ...]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    sizes: Callable[[Sequence[Tensor]], tuple[int, int]]
    shapes: Callable[[list[bool], Sequence[Tensor]], tuple[Shape | None, ...]]
    second: int | None = None
    sides: int = 1
    join: Callable[..., tuple[Tensor | None, ...]] = lambda *gradients: gradients
    part: Callable[..., tuple[Tensor, ...]] = lambda _, *gradients: gradients
    open: Callable[..., tuple[Tensor | None, ...] | None] = lambda *_, **__: None

    @property
    def count(self) -> int:
        """How many tensors go in."""
        return _count(self.tensors)

    def register(self) -> None:
        """Define the three operators and the gradient."""
        rules = ", ".join(f"str {rule}" for rule in self.rules)
        read = ", ".join(self.tensors.split(", ")[: self.read])
        gradients = ", ".join(["Tensor"] * len(self.join(*[None] * self.count)))
        define(f"{self.name}({self.tensors}, {rules}) -> Tensor", self.run, self.fake)
        define(
            f"{self.name}_training({self.tensors}, {rules}) -> (Tensor, Tensor, Tensor)",
            self.run_training,
            self.fake_training,
        )
        define(
            f"{self.name}_backward(Tensor grad, {read}, Tensor preact, Tensor hidden, {rules}, bool[] wanted)"
            f" -> ({gradients})",
            self.run_backward,
            self.fake_backward,
        )
        register_gradient(f"{self.name}_training", self.differentiate, self.keep)
        register_gradient(f"{self.name}_backward", refuse_second_derivative, lambda **_: None)
        _library.impl(self.name, self.choose, "Autograd")

    def choose(self, *given: Any) -> Tensor:
        """The operator where autograd looks at it: with what backward needs only if there will be one."""
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*given):
            return cast(Tensor, operator(f"{self.name}_training")(*given)[0])
        with torch._C._AutoDispatchBelowAutograd():
            return cast(Tensor, operator(self.name)(*given))

    def run(self, *given: Any) -> Tensor:
        """The output alone."""
        with torch._C._DisableAutocast():
            y = self.forward(*given[: self.count], **self._named(given[self.count :], save=None))[0]
        return cast(Tensor, y)

    def run_training(self, *given: Any) -> tuple[Tensor, ...]:
        """The output, the pre-activations and hidden."""
        rules = self._named(given[self.count :], save=self._save(given))
        with torch._C._DisableAutocast():
            return _filled(given[0], self.forward(*given[: self.count], **rules))

    def run_backward(self, grad: Tensor, *given: Any) -> tuple[Tensor, ...]:
        """The gradients of what is ``wanted``."""
        *tensors, preact, hidden = given[: self.read + 2]
        *rules, wanted = given[self.read + 2 :]
        with torch._C._DisableAutocast():
            gradients = self.backward(
                grad, *tensors, _some(preact), _some(hidden), wanted=tuple(wanted), **self._named(rules)
            )
            return _filled(grad, self.join(*gradients))

    def fake(self, x: Tensor, *given: Any) -> Tensor:
        """The output's shape."""
        n, out = self.sizes((x, *given))
        return x.new_empty((x.shape[0], out or n))

    def fake_training(self, x: Tensor, *given: Any) -> tuple[Tensor, ...]:
        """The shapes of the output, the pre-activations and hidden."""
        (n, out), save = self.sizes((x, *given)), self._save((x, *given))
        return (
            x.new_empty((x.shape[0], out or n)),
            x.new_empty((x.shape[0], self.sides * n) if save != "input" else (0,)),
            x.new_empty((x.shape[0], n) if save == "preact" and out else (0,)),
        )

    def fake_backward(self, grad: Tensor, *given: Any) -> tuple[Tensor, ...]:
        """The shapes of the gradients."""
        wanted, tensors = given[-1], given[: self.read]
        return tuple(grad.new_empty((0,) if shape is None else shape) for shape in self.shapes(wanted, tensors))

    def keep(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Save what backward reads: of frozen weights nothing that only their gradients need."""
        _, preact, hidden = output
        ctx.mark_non_differentiable(preact, hidden)
        ctx.set_materialize_grads(False)
        wanted = ctx.needs_input_grad[: self.count]
        second = () if self.second is None else (self.second, self.count - 1)
        if not any(want for place, want in enumerate(wanted) if place not in second):
            preact = preact.new_empty(0)
        if self.second is None or not wanted[self.second]:
            hidden = hidden.new_empty(0)
        ctx.save_for_backward(*inputs[: self.read], preact, hidden)
        ctx.rules = inputs[self.count :]

    def differentiate(self, ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """One gradient for each argument that wants it."""
        rules = (None,) * len(self.rules)
        if grad is None:
            return ((None,) * self.count) + rules
        wanted = list(ctx.needs_input_grad[: self.count])
        # A backward that is differentiated is one operator, so that everything leads to its error.
        if not torch.is_grad_enabled() and self._save((*(None,) * self.count, *ctx.rules)) == "preact":
            *tensors, preact, hidden = ctx.saved_tensors
            with torch._C._DisableAutocast():
                opened = self.open(wanted, grad, tensors, preact, hidden, **self._named(ctx.rules))
            if opened is not None:
                return (*opened, *rules)
        gradients = operator(f"{self.name}_backward")(grad, *ctx.saved_tensors, *ctx.rules, wanted)
        parted = self.part(wanted, *gradients)
        return (*(one if want else None for one, want in zip(parted, wanted, strict=True)), *rules)

    def _named(self, rules: Sequence[str], **other: Any) -> dict[str, Any]:
        return {**dict(zip(self.rules, rules, strict=True)), **other}

    def _save(self, given: Sequence[Any]) -> str:
        """What to keep; ``auto`` is what is fastest, for no rule of the number of rows can decide while tracing."""
        save = str(given[self.count + self.rules.index("save")])
        return "preact" if save == "auto" else save


@functools.cache
def _count(tensors: str) -> int:
    return tensors.count("Tensor")


def _filled(like: Tensor, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple([like.new_empty(0) if tensor is None else tensor for tensor in tensors])  # a list comes cheaper


def _some(tensor: Tensor) -> Tensor | None:
    """A matrix that was kept, or None for the empty tensor that stands for one that was not."""
    return tensor if tensor.dim() == 2 else None
