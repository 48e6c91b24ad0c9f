"""How PyTorch's profiler (Kineto) writes things down: categories, API calls, annotations.

Sources: the category strings of Kineto's ``ActivityType.cpp`` from 2021 (torch 1.8) to 2026 (torch 2.13), the
runtime and driver API names of CUDA, HIP and Level Zero as they stand in real traces, and PyTorch's own
``record_function`` labels (``torch/profiler/profiler.py``, ``torch/optim/optimizer.py``, ``torch/_dynamo``).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

__all__ = [
    "COMPILE_WRAPPERS",
    "FX_GRAPH_CALL",
    "GPU_WORK",
    "HOST_ROWS",
    "Call",
    "RowKind",
    "call_kind",
    "compiled_region",
    "fx_graph",
    "graph_capture",
    "is_backward_root",
    "is_compiling",
    "is_data_loading",
    "is_optimizer",
    "is_profiler_artifact",
    "log_counts",
    "memcpy_direction",
    "module_name",
    "row_kind",
    "source_line",
    "step_name",
    "step_number",
]


class RowKind(IntEnum):
    """What one row of a trace is; the values are stored in a column."""

    OTHER = 0
    OPERATOR = 1  # a dispatcher call on the CPU, or a record_function inside torch
    ANNOTATION = 2  # record_function, ProfilerStep
    PYTHON = 3  # a Python or module frame (with_stack)
    CALL = 4  # a runtime or driver API call
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    GPU_ANNOTATION = 8  # a record_function mirrored on the GPU lane: not work
    OVERHEAD = 9  # the profiler's own: buffer requests, flushes
    SYNC = 10  # CUPTI synchronization records on GPU lanes: not work
    MEMORY = 11  # allocator instants (profile_memory)
    SPAN = 12  # the profiler's frame around the whole recording


GPU_WORK = (RowKind.KERNEL, RowKind.MEMCPY, RowKind.MEMSET)
HOST_ROWS = (RowKind.OPERATOR, RowKind.ANNOTATION, RowKind.PYTHON, RowKind.CALL)

_CATEGORY = {
    "cpu_op": RowKind.OPERATOR,
    "operator": RowKind.OPERATOR,  # torch 1.8 to 1.12
    "cpu": RowKind.OPERATOR,
    "function": RowKind.OPERATOR,  # the autograd profiler before Kineto
    "user_annotation": RowKind.ANNOTATION,
    "user annotation": RowKind.ANNOTATION,
    "python_function": RowKind.PYTHON,
    "pythonfunction": RowKind.PYTHON,
    "python function": RowKind.PYTHON,
    "cuda_runtime": RowKind.CALL,
    "cuda_driver": RowKind.CALL,
    "runtime": RowKind.CALL,  # torch 1.8 to 1.12
    "hip_runtime": RowKind.CALL,
    "hip_driver": RowKind.CALL,
    "xpu_runtime": RowKind.CALL,
    "xpu_driver": RowKind.CALL,
    "privateuse1_runtime": RowKind.CALL,
    "privateuse1_driver": RowKind.CALL,
    "mtia_runtime": RowKind.CALL,
    "glow_runtime": RowKind.CALL,
    "kernel": RowKind.KERNEL,
    "concurrent_kernel": RowKind.KERNEL,
    "gpu_memcpy": RowKind.MEMCPY,
    "memcpy": RowKind.MEMCPY,
    "gpu_memset": RowKind.MEMSET,
    "memset": RowKind.MEMSET,
    "gpu_user_annotation": RowKind.GPU_ANNOTATION,
    "gpu_user annotation": RowKind.GPU_ANNOTATION,
    "overhead": RowKind.OVERHEAD,
    "cuda_profiler_range": RowKind.OTHER,  # counter ranges, not launches
    "cuda_sync": RowKind.SYNC,
    "cuda_event": RowKind.SYNC,
    "cpu_instant_event": RowKind.MEMORY,
    "trace": RowKind.SPAN,
}


@lru_cache(maxsize=256)
def row_kind(category: str | None) -> RowKind:
    """The kind of a row from its ``cat`` string; unknown categories are ``OTHER`` and count nowhere."""
    if not category:
        return RowKind.OTHER
    return _CATEGORY.get(category.lower(), RowKind.OTHER)


class Call(IntEnum):
    """What a runtime or driver API call does."""

    OTHER = 0
    LAUNCH_KERNEL = 1
    LAUNCH_GRAPH = 2
    MEMCPY = 3
    MEMSET = 4
    SYNCHRONIZE = 5  # blocks the CPU until GPU work is done
    STREAM_WAIT = 6  # orders streams, blocks no CPU thread
    OCCUPANCY = 7
    ALLOCATE = 8
    FREE = 9
    MODULE_LOAD = 10
    QUERY = 11  # cheap questions: stream capture state, last error, attributes


# First match wins. Anchored at the API prefix so that a kernel or operator is never taken for a call.
_CALLS: tuple[tuple[re.Pattern[str], Call], ...] = tuple(
    (re.compile(pattern), call)
    for pattern, call in (
        (r"(cuda|cu|hip)Graph(Launch|ExecLaunch)", Call.LAUNCH_GRAPH),
        (r"(cuda|hip|cu)Launch(Cooperative)?(Kernel|Grid)", Call.LAUNCH_KERNEL),
        (r"cuda?Launch(_v\d+|Ex|ExC|HostFunc)?(_v\d+|_ptsz)?$", Call.LAUNCH_KERNEL),
        (r"hip(Ext)?(Module)?Launch", Call.LAUNCH_KERNEL),
        (r"hipExtLaunch", Call.LAUNCH_KERNEL),
        (r"(zeCommandListAppendLaunch|piEnqueueKernel|urEnqueueKernelLaunch)", Call.LAUNCH_KERNEL),
        (r"(cuda|hip|cu)Mem(cpy|Prefetch)", Call.MEMCPY),
        (r"(urEnqueueUSMMemcpy|urEnqueueMemBuffer(Read|Write|Copy))", Call.MEMCPY),
        # cuMemSetAccess maps pages of an expandable segment; it sets no memory.
        (r"(cuda|hip|cu)Mem[sS]et(?!Access)", Call.MEMSET),
        (r"(urEnqueueUSMFill|urEnqueueMemBufferFill)", Call.MEMSET),
        (r"(cuda|hip|cu)StreamWaitEvent", Call.STREAM_WAIT),
        (r"(cuda|hip)(Device|Stream|Event|Thread)Synchronize", Call.SYNCHRONIZE),
        (r"cu(Ctx|Stream|Event)Synchronize", Call.SYNCHRONIZE),
        (r"ur(Queue|Event)(Finish|Wait)", Call.SYNCHRONIZE),
        (r"(cuda|hip|cu).*Occupancy", Call.OCCUPANCY),
        (r"(cuda|hip)(Malloc|HostAlloc|MallocHost|MallocAsync)", Call.ALLOCATE),
        (r"(cuda|hip|cu)(MemAlloc|MemHostAlloc|MemCreate|MemMap)", Call.ALLOCATE),
        (r"(cuda|hip)(Free|FreeHost|FreeAsync)", Call.FREE),
        (r"cu(MemFree|MemUnmap|MemRelease)", Call.FREE),
        (r"(cu|hip)(ModuleLoad|LibraryLoad|ModuleGetFunction|LinkCreate)", Call.MODULE_LOAD),
        (
            r"(cuda|hip|cu)(StreamIsCapturing|StreamGetCaptureInfo|GetLastError|PeekAtLastError"
            r"|EventQuery|StreamQuery|FuncGetAttributes?|FuncSetAttribute|DeviceGetAttribute|PointerGetAttributes?"
            r"|EventRecord|EventCreate|StreamCreate|GetDevice|SetDevice|KernelSetAttribute)",
            Call.QUERY,
        ),
    )
)


@lru_cache(maxsize=4096)
def call_kind(name: str) -> Call:
    """Classify a runtime or driver call by its API name (``cudaLaunchKernelExC`` is a kernel launch)."""
    for pattern, call in _CALLS:
        if pattern.match(name):
            return call
    return Call.OTHER


_STEP_NAME = "ProfilerStep#"
_STEP = re.compile(_STEP_NAME + r"(\d+)\Z")
_REGION = re.compile(r"(?:Torch-Compiled Region|CompiledFunction)(?:: (\S+))?\Z")
_MODULE = re.compile(r"nn\.Module: (.+)\Z")
_BACKWARD_ROOT = "autograd::engine::evaluate_function: "
_SOURCE = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<function>.+)\Z")

# CPU rows torch.compile adds around a compiled region; a call pays them every time.
COMPILE_WRAPPERS = (
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "Torch-Compiled Region",
)

# How the row of a call of Inductor's code begins; the hash of the code follows.
FX_GRAPH_CALL = "## Call CompiledFxGraph"

# Rows Dynamo, AOTAutograd and Inductor write while they compile (torch._dynamo.utils.dynamo_timed).
_COMPILING = (
    "_compile.compile_inner",
    "compile_fx",
    "entire_frame_compile",
    "backend_compile",
    "dynamo_timed",
    "OutputGraph.call_user_compiler",
    "create_aot_dispatcher_function",
    "GraphLowering.compile_to_module",
    "async_compile.wait",
)


def step_name(number: int) -> str:
    """3 → ``ProfilerStep#3``."""
    return f"{_STEP_NAME}{number}"


