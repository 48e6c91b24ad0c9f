"""The Hopper kernels' launches: started again without a check exactly when nothing about them has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")
pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from idle_kernels import idle_kernels  # noqa: E402

from foretrace.fused.kernels.hopper import products  # noqa: E402


class Launches:
    """How many launches were checked, and the arguments of every launch but the first."""

    def __init__(self, words: list[tuple[Any, ...]]) -> None:
        self.checked = 0
        self.words = words


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    checked = products._checked
    monkeypatch.setattr(products, "VERSIONS", {tuple(int(part) for part in triton.__version__.split(".")[:2])})
    monkeypatch.setattr(products, "_forwards", {})
    monkeypatch.setattr(products, "_backwards", {})
    with idle_kernels(monkeypatch) as words:
        seen = Launches(words)

        def check(*operands: Tensor) -> None:
            seen.checked += 1
            checked(*operands)

        monkeypatch.setattr(products, "_checked", check)
        yield seen


class Pool:
    """An allocator that hands out the same memory again, as the GPU's does in each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: dict[tuple[int, ...], Tensor] = {}
        monkeypatch.setattr(Tensor, "new_empty", lambda like, shape: self.get(tuple(shape), like.dtype))

    def get(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return self.memory.setdefault(shape, torch.zeros(shape, dtype=dtype))


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.zeros(rows, columns, dtype=dtype)


M, K, N = 16, 32, 64


def forward(**words: Any) -> Callable[[], Any]:
    given = {"x": matrix(M, K), "gate": matrix(N, K), "up": matrix(N, K), "gate_bias": None, "up_bias": None}
    options = {"activation": "silu", "keep": True}
    given.update({name: value for name, value in words.items() if name in given})
    options.update({name: value for name, value in words.items() if name not in given})
    return lambda: products.gate_up(**given, **options)  # type: ignore[arg-type]


BASE: dict[str, Any] = {"x": matrix(M, K), "gate": matrix(N, K), "up": matrix(N, K)}
CHANGES: dict[str, dict[str, Any]] = {
    "the address of x": {"x": matrix(M, K)},
    "the address of up": {"up": matrix(N, K)},
    "fewer rows at the same address": {"x": BASE["x"][:8]},
    "fewer columns at the same address": {name: one[:, :16] for name, one in BASE.items()},
    "the row stride": {"x": BASE["x"].as_strided((8, K), (2 * K, 1))},
    "fewer features": {"gate": BASE["gate"][:32], "up": BASE["up"][:32]},
    "the element type": {name: one.view(torch.float16) for name, one in BASE.items()},
    "nothing kept": {"keep": False},
    "the activation": {"activation": "gelu"},
    "the precision": {"precision": "fast", "activation": "gelu"},
    "the options": {"group": 4},
    "a bias": {"gate_bias": torch.zeros(N, dtype=torch.bfloat16)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_forward(change: str, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    Pool(monkeypatch)
    call = forward(**BASE)
    for _ in range(4):
        call()
    assert launches.checked == 1
    assert len(set(map(str, launches.words))) == 1
    changed = forward(**{**BASE, **CHANGES[change]})
    changed()
    assert launches.checked == 2
    call()
    assert launches.checked == 2


def backward(**words: Any) -> Callable[[], Any]:
    given = {**BACK, "activation": "silu", "want_hidden": False, "want_bias": False, **words}
    return lambda: products.gate_up_backward(**given)


BACK: dict[str, Any] = {"grad_out": matrix(M, K), "down": matrix(K, N), "preact": matrix(M, 2 * N)}
BACKWARD_CHANGES: dict[str, dict[str, Any]] = {
    "the address of the gradient": {"grad_out": matrix(M, K)},
    "the address of the pre-activations": {"preact": matrix(M, 2 * N)},
    "fewer rows at the same address": {"grad_out": BACK["grad_out"][:8], "preact": BACK["preact"][:8]},
    "written over itself": {"into": BACK["preact"]},
    "hidden": {"want_hidden": True},
    "the activation": {"activation": "gelu"},
    "the options": {"slots": 1},
}


@pytest.mark.parametrize("change", BACKWARD_CHANGES)
def test_backward(change: str, launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    Pool(monkeypatch)
    call = backward()
    for _ in range(4):
        call()
    assert launches.checked == 1
    assert len(set(map(str, launches.words))) == 1
    backward(**BACKWARD_CHANGES[change])()
    assert launches.checked == 2
    call()
    assert launches.checked == 2
