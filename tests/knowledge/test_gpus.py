"""Device names as drivers write them find their datasheet; what is not known stays unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.knowledge.gpus import all_gpus, bandwidth_label, find, is_bandwidth, peak_for

# Names as the CUDA and HIP drivers report them.
DRIVER_NAMES = {
    "NVIDIA H200": "NVIDIA H200 SXM 141GB",
    "NVIDIA H200 NVL": "NVIDIA H200 NVL 141GB",
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM5 80GB",
    "NVIDIA H100 PCIe": "NVIDIA H100 PCIe 80GB",
    "NVIDIA H100 NVL": "NVIDIA H100 NVL 94GB",
    "NVIDIA H800": "NVIDIA H800 SXM5 80GB",
    "NVIDIA H800 PCIe": "NVIDIA H800 PCIe 80GB",
    "NVIDIA H20": "NVIDIA H20 96GB",
    "NVIDIA GH200 480GB": "NVIDIA GH200 96GB",
    "NVIDIA B200": "NVIDIA B200 180GB",
    "NVIDIA GB200": "NVIDIA GB200 186GB",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100 SXM4 80GB",
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100 SXM4 40GB",
    "A100-SXM4-40GB": "NVIDIA A100 SXM4 40GB",
    "NVIDIA A100-PG509-200": "NVIDIA A100 SXM4 40GB",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 PCIe 80GB",
    "NVIDIA A100-PCIE-40GB": "NVIDIA A100 PCIe 40GB",
    "NVIDIA L4": "NVIDIA L4",
    "NVIDIA L40": "NVIDIA L40",
    "NVIDIA L40S": "NVIDIA L40S",
    "NVIDIA A10": "NVIDIA A10",
    "NVIDIA A10G": "NVIDIA A10G",
    "NVIDIA A30": "NVIDIA A30",
    "NVIDIA A40": "NVIDIA A40",
    "Tesla T4": "NVIDIA T4",
    "Tesla V100-SXM2-16GB": "NVIDIA V100 SXM2 16GB",
    "Tesla V100-SXM2-32GB": "NVIDIA V100 SXM2 32GB",
    "Tesla V100-PCIE-32GB": "NVIDIA V100 PCIe 32GB",
    "NVIDIA RTX A6000": "NVIDIA RTX A6000",
    "NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA GeForce RTX 5090": "NVIDIA GeForce RTX 5090",
    "NVIDIA GeForce RTX 4090": "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 2080 Ti": "NVIDIA GeForce RTX 2080 Ti",
    "AMD Instinct MI355X": "AMD Instinct MI355X",
    "AMD Instinct MI325X": "AMD Instinct MI325X",
    "AMD Instinct MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X VF": "AMD Instinct MI300X",
    "AMD Instinct MI300A": "AMD Instinct MI300A",
    "AMD Instinct MI250X": "AMD Instinct MI250X",
    "AMD Instinct MI210": "AMD Instinct MI210",
    "AMD Instinct MI100": "AMD Instinct MI100",
}


@pytest.mark.parametrize(("name", "expected"), DRIVER_NAMES.items())
def test_driver_name_finds_its_datasheet(name: str, expected: str) -> None:
    gpu = find(name)
    assert gpu is not None
    assert gpu.name == expected


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("H200", "NVIDIA H200 SXM 141GB"),
        ("h100-sxm", "NVIDIA H100 SXM5 80GB"),
        ("h100", "NVIDIA H100 SXM5 80GB"),
        ("H100 PCIe", "NVIDIA H100 PCIe 80GB"),
        ("A100", "NVIDIA A100 SXM4 80GB"),
        ("a100-40gb", "NVIDIA A100 SXM4 40GB"),
        ("a100_pcie", "NVIDIA A100 PCIe 80GB"),
        ("b200", "NVIDIA B200 180GB"),
        ("V100", "NVIDIA V100 SXM2 16GB"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("2080ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("mi300x", "AMD Instinct MI300X"),
        ("MI250X", "AMD Instinct MI250X"),
    ],
)
def test_what_a_user_types_finds_the_usual_variant(typed: str, expected: str) -> None:
    gpu = find(typed)
    assert gpu is not None
    assert gpu.name == expected


def test_facts_choose_between_variants_of_one_name() -> None:
    def name(typed: str, **facts: int) -> str | None:
        gpu = find(typed, sms=facts.get("sms"), memory_bytes=facts.get("memory_bytes"))
        return None if gpu is None else gpu.name

    assert name("A100", memory_bytes=42_297_524_224) == "NVIDIA A100 SXM4 40GB"
    assert name("H100", sms=114) == "NVIDIA H100 PCIe 80GB"
    assert name("NVIDIA GH200 480GB", memory_bytes=int(142.5 * 2**30)) == "NVIDIA GH200 144GB"
    assert name("AMD Instinct MI250X/MI250", sms=104) == "AMD Instinct MI250"
    assert name("AMD Instinct MI250X/MI250", sms=110) == "AMD Instinct MI250X"


def test_a_device_that_contradicts_the_datasheet_is_unknown() -> None:
    # a slice of an A100 (MIG), by name and by size; a partition of an MI300X; another generation's name
    assert find("NVIDIA A100-SXM4-80GB MIG 1g.10gb") is None
    assert find("NVIDIA A100-SXM4-80GB", sms=14) is None
    assert find("AMD Instinct MI300X", sms=38) is None
    assert find("NVIDIA H200", compute_capability="8.0") is None


@pytest.mark.parametrize("name", [None, "", "   ", "NVIDIA", "NVIDIA X9000", "AMD Radeon Graphics", "L4 or so"])
def test_unknown_names_are_unknown(name: str | None) -> None:
    assert find(name) is None


def test_a_name_that_says_nothing_is_decided_by_size_only_if_one_part_fits() -> None:
    unnamed = "AMD Radeon Graphics"
    mi300x = find(unnamed, sms=304, memory_bytes=206_141_652_992)
    assert mi300x is not None
    assert mi300x.short == "MI300X"
    # 104 compute units and 64 GB are an MI210 as well as a die of an MI250.
    assert find(unnamed, sms=104, memory_bytes=68_702_699_520) is None


def test_capability_in_an_amd_trace_is_no_contradiction() -> None:
    # Kineto writes 9.0 for gfx90a, the number that means Hopper on NVIDIA.
    gpu = find("AMD Instinct MI210", sms=104, memory_bytes=68_702_699_520, compute_capability="9.0")
    assert gpu is not None
    assert gpu.arch == "gfx90a"


def test_the_h200_of_the_sample_traces() -> None:
    gpu = find("NVIDIA H200", sms=132, memory_bytes=150_109_880_320, compute_capability="9.0")
    assert gpu is not None
    assert (gpu.sms, gpu.memory_bandwidth_gbps, gpu.l2_bytes) == (132, 4800.0, 50 * 2**20)
    assert gpu.note is not None
    assert "60 MB" in gpu.note
    assert peak_for(gpu, "c10::BFloat16", True) == (989.4, "bf16 tensor, dense, H200 datasheet")


@pytest.mark.parametrize(
    ("name", "dtype", "tensor_cores", "rate"),
    [
        ("H200", "torch.float8_e4m3fn", True, 1978.9),
        ("H200", "float", True, 494.7),  # fp32 on tensor cores is TF32
        ("H200", "float", False, 66.9),
        ("H200", "double", True, 66.9),
        ("H200", "double", False, 33.5),
        ("A100", "c10::Half", True, 312.0),
        ("A100", "c10::Float8_e4m3fn", True, None),  # Ampere has no FP8
        ("T4", "c10::BFloat16", True, None),  # Turing has no BF16
        ("V100", "float", True, None),  # Volta has no TF32
        ("V100", "float", False, 15.7),
        ("MI300X", "float", True, 163.4),  # FP32 matrix cores, not TF32
        ("MI300X", "tf32", True, 653.7),
        ("RTX 4090", "c10::Half", True, 165.2),  # FP32 accumulation
        ("H200", "c10::BFloat16", False, None),  # not stated: no guess
        ("H200", "nonsense", True, None),
    ],
)
def test_peak_by_type(name: str, dtype: str, tensor_cores: bool, rate: float | None) -> None:
    gpu = find(name)
    assert gpu is not None
    peak = peak_for(gpu, dtype, tensor_cores)
    assert (None if peak is None else peak[0]) == rate


def test_every_entry_is_complete_and_dense() -> None:
    names = [gpu.name for gpu in all_gpus()]
    assert len(names) == len(set(names))
    for gpu in all_gpus():
        assert gpu.source, gpu.name
        assert gpu.sms > 0
        assert gpu.memory_bandwidth_gbps > 0
        assert gpu.peak_tflops["fp16"] > gpu.peak_tflops["fp32"]
        # Dense rates halve with each doubling of the type; a sparse figure by mistake would show here.
        if "fp8" in gpu.peak_tflops:
            assert gpu.peak_tflops["fp8"] == pytest.approx(2 * gpu.peak_tflops["fp16"], rel=0.02), gpu.name


def test_every_name_in_the_table_finds_its_own_entry_or_a_sibling() -> None:
    for gpu in all_gpus():
        found = find(gpu.name, memory_bytes=gpu.memory_gb * 2**30) or find(gpu.short)
        assert found is not None, gpu.name
        assert found.peak_tflops["fp16"] == gpu.peak_tflops["fp16"]


@given(st.text(), st.integers(-1, 500), st.integers(-1, 2**40))
def test_any_text_is_answered(name: str, sms: int, memory: int) -> None:
    found = find(name, sms=sms, memory_bytes=memory)
    assert found is None or found in all_gpus()


def test_the_bandwidth_of_every_part_is_told_from_its_other_rates() -> None:
    for gpu in all_gpus():
        assert is_bandwidth(bandwidth_label(gpu))
        peaks = [peak_for(gpu, dtype, units) for dtype in ("fp32", "fp64", "bf16") for units in (True, False)]
        assert not any(is_bandwidth(peak[1]) for peak in peaks if peak is not None)
    assert len({bandwidth_label(gpu) for gpu in all_gpus()}) == len(all_gpus())
