"""What people do about running out of memory: when it helps, when it cannot, why, and what it needs.

Texts hold ``{places}`` for a message's numbers. A remedy that has no word for a verdict is not shown with it. Within a
verdict, remedies come in the order in which they are listed here, those that help first.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["CHECKS", "REMEDIES", "Fit", "KnownRemedy"]

Stance = Literal["helps", "may", "cannot"]


class Fit(NamedTuple):
    """How a remedy fits a case, and why."""

    stance: Stance
    because: str


class KnownRemedy(NamedTuple):
    """One remedy. ``fits``: by verdict, or by a case that overrides it (`memory.oom_remedies` says which)."""

    title: str
    fits: dict[str, Fit]
    preconditions: tuple[str, ...] = ()
    source: str | None = None


_ALLOCATOR = "c10/cuda/CUDACachingAllocator.cpp"
_NOTES = "PyTorch, CUDA semantics: memory management"


def _same(verdicts: str, fit: Fit) -> dict[str, Fit]:
    return dict.fromkeys(verdicts.split(), fit)


_LESS = Fit("helps", "Less is held at once, and most tensors are asked for smaller.")
_NEED = "full impossible limit graph_pool other_process fragmentation"

REMEDIES: Final[dict[str, KnownRemedy]] = {
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
                "stops when "
                "it runs out.",
            ),
            "mps_impossible": Fit(
                "cannot", "One request of {asked} is above the limit by itself; without a limit the system swaps."
            ),
        },
        ("set before PyTorch is imported: in the shell, not in the program (pytorch#96814)",),
        "PyTorch, MPS environment variables",
    ),
    "close_programs": KnownRemedy(
        "close other programs",
        {"mps_limit": Fit("may", "{elsewhere} are allocations besides PyTorch's, which count against the same limit.")},
        (),
        "pytorch#105839",
    ),
    "end_other_process": KnownRemedy(
        "end or move the other process",
        {
            "other_process": Fit("helps", "It holds {others}; {missing} were lacking. {listing}"),
            "other_hidden": Fit(
                "helps",
                "{others} are in use that the message puts to nobody; {missing} were lacking. {listing}",
            ),
            "other_small": Fit("may", "Others hold {others}; this process fills the device nearly alone."),
            "driver_call": Fit("may", "Whether others hold the memory, the message does not say; nvidia-smi does."),
        },
        ("look at them first: a notebook or a crashed run of your own is the most common one",),
        "nvidia-smi, rocm-smi, xpu-smi",
    ),
    "share_graph_pool": KnownRemedy(
        "let CUDA graphs share one pool, capture fewer sizes",
        {
            "graph_pool": Fit("helps", "{private} are idle in private pools, where only their graphs can use them."),
            "graph_some": Fit("may", "{private} are idle in private pools; that alone is not what was lacking."),
        },
        (
            "graphs that share a pool (pool=graph.pool()) are replayed in the order of their capture, and never at "
            "once",
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
            "expandable_old": Fit("cannot", "PyTorch has it since 2.1."),
            "expandable_split": Fit(
                "may",
                "It would join the holes ({unallocated}), but not beside max_split_size_mb, which is set: together "
                "they let "
                "reserved memory grow without bound. Remove the other first.",
            ),
            "expandable_snapshot": Fit(
                "cannot",
                "By the snapshot the idle memory belongs to other streams or pools; segments are never shared "
                "between them, "
                "expandable or not.",
            ),
            "fragmentation": Fit(
                "helps",
                "{unallocated} are cached and free, but in pieces. Expandable segments give wholly free pages back "
                "and map "
                "them elsewhere, so that pieces of 2 MiB (small requests) and 20 MiB (large ones) can be joined.",
            ),
            "full": Fit(
                "cannot",
                "It joins cached free memory, and there is too little: {unallocated}, with {free} free on the "
                "device, for "
                "{asked}.",
            ),
            "full_some": Fit(
                "may",
                "It could join some of the {unallocated} of cached free memory, {share} of what is reserved. That "
                "much is in "
                "every run: the next requests fail as this one.",
            ),
            "impossible": Fit("cannot", "It joins cached free memory; {asked} do not fit even into an empty device."),
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
            "containers the "
            "right to pidfd_getfd (pytorch#165685)",
            "set before the first allocation",
        ),
        "pytorch#173049; " + _NOTES,
    ),
    "max_split_size_mb": KnownRemedy(
        "{variable}=max_split_size_mb:N",
        {
            "fragmentation": Fit(
                "may",
                "It keeps large segments whole, so that they can be given back; but segments come and go more often, "
                "which "
                "costs time. Where expandable segments are to be had, they are the better first try.",
            ),
            "split_expandable": Fit(
                "cannot", "Expandable segments are on; together they let reserved memory grow without bound."
            ),
            **_same(
                "full impossible limit driver other_process graph_pool",
                Fit("cannot", "It prevents fragmentation, which is not what was lacking here."),
            ),
        },
        ("not together with expandable_segments", "N at least 20"),
        "pytorch#113481; pytorch#193400",
    ),
    "free_references": KnownRemedy(
        "drop what is kept by accident",
        _same(
            _NEED,
            Fit(
                "may",
                "An exception that is kept holds every frame below it and their tensors: leave the except block "
                "before trying "
                "again. A sum of losses keeps each step's graph: add loss.detach() or loss.item(). So do outputs in "
                "a list.",
            ),
        ),
        ("`foretrace memory SNAPSHOT` names the lines that hold the memory",),
        "PyTorch FAQ: my model reports out of memory; my out of memory exception handler can't allocate memory",
    ),
    "smaller_step": KnownRemedy(
        "smaller batches, shorter sequences, micro-batches",
        {
            **_same("full impossible graph_pool other_process limit", _LESS),
            "fragmentation": Fit("may", "Less is held at once; the holes stay."),
            "mps_limit": _LESS,
            "mps_impossible": _LESS,
            "host": Fit("may", "If the tensor grows with them."),
            "matrix": Fit(
                "helps",
                "{asked} are as much as {matrix}: if that is scores of attention, or pairs of all with all, it grows "
                "with the "
                "square of the length.",
            ),
        },
        ("with gradient accumulation the effective batch stays the same",),
    ),
    "fused_attention": KnownRemedy(
        "attention that never holds the scores",
        {
            "matrix": Fit(
                "may",
                "{asked} are as much as {matrix}. torch.nn.functional.scaled_dot_product_attention holds no such "
                "matrix where "
                "one of its fused kernels runs.",
            ),
        },
        (
            "no attn_implementation='eager', no attention weights asked for, a mask that the fused kernels take",
            "torch.nn.attention.sdpa_kernel(FLASH_ATTENTION) raises where the kernel cannot run, and says why",
        ),
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    "check_shape": KnownRemedy(
        "look at the shape",
        {
            "impossible": Fit(
                "helps",
                "A tensor larger than the device is seldom meant: an index used as a size, broadcasting along the "
                "wrong axis, "
                "one_hot or cdist over everything, logits of a whole batch times the vocabulary, an input that was "
                "not cropped.",
            ),
            "mps_impossible": Fit("helps", "A tensor larger than the limit is seldom meant."),
            "host": Fit("may", "If {asked} is more than you meant, one of its sizes is wrong."),
        },
        ("the traceback's last line of your own program names the tensor",),
    ),
    "checkpointing": KnownRemedy(
        "activation checkpointing",
        _same(
            "full limit other_process fragmentation graph_pool",
            Fit(
                "may",
                "In training, activations are made again in backward instead of being kept; costs about a third more "
                "time.",
            ),
        ),
        ("only where gradients are needed",),
        "torch.utils.checkpoint",
    ),
    "no_grad": KnownRemedy(
        "torch.inference_mode()",
        _same(
            "full limit other_process graph_pool",
            Fit("may", "If this was evaluation or generation: nothing is kept for backward."),
        ),
        ("no gradients are needed",),
        "torch.inference_mode",
    ),
    "fused_kernels": KnownRemedy(
        "kernels that keep no intermediates",
        _same(
            "full limit other_process graph_pool",
            Fit(
                "may",
                "A gated MLP holds gate, up and product beside its result; fused they are never in memory at once.",
            ),
        ),
        ("foretrace.fused for MLPs; a fused linear and cross-entropy for large vocabularies",),
        "foretrace.fused",
    ),
    "optimizer": KnownRemedy(
        "8-bit or sharded optimizer states",
        _same(
            "full limit",
            Fit(
                "may", "In training with Adam, states are 8 bytes for each parameter in float32; in 8 bits they are 2."
            ),
        ),
        ("sharding (FSDP, ZeRO) needs several GPUs",),
        "torch.distributed.fsdp; bitsandbytes",
    ),
    "more_memory": KnownRemedy(
        "more memory, or the model on several devices",
        {
            "impossible": Fit("may", "{asked} need a device with more than {total}, or a tensor that is split."),
            "host": Fit(
                "may", "The machine, container or page file is out of memory; fewer loader workers hold fewer copies."
            ),
        },
    ),
    "empty_cache": KnownRemedy(
        "empty_cache()",
        {
            **_same(
                "fragmentation full limit other_process driver impossible",
                Fit(
                    "cannot",
                    "The allocator did just that before it gave up: what is still cached shares its segment with "
                    "live tensors. "
                    "It helps only other processes, if called in the one that holds the cache.",
                ),
            ),
            "graph_pool": Fit(
                "cannot", "It returns what no graph needs any more; a pool's memory stays until its graphs are gone."
            ),
            "mps_limit": Fit(
                "may",
                "torch.mps.empty_cache() returns what Metal caches; the limit counts that as well (pytorch#105839).",
            ),
        },
        (),
        _ALLOCATOR,
    ),
    "garbage_collection_threshold": KnownRemedy(
        "garbage_collection_threshold",
        _same(
            "fragmentation full other_process",
            Fit(
                "cannot",
                "It gives whole segments back earlier, which the allocator did now anyway; and it works only beside "
                "a memory "
                "fraction.",
            ),
        ),
        (),
        _ALLOCATOR,
    ),
    "memory_fraction": KnownRemedy(
        "torch.cuda.set_per_process_memory_fraction()",
        _same(
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
                "Free memory belongs to the stream it was allocated on, and blocks that another stream used stay "
                "pending until "
                "it is done; both count as unallocated.",
            ),
        },
        (),
        _NOTES,
    ),
    "library_room": KnownRemedy(
        "leave the libraries room",
        {
            "library": Fit(
                "helps",
                "cuBLAS, cuDNN and NCCL ask the driver themselves, beside PyTorch's allocator, which gives nothing "
                "back for them: "
                "lower the process's fraction, the server's memory utilisation, or call torch.cuda.empty_cache() "
                "before they "
                "start.",
            ),
            "driver_call": Fit(
                "may",
                "The driver needs memory of its own, beside PyTorch's allocator, for contexts, code, the stacks of "
                "kernels and "
                "the graphs it instantiates: lower the process's fraction, or the server's memory utilisation.",
            ),
        },
        ("create handles and communicators early, before the cache has grown",),
        "vllm#19186",
    ),
    "call_site": KnownRemedy(
        "CUDA_LAUNCH_BLOCKING=1",
        {
            "driver_call": Fit(
                "may", "Errors of kernels are reported at a later call; blocking launches name the right one."
            )
        },
        (),
        _NOTES,
    ),
}

# What to look at where the driver refuses though memory is free: (when, what). "always", or a back end, or "windows".
CHECKS: Final[tuple[tuple[str, str], ...]] = (
    ("always", "another thread or process took the memory for a moment: watch nvidia-smi while the program runs"),
    ("CUDA", "Windows and WSL: the driver gives GPU memory only as far as the page file can back it; make that larger"),
    ("CUDA", "MIG, vGPU or a container's quota: the slice may be smaller than what is said to be free"),
    ("CUDA", "ulimit -v or many processes with unified addressing: the virtual addresses may be used up"),
    (
        "HIP",
        "integrated GPUs: the kernel's GTT limit (amdgpu.gttsize, ttm.pages_limit) is below what is said to be free",
    ),
    ("XPU", "Level Zero refuses single allocations above 4 GiB unless relaxed allocation limits are on"),
    ("NPU", "HCCL and the runtime hold memory for a moment that is counted as free"),
    ("always", "a driver left in a bad state by a crashed process: end it, or restart the machine"),
)
