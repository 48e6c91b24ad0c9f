"""Texts of the findings about the timeline: idle time, synchronization, steps, streams."""

from __future__ import annotations

from foretrace.knowledge.rule import Rule

__all__ = [
    "CPU_COMPILED",
    "CPU_SMALL",
    "MESSAGE_KEYS",
    "PROFILED_KERNELS",
    "RECORD_OPTIONS",
    "STARVED_PREDICTED",
    "STARVED_PROVEN",
    "STARVED_TIMED",
    "SYNC_ADVICE",
    "SYNC_SHAPES",
    "TIMELINE_RULES",
    "WAITS_FOR_RANKS",
    "WAITS_UNKNOWN",
]

# What to do about a synchronization, by what it fetches.
SYNC_ADVICE: dict[str, str] = {
    "read": "Keep the value on the GPU and read it rarely (every N steps), or copy it with non_blocking=True into "
    "pinned memory and look at it a step later.",
    "upload": "Pin the source (pin_memory=True in the DataLoader, Tensor.pin_memory()) and copy with "
    "non_blocking=True.",
    "shape": "The size of the result depends on the data, so the host must wait for it: a mask with torch.where, or a "
    "size known beforehand, needs no wait.",
    "explicit": "If it is there to measure, torch.cuda.Event measures without stopping the host; otherwise it can go: "
    "PyTorch orders the work itself.",
    "other": "torch.cuda.set_sync_debug_mode(1) names the line of code at run time.",
}

# Operators whose result's size is known only when the GPU is done (torch's documentation of each says so).
SYNC_SHAPES = frozenset(
    {
        "aten::nonzero",
        "aten::argwhere",
        "aten::masked_select",
        "aten::unique",
        "aten::_unique",
        "aten::_unique2",
        "aten::unique_dim",
        "aten::unique_consecutive",
        "aten::index",
        "aten::index_put_",
        "aten::bincount",
        "aten::repeat_interleave",
    }
)

