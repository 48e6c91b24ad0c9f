"""Launches of every kind of kernel: started again as they were exactly when nothing about them has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from idle_kernels import STREAM, idle_kernels

from foretrace.fused.kernels import (
    elementwise,
    elementwise_sums,
    portable,
    portable_backward,
    small,
    tma_backward,
    tma_forward,
)

M, K, N = 5, 64, 96
# Where launches are remembered.
REMEMBER = (
    (elementwise, "_forwards"),
    (elementwise, "_backwards"),
    (elementwise_sums, "_launches"),
    (portable, "_launches"),
    (portable_backward, "_launches"),
    (portable_backward, "_partial_rows"),
    (small, "_gate_ups"),
    (small, "_linear_acts"),
    (tma_backward, "_launches"),
    (tma_forward, "_gate_ups"),
    (tma_forward, "_linear_acts"),
)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """The words of every launch but the first of a kernel, by kernels that do nothing."""
    pool: dict[tuple[Any, ...], Tensor] = {}

    def get(like: Tensor, shape: Any, dtype: torch.dtype | None = None) -> Tensor:
        """The same memory again, as the GPU's allocator hands it out in each step."""
        key = (tuple(shape), dtype or like.dtype)
        return pool.setdefault(key, torch.zeros(key[0], dtype=key[1]))

    for module, name in REMEMBER:
        monkeypatch.setattr(module, name, {})
    counters = torch.zeros(64, dtype=torch.int32)
    monkeypatch.setattr(small, "zeroed_counters", lambda like, count: counters[:count])
    monkeypatch.setattr(Tensor, "new_empty", get)
    monkeypatch.setattr(torch, "empty_like", lambda like, memory_format: get(like, like.shape))
    with idle_kernels(monkeypatch) as words:
        yield words


def matrix(rows: int, columns: int) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


def gate_up(m: int = M, **other: Any) -> Callable[[], Any]:
    given = {"x": matrix(m, K), "gate": matrix(N, K), "up": matrix(N, K), "gate_bias": None, "up_bias": None}
    given |= {"activation": "silu", "keep": False}
    given |= other
    return lambda: small.gate_up(**given)


def linear_act(m: int = M, **other: Any) -> Callable[[], Any]:
    given = {"x": matrix(m, K), "weight": matrix(N, K), "bias": None, "activation": "silu", "keep": False} | other
    return lambda: small.linear_act(**given)


def backward(module: Any, step: str, wide: int, **other: Any) -> Callable[[], Any]:
    preact = matrix(M, wide * N)
    given = {"grad_out": matrix(M, K), "down": matrix(K, N), "preact": preact, "activation": "silu"}
    given |= {"want_hidden": False, "want_bias": False, "into": preact} | other
    return lambda: getattr(module, step)(**given)


def expand(module: Any, step: str, **other: Any) -> Callable[[], Any]:
    weights = {"gate": matrix(N, K), "up": matrix(N, K), "gate_bias": None, "up_bias": None}
    given = weights if step == "gate_up" else {"weight": matrix(N, K), "bias": None}
    given |= {"x": matrix(M, K), "activation": "silu", "keep": True} | other
    return lambda: getattr(module, step)(**given)


def sums(m: int = M, **other: Any) -> Callable[[], Any]:
    preact = matrix(m, N)
    given: dict[str, Any] = {"grad_hidden": matrix(m, N), "preact": preact, "activation": "silu", "into": preact}
    given |= other
    return lambda: elementwise.act_backward(**given, want_bias=True)


