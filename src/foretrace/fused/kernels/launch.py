"""Launch compiled Triton and Gluon kernels at a fraction of the usual host cost.

``kernel[grid](...)`` binds, specialises and looks its arguments up again at every call: 24 to 37 µs on the machine
this was measured on, more than the small GEMMs it starts. What changes between two calls is little: addresses and
sizes. `Launcher` keeps the compiled kernel for each *specialisation* (what the compiler was told about the
arguments) and hands the arguments to the driver's launcher directly, which takes 5 to 6 µs. Where even the addresses
come again, as they do in every step of a training, `Launcher.repetition` has the very arguments ready.

The first call of a specialisation, kernels in the interpreter, launch hooks (profilers set them) and versions of
Triton whose launcher was not read go through ``kernel[grid](...)``, which is always right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, TypeVar

import torch
import triton
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from foretrace.fused.kernels.descriptors import (
    Descriptor,
    column_descriptor,
    descriptor,
    pair_descriptor,
    pair_is_swapped,
    pair_legal,
    tma_legal,
    tma_storable,
)

__all__ = [
    "Descriptor",
    "Launcher",
    "Repetition",
    "column_descriptor",
    "descriptor",
    "identity",
    "launcher",
    "pair_descriptor",
    "pair_is_swapped",
    "pair_legal",
    "processors",
    "remember",
    "repeated",
    "tma_legal",
    "tma_storable",
    "uncopied",
]

# Versions whose sources were read: `CompiledKernel.run` takes (grid x, y, z, stream, function, packed metadata, launch
# metadata, enter hook, exit hook, every kernel argument, constants included).
RUN_VERSIONS = frozenset({(3, 6), (3, 9)})
# Versions whose C entry point takes encoded tensor maps in place of descriptors: (grid x, y, z, stream, function,
# cooperative, dependent launch, global scratch, profile scratch, metadata and hooks as above, arguments).
ENTRY_VERSIONS = frozenset({(3, 6)})

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

# Starts a launch again and says that it did; False: this time someone has to look at it, nothing was started.
Repetition = Callable[[], bool]
Value = TypeVar("Value")

# Launches to remember in one place: every layer of a model has a few, with each set of addresses it meets.
REMEMBERED = 4096

_runtime: Any = triton.knobs.runtime
_wants: dict[tuple[Any, ...], int] = {}


@lru_cache(maxsize=64)
def processors(device: int) -> int:
    """Streaming multiprocessors of a CUDA device; 132, an H100's and H200's, where no device is (interpreter)."""
    if device < 0:
        return 132
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


@lru_cache(maxsize=1024, typed=True)
def launcher(
    kernel: Any,
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    maxnreg: int | None = None,
    pdl: bool = False,
    **constants: Any,
) -> Launcher:
    """The launcher of ``kernel`` with these compile-time constants; made once, then looked up.

    ``num_warps``, ``num_stages`` and ``maxnreg`` (registers a thread) are Triton's. ``pdl``: programmatic dependent
    launch, the kernel may start before its predecessor ended and waits for it itself. ``constants``: a value for
    every ``tl.constexpr`` parameter; they must come after all others in the kernel's signature.
    """
    # Said outright because its default changes with Triton 3.10.
    options: dict[str, Any] = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    if maxnreg is not None:
        options["maxnreg"] = maxnreg
    if pdl:
        options["launch_pdl"] = True
    return Launcher(kernel, constants, options)


class Launcher:
    """Starts one kernel with fixed compile-time constants, on the current stream of its arguments' device.

    Call it with the grid (1 to 3 sizes; nothing is launched if one is 0) and the arguments in the order of the
    signature: tensors, `Descriptor`, ints and None. Floats and bools belong among the constants: a float argument
    becomes float64 under ``torch.compile``. All tensors must be on one device; it need not be the current one.

    The specialisation key is at least as fine as Triton's: of a tensor the element type and whether its address is a
    multiple of 16; of an int its width, whether it is 1, whether a multiple of 16; of a descriptor element type, box
    and layout; and the device. Safe in CUDA graphs once the specialisation is compiled: nothing is allocated.
    """

    __slots__ = ("_compiling", "_constants", "_direct", "_kernel", "_options", "_starts")

    def __init__(self, kernel: Any, constants: dict[str, Any], options: dict[str, Any]) -> None:
        names = list(kernel.arg_names)
        if sorted(names[len(names) - len(constants) :]) != sorted(constants):
            raise TypeError(f"the constants of {names} must be its last parameters, all of them: {sorted(constants)}")
        self._kernel = kernel
        self._constants = {name: constants[name] for name in names[len(names) - len(constants) :]}
        self._options = options
        self._direct = isinstance(kernel, JITFunction) and VERSION in RUN_VERSIONS
        self._starts: dict[tuple[Any, ...], _Start] = {}
        self._compiling: dict[tuple[Any, ...], Future[None]] = {}

    def __call__(self, grid: tuple[int, ...], *arguments: Any) -> None:
        """Launch; see the class."""
        if 0 in grid:
            return
        if not self._direct or _hooked():
            self._start_through_triton(grid, arguments)
            return
        device, values, key = _understood(arguments)
        start = self._starts.get(key)
        if start is not None and start.current_device() == device:
            start(grid, device, values)
        elif device == driver.active.get_current_device():
            self._compile(key, grid, arguments)
        else:
            with torch.cuda.device(device):
                if start is None:
                    self._compile(key, grid, arguments)
                else:
                    start(grid, device, values)

    def repetition(self, grid: tuple[int, ...], *arguments: Any) -> Repetition | None:
        """The same launch, ready to be started again; None before it was compiled and where it needs Triton's help.

        It holds addresses and no tensor: the caller has to know that they, and all else that made the arguments, are
        what they were. Device, stream and hooks are looked at each time.
        """
        if not self._direct or 0 in grid:
            return None
        device, values, key = _understood(arguments)
        start = self._starts.get(key)
        return None if start is None else start.repetition(grid, device, values)

    def prepare(self, grid: tuple[int, ...], *arguments: Any) -> None:
        """Compile in the background what a launch with arguments of this kind needs; that launch then waits for it.

        Compiling takes seconds, most of them outside Python, so that two kernels take little longer than one. What goes
        wrong here is left for the launch to meet.
        """
        if not self._direct:
            return
        device, _, key = _understood(arguments)
        if key not in self._starts and key not in self._compiling:
            self._compiling[key] = _background().submit(self._warm, device, grid, arguments)

    def _warm(self, device: int, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        plain = [argument.triton if type(argument) is Descriptor else argument for argument in arguments]
        with torch.cuda.device(device):
            self._kernel.warmup(*plain, grid=grid, **self._constants, **self._options)

    def _start_through_triton(self, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> Any:
        plain = [argument.triton if type(argument) is Descriptor else argument for argument in arguments]
        return self._kernel[grid](*plain, **self._constants, **self._options)

    def _compile(self, key: tuple[Any, ...], grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        prepared = self._compiling.pop(key, None)
        if prepared is not None:
            prepared.exception()  # waits
        compiled = self._start_through_triton(grid, arguments)
        start = None if compiled is None else _direct_start(compiled, arguments, tuple(self._constants.values()))
        if start is None:
            self._direct = False
        else:
            self._starts[key] = start


@lru_cache(maxsize=1)
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "foretrace-compile")


def identity(*tensors: torch.Tensor | None) -> tuple[Any, ...]:
    """All about tensors that a launch of them depends on; of one device, that of the first.

    Of a tensor that was just made for this launch the address says it all, and costs a quarter.
    """
    found: list[Any] = [
        None if tensor is None else (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        for tensor in tensors
    ]
    found.append(tensors[0].get_device() if tensors[0] is not None else None)
    return tuple(found)


def uncopied(given: Sequence[torch.Tensor | None], used: Sequence[torch.Tensor | None]) -> bool:
    """Whether a launch of ``used`` may be remembered for ``given``: where a copy lies says nothing about the next's."""
    return all(one is other for one, other in zip(given, used, strict=True))


