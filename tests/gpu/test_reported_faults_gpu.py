"""Faults that users of other fused layers reported, as what must hold here on a GPU, in bfloat16.

The list is that of `tests/fused/test_reported_faults.py`, by number; `way` is the automatic choice and every
implementation that can run here. Left to a CPU, being the same on every device: mixed dtypes (17), adapters (18),
conversion (20) and the place of the package (28). Fully sharded parameters (23): `test_fused_modules_gpu.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_helpers import Run  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fused_ways  # noqa: E402
import reported_faults as faults  # noqa: E402
from foretrace.errors import InputError  # noqa: E402
from foretrace.fused import GatedMLP, gated_act, gated_mlp, linear_act, override  # noqa: E402
from foretrace.fused.dispatch.candidates import CANDIDATES, possible, refusal  # noqa: E402
from foretrace.fused.dispatch.choice import Choice, roles_of  # noqa: E402
from foretrace.fused.dispatch.environment import current  # noqa: E402
from foretrace.fused.plan import Operation, Problem  # noqa: E402
from foretrace.fused.planning import architecture_of  # noqa: E402
from foretrace.timing import clock_for, interleave  # noqa: E402
from fused_ways import Way  # noqa: E402

BF16 = torch.bfloat16
NAMES = ("auto", "plain", "elementwise", "portable", "tma", "hopper", "small")
AUTO = Way("auto", "cuda", BF16)
# torch warns of its own parts while it compiles.
compiles = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)


@pytest.fixture(scope="module", autouse=True)
def _autograds_thread_has_a_context() -> None:
    """The first float64 product of autograd's thread warns that it must make one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.ones(8, 8, device="cuda", dtype=torch.float64, requires_grad=True)
        (x @ x).sum().backward()


def problem(operation: Operation = "gated_mlp", training: bool = False, m: int = 5, **changes: Any) -> Problem:
    architecture = architecture_of(torch.device("cuda", 0))
    sizes = {"n": 1096, "k": 0 if operation == "gated_act" else 520, "out": 264 if operation.endswith("mlp") else 0}
    return Problem(operation, m, dtype="bfloat16", activation="gelu_tanh", architecture=architecture, training=training,
                   **{**sizes, **changes})  # fmt: skip


def needs(name: str) -> None:
    """Skip where an implementation cannot run, with the reason."""
    if name == "auto":
        return
    reason = refusal(next(one for one in CANDIDATES if one.name == name), "expand", problem(), current())
    if reason is not None:
        pytest.skip(f"{name} {reason}")


Holds = Callable[[Callable[[Way], None]], None]


@pytest.fixture(params=NAMES)
def way(request: pytest.FixtureRequest) -> Holds:
    """Whether a check holds by one of the ways."""
    needs(request.param)
    return lambda check: check(Way(request.param, "cuda", BF16))


@pytest.fixture
def peak() -> Iterator[None]:
    """Give the memory of large tests back."""
    if torch.cuda.get_device_properties(0).total_memory < 60 << 30:
        pytest.skip("needs 60 GB of GPU memory")
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


# ---- numbers ----


def test_01_the_tanh_gelu_is_right_to_an_ulp(way: Holds) -> None:
    """linkedin/Liger-Kernel#959."""
    way(faults.check_tanh_gelu)


def test_02_the_product_is_no_further_from_float64_than_eagers(way: Holds) -> None:
    """linkedin/Liger-Kernel#783, EricLBuehler/mistral.rs#1867."""
    way(faults.check_rounding)


def test_03_backward_changes_no_input_and_nothing_saved(way: Holds) -> None:
    """linkedin/Liger-Kernel#254, #272, #343."""
    way(faults.check_saved_tensors)


def test_04_a_second_backward_equals_the_first(way: Holds) -> None:
    """axolotl-ai-cloud/axolotl#3892."""
    way(faults.check_second_backward)