GRAD, BOTH = matrix(M, N), matrix(M, 2 * N)
GATE, UP = BOTH[:, :N], BOTH[:, N:]
CALLS = {
    "portable gate_up": expand(portable, "gate_up"),
    "portable linear_act": expand(portable, "linear_act", bias=torch.zeros(N)),
    "portable gate_up_backward": backward(portable_backward, "gate_up_backward", 2),
    "portable linear_act_backward": backward(portable_backward, "linear_act_backward", 1, want_hidden=True),
    "portable linear_act_backward with sums": backward(portable_backward, "linear_act_backward", 1, want_bias=True),
    "portable gate_up_backward with sums, tuned": backward(
        portable_backward, "gate_up_backward", 2, want_bias=True, block_m=32
    ),
    "tma linear_act": expand(tma_forward, "linear_act"),
    "tma gate_up_backward": backward(tma_backward, "gate_up_backward", 2),
    "tma linear_act_backward": backward(tma_backward, "linear_act_backward", 1, want_bias=True),
    "elementwise act": lambda: elementwise.act(GRAD, "silu"),
    "elementwise gated_act": lambda: elementwise.gated_act(GATE, UP, "silu"),
    "elementwise act_backward": lambda: elementwise.act_backward(GRAD, GATE, "silu", into=GATE),
    "elementwise gated_act_backward": lambda: elementwise.gated_act_backward(
        GRAD, GATE, UP, "silu", grad_gate=GATE, grad_up=UP
    ),
    "elementwise act_backward with sums": sums(),
    "elementwise act_backward with sums of several strips": sums(200, want_hidden=True),
    "gate_up": gate_up(),
    "gate_up, one row": gate_up(1),
    "gate_up, kept": gate_up(keep=True),
    "gate_up, a bias": gate_up(gate_bias=torch.zeros(N)),
    "linear_act": linear_act(),
    "linear_act, one row": linear_act(1),
    "linear_act, split": linear_act(split=2),
    "linear_act, kept": linear_act(keep=True, bias=torch.zeros(N)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_launch_has_the_same_words(
    name: str, words: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = CALLS[name]
    call()
    for module, _ in REMEMBER:
        monkeypatch.setattr(module, "launcher", None)  # from here on nobody looks a kernel up
    for _ in range(3):
        call()
    assert len(words) == 3
    assert words[0] == words[1] == words[2]
    assert words[0][3] == STREAM, "the stream is asked for each time"


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (gate_up, {"gate": matrix(N, K)}),
        (gate_up, {"x": matrix(M, 2 * K)[:, :K]}),
        (gate_up, {"activation": "gelu"}),
        (gate_up, {"precision": "fast"}),
        (gate_up, {"keep": True}),
        (gate_up, {"up_bias": torch.zeros(N)}),
        (gate_up, {"block_k": 64}),
        (linear_act, {"weight": matrix(N, K)}),
        (linear_act, {"activation": "none"}),
        (linear_act, {"bias": torch.zeros(N)}),
        (linear_act, {"split": 2}),
        (linear_act, {"keep": True}),
        (linear_act, {"num_warps": 8}),
    ],
)
def test_another_call_is_no_repetition(
    base: Callable[..., Callable[[], Any]], change: dict[str, Any], words: list[tuple[Any, ...]]
) -> None:
    same = {"x": matrix(M, K), "activation": "silu"}
    same |= {"gate": matrix(N, K), "up": matrix(N, K)} if base is gate_up else {"weight": matrix(N, K)}
    one, other = base(**same), base(**(same | change))
    for _ in range(2):
        one()
    known = len(small._gate_ups) + len(small._linear_acts)
    other()
    assert len(small._gate_ups) + len(small._linear_acts) == known + 1
    one()
    assert len(words) >= 2
    assert words[0] == words[-1]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gate_up", {"gate": matrix(N, K)}),
        ("gate_up", {"x": matrix(M, 2 * K)[:, :K]}),
        ("gate_up", {"activation": "gelu"}),
        ("gate_up", {"precision": "fast"}),
        ("gate_up", {"keep": False}),
        ("gate_up", {"up_bias": torch.zeros(N)}),
        ("gate_up", {"group": 4}),
        ("gate_up_backward", {"down": matrix(K, N)}),
        ("gate_up_backward", {"grad_out": matrix(M, 2 * K)[:, :K]}),
        ("gate_up_backward", {"activation": "gelu"}),
        ("gate_up_backward", {"into": matrix(M, 2 * N)}),
        ("gate_up_backward", {"want_hidden": True}),
        ("gate_up_backward", {"group": 4}),
    ],
)
def test_another_call_of_the_portable_kernels_is_no_repetition(
    name: str, change: dict[str, Any], words: list[tuple[Any, ...]]
) -> None:
    if name == "gate_up":
        same = {"x": matrix(M, K), "gate": matrix(N, K), "up": matrix(N, K)}
        one, other = (expand(portable, name, **(same | more)) for more in ({}, change))
        known = portable._launches
    else:
        same = {"grad_out": matrix(M, K), "down": matrix(K, N), "preact": BOTH, "into": BOTH}
        one, other = (backward(portable_backward, name, 2, **(same | more)) for more in ({}, change))
        known = portable_backward._launches
    for _ in range(2):
        one()
    assert len(known) == 1
    other()
    assert len(known) == 2
    one()
    assert words[0] == words[-1]


