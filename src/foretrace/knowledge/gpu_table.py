"""The rows of the GPU table; `foretrace.knowledge.gpus` explains the conventions and looks devices up."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["TABLE", "Gpu"]

MB = 2**20


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor's datasheet says about one device (AMD's dual-die parts: one GCD, which is one device).

    ``sms``: multiprocessors (AMD: compute units). ``memory_gb`` as sold. ``memory_bandwidth_gbps``: 10⁹ B/s.
    ``l2_bytes``: last cache level inside the GPU's own die structure (AMD: L2 of all dies, without the
    Infinity Cache). ``peak_tflops``: dense rates in 10¹² operations a second; keys ``fp64``, ``fp32`` (vector
    units), ``fp64_tensor``, ``fp32_tensor`` (AMD matrix cores), ``tf32``, ``fp16``, ``bf16``, ``fp8``,
    ``int8``, ``fp4`` (tensor or matrix cores, FP32 or INT32 accumulation). ``names``: patterns of the names
    drivers write, lower case, vendor prefix removed, punctuation as spaces; ``aliases``: what users type.
    """

    name: str
    short: str
    vendor: Literal["NVIDIA", "AMD"]
    arch: str
    compute_capability: str | None
    sms: int
    memory_gb: int
    memory_bandwidth_gbps: float
    l2_bytes: int
    peak_tflops: dict[str, float]
    source: str
    names: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    note: str | None = None


_AMPERE = "NVIDIA A100 Tensor Core GPU datasheet, June 2021, and A100 architecture whitepaper v1.0 (SMs, L2)"
_A100 = {
    "fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0, "int8": 624.0,
}  # fmt: skip


def _a100(form: str, gb: int, bandwidth: float, names: tuple[str, ...], aliases: tuple[str, ...] = ()) -> Gpu:
    return Gpu(
        name=f"NVIDIA A100 {form} {gb}GB", short="A100", vendor="NVIDIA", arch="sm_80", compute_capability="8.0",
        sms=108, memory_gb=gb, memory_bandwidth_gbps=bandwidth, l2_bytes=40 * MB, peak_tflops=_A100,
        source=_AMPERE, names=names, aliases=aliases,
    )  # fmt: skip


_HOPPER_WP = "NVIDIA H100 Tensor Core GPU architecture whitepaper v1.04, table of performance specifications"
# Dense rates of the full 132-SM part at boost clock; the H100, H200 and GH200 datasheets print twice these.
_HOPPER = {
    "fp64": 33.5, "fp64_tensor": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4,
    "fp8": 1978.9, "int8": 1978.9,
}  # fmt: skip
_HOPPER_NVL = {
    "fp64": 30.0, "fp64_tensor": 60.0, "fp32": 60.0, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5,
    "fp8": 1670.5, "int8": 1670.5,
}  # fmt: skip
_HOPPER_PCIE = {
    "fp64": 25.6, "fp64_tensor": 51.2, "fp32": 51.2, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0,
    "fp8": 1513.0, "int8": 1513.0,
}  # fmt: skip
_HALVED = "; rates printed with sparsity, halved here"
_L2_NOTE = "torch reports 60 MB of L2 on this part; NVIDIA's whitepaper states 50 MB"


def _hopper(
    name: str, short: str, gb: int, bandwidth: float, rates: dict[str, float], source: str,
    names: tuple[str, ...], aliases: tuple[str, ...] = (), *, sms: int = 132, l2: int = 50, note: str | None = None,
) -> Gpu:  # fmt: skip
    return Gpu(
        name=name, short=short, vendor="NVIDIA", arch="sm_90", compute_capability="9.0", sms=sms, memory_gb=gb,
        memory_bandwidth_gbps=bandwidth, l2_bytes=l2 * MB, peak_tflops=rates, source=source, names=names,
        aliases=aliases, note=note,
    )  # fmt: skip


