"""What must hold of every implementation of the fused layers, where others were reported to fail.

Each check takes a `Way` to compute and raises where it is wrong. `tests/fused` runs them on a CPU, through plain
PyTorch and in Triton's interpreter; `tests/gpu` through the automatic choice and every implementation of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from activation_truth import truth
from fused_products import canaries
from fused_ways import BY_TMA, OPERATIONS, PACKINGS, SAVES, Way, assert_right, copies, eager, gradients, ulp
from guarded import guarded_allocations


def check_tanh_gelu(way: Way) -> None:
    """In float32 to a few units in the last place of z, in half precision to one of the result, tail included."""
    z = torch.linspace(-12, 12, 16 * 256, dtype=torch.float64).reshape(16, 256).to(way.device, way.dtype)
    # The product with the identity is exact.
    found = way.run("linear_act", [z, torch.eye(256, dtype=way.dtype, device=way.device), None])
    exact = truth(z.double(), "gelu_tanh")
    if way.dtype == torch.float32:
        allowed = 4 * torch.finfo(torch.float32).eps * z.abs().double()
    else:
        # PyTorch's own, which may be what runs, loses the tail.
        theirs = functional.gelu(z, approximate="tanh").double()
        allowed = torch.maximum(ulp(exact, way.dtype), (theirs - exact).abs())
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
    if way.slow:
        assert_right(way, "gated_mlp", way.tensors("gated_mlp", (3, 431, 215, 5)))
        assert_right(way, "gated_mlp", way.tensors("gated_mlp", (3, 1, 1, 3)))
        return
    for k, n, out in ((431, 1023, 431), (37, 5461, 1), (1, 1, 3)):
        assert_right(way, "gated_mlp", way.tensors("gated_mlp", (way.sizes[0], k, n, out)))
        assert_right(way, "mlp", way.tensors("mlp", (way.sizes[0], k, n, out)), activation="gelu")


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
        ((6, k + 8), lambda x: x[:, 8:]),
        ((4, 2 * k), lambda x: x[::2, ::2]),
    ]
    if way.name not in BY_TMA:  # which may not be asked for by name then
        layouts += [((k, 6), lambda x: x.t()), ((3, k, 2), lambda x: x.transpose(1, 2))]
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
            # Of what lies past the last row a sigmoid makes a half: it must not be added up.
            assert_right(way, "gated_mlp", tensors, activation="sigmoid", packing=packing)
    assert_right(way, "mlp", way.tensors("mlp"), activation="gelu")
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
            found, _ = find("gate_up", way.name)(x, weight, weight.clone(), gate, up, activation, keep=False)
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
