"""Out-of-memory messages: how PyTorch and the libraries under it word them, and from what size on a number counts.

Patterns are written for text from which all white space is gone, since terminals, logs and mails break lines anywhere.
Sources: the message in c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.13 to 2.13 (the same with HIP, and with NPU and
MLU in their back ends), c10/xpu/XPUCachingAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm,
c10/core/impl/alloc_cpu.cpp, NCCL's src/include/alloc.h, c10/cuda/CUDAMallocAsyncAllocator.cpp, vLLM's
vllm/v1/worker/gpu_worker.py and vllm/worker/worker.py, and the issues named at each.
"""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.allocator import MIB

__all__ = [
    "ACCOUNT_NOISE_BYTES",
    "ADVICE",
    "BACKENDS",
    "BARE",
    "CLASS_NAME",
    "CLAUSES",
    "CLEARLY_BEYOND",
    "COMMON_CONF",
    "COMMON_CONF_SINCE",
    "CONF_NAME",
    "CONF_NAMES",
    "CONF_OPTIONS",
    "DRIVER_KEEPS_BYTES",
    "EXPANDABLE_SINCE",
    "HEAD",
    "HIDDEN_LEAST_BYTES",
    "HOPELESS_TIMES",
    "IPC_SINCE",
    "ITEMS",
    "LOOKED_FOR",
    "MATRIX_LEAST_BYTES",
    "MATRIX_STEP",
    "METAL_HEAP_BYTES",
    "METAL_HEAP_OF",
    "NEARLY_FULL_SHARE",
    "NEEDLES",
    "NOISE_SHARE",
    "NOTEBOOK_SIGNS",
    "NOT_REPORTED_BYTES",
    "OLD_WORDINGS",
    "OWN_OVERHEAD_BYTES",
    "OWN_OVERHEAD_SHARE",
    "PLAIN",
    "RANK_PREFIX",
    "RUNNING_PREFIX",
    "SERVER_SIGNS",
    "SIZE",
    "SMALL_GAIN_SHARE",
    "SOURCE_SIGNS",
    "TRACEBACK_SIGNS",
    "UNITS",
    "WINDOWS_SIGNS",
    "WORDED_BY",
    "WORDED_BY_VERSION",
    "WORDINGS",
    "printed",
]

# ------------------------------------------------------------------------------------------------- what is written how

# A size as it is printed: "0bytes", "448.00KiB", "21.73GiB"; MPS before 2.6 writes "5.56GB" and means 2^30.
SIZE: Final = r"[0-9]{1,4000}(?:\.[0-9]{1,6})?(?:bytes?|[KMGTP]i?B)"

# unit → (bytes by the least reading, bytes by the most). Allocators mean powers of two whatever they write; what people
# type again may mean either.
UNITS: Final[dict[str, tuple[int, int]]] = {
    "byte": (1, 1), "bytes": (1, 1),
    "KiB": (1 << 10, 1 << 10), "MiB": (1 << 20, 1 << 20), "GiB": (1 << 30, 1 << 30), "TiB": (1 << 40, 1 << 40),
    "PiB": (1 << 50, 1 << 50),
    "KB": (10**3, 1 << 10), "MB": (10**6, 1 << 20), "GB": (10**9, 1 << 30), "TB": (10**12, 1 << 40),
    "PB": (10**15, 1 << 50),
}  # fmt: skip

# Devices as messages name them. HIP is AMD, XPU Intel, NPU Ascend, MLU Cambricon, MUSA Moore Threads, GCU Enflame, SUPA
# Biren, HPU Gaudi, DCU Hygon.
BACKENDS: Final = ("CUDA", "HIP", "XPU", "NPU", "MLU", "MUSA", "GCU", "SUPA", "HPU", "DCU", "PrivateUse1")

# How every message of a caching allocator begins.
HEAD: Final = rf"(?P<backend>{'|'.join(BACKENDS)})outofmemory\.?Triedtoallocate(?P<asked>{SIZE})"

