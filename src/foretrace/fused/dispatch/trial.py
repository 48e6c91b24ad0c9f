"""Run choices on random data, refuse those that are wrong, and time the others against each other.

A choice is right when every output (in training also every gradient) is as near to a reference of higher precision
as plain PyTorch's is, in norm and in its worst element, and when a second run gives the same bits. Outputs are
allocated where NaN was written just before, so that what a kernel leaves out is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from foretrace.fused.dispatch.choice import PLAIN, ROLES, Choice
from foretrace.fused.dispatch.choose import plan_of
from foretrace.fused.dispatch.overrides import SCOPE, Scope
from foretrace.fused.plan import Problem
from foretrace.timing import Clock, clock_for, interleave
from foretrace.timing.flush import Flush, l2_bytes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Trial"]

PLAIN_CHOICE: Final = Choice()
_PLAIN_SCOPE: Final = Scope(words=(*tuple((role, PLAIN) for role in sorted(ROLES)), ("save", PLAIN_CHOICE.save)))
# Other orders of summation and one rounding fewer or more change an error's norm by a few percent, and its largest
# element, one of millions, by more. Of few elements the norm is itself a matter of chance.
_NORM_FACTOR: Final = {"exact": 1.15, "fast": 1.5}
_WORST_FACTOR: Final = 3.0
# A first look at every choice, then more samples of those that may still win.
_FIRST_RUNS, _FURTHER_RUNS = 4, 15
_MAY_WIN: Final = 1.15


class Trial:
    """The operands of one problem, its reference, and how plain PyTorch errs on them.

    ``device``: where to run; any device of torch. ``clock``: what to time with. Randomness has its own generator.
    """

    def __init__(self, problem: Problem, device: str, clock: Clock | None = None, seed: int = 0) -> None:
        import torch

        self.problem = problem
        self.device = torch.device(device)
        self.clock = clock or clock_for(device)
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self.dtype: torch.dtype = getattr(torch, problem.dtype)
        self.operands = self._operands()
        if problem.training:
            for operand in self.operands.values():
                operand.requires_grad_()
        hidden_only = problem.operation in ("linear_act", "gated_act")
        self.grad_out = self._normal(problem.m, problem.n if hidden_only else problem.out)
        self.reference = self._reference()
        plain = self.run(PLAIN_CHOICE)
        self.allowed = [self._allowed(*pair) for pair in zip(plain, self.reference, strict=True)]

    def _allowed(self, plain: Tensor, reference: Tensor) -> tuple[float, float]:
        import torch

        norm, worst = _errors(plain, reference)
        # Where plain PyTorch happens to be exact, a fraction of one rounding is still allowed.
        rounding = torch.finfo(self.dtype).eps / 4
        factor = _NORM_FACTOR[self.problem.precision] + 4 / max(reference.numel(), 1) ** 0.5
        return max(norm * factor, rounding), max(worst * _WORST_FACTOR, rounding)

    def __call__(self, choices: Sequence[Choice]) -> dict[Choice, float | str]:
        """Return the µs of every choice that is right, and the reason for every other."""
        found: dict[Choice, float | str] = {}
        for choice in choices:
            reason = self.refusal(choice)
            if reason is not None:
                found[choice] = reason
        right = [choice for choice in choices if choice not in found]
        times = self._time(right, _FIRST_RUNS)
        limit = min(times.values(), default=0.0) * _MAY_WIN
        times |= self._time([choice for choice in right if times[choice] <= limit], _FURTHER_RUNS)
        return found | times

    def refusal(self, choice: Choice) -> str | None:
        """Return why a choice may not be used: it raised, was wrong, or did not repeat; ``None``: it may."""
        import torch

        try:
            self._poison()
            first = self.run(choice)
            for number, (output, reference) in enumerate(zip(first, self.reference, strict=True)):
                norm, worst = _errors(output, reference)
                allowed = self.allowed[number]
                if not (norm <= allowed[0] and worst <= allowed[1]):  # NaN compares false
                    return (
                        f"wrong: result {number} is off by {norm:.2g} in norm and {worst:.2g} at worst, allowed are "
                        f"{allowed[0]:.2g} and {allowed[1]:.2g}"
                    )
            if not all(map(torch.equal, first, self.run(choice))):
                return "two runs differ"
        except Exception as error:
            return f"raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        return None

    def run(self, choice: Choice) -> list[Tensor]:
        """Return the output and, in training, the gradient of every operand."""
        return self._differentiated(self._call(choice))

    def _differentiated(self, call: Callable[[], Tensor], operands: dict[str, Tensor] | None = None) -> list[Tensor]:
        import torch

        if not self.problem.training:
            with torch.no_grad():
                return [call()]
        leaves = self.operands if operands is None else operands
        out = call()
        grads = torch.autograd.grad(out, list(leaves.values()), self.grad_out.to(out.dtype))
        return [out.detach(), *grads]

    def _call(self, choice: Choice) -> Callable[[], Tensor]:
        from foretrace.fused import functional

        problem = self.problem
        operation: Any = getattr(functional, problem.operation)
        named: dict[str, Any] = {"activation": problem.activation, "precision": problem.precision}
        if problem.operation == "gated_mlp":
            named["packing"] = problem.packing
            named |= {} if problem.packing == "separate" else {"up_weight": None}
        if choice == PLAIN_CHOICE:
            # Given as a plan it would run inside our autograd functions; chosen, it is PyTorch's operators and theirs.
            def plain() -> Tensor:
                token = SCOPE.set(_PLAIN_SCOPE)
                try:
                    return operation(**self.operands, **named)  # type: ignore[no-any-return]
                finally:
                    SCOPE.reset(token)

            return plain
        named["plan"] = plan_of(choice, "autotune", "being tried")
        return lambda: operation(**self.operands, **named)

    def _time(self, choices: Sequence[Choice], runs: int) -> dict[Choice, float]:
        if not choices:
            return {}
        labels = {str(number): choice for number, choice in enumerate(choices)}
        size = l2_bytes(str(self.device)) if self.device.type == "cuda" else None
        before = Flush(str(self.device), size) if size else None

        def timed(choice: Choice) -> Callable[[], object]:
            call = self._call(choice)
            return lambda: self._differentiated(call)

        calls = {label: timed(choice) for label, choice in labels.items()}
        times = interleave(calls, clock=self.clock, warmup=2, runs=runs, before=before)
        return {labels[label]: measurement.median_us for label, measurement in times.items()}

    def _operands(self) -> dict[str, Tensor]:
        """Names as `foretrace.fused.functional` has them. Pre-activations get a standard deviation of 2."""
        p = self.problem
        if p.operation == "gated_act":
            return {"gate": self._normal(p.m, p.n, scale=2), "up": self._normal(p.m, p.n)}
        first = 2 / p.k**0.5 if p.k else 1.0
        second = 1 / p.n**0.5 if p.n else 1.0
        operands = {"x": self._normal(p.m, p.k)}
        if p.operation == "gated_mlp":
            rows = p.n if p.packing == "separate" else 2 * p.n
            operands["gate_weight"] = self._normal(rows, p.k, scale=first)
            if p.packing == "separate":
                operands["up_weight"] = self._normal(p.n, p.k, scale=first)
            operands["down_weight"] = self._normal(p.out, p.n, scale=second)
            biases = {"gate_bias": rows}
            if p.packing == "separate":
                biases["up_bias"] = p.n
        elif p.operation == "mlp":
            operands["weight1"] = self._normal(p.n, p.k, scale=first)
            operands["weight2"] = self._normal(p.out, p.n, scale=second)
            biases = {"bias1": p.n}
        else:
            operands["weight"] = self._normal(p.n, p.k, scale=first)
            biases = {"bias": p.n}
        if p.bias:
            operands |= {name: self._normal(size) for name, size in biases.items()}
        return operands

    def _normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        import torch

        count = 1
        for size in shape:
            count *= size
        # One element further on in memory, where the problem is of operands that are not aligned.
        shift = 0 if self.problem.aligned else 1
        flat = torch.empty(count + shift, dtype=self.dtype, device=self.device)
        values = flat[shift:].view(shape)
        return values.normal_(generator=self.generator).mul_(scale)

    def _reference(self) -> list[Tensor]:
        """The operation from its definition, in float64, or in float32 where memory is short and the dtype is half."""
        import torch
        from torch.nn.functional import linear

        from foretrace.fused.activations import apply
        from foretrace.fused.weights import split

        p = self.problem
        wide = torch.float64
        if self.device.type == "cuda" and self.dtype in (torch.bfloat16, torch.float16):
            needed = 8 * (8 * p.m * p.n + 3 * p.n * (p.k + p.out))
            if needed > torch.cuda.mem_get_info(self.device)[0]:
                wide = torch.float32
        high = {name: t.detach().to(wide).requires_grad_(p.training) for name, t in self.operands.items()}

        def call() -> Tensor:
            get = high.get
            if p.operation == "gated_act":
                return apply(p.activation, high["gate"]) * high["up"]
            if p.operation == "linear_act":
                return apply(p.activation, linear(high["x"], high["weight"], get("bias")))
            if p.operation == "mlp":
                hidden = apply(p.activation, linear(high["x"], high["weight1"], get("bias1")))
                return linear(hidden, high["weight2"])
            gate_weight, up_weight = split(high["gate_weight"], get("up_weight"), p.packing)
            gate_bias, up_bias = split(get("gate_bias"), get("up_bias"), p.packing)
            assert gate_weight is not None
            assert up_weight is not None
            gate, up = linear(high["x"], gate_weight, gate_bias), linear(high["x"], up_weight, up_bias)
            return linear(apply(p.activation, gate) * up, high["down_weight"])

        return self._differentiated(call, high)

    def _poison(self) -> None:
        """Write NaN where the caching allocator will put what the next call allocates."""
        import torch

        p = self.problem
        shapes = [(p.m, 2 * p.n), (p.m, p.n), (p.m, p.n), (p.m, p.out), (p.m, p.k), (2 * p.n, p.k), (p.out, p.n)]
        filled = [torch.full(shape, float("nan"), dtype=self.dtype, device=self.device) for shape in shapes]
        del filled


def _errors(output: Tensor, reference: Tensor) -> tuple[float, float]:
    """Norm of the error over the norm of the reference, and the largest error over the reference's largest value."""
    difference = output.detach().to(reference.dtype).sub_(reference)
    if difference.numel() == 0:
        return 0.0, 0.0
    tiny = 1e-30
    return (
        float(difference.norm() / reference.norm().clamp_min(tiny)),
        float(difference.abs().max() / reference.abs().max().clamp_min(tiny)),
    )
