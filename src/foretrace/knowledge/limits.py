"""Thresholds of verdicts, bounds, idle causes and findings, each with the reason for its value."""

from __future__ import annotations

__all__ = [
    "BACK_TO_BACK_NS",
    "CLASSIFIED_GAPS",
    "COLD_STEP_RATIO",
    "COMPUTE_KINDS",
    "CPU_CALL_BYTES",
    "CPU_CALL_FLOPS",
    "CPU_DATA_SHARE",
    "CPU_OPERATOR_SHARE",
    "CPU_PROFILE_FACTOR",
    "DOMINANT_SHARE",
    "FOR_LOOP_KERNELS",
    "GPU_BOUND_SHARE",
    "IDLE_SHARE",
    "KNOWN_BOUND_SHARE",
    "LARGE_GAP_SHARE",
    "LATENCY_SHARE",
    "LATENCY_US",
    "LAUNCH_BUSY_SHARE",
    "LAUNCH_IDLE_SHARE",
    "LAUNCH_LATENCY_NS",
    "LEAST_IDLE_US",
    "LEAST_ROUND_TRIP",
    "LEAST_SAVING_US",
    "LONG_LAUNCH_US",
    "LOW_BANDWIDTH_SHARE",
    "LOW_BANDWIDTH_US",
    "LOW_PEAK_SHARE",
    "MAIN_KERNEL_SHARE",
    "NAMED_PLACES",
    "NAMED_TIME_SHARE",
    "OVERHEAD_SHARE",
    "POINTWISE_KINDS",
    "PROFILING_INFLATION",
    "PROFILING_INFLATION_STACKS",
    "QUEUE_DEPTH",
    "RECENT_RESULTS",
    "SAME_STEP",
    "SAME_TIME",
    "SHOWN_KINDS",
    "SMALL_GAP_NS",
    "TINY_COUNT",
    "TINY_KERNEL_US",
    "TINY_SHARE",
    "UPPER_BOUND_WEIGHT",
    "WAVE_EFFICIENCY",
    "WORTH_GEMM_SHARE",
    "WORTH_SAVING",
    "WORTH_SHARE",
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
LATENCY_US = 20.0
LATENCY_SHARE = 0.25
TINY_KERNEL_US = 5.0

# The first step counts as cold when it is longer than each of the others and than this many times their median. In 15
# recordings of three steps on an H200 (MLPs, linear layers; eager, compiled, fused) it took 1.2 to 3.6 times the
# median, mostly from 1.4 on, and in most the others differ by 1 to 20 %. At 1.5 programs recorded alike fell on both
# sides of it.
COLD_STEP_RATIO = 1.25
# A launch call is normally 3 to 20 µs under the profiler; one this long waited for something.
LONG_LAUNCH_US = 100.0
# CUDA's launch queue holds about 1024 launches a stream; from here on a long launch call means a full queue.
QUEUE_DEPTH = 512

# Of several kernels of one product operator, the longest does the product when it takes this much of their time
# (attention's backward: 78 to 95 %, the rest prepares and converts).
MAIN_KERNEL_SHARE = 0.7

# What vanishes is mostly won in part: in the order of findings an upper bound weighs this much of a saving that was
# measured. What remains may become faster as well, and that is in no bound.
UPPER_BOUND_WEIGHT = 0.5

# Kinds whose FLOPs decide, and kinds that only move bytes.
COMPUTE_KINDS = frozenset({"gemm", "attention", "convolution"})
POINTWISE_KINDS = frozenset({"elementwise", "fused", "reduction", "normalization", "softmax", "copy", "embedding"})

# A result that no operator has taken after this many further ones (about half a transformer layer) is taken to be
# kept for later: a match of sizes beyond that is chance.
RECENT_RESULTS = 12

# Idle time below this share of a step is not worth a finding of its own.
IDLE_SHARE = 0.05

# One gap this large a part of its step stands out in a timeline.
LARGE_GAP_SHARE = 0.15

# A launch call during which the GPU worked this share of the time cost the GPU nothing.
LAUNCH_BUSY_SHARE = 0.90
# One during which it worked less than this kept the GPU waiting.
LAUNCH_IDLE_SHARE = 0.50

# So many places in the code are named one by one; the rest are counted together.
NAMED_PLACES = 5

# Intermediates of fewer bytes than this stay in caches, and latency, not traffic, is what their kernels cost.
LEAST_ROUND_TRIP = 1_000_000
# A saving below this, a step, is within the spread of kernel times.
LEAST_SAVING_US = 0.5
# Findings of one rule that are told one by one, the most valuable first; the rest are told together.
SHOWN_KINDS = 3

# A step is fragmented when at least this many of its kernels, and this share of them, are tiny.
TINY_COUNT = 100
TINY_SHARE = 0.5
# Single-tensor kernels of an optimizer step from which a multi-tensor implementation is worth naming: about ten
# parameters' worth of Adam.
FOR_LOOP_KERNELS = 50
# What takes less than this share of the kernel time is not worth a finding of its own.
WORTH_SHARE = 0.01
# A saving below this share of the kernel time is a trifle.
WORTH_SAVING = 0.002
# A GEMM is looked at one by one from this share of the kernel time on.
WORTH_GEMM_SHARE = 0.05
# A compute-bound GEMM of ordinary size reaches 55 to 80 % of the datasheet's peak; below this something is in its way.
LOW_PEAK_SHARE = 0.45
# A generated pointwise kernel bound by memory reaches 80 to 90 % of the datasheet's bandwidth from 10 µs on (39.3 and
# 37.0 µs for GELU and product of 8192×3072 on an H200); below this share another choice of blocks does better.
LOW_BANDWIDTH_SHARE = 0.70
LOW_BANDWIDTH_US = 10.0
# Below this share of filled tiles or waves, quantisation is named as a cause.
WAVE_EFFICIENCY = 0.80

# Idle or exposed time below this a step is what any launch takes, or the ragged edge of an overlap.
LEAST_IDLE_US = 1.0

# Of the time a slow step takes more, what has less than this share is not worth naming.
NAMED_TIME_SHARE = 0.05

# Two GPU times that differ by less than this share are the same work.
SAME_TIME = 0.10

# A step is a measure for another one if it launches at least this share of what that one does.
SAME_STEP = 0.50

# Of a program on the CPU, what takes less than this share of the operators' time is not worth naming.
CPU_OPERATOR_SHARE = 0.05
# A wait for data of this share of a step is worth more than any tuning of the operators beside it.
CPU_DATA_SHARE = 0.10
# A call of an operator takes 2 to 20 µs on the CPU under the profiler, and waking its threads as much again. One core
# does 1 MFLOP (at 50 GFLOP/s) or moves 100 kB (at 10 GB/s) in that time: below, the rate is that of the call.
CPU_CALL_FLOPS = 1e6
CPU_CALL_BYTES = 1e5
# A profiled step this much longer than an unprofiled one is worth saying; less is the spread of CPU timings.
CPU_PROFILE_FACTOR = 1.3