def repeated(launches: dict[Any, Repetition], key: Any) -> bool:
    """Start the launch of this key again, if it is remembered; False: nothing was started."""
    again = launches.get(key)
    return again is not None and again()


def remember(launches: dict[Any, Value], key: Any, value: Value | None) -> None:
    """Keep a repetition, or what else is known of a launch, if there is one; never more than `REMEMBERED` of them."""
    if value is not None:
        if len(launches) >= REMEMBERED:
            launches.clear()
        launches[key] = value


def _understood(arguments: tuple[Any, ...]) -> tuple[int, list[Any], tuple[Any, ...]]:
    """Device of the arguments, the arguments with addresses in place of tensors, and the key of the specialisation."""
    device = -1
    values: list[Any] = []
    key: list[Any] = []
    for argument in arguments:
        kind = type(argument)
        if kind is int:
            values.append(argument)
            key.append(-1 if argument == 1 else _integer_width(argument) + (argument & 15 == 0))
        elif kind is Descriptor:
            values.append(argument)
            key.append(-2 - argument.kind)
            device = argument.device
        elif argument is None:
            values.append(None)
            key.append(None)
        elif kind is bool or kind is float:
            raise TypeError(f"{kind.__name__} arguments must be compile-time constants of the kernel")
        else:
            pointer = argument.data_ptr()
            values.append(pointer)
            key.append(argument.dtype)
            key.append(pointer & 15 == 0)
            device = argument.get_device()
    key.append(device)
    return device, values, tuple(key)


def _integer_width(value: int) -> int:
    """Even numbers for what Triton takes an int as: i32, i64, u64."""
    if -(1 << 31) <= value < 1 << 31:
        return 0
    return 2 if value < 1 << 63 else 4


