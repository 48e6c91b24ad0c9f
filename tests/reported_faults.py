"""What must hold of every implementation of the fused layers, where others were reported to fail.

Each check takes a `Way` to compute and raises where it is wrong. `tests/fused` runs them on a CPU, through plain
PyTorch and in Triton's interpreter; `tests/gpu` through the automatic choice and every implementation of a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear

from activation_truth import truth
from fused_products import ACTIVATIONS, canaries
from guarded import guarded_allocations

SAVES: Final = ("preact", "recompute", "input")
PACKINGS: Final = ("separate", "gate_up", "up_gate", "interleaved")
# Implementations that read and write through TMA: sizes of whole 16 bytes.
BY_TMA: Final = ("tma", "hopper")
OPERATIONS: Final = ("gated_mlp", "mlp", "linear_act", "gated_act")


@dataclass(frozen=True)
class Way:
    """An implementation of the product with the activation, by name, or ``auto``; where, and in which dtype."""

    name: str
    device: str
    dtype: torch.dtype

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, K, N, out: no multiple of a tile, and odd where the implementation takes that."""
        rows = 5 if self.name == "small" else 37
        return (rows, 40, 72, 24) if self.name in BY_TMA else (rows, 23, 37, 19)

    @property
    def slow(self) -> bool:
        """In Triton's interpreter."""
        return self.device == "cpu" and self.name not in ("auto", "plain")

    def serves(self, operation: str) -> bool:
        return operation != "gated_act" or self.name in ("auto", "plain", "elementwise")

    @contextlib.contextmanager
    def asked(self, operation: str) -> Iterator[dict[str, Any]]:
        """The words of a call by this way, and the block it must be in."""
        if self.name == "auto":
            yield {}
            return
        from foretrace.fused.dispatch.overrides import override
        from foretrace.fused.plan import Implementation, Plan

        own_backward = self.name != "small" and not (operation == "linear_act" and self.name in (*BY_TMA, "portable"))
        backward = self.name if own_backward else "elementwise"
        project = "small" if self.name == "small" else "plain"
        if self.device == "cpu":  # where no kernel may be asked for by name
            steps = (Implementation(name) for name in (self.name, project, backward))
            yield {"plan": Plan(*steps, "preact", "override", "a test asks for it")}
        else:
            with override(expand=self.name, project=project, backward=backward):
                yield {}

    def run(self, operation: str, tensors: Sequence[Tensor | None], **words: Any) -> Tensor:
        from foretrace.fused import functional

        with self.asked(operation) as more:
            y: Tensor = getattr(functional, operation)(*tensors, **words, **more)
        return y

    def tensors(
        self, operation: str, sizes: tuple[int, int, int, int] | None = None, packing: str = "separate"
    ) -> list[Tensor | None]:
        """Operands in the order of `foretrace.fused.functional`, with every bias; all of them leaves."""
        rows, k, n, out = sizes or self.sizes
        wide, two = (n, True) if packing == "separate" else (2 * n, False)
        half = (n, k) if two else None
        shapes: dict[str, list[tuple[int, ...] | None]] = {
            "gated_mlp": [(rows, k), (wide, k), half, (out, n), (wide,), (n,) if two else None, (out,)],
            "mlp": [(rows, k), (n, k), (out, n), (n,), (out,)],
            "linear_act": [(rows, k), (n, k), (n,)],
            "gated_act": [(rows, n), (rows, n)],
        }
        return [
            None if shape is None else self.normal(*shape, seed=seed) for seed, shape in enumerate(shapes[operation])
        ]

    def normal(self, *shape: int, seed: int = 0, grad: bool = True) -> Tensor:
        """Numbers of order 1; of a matrix after the first, such that products are of order 1 as well."""
        generator = torch.Generator().manual_seed(1000 * seed + sum(shape))
        values = torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if seed and len(shape) > 1 else 1.0)
        return values.to(self.device, self.dtype).requires_grad_(grad)


# ---- what is right ----


def halves(stacked: Tensor | None, second: Tensor | None, packing: str) -> tuple[Tensor | None, Tensor | None]:
    """Gate and up of weights or biases."""
    if packing == "separate" or stacked is None:
        return stacked, second
    if packing == "interleaved":
        return stacked[0::2], stacked[1::2]
    first, last = stacked.chunk(2)
    return (first, last) if packing == "gate_up" else (last, first)


