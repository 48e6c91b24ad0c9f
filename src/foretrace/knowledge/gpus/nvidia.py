"""NVIDIA datasheets; conventions in `foretrace.knowledge.gpus`."""

from __future__ import annotations

from foretrace.knowledge.gpus.datasheet import MB, Gpu

__all__ = ["NVIDIA"]


def _nvidia(
    name: str,
    arch: str,
    sms: int,
    memory: tuple[int, float],
    l2_mb: float,
    peak_tflops: dict[str, float],
    source: str,
    names: tuple[str, ...],
    aliases: tuple[str, ...] = (),
    note: str | None = None,
    short: str | None = None,
) -> Gpu:
    digits = arch.removeprefix("sm_")
    return Gpu(
        name=f"NVIDIA {name}",
        short=short or name.removeprefix("GeForce "),
        vendor="NVIDIA",
        arch=arch,
        compute_capability=f"{digits[:-1]}.{digits[-1]}",
        sms=sms,
        memory_gb=memory[0],
        memory_bandwidth_gbps=memory[1],
        l2_bytes=int(l2_mb * MB),
        peak_tflops=peak_tflops,
        source=source,
        names=names,
        aliases=aliases,
        note=note,
    )


_HALVED = "; printed with sparsity, halved here"
_FP16_ACCUMULATION = "FP16 accumulation doubles the FP16 rate of this part; the table holds FP32 accumulation"
_L2_60 = "torch reports 60 MB of L2 for this part; NVIDIA states 50 MB"
_DRIVER = "the datasheet states no SMs and no L2; both are what the driver reports"

# fmt: off
_A100 = {
    "fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0,
    "int8": 624.0,
}
_A100_SHEET = (
    "NVIDIA A100 Tensor Core GPU datasheet, June 2021; SMs and L2: NVIDIA A100 architecture whitepaper v1.0"
)
# Dense rates of the 132-SM part at boost clock; the datasheets of H100, H200 and GH200 print twice as much.
_GH100 = {
    "fp64": 33.5, "fp64_tensor": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4,
    "fp8": 1978.9, "int8": 1978.9,
}
_GH100_SHEET = "NVIDIA H100 Tensor Core GPU architecture whitepaper v1.04, performance specifications"
_GH100_PCIE = {
    "fp64": 25.6, "fp64_tensor": 51.2, "fp32": 51.2, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0,
    "fp8": 1513.0, "int8": 1513.0,
}
_GH100_NVL = {
    "fp64": 30.0, "fp64_tensor": 60.0, "fp32": 60.0, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5,
    "fp8": 1670.5, "int8": 1670.5,
}
_BLACKWELL_SHEET = "NVIDIA Blackwell datasheet (GB200 NVL72, HGX B200), individual GPU of"
_V100_SHEET = "NVIDIA V100 Tensor Core GPU datasheet, January 2020"
_GA102_SHEET = "NVIDIA Ampere GA102 GPU architecture whitepaper v2.1, dense column"