# What may be missing → (its name, what it keeps from being said, how to record it).
RECORD_OPTIONS: dict[str, tuple[str, str, str]] = {
    "operators": (
        "operators",
        "No kernel can be traced to the operator, module or shape behind it.",
        "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    ),
    "stacks": (
        "Python stacks",
        "The lines of code behind the synchronizations cannot be named.",
        "record once more with with_stack=True (it lengthens CPU time; take no timings from that recording)",
    ),
    "steps": (
        "more than one step",
        "A single step shows no spread, and not whether it was a slow first one.",
        "record several: schedule(wait=1, warmup=1, active=3)",
    ),
}

# Why a GPU is said to wait for the CPU although profiling lengthens CPU time.
STARVED_TIMED = (
    "Without the profiler a step takes {step} and the GPU works {busy} of it; {saving} of the rest is put down to this."
)
STARVED_PREDICTED = (
    "Predicted: dispatching the step takes the CPU {cpu}, running it takes the GPU {busy}. In a loop the slower of the "
    "two sets the pace ({slower})."
)
STARVED_PROVEN = (
    "Profiling lengthens CPU time, but by less than {inflation} times: a GPU that works {busy} of the profiled time "
    "waits without the profiler too. How long was not timed, so no saving is claimed."
)

# What makes two collectives the same message (the arguments Kineto writes beside NCCL's kernels since torch 2.2).
MESSAGE_KEYS = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name")
WAITS_FOR_RANKS = (
    "Equal messages took very different times: {waiting} of it is beyond the shortest of its kind, so it waits for "
    "other ranks rather than transfers, and hiding it wins nothing. The saving is what hiding the rest ({saving}) "
    "would win."
)
WAITS_UNKNOWN = (
    "Such a kernel also waits for the slowest rank, which one rank's trace cannot show. The saving is what hiding all "
    "of it would win at most."
)

# What a profiled step says of the kernels of an unprofiled one.
PROFILED_KERNELS = {
    "alike": "of an unprofiled step the GPU works {share} ({busy}), of a profiled one {profiled_share}",
    "slower": "here they took {busy} while profiled, more than a whole unprofiled step, as clocks and neighbours "
    "differ between the two timings; of a profiled step the GPU works {profiled_share}",
}

# Said under ``cpu_work`` where they apply.
CPU_COMPILED = (
    " Compiled graph code is one call of what torch.compile generated: the operators fused into it are not recorded, "
    "so it has no rate."
)
CPU_SMALL = (
    " No rate is given for {names}: at {size} a call, the call itself or threads in each other's way take the time, "
    "and the rate would not be the machine's."
)

_WAIT_IS_NOT_COST = (
    "The wait itself ({wait} {per}) is not the cost: the work waited for had to be done. While the host waits it "
    "queues nothing, "
)

TIMELINE_RULES: dict[str, Rule] = {
    "cpu_work": Rule(
        severity="info",
        title="{share} of the CPU operators' time: {parts}",
        explanation="The trace holds no GPU work: these operators ran on the CPU. A rate is the FLOPs or the least "
        "bytes (each operand read once, each result written once) over the operator's own time, profiler included. "
        "Products are limited by arithmetic, pointwise operators by memory or, where they compute tanh or erf, by "
        "that.{compiled}{small}",
        suggestion="Compare with another dtype, thread count (OMP_NUM_THREADS) or torch.compile, on this machine.",
        source="FLOPs and bytes from the recorded shapes",
    ),
    "synchronization": Rule(
        severity="warning",
        title="{what} waits for the GPU {often}; the GPU then idles {idle}",
        explanation="{calls} returns only when the GPU has done what was queued. "
        + _WAIT_IS_NOT_COST
        + "so the GPU has nothing to do for {idle} {per} until the next launch reaches it (as profiled).",
        suggestion="{advice}",
        source="API synchronization behavior, CUDA Runtime API; PyTorch performance tuning guide",
    ),
    "synchronization_end": Rule(
        severity="note",
        title="{what} ends the step: the GPU then idles {idle}",
        explanation="The call waits for all queued work after the step's last launch. "
        + _WAIT_IS_NOT_COST
        + "so the next step begins with an empty queue: {idle} {per} without GPU work (as profiled).",
        suggestion="{advice}",
        source="API synchronization behavior, CUDA Runtime API",
    ),
    "synchronization_free": Rule(
        severity="note",
        title="{what} waits for the GPU {often}; it does not run dry",
        explanation="{calls} holds the host for {wait} {per}. The GPU did not run dry during the wait (it was idle "
        "before, or had other work queued), so the call costs nothing in this trace. Where the GPU sets the pace it "
        "would.",
        suggestion="{advice}",
        source="API synchronization behavior, CUDA Runtime API",
    ),
    "synchronization_library": Rule(
        severity="info",
        title="{what} itself waits for the GPU {often} ({wait})",
        explanation="torch.distributed makes these calls ({calls}) to time or order its collectives, not the user's "
        "code; they hold the host for {wait} {per}, and {idles}.",
        source="torch/csrc/distributed/c10d/reducer.cpp and logger.cpp",
    ),
    "cold_first_step": Rule(
        severity="note",
        title="{label} takes {ratio}× as long as the others ({first} against {usual})",
        explanation="The first recorded step took {first}, the median of the {others} is {usual}. {did}. The extra "
        "CPU time went to {extra}.{gpu} First calls load kernels, ask libraries for their choice and fill caches; "
        "the first recorded one also pays for the profiler's start.",
        suggestion="Leave it out of every comparison: use medians, and more warm-up before the recording.",
        source="lazy loading of CUDA modules, cuBLAS and cuDNN initialization, the caching allocator",
    ),
    "launch_queue_full": Rule(
        severity="info",
        title="{launches} of up to {longest} met a full queue: harmless",
        explanation="{total} of CPU time went into launch calls while the GPU was busy with about {depth} launches "
        "queued before them. A stream's queue holds about 1024; a launch then waits for a free place. The CPU is far "
        "ahead: the GPU sets the pace, and the time shown on the launch calls is not lost.",
        source="CUDA's launch queue; pytorch/pytorch#162466",
    ),
    "slow_launches": Rule(
        severity="note",
        title="{launches} took {total} while the GPU had nothing to do",
        explanation="A launch call normally takes a few microseconds; the longest here took {longest}, with {depth} "
        "launches queued before it, so it met no full queue ({ops}). Such a call loads the kernel on its first use, "
        "compiles it, or waits for a lock or an allocation; {new}.",
        suggestion="Warm up every shape and branch before measuring; CUDA_MODULE_LOADING=EAGER loads all kernels at "
        "start.",
        source="CUDA lazy loading; pytorch/pytorch#162466",
    ),
    "cpu_starved": Rule(
        upper_bound=True,
        severity="warning",
        title="The GPU waits for the CPU to launch: {idle} {per} ({share} of it)",
        explanation="The queue was empty while the CPU was still in {most}. {proof}",
        suggestion='torch.compile(mode="reduce-overhead") or CUDA graphs launch a whole step at once; a larger batch '
        "gives each launch more work. torch.compile alone removes the dispatch of operators and adds guards and "
        "wrappers of its own, which on a slow host may cost more than it saves: measure it (foretrace bench).",
        source="gaps without GPU work, each put down to what the launching thread did in it",
    ),
    "cpu_wait_whole": Rule(
        severity="info",
        title="The GPU waits for the CPU {share} of this trace, start-up included",
        explanation="The queue was empty for {idle} while the CPU was in {most}. Without profiler steps start-up "
        "cannot be told from what repeats, and profiling lengthens CPU time: no saving is claimed.",
        suggestion="Call prof.step() after every iteration, or give the iterations record_function labels.",
        source="gaps without GPU work, each put down to what the launching thread did in it",
    ),
    "cpu_wait_unproven": Rule(
        severity="info",
        title="The GPU waits for the CPU {share} of the profiled time; profiling may be why",
        explanation="The queue was empty for {idle} {per} while the CPU was in {most}. Profiling lengthens CPU time, "
        "up to {inflation} times for small operators, so this alone does not show that the GPU waits without the "
        "profiler: no saving is claimed.",
        suggestion="Time the step without the profiler (`foretrace run` does): close to the GPU's busy time, there is "
        "nothing to gain from faster launches.",
        source="gaps without GPU work, each put down to what the launching thread did in it",
    ),
    "cpu_data_loading": Rule(
        severity="warning",
        title="Waiting for data takes {time} {per}: {share} of it",
        explanation="The step's thread waited for the next batch ({names}) instead of computing. Without worker "
        "processes the data set and its transforms run in that wait; with workers it is how long they lag behind.",
        suggestion="DataLoader workers (num_workers, persistent_workers, prefetch_factor), which prepare batches "
        "beside the computation, or cheaper transforms.",
        source="torch.utils.data labels its wait for a batch",
        upper_bound=True,
    ),
    "data_loading": Rule(
        severity="note",
        title="The GPU waits for data: {idle} {per} ({share} of it)",
        explanation="The GPU had nothing to do while the launching thread waited for the next batch ({names}).",
        suggestion="More DataLoader workers, prefetch_factor, pin_memory=True, or cheaper transforms.",
        source="torch.utils.data labels its wait for a batch",
    ),
    "idle_gap": Rule(
        severity="note",
        title="One gap of {gap} without GPU work in {label} ({share} of it)",
        explanation="It begins {at} after the first event of the trace; {around}. The launching thread "
        "recorded nothing in it: {cause}.",
        suggestion="record_function around suspected code, or with_stack=True, shows what runs there.",
        source="the longest stretch without kernels, copies and memsets",
    ),
    "compiled_regions": Rule(
        severity="info",
        title="{regions} of torch.compile; calling one costs {around} of CPU time",
        explanation="{named}. Checking the guards and wrapping a call takes {around} under the profiler, outside "
        "the generated code"
        "{measured}, paid on every call.{code}{again}",
        source="CPU rows written by TorchDynamo, AOTAutograd and Inductor",
    ),
    "graph_break": Rule(
        severity="note",
        title="{frames} compiled frames run in one step: graph breaks, or parts compiled apart",
        explanation="Frames {ids} run one after the other; {between}. After a graph break the rest of a function is "
        "compiled as a frame of its own; functions compiled apart look the same. Nothing is fused across the border, "
        "and each frame checks its guards.",
        suggestion="torch._dynamo.explain(model)(inputs) or TORCH_LOGS=graph_breaks names the reason; fullgraph=True "
        "makes a break an error.",
        source="region ids are frame/compilation (torch._dynamo)",
    ),
    "recompile": Rule(
        severity="warning",
        title="torch.compile compiled during the recording: quote no speed-up from this trace",
        explanation="In the recorded steps {reasons}. A guard failed (another shape, stride, dtype, grad mode or "
        "Python value) or this was the first call; such steps hold compile time, not run time.",
        suggestion="TORCH_LOGS=recompiles names the guard; warm up every shape first, or mark the size as dynamic "
        "(dynamic=True, torch._dynamo.mark_dynamic).",
        source="torch._dynamo compile events and region ids (frame/compilation)",
    ),
    "cuda_graph": Rule(
        severity="info",
        title="CUDA graph {often}: {kernels}, {share} of GPU time",
        explanation="One launch call ({cpu} of CPU time) replays what was captured. The operators, shapes and lines of "
        "code ran once, at capture, and are not in this trace: these kernels cannot be tied to them, nor their FLOPs "
        "and bytes counted. They keep their time and their name.",
        suggestion="To see the operators, profile the same code without the graph (an eager twin, or "
        "torch.compile without reduce-overhead), or record the capture itself.",
        source="CUDA graphs share one correlation id among all nodes of a launch",
    ),
    "profiler_artefact": Rule(
        severity="info",
        title="The profiler's own: {what}",
        explanation="{said} {it} no part of the program.",
        source="Kineto's overhead rows; torch.profiler synchronizes when it stops",
    ),
    "profile_overhead": Rule(
        severity="info",
        title="A profiled step takes {factor}× an unprofiled one ({profiled} against {unprofiled})",
        explanation="Median of {runs} unprofiled runs: {unprofiled}. The profiler lengthens CPU time, hardly the "
        "kernels: {kernels}. Read gaps and CPU times with that in mind.",
        source="the side file's unprofiled timing",
    ),
    "cpu_profile_overhead": Rule(
        severity="note",
        title="A profiled step takes {factor}× an unprofiled one ({profiled} against {unprofiled})",
        explanation="Median of {runs} unprofiled runs: {unprofiled}. Every row costs the profiler time, and a step of "
        "few or short calls is mostly that. The times and rates of this trace are those of the profiled run.",
        suggestion="Quote the unprofiled timing; take from the trace what ran and how often. Without stacks and "
        "memory (with_stack, profile_memory), and over steps with more work, it comes closer.",
        source="the side file's unprofiled timing",
    ),
    "exposed_communication": Rule(
        upper_bound=True,
        severity="note",
        title="{exposed} of {total} communication {per} is hidden by no computation{waited}",
        explanation="Communication kernels ran {total} {per}; computation on the same GPU covered {hidden} of it, and "
        "{exposed} ({share}) stands bare: {names}. {waits}",
        suggestion="Start collectives earlier (smaller DDP buckets, FSDP prefetch), give them independent work, or "
        "send fewer bytes (gradient accumulation, compression).",
        source="intervals of communication kernels less those of other kernels, per device",
    ),
    "hidden_communication": Rule(
        severity="info",
        title="All {total} of communication {per} runs beside computation",
        explanation="Communication kernels ({names}) ran {total} {per}, and computation on the same GPU covered all of "
        "it. What they still cost is the memory bandwidth and the SMs they share.",
        source="intervals of communication kernels less those of other kernels, per device",
    ),
    "allocator_calls": Rule(
        severity="note",
        title="{calls} of device memory inside the steps ({total} {per})",
        explanation="After the first step PyTorch's caching allocator should serve every request from its cache; here "
        "it asked the driver: {names}, in {ops}. Such calls are slow and may wait for the whole device.{freed}",
        suggestion="Look for sizes that grow from step to step; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True and "
        "not calling torch.cuda.empty_cache() keep the cache.",
        source="CUDA semantics: memory management, PyTorch documentation",
    ),
    "missing_records": Rule(
        severity="info",
        title="Not recorded: {what}",
        explanation="{why}",
        suggestion="To get it, {how}.",
        source="torch.profiler.profile's options",
    ),
}