# What may follow, in any order and cut off anywhere: name → pattern. From 2.1 on.
CLAUSES: Final[dict[str, str]] = {
    # 2.1 writes "capacty".
    "capacity": rf"(?:GPU|[A-Z]{{2,5}})(?P<device>[0-9]{{1,4}})hasatotal(?P<spelled>capacity|capacty)of"
    rf"(?P<total>{SIZE})(?:ofwhich(?P<free>{SIZE})isfree)?",
    "process": rf"Process(?P<pid>[0-9]{{1,10}})has(?P<process>{SIZE})memoryinuse",
    "own": rf"(?:Includingnon-PyTorchmemory,)?[Tt]hisprocesshas(?P<own>{SIZE})memoryinuse",
    "allowed": rf"(?P<allowed>{SIZE})allowed;",
    "allocated": rf"Oftheallocatedmemory,?(?P<allocated>{SIZE})isallocatedbyPyTorch",
    "private": rf"with(?P<private>{SIZE})allocatedinprivatepools(?:\(e\.g\.,[A-Za-z]{{1,12}}Graphs\))?",
    "unallocated": rf"(?:and)?(?P<unallocated>{SIZE})isreservedbyPyTorchbutunallocated",
}  # fmt: skip

# The items in parentheses of 1.13 and 2.0, of NPU and MLU; "cached" is what "reserved" was called before 1.4.
ITEMS: Final[dict[str, str]] = {
    "total": rf"(?P<total>{SIZE})total(?:capacity)?",
    "allocated": rf"(?P<allocated>{SIZE})alreadyallocated",
    "active": rf"(?P<active>{SIZE})currentactive",
    "free": rf"(?P<free>{SIZE})free",
    "allowed": rf"(?P<allowed>{SIZE})allowed",
    "reserved": rf"(?P<reserved>{SIZE})(?:reserved(?:intotalbyPyTorch)?|cached)",
}

# What the message itself recommends: it does so whatever is set (pytorch#173049).
ADVICE: Final[dict[str, str]] = {
    "expandable_segments": r"expandable_segments:True",
    "max_split_size_mb": r"max_split_size_mb",
    "empty_cache": r"empty_cache",
}