@lru_cache(maxsize=4096)
def step_number(name: str) -> int | None:
    """``ProfilerStep#3`` → 3; anything else → None."""
    found = _STEP.match(name)
    return int(found.group(1)) if found else None


@lru_cache(maxsize=4096)
def compiled_region(name: str) -> str | None:
    """``Torch-Compiled Region: 0/1`` → ``0/1`` (frame/recompile); torch before 2.5 → ``?``; else None."""
    found = _REGION.match(name)
    return (found.group(1) or "?") if found else None


def fx_graph(name: str) -> str | None:
    """``## Call CompiledFxGraph <hash> ##`` → the hash of the graph's code; else None."""
    return name.removeprefix(FX_GRAPH_CALL).strip(" #") or "?" if name.startswith(FX_GRAPH_CALL) else None


def is_compiling(name: str) -> bool:
    """Whether a CPU row is compilation itself, not a call of compiled code."""
    return name.startswith(_COMPILING)


@lru_cache(maxsize=4096)
def is_backward_root(name: str) -> bool:
    """Whether everything below this CPU row is autograd's backward pass."""
    return name.startswith((_BACKWARD_ROOT, "CompiledFunctionBackward", "torch::autograd::AccumulateGrad"))


@lru_cache(maxsize=4096)
def is_optimizer(name: str) -> bool:
    """Whether a CPU row is an optimizer's step (``Optimizer.step#AdamW.step``)."""
    return name.startswith("Optimizer.step#")