@compiles
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("columns", [12288, 14336, 28672])
def test_05_wide_rows_are_no_slower_than_compiled(columns: int, training: bool) -> None:
    """linkedin/Liger-Kernel#1330. 1.05: differences below 4 % are noise of a card that limits its power."""
    torch._dynamo.reset()
    gate, up = (AUTO.normal((1 << 27) // columns, 2 * columns, grad=training)).chunk(2, dim=-1)
    grad = torch.ones(gate.shape, device="cuda", dtype=BF16)
    compiled = torch.compile(lambda gate, up: functional.gelu(gate, approximate="tanh") * up, fullgraph=True)

    def call(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
        if training:
            return lambda: torch.autograd.grad(function(gate, up), (gate, up), grad)
        return lambda: function(gate, up)

    calls = {"ours": call(gated_act), "compiled": call(compiled)}
    times = interleave(calls, clock=clock_for("cuda"), warmup=5, runs=31)
    assert times["ours"].median_us <= 1.05 * times["compiled"].median_us


@compiles
def test_06_compiled_code_starts_the_same_kernels_without_float64() -> None:
    """linkedin/Liger-Kernel#1350: under torch.compile a Python float is a float64 argument."""
    from foretrace.fused.kernels.elementwise import foretrace_elementwise_forward
    from foretrace.fused.kernels.portable import foretrace_portable_forward

    torch._dynamo.reset()
    layer, x = GatedMLP(64, 128, device="cuda", dtype=BF16), AUTO.normal(300, 64, grad=False)
    for name, kernel in (("portable", foretrace_portable_forward), ("elementwise", foretrace_elementwise_forward)):
        compiled = torch.compile(layer, fullgraph=True)
        with torch.no_grad(), override(expand=name):
            expected = layer(x)
            variants = kernel.device_caches[torch.cuda.current_device()][0]
            known = set(variants)
            assert known
            assert torch.equal(compiled(x), expected)
        assert set(variants) == known
        assert all(".f64" not in variant.asm["ptx"] for variant in variants.values())


@compiles
def test_07_one_graph_without_breaks_serves_every_batch_size() -> None:
    """linkedin/Liger-Kernel#96, #174."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, layer = CompileCounterWithBackend("inductor"), GatedMLP(64, 128, device="cuda", dtype=BF16)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    for rows in (2, 16, 17, 1000):
        x = AUTO.normal(rows, 64)
        ours, eager = (torch.autograd.grad(f(x).square().sum(), [x, *layer.parameters()]) for f in (compiled, layer))
        for one, other in zip(ours, eager, strict=True):
            assert (one - other).float().norm() <= 2e-2 * other.float().norm()
    assert counter.frame_count == 1


@compiles
def test_08_after_the_first_call_no_device_is_asked_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm/aiter#2688."""
    torch._dynamo.reset()
    layer, x = GatedMLP(64, 128, device="cuda", dtype=BF16), AUTO.normal(300, 64)
    expected = layer(x)

    def unless_ours(real: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            # The compiler itself may ask.
            assert not sys._getframe(1).f_globals["__name__"].startswith("foretrace"), "the device was asked for again"
            return real(*given)

        return asked

    for name in ("get_device_properties", "get_device_capability"):
        monkeypatch.setattr(torch.cuda, name, unless_ours(getattr(torch.cuda, name)))
    assert torch.equal(layer(x), expected)
    found = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert (found - expected).float().norm() <= 1e-2 * expected.float().norm()


def test_09_two_processes_choose_alike(python: Run) -> None:
    """pytorch/pytorch#180811."""
    code = """
import torch
from foretrace import fused
for rows in (1, 16, 300, 8192):
    layer = fused.GatedMLP(768, 3072, device="cuda", dtype=torch.bfloat16)
    x = torch.zeros(rows, 768, device="cuda", dtype=torch.bfloat16)
    print(fused.explain(layer, x))
"""
    first, second = python(code), python(code)
    assert first.returncode == 0, first.stderr
    assert first.stdout
    assert first.stdout == second.stdout


@pytest.mark.usefixtures("peak")
@pytest.mark.parametrize("name", ["auto", "plain", "elementwise", "portable", "tma", "hopper"])
def test_10_more_than_two_to_the_31_elements(name: str) -> None:
    """deepspeedai/DeepSpeed#8590, fla-org/flash-linear-attention#1082, state-spaces/mamba#1015."""
    needs(name)
    m, k, n = 160_000, 64, 14_336
    way = Way(name, "cuda", BF16)
    tensors = way.tensors("gated_mlp", (m, k, n, k))[:4]
    y = way.run("gated_mlp", tensors, activation="silu", save="preact")
    grad = way.normal(m, k, seed=8, grad=False)
    found = [y, *fused_ways.gradients(y, tensors, grad)]
    # Weights' gradients are sums over all rows: the reference goes over them in pieces, in float32.
    wide = fused_ways.copies(tensors, torch.float32)
    expected: list[Tensor] = [torch.empty_like(y, dtype=torch.float32), torch.zeros(m, k, device="cuda")]
    expected += [torch.zeros_like(one) for one in wide[1:] if one is not None]
    for rows in torch.arange(m, device="cpu").split(10_000):
        piece = slice(int(rows[0]), int(rows[-1]) + 1)
        x = wide[0][piece].detach().requires_grad_()  # type: ignore[index]
        leaves = [x, *wide[1:]]
        out = fused_ways.eager("gated_mlp", [*leaves, None, None, None], "silu")
        dx, *weights = fused_ways.gradients(out, leaves, grad[piece].float())
        expected[0][piece], expected[1][piece] = out.detach(), dx
        for total, more in zip(expected[2:], weights, strict=True):
            total += more
    for one, right in zip(found, expected, strict=True):
        assert (one.float() - right).norm() <= 1.5e-2 * right.norm()
    for one, right in zip(found[:2], expected[:2], strict=True):  # offsets past 2³¹ are those of the last rows
        assert (one[-64:].float() - right[-64:]).norm() <= 1.5e-2 * right[-64:].norm()


def test_11_nothing_is_written_past_the_end_of_a_result(way: Holds) -> None:
    """triton-lang/triton#11583: a TMA store wrote on to the next 16 bytes."""
    way(faults.check_canaries)


@pytest.mark.parametrize("name", fused_ways.BY_TMA)
def test_11_rows_that_do_not_end_on_16_bytes_are_not_stored_by_tma(name: str) -> None:
    needs(name)
    x, weight = AUTO.normal(300, 64), AUTO.normal(71, 64, seed=1)
    with override(expand=name), pytest.raises(InputError, match="multiple of 8"):
        linear_act(x, weight)


MISALIGNED: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Tensor]]] = {
    "sliced": ((2048, 513), lambda wide: wide[:, :512]),
    "shifted": ((2048, 520), lambda wide: wide[:, 3:515]),
    "address": ((2048 * 512 + 1,), lambda wide: wide[1:].view(2048, 512)),
    "one row each": ((2048, 513), lambda wide: wide[:, :512].unsqueeze(1)),
}


@pytest.mark.parametrize("view", MISALIGNED)
def test_12_misaligned_inputs_are_right(view: str) -> None:
    """triton-lang/triton#10927, #10931: silently wrong."""
    shape, of = MISALIGNED[view]
    tensors = AUTO.tensors("gated_mlp", (2048, 512, 1024, 256))
    tensors[0] = AUTO.normal(*shape)
    fused_ways.assert_right(AUTO, "gated_mlp", tensors, of)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_12_misaligned_weights_are_right(place: int) -> None:
    tensors = AUTO.tensors("gated_mlp", (2048, 512, 1024, 256))
    weight = tensors[place]
    assert weight is not None
    memory = torch.empty(weight.numel() + 1, device="cuda", dtype=BF16)
    tensors[place] = memory[1:].view(weight.shape).copy_(weight.detach()).requires_grad_()
    fused_ways.assert_right(AUTO, "gated_mlp", tensors)


def test_12_a_misaligned_gradient_is_right(way: Holds) -> None:
    def check(way: Way) -> None:
        tensors = way.tensors("gated_mlp")
        y = way.run("gated_mlp", tensors)
        grad = way.normal(*y.shape, seed=8, grad=False)
        shifted = torch.empty(grad.numel() + 1, device="cuda", dtype=BF16)[1:].view(grad.shape).copy_(grad)
        expected = fused_ways.gradients(y, tensors, grad, retain_graph=True)
        found = fused_ways.gradients(y, tensors, shifted)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)

    way(check)