_DATA_CENTER = (
    # The first entry whose alias fits is the one a short name means: SXM before PCIe, larger memory first.
    _nvidia(
        "A100 SXM4 80GB", "sm_80", 108, (80, 2039.0), 40, _A100, _A100_SHEET,
        ("a100 sxm4? 80gb", "a800 sxm4? 80gb"),
        ("a100", "a100 sxm4?", "a100 80gb?", "a100 80gb? sxm4?", "a800"),
        short="A100",
    ),
    _nvidia(
        "A100 SXM4 40GB", "sm_80", 108, (40, 1555.0), 40, _A100, _A100_SHEET,
        (r"a100 sxm4? 40gb", r"a100 pg509 2\d\d", "a800 sxm4? 40gb"),
        ("a100", "a100 sxm4?", "a100 40gb?", "a100 40gb? sxm4?"), short="A100",
    ),
    _nvidia(
        "A100 PCIe 80GB", "sm_80", 108, (80, 1935.0), 40, _A100, _A100_SHEET,
        ("a100 80gb pcie", "a800 80gb pcie"), ("a100 pcie", "a100 pcie 80gb?"), short="A100",
    ),
    _nvidia(
        "A100 PCIe 40GB", "sm_80", 108, (40, 1555.0), 40, _A100, _A100_SHEET,
        ("a100 pcie 40gb", "a800 pcie 40gb", "a800 40gb active"), ("a100 pcie", "a100 40gb pcie"),
        short="A100",
    ),
    _nvidia(
        "H100 SXM5 80GB", "sm_90", 132, (80, 3350.0), 50, _GH100,
        f"{_GH100_SHEET}; bandwidth: NVIDIA H100 datasheet, 2023",
        ("h100 80gb hbm3", "h100 sxm5? 80gb"), ("h100", "h100 sxm5?", "h100 80gb?"), short="H100 SXM",
    ),
    _nvidia(
        "H100 PCIe 80GB", "sm_90", 114, (80, 2039.0), 50, _GH100_PCIE, _GH100_SHEET,
        ("h100 pcie",), ("h100", "h100 80gb?", "h100 pcie 80gb?"), short="H100 PCIe",
    ),
    _nvidia(
        "H100 NVL 94GB", "sm_90", 132, (94, 3938.0), 50, _GH100_NVL,
        "NVIDIA H100 datasheet, 2024, H100 NVL column" + _HALVED,
        ("h100 nvl",), ("h100", "h100 nvl 94gb?"), short="H100 NVL",
    ),
    _nvidia(
        "H200 SXM 141GB", "sm_90", 132, (141, 4800.0), 50, _GH100,
        f"NVIDIA H200 Tensor Core GPU datasheet, November 2023 (memory, bandwidth); rates: {_GH100_SHEET}",
        ("h200",), ("h200 sxm5?", "h200 141gb?", "h200 sxm5? 141gb?"), _L2_60, short="H200",
    ),
    _nvidia(
        "H200 NVL 141GB", "sm_90", 132, (141, 4800.0), 50, _GH100_NVL,
        "NVIDIA H200 Tensor Core GPU datasheet, November 2024, H200 NVL column" + _HALVED,
        ("h200 nvl",), short="H200 NVL",
    ),
    _nvidia(
        "GH200 96GB", "sm_90", 132, (96, 4000.0), 50, _GH100,
        f"NVIDIA GH200 Grace Hopper Superchip datasheet, 2023 (memory, bandwidth); rates: {_GH100_SHEET}",
        ("gh200 480gb", "gh200 120gb", "gh200 96g hbm3"), ("gh200", "gh200 96gb?"), short="GH200",
    ),
    _nvidia(
        "GH200 144GB", "sm_90", 132, (144, 4900.0), 50, _GH100,
        f"NVIDIA GH200 Grace Hopper Superchip datasheet, 2024 (memory, bandwidth); rates: {_GH100_SHEET}",
        ("gh200 480gb", "gh200 144g hbm3e"), ("gh200", "gh200 144gb?"), short="GH200",
    ),
    _nvidia(
        "H800 SXM5 80GB", "sm_90", 132, (80, 3350.0), 50, {**_GH100, "fp64": 1.0, "fp64_tensor": 1.0},
        f"NVIDIA H800 Tensor Core GPU datasheet, 2023 (FP64, bandwidth); other dense rates: {_GH100_SHEET}",
        ("h800", "h800 80gb hbm3"), ("h800 sxm5?",), short="H800",
    ),
    _nvidia(
        "H800 PCIe 80GB", "sm_90", 114, (80, 2039.0), 50, {**_GH100_PCIE, "fp64": 0.8, "fp64_tensor": 0.8},
        f"NVIDIA H800 Tensor Core GPU datasheet, 2023 (FP64, bandwidth); other dense rates: {_GH100_SHEET}",
        ("h800 pcie",), short="H800 PCIe",
    ),
    _nvidia(
        "H20 96GB", "sm_90", 78, (96, 4000.0), 60,
        {"fp64": 1.0, "fp64_tensor": 1.0, "fp32": 44.0, "tf32": 74.0, "fp16": 148.0, "bf16": 148.0,
         "fp8": 296.0, "int8": 296.0},
        "NVIDIA H20 GPU product brief, 2023", ("h20",), ("h20 96gb?",), short="H20",
    ),
    _nvidia(
        "B200 180GB", "sm_100", 148, (180, 7700.0), 126,
        {"fp64": 37.0, "fp64_tensor": 37.0, "fp32": 75.0, "tf32": 1100.0, "fp16": 2250.0, "bf16": 2250.0,
         "fp8": 4500.0, "int8": 4500.0, "fp4": 9000.0},
        f"{_BLACKWELL_SHEET} HGX B200{_HALVED}", ("b200",), ("hgx b200", "b200 180gb?", "b200 sxm6?"),
        _DRIVER, short="B200",
    ),
    _nvidia(
        "GB200 186GB", "sm_100", 152, (186, 8000.0), 126,
        {"fp64": 40.0, "fp64_tensor": 40.0, "fp32": 80.0, "tf32": 1250.0, "fp16": 2500.0, "bf16": 2500.0,
         "fp8": 5000.0, "int8": 5000.0, "fp4": 10000.0},
        f"{_BLACKWELL_SHEET} GB200 NVL72{_HALVED}", ("gb200",), ("gb200 nvl72", "gb200 186gb?"), _DRIVER,
        short="GB200",
    ),
    _nvidia(
        "L4", "sm_89", 58, (24, 300.0), 48,
        {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0, "fp8": 242.5, "int8": 242.5},
        "NVIDIA L4 Tensor Core GPU datasheet, 2023" + _HALVED, ("l4",), ("l4 24gb?",),
    ),
    _nvidia(
        "L40S", "sm_89", 142, (48, 864.0), 96,
        {"fp32": 91.6, "tf32": 183.0, "fp16": 362.05, "bf16": 362.05, "fp8": 733.0, "int8": 733.0},
        "NVIDIA L40S GPU datasheet, 2023, dense column", ("l40s",), ("l40s 48gb?",),
    ),
    _nvidia(
        "L40", "sm_89", 142, (48, 864.0), 96,
        {"fp32": 90.5, "tf32": 90.5, "fp16": 181.05, "bf16": 181.05, "fp8": 362.0, "int8": 362.0},
        "NVIDIA L40 GPU datasheet, 2023, dense column", ("l40",), ("l40 48gb?",),
    ),
    _nvidia(
        "A10", "sm_86", 72, (24, 600.0), 6,
        {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0, "int8": 250.0},
        "NVIDIA A10 Tensor Core GPU datasheet, 2021, dense column", ("a10",), ("a10 24gb?",),
    ),
    _nvidia(
        "A10G", "sm_86", 80, (24, 600.0), 6,
        {"fp32": 35.0, "tf32": 35.0, "fp16": 70.0, "bf16": 70.0, "int8": 140.0},
        "NVIDIA A10G datasheet, 2021, dense column", ("a10g",), ("a10g 24gb?",),
    ),
    _nvidia(
        "A30", "sm_80", 56, (24, 933.0), 24,
        {"fp64": 5.2, "fp64_tensor": 10.3, "fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0,
         "int8": 330.0},
        "NVIDIA A30 Tensor Core GPU datasheet, 2022, dense column", ("a30",), ("a30 24gb?",),
    ),
    _nvidia(
        "A40", "sm_86", 84, (48, 696.0), 6,
        {"fp32": 37.4, "tf32": 74.8, "fp16": 149.7, "bf16": 149.7, "int8": 299.3},
        "NVIDIA A40 datasheet, 2021, dense column", ("a40",), ("a40 48gb?",),
    ),
    _nvidia(
        "T4", "sm_75", 40, (16, 320.0), 4, {"fp32": 8.1, "fp16": 65.0, "int8": 130.0},
        "NVIDIA T4 Tensor Core GPU datasheet, 2019", ("t4",), ("t4 16gb?",),
    ),
    _nvidia(
        "V100 SXM2 16GB", "sm_70", 80, (16, 900.0), 6, {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0},
        _V100_SHEET, ("v100 sxm2 16gb",), ("v100", "v100 sxm2?", "v100 16gb?"), short="V100",
    ),
    _nvidia(
        "V100 SXM2 32GB", "sm_70", 80, (32, 900.0), 6, {"fp64": 7.8, "fp32": 15.7, "fp16": 125.0},
        _V100_SHEET, ("v100 sxm2 32gb(?: ls)?",), ("v100", "v100 sxm2?", "v100 32gb?"), short="V100",
    ),
    _nvidia(
        "V100 PCIe 16GB", "sm_70", 80, (16, 900.0), 6, {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0},
        _V100_SHEET, ("v100 pcie 16gb",), ("v100 pcie",), short="V100 PCIe",
    ),
    _nvidia(
        "V100 PCIe 32GB", "sm_70", 80, (32, 900.0), 6, {"fp64": 7.0, "fp32": 14.0, "fp16": 112.0},
        _V100_SHEET, ("v100 pcie 32gb",), ("v100 pcie",), short="V100 PCIe",
    ),
    _nvidia(
        "V100S PCIe 32GB", "sm_70", 80, (32, 1134.0), 6, {"fp64": 8.2, "fp32": 16.4, "fp16": 130.0},
        _V100_SHEET, ("v100s pcie 32gb",), ("v100s", "v100s pcie"), short="V100S",
    ),
)
_WORKSTATION = (
    _nvidia(
        "RTX A6000", "sm_86", 84, (48, 768.0), 6,
        {"fp32": 38.7, "tf32": 77.4, "fp16": 154.8, "bf16": 154.8, "int8": 309.7},
        _GA102_SHEET, ("rtx a6000",), ("a6000",),
    ),
    _nvidia(
        "RTX 6000 Ada Generation", "sm_89", 142, (48, 960.0), 96,
        {"fp32": 91.1, "tf32": 182.1, "fp16": 364.2, "bf16": 364.2, "fp8": 728.5, "int8": 728.5},
        "NVIDIA RTX 6000 Ada Generation datasheet, 2023" + _HALVED, ("rtx 6000 ada generation",),
        ("rtx 6000 ada", "6000 ada"), short="RTX 6000 Ada",
    ),
    _nvidia(
        "GeForce RTX 5090", "sm_120", 170, (32, 1792.0), 96,
        {"fp64": 1.64, "fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419.0,
         "int8": 838.0, "fp4": 1676.0},
        "NVIDIA RTX Blackwell GPU architecture whitepaper v1.1, dense column",
        ("geforce rtx 5090",), ("(?:rtx ?)?5090",), _FP16_ACCUMULATION,
    ),
    _nvidia(
        "GeForce RTX 4090", "sm_89", 128, (24, 1008.0), 72,
        {"fp64": 1.29, "fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6},
        "NVIDIA Ada GPU architecture whitepaper v2.1, dense column",
        ("geforce rtx 4090",), ("(?:rtx ?)?4090",), _FP16_ACCUMULATION,
    ),
    _nvidia(
        "GeForce RTX 3090", "sm_86", 82, (24, 936.0), 6,
        {"fp64": 0.56, "fp32": 35.6, "tf32": 35.6, "fp16": 71.0, "bf16": 71.0, "int8": 284.0},
        _GA102_SHEET, ("geforce rtx 3090",), ("(?:rtx ?)?3090",), _FP16_ACCUMULATION,
    ),
    _nvidia(
        "GeForce RTX 2080 Ti", "sm_75", 68, (11, 616.0), 5.5,
        {"fp32": 13.4, "fp16": 53.8, "int8": 215.2},
        "NVIDIA Turing GPU architecture whitepaper WP-09183-001, reference card",
        ("geforce rtx 2080 ti",), ("(?:rtx ?)?2080 ?ti",), _FP16_ACCUMULATION,
    ),
)
# fmt: on
NVIDIA: tuple[Gpu, ...] = _DATA_CENTER + _WORKSTATION
