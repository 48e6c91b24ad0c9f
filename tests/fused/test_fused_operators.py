"""The operators of torch.library: what torch checks of an operator, gradients, and graphs without breaks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from foretrace.errors import InputError
from foretrace.fused import eager, operators

M, K, N, OUT = 5, 8, 6, 4
RULES = ("silu", "preact", "exact")


def _random(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=_generator).requires_grad_(grad)


_generator = torch.Generator()


@pytest.fixture(autouse=True)
def seed() -> None:
    _generator.manual_seed(0)


def gated(packing: str = "separate", bias: bool = True, m: int = M) -> tuple[Tensor | None, ...]:
    """The tensors of a gated MLP: x, gate, up and down weight, gate, up and down bias."""
    if packing == "separate":
        weights, biases = (_random(N, K), _random(N, K)), (_random(N), _random(N))
    else:
        weights, biases = (_random(2 * N, K), None), (_random(2 * N), None)
    down_bias = _random(OUT)
    return (_random(m, K), *weights, _random(OUT, N), *(biases if bias else (None, None)), down_bias if bias else None)


def two_layers(m: int = M) -> tuple[Tensor, ...]:
    return _random(m, K), _random(N, K), _random(OUT, N), _random(N), _random(OUT)


def one_layer(m: int = M) -> tuple[Tensor, ...]:
    return _random(m, K), _random(N, K), _random(N)


def two_halves(m: int = M) -> tuple[Tensor, ...]:
    return _random(m, N), _random(m, N)


Call = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Any, ...], tuple[str, ...]]


def _calls(m: int = M) -> dict[str, Call]:
    """By name: the operator, the same in plain PyTorch, the tensors and the operator's rules."""
    calls: dict[str, Call] = {
        f"gated_mlp {packing}": (
            operators.gated_mlp,
            lambda *tensors, packing=packing: eager.gated_mlp(*tensors, "silu", packing),
            gated(packing, m=m),
            ("silu", packing, "preact", "exact"),
        )
        for packing in ("separate", "gate_up", "up_gate", "interleaved")
    }
    calls["mlp"] = operators.mlp, lambda *tensors: eager.mlp(*tensors, "silu"), two_layers(m), RULES
    calls["linear_act"] = operators.linear_act, lambda *tensors: eager.linear_act(*tensors, "silu"), one_layer(m), RULES
    calls["gated_act"] = operators.gated_act, lambda *t: eager.gated_act(*t, "silu"), two_halves(m), ("silu", "exact")
    return calls


@pytest.fixture(params=list(_calls()))
def call(request: pytest.FixtureRequest) -> Call:
    _generator.manual_seed(0)
    return _calls()[request.param]


def _with(rules: tuple[str, ...], save: str) -> tuple[str, ...]:
    return tuple(save if rule == "preact" else rule for rule in rules)


def _gradients(function: Callable[..., Tensor], tensors: tuple[Any, ...], *rules: str) -> list[Tensor]:
    inputs = [tensor for tensor in tensors if tensor is not None and tensor.requires_grad]
    y = function(*tensors, *rules)
    return [y, *torch.autograd.grad(y.square().sum(), inputs)]


@pytest.mark.parametrize("save", ["auto", "preact", "recompute", "input"])
def test_values_and_gradients_are_those_of_plain_pytorch(call: Call, save: str) -> None:
    operator, plain, tensors, rules = call
    torch.testing.assert_close(_gradients(operator, tensors, *_with(rules, save)), _gradients(plain, tensors))


@pytest.mark.parametrize("m", [0, 1])
def test_no_row_and_one_row(m: int) -> None:
    for operator, plain, tensors, rules in _calls(m).values():
        torch.testing.assert_close(_gradients(operator, tensors, *rules), _gradients(plain, tensors))


def test_every_subset_of_gradients() -> None:
    for wanted in itertools.product([False, True], repeat=7):
        if any(wanted):
            tensors = gated()
            for tensor, want in zip(tensors, wanted, strict=True):
                assert tensor is not None
                tensor.requires_grad_(want)
            found = _gradients(operators.gated_mlp, tensors, "gelu", "separate", "preact", "exact")
            expected = _gradients(lambda *given: eager.gated_mlp(*given, "gelu", "separate"), tensors)
            torch.testing.assert_close(found, expected)


