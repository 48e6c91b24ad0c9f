"""What people do about running out of memory: when it helps, when it cannot, why, and what it needs.

Texts hold ``{places}`` for a message's numbers. A remedy that has no word for a verdict is not shown with it. Within a
verdict, remedies come in the order of `REMEDIES`, those that help first. Settings of the allocator are in
`oom_settings`, those of vLLM and of notebooks in `oom_serving`.
"""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.oom_fits import NOTES, Fit, KnownRemedy, same
from foretrace.knowledge.oom_serving import NOTEBOOK, SERVING
from foretrace.knowledge.oom_settings import SETTINGS

__all__ = ["CHECKS", "FIRST", "REMEDIES"]

_LESS = Fit("helps", "Less is held at once. Most tensors are asked for smaller, too.")

_PROGRAM: Final[dict[str, KnownRemedy]] = {
    "close_programs": KnownRemedy(
        "close other programs",
        {"mps_limit": Fit("may", "{elsewhere} are allocations besides PyTorch's, which count against the same limit.")},
        (),
        "pytorch#105839",
    ),
    "check_nvml": KnownRemedy(
        "let PyTorch ask NVML",
        {
            "nvml": Fit(
                "helps",
                "Then the message comes with its sizes. In containers NVIDIA_DRIVER_CAPABILITIES has to hold "
                "'utility'; a driver that was updated under a running machine needs a restart; with MIG, "
                "CUDA_VISIBLE_DEVICES has to name a slice that is there.",
            )
        },
        ("`nvidia-smi` uses NVML as well: run it where the program runs",),
        "pytorch#112377; fal#478; sd3.5#18",
    ),
    "end_other_process": KnownRemedy(
        "end or move the other process",
        {
            "other_process": Fit("helps", "It holds {others}; {missing} were lacking. {listing}"),
            "other_hidden": Fit(
                "may",
                "Look with nvidia-smi first: {others} in use are nobody's by the message; {missing} were lacking. "
                "{listing}",
            ),
            "other_doubted": Fit(
                "may", "Look with nvidia-smi first: what the message says of processes cannot all be true. {listing}"
            ),
            "other_small": Fit("may", "Others hold {others} of {total}."),
            "vllm_startup": Fit("may", "Look with nvidia-smi first: of {total}, {free} were free as vLLM started."),
            **same(
                "driver_call runtime_call nvml",
                Fit("may", "Whether others hold the memory, the message does not say; nvidia-smi does."),
            ),
        },
        ("look at them first: a notebook or a crashed run of your own is the most common one",),
        "nvidia-smi, rocm-smi, xpu-smi",
    ),
    "check_shape": KnownRemedy(
        "look at the shape",
        {
            "impossible": Fit(
                "helps",
                "A tensor larger than the device is seldom meant. Common: an index used as a size, broadcasting along "
                "the wrong axis, one_hot or cdist over everything, logits of a whole batch times the vocabulary, an "
                "input that was not cropped.",
            ),
            "mps_impossible": Fit("helps", "A tensor larger than the limit is seldom meant."),
            "overflow": Fit(
                "helps",
                "No memory is as large. Common: a size computed in 32 bits, a difference that fell below zero, "
                "a length read from a broken file or from uninitialised memory.",
            ),
            "host": Fit("may", "If {asked} is more than you meant, one of its sizes is wrong."),
        },
        ("the traceback's last line of your own program names the tensor",),
    ),
    "smaller_step": KnownRemedy(
        "smaller batches, shorter sequences, micro-batches",
        {
            **same("full graph_pool other_process limit", _LESS),
            "impossible": Fit("may", "If {asked} grow with them: it is {times} times what there is."),
            "hopeless": Fit("cannot", "{asked} are {times} times what there is: no batch is cut down by as much."),
            "fragmentation": Fit("may", "Less is held at once; the holes stay."),
            "mps_limit": _LESS,
            "mps_impossible": _LESS,
            "mps_room": Fit("may", "Less is held at once, if the system is short of memory."),
            "host": Fit("may", "If the tensor grows with them."),
            **same("runtime_call nvml", Fit("may", "Less is held at once, if this process filled the device.")),
            "matrix": Fit(
                "helps",
                "Less is held at once. {asked} are as much as {matrix}: if that is scores of attention, or pairs of "
                "all with all, it grows with the square of the length.",
            ),
        },
        ("with gradient accumulation the effective batch stays the same",),
    ),
    "fused_attention": KnownRemedy(
        "attention that never holds the scores",
        {
            "matrix": Fit(
                "may",
                "torch.nn.functional.scaled_dot_product_attention never holds {matrix}, where one of its fused "
                "kernels runs.",
            ),
        },
        (
            "no attn_implementation='eager', no attention weights asked for, a mask that the fused kernels take",
            "torch.nn.attention.sdpa_kernel(FLASH_ATTENTION) raises where the kernel cannot run, and says why",
        ),
        "torch.nn.functional.scaled_dot_product_attention",
    ),
    "free_references": KnownRemedy(
        "drop what is kept by accident",
        {
            "full": Fit(
                "may",
                "Kept errors, outputs and sums of losses hold tensors. An exception holds every frame below it: leave "
                "the except block before trying again; add loss.detach() to a sum, not loss with its graph.",
            )
        },
        ("`foretrace memory SNAPSHOT` names the lines that hold the memory",),
        "PyTorch FAQ: my model reports out of memory; my out of memory exception handler can't allocate memory",
    ),
    "checkpointing": KnownRemedy(
        "activation checkpointing",
        same(
            "full limit other_process fragmentation graph_pool",
            Fit("may", "In training: makes activations again in backward, for a third more time."),
        ),
        ("only where gradients are needed",),
        "torch.utils.checkpoint",
    ),
    "no_grad": KnownRemedy(
        "torch.inference_mode()",
        same(
            "full limit other_process graph_pool",
            Fit("may", "If this was evaluation or generation: nothing is kept for backward."),
        ),
        ("no gradients are needed",),
        "torch.inference_mode",
    ),
    "fused_kernels": KnownRemedy(
        "kernels that keep no intermediates",
        same(
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
        same(
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
            **same("vllm_cache vllm_startup", Fit("may", "tensor_parallel_size spreads weights and cache.")),
            "host": Fit(
                "may", "The machine, container or page file is out of memory; fewer loader workers hold fewer copies."
            ),
        },
    ),
    "library_room": KnownRemedy(
        "leave the libraries room",
        {
            "library": Fit(
                "helps",
                "cuBLAS, cuDNN and NCCL ask the driver themselves, and PyTorch gives nothing back for them. Lower the "
                "process's fraction, the server's memory utilisation, or call torch.cuda.empty_cache() before they "
                "start.",
            ),
            "driver_call": Fit(
                "may",
                "The driver needs memory beside PyTorch's allocator. It is for contexts, code, the stacks "
                "of kernels and the graphs it instantiates: lower the process's fraction, or the server's memory "
                "utilisation.",
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
        NOTES,
    ),
}

# Which comes before which where they help alike; what is not named comes after, in the order of its table.
_ORDER: Final = (
    "raise_limit", "mps_watermark", "vllm_utilization", "check_shape", "check_nvml", "end_other_process",
    "share_graph_pool", "close_programs", "expandable_segments", "smaller_step", "restart_kernel", "vllm_max_num_seqs",
    "vllm_max_model_len", "vllm_enforce_eager", "fused_attention", "max_split_size_mb", "free_references",
)  # fmt: skip
_TABLES: Final[dict[str, KnownRemedy]] = {**SETTINGS, **SERVING, **NOTEBOOK, **_PROGRAM}
REMEDIES: Final[dict[str, KnownRemedy]] = {key: _TABLES[key] for key in dict.fromkeys((*_ORDER, *_TABLES))}

# The one thing to do first, by the case as `memory.oom.first` names it.
FIRST: Final[dict[str, str]] = {
    "expandable": "set {variable}=expandable_segments:True before the program starts, and run it again",
    "expandable_or_less": "set {variable}=expandable_segments:True; if it fails again, a smaller step",
    "split": "remove max_split_size_mb, then set {variable}=expandable_segments:True",
    "update": "update PyTorch to 2.1 or later and set expandable_segments:True; until then try max_split_size_mb",
    "max_split": "try {variable}=max_split_size_mb:N, N below the sizes of the largest tensors",
    "holes": "find what pins the holes: an allocator snapshot of the process, given with --snapshot, names the lines",
    "step": "make the step smaller: batch, sequence length or resolution; {missing} were lacking",
    "matrix": "see whether {matrix} is meant: attention scores need never be held",
    "kernel": "restart the notebook's kernel and run only the cells that are needed; then make the step smaller",
    "serving": "lower gpu_memory_utilization or max_num_seqs; if it failed while weights load, the model is too large",
    "graphs_serving": "capture fewer sizes, or none (enforce_eager=True)",
    "vllm_cache": "raise gpu_memory_utilization; if it is near 1, lower max_num_seqs or take a smaller model",
    "vllm_startup": "run nvidia-smi: a server that is still ending, or another process, may hold the memory",
    "vllm_startup_share": "lower gpu_memory_utilization below {free_share}, the share that was free",
    "other_listed": "look at process {pid} in nvidia-smi (a container numbers it otherwise); end it if it is yours",
    "other_hidden": "run nvidia-smi and see whether another process is there before you change the program",
    "graph_pool": "let the CUDA graphs share one pool, or capture fewer sizes",
    "limit": "raise the limit of {allowed}, if nobody relies on the rest of the device",
    "contradiction": "run nvidia-smi where the program runs: the message's numbers contradict each other",
    "mps_room": "watch the memory pressure (Activity Monitor) while it runs again: the system may be out of memory",
    "shape": "print the tensor's shape at the last line of your own program in the traceback",
    "driver": "watch nvidia-smi while it runs again: is the free memory still free when it fails?",
    "driver_windows": "make the page file of Windows larger: it has to back what the GPU hands out",
    "library": "see with nvidia-smi whether the device is full: a library gets only what PyTorch's cache leaves",
    "driver_call": "run nvidia-smi: is the device full, and is it this process that fills it?",
    "nvml": "run nvidia-smi where the program runs: it shows whether NVML answers, and whether the device is full",
    "host": "see what the machine or its container has left (free -h; the container's limit)",
    "whole": "paste the whole message: its sizes decide what to do",
}  # fmt: skip

# What to look at where the driver refuses though memory is free: (when, what). "always", or a back end, or "windows".
CHECKS: Final[tuple[tuple[str, str], ...]] = (
    ("windows", "the driver of Windows gives GPU memory only as far as the page file can back it; make that larger"),
    ("always", "another thread or process took the memory for a moment: watch nvidia-smi while the program runs"),
    ("CUDA", "on Windows or WSL, the page file: the driver gives GPU memory only as far as it can back it"),
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
