"""Decode kernels on a GPU: accuracy, repeatability, dependent launches, graphs, and streams that run side by side."""

from __future__ import annotations

import pytest
import torch

from fused_products import ACTIVATIONS, canaries, close, data, no_worse_than, pair, preactivation

pytest.importorskip("triton")

from foretrace.fused.kernels.small import gate_up, linear_act, project

BF16, FP16 = torch.bfloat16, torch.float16
# What sums of a few thousand float32 products lose.
LOST = 2e-4
SIZES = ((1, 4096, 1024), (1, 37, 43), (1, 2100, 7), (2, 4096, 1024), (5, 600, 43), (16, 37, 5), (16, 4096, 3001))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("packing", ["separate", "interleaved"])
def test_gate_up(m: int, k: int, n: int, dtype: torch.dtype, packing: str) -> None:
    x = data(m, k, dtype, 0, "cuda")
    gate, up = pair(n, k, dtype, packing, "cuda")
    bias = data(1, n, dtype, 3, "cuda")[0]
    gate_value, up_value = preactivation(x, gate, bias), preactivation(x, up, None)
    for activation in ("gelu", "gelu_tanh", "silu"):
        expected = ACTIVATIONS[activation](gate_value) * up_value
        with canaries():
            hidden, preact = gate_up(x, gate, up, bias, None, activation, keep=True)
        close(hidden, expected, LOST)
        close(preact, torch.cat([gate_value, up_value], 1), LOST)
        again, _ = gate_up(x, gate, up, bias, None, activation, keep=False)
        assert torch.equal(again, hidden)
        linear = torch.nn.functional.linear
        no_worse_than(ACTIVATIONS[activation](linear(x, gate, bias)) * linear(x, up), hidden, expected)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize(("m", "k", "n"), [*SIZES, (16, 14336, 4096), (3, 1024, 1)])
def test_project(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    hidden, weight = data(m, k, dtype, 0, "cuda"), data(n, k, dtype, 1, "cuda")
    bias = data(1, n, dtype, 3, "cuda")[0]
    expected = preactivation(hidden, weight, bias)
    for split in (None, 1, 2, 4):
        with canaries():
            y = project(hidden, weight, bias, split=split)
        close(y, expected, LOST)
        assert all(torch.equal(project(hidden, weight, bias, split=split), y) for _ in range(5))


@pytest.mark.parametrize("m", [1, 16])
def test_nan_and_infinity_stay_what_they_are(m: int) -> None:
    x = torch.zeros(m, 64, device="cuda", dtype=BF16)
    x[:, 0] = 1.0
    weight = torch.zeros(4, 64, device="cuda", dtype=BF16)
    weight[:, 0] = torch.tensor([float("inf"), -float("inf"), float("nan"), 1.0])
    # inf * 0 in the other products would hide what is asked: only the first feature is not finite.
    x, weight = x[:, :1].contiguous(), weight[:, :1].contiguous()
    hidden, _ = linear_act(x, weight, None, "gelu", keep=False)
    expected = torch.nn.functional.gelu(torch.nn.functional.linear(x, weight))
    torch.testing.assert_close(hidden, expected, equal_nan=True, rtol=1e-2, atol=0)


@pytest.mark.parametrize("m", [1, 16])
def test_dependent_launches_keep_the_streams_order(m: int) -> None:
    """Each product reads what the one before has just written; started early, it must still wait."""
    x = data(m, 2048, BF16, 0, "cuda")
    gate, up = pair(2048, 2048, BF16, "separate", "cuda")
    weight = data(2048, 2048, BF16, 3, "cuda")

    def chain(pdl: int) -> torch.Tensor:
        state = x
        for _ in range(20):
            hidden, _ = gate_up(state, gate, up, None, None, "sigmoid", keep=False, pdl=pdl)
            state = project(hidden, weight, None, pdl=pdl, split=2).tanh()
        return state

    expected = chain(0)
    assert all(torch.equal(chain(1), expected) for _ in range(20))


def test_streams_side_by_side_do_not_share_counters() -> None:
    weight = data(512, 8192, BF16, 1, "cuda")
    inputs = [data(16, 8192, BF16, seed, "cuda") for seed in range(4)]
    expected = [project(one, weight, None, split=4) for one in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results: list[list[torch.Tensor]] = [[] for _ in inputs]
    for _ in range(50):
        for stream, one, kept in zip(streams, inputs, results, strict=True):
            with torch.cuda.stream(stream):
                kept.append(project(one, weight, None, split=4))
    torch.cuda.synchronize()
    for kept, right in zip(results, expected, strict=True):
        assert all(torch.equal(one, right) for one in kept)


def test_graphs_captured_on_one_stream_may_be_replayed_side_by_side() -> None:
    weight = data(512, 8192, BF16, 1, "cuda")
    inputs = [data(16, 8192, BF16, seed, "cuda") for seed in range(3)]
    expected = [project(one, weight, None, split=4) for one in inputs]
    graphs, outputs = [], []
    for one in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs.append([project(one, weight, None, split=4) for _ in range(8)])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(20):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        project(inputs[0], weight, None, split=4)
        torch.cuda.synchronize()
        for kept, right in zip(outputs, expected, strict=True):
            assert all(torch.equal(one, right) for one in kept)


# The compiler's own: it recommends TF32, and starts its workers with fork.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_compiled_with_graphs_leaves_nothing_in_their_memory_pool() -> None:
    """torch.compile refuses memory of a warm-up that outlives it; counters must come from elsewhere."""
    weight = data(512, 4096, BF16, 1, "cuda")
    x = data(16, 4096, BF16, 0, "cuda")

    @torch.library.custom_op("foretrace_test::split_project", mutates_args=())
    def split_project(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return project(x, weight, None, split=2)

    @split_project.register_fake
    def _(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x.new_empty((x.shape[0], weight.shape[0]))

    compiled = torch.compile(lambda x: torch.ops.foretrace_test.split_project(x, weight) + 1, mode="reduce-overhead")
    expected = project(x, weight, None, split=2) + 1
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(x).clone(), expected)