@pytest.mark.parametrize("name", fused_ways.BY_TMA)
def test_12_tma_is_refused_what_is_misaligned(name: str) -> None:
    needs(name)
    wide, weight = AUTO.normal(300, 65), AUTO.normal(72, 64, seed=1)
    with override(expand=name), pytest.raises(InputError, match="16 bytes"):
        linear_act(wide[:, :64], weight)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in fused_ways.BY_TMA])
def test_13_odd_sizes_work(name: str) -> None:
    """linkedin/Liger-Kernel, LigerMLP: an intermediate size of 431 raises."""
    needs(name)
    faults.check_odd_sizes(Way(name, "cuda", BF16))


def test_14_any_number_of_dimensions_and_any_strides(way: Holds) -> None:
    """linkedin/Liger-Kernel#1347."""
    way(faults.check_layouts)


@pytest.mark.parametrize("name", ["auto", "plain"])
def test_14_no_rows_at_all(name: str) -> None:
    faults.check_no_rows(Way(name, "cuda", BF16))


def test_14_no_outputs_at_all() -> None:
    tensors = AUTO.tensors("gated_mlp", (300, 64, 128, 0))
    y = gated_mlp(*tensors)  # type: ignore[arg-type]
    assert y.shape == (300, 0)
    assert not any(one.any() for one in fused_ways.gradients(y, tensors, torch.ones_like(y)))