@lru_cache(maxsize=4096)
def is_data_loading(name: str) -> bool:
    """Whether a CPU row waits for the next batch (``enumerate(DataLoader)#…``)."""
    return name.startswith(
        (
            "enumerate(DataLoader)",
            "enumerate(DataPipe)",
            "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
        )
    )


@lru_cache(maxsize=4096)
def module_name(name: str) -> str | None:
    """``nn.Module: Linear_3`` → ``Linear_3``; else None."""
    found = _MODULE.match(name)
    return found.group(1) if found else None


@lru_cache(maxsize=4096)
def source_line(name: str) -> tuple[str, int, str] | None:
    """``model.py(12): forward`` → ``("model.py", 12, "forward")``; built-ins and modules → None."""
    found = _SOURCE.match(name)
    if not found:
        return None
    return found["file"], int(found["line"]), found["function"]


def is_profiler_artifact(name: str) -> bool:
    """Whether a row of category ``overhead`` is the profiler at work."""
    return name in {
        "Activity Buffer Request",
        "Instrumentation",
        "Resource",
        "Buffer Flush",
        "Command Buffer Full",
        "Runtime Triggered Module Loading",
        "Lazy Function Loading",
    }


_DIRECTION = re.compile(r"Memcpy (\w+)")
_HIP_DIRECTION = re.compile(r"Copy(Host|Device)To(Host|Device)")


@lru_cache(maxsize=1024)
def memcpy_direction(name: str) -> str | None:
    """``Memcpy HtoD (Pageable -> Device)`` and ``CopyHostToDevice`` → ``HtoD``; unknown → None."""
    found = _DIRECTION.match(name)
    if found:
        return found.group(1)
    hip = _HIP_DIRECTION.search(name)
    return f"{hip.group(1)[0]}to{hip.group(2)[0]}" if hip else None


# What Kineto's own log says in `INFO`, `WARNING` and `ERROR` lists of the file (CuptiActivityProfiler.cpp).
_RECORD_COUNT = re.compile(r"([A-Z][A-Za-z- ]+\w\??) = (\d+)")
_DROPPED = re.compile(r"[Dd]ropped (\d+) [\w ]*records")


def log_counts(line: str) -> dict[str, int]:
    """Counts of lost GPU records in one line of Kineto's log: ``{"Out-of-range": 3}``; other lines → empty."""
    counts: dict[str, int] = {}
    if "Record counts:" in line:
        for what, number in _RECORD_COUNT.findall(line.split("Record counts:")[1]):
            counts[what.strip()] = int(number)
    dropped = _DROPPED.search(line)
    if dropped:
        counts["Dropped"] = int(dropped.group(1))
    return counts


# Calls between which launches are written into a graph and put nothing on a stream.
_CAPTURE_BEGIN = re.compile(r"(cuda|cu|hip)StreamBeginCapture")
_CAPTURE_END = re.compile(r"(cuda|cu|hip)StreamEndCapture")


@lru_cache(maxsize=4096)
def graph_capture(name: str) -> int:
    """1 for a call that begins a graph capture, -1 for one that ends it, 0 for any other."""
    if _CAPTURE_BEGIN.match(name):
        return 1
    return -1 if _CAPTURE_END.match(name) else 0
