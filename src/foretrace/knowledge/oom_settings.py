"""Out-of-memory remedies that are settings or calls of the allocator: when they help, when they cannot, and why."""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.oom_fits import ALLOCATOR, NOTES, Fit, KnownRemedy, same

__all__ = ["SETTINGS"]

SETTINGS: Final[dict[str, KnownRemedy]] = {
    "raise_limit": KnownRemedy(
        "raise the process's limit",
        {
            "limit": Fit("helps", "The device has {free} free; only the limit of {allowed} forbids using it."),
            "limit_impossible": Fit(
                "may", "The limit of {allowed} is below the request, but the device could not give it either."
            ),
        },
        ("nobody relies on the rest of the device: the limit was set for something",),
        "torch.cuda.set_per_process_memory_fraction; per_process_memory_fraction in the allocator's settings",
    ),
    "mps_watermark": KnownRemedy(
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
        {
            "mps_limit": Fit(
                "may",
                "It moves the limit of {allowed}; 0.0 removes it. Memory is shared with the system, which swaps or "
                "stops when it runs out.",
            ),
            "mps_impossible": Fit(
                "cannot", "One request of {asked} is above the limit by itself; without a limit the system swaps."
            ),
        },
        ("set before PyTorch is imported: in the shell, not in the program (pytorch#96814)",),
        "PyTorch, MPS environment variables",
    ),
    "share_graph_pool": KnownRemedy(
        "let CUDA graphs share one pool, capture fewer sizes",
        {
            "graph_pool": Fit("helps", "{private} are idle in private pools, where only their graphs can use them."),
            "graph_some": Fit("may", "{private} are idle in private pools; that alone is not what was lacking."),
        },
        (
            "graphs that share a pool (pool=graph.pool()) are replayed in the order of their capture, never at once",
            "with vLLM or SGLang: fewer capture sizes, or --enforce-eager / --disable-cuda-graph",
        ),
        "torch.cuda.graph(pool=…); pytorch#121932",
    ),
    "expandable_segments": KnownRemedy(
        "{variable}=expandable_segments:True",
        {
            "expandable_on": Fit("cannot", "It is on already. The message recommends it whatever is set."),
            "expandable_windows": Fit(
                "cannot", "The paths are those of Windows, where PyTorch ignores it with a warning."
            ),
            "expandable_old": Fit("cannot", "PyTorch has it since 2.1, and this one is older."),
            "expandable_async": Fit(
                "cannot", "It is of PyTorch's own allocator; here the driver's pool (cudaMallocAsync) hands out memory."
            ),
            "expandable_split": Fit(
                "may",
                "It would join the holes ({unallocated}), but max_split_size_mb has to go first. Together they let "
                "reserved memory grow without bound.",
            ),
            "expandable_snapshot": Fit(
                "cannot",
                "By the snapshot the idle memory belongs to other streams or pools. Segments are never shared "
                "between them, expandable or not.",
            ),
            "fragmentation": Fit(
                "helps",
                "It can join the {unallocated} that are cached in pieces. Wholly free pages are given back and mapped "
                "elsewhere: pieces of 2 MiB (small requests) and 20 MiB (large ones).",
            ),
            "nearly_full": Fit(
                "helps",
                "It could gain the {unallocated} in pieces. That is {share} of what is reserved: a little more than "
                "that, and the next request fails as this one did.",
            ),
            "full": Fit("cannot", "{unallocated} cached and {free} free are too little for {asked}."),
            "full_some": Fit(
                "may",
                "It could join some of the {unallocated} of cached free memory, {share} of what is reserved. That "
                "much is in every run: the next requests fail as this one.",
            ),
            "impossible": Fit("cannot", "{asked} do not fit even into an empty device."),
            "overflow": Fit("cannot", "No device has as much as was asked for."),
            "limit": Fit("cannot", "It joins cached free memory, and {unallocated} are too little for {asked}."),
            "limit_fragmented": Fit("may", "{unallocated} are cached and free below the limit, in pieces."),
            "driver": Fit("cannot", "Nothing is fragmented: the device itself has {free} free."),
            "other_process": Fit("cannot", "It joins what this process caches ({unallocated}), not what others hold."),
            "other_fragmented": Fit("may", "{unallocated} are cached in pieces as well, less than what others hold."),
            "graph_pool": Fit("cannot", "Memory of a private pool stays in it, expandable or not."),
        },
        (
            "not on Windows (torchtune#1185)",
            "not together with max_split_size_mb (pytorch#193400, pytorch#123548)",
            "tensors that go to other processes over CUDA IPC need torch 2.5 or later (pytorch#130890), and in "
            "containers the right to pidfd_getfd (pytorch#165685)",
            "set before the first allocation",
        ),
        "pytorch#173049; " + NOTES,
    ),
    "max_split_size_mb": KnownRemedy(
        "{variable}=max_split_size_mb:N",
        {
            "fragmentation": Fit(
                "may",
                "It keeps large segments whole, so that they can be given back. Segments then come and go more "
                "often, which costs time: where expandable segments are to be had, try those first.",
            ),
            "split_expandable": Fit(
                "cannot", "Expandable segments are on; together they let reserved memory grow without bound."
            ),
            "split_async": Fit("cannot", "It is of PyTorch's own allocator, which cudaMallocAsync replaces."),
            **same(
                "full impossible limit driver other_process graph_pool",
                Fit("cannot", "It prevents fragmentation, which is not what was lacking here."),
            ),
        },
        ("not together with expandable_segments", "N at least 20"),
        "pytorch#113481; pytorch#193400",
    ),
    "empty_cache": KnownRemedy(
        "empty_cache()",
        {
            **same(
                "fragmentation full limit other_process driver impossible",
                Fit(
                    "cannot",
                    "The allocator did just that before it gave up. What is still cached shares its segment with live "
                    "tensors. It helps only other processes, if called in the one that holds the cache.",
                ),
            ),
            "cache_async": Fit("cannot", "The driver's pool lends what it has free before it refuses."),
            "graph_pool": Fit(
                "cannot", "It returns what no graph needs any more; a pool's memory stays until its graphs are gone."
            ),
            "mps_limit": Fit(
                "may",
                "torch.mps.empty_cache() returns what Metal caches; the limit counts that as well (pytorch#105839).",
            ),
        },
        (),
        ALLOCATOR,
    ),
    "garbage_collection_threshold": KnownRemedy(
        "garbage_collection_threshold",
        same(
            "fragmentation full other_process",
            Fit(
                "cannot",
                "It gives whole segments back earlier, which the allocator did now anyway. It works only beside a "
                "memory fraction.",
            ),
        ),
        (),
        ALLOCATOR,
    ),
    "memory_fraction": KnownRemedy(
        "torch.cuda.set_per_process_memory_fraction()",
        same(
            "full fragmentation other_process driver",
            Fit("cannot", "It only lowers the limit of this process; by default there is none."),
        ),
        ("to keep a neighbour from taking it all, set it there",),
        "pytorch#58466",
    ),
    "fewer_streams": KnownRemedy(
        "fewer streams",
        {
            "fragmentation": Fit(
                "may",
                "Free memory belongs to the stream it was allocated on. Blocks that another stream used stay pending "
                "until it is done; both count as unallocated.",
            ),
        },
        (),
        NOTES,
    ),
}