def _nvidia(
    name: str, arch: str, sms: int, gb: int, bandwidth: float, l2_mb: float, rates: dict[str, float],
    source: str, names: tuple[str, ...], aliases: tuple[str, ...] = (), note: str | None = None,
) -> Gpu:  # fmt: skip
    number = arch.removeprefix("sm_")
    return Gpu(
        name=name, short=name.removeprefix("NVIDIA ").removeprefix("GeForce "), vendor="NVIDIA", arch=arch,
        compute_capability=f"{number[:-1]}.{number[-1]}", sms=sms, memory_gb=gb, memory_bandwidth_gbps=bandwidth,
        l2_bytes=int(l2_mb * MB), peak_tflops=rates, source=source, names=names, aliases=aliases, note=note,
    )  # fmt: skip


def _amd(
    name: str, arch: str, cus: int, gb: int, bandwidth: float, l2_mb: int, rates: dict[str, float],
    source: str, names: tuple[str, ...], note: str | None = None,
) -> Gpu:  # fmt: skip
    return Gpu(
        name=f"AMD Instinct {name}", short=name, vendor="AMD", arch=arch, compute_capability=None, sms=cus,
        memory_gb=gb, memory_bandwidth_gbps=bandwidth, l2_bytes=l2_mb * MB, peak_tflops=rates, source=source,
        names=names, aliases=(name.lower(),), note=note,
    )  # fmt: skip


_FP16_ACC = "FP16 accumulation doubles the FP16 rate on this part; the table holds FP32 accumulation"
_GCD = "one graphics compute die; the datasheet's figures for the whole part are halved, as a trace's device is one die"
_INFINITY = "the 256 MB Infinity Cache lies behind the L2 and is not counted"

