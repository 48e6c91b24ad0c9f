"""The analytical default: what each step would cost, for shapes nobody measured.

A product takes the time of its waves of tiles, or of its bytes where those take longer; passes over the hidden
take their bytes; a step costs what its GPU work or its host work costs, whichever is longer, since the two
overlap. The figures need only rank implementations, and are as good as that.

Constants were fitted to medians on one H200 (bf16, tanh GELU, random data, L2 flushed, at its power limit). 8192 rows,
768 → 2 × 3072: cuBLAS 114 µs for the products alone (680 TFLOP/s), the Hopper kernel 105 to 108 with the activation and
109 to 113 with the pre-activations kept, the TMA kernel 117 and 138; backward, 768 → 3072: cuBLAS 59.5 for the product
alone, 122 with the elementwise kernel, TMA 125, Hopper 89. 4096 → 2 × 14336: cuBLAS 2830, Hopper 2700 kept or not;
backward, 4096 → 14336: unfused 1640 to 1790, TMA 1650, Hopper 1522, and 1445 with four stages and one slot. Linear with
GELU, 1024 → 4096: cuBLAS 101 alone, cuBLASLt's epilogue 111, Hopper 100. The pointer kernel takes 1.35 times as long as
cuBLAS, eager's activation and product 65 µs on top. 256 rows, 4096 → 2 × 14336: 100 µs fused and 101 µs by cuBLAS;
512 rows: cuBLAS 170, Hopper 187, and 172 with narrow tiles. What few rows cost beside was fitted to the grid of
``benchmarks/results/fused``: how slowly weights arrive where tiles are mostly empty, or leave multiprocessors idle.
Decode at 4096, 14336: 4.17 TB/s of weights at one row, 3.9 at 16 rows. The other devices are their datasheet at the
same share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from foretrace.fused.dispatch.candidates import DEEP, NARROW, SMALL_ROWS, Options
from foretrace.fused.dispatch.choice import Role
from foretrace.fused.dispatch.environment import capability
from foretrace.fused.plan import Problem

__all__ = [
    "HOST_ATEN",
    "HOST_OURS",
    "Device",
    "Expense",
    "device_of",
    "expense",
    "options_for",
    "passes",
    "products",
]


@dataclass(frozen=True, slots=True)
class Device:
    """``name``: whose figures these are. ``sms`` multiprocessors; sustained ``half`` and ``single`` precision, TFLOP/s;
    ``bandwidth``, TB/s.
    """

    name: str
    sms: int
    half: float
    single: float
    bandwidth: float


_DEVICES: Final[dict[tuple[int, int], Device]] = {
    (8, 0): Device("A100", 108, 250, 17, 1.7),
    (8, 6): Device("A40", 84, 120, 25, 0.65),
    (8, 9): Device("L40S", 142, 290, 60, 0.75),
    (9, 0): Device("H200", 132, 680, 50, 4.3),
    (10, 0): Device("B200", 148, 1450, 60, 7.0),
    (12, 0): Device("RTX 5090", 170, 380, 90, 1.6),
}


class Expense(NamedTuple):
    """µs that work takes on the GPU, launch gaps included, and µs of host time to launch it."""

    gpu: float
    host: float

    @property
    def us(self) -> float:
        """The longer of both; the other breaks ties, since in a CUDA graph the host is out of the way."""
        return max(self) + _HIDDEN * min(self)

    def plus(self, other: Expense) -> Expense:
        """One after the other."""
        return Expense(self.gpu + other.gpu, self.host + other.host)


_Cost = Callable[[Problem, "Device"], Expense]
# GPU time between two dependent kernels of a stream, µs.
_LAUNCH: Final = 1.5
# Host time, µs: an ATen linear; an ATen elementwise operator; an output and a direct launch of our own.
HOST_LINEAR, HOST_ATEN, HOST_OURS = 23.3, 11.7, 13.6
# What a µs of the shorter side of GPU and host counts.
_HIDDEN: Final = 0.03
# Passes over memory reach this share of the bandwidth that a copy has.
_PASS: Final = 0.9
# One multiprocessor gets at most so many times its share of the memory's bandwidth, however few are busy.
_PULL: Final = 1.5
# Tiles of 128 rows load weights so much more slowly for every halving of the rows there are (measured; why was not).
_SCARCE: Final = 0.06
# And every kernel of ours for each halving below 16 rows: all programs ask for the same few lines of x.
_CROWDED: Final = 0.015
# Results of fewer elements are cut into tiles of half the width by kernels whose tiles fit the problem.
_FEW_TILES: Final = 64 * 128 * 128
# cuBLAS has tiles of these rows and columns, up to so many elements; smaller ones reach less of the rate.
_LIBRARY_ROWS: Final = (64, 128, 192, 256)
_LIBRARY_COLUMNS: Final = tuple(range(64, 257, 16))
_LARGEST_TILE: Final = 192 * 192
_TILE_SHARES: Final = ((64 * 64, 0.6), (64 * 128, 0.8), (128 * 128, 0.93), (128 * 192, 0.98), (128 * 256, 1.0))


def _share(elements: int) -> float:
    """Of the rate, what a tile of so many elements reaches; between the fitted sizes in proportion."""
    below = max((pair for pair in _TILE_SHARES if pair[0] <= elements), default=_TILE_SHARES[0])
    above = min((pair for pair in _TILE_SHARES if pair[0] >= elements), default=_TILE_SHARES[-1])
    if above[0] <= below[0]:
        return below[1]
    return below[1] + (above[1] - below[1]) * (elements - below[0]) / (above[0] - below[0])


_LIBRARY_TILES: Final = tuple(
    (rows, columns, _share(rows * columns))
    for rows in _LIBRARY_ROWS
    for columns in _LIBRARY_COLUMNS
    if rows * columns <= _LARGEST_TILE
)


@dataclass(frozen=True, slots=True)
class _Way:
    """One direction of a fused kernel.

    ``columns`` of a tile's accumulators, of kernels whose tiles are all alike, 128 rows high. ``tile``: µs that each
    wave of tiles adds; less than none where the epilogue hides and a last wave that is not full is quicker.
    ``exposed``: share of the traffic beside the products' that they do not hide. ``stream``: share of the memory's
    bandwidth that its loads of weights reach.
    """

    columns: int
    tile: float
    exposed: float
    stream: float = 1.0


@dataclass(frozen=True, slots=True)
class _Fused:
    """A fused kernel beside cuBLAS.

    ``rate``: speed of its main loop, that of cuBLAS is 1. ``fast``: µs a wave that the hardware's tanh saves forward.
    ``sums``: backward's epilogue adds up the bias's gradient. ``fits``: tiles are cut to the problem, see
    `foretrace.fused.kernels.tiles.default_tile`; else they have 128 rows. ``others``: the role, the options, how it
    then goes, and the least inner size that it is right for.
    """

    rate: float
    fast: float
    forward: _Way
    backward: _Way
    sums: bool
    fits: bool = False
    others: tuple[tuple[Role, Options, _Way, int], ...] = ()


_FUSED: Final[dict[str, _Fused]] = {
    "portable": _Fused(0.83, 0.4, _Way(0, 1.3, 0.9), _Way(0, 1.3, 0.9), True, fits=True),
    "tma": _Fused(1.0, 0.5, _Way(256, -0.3, 0.8), _Way(128, 2.0, 0.8, 0.65), True),
    "hopper": _Fused(
        1.07,
        0.0,
        _Way(256, -0.5, 0.15),
        _Way(256, -0.5, 0.65),
        False,
        False,
        # Four stages for one slot pay where the products, and not their epilogue, decide.
        (("expand", NARROW, _Way(128, 0.2, 0.4), 0), ("backward", DEEP, _Way(256, -0.5, 0.27), 2048)),
    ),
}


def device_of(architecture: str) -> Device | None:
    """Return the constants of an architecture, or of the nearest older one; ``None``: there is none to compare with."""
    found = capability(architecture)
    known = [version for version in _DEVICES if found is not None and version <= found]
    return _DEVICES[max(known)] if known else None


def options_for(role: Role, name: str, problem: Problem) -> Options:
    """Return the options that an implementation is best given here, as far as is known without a measurement."""
    device = device_of(problem.architecture)
    if device is None or name not in _FUSED or role == "project":
        return ()
    return _fused(role, _FUSED[name], problem, device)[1]


def expense(role: Role, name: str, problem: Problem, device: Device, options: Options | None = None) -> Expense | None:
    """Return what one step is expected to take; ``None`` where the model knows nothing of it.

    ``options``: with these (those the model knows nothing of change nothing); by default with the best. Every row count
    is taken as it is; ``problem.m`` = 0 costs the launches.
    """
    if name in _FUSED and role != "project":
        kernel = _FUSED[name]
        if not problem.aligned or _element(problem) != 2:
            return None  # elements loaded one by one, products beside the tensor cores: what they take was not measured
        if options is None:
            return _fused(role, kernel, problem, device)[0]
        return _way_expense(role, kernel, _way_of(role, kernel, options), problem, device)
    known = _STEPS.get((role, name))
    return known(problem, device) if known else None


def products(sizes: Iterable[tuple[int, int, int]], problem: Problem, device: Device) -> Expense:
    """What products of (m, n, k) take by the library."""
    gpu = [_product_us(*one, problem, device) for one in sizes]
    return _expense(sum(gpu), len(gpu), len(gpu) * HOST_LINEAR)


def passes(elements: float, kernels: int, problem: Problem, device: Device) -> Expense:
    """What PyTorch's kernels take that move so many elements in all."""
    return _expense(elements * _element(problem) / (device.bandwidth * _PASS * 1e6), kernels, kernels * HOST_ATEN)


