"""AMD Instinct datasheets; conventions in `foretrace.knowledge.gpus`."""

from __future__ import annotations

from foretrace.knowledge.gpus.datasheet import MB, Gpu

__all__ = ["AMD"]

_DIE = "one graphics compute die, half of the datasheet's part: a program sees each die as a device"
_CACHE = "the Infinity Cache (256 MB) lies behind the L2 and is not counted"


def _instinct(
    name: str,
    arch: str,
    cus: int,
    memory: tuple[int, float],
    l2_mb: int,
    peak_tflops: dict[str, float],
    source: str,
    names: tuple[str, ...],
    note: str | None = None,
) -> Gpu:
    return Gpu(
        name=f"AMD Instinct {name}",
        short=name,
        vendor="AMD",
        arch=arch,
        compute_capability=None,  # traces write the first digits of the gfx number there
        sms=cus,
        memory_gb=memory[0],
        memory_bandwidth_gbps=memory[1],
        l2_bytes=l2_mb * MB,
        peak_tflops=peak_tflops,
        source=source,
        names=names,
        note=note,
    )


# fmt: off
_CDNA3 = {
    "fp64": 81.7, "fp64_tensor": 163.4, "fp32": 163.4, "fp32_tensor": 163.4, "tf32": 653.7,
    "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9,
}
AMD: tuple[Gpu, ...] = (
    _instinct(
        "MI355X", "gfx950", 256, (288, 8000.0), 32,
        {"fp64": 78.6, "fp64_tensor": 78.6, "fp32": 157.3, "fp32_tensor": 157.3,
         "fp16": 2516.6, "bf16": 2516.6, "fp8": 5033.2, "int8": 5033.2, "fp4": 10066.3},
        "AMD Instinct MI355X GPU datasheet, 2025", ("mi355x(?: vf)?",), _CACHE,
    ),
    _instinct(
        "MI325X", "gfx942", 304, (256, 6000.0), 32, _CDNA3,
        "AMD Instinct MI325X accelerator datasheet, October 2024", ("mi325x(?: vf)?",), _CACHE,
    ),
    _instinct(
        "MI300X", "gfx942", 304, (192, 5300.0), 32, _CDNA3,
        "AMD Instinct MI300X accelerator datasheet, December 2023", ("mi300x(?: hf)?(?: vf)?",), _CACHE,
    ),
    _instinct(
        "MI300A", "gfx942", 228, (128, 5300.0), 24,
        {"fp64": 61.3, "fp64_tensor": 122.6, "fp32": 122.6, "fp32_tensor": 122.6, "tf32": 490.3,
         "fp16": 980.6, "bf16": 980.6, "fp8": 1961.2, "int8": 1961.2},
        "AMD Instinct MI300A APU datasheet, December 2023", ("mi300a(?: vf)?",), _CACHE,
    ),
    _instinct(
        "MI250X", "gfx90a", 110, (64, 1638.4), 8,
        {"fp64": 23.95, "fp64_tensor": 47.85, "fp32": 23.95, "fp32_tensor": 47.85,
         "fp16": 191.5, "bf16": 191.5, "int8": 191.5},
        "AMD Instinct MI250X accelerator datasheet, 2021, halved", ("mi250x(?: mi250)?",), _DIE,
    ),
    _instinct(
        "MI250", "gfx90a", 104, (64, 1638.4), 8,
        {"fp64": 22.65, "fp64_tensor": 45.25, "fp32": 22.65, "fp32_tensor": 45.25,
         "fp16": 181.05, "bf16": 181.05, "int8": 181.05},
        "AMD Instinct MI250 accelerator datasheet, 2021, halved", ("mi250", "mi250x mi250"), _DIE,
    ),
    _instinct(
        "MI210", "gfx90a", 104, (64, 1638.4), 8,
        {"fp64": 22.6, "fp64_tensor": 45.3, "fp32": 22.6, "fp32_tensor": 45.3,
         "fp16": 181.0, "bf16": 181.0, "int8": 181.0},
        "AMD Instinct MI210 accelerator datasheet, 2022", ("mi210",),
    ),
    _instinct(
        "MI100", "gfx908", 120, (32, 1228.8), 8,
        {"fp64": 11.5, "fp32": 23.1, "fp32_tensor": 46.1, "fp16": 184.6, "bf16": 92.3, "int8": 184.6},
        "AMD Instinct MI100 accelerator datasheet, 2020", ("mi100",),
    ),
)
# fmt: on