TABLE: tuple[Gpu, ...] = (
    # ---- NVIDIA data centre -----------------------------------------------------------------------------
    _a100("SXM4", 80, 2039.0, ("a100 sxm4 80gb", "a100 sxm 80gb", "a800 sxm4 80gb"),
          ("a100", "a100 sxm4?", "a100 80gb?", "a100 80gb sxm4?", "a800")),
    _a100("SXM4", 40, 1555.0, ("a100 sxm4 40gb", "a100 sxm 40gb", "a100 pg509 2\\d\\d", "a800 sxm4 40gb"),
          ("a100", "a100 sxm4?", "a100 40gb?", "a100 40gb sxm4?")),
    _a100("PCIe", 80, 1935.0, ("a100 80gb pcie", "a800 80gb pcie"), ("a100 pcie", "a100 pcie 80gb?")),
    _a100("PCIe", 40, 1555.0, ("a100 pcie 40gb", "a800 pcie 40gb", "a800 40gb active"), ("a100 pcie", "a100 40gb pcie")),
    _hopper("NVIDIA H100 SXM5 80GB", "H100 SXM", 80, 3350.0, _HOPPER,
            f"{_HOPPER_WP}; bandwidth: NVIDIA H100 datasheet 2287922, 2023",
            ("h100 80gb hbm3", "h100 sxm5 80gb"), ("h100", "h100 sxm5?", "h100 sxm5? 80gb?", "h100 80gb?")),
    _hopper("NVIDIA H100 PCIe 80GB", "H100 PCIe", 80, 2039.0, _HOPPER_PCIE, _HOPPER_WP,
            ("h100 pcie",), ("h100", "h100 80gb?", "h100 pcie 80gb?"), sms=114),
    _hopper("NVIDIA H100 NVL 94GB", "H100 NVL", 94, 3938.0, _HOPPER_NVL,
            "NVIDIA H100 datasheet, 2024, H100 NVL column" + _HALVED, ("h100 nvl",), ("h100", "h100 nvl 94gb?")),
    _hopper("NVIDIA H200 SXM 141GB", "H200", 141, 4800.0, _HOPPER,
            "NVIDIA H200 Tensor Core GPU datasheet, November 2023 (bandwidth, memory; rates printed with"
            f" sparsity); dense rates: {_HOPPER_WP}", ("h200",), ("h200 sxm5?", "h200 141gb?", "h200 sxm5? 141gb?"),
            note=_L2_NOTE),
    _hopper("NVIDIA H200 NVL 141GB", "H200 NVL", 141, 4800.0, _HOPPER_NVL,
            "NVIDIA H200 Tensor Core GPU datasheet, November 2024, H200 NVL column" + _HALVED, ("h200 nvl",)),
    _hopper("NVIDIA GH200 96GB", "GH200", 96, 4000.0, _HOPPER,
            f"NVIDIA GH200 Grace Hopper Superchip datasheet, 2023 (bandwidth, memory); dense rates: {_HOPPER_WP}",
            ("gh200 480gb", "gh200 120gb", "gh200 96g hbm3"), ("gh200", "gh200 96gb?"), l2=60),
    _hopper("NVIDIA GH200 144GB", "GH200 144GB", 144, 4900.0, _HOPPER,
            f"NVIDIA GH200 Grace Hopper Superchip datasheet, 2024 (bandwidth, memory); dense rates: {_HOPPER_WP}",
            ("gh200 144g hbm3e", "gh200 480gb"), ("gh200", "gh200 144gb?"), l2=60),
    _hopper("NVIDIA H800 SXM5 80GB", "H800", 80, 3350.0, {**_HOPPER, "fp64": 1.0, "fp64_tensor": 1.0},
            "NVIDIA H800 Tensor Core GPU datasheet, 2023" + _HALVED, ("h800", "h800 80gb hbm3"), ("h800 sxm5?",)),
    _hopper("NVIDIA H800 PCIe 80GB", "H800 PCIe", 80, 2039.0, {**_HOPPER_PCIE, "fp64": 0.8, "fp64_tensor": 0.8},
            "NVIDIA H800 Tensor Core GPU datasheet, 2023" + _HALVED, ("h800 pcie",), ("h800",), sms=114),
    _hopper("NVIDIA H20 96GB", "H20", 96, 4000.0,
            {"fp64": 1.0, "fp64_tensor": 1.0, "fp32": 44.0, "tf32": 74.0, "fp16": 148.0, "bf16": 148.0,
             "fp8": 296.0, "int8": 296.0},
            "NVIDIA H20 product brief, 2023", ("h20",), ("h20 96gb?",), sms=78, l2=60),
    _nvidia("NVIDIA B200", "sm_100", 148, 180, 7700.0, 126,
            {"fp64": 37.0, "fp64_tensor": 37.0, "fp32": 75.0, "tf32": 1100.0, "fp16": 2250.0, "bf16": 2250.0,
             "fp8": 4500.0, "int8": 4500.0, "fp4": 9000.0},
            "NVIDIA Blackwell datasheet (GB200 NVL72, HGX B200), individual GPU of HGX B200" + _HALVED,
            ("b200",), ("hgx b200", "b200 180gb?", "b200 sxm6?"), "SMs and L2 as the driver reports them"),
    _nvidia("NVIDIA GB200", "sm_100", 152, 186, 8000.0, 126,
            {"fp64": 40.0, "fp64_tensor": 40.0, "fp32": 80.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0,
             "fp8": 5000.0, "int8": 5000.0, "fp4": 10000.0},
            "NVIDIA Blackwell datasheet (GB200 NVL72, HGX B200), individual GPU of GB200 NVL72" + _HALVED,
            ("gb200",), ("gb200 nvl72", "gb200 186gb?"), "SMs and L2 as the driver reports them"),
    _nvidia("NVIDIA L4", "sm_89", 58, 24, 300.0, 48,
            {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5, "int8": 242.5},
            "NVIDIA L4 Tensor Core GPU datasheet, 2023" + _HALVED, ("l4",), ("l4 24gb?",)),
    _nvidia("NVIDIA L40S", "sm_89", 142, 48, 864.0, 96,
            {"fp32": 91.6, "tf32": 183.0, "fp16": 362.05, "bf16": 362.05, "fp8": 733.0, "int8": 733.0},
            "NVIDIA L40S GPU datasheet, 2023, dense column", ("l40s",), ("l40s 48gb?",)),
    _nvidia("NVIDIA L40", "sm_89", 142, 48, 864.0, 96,
            {"fp32": 90.5, "tf32": 90.5, "fp16": 181.05, "bf16": 181.05, "fp8": 362.0, "int8": 362.0},
            "NVIDIA L40 GPU datasheet, 2023, dense column", ("l40",), ("l40 48gb?",)),
    _nvidia("NVIDIA A10", "sm_86", 72, 24, 600.0, 6,
            {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0, "int8": 250.0},
            "NVIDIA A10 Tensor Core GPU datasheet, 2021, dense column", ("a10",), ("a10 24gb?",)),
    _nvidia("NVIDIA A10G", "sm_86", 80, 24, 600.0, 6,
            {"fp32": 35.0, "tf32": 35.0, "fp16": 70.0, "bf16": 70.0, "int8": 140.0},
            "NVIDIA A10G product brief for AWS G5, 2021, dense column", ("a10g",), ("a10g 24gb?",)),
    _nvidia("NVIDIA A30", "sm_80", 56, 24, 933.0, 24,
            {"fp64": 5.2, "fp64_tensor": 10.3, "fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0,
             "int8": 330.0},
            "NVIDIA A30 Tensor Core GPU datasheet, 2022, dense column", ("a30",), ("a30 24gb?",)),
    _nvidia("NVIDIA A40", "sm_86", 84, 48, 696.0, 6,
            {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "int8": 299.3},
            "NVIDIA A40 datasheet, 2021, dense column", ("a40",), ("a40 48gb?",)),
    _nvidia("NVIDIA T4", "sm_75", 40, 16, 320.0, 4, {"fp32": 8.1, "fp16": 65.0, "int8": 130.0},
            "NVIDIA T4 Tensor Core GPU datasheet, 2019", ("t4",), ("t4 16gb?",)),
    *(
        _nvidia(f"NVIDIA V100 {form} {gb}GB", "sm_70", 80, gb, bandwidth, 6, rates,
                "NVIDIA V100 Tensor Core GPU datasheet, January 2020", names, aliases)
        for form, gb, bandwidth, rates, names, aliases in (
            ("SXM2", 16, 900.0, {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}, ("v100 sxm2 16gb",),
             ("v100", "v100 sxm2?", "v100 16gb?")),
            ("SXM2", 32, 900.0, {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0}, ("v100 sxm2 32gb", "v100 sxm2 32gb ls"),
             ("v100", "v100 sxm2?", "v100 32gb?")),
            ("PCIe", 16, 900.0, {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0}, ("v100 pcie 16gb",), ("v100 pcie",)),
            ("PCIe", 32, 900.0, {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0}, ("v100 pcie 32gb",), ("v100 pcie",)),
            ("S PCIe", 32, 1134.0, {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0}, ("v100s pcie 32gb",),
             ("v100s", "v100s pcie")),
        )
    ),
    # ---- NVIDIA workstation and GeForce -----------------------------------------------------------------
    _nvidia("NVIDIA RTX A6000", "sm_86", 84, 48, 768.0, 6,
            {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8, "int8": 309.7},
            "NVIDIA Ampere GA102 GPU architecture whitepaper v2.1, RTX A6000 column, dense",
            ("rtx a6000",), ("a6000",)),
    _nvidia("NVIDIA RTX 6000 Ada Generation", "sm_89", 142, 48, 960.0, 96,
            {"fp32": 91.1, "tf32": 182.1, "fp16": 364.2, "bf16": 364.2, "fp8": 728.5, "int8": 728.5},
            "NVIDIA RTX 6000 Ada Generation datasheet, 2023 (tensor figure with sparsity); Ada professional"
            " architecture whitepaper, dense", ("rtx 6000 ada generation",), ("rtx 6000 ada", "rtx6000 ada", "6000 ada")),
    _nvidia("NVIDIA GeForce RTX 5090", "sm_120", 170, 32, 1792.0, 96,
            {"fp64": 1.64, "fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419.0,
             "int8": 838.0, "fp4": 1676.0},
            "NVIDIA RTX Blackwell GPU architecture whitepaper v1.1, RTX 5090 column, dense",
            ("geforce rtx 5090",), ("rtx 5090", "5090", "rtx5090"), _FP16_ACC),
    _nvidia("NVIDIA GeForce RTX 4090", "sm_89", 128, 24, 1008.0, 72,
            {"fp64": 1.29, "fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6},
            "NVIDIA Ada GPU architecture whitepaper v2.1, RTX 4090 column, dense",
            ("geforce rtx 4090",), ("rtx 4090", "4090", "rtx4090"), _FP16_ACC),
    _nvidia("NVIDIA GeForce RTX 3090", "sm_86", 82, 24, 936.0, 6,
            {"fp64": 0.56, "fp32": 35.6, "tf32": 35.6, "fp16": 71.0, "bf16": 71.0, "int8": 284.0},
            "NVIDIA Ampere GA102 GPU architecture whitepaper v2.1, RTX 3090 column, dense",
            ("geforce rtx 3090",), ("rtx 3090", "3090", "rtx3090"), _FP16_ACC),
    _nvidia("NVIDIA GeForce RTX 2080 Ti", "sm_75", 68, 11, 616.0, 5.5,
            {"fp32": 13.4, "fp16": 53.8, "int8": 215.2},
            "NVIDIA Turing GPU architecture whitepaper WP-09183-001, RTX 2080 Ti reference card column",
            ("geforce rtx 2080 ti",), ("rtx 2080 ti", "2080 ti", "2080ti", "rtx 2080ti"), _FP16_ACC),
    # ---- AMD --------------------------------------------------------------------------------------------
    _amd("MI355X", "gfx950", 256, 288, 8000.0, 32,
         {"fp64": 78.6, "fp64_tensor": 78.6, "fp32": 157.3, "fp32_tensor": 157.3, "fp16": 2516.6,
          "bf16": 2516.6, "fp8": 5033.2, "int8": 5033.2, "fp4": 10066.3},
         "AMD Instinct MI355X GPU datasheet, 2025", ("mi355x(?: vf)?",), _INFINITY),
    _amd("MI325X", "gfx942", 304, 256, 6000.0, 32,
         {"fp64": 81.7, "fp64_tensor": 163.4, "fp32": 163.4, "fp32_tensor": 163.4, "tf32": 653.7,
          "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
         "AMD Instinct MI325X accelerator datasheet, October 2024", ("mi325x(?: vf)?",), _INFINITY),
    _amd("MI300X", "gfx942", 304, 192, 5300.0, 32,
         {"fp64": 81.7, "fp64_tensor": 163.4, "fp32": 163.4, "fp32_tensor": 163.4, "tf32": 653.7,
          "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9},
         "AMD Instinct MI300X accelerator datasheet, December 2023", ("mi300x(?: vf)?(?: hf)?",), _INFINITY),
    _amd("MI300A", "gfx942", 228, 128, 5300.0, 24,
         {"fp64": 61.3, "fp64_tensor": 122.6, "fp32": 122.6, "fp32_tensor": 122.6, "tf32": 490.3,
          "fp16": 980.6, "bf16": 980.6, "fp8": 1961.2, "int8": 1961.2},
         "AMD Instinct MI300A APU datasheet, December 2023", ("mi300a(?: vf)?",), _INFINITY),
    _amd("MI250X", "gfx90a", 110, 64, 1638.4, 8,
         {"fp64": 23.95, "fp64_tensor": 47.85, "fp32": 23.95, "fp32_tensor": 47.85, "fp16": 191.5,
          "bf16": 191.5, "int8": 191.5},
         "AMD Instinct MI250X accelerator datasheet, 2021, halved", ("mi250x",), _GCD),
    _amd("MI250", "gfx90a", 104, 64, 1638.4, 8,
         {"fp64": 22.65, "fp64_tensor": 45.25, "fp32": 22.65, "fp32_tensor": 45.25, "fp16": 181.05,
          "bf16": 181.05, "int8": 181.05},
         "AMD Instinct MI250 accelerator datasheet, 2021, halved", ("mi250",), _GCD),
    _amd("MI210", "gfx90a", 104, 64, 1638.4, 8,
         {"fp64": 22.6, "fp64_tensor": 45.3, "fp32": 22.6, "fp32_tensor": 45.3, "fp16": 181.0,
          "bf16": 181.0, "int8": 181.0},
         "AMD Instinct MI210 accelerator datasheet, 2022", ("mi210",)),
    _amd("MI100", "gfx908", 120, 32, 1228.8, 8,
         {"fp64": 11.5, "fp32": 23.1, "fp32_tensor": 46.1, "fp16": 184.6, "bf16": 92.3, "int8": 184.6},
         "AMD Instinct MI100 accelerator datasheet, 2020", ("mi100",)),
)  # fmt: skip