# What takes a second each, test_aot_dispatch_dynamic, is done once: graphs have tests of their own below.
QUICK = ("test_schema", "test_autograd_registration", "test_faketensor")


@pytest.mark.parametrize("save", ["preact", "recompute", "input"])
def test_torch_finds_nothing_wrong_with_the_operators(call: Call, save: str) -> None:
    operator, _, tensors, rules = call
    rules = _with(rules, save)
    plain = tuple(tensor if tensor is None else tensor.detach() for tensor in tensors)
    _check(operator.__name__, (*tensors, *rules))
    if operator is operators.gated_act:
        _check("gated_act_backward", (_random(M, N, grad=False), *plain, *rules))
        return
    _check(f"{operator.__name__}_training", (*tensors, *rules))
    y, preact, hidden = getattr(torch.ops.foretrace, f"{operator.__name__}_training")(*plain, *rules)
    read = plain if operator is operators.linear_act else plain[:-1]
    for want in (True, False):
        wanted = [True, *[want and tensor is not None for tensor in tensors[1:]]]
        _check(f"{operator.__name__}_backward", (torch.ones_like(y), *read, preact, hidden, *rules, wanted))


def _check(name: str, arguments: tuple[Any, ...]) -> None:
    torch.library.opcheck(getattr(torch.ops.foretrace, name).default, arguments, test_utils=QUICK)


def test_torch_finds_nothing_wrong_with_gradients_in_a_graph() -> None:
    torch.library.opcheck(torch.ops.foretrace.gated_mlp.default, (*gated(), "silu", "separate", "preact", "exact"))


def test_inference_is_one_operator_and_keeps_nothing() -> None:
    tensors = gated()
    with torch.no_grad(), torch.profiler.profile() as profile:
        operators.gated_mlp(*tensors, "silu", "separate", "auto", "exact")
    names = {event.key for event in profile.key_averages()}
    assert "foretrace::gated_mlp" in names
    assert "foretrace::gated_mlp_training" not in names


def test_results_share_no_memory_with_each_other_or_with_an_input(call: Call) -> None:
    operator, _, tensors, rules = call
    if operator is operators.gated_act:
        return
    plain = [tensor for tensor in tensors if tensor is not None]
    before = [tensor.detach().clone() for tensor in plain]
    training = getattr(torch.ops.foretrace, f"{operator.__name__}_training").default
    results = training(*tensors, *rules)
    results[0].sum().backward()
    storages = [tensor.untyped_storage().data_ptr() for tensor in (*results, *plain) if tensor.numel()]
    assert len(set(storages)) == len(storages)
    assert all(torch.equal(now, then) for now, then in zip(plain, before, strict=True))


def test_what_only_frozen_weights_need_is_not_saved() -> None:
    def saved(*trained: int) -> list[tuple[int, ...]]:
        tensors, shapes = gated(bias=False), []
        for place, tensor in enumerate(tensors):
            if tensor is not None:
                tensor.requires_grad_(place in trained)

        def pack(tensor: Tensor) -> Tensor:
            shapes.append(tuple(tensor.shape))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            operators.gated_mlp(*tensors, "silu", "separate", "preact", "exact")
        return shapes

    preact, hidden = (M, 2 * N), (M, N)
    assert {preact, hidden} <= set(saved(0, 1, 2, 3))
    assert hidden not in saved(0)  # an adapter in front: only the input's gradient
    assert preact in saved(0)
    assert preact not in saved(3)


def test_the_graph_is_used_twice_with_the_same_result() -> None:
    tensors = gated()
    y = operators.gated_mlp(*tensors, "silu", "separate", "auto", "exact")
    first = torch.autograd.grad(y.sum(), tensors, retain_graph=True)
    second = torch.autograd.grad(y.sum(), tensors)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y.sum(), tensors)


def test_a_second_derivative_is_an_error(call: Call) -> None:
    operator, _, tensors, rules = call
    x = tensors[0]
    (gradient,) = torch.autograd.grad(operator(*tensors, *rules).square().sum(), x, create_graph=True)
    with pytest.raises(InputError, match="no second derivative"):
        gradient.sum().backward()


