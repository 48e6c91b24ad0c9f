"""Small programs to compare: steps of operators that launch one kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from builders import TraceBuilder

MM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
OTHER_MM = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_TNT"
GELU = "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, MulFunctor>>(int)"
FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
ROWS, INNER, OUTER = 64, 32, 16


@dataclass(frozen=True)
class Call:
    """One operator and the kernel it launches (none for a view), in µs of GPU time."""

    op: str
    kernel: str | None
    us: float = 10.0
    shapes: tuple[tuple[int, ...], ...] = ()
    within: str | None = None  # an operator around it
    copy_bytes: int | None = None  # a copy of the copy engine instead of a kernel

    def renamed(self, kernel: str) -> Call:
        return replace(self, kernel=kernel)


def mm(us: float = 50.0, kernel: str = MM, rows: int = ROWS) -> Call:
    return Call("aten::mm", kernel, us, ((rows, INNER), (INNER, OUTER)), within="aten::linear")


def pointwise(op: str, kernel: str, us: float = 10.0, operands: int = 1) -> Call:
    return Call(op, kernel, us, ((ROWS, OUTER),) * operands)


EAGER = (mm(), pointwise("aten::gelu", GELU), mm(), pointwise("aten::mul", MUL, operands=2), mm(kernel=OTHER_MM))
COMPILED = (mm(), mm(), Call(FUSED, FUSED, 12.0, ((ROWS, OUTER),) * 3), mm(kernel=OTHER_MM))


def program(
    calls: Sequence[Call],
    *,
    steps: int = 3,
    shapes: bool = True,
    annotated: bool = True,
    wander: float = 0.0,
    gap: float = 120.0,
    build: TraceBuilder | None = None,
    around: Sequence[str] = (),
) -> TraceBuilder:
    """Run the calls in every step; ``wander`` lengthens the kernels of each step by so many µs more than the last."""
    build = build or TraceBuilder()
    now = 0.0
    for number in range(steps):
        length = gap * (len(calls) + 1)
        if annotated:
            build.step(number, now, length)
        for depth, name in enumerate(around):
            build.annotation(name, now + 1 + 0.1 * depth, length - 2 - 0.2 * depth)
        for position, call in enumerate(calls):
            _run(build, call, now + gap * (position + 0.5), gap, number * wander, shapes)
        now += length
    return build


def _run(build: TraceBuilder, call: Call, at: float, gap: float, longer: float, shapes: bool) -> None:
    recorded: dict[str, Any] = {}
    if shapes and call.shapes:
        recorded["shapes"] = [list(shape) for shape in call.shapes]
        recorded["dtypes"] = ["c10::BFloat16"] * len(call.shapes)
    if call.within:
        build.op(call.within, at, gap * 0.4, **recorded)
    build.op(call.op, at + 0.5, gap * 0.3, **recorded)
    if call.copy_bytes is not None:
        launch = build.call("cudaMemcpyAsync", at + 1, 2)
        build.memcpy(at + 8, call.us + longer, bytes=call.copy_bytes, launch=launch)
    elif call.kernel is not None:
        build.kernel(call.kernel, at + 8, call.us + longer, launch=build.launch(at + 1, 2))