@pytest.mark.parametrize(
    "change",
    [
        {"grad_hidden": matrix(M, N)},
        {"grad_hidden": matrix(M, 2 * N)[:, :N]},
        {"preact": matrix(M, N)},
        {"into": matrix(M, N)},
        {"into": None},
        {"want_hidden": True},
        {"activation": "gelu"},
        {"precision": "fast"},
    ],
)
def test_other_sums_are_no_repetition(change: dict[str, Any], words: list[tuple[Any, ...]]) -> None:
    same: dict[str, Any] = {"grad_hidden": GRAD, "preact": UP, "into": UP}
    one, other = sums(**same), sums(**(same | change))
    for _ in range(2):
        one()
    assert len(elementwise_sums._launches) == 1
    other()
    assert len(elementwise_sums._launches) == 2
    one()
    assert words[0] == words[-1]


def test_sums_elsewhere_are_no_repetition(words: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they go is the allocator's choice."""
    call = sums()
    for _ in range(2):
        call()
    place = torch.full((N,), 7.0)
    monkeypatch.setattr(Tensor, "new_empty", lambda *_, **__: place)
    assert call()[2] is place
    assert len(words) == 2
    assert words[0] != words[1]


def test_a_copied_gradient_is_copied_each_time(words: list[tuple[Any, ...]]) -> None:
    """TMA cannot read one value expanded; where the copy lies says nothing about the next one's."""
    call = backward(tma_backward, "gate_up_backward", 2, grad_out=torch.zeros(1, 1, dtype=torch.bfloat16).expand(M, K))
    for _ in range(3):
        call()
    assert tma_backward._launches == {}


@pytest.mark.parametrize(
    "call",
    [
        backward(portable_backward, "gate_up_backward", 2, grad_out=matrix(K, M).t()),
        backward(portable_backward, "gate_up_backward", 2, grad_out=matrix(K, M).t(), want_bias=True),
        expand(portable, "gate_up", x=matrix(K, M).t()),
        expand(portable, "linear_act", bias=torch.zeros(2 * N)[::2]),
        lambda: elementwise.act(matrix(N, M).t(), "silu"),
        lambda: elementwise.act_backward(matrix(N, M).t(), GATE, "silu", into=GATE),
    ],
)
def test_copied_operands_are_not_remembered(words: list[tuple[Any, ...]], call: Callable[[], Any]) -> None:
    """The key is what was given: a repetition would read what lies where the copy was."""
    for _ in range(3):
        call()
    assert all(getattr(module, name) == {} for module, name in REMEMBER)


def test_partial_sums_elsewhere_are_no_repetition(
    words: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = backward(portable_backward, "linear_act_backward", 1, want_bias=True)
    for _ in range(2):
        call()
    made: list[Tensor] = []

    def elsewhere(_: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
        made.append(torch.full(tuple(shape), 7.0, dtype=dtype))
        return made[-1]

    monkeypatch.setattr(Tensor, "new_empty", elsewhere)
    assert call()[2].equal(made[0].sum(0))
    assert len(made) == 1, "the rows are known"
    assert len(words) == 2
    assert words[0] != words[1]


def test_counters_belong_to_the_launch(words: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stream has other counters, and a captured launch has its own."""
    call = linear_act(split=2)
    call()
    call()
    others = torch.zeros(64, dtype=torch.int32)
    monkeypatch.setattr(small, "zeroed_counters", lambda like, count: others[:count])
    call()
    assert len(words) == 2
    assert words[0] != words[1]