def test_strided_inputs_and_gradients_of_one_number() -> None:
    x, *others = gated(m=2 * M)
    assert x is not None
    for view in (x[::2], x.t().contiguous().t(), x[:, :1].expand(2 * M, K)):
        leaf = view.detach().requires_grad_()
        y = operators.gated_mlp(leaf, *others, "relu", "separate", "auto", "exact")
        expected = eager.gated_mlp(leaf, *others, "relu", "separate")
        torch.testing.assert_close(torch.autograd.grad(y.sum(), leaf), torch.autograd.grad(expected.sum(), leaf))


def test_autocast_changes_nothing_inside() -> None:
    tensors = tuple(None if one is None else one.detach().float().requires_grad_() for one in gated())
    expected = _gradients(operators.gated_mlp, tensors, "silu", "separate", "auto", "exact")
    with torch.autocast("cpu", torch.bfloat16):
        found = _gradients(operators.gated_mlp, tensors, "silu", "separate", "auto", "exact")
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


# ---- graphs ----


def test_one_graph_serves_every_number_of_rows(call: Call) -> None:
    operator, plain, tensors, rules = call
    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    compiled = torch.compile(lambda *given: operator(*given, *rules), backend=backend, fullgraph=True, dynamic=None)
    activations = 2 if operator is operators.gated_act else 1
    for m in (3, 7, 33, 64, 129):
        given = (*(_random(m, tensors[0].shape[1]) for _ in range(activations)), *tensors[activations:])
        if m == 3:
            for one in given[:activations]:
                torch._dynamo.mark_dynamic(one, 0)
        torch.testing.assert_close(_gradients(compiled, given), _gradients(plain, given))
    assert len(graphs) == 1


def test_a_compiler_sees_our_kernel_and_pytorchs_products_in_a_backward() -> None:
    torch._dynamo.reset()
    backwards: list[list[str]] = []

    def look(graph: torch.fx.GraphModule, _: Any) -> Any:
        backwards.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph)

    boxed: Any = make_boxed_func
    backend: Any = aot_autograd(fw_compiler=lambda graph, _: boxed(graph), bw_compiler=look)
    compiled = torch.compile(
        lambda *given: operators.gated_mlp(*given, "silu", "separate", "auto", "exact"),
        backend=backend,
        fullgraph=True,
    )
    _gradients(compiled, gated())
    assert [name for name in backwards[0] if name.startswith("foretrace")] == ["foretrace.gated_mlp_through.default"]
    # dW of down comes first, so that hidden can go before the pre-activations' gradient is made.
    products = [name for name in backwards[0] if "mm" in name or "through" in name]
    assert products.index("aten.mm.default") < products.index("foretrace.gated_mlp_through.default")
    assert len(products) == 1 + 4


# torch warns of itself while it copies the program.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_an_exported_program_holds_the_operator_and_takes_any_batch() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weights = gated(bias=False)[1:]
            self.weights = torch.nn.ParameterList([weight for weight in weights if weight is not None])

        def forward(self, x: Tensor) -> Tensor:
            gate, up, down = self.weights
            return operators.gated_mlp(x, gate, up, down, None, None, None, "silu", "separate", "auto", "exact")

    layer = Layer()
    program = torch.export.export(layer, (_random(M, K, grad=False),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert "foretrace.gated_mlp.default" in called
    x = _random(41, K, grad=False)
    torch.testing.assert_close(program.module()(x), layer(x))
    lowered = program.run_decompositions().module()
    torch.testing.assert_close(lowered(x), layer(x))


def test_a_compiled_backward_of_few_rows_on_a_gpu_stays_one_operator() -> None:
    """Whose kernels for weights' gradients are quicker than what the compiler would find."""

    def gradient(rows: object, *, dtype: torch.dtype = torch.bfloat16, gpu: bool = True) -> SimpleNamespace:
        return SimpleNamespace(shape=(rows, 8), dtype=dtype, is_cuda=gpu)

    assert operators._few(gradient(1))
    assert operators._few(gradient(32))
    others = (gradient(0), gradient(33), gradient(object()), gradient(16, dtype=torch.float32), gradient(16, gpu=False))
    assert not any(map(operators._few, others))