def _element(problem: Problem) -> int:
    return {"bfloat16": 2, "float16": 2, "float64": 8}.get(problem.dtype, 4)


def _width(problem: Problem) -> int:
    """Columns of pre-activations for one of the hidden: 2 with a gate."""
    return 2 if problem.operation in ("gated_mlp", "gated_act") else 1


def _has_product(role: Role, problem: Problem) -> bool:
    return problem.operation != "gated_act" and (role != "backward" or problem.operation != "linear_act")


def _pass_us(units: float, problem: Problem, device: Device) -> float:
    """µs to move ``units`` tensors of the hidden's size."""
    return units * problem.m * problem.n * _element(problem) / (device.bandwidth * _PASS * 1e6)


def _product_us(m: int, n: int, k: int, problem: Problem, device: Device) -> float:
    """µs of one product by the library."""
    return _library_us(m, n, k, _element(problem), device)


@lru_cache(maxsize=1024)  # each product of a problem is asked for several times, and costs the host some 25 µs
def _library_us(m: int, n: int, k: int, element: int, device: Device) -> float:
    rate = (device.half if element == 2 else device.single) * 1e6 / device.sms  # FLOP per µs and SM
    waves = min(
        math.ceil(math.ceil(m / rows) * math.ceil(n / columns) / device.sms) * rows * columns / share
        for rows, columns, share in _LIBRARY_TILES
    )
    # Where tiles are fewer than SMs the library splits K. Tensor cores work on 64 rows, whether they are there or not.
    work = min(waves, 2 * max(m, 64 if element == 2 else 1) * n / device.sms) * 2 * k / rate
    return max(work, (m * k + k * n + m * n) * element / (device.bandwidth * 0.94 * 1e6))