def test_15_a_gradient_of_strides_0_is_a_gradient(way: Holds) -> None:
    """Dao-AILab/quack, test_mlp_zero_stride_grad."""
    way(faults.check_gradient_of_one_number)


def test_16_each_gradient_is_right_alone_and_none_is_another(way: Holds) -> None:
    """unslothai/unsloth#3314."""
    way(faults.check_each_gradient_alone)


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_17_autocast_is_that_of_nn_linear(dtype: torch.dtype) -> None:
    """unslothai/unsloth#7020, huggingface/trl#6988."""
    layer = GatedMLP(64, 128, activation="silu", device="cuda", dtype=dtype)
    x = AUTO.normal(300, 64, grad=False).float().requires_grad_()
    with torch.autocast("cuda", BF16):
        found = layer(x)
        expected = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    assert found.dtype == expected.dtype == BF16
    assert (found - expected).float().norm() <= 1e-2 * expected.float().norm()
    found.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    assert all(one.grad is not None and one.grad.dtype == dtype for one in layer.parameters())


def test_19_the_order_of_gate_and_up_is_what_is_said(way: Holds) -> None:
    """sgl-project/sglang#34940, vllm-project/vllm#22951."""
    way(faults.check_packings)


def test_20_the_two_gelus_are_two(way: Holds) -> None:
    """m87-labs/kestrel#162, tenstorrent/tt-metal#56387."""
    way(faults.check_both_gelus)


