"""Out-of-memory messages: how each version words the numbers, and real ones from issues and logs with their verdict."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["REAL", "Real", "capacity", "metal", "parentheses"]


def parentheses(
    asked: str,
    total: str,
    allocated: str,
    free: str,
    reserved: str,
    *,
    allowed: str | None = None,
    active: str | None = None,
    backend: str = "CUDA",
    device: int = 0,
    advice: bool = True,
) -> str:
    """The wording of 1.13 and 2.0, and of NPU (which adds what is active)."""
    name = "GPU" if backend in ("CUDA", "HIP") else backend
    items = [f"{name} {device}", f"{total} total capacity", f"{allocated} already allocated"]
    items += [f"{active} current active"] * (active is not None)
    items += [
        f"{free} free",
        *[f"{allowed} allowed"] * (allowed is not None),
        f"{reserved} reserved in total by PyTorch",
    ]
    tail = (
        " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
        if advice
        else ""
    )
    return f"{backend} out of memory. Tried to allocate {asked} ({'; '.join(items)}){tail}"


def capacity(
    asked: str,
    total: str,
    free: str,
    allocated: str,
    unallocated: str,
    *,
    processes: tuple[tuple[int, str], ...] = (),
    own: str | None = None,
    allowed: str | None = None,
    private: str | None = None,
    backend: str = "CUDA",
    device: int = 0,
    typo: bool = False,
    own_first: bool = False,
) -> str:
    """The wording since 2.1 (with the typo), with private pools since 2.4."""
    listed = [f"Process {pid} has {size} memory in use. " for pid, size in processes]
    mine = [f"Including non-PyTorch memory, this process has {own} memory in use. "] * (own is not None)
    parts = [
        f"{backend} out of memory. Tried to allocate {asked}. GPU {device} has a total ",
        f"{'capacty' if typo else 'capacity'} of {total} of which {free} is free. ",
        *(mine + listed if own_first else listed + mine),
        f"{allowed} allowed; " if allowed is not None else "",
        f"Of the allocated memory {allocated} is allocated by PyTorch, ",
        f"with {private} allocated in private pools (e.g., {backend} Graphs), " if private is not None else "",
        f"and {unallocated} is reserved by PyTorch but unallocated. ",
        "If reserved but unallocated memory is large try setting ",
        "max_split_size_mb to avoid fragmentation."
        if typo
        else "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid.",
    ]
    return "".join(parts)


def metal(allocated: str, other: str, allowed: str, asked: str) -> str:
    """The wording of MPS."""
    return (
        f"MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max allowed: {allowed}). "
        f"Tried to allocate {asked} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit."
    )


class Real(NamedTuple):
    """A message somebody met, where, and what is to be said of it."""

    source: str
    text: str
    verdict: str
    certain: bool


_PER_PROCESS = ((2102129, "17.54 GiB"),)

REAL = (
    # Fragmentation: cached memory would have served it.
    Real(
        "MADDoG#11", parentheses("2.87 GiB", "14.76 GiB", "8.77 GiB", "19.75 MiB", "13.71 GiB"), "fragmentation", True
    ),
    Real(
        "AP-PA#3", parentheses("2.81 GiB", "23.69 GiB", "16.12 GiB", "374.94 MiB", "19.00 GiB"), "fragmentation", True
    ),
    Real(
        "MGFN#35", capacity("1.70 GiB", "6.00 GiB", "0 bytes", "2.93 GiB", "2.30 GiB", typo=True), "fragmentation", True
    ),
    Real(
        "DC-CRN",
        capacity("472.00 MiB", "23.70 GiB", "114.56 MiB", "18.26 GiB", "3.69 GiB", own="23.58 GiB"),
        "fragmentation",
        True,
    ),
    Real(
        "kaito#976",
        capacity(
            "546.00 MiB",
            "15.77 GiB",
            "514.19 MiB",
            "13.73 GiB",
            "736.86 MiB",
            processes=((562167, "15.25 GiB"),),
            private="46.00 MiB",
        ),
        "fragmentation",
        True,
    ),
    Real(
        "after pytorch#35901",
        parentheses("200.00 MiB", "15.78 GiB", "7.14 GiB", "42.00 MiB", "15.11 GiB"),
        "fragmentation",
        True,
    ),
    Real(
        "Tohoku guide",
        capacity("6.37 GiB", "79.11 GiB", "2.93 GiB", "68.61 GiB", "5.63 GiB", own="76.17 GiB", typo=True),
        "fragmentation",
        True,
    ),
    # Full: nothing that is cached, held by others or idle would do.
    Real(
        "after vllm#7721 (asked and unallocated are its)",
        capacity("16.00 GiB", "79.11 GiB", "4.65 GiB", "73.30 GiB", "335.88 MiB", own="74.45 GiB"),
        "full",
        True,
    ),
    Real(
        "vllm#17835",
        capacity("270.00 MiB", "21.98 GiB", "156.94 MiB", "21.42 GiB", "24.12 MiB", own="21.80 GiB"),
        "full",
        True,
    ),
    Real(
        "pytorch#16417",
        capacity("22.00 MiB", "23.65 GiB", "11.06 MiB", "22.90 GiB", "194.87 MiB", own="23.60 GiB"),
        "full",
        True,
    ),
    Real(
        "GenerateU#10",
        capacity(
            "496.00 MiB",
            "14.75 GiB",
            "235.06 MiB",
            "14.06 GiB",
            "330.42 MiB",
            processes=((20398, "14.52 GiB"),),
            typo=True,
        ),
        "full",
        True,
    ),
    Real(
        "vllm#2140",
        capacity(
            "518.00 MiB",
            "21.67 GiB",
            "4.06 MiB",
            "21.32 GiB",
            "1018.00 KiB",
            processes=((2417585, "21.65 GiB"),),
            typo=True,
        ),
        "full",
        True,
    ),
    Real(
        "Shift-GCN#34",
        parentheses("236.00 MiB", "15.78 GiB", "14.25 GiB", "183.50 MiB", "14.34 GiB", advice=False),
        "full",
        True,
    ),
    Real("vllm#636", parentheses("160.00 MiB", "79.35 GiB", "78.58 GiB", "145.19 MiB", "78.58 GiB"), "full", True),
    Real(
        "XPU ladder",
        capacity("20.00 MiB", "11.93 GiB", "5.62 MiB", "10.43 GiB", "94.57 MiB", backend="XPU"),
        "full",
        True,
    ),
    # Others.
    Real(
        "vllm#783", parentheses("1.63 GiB", "44.56 GiB", "27.91 GiB", "565.31 MiB", "27.93 GiB"), "other_process", False
    ),
    Real(
        "One-2-3-45#25",
        parentheses("1.69 GiB", "14.56 GiB", "649.97 MiB", "1.31 GiB", "1.01 GiB"),
        "other_process",
        False,
    ),
    Real(
        "KlimtechRAG",
        capacity("978.00 MiB", "15.98 GiB", "630.00 MiB", "0 bytes", "0 bytes", backend="HIP"),
        "other_process",
        False,
    ),
    Real(
        "OPERA",
        capacity(
            "1.16 GiB",
            "31.36 GiB",
            "471.69 MiB",
            "15.03 GiB",
            "1.00 GiB",
            own="16.63 GiB",
            processes=((19239, "14.26 GiB"),),
            own_first=True,
        ),
        "other_process",
        True,
    ),
    Real(
        "SDTP",
        capacity(
            "18.56 GiB",
            "47.37 GiB",
            "17.60 GiB",
            "25.54 GiB",
            "1.52 GiB",
            processes=((3606394, "2.27 GiB"),),
            own="27.45 GiB",
        ),
        "other_process",
        True,
    ),
    # Limits.
    Real(
        "pytorch#48172",
        parentheses("5.59 GiB", "11.17 GiB", "0 bytes", "10.91 GiB", "0 bytes", allowed="5.59 GiB", advice=False),
        "limit",
        False,
    ),
    Real(
        "xpu-ops#2392",
        capacity("8.11 GiB", "16.54 GiB", "16.54 GiB", "0 bytes", "0 bytes", allowed="8.27 GiB", backend="XPU"),
        "driver",
        True,
    ),
    Real(
        "workbench",
        capacity(
            "996.00 MiB",
            "44.43 GiB",
            "9.06 GiB",
            "17.44 GiB",
            "59.88 MiB",
            processes=_PER_PROCESS,
            own="17.81 GiB",
            allowed="17.69 GiB",
        ),
        "limit",
        True,
    ),
    Real(
        "Sepalith",
        capacity(
            "3.98 GiB", "31.84 GiB", "16.30 GiB", "6.74 GiB", "7.02 GiB", own="17179869184.00 GiB", allowed="17.51 GiB"
        ),
        "limit",
        True,
    ),
    Real(
        "test_cuda",
        capacity(
            "76.00 MiB",
            "255.69 GiB",
            "252.82 GiB",
            "1.14 GiB",
            "18.63 MiB",
            allowed="1.20 GiB",
            private="17.00 MiB",
            backend="HIP",
        ),
        "limit",
        True,
    ),
    Real("MPS ComfyUI#8984", metal("15.72 GiB", "2.41 MiB", "18.13 GiB", "5.81 GiB"), "limit", True),
    Real("MPS pytorch#105839", metal("1.45 GB", "7.42 GB", "9.07 GB", "563.62 MB"), "limit", True),
    # Impossible.
    Real(
        "NeuroLens#2",
        capacity("55.57 GiB", "12.00 GiB", "9.02 GiB", "984.52 MiB", "463.48 MiB", typo=True),
        "impossible",
        True,
    ),
    Real(
        "dots.ocr#196",
        capacity("74.16 GiB", "44.40 GiB", "29.89 GiB", "13.44 GiB", "738.96 MiB", processes=((2684311, "14.51 GiB"),)),
        "impossible",
        True,
    ),
    Real(
        "hd-instrument",
        capacity("21.15 GiB", "8.00 GiB", "6.70 GiB", "163.26 MiB", "18.74 MiB", allowed="6.80 GiB"),
        "impossible",
        True,
    ),
    Real("iPASSR#9", parentheses("10.73 GiB", "8.00 GiB", "17.20 GiB", "0 bytes", "19.15 GiB"), "impossible", True),
    Real("1EB", "CUDA out of memory. Tried to allocate more than 1EB memory.", "impossible", True),
    # The driver.
    Real("taggui#188", capacity("20.00 MiB", "4.00 GiB", "2.35 GiB", "825.15 MiB", "24.85 MiB"), "driver", True),
    Real(
        "OOTDiffusion#167",
        capacity("2.00 GiB", "4.00 GiB", "2.80 GiB", "0 bytes", "0 bytes", typo=True),
        "driver",
        True,
    ),
    Real(
        "pytorch#59778",
        parentheses("2.26 GiB", "6.00 GiB", "781.59 MiB", "3.03 GiB", "1.24 GiB", advice=False),
        "driver",
        True,
    ),
    Real("ChatGLM#28", parentheses("128.00 MiB", "44.99 GiB", "6.15 GiB", "37.32 GiB", "6.15 GiB"), "driver", True),
    Real(
        "vllm-rocm#5",
        capacity("12.95 GiB", "127.00 GiB", "18.55 GiB", "99.37 GiB", "121.80 MiB", backend="HIP"),
        "driver",
        True,
    ),
    # Too little said.
    Real("vllm#19186", "RuntimeError: CUDA error: out of memory", "unknown", False),
    Real(
        "cuBLAS",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "unknown",
        False,
    ),
    Real(
        "NCCL",
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc 536870912 bytes",
        "unknown",
        False,
    ),
    Real(
        "host",
        "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
        "37984010240 bytes.",
        "unknown",
        False,
    ),
    Real(
        "comfy_controlnet#50",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 218.96 GiB",
        "unknown",
        False,
    ),
)