def _hooked() -> bool:
    """Whether someone listens to launches (Triton's own profiler does)."""
    enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
    try:
        return bool(enter.calls or leave.calls)  # chains of hooks
    except AttributeError:  # one function, or None
        return any(hook is not None and getattr(hook, "calls", True) for hook in (enter, leave))


class _Start:
    """Starts a compiled kernel: ``call(x, y, z, stream, *fixed, *arguments, *constants)``."""

    __slots__ = ("_call", "_compiled", "_constants", "_fixed", "_flatten", "_stream_of", "current_device")

    def __init__(
        self,
        compiled: Any,
        call: Callable[..., Any],
        fixed: tuple[Any, ...],
        flatten: Callable[[list[Any]], list[Any]],
        constants: tuple[Any, ...],
    ) -> None:
        self._compiled = compiled  # unloads its function when nobody holds it any more
        self._call = call
        self._fixed = fixed
        self._flatten = flatten
        self._constants = constants
        # The driver of the process does not change, and asking for it costs as much as asking it.
        self._stream_of: Callable[[int], int] = driver.active.get_current_stream
        self.current_device = _current_device()

    def __call__(self, grid: tuple[int, ...], device: int, values: list[Any]) -> None:
        x, y, z = _three(grid)
        self._call(x, y, z, self._stream_of(device), *self._fixed, *self._flatten(values), *self._constants)

    def repetition(self, grid: tuple[int, ...], device: int, values: list[Any]) -> Repetition:
        """See `Launcher.repetition`."""
        call, stream_of, current_device = self._call, self._stream_of, self.current_device
        x, y, z = _three(grid)
        rest = (*self._fixed, *self._flatten(values), *self._constants)

        def again() -> bool:
            if current_device() != device or _hooked():
                return False
            call(x, y, z, stream_of(device), *rest)
            return True

        return again


def _three(grid: tuple[int, ...]) -> tuple[int, ...]:
    return grid if len(grid) == 3 else (*grid, 1, 1)[:3]


def _current_device() -> Callable[[], int]:
    """How to ask for the current device; torch's own function would first make sure that CUDA is ready, which it is."""
    asked: Callable[[], int] = driver.active.get_current_device
    direct: Callable[[], int] | None = getattr(torch._C, "_cuda_getDevice", None)
    return direct if direct is not None and asked is torch.cuda.current_device else asked


def _direct_start(compiled: Any, arguments: tuple[Any, ...], constants: tuple[Any, ...]) -> _Start | None:
    """How to start ``compiled`` without Triton's argument handling; None where it is not known how."""
    run = compiled.run
    metadata = compiled.metadata
    if metadata.target.backend != "cuda" or metadata.global_scratch_size or metadata.profile_scratch_size:
        # Scratch memory is allocated by Triton at each launch.
        return None
    if VERSION in ENTRY_VERSIONS:
        described = any(type(argument) is Descriptor for argument in arguments)
        start = _through_entry_point(compiled, run, described, constants)
        if start is not None:
            return start
    return _Start(
        compiled, run, (compiled.function, compiled.packed_metadata, None, None, None), _as_triton_takes, constants
    )


def _as_triton_takes(values: list[Any]) -> list[Any]:
    return [value.triton if type(value) is Descriptor else value for value in values]


def _as_they_are(values: list[Any]) -> list[Any]:
    return values


def _through_entry_point(compiled: Any, run: Any, described: bool, constants: tuple[Any, ...]) -> _Start | None:
    """The C function itself, with tensor maps that were encoded before."""
    entry = run.launch
    wants: list[dict[str, Any]] = []
    if described:
        # Triton wraps the entry point in a closure that encodes every descriptor at every launch.
        free = inspect.getclosurevars(entry).nonlocals
        entry = free.get("launcher")
        wants = free.get("tensordesc_meta") or []
        if entry is None or not wants or None in wants:
            return None
    numbered = [(want, _wants.setdefault(_hashable(want), len(_wants))) for want in wants]
    launch = (run.launch_cooperative_grid, run.launch_pdl, None, None)
    fixed = (compiled.function, *launch, compiled.packed_metadata, None, None, None)
    return _Start(compiled, entry, fixed, partial(_encode, numbered=numbered) if described else _as_they_are, constants)


def _hashable(want: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(want.items()))


def _encode(values: list[Any], numbered: list[tuple[dict[str, Any], int]]) -> list[Any]:
    """Each descriptor as the driver takes it: tensor map, extents, strides."""
    flat: list[Any] = []
    wanted = iter(numbered)
    for value in values:
        if type(value) is Descriptor:
            want, number = next(wanted)
            encoded = value.encoded.get(number)
            if encoded is None:
                from triton.backends.nvidia.driver import make_tensordesc_arg

                encoded = value.encoded[number] = make_tensordesc_arg(value.triton, want)
            flat += encoded
        else:
            flat.append(value)
    return flat
