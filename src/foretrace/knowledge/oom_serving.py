"""Out-of-memory remedies of vLLM and of notebooks, and the remedies that make no sense in a server.

Sources: vLLM's documentation (conserving memory; engine arguments), and the issues named at each.
"""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.oom_fits import Fit, KnownRemedy, same

__all__ = ["NOTEBOOK", "NOT_IN_SERVERS", "SERVING"]

# Where gpu_memory_utilization decides: the cache takes that share, and everything outside needs room beside it.
_BESIDE_THE_CACHE = "full fragmentation graph_pool library driver_call nvml"
_DOCS = "vLLM, conserving memory"

SERVING: Final[dict[str, KnownRemedy]] = {
    "vllm_utilization": KnownRemedy(
        "gpu_memory_utilization",
        {
            **same(
                _BESIDE_THE_CACHE,
                Fit(
                    "may",
                    "Lower it (0.90 to 0.85) if it failed while serving. That share goes to weights and cache, and "
                    "vLLM keeps it full; activations beyond the profiled ones, graphs and NCCL need the rest. While "
                    "weights load it changes nothing: the model is too large.",
                ),
            ),
            "other_process": Fit("may", "Lower, it leaves others their part; the cache gets smaller by as much."),
            "vllm_cache": Fit(
                "helps", "Raise it, if nobody else needs the device: what it adds goes to the cache (vllm#10439)."
            ),
            "vllm_startup": Fit(
                "helps", "Lower it below {free_share}, the share that was free, if the model fits into that."
            ),
        },
        (),
        _DOCS,
    ),
    "vllm_max_model_len": KnownRemedy(
        "max_model_len",
        {
            **same("full", Fit("may", "Shorter, each sequence needs less cache and the profile less.")),
            "vllm_cache": Fit("may", "Shorter, the profile run takes less, and one sequence needs fewer blocks."),
        },
        ("helps where requests are shorter than the model's longest",),
        _DOCS,
    ),
    "vllm_max_num_seqs": KnownRemedy(
        "max_num_seqs, max_num_batched_tokens",
        {
            **same(
                "full fragmentation",
                Fit("may", "Fewer at once: smaller activations, logits and graphs."),
            ),
            "vllm_cache": Fit("may", "Lower, the profile run takes less and leaves more to the cache."),
        },
        ("helps where activations or logits fail, not weights",),
        _DOCS,
    ),
    "vllm_enforce_eager": KnownRemedy(
        "enforce_eager=True",
        {
            "graph_pool": Fit("helps", "No CUDA graphs, no pools; decoding of small batches becomes slower."),
            **same(
                "full vllm_cache library driver_call",
                Fit("may", "No memory for CUDA graphs; small batches decode slower."),
            ),
        },
        ("helps where it fails during capture, or little is lacking",),
        _DOCS + "; bonito#22",
    ),
}

# Of training, or of programs whose batch one chooses oneself.
NOT_IN_SERVERS: Final = (
    "checkpointing", "optimizer", "no_grad", "fused_kernels", "free_references", "smaller_step", "fused_attention",
)  # fmt: skip

NOTEBOOK: Final[dict[str, KnownRemedy]] = {
    "restart_kernel": KnownRemedy(
        "restart the kernel",
        same(
            "full fragmentation other_process graph_pool limit driver_call runtime_call nvml mps_limit",
            Fit(
                "may",
                "Or free what it keeps: `del` names, sys.last_traceback, Out[] and _ all hold tensors. Cells that ran "
                "before keep theirs, the last error those of its frames, and other notebooks' kernels live on as well.",
            ),
        ),
        ("after `del`: sys.last_traceback = sys.last_value = None, %reset out, gc.collect(), then empty_cache()",),
        "IPython, output caching; Python, sys.last_traceback",
    ),
}