def _products(role: Role, problem: Problem, device: Device) -> tuple[float, int]:
    """µs and number of the library's products in a step."""
    if not _has_product(role, problem):
        return 0.0, 0
    if role == "project":
        return _product_us(problem.m, problem.out, problem.n, problem, device), 1
    if role == "backward":
        return _product_us(problem.m, problem.n, problem.out, problem, device), 1
    if _width(problem) == 2 and problem.packing != "gate_up":  # halves of a stacked weight in any other order
        return 2 * _product_us(problem.m, problem.n, problem.k, problem, device), 2
    return _product_us(problem.m, _width(problem) * problem.n, problem.k, problem, device), 1


def _expense(gpu: float, kernels: int, host: float) -> Expense:
    return Expense(gpu + kernels * _LAUNCH, host)


def _composed(
    role: Role, gated: tuple[int, int], single: tuple[int, int], host_each: float, sums: bool = False
) -> _Cost:
    """The library's products, then kernels that pass over tensors of the hidden's size.

    ``gated``, ``single``: passes and kernels of an operation with a gate, and of one without. ``sums``: backward
    without a gate adds up the bias's gradient while it makes its own, and is left with a small reduction.
    """

    def cost(problem: Problem, device: Device) -> Expense:
        product, count = _products(role, problem, device)
        passes, kernels = gated if _width(problem) == 2 else single
        if role == "backward" and problem.bias:  # its gradient, a sum over rows
            alone = 0 if sums and _width(problem) == 1 else _width(problem)
            passes, kernels = passes + alone, kernels + 1
        host = count * HOST_LINEAR + kernels * host_each
        return _expense(product + _pass_us(passes, problem, device), count + kernels, host)

    return cost


def _project_small(problem: Problem, device: Device) -> Expense:
    return _expense(_weights_us(problem.out * problem.n, problem, device), 1, HOST_OURS)


def _expand_small(problem: Problem, device: Device) -> Expense:
    return _expense(_weights_us(_width(problem) * problem.n * problem.k, problem, device), 1, HOST_OURS)


def _weights_us(elements: int, problem: Problem, device: Device) -> float:
    # Of the copy's bandwidth; cuBLAS reaches 0.94.
    share = 0.97 if problem.m == 1 else 0.95 - _CROWDED * math.log2(SMALL_ROWS / max(problem.m, 2))
    return elements * _element(problem) / (device.bandwidth * share * 1e6)


