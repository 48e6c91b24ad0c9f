"""The backward kernel is compiled while the forward kernel is, and it is the one that backward then asks for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
pytest.importorskip("triton.experimental.gluon.nvidia.hopper")

from foretrace.fused import steps  # noqa: E402
from foretrace.fused.kernels import launch  # noqa: E402
from foretrace.fused.kernels.hopper import products  # noqa: E402
from foretrace.fused.plan import Implementation, Plan  # noqa: E402

PLAIN, HOPPER = Implementation("plain"), Implementation("hopper", (("stages", 4), ("slots", 1)))


def matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.zeros(rows, columns, dtype=torch.bfloat16)


@pytest.fixture
def specialisations(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What was prepared and what was launched: the kernel's constants and the compiler's view of the arguments."""
    seen: list[tuple[str, Any]] = []

    class Recorder:
        def __init__(self, kernel: Any, **constants: Any) -> None:
            self.constants = (kernel, tuple(sorted(constants.items())))

        def prepare(self, _: tuple[int, ...], *arguments: Any) -> None:
            seen.append(("prepared", (self.constants, launch._understood(arguments)[2])))

        def __call__(self, _: tuple[int, ...], *arguments: Any) -> None:
            seen.append(("launched", (self.constants, launch._understood(arguments)[2])))

        def repetition(self, *_: Any) -> None:
            return None

    monkeypatch.setattr(products, "launcher", Recorder)
    monkeypatch.setattr(products, "VERSIONS", {tuple(int(part) for part in triton.__version__.split(".")[:2])})
    return seen


@pytest.mark.parametrize(("rows", "hidden"), [(512, 256), (300, 264), (1, 8)])
@pytest.mark.parametrize("gated", [True, False])
def test_what_is_prepared_is_what_backward_launches(
    rows: int, hidden: int, gated: bool, specialisations: list[tuple[str, Any]]
) -> None:
    x, down = matrix(rows, 64), matrix(64, hidden)
    products.prepare_backward(gated, x, hidden, "silu", stages=4, slots=1)
    function = products.gate_up_backward if gated else products.linear_act_backward
    preact = matrix(rows, 2 * hidden if gated else hidden)
    function(matrix(rows, 64), down, preact, "silu", want_hidden=False, want_bias=False, stages=4, slots=1)
    (first, prepared), (second, launched) = specialisations
    assert (first, second) == ("prepared", "launched")
    assert prepared == launched


def test_only_the_first_training_call_prepares(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(products, "prepare_backward", lambda *words, **options: calls.append((*words, options)))
    bound = steps.Bound("gated_mlp", Plan(PLAIN, PLAIN, HOPPER, "preact", "override", "a test"))
    x, weight = torch.ones(3, 8), torch.ones(16, 8)
    for keep in (False, True, True):
        hidden, preact = bound.expand(x, weight, weight, None, None, "silu", keep=keep, precision="exact")
        assert hidden.shape == (3, 16)
        assert (preact is not None) == keep
    assert [(gated, columns, activation, options) for gated, _, columns, activation, options in calls] == [
        (True, 16, "silu", {"stages": 4, "slots": 1})
    ]


def test_a_launch_waits_for_what_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, order = threading.Event(), []

    class Kernel:
        arg_names = ("count", "BLOCK")

        def warmup(self, *_: Any, **__: Any) -> None:
            compiled.wait(10)
            order.append("compiled")

    one = launch.Launcher(Kernel(), {"BLOCK": 64}, {})
    one._direct = True
    monkeypatch.setattr(torch.cuda, "device", lambda _: threading.Lock())
    monkeypatch.setattr(launch.Launcher, "_start_through_triton", lambda *_: order.append("launched"))
    one.prepare((1,), 16)
    one.prepare((1,), 16)  # once is enough
    threading.Timer(0.05, compiled.set).start()
    one._compile(launch._understood((16,))[2], (1,), (16,))
    assert order == ["compiled", "launched"]
