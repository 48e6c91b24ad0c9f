"""A small model of a program for tests of findings: operators in a row, each with the kernels it launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foretrace
from builders import TraceBuilder
from foretrace.model.report import Finding, Report

TRACES = Path(__file__).parents[2] / "data" / "traces"

BF16 = "c10::BFloat16"
FP32 = "float"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::{0}, std::array<char*, 2ul> >"
    "(int, at::native::{0}, std::array<char*, 2ul>)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>"
    "(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
)
CAST = POINTWISE.format("bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}")


def pointwise(functor: str) -> str:
    """The name of an eager pointwise kernel."""
    return POINTWISE.format(functor)


class Program:
    """Steps of operators one after the other: 100 µs of CPU time each, kernels in order on one stream."""

    def __init__(self, gpu: str = "NVIDIA H200", steps: bool = True) -> None:
        self.build = TraceBuilder(gpu=gpu)
        self.steps = steps
        self.now = 0.0
        self.gpu = 50.0
        self._number = 0
        self._begin = 0.0

    def step(self) -> Program:
        """Begin a step; the one before ends."""
        self._close()
        self._number += 1
        self._begin = self.now
        self.now += 10
        return self

    def _close(self) -> None:
        if self._number and self.steps:
            self.build.step(self._number, self._begin, self.now - self._begin)

    def run(
        self,
        op: str,
        *shapes: list[int],
        kernel: str | None = None,
        us: float = 10.0,
        dtypes: str | list[str] = BF16,
        inside: tuple[str, ...] = (),
        memset: int | None = None,
        memcpy: str | None = None,
        query: bool = False,
        seed: str | None = None,
        **recorded: Any,
    ) -> Program:
        """One operator call (inside others, outermost first) and what it launches, in this order."""
        start = self.now
        for depth, name in enumerate(inside):
            self.build.op(name, start + depth, 100 - 2 * depth)
        kinds = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
        depth = len(inside)
        self.build.op(op, start + depth, 90 - 2 * depth, shapes=list(shapes), dtypes=kinds, **recorded)
        at = start + depth + 10
        if query:
            self.build.call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", at, 2)
        if memset is not None:
            launch = self.build.call("cudaMemsetAsync", at + 3, 4)
            self.gpu = max(self.gpu, at + 7)
            self.build.memset(self.gpu, 1, bytes=memset, launch=launch)
            self.gpu += 1
        if seed is not None or memcpy is not None:
            launch = self.build.call("cudaMemcpyAsync", at + 8, 4)
            self.gpu = max(self.gpu, at + 12)
            self.build.memcpy(self.gpu, us, name=seed or memcpy or "", launch=launch, bytes=4096)
            self.gpu += us
        if kernel is not None:
            launch = self.build.launch(at + 15, 5)
            self.gpu = max(self.gpu, at + 20)
            self.build.kernel(kernel, self.gpu, us, launch=launch)
            self.gpu += us
        self.now += 110
        return self

    def report(self) -> Report:
        """What foretrace says about it."""
        self._close()
        self._number = 0
        return foretrace.explain(self.build.trace())

    def findings(self, rule: str) -> list[Finding]:
        """The findings of one rule."""
        return [finding for finding in self.report().findings if finding.rule == rule]


def of_trace(name: str, rule: str) -> list[Finding]:
    """Findings of one rule about a recorded trace."""
    return [f for f in foretrace.explain(TRACES / f"{name}.json.gz").findings if f.rule == rule]
