"""Thresholds of verdicts, bounds, idle causes and findings, each with the reason for its value."""

from __future__ import annotations

__all__ = [
    "BACK_TO_BACK_NS",
    "CLASSIFIED_GAPS",
    "COLD_STEP_RATIO",
    "COMPUTE_KINDS",
    "DOMINANT_SHARE",
    "GPU_BOUND_SHARE",
    "KNOWN_BOUND_SHARE",
    "LATENCY_SHARE",
    "LATENCY_US",
    "LAUNCH_LATENCY_NS",
    "LONG_LAUNCH_US",
    "OVERHEAD_SHARE",
    "POINTWISE_KINDS",
    "PROFILING_INFLATION",
    "PROFILING_INFLATION_STACKS",
    "QUEUE_DEPTH",
    "SMALL_GAP_NS",
    "TINY_KERNEL_US",
]

# A gap this short between two queued kernels is the hardware's hand-over (0.8 to 2 µs on A100 and H200).
BACK_TO_BACK_NS = 3_000
# From the launch call to the kernel's start on an idle GPU: 3 to 8 µs on NVIDIA, up to 15 µs on AMD.
LAUNCH_LATENCY_NS = 15_000
# Gaps below this are counted as hand-over without being looked at.
SMALL_GAP_NS = 1_000
# Only this many gaps, the longest, are looked at one by one; the rest are said to be unknown.
CLASSIFIED_GAPS = 20_000

# Share of the step during which the GPU works from which the GPU, not the CPU, sets the pace.
GPU_BOUND_SHARE = 0.85
# Below this share, in an unprofiled timing, the CPU sets the pace.
OVERHEAD_SHARE = 0.60
# Profiling lengthens CPU time: 1.5 to 1.9 times for small operators, 2.3 times measured for an eager MLP on an
# H200; with Python stacks up to 5 times. A GPU busy share so low that even this factor leaves the GPU idle was not
# caused by profiling.
PROFILING_INFLATION = 3.0
PROFILING_INFLATION_STACKS = 6.0

# Share of the known kernel time one bound must hold to be the verdict; otherwise it is mixed.
DOMINANT_SHARE = 0.65
# Share of the kernel time whose bound must be known before there is a roofline verdict at all.
KNOWN_BOUND_SHARE = 0.80

# A kernel this short that reaches less than this share of either peak is bound by latency: too little work to
# fill the GPU.
LATENCY_US = 10.0
LATENCY_SHARE = 0.25
TINY_KERNEL_US = 5.0

# The first step counts as cold when it is this much longer than the median of the others.
COLD_STEP_RATIO = 1.5
# A launch call is normally 3 to 20 µs under the profiler; one this long waited for something.
LONG_LAUNCH_US = 100.0
# CUDA's launch queue holds about 1024 launches a stream; from here on a long launch call means a full queue.
QUEUE_DEPTH = 512

# Kinds whose FLOPs decide, and kinds that only move bytes.
COMPUTE_KINDS = frozenset({"gemm", "attention", "convolution"})
POINTWISE_KINDS = frozenset({"elementwise", "fused", "reduction", "normalization", "softmax", "copy", "embedding"})