def _expand_library(problem: Problem, device: Device) -> Expense:
    product, _ = _products("expand", problem, device)
    return _expense(product * 1.1, 1, HOST_LINEAR)


def _fused(role: Role, kernel: _Fused, problem: Problem, device: Device) -> tuple[Expense, Options]:
    """µs of a product whose epilogue does the rest, and the options that make it quickest."""
    inner = problem.k if role == "expand" else problem.out
    ways = [(), *(options for at, options, _, least in kernel.others if at == role and inner >= least)]
    return min(
        ((_way_expense(role, kernel, _way_of(role, kernel, options), problem, device), options) for options in ways),
        key=lambda one: one[0].us,
    )


def _way_of(role: Role, kernel: _Fused, options: Options) -> _Way:
    usual = kernel.forward if role == "expand" else kernel.backward
    wanted = frozenset(options)
    return next((way for at, known, way, _ in kernel.others if at == role and frozenset(known) == wanted), usual)


def _way_expense(role: Role, kernel: _Fused, way: _Way, problem: Problem, device: Device) -> Expense:
    expand = role == "expand"
    columns = (_width(problem) if expand else 1) * problem.n
    inner = problem.k if expand else problem.out
    rows, wide = _tile(role, kernel, way, problem)
    rate = device.half * 1e6 / device.sms
    across = math.ceil(columns / wide)
    waves = math.ceil(math.ceil(problem.m / rows) * across / device.sms)
    added = way.tile - (kernel.fast if expand and problem.precision == "fast" else 0.0)
    loop = waves * (2 * rows * wide * math.ceil(inner / 64) * 64 / (rate * kernel.rate) + added)
    weights = columns * inner * _idle(across, device.sms) / (way.stream * _stream(problem.m, rows))
    floor = (weights + problem.m * (inner + problem.n)) * 2 / (device.bandwidth * 0.94 * 1e6)
    product = max(loop, floor)
    # Forward keeps the pre-activations that backward needs; backward reads them and writes their gradients.
    extra = (int(problem.training) if expand else 2) * _width(problem)
    traffic = _pass_us(extra, problem, device)
    total = product + max(traffic * way.exposed, traffic - product)
    if problem.bias and not expand and not kernel.sums:
        total += _pass_us(_width(problem), problem, device) + _LAUNCH
    # A kernel of our own must be expected to win by more than the model is worth.
    return _expense(total * 1.02, 1, HOST_OURS)


def _tile(role: Role, kernel: _Fused, way: _Way, problem: Problem) -> tuple[int, int]:
    """Rows and columns of a kernel's tiles."""
    if not kernel.fits:
        return 128, way.columns
    # As `foretrace.fused.kernels.tiles.default_tile` cuts them.
    accumulators = _width(problem) if role == "expand" else 1
    crowded = accumulators == 2 and capability(problem.architecture) != (9, 0)
    narrow = crowded or problem.m * problem.n <= _FEW_TILES
    return min(128, max(16, 1 << (problem.m - 1).bit_length())), accumulators * (64 if narrow else 128)


def _stream(m: int, rows: int) -> float:
    """Share of the usual rate at which weights arrive: less where tiles of ``rows`` are mostly empty, or x is small."""
    empty = max(0.0, math.log2(rows / max(m, 1)))
    crowded = math.log2(SMALL_ROWS / m) if 1 < m < SMALL_ROWS else 0.0
    return 1 / (1 + _SCARCE * empty) - _CROWDED * crowded


def _idle(tiles: int, sms: int) -> float:
    """How much longer the weights of so many tiles side by side take to come than if all multiprocessors were busy.

    Tiles of other rows ask for the same weights at the same time, and make them come no sooner.
    """
    full, rest = divmod(tiles, sms)
    return (full + (max(rest / sms, 1 / _PULL) if rest else 0.0)) * sms / max(tiles, 1)


_STEPS: Final[dict[tuple[Role, str], _Cost]] = {
    # the activation: 2 passes; its product with up: 3
    ("expand", "plain"): _composed("expand", (5, 2), (2, 1), HOST_ATEN),
    ("expand", "elementwise"): _composed("expand", (3, 1), (2, 1), HOST_OURS),
    ("expand", "library"): _expand_library,
    ("expand", "small"): _expand_small,
    ("project", "plain"): _composed("project", (0, 0), (0, 0), 0.0),
    ("project", "small"): _project_small,
    # the activation again: 2 passes; two products with the hidden's gradient: 6; the activation's gradient: 3
    ("backward", "plain"): _composed("backward", (11, 4), (3, 1), HOST_ATEN),
    ("backward", "elementwise"): _composed("backward", (5, 1), (3, 1), HOST_OURS, sums=True),
}
