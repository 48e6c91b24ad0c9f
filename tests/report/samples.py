"""Reports made by hand, for tests of the renderers: no trace and no analysis is needed."""

from __future__ import annotations

from foretrace.model.report import (
    Coverage,
    Elementwise,
    Evidence,
    Finding,
    Gap,
    Gemm,
    Gpu,
    Group,
    Has,
    Health,
    IdleCause,
    Kernel,
    Launcher,
    Operator,
    PhaseTime,
    Report,
    Step,
    Timing,
    TraceInfo,
    Transfer,
    Verdict,
)

GEMM_NAME = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
MUL_NAME = "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16>>(int)"


def step(index: int = 0, **changes: object) -> Step:
    fields: dict[str, object] = {
        "index": index,
        "label": f"ProfilerStep#{index + 2}",
        "wall_us": 565.4,
        "period_us": 571.25,
        "gpu_busy_us": 236.48,
        "gpu_idle_us": 334.77,
        "kernels": 5,
        "memcpys": 0,
        "memsets": 2,
        "launches": 7,
        "kernel_launches": 5,
        "occupancy_queries": 0,
        "synchronizations": 0,
        "idle": [
            IdleCause(cause="waiting_for_cpu", detail="aten::linear", us=290.1, gaps=4),
            IdleCause(cause="launch_latency", detail=None, us=44.7, gaps=3),
        ],
    }
    return Step(**(fields | changes))  # type: ignore[arg-type]


def trace_info(**changes: object) -> TraceInfo:
    fields: dict[str, object] = {
        "path": "/data/traces/mlp_eager.json.gz",
        "format": "kineto, gzip",
        "events": 512,
        "gpus": [Gpu(id=0, name="NVIDIA H200", compute_capability="9.0", sms=132)],
        "repairs": [],
        "warnings": [],
        "has": Has(shapes=True, stacks=False, gpu=True, memory=False, graphs=False),
        "torch_version": "2.11.0",
    }
    return TraceInfo(**(fields | changes))  # type: ignore[arg-type]


def group(**changes: object) -> Group:
    fields: dict[str, object] = {
        "name": GEMM_NAME,
        "short_name": "nvjet 256x128 TN",
        "kind": "gemm",
        "op": "aten::mm",
        "calls": 6,
        "calls_per_step": 2.0,
        "total_us": 340.32,
        "share": 0.483,
        "median_us": 56.7,
        "min_us": 55.9,
        "bound": "compute",
        "of_peak": 0.689,
        "peak": "bf16 tensor",
    }
    return Group(**(fields | changes))  # type: ignore[arg-type]


def finding(**changes: object) -> Finding:
    fields: dict[str, object] = {
        "rule": "hbm_round_trip",
        "severity": "warning",
        "title": "gelu and mul pass 50.3 MB through HBM",
        "explanation": "The result of aten::gelu is written to HBM and read again by aten::mul.",
        "evidence": [Evidence(event=41, name="aten::gelu", start_us=120.5)],
        "source": "model.py:17",
        "saving_us": 31.8,
        "suggestion": "Compile the module, or use a fused kernel.",
    }
    return Finding(**(fields | changes))  # type: ignore[arg-type]


def gemm(**changes: object) -> Gemm:
    fields: dict[str, object] = {
        "m": 8192,
        "n": 3072,
        "k": 768,
        "batch": None,
        "dtype": "bf16",
        "layout": "TN",
        "tile": "256x128",
        "op": "aten::mm",
        "kernel": GEMM_NAME,
        "epilogue": ["bias"],
        "calls": 6,
        "median_us": 56.7,
        "min_us": 55.9,
        "flops": 2 * 8192 * 3072 * 768,
        "tflops": 681.7,
        "of_peak": 0.689,
        "peak": "bf16 tensor, 989 TFLOP/s",
    }
    return Gemm(**(fields | changes))  # type: ignore[arg-type]


def elementwise(**changes: object) -> Elementwise:
    fields: dict[str, object] = {
        "kernel": MUL_NAME,
        "short_name": "elementwise mul ×8",
        "kind": "elementwise",
        "op": "aten::mul",
        "parts": ["mul"],
        "calls": 3,
        "median_us": 36.8,
        "min_us": 36.5,
        "bytes": 150994944,
        "gbps": 4103.0,
        "of_peak": 0.855,
        "peak": "memory, 4800 GB/s",
    }
    return Elementwise(**(fields | changes))  # type: ignore[arg-type]


def operator(name: str = "aten::mm", **changes: object) -> Operator:
    fields: dict[str, object] = {
        "name": name,
        "calls": 9,
        "cpu_us": 446.2,
        "self_cpu_us": 286.1,
        "gpu_us": 502.3,
        "kernels": 9,
        "metadata_only": False,
        "self_gpu_us": 502.3,
    }
    return Operator(**(fields | changes))  # type: ignore[arg-type]


def node(name: str, kind: str, *children: Launcher, count: int = 1, us: float | None = None) -> Launcher:
    return Launcher(name=name, kind=kind, count=count, us=us, children=list(children))