def eager(operation: str, tensors: Sequence[Any], activation: str = "gelu_tanh", packing: str = "separate") -> Tensor:
    """The layer in PyTorch's own operators, from its definition."""
    act = ACTIVATIONS[activation]
    if operation == "gated_act":
        return act(tensors[0]) * tensors[1]
    if operation == "linear_act":
        return act(linear(*tensors))
    if operation == "mlp":
        x, weight1, weight2, bias1, bias2 = tensors
        return linear(act(linear(x, weight1, bias1)), weight2, bias2)
    x, gate, up, down, gate_bias, up_bias, down_bias = tensors
    gate, up = halves(gate, up, packing)
    gate_bias, up_bias = halves(gate_bias, up_bias, packing)
    return linear(act(linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias)


def copies(tensors: Sequence[Tensor | None], dtype: torch.dtype | None = None) -> list[Tensor | None]:
    """Leaves of the same values that want the same gradients."""
    return [
        one if one is None else one.detach().clone().to(dtype or one.dtype).requires_grad_(one.requires_grad)
        for one in tensors
    ]


def gradients(y: Tensor, tensors: Sequence[Tensor | None], grad: Tensor, **words: Any) -> list[Tensor]:
    """Of those that want one."""
    leaves = [one for one in tensors if one is not None and one.requires_grad]
    return list(torch.autograd.grad(y, leaves, grad, **words))


def assert_no_worse(found: Sequence[Tensor], theirs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """As near to float64 as eager PyTorch, but for the chance of few numbers and the order of sums."""
    for number, (one, other, right) in enumerate(zip(found, theirs, exact, strict=True)):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if not right.numel():
            continue
        scale = right.norm() + 1e-30
        mistake, allowed = (float((each.double() - right).norm() / scale) for each in (one, other))
        bound = (1.5 + 4 / right.numel() ** 0.5) * allowed + (8 if one.dtype == torch.float32 else 1) * torch.finfo(
            one.dtype
        ).eps
        assert mistake <= bound, f"result {number}: error {mistake:.2g}, eager's {allowed:.2g}"


def assert_right(
    way: Way,
    operation: str,
    tensors: Sequence[Tensor | None],
    view: Callable[[Tensor], Tensor] = lambda x: x,
    reduce: Callable[[Tensor], Tensor] | None = None,
    activation: str = "gelu_tanh",
    packing: str = "separate",
    **words: Any,
) -> None:
    """The output and every gradient are as good as eager's.

    ``view``: of the first tensor, what the layer gets. ``reduce``: a loss; else the gradient that comes in is random.
    """

    def all_of(layer: Callable[[list[Any]], Tensor], leaves: Sequence[Tensor | None]) -> list[Tensor]:
        first = leaves[0]
        assert first is not None
        y = layer([view(first), *leaves[1:]])
        loss = y if reduce is None else reduce(y)
        grad = way.normal(*y.shape, seed=9, grad=False) if reduce is None else torch.ones_like(loss)
        return [y.detach(), *gradients(loss, leaves, grad.to(loss.dtype))]

    def ours(given: list[Any]) -> Tensor:
        extra = words if operation == "gated_act" or way.name == "auto" else {"save": "preact", **words}
        extra = {**extra, "packing": packing} if operation == "gated_mlp" else extra
        return way.run(operation, given, activation=activation, **extra)

    def right(given: list[Any]) -> Tensor:
        return eager(operation, given, activation, packing)

    found = all_of(ours, tensors)
    assert_no_worse(found, all_of(right, copies(tensors)), all_of(right, copies(tensors, torch.float64)))


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit in the last place of a dtype at float64 values."""
    info = torch.finfo(dtype)
    return torch.exp2(torch.floor(torch.log2(values.abs().clamp(min=info.tiny)))) * info.eps


# ---- the checks ----


def check_tanh_gelu(way: Way) -> None:
    """In float32 to a few units in the last place of z, in half precision to one of the result, tail included."""
    z = torch.linspace(-12, 12, 16 * 256, dtype=torch.float64).reshape(16, 256).to(way.device, way.dtype)
    # The product with the identity is exact.
    found = way.run("linear_act", [z, torch.eye(256, dtype=way.dtype, device=way.device), None])
    exact = truth(z.double(), "gelu_tanh")
    allowed = 4 * torch.finfo(torch.float32).eps * z.abs().double() if way.dtype == torch.float32 else None
    if way.name in ("auto", "plain") and way.device == "cpu" and allowed is None:
        return  # PyTorch's own, whatever it is
    allowed = ulp(exact, way.dtype) if allowed is None else allowed
    worst = (found.double() - exact).abs() - allowed
    assert worst.max() <= 0, f"at {z.flatten()[worst.argmax()]}"


def check_rounding(way: Way) -> None:
    """act(gate) * up is rounded once: its error is below that of eager, which rounds each factor before."""
    x, gate, up = way.normal(16, 64), way.normal(256, 64, seed=1), way.normal(256, 64, seed=2)
    down = torch.eye(256, dtype=way.dtype, device=way.device)
    for activation in ("silu", "gelu", "gelu_tanh"):
        with torch.no_grad():
            found = way.run("gated_mlp", [x * 4, gate, up, down], activation=activation)
            theirs = eager("gated_mlp", [x * 4, gate, up, down, None, None, None], activation)
            hidden = truth((x * 4).double() @ gate.double().t(), activation) * ((x * 4).double() @ up.double().t())
        ours, allowed = ((one.double() - hidden).norm() for one in (found, theirs))
        assert ours <= 1.02 * allowed


def check_saved_tensors(way: Way) -> None:
    """Inputs, the gradient that comes in and what was saved are the same after backward as before."""
    for operation, save in product(OPERATIONS, SAVES):
        if not way.serves(operation):
            continue
        tensors = way.tensors(operation)
        y = way.run(operation, tensors, **({} if operation == "gated_act" else {"save": save}))
        grad = way.normal(*y.shape, seed=8, grad=False)
        saved = [one for one in getattr(y.grad_fn, "saved_tensors", ()) if one is not None]
        assert saved or y.grad_fn is None or "Function" not in type(y.grad_fn).__name__
        watched = [one for one in (*tensors, *saved, grad, y) if one is not None]
        before = copies(watched)
        for retain in (True, False):
            gradients(y, tensors, grad, retain_graph=retain)
            for one, copy in zip(watched, before, strict=True):
                assert copy is not None
                torch.testing.assert_close(one, copy, rtol=0, atol=0)


def check_second_backward(way: Way) -> None:
    """Bitwise the first one; and after the graph is gone an error."""
    for operation, save in product(OPERATIONS, SAVES):
        if not way.serves(operation):
            continue
        tensors = way.tensors(operation)
        y = way.run(operation, tensors, **({} if operation == "gated_act" else {"save": save}))
        grad = way.normal(*y.shape, seed=8, grad=False)
        first = gradients(y, tensors, grad, retain_graph=True)
        for retain in (True, False):
            again = gradients(y, tensors, grad, retain_graph=retain)
            assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        try:
            gradients(y, tensors, grad)
        except RuntimeError as error:
            assert "second time" in str(error)  # noqa: PT017
        else:
            raise AssertionError("a third backward went through a graph that is gone")


def check_repeatability(way: Way) -> None:
    """The same bits in every run."""
    for operation in OPERATIONS:
        if not way.serves(operation):
            continue
        runs = []
        for _ in range(3):
            tensors = way.tensors(operation)
            y = way.run(operation, tensors)
            runs.append([y, *gradients(y, tensors, way.normal(*y.shape, seed=8, grad=False))])
        for again in runs[1:]:
            assert all(torch.equal(one, other) for one, other in zip(runs[0], again, strict=True))


def check_odd_sizes(way: Way) -> None:
    """K and N that no tile, vector or copy engine likes."""
    rows = 3 if way.slow else way.sizes[0]
    for k, n, out in ((431, 1023, 5), (1, 1, 3), *(() if way.slow else ((37, 5461, 1),))):
        assert_right(way, "gated_mlp", way.tensors("gated_mlp", (rows, k, n, out)))
    assert_right(way, "mlp", way.tensors("mlp", (rows, 431, 135, 5)), activation="gelu")


def check_layouts(way: Way) -> None:
    """Any number of dimensions and any strides, for each operation."""
    k = way.sizes[1]
    layouts: list[tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = [
        ((k,), lambda x: x),
        ((1, k), lambda x: x),
        ((2, 3, k), lambda x: x),
        ((2, 1, 2, k), lambda x: x),
        ((2, 1, k), lambda x: x.expand(2, 5, k)),
        ((1, k), lambda x: x.expand(7, k)),
        ((k, 6), lambda x: x.t()),
        ((3, k, 2), lambda x: x.transpose(1, 2)),
        ((6, k + 8), lambda x: x[:, 8:]),
        ((4, 2 * k), lambda x: x[::2, ::2]),
    ]
    for operation in ("gated_mlp",) if way.slow else ("gated_mlp", "mlp", "linear_act"):
        for shape, view in layouts:
            tensors = way.tensors(operation)
            tensors[0] = way.normal(*shape)
            assert_right(way, operation, tensors, view)
    if way.serves("gated_act"):
        for shape, view in layouts:
            up = view(way.normal(*shape, seed=3)).detach()
            assert_right(way, "gated_act", [way.normal(*shape), up], view)


def check_no_rows(way: Way) -> None:
    """M = 0 gives an empty output and gradients of zeros."""
    for operation, shape in product(("gated_mlp", "mlp", "linear_act"), ((0,), (2, 0, 3))):
        tensors = way.tensors(operation)
        tensors[0] = way.normal(*shape, way.sizes[1])
        y = way.run(operation, tensors)
        assert y.shape[:-1] == shape
        found = gradients(y, tensors, torch.ones_like(y))
        assert all(not one.any() for one in found)


def check_gradient_of_one_number(way: Way) -> None:
    """``y.sum().backward()`` hands on a gradient of strides 0."""
    for operation in OPERATIONS:
        if way.serves(operation):
            assert_right(way, operation, way.tensors(operation), reduce=lambda y: y.sum())
            assert_right(way, operation, way.tensors(operation), reduce=lambda y: y.mean(0).sum())


def check_each_gradient_alone(way: Way) -> None:
    """Each input's gradient where nothing else wants one; gate's and up's are not exchanged."""
    for operation in OPERATIONS:
        if not way.serves(operation):
            continue
        for wanted in range(len(way.tensors(operation))):
            tensors = way.tensors(operation)
            for place, one in enumerate(tensors):
                assert one is not None
                one.requires_grad_(place == wanted)
            assert_right(way, operation, tensors, activation="silu")


def check_every_subset(way: Way) -> None:
    """Whatever is frozen, the gradients of the others stay what they are."""
    whole = way.tensors("gated_mlp")
    y = way.run("gated_mlp", whole, activation="silu")
    grad = way.normal(*y.shape, seed=8, grad=False)
    expected = gradients(y, whole, grad)
    for wanted in product((True, False), repeat=len(whole)):
        if not any(wanted):
            continue
        tensors = way.tensors("gated_mlp")
        for one, want in zip(tensors, wanted, strict=True):
            assert one is not None
            one.requires_grad_(want)
        found = gradients(way.run("gated_mlp", tensors, activation="silu"), tensors, grad)
        rest = [right for right, want in zip(expected, wanted, strict=True) if want]
        for one, right in zip(found, rest, strict=True):
            # Another choice of kernels may add up in another order.
            assert (one - right).float().norm() <= 8 * torch.finfo(way.dtype).eps * right.float().norm()


def check_biases(way: Way) -> None:
    """Their gradients are sums over rows, one for each of gate, up and down, also where every weight is frozen."""
    for packing in PACKINGS:
        for frozen in (False, True):
            tensors = way.tensors("gated_mlp", packing=packing)
            for one in tensors[:4]:
                if one is not None and frozen:
                    one.requires_grad_(False)
            assert_right(way, "gated_mlp", tensors, activation="silu", packing=packing)
    for missing in (4, 5):
        tensors = way.tensors("gated_mlp")
        tensors[missing] = None
        assert_right(way, "gated_mlp", tensors, activation="silu")


def check_packings(way: Way) -> None:
    """Every order of gate and up is a layer of its own."""
    for packing in PACKINGS:
        assert_right(way, "gated_mlp", way.tensors("gated_mlp", packing=packing), packing=packing)


def check_both_gelus(way: Way) -> None:
    """``gelu`` is the exact one, ``gelu_tanh`` the other: each is nearer to its own formula than to the other's."""
    z = torch.linspace(-4, 4, 16 * 256).reshape(16, 256).to(way.device, way.dtype)
    identity = torch.eye(256, dtype=way.dtype, device=way.device)
    formulas = {name: truth(z.double(), name) for name in ("gelu", "gelu_tanh")}
    # Where the two differ by much more than rounding.
    rounding = 2 * ulp(formulas["gelu"], way.dtype)
    apart = (formulas["gelu"] - formulas["gelu_tanh"]).abs() > rounding.clamp(min=1e-4)
    assert apart.any()
    for name, other in (("gelu", "gelu_tanh"), ("gelu_tanh", "gelu")):
        found = way.run("linear_act", [z, identity, None], activation=name)[apart].double()
        assert ((found - formulas[name][apart]).abs() < (found - formulas[other][apart]).abs()).all()


def check_canaries(way: Way) -> None:
    """Nothing is written past the end of any result, for rows that end inside a tile and inside 16 bytes."""
    for save in SAVES:
        tensors = way.tensors("gated_mlp")

        def everything(tensors: list[Tensor | None] = tensors, save: str = save) -> list[Tensor]:
            y = way.run("gated_mlp", tensors, activation="silu", save=save)
            return [y, *gradients(y, tensors, way.normal(*y.shape, seed=8, grad=False))]

        expected = everything()  # before the canaries: what is measured once is measured without them
        with canaries(), guarded_allocations():
            found = everything()
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def check_nan_and_infinity(way: Way) -> None:
    """NaN and infinities come out where PyTorch lets them: relu(NaN) is NaN, gelu(inf) inf, gelu(-inf) NaN."""
    from foretrace.fused.steps import find

    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0, 3.0, -300.0, 300.0])
    gate, up = (one.flatten().to(way.device, way.dtype) for one in torch.meshgrid(special, special, indexing="ij"))
    x = torch.zeros(5, 8, dtype=way.dtype, device=way.device)
    weight = torch.zeros(64, 8, dtype=way.dtype, device=way.device)
    own = way.name in ("auto", "plain") and way.device == "cpu"
    for activation in ("gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid"):
        value = truth(gate.float(), activation)
        # On a CPU PyTorch's own gelu(inf) is NaN or inf by the place in a vector.
        clear = ~(gate == float("inf")) if own and activation == "gelu" else torch.ones_like(gate, dtype=torch.bool)

        def agree(found: Tensor, expected: Tensor, clear: Tensor = clear, activation: str = activation) -> None:
            assert_specials(found[:, clear], expected.expand(5, 64)[:, clear], activation)

        # Zeros and a bias: products of infinities with zeros elsewhere would hide what is asked.
        with torch.no_grad():
            found = way.run("linear_act", [x, weight, gate], activation=activation)
        agree(found, value)
        if way.name != "auto":
            found, _ = find("gate_up", way.name)(x, weight, weight, gate, up, activation, keep=False)
            agree(found, value * up)
        if way.serves("gated_act"):
            pair = [one.repeat(5, 1).requires_grad_() for one in (gate, up)]
            y = way.run("gated_act", pair, activation=activation)
            agree(y, value * up)
            for_gate, for_up = gradients(y, pair, torch.ones_like(y))
            agree(for_up, value)
            # At infinity the formulas of slopes, eager's among them, hold infinity times zero.
            finite = ~gate.isinf() & ~up.isinf()
            right = gradients(eager("gated_act", pair, activation), pair, torch.ones_like(y))[0]
            assert_specials(for_gate[:, finite], right[:, finite], activation)


def assert_specials(found: Tensor, expected: Tensor, activation: str) -> None:
    """Equal, NaN to NaN; of the last bits other tests speak."""
    expected = expected.to(found.dtype)
    torch.testing.assert_close(
        found, expected, equal_nan=True, rtol=2e-2, atol=2e-3, msg=lambda said: f"{activation}: {said}"
    )


CHECKS: Final[dict[str, Callable[[Way], None]]] = {
    name: check for name, check in list(globals().items()) if name.startswith("check_")
}