def test_21_the_librarys_epilogue_computes_the_tanh_or_nothing() -> None:
    """NVIDIA/TensorRT-LLM#17693, pytorch/pytorch#191431: `_addmm_activation` is another function on a CPU."""
    x, weight = AUTO.normal(300, 64, grad=False), AUTO.normal(128, 64, seed=1, grad=False)
    bias = AUTO.normal(128, seed=2, grad=False)
    with override(expand="library"):
        found = linear_act(x, weight, bias, "gelu_tanh", precision="fast")
        with pytest.raises(InputError, match="tanh"):
            linear_act(x, weight, bias, "gelu", precision="fast")
    value = functional.linear(x.double(), weight.double(), bias.double())
    tanh, erf = functional.gelu(value, approximate="tanh"), functional.gelu(value)
    apart = (tanh - erf).abs() > 2 * fused_ways.ulp(erf, BF16).clamp(min=1e-4)
    assert ((found - tanh).abs()[apart] < (found - erf).abs()[apart]).double().mean() > 0.95


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("save", fused_ways.SAVES)
def test_22_checkpointing_saves_the_same_tensors_again(save: Any, autocast: bool, reentrant: bool) -> None:
    """jzhang38/TinyLlama#152, pytorch/pytorch#141896."""
    dtype = torch.float32 if autocast else BF16
    layer, results = GatedMLP(64, 128, activation="silu", save=save, device="cuda", dtype=dtype), []
    for function in (layer, lambda x: checkpoint(layer, x, use_reentrant=reentrant)):
        x = AUTO.normal(300, 64, grad=False).to(dtype).requires_grad_()
        layer.zero_grad()
        with torch.autocast("cuda", BF16, enabled=autocast):
            y = function(x)
        y.float().square().sum().backward()
        assert x.grad is not None
        results.append([y, x.grad, *(one.grad.clone() for one in layer.parameters())])
    for one, other in zip(*results, strict=True):
        assert (one - other).float().norm() <= 1e-2 * other.float().norm()


def test_24_biases_of_gate_up_and_down_have_their_own_gradients(way: Holds) -> None:
    """NVIDIA/TransformerEngine#196, Dao-AILab/quack#112, AMD-AGI/Primus-Turbo#329."""
    way(faults.check_biases)


def test_24_every_subset_of_gradients(way: Holds) -> None:
    way(faults.check_every_subset)


# ---- configurations ----


@pytest.mark.parametrize(
    ("operation", "training", "m"),
    [
        ("gated_mlp", True, 300),
        ("gated_mlp", False, 5),
        ("mlp", True, 300),
        ("mlp", False, 5),
        ("linear_act", True, 300),
        ("gated_act", True, 300),
    ],
)
def test_25_every_configuration_that_may_be_chosen_is_right(operation: Operation, training: bool, m: int) -> None:
    """Dao-AILab/quack#133, Liger on SM100: columns written twice, 45 % of the results wrong."""
    from foretrace.fused.dispatch.trial import Trial

    asked = problem(operation, training, m, bias=operation != "gated_act")
    trial = Trial(asked, "cuda:0")
    wrong = {}
    for role in roles_of(operation, training):
        for candidate in possible(role, asked, current()):
            for implementation in candidate.implementations(asked, role):
                # Not the plain choice, which would be compared with itself.
                choice = Choice(save="recompute").having(role, implementation)
                reason = trial.refusal(choice)
                if reason is not None:
                    wrong[f"{role}={implementation}"] = reason
    assert wrong == {}


@pytest.mark.parametrize(("name", "stages"), [("tma", 2), ("tma", 3), ("tma", 4), ("hopper", 3), ("hopper", 4)])
def test_27_any_number_of_stages_is_right(name: str, stages: int) -> None:
    """triton-lang/triton#10474: descriptors and three stages or more, misaligned addresses."""
    needs(name)
    option = "num_stages" if name == "tma" else "stages"
    # A fourth block in backward takes the room of a part of the epilogue.
    backward = {("tma", 4): "tma[num_stages=4,persistent=1]", ("hopper", 4): "hopper[slots=1,stages=4]"}
    words = f"{name}[{option}={stages}]"
    with override(expand=words, backward=backward.get((name, stages), words)):
        fused_ways.assert_right(AUTO, "gated_mlp", AUTO.tensors("gated_mlp", (300, 520, 1096, 264)))


def test_29_nan_and_infinity_come_out_as_from_pytorch(way: Holds) -> None:
    """Dao-AILab/quack: relu(NaN) was 0."""
    way(faults.check_nan_and_infinity)


def test_results_are_the_same_bits_in_every_run(way: Holds) -> None:
    way(faults.check_repeatability)
