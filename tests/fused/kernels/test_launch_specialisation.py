"""The direct launch: what makes it compile again, what it passes on, and when it leaves the work to Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.runtime.driver import driver  # noqa: E402

from foretrace.fused.kernels import launch  # noqa: E402
from foretrace.fused.kernels.launch import Launcher, descriptor  # noqa: E402


@triton.jit
def copy(source, target, count, BLOCK: tl.constexpr, SHIFT: tl.constexpr):  # noqa: N803
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets, mask=offsets < count), mask=offsets < count)


class FakeDriver:
    """A driver without a GPU; the device of host tensors, -1, is the current one."""

    device, stream = -1, 77

    def get_current_device(self) -> int:
        return self.device

    def get_current_stream(self, _device: int) -> int:
        return self.stream


class Recorded:
    """A launcher that compiles nothing: it counts what would be compiled and keeps what would be launched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compilations = 0
        self.launches: list[tuple[Any, ...]] = []
        self.call = Launcher(copy, {"BLOCK": 64, "SHIFT": 3}, {"num_warps": 4})
        monkeypatch.setattr(Launcher, "_start_through_triton", lambda one, grid, arguments: self._compiled())

    def _compiled(self) -> Any:
        self.compilations += 1

        class Run:
            launch_cooperative_grid = launch_pdl = False

            def __call__(self, *words: Any) -> None:
                launches.append(words)

        launches = self.launches
        target = SimpleNamespace(backend="cuda")
        metadata = SimpleNamespace(target=target, global_scratch_size=0, profile_scratch_size=0)
        return SimpleNamespace(run=Run(), metadata=metadata, function="function", packed_metadata="packed")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    # The route that is alike in all versions that were read.
    monkeypatch.setattr(launch, "VERSION", (3, 9))
    before = driver._active
    driver.set_active(FakeDriver())
    yield Recorded(monkeypatch)
    driver._active = before


def tensor(dtype: torch.dtype = torch.float32, first: int = 0) -> torch.Tensor:
    return torch.zeros(64, dtype=dtype)[first:]


def test_the_second_call_passes_addresses_and_constants_to_the_compiled_kernel(recorded: Recorded) -> None:
    source, target = tensor(), tensor()
    recorded.call((4,), source, target, 60)
    recorded.call((4,), source, target, 60)
    assert recorded.compilations == 1
    start = (4, 1, 1, 77, "function", "packed", None, None, None)
    assert recorded.launches == [(*start, source.data_ptr(), target.data_ptr(), 60, 64, 3)]


def test_a_repetition_passes_the_same_words(recorded: Recorded) -> None:
    source, target = tensor(), tensor()
    assert recorded.call.repetition((4,), source, target, 60) is None  # not compiled yet
    recorded.call((4,), source, target, 60)
    recorded.call((4,), source, target, 60)
    repetition = recorded.call.repetition((4,), source, target, 60)
    assert repetition is not None
    assert repetition()
    assert recorded.launches[0] == recorded.launches[1]
    assert recorded.call.repetition((4,), source, target, 1) is None  # another specialisation
    assert recorded.call.repetition((0,), source, target, 60) is None


def test_a_repetition_asks_for_stream_device_and_hooks_each_time(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (tensor(), tensor(), 60)
    for _ in range(2):
        recorded.call((4,), *arguments)
    repetition = recorded.call.repetition((4,), *arguments)
    assert repetition is not None
    monkeypatch.setattr(driver.active, "stream", 78)
    assert repetition()
    assert recorded.launches[-1][3] == 78
    count = len(recorded.launches)
    with monkeypatch.context() as other:
        other.setattr(driver.active, "device", 1)
        assert not repetition()
    with monkeypatch.context() as hooked:
        hooked.setattr(triton.knobs.runtime, "launch_enter_hook", lambda metadata: None)
        assert not repetition()
    assert len(recorded.launches) == count
    assert repetition()


def test_remembered_launches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "REMEMBERED", 3)
    launches: dict[Any, launch.Repetition] = {}
    launch.remember(launches, "needs help", None)
    assert launches == {}
    for key in range(10):
        launch.remember(launches, key, lambda: True)
        assert key in launches
    assert len(launches) <= 3


