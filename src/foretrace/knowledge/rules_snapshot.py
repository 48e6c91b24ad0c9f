"""What is said of a device's memory, from an allocator snapshot or from the allocator's counters."""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.rule import Rule

__all__ = ["EXPANDABLE_ADVICE", "REFUSED", "SNAPSHOT_RULES"]

# How the advice against holes ends, by whether expandable_segments is on.
EXPANDABLE_ADVICE: Final = {
    False: ", or let segments grow and shrink by pages: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not on "
    "Windows, not with max_split_size_mb)",
    True: "; expandable_segments is on already, so that the pages in which nothing lives can be returned",
}

_ALLOCATOR = "PyTorch, CUDA semantics: memory management; c10/cuda/CUDACachingAllocator.cpp"

# Why a request failed although the device had more free than it asked for.
REFUSED: Final = (
    ", more than was asked for: a limit of this process refused it (set_per_process_memory_fraction, or "
    "per_process_memory_fraction in the configuration), or another process was faster"
)

SNAPSHOT_RULES: dict[str, Rule] = {
    "hard_fragmentation": Rule(
        severity="warning",
        title="{bytes} ({share}) lie in holes between live blocks; the largest is {largest}",
        explanation="A hole can be given to a request that fits into it, and to nothing else: the allocator never "
        "moves a live tensor, and returns only segments that are wholly free. A request above {largest} needs new "
        "memory from the device although {bytes} are free. Most of it is pinned by: {pins}.",
        suggestion="Allocate what lives long (parameters, optimizer states, caches) before what comes and goes, and "
        "free what pins the holes{expandable}.",
        source=_ALLOCATOR,
    ),
    "sparse_segments": Rule(
        severity="warning",
        title="{blocks}, {together} in all, pin {segments}, {bytes} of them free",
        explanation="Each of these blocks takes less than a tenth of a segment that is mostly free. As long as one of "
        "them lives, its segment cannot be returned: a large segment was cut up for small requests that outlived their "
        "neighbours.",
        suggestion="Keep large cached segments from being cut up for smaller requests "
        "(PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N, not together with expandable_segments), or make the small "
        "tensors before the large ones.",
        source="pytorch/pytorch#35901; " + _ALLOCATOR,
    ),
    "idle_in_other_pools": Rule(
        severity="warning",
        title="{bytes} ({share}) are free in other streams' and private pools",
        explanation="A block goes back to the stream and pool it was allocated for, and no other stream or pool "
        "ever gets it: {owners}.",
        suggestion="Let CUDA graphs share one pool (pool=graph.pool()), allocate on the stream that uses the "
        "memory, and drop graphs that are not replayed any more.",
        source="meta-pytorch/torchrec#4584; " + _ALLOCATOR,
    ),
    "rounding": Rule(
        severity="note",
        title="{bytes} ({share} of what is allocated) are rounding",
        explanation="Blocks are larger than what was asked for: sizes are rounded up to 512 bytes{divisions}, and "
        "the rest of a block of the large pool is cut off only above 1 MiB.",
        suggestion=None,
        source=_ALLOCATOR,
    ),
    "pending_frees": Rule(
        severity="note",
        title="{bytes} are freed but wait for another stream",
        explanation="These tensors were used on another stream (record_stream) whose work was not over at the "
        "snapshot. Until it is, nobody gets their memory.",
        suggestion="Where it stays much: let the consumer's stream be waited for before the tensor is dropped, "
        "instead of record_stream.",
        source="torch.Tensor.record_stream; " + _ALLOCATOR,
    ),
    "cached_segments": Rule(
        severity="info",
        title="{bytes} ({share}) are whole free segments: cached, not lost",
        explanation="The allocator keeps {segments} for the next request, and gives them back to the device by "
        "itself when one cannot be served otherwise. Other processes cannot have them until then.",
        suggestion="torch.cuda.empty_cache() returns them at once, for another process's sake; it brings this process "
        "nothing.",
        source=_ALLOCATOR,
    ),
    "split_limit_with_expandable": Rule(
        severity="warning",
        title="expandable_segments and max_split_size_mb are both on",
        explanation="They work against each other: blocks above the limit are neither cut nor given to smaller "
        "requests, so that expandable segments grow where they could have been used again (reported: 220 MiB became "
        "14 GiB).",
        suggestion="Keep expandable_segments:True and leave max_split_size_mb out.",
        source="pytorch/pytorch#193400",
    ),
    "out_of_memory_seen": Rule(
        severity="warning",
        title="{times} failed while the history was recorded; the last asked for {bytes}",
        explanation="The device had {free} free then{refused}.",
        suggestion="foretrace memory FILE --request {request}{flags} says whether it would succeed now; foretrace oom "
        "explains the message itself.",
        source=_ALLOCATOR,
    ),
    "cache_flushed": Rule(
        severity="warning",
        title="the allocator gave its cache back {times} to serve a request ({bytes}){doubt}",
        explanation="A request that neither the cache nor the device could serve made it wait for the GPU and "
        "return every whole free segment (num_alloc_retries counts it). What follows asks the device for memory "
        "again, call by call.",
        suggestion="Ask for less at the peak, or keep sizes from changing; see what was alive at the peak below.",
        source=_ALLOCATOR,
    ),
}
