"""Findings about memory that a trace shows: what fusing would not write, and an allocator at its limit."""

from __future__ import annotations

from foretrace.knowledge.rule import Rule

__all__ = ["KERNEL_WRITES", "MEMORY_RULES"]

# What the kernel that takes the elementwise work in does with each kind of intermediate; by role, in this order.
KERNEL_WRITES = (
    (
        ("gate", "up", "activated"),
        "A fused gate/up kernel keeps gate, up and the activation's result on the chip; their product is still written "
        "once.",
    ),
    (("pre-activation",), "A product with the activation in its epilogue writes the activated result alone."),
    (("product", "elementwise"), "The others are elementwise work beside a product or another elementwise operator."),
)

MEMORY_RULES: dict[str, Rule] = {
    "fusable_intermediates": Rule(
        severity="note",
        title="{bytes}{each} of results that fused kernels would not write: {names}",
        explanation="Elementwise operators alone read what these wrote: {parts}. {kernels}{kept}{peak} Sizes are the "
        "allocator's; who reads what is inferred from shapes, order and lifetimes. The time that this traffic takes is "
        "part of hbm_round_trip and gemm_then_pointwise.",
        suggestion="For MLPs foretrace.fused (GatedMLP, LinearAct) or Liger's kernels; for chains of elementwise "
        "operators torch.compile.",
        source="the trace's allocator rows ([memory], profile_memory), tied to operators by thread and time",
    ),
    "allocator_retry": Rule(
        severity="warning",
        title="The allocator emptied its cache {times} to serve a request ({total})",
        explanation="Inside {ops} it gave memory back to the device ({frees}) and asked the device again: neither the "
        "cache nor the device could serve the request. Giving back waits for the GPU, and what was cached has to be "
        "asked for anew.{counted}",
        suggestion="Less memory at the peak (smaller batch, activation checkpointing, fused kernels), or less "
        "fragmentation: foretrace run --memory writes a snapshot, and foretrace memory reads it.",
        source="num_alloc_retries of torch.cuda.memory_stats; release_cached_blocks in CUDACachingAllocator.cpp",
    ),
}