SAME: dict[str, tuple[Any, Any]] = {
    "other tensors of the kind": (tensor(), tensor()),
    "another size, neither 1 nor a multiple of 16": (60, 61),
    "multiples of 16": (32, 4096),
}
DIFFERENT: dict[str, tuple[Any, Any]] = {
    "element types": (tensor(), tensor(torch.float16)),
    "an address off 16 bytes": (tensor(), tensor(first=1)),
    "no tensor": (tensor(), None),
    "one": (1, 17),
    "a multiple of 16": (32, 33),
    "beyond 31 bits": (33, (1 << 31) + 1),
    "beyond 63 bits": ((1 << 62) + 1, (1 << 63) + 1),
    "minus beyond 31 bits": (-(1 << 31), -(1 << 31) - 16),
    "boxes": (
        descriptor(torch.zeros(64, 64, dtype=torch.float16), (16, 64)),
        descriptor(torch.zeros(64, 64, dtype=torch.float16), (32, 64)),
    ),
    "element types behind descriptors": (
        descriptor(torch.zeros(64, 64, dtype=torch.float16), (16, 64)),
        descriptor(torch.zeros(64, 64, dtype=torch.bfloat16), (16, 64)),
    ),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_what_the_compiler_cannot_tell_apart_is_compiled_once(recorded: Recorded, pair: tuple[Any, Any]) -> None:
    for argument in pair:
        recorded.call((1,), tensor(), tensor(), argument)
    assert recorded.compilations == 1


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_what_the_compiler_specialises_on_is_compiled_again(recorded: Recorded, pair: tuple[Any, Any]) -> None:
    for argument in (*pair, *pair):
        recorded.call((1,), tensor(), tensor(), argument)
    assert recorded.compilations == 2


def test_the_key_is_as_fine_as_tritons_own(recorded: Recorded) -> None:
    """Whatever Triton tells apart about an int, the launcher does too."""
    native = pytest.importorskip("triton._C.libtriton").native_specialize_impl
    backend = triton.backends.compiler.BaseBackend
    numbers = [0, 1, 2, 8, 15, 16, 17, -1, -16, *(sign * (1 << bits) + more for bits in (31, 32, 62) for sign in (1, -1)
               for more in (-16, -1, 0, 1, 16))]  # fmt: skip
    for number in numbers:
        recorded.call((1,), tensor(), tensor(), number)
    assert recorded.compilations >= len({native(backend, number, False, True, True) for number in numbers})


@pytest.mark.parametrize("grid", [(0,), (4, 0), (1, 1, 0)])
def test_an_empty_grid_launches_nothing(recorded: Recorded, grid: tuple[int, ...]) -> None:
    recorded.call(grid, tensor(), tensor(), 60)
    assert (recorded.compilations, recorded.launches) == (0, [])


@pytest.mark.parametrize("argument", [True, 0.5])
def test_arguments_that_belong_among_the_constants_are_refused(recorded: Recorded, argument: object) -> None:
    with pytest.raises(TypeError, match="compile-time constants"):
        recorded.call((1,), tensor(), tensor(), argument)


def test_constants_must_be_the_last_parameters() -> None:
    with pytest.raises(TypeError, match="last parameters"):
        Launcher(copy, {"BLOCK": 64}, {})


@pytest.mark.parametrize("hooked", ["launch_enter_hook", "launch_exit_hook"])
def test_a_profilers_launch_hook_is_heard(recorded: Recorded, hooked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.call((1,), tensor(), tensor(), 60)
    monkeypatch.setattr(triton.knobs.runtime, hooked, lambda metadata: None)
    recorded.call((1,), tensor(), tensor(), 60)
    # Through Triton, which calls the hooks.
    assert (recorded.compilations, recorded.launches) == (2, [])


def test_an_unread_version_of_triton_launches_as_usual(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "VERSION", (4, 2))
    call: Callable[..., None] = Launcher(copy, {"BLOCK": 64, "SHIFT": 3}, {})
    call((1,), tensor(), tensor(), 60)
    call((1,), tensor(), tensor(), 60)
    assert (recorded.compilations, recorded.launches) == (2, [])


def test_a_launcher_is_made_once() -> None:
    first = launch.launcher(copy, num_warps=8, BLOCK=64, SHIFT=1)
    assert launch.launcher(copy, num_warps=8, BLOCK=64, SHIFT=1) is first
    assert launch.launcher(copy, num_warps=4, BLOCK=64, SHIFT=1) is not first
    assert launch.launcher(copy, num_warps=8, BLOCK=64, SHIFT=True) is not first