def kernel(**changes: object) -> Kernel:
    fields: dict[str, object] = {
        "event": 77,
        "name": GEMM_NAME,
        "short_name": "nvjet 256x128 TN",
        "kind": "gemm",
        "decoded": {"family": "nvjet", "tile": "256x128"},
        "step": 0,
        "phase": None,
        "op": "aten::mm",
        "op_path": ["aten::linear", "aten::matmul", "aten::mm"],
        "module": None,
        "start_us": 101.0,
        "duration_us": 56.7,
        "stream": 7,
        "grid": [132, 1, 1],
        "block": [384, 1, 1],
        "registers": 168,
        "shared_memory_bytes": 214016,
        "flops": 38654705664,
        "bytes": None,
        "bound": "compute",
        "achieved_tflops": 681.7,
        "achieved_gbps": None,
        "of_peak": 0.689,
        "peak": "bf16 tensor",
    }
    return Kernel(**(fields | changes))  # type: ignore[arg-type]


def transfer(**changes: object) -> Transfer:
    fields: dict[str, object] = {
        "event": 80,
        "name": "Memset (Device)",
        "kind": "memset",
        "direction": None,
        "bytes": 4,
        "step": 0,
        "op": "aten::mm",
        "start_us": 100.0,
        "duration_us": 0.784,
        "stream": 7,
    }
    return Transfer(**(fields | changes))  # type: ignore[arg-type]


def mlp_report(**changes: object) -> Report:
    """The eager GeGLU MLP, roughly: three steps on one GPU, everything filled."""
    mm = node(
        "aten::mm",
        "operator",
        node("cudaMemsetAsync", "launch", node("Memset (Device)", "memset", us=0.784)),
        node("cudaLaunchKernelExC", "launch", node(GEMM_NAME, "kernel", us=56.7)),
    )
    linear = node(
        "aten::linear",
        "operator",
        node("aten::t", "operator", node("aten::transpose", "operator")),
        node("aten::matmul", "operator", mm),
        count=2,
    )
    fields: dict[str, object] = {
        "trace": trace_info(),
        "steps": [
            step(0, phases=[PhaseTime(phase="forward", gpu_us=236.48, kernels=5)]),
            step(1, period_us=420.0, wall_us=418.2, gpu_idle_us=183.5),
            step(2, period_us=360.5, wall_us=351.0, gpu_idle_us=124.0),
        ],
        "kernels": [kernel()],
        "transfers": [transfer()],
        "groups": [
            group(),
            group(
                name=MUL_NAME,
                short_name="elementwise mul ×8",
                kind="elementwise",
                op="aten::mul",
                calls=3,
                calls_per_step=1.0,
                total_us=110.5,
                share=0.157,
                median_us=36.8,
                min_us=36.5,
                bound="memory",
                of_peak=0.855,
            ),
        ],
        "operators": [
            operator(),
            operator("aten::t", kernels=0, gpu_us=0.0, self_gpu_us=0.0, metadata_only=True),
        ],
        "gemms": [gemm()],
        "elementwise": [elementwise(), elementwise(op="aten::gelu", of_peak=None, cache_assisted=True)],
        "chain": [node("ProfilerStep#2", "annotation", linear, node("aten::gelu", "operator"))],
        "gaps": [Gap(step=0, start_us=12.5, duration_us=140.0, cause="waiting_for_cpu", detail="aten::linear")],
        "findings": [
            finding(),
            finding(
                rule="metadata_only",
                severity="info",
                title="9 transposes cost no GPU time",
                saving_us=None,
                source=None,
                suggestion=None,
                count=9,
            ),
        ],
        "verdict": Verdict(bound="mixed", because=["GEMMs take 71 % of GPU time at 69 % of the bf16 peak."]),
        "coverage": Coverage(kernels_linked=1.0, kernels_with_op=1.0, flops_counted=0.713),
        "health": [Health(check="unlinked_gpu_time", state="ok", detail="every GPU row has its launch")],
    }
    return Report(**(fields | changes))  # type: ignore[arg-type]


def cpu_report(**changes: object) -> Report:
    """A trace without GPU rows."""
    fields: dict[str, object] = {
        "trace": trace_info(
            path="-", gpus=[], has=Has(shapes=False, stacks=False, gpu=False, memory=False, graphs=False)
        ),
        "steps": [
            step(
                label="whole trace",
                gpu_busy_us=None,
                gpu_idle_us=None,
                kernels=None,
                memcpys=None,
                memsets=None,
                launches=None,
                kernel_launches=None,
                occupancy_queries=None,
                synchronizations=None,
                idle=[],
            )
        ],
        "kernels": [],
        "transfers": [],
        "groups": [],
        "operators": [operator(gpu_us=None, self_gpu_us=None, kernels=None)],
        "gemms": [],
        "elementwise": [],
        "chain": [],
        "gaps": [],
        "findings": [],
        "verdict": Verdict(bound="unknown", because=["The trace holds no GPU rows."]),
        "coverage": Coverage(kernels_linked=None, kernels_with_op=None, flops_counted=None),
        "health": [],
    }
    return Report(**(fields | changes))  # type: ignore[arg-type]


def timing() -> Timing:
    return Timing(median_us=241.3, iqr_us=1.2, runs=50, method="cuda_events")