# Messages of one pattern each: name → (backend, pattern). ``asked``, ``allocated``, ``other`` and ``allowed`` are
# sizes, ``bytes`` a plain number.
PLAIN: Final[dict[str, tuple[str, str]]] = {
    "mps": (
        "MPS",
        rf"MPSbackendoutofmemory(?:\(MPSallocated:(?P<allocated>{SIZE}),(?:otherallocations:(?P<other>{SIZE}),)?"
        rf"maxallowed:(?P<allowed>{SIZE})\))?(?:\.?Triedtoallocate(?P<asked>{SIZE}))?",
    ),
    "mps_buffer": ("MPS", rf"[Ii]nvalidbuffersize:(?P<asked>{SIZE})"),
    # cudaMallocAsync's, over several lines; a limit of 2^64 bytes is how it writes that none was set.
    "async": (
        "CUDA",
        r"Allocationondevice(?P<device>\d{1,4})wouldexceedallowedmemory\.?\(outofmemory\)"
        rf"(?:\.?Currentlyallocated:(?P<allocated>{SIZE}))?(?:Requested:(?P<asked>{SIZE}))?"
        rf"(?:Devicelimit:(?P<total>{SIZE}))?(?:Free\(accordingtoCUDA\):(?P<free>{SIZE}))?"
        rf"(?:PyTorchlimit\(setbyuser-suppliedmemoryfraction\):?(?P<allowed>{SIZE}))?",
    ),
    # The message was to be written, and NVML, asked for the processes, did not answer (pytorch#112377, fal#478).
    "nvml": (
        "CUDA",
        r"NVML_SUCCESS==.{1,80}?INTERNALASSERTFAILED(?:at.{0,160}?CUDACachingAllocator)?",
    ),
    # About 1.0 and before (pytorch#465, AlphaPose#154); the line above it is THCudaCheck's.
    "runtime_call": (
        "CUDA",
        r"cudaruntimeerror\(2\):outofmemory|"
        r"THCudaCheckFAILfile=.{1,200}?line=\d{1,6}error=2:outofmemory(?!.{0,3000}?cudaruntimeerror\(2\))",
    ),
    # vLLM's (vllm#10439, vllm#2248): no share of the device is left to the cache; less is free than the share.
    "vllm_cache": ("CUDA", r"Noavailablememoryforthecacheblocks"),
    "vllm_startup": (
        "CUDA",
        r"Freememoryondevice(?:[a-z]{2,8}:?(?P<device>\d{1,4}))?"
        r"\((?P<free_gib>[0-9]{1,9}(?:\.[0-9]{1,6})?)/(?P<total_gib>[0-9]{1,9}(?:\.[0-9]{1,6})?)GiB\)"
        r"onstartupislessthandesiredGPUmemoryutilization"
        r"\((?P<utilization>[0-9.]{1,12}),(?P<asked_gib>[0-9]{1,9}(?:\.[0-9]{1,6})?)GiB\)",
    ),
    "exabyte": ("", rf"(?:(?P<backend>{'|'.join(BACKENDS)})outofmemory\.?)?Triedtoallocatemorethan1EBmemory"),
    "host": (
        "CPU",
        r"DefaultCPUAllocator:(?:can.{1,6}tallocatememory|notenoughmemory):youtriedtoallocate(?P<bytes>[0-9]{1,4000})bytes",
    ),
    "nccl_host": ("CPU", r"FailedtoCUDAhost(?:c|m)?alloc(?:async)?(?P<bytes>[0-9]{1,4000})bytes"),
    "nccl": ("CUDA", r"FailedtoCUDA(?:c|m)?alloc(?:async)?(?P<bytes>[0-9]{1,4000})bytes"),
    "nccl_driver": ("CUDA", r"(?:Cuda|HIP)failure2?.{0,3}outofmemory"),
    "library": (
        "CUDA",
        r"(?P<library>CUBLAS|CUBLASLT|CUDNN|CUSOLVER|CUSPARSE|CUFFT|HIPBLAS|MIOPEN)_(?:STATUS_)?(?:ALLOC|INTERNAL_ERROR_DEVICE_ALLOCATION)_FAILED",
    ),
    "driver_call": (
        "CUDA",
        r"(?P<backend>CUDA|HIP)error:outofmemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
    ),
    "hip_call": ("HIP", r"hipErrorOutOfMemory|HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    "xpu_call": ("XPU", r"UR_RESULT_ERROR_OUT_OF_(?:DEVICE|HOST)_MEMORY|PI_ERROR_OUT_OF_RESOURCES"),
}  # fmt: skip

# name → what a text has to have somewhere, where a pattern begins with alternatives: a large log is searched for that
# first.
NEEDLES: Final[dict[str, tuple[str, ...]]] = {
    "exabyte": ("morethan1EBmemory",),
    "nccl_driver": ("failure",),
    "library": ("_FAILED",),
    "driver_call": ("error:outofmemory", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"),
    "hip_call": ("hipErrorOutOfMemory", "HSA_STATUS_ERROR"),
    "xpu_call": ("UR_RESULT_ERROR", "PI_ERROR"),
    "runtime_call": ("cudaruntimeerror", "THCudaCheck"),
    "mps_buffer": ("nvalidbuffersize",),
}

# The least there can be; looked at only where nothing says more. CUDA is found without "Tried to allocate" in logs that
# cut their lines.
BARE: Final = rf"(?P<backend>{'|'.join(BACKENDS)})outofmemory"
# The error's name counts with its text after it, or as the last line of a traceback; Java has one of its own.
CLASS_NAME: Final = r"(?:torch\.(?:cuda\.)?|(?<!\.))OutOfMemoryError"
TRACEBACK_SIGNS: Final = r"Traceback\(mostrecentcall|File\".{1,400}?\",line\d"
# What follows the words where a program looks for them: "CUDA out of memory" in str(error).
SOURCE_SIGNS: Final = r"\.?[\"']\)?(?:not)?in[a-z_(]"

# What to say where none of it was found.
LOOKED_FOR: Final = (
    '"CUDA out of memory. Tried to allocate …" and the same of HIP, XPU, NPU and MPS, "CUDA error: out of memory", '
    'CUBLAS_STATUS_ALLOC_FAILED, NCCL\'s "Failed to CUDA calloc", "DefaultCPUAllocator: can\'t allocate memory", '
    '"Allocation on device 0 would exceed allowed memory", vLLM\'s "No available memory for the cache blocks"'
)

# wording → the versions of PyTorch that write it.
WORDINGS: Final[dict[str, str]] = {
    "parentheses": "1.4 to 2.0",
    "cached": "before 1.4",
    "capacty": "2.1",
    "capacity": "2.2 or later",
    "private": "2.4 or later",
}

# wording → the first and the last version that write it; None: no such end
WORDED_BY: Final[dict[str, tuple[tuple[int, int] | None, tuple[int, int] | None]]] = {
    "cached": (None, (1, 3)),
    "parentheses": ((1, 4), (2, 0)),
    "capacty": ((2, 1), (2, 1)),
    "capacity": ((2, 2), None),
    "private": ((2, 4), None),
}

# ------------------------------------------------------------------------------------------ what stands before messages

# What log systems, launchers and terminals put before a line. torchrun writes "[rank3]:" and "[default3]:", srun -l
# "3:", vLLM "(VllmWorker rank=3 pid=1090) ERROR 06-05 06:18:13 [file.py:470]", Ray "(RayWorkerWrapper pid=1, ip=…)".
RANK_PREFIX: Final = (
    r"\[?(?:rank|default)[ _=:]?(?P<rank>\d{1,6})\]?[ ]?:|"
    r"\(\w{1,40} rank=(?P<worker>\d{1,6})[^()\n]{0,60}\)|"
    r"\(Worker_TP(?P<tensor>\d{1,4})[^()\n]{0,60}\)|"
    r"(?P<task>\d{1,5}):(?=[ ])"
)
RUNNING_PREFIX: Final = (
    r"\(\w{1,40} pid=\d{1,10}[^()\n]{0,60}\)|"
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?|"
    r"\[?(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?|"
    r"\[?(?:ERROR|Error|WARNING|INFO|CRITICAL|FATAL|DEBUG|stderr|stdout)\]?:?|"
    r"\[[\w./-]{1,60}\.py:\d{1,6}\]|"
    r"[>#|]"
)

# What else a text shows: paths of Windows, vLLM (its workers' prefix, its files in the traceback), a notebook.
WINDOWS_SIGNS: Final = r"(?<![A-Za-z])[A-Za-z]:\\{1,4}\w"
SERVER_SIGNS: Final = r"(?i:(?<![a-z])vllm)"
NOTEBOOK_SIGNS: Final = r"ipykernel|<ipython-input|Cell In ?\[\d"

# ----------------------------------------------------------------------------------------- from what size on it counts

# The driver does not give away the last of what it calls free: requests of 2 MiB to 1.2 GiB were refused with up to
# 20 MiB more free than that (vllm#12529, MyGirlGPT#11). With this much more free it was something else.
DRIVER_KEEPS_BYTES: Final = 32 * MIB
# Holes of this share of what is reserved are in every run: remainders of blocks, the tail of the last segment.
NOISE_SHARE: Final = 0.02
# What a process has beside the allocator, where the message does not tell it: context and code (0.3 to 0.6 GiB), cuBLAS
# workspaces, NCCL's buffers (3.5 GiB of 140 in sglang#15927), which grow with the device. A tenth of the device within
# these bounds is allowed for.
OWN_OVERHEAD_SHARE: Final = 0.1
OWN_OVERHEAD_BYTES: Final = (1024 * MIB, 4096 * MIB)
# Other processes are named only where what is nobody's is this many times what is allowed for. The allowance is an
# assumption, and to blame a neighbour wrongly costs a reader more than to be told that it is not known.
CLEARLY_BEYOND: Final = 2
# Tensors that take this share of the device fill it. A choice: context and libraries take up to half of the tenth that
# is left (on 8 to 16 GiB), so joining all the rest gains a few percent, and the next somewhat larger step fails again.
NEARLY_FULL_SHARE: Final = 0.9
# A request that is this many times the device is no batch to be cut down: eight become one.
HOPELESS_TIMES: Final = 8
# What gains less than this share of what is lacking is not shown.
SMALL_GAIN_SHARE: Final = 0.05
# Where the message lists the processes, this much may be missing from the sum without anybody hidden: page tables, ECC.
HIDDEN_LEAST_BYTES: Final = 512 * MIB
# The total, the free memory and the processes are asked for one after the other; a sum off by this much still adds up.
ACCOUNT_NOISE_BYTES: Final = 64 * MIB
# Metal's allocator asks for a heap of this size for requests from the first to below the second of these, unless memory
# is short already (kXLargeHeapU, kMinLargeAlloc in aten/src/ATen/mps/MPSAllocator.h).
METAL_HEAP_BYTES: Final = 1 << 30
METAL_HEAP_OF: Final = (10 * MIB, 512 * MIB)
# NVML answers 2^64 - 1 where the system does not tell a process's memory (Windows, WSL), printed as 17179869184.00 GiB.
NOT_REPORTED_BYTES: Final = 1 << 60
# From this size on a request is held against square matrices; their sides are multiples of this where lengths are.
MATRIX_LEAST_BYTES: Final = 1 << 30
MATRIX_STEP: Final = 1024

# ----------------------------------------------------------------------------------------- the allocator's settings

# The variable that sets the allocator, by back end.
CONF_NAMES: Final = {"HIP": "PYTORCH_HIP_ALLOC_CONF", "NPU": "PYTORCH_NPU_ALLOC_CONF", "XPU": "PYTORCH_ALLOC_CONF"}
# Its options (c10/core/AllocatorConfig.cpp, c10/cuda/CUDAAllocatorConfig.cpp, docs/source/notes/cuda.md) → what they
# take. A name the allocator does not know stops the program at its first allocation.
CONF_OPTIONS: Final = {
    "backend": "word", "max_split_size_mb": "number", "max_non_split_rounding_mb": "number",
    "roundup_power2_divisions": "list", "garbage_collection_threshold": "share", "expandable_segments": "truth",
    "large_segment_size_mb": "number", "release_lock_on_cudamalloc": "truth", "release_lock_on_hipmalloc": "truth",
    "pinned_use_cuda_host_register": "truth", "pinned_use_hip_host_register": "truth",
    "pinned_num_register_threads": "number", "pinned_use_background_threads": "truth",
    "pinned_reserve_segment_size_mb": "number", "graph_capture_record_stream_reuse": "truth",
    "per_process_memory_fraction": "share", "throw_on_cudamalloc_oom": "truth",
}  # fmt: skip
# Since about 2.9 the messages name one variable for all back ends (docs/source/notes/cuda.md).
COMMON_CONF: Final = "PYTORCH_ALLOC_CONF"
COMMON_CONF_SINCE: Final = (2, 9)
CONF_NAME: Final = r"PYTORCH_(?:[A-Z]{2,5}_)?ALLOC_CONF"
# Wordings of versions without expandable segments, and the back ends whose wording tells the version.
OLD_WORDINGS: Final = ("parentheses", "cached")
WORDED_BY_VERSION: Final = ("CUDA", "HIP", "XPU")
# The first version with expandable segments, and the first in which they can be sent to another process
# (pytorch#130890).
EXPANDABLE_SINCE: Final = (2, 1)
IPC_SINCE: Final = (2, 5)


def printed(size: float) -> str:
    """A size in bytes, in the units and with the two decimals of PyTorch's messages (format_size): to be compared."""
    if size >= NOT_REPORTED_BYTES:
        return "1 EiB or more"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} bytes"
