"""``foretrace doctor``: each failure staged on a machine that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foretrace.capture.doctor import Check, examine
from foretrace.capture.world import TorchFacts, World

CUDA = TorchFacts(
    version="2.11.0+cu130",
    cuda_runtime="13.0",
    hip_runtime=None,
    gpu_available=True,
    gpus=["NVIDIA H200"],
    activities=["CPU", "CUDA"],
)
CPU = replace(CUDA, version="2.13.0+cpu", cuda_runtime=None, gpu_available=False, gpus=[], activities=["CPU"])
RECORDED = {"device": "cuda", "operators": 9, "kernels": 2, "launches": 2, "cupti_version": 130001}
LOST = {**RECORDED, "kernels": 0, "log": "WARNING CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}


def world(
    torch: TorchFacts | str = CUDA,
    selftest: dict[str, Any] = RECORDED,
    files: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    wheels: dict[str, str] | None = None,
    which: Callable[[str], str | None] = lambda name: f"/usr/bin/{name}",
) -> World:
    """A healthy Linux machine with an H200, except for what is given."""
    files = files or {}
    wheels = {"nvidia-cuda-cupti-cu13": "13.0.85", "triton": "3.6.0"} if wheels is None else wheels

    def found(pattern: str) -> list[str]:
        if "*" not in pattern and "[" not in pattern:
            return [pattern] if pattern in files else []
        start, end = pattern.split("*")[0].split("[")[0], pattern.rpartition("/")[2].split("*")[0].split("[")[0]
        return [path for path in files if path.startswith(start) and path.rpartition("/")[2].startswith(end)]

    return World(
        env=env or {},
        platform="linux",
        read=files.get,
        glob=found,
        which=which,
        package=wheels.get,
        module_found=lambda name: name in wheels,
        site_libraries=lambda _: [],
        torch=lambda: torch,
        selftest=lambda: selftest,
    )


def checks(*args: Any, **more: Any) -> dict[str, Check]:
    return {check.name: check for check in examine(world(*args, **more))}


def test_a_healthy_machine_has_no_problem() -> None:
    found = checks()
    assert {check.state for check in found.values()} <= {"ok", "unknown"}
    assert found["gpu"].detail == "1 × NVIDIA H200, CUDA 13.0"
    assert "130001" in found["cupti"].detail


def test_a_machine_without_a_gpu_is_as_it_should_be() -> None:
    found = checks(CPU, {"device": "cpu", "operators": 5, "kernels": 0})
    assert {check.state for check in found.values()} == {"ok"}
    assert "none on this machine" in found["gpu"].detail
    assert "cupti" not in found


def test_without_torch_reading_works_and_torch_is_named() -> None:
    found = checks("recording needs PyTorch 2.4 or newer, which is not installed: pip install torch")
    assert found["torch"].state == "unknown"
    assert found["torch"].advice == "pip install torch"
    assert "2.4 or newer" in found["torch"].detail
    assert "reading traces works" in found["torch"].detail


def test_a_cpu_only_torch_beside_a_gpu() -> None:
    gpu = checks(CPU, files={"/dev/nvidia0": ""})["gpu"]
    assert gpu.state == "problem"
    assert "built without support" in gpu.detail


def test_an_amd_gpu_with_a_cuda_torch() -> None:
    gpu = checks(replace(CUDA, gpu_available=False), files={"/dev/kfd": ""})["gpu"]
    assert gpu.state == "problem"
    assert "AMD" in gpu.detail


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_a_hidden_gpu(hidden: str) -> None:
    off = replace(CUDA, gpu_available=False)
    gpu = checks(off, files={"/dev/nvidia0": ""}, env={"CUDA_VISIBLE_DEVICES": hidden})["gpu"]
    assert gpu.state == "problem"
    assert "CUDA_VISIBLE_DEVICES" in gpu.detail


def test_a_driver_that_is_too_old() -> None:
    files = {"/dev/nvidia0": "", "/proc/driver/nvidia/version": "NVRM version: … Kernel Module  470.82.01  …"}
    gpu = checks(replace(CUDA, gpu_available=False), files=files)["gpu"]
    assert gpu.state == "problem"
    assert "driver 470.82.01" in gpu.detail
    assert "CUDA 13.0" in gpu.detail


def test_a_build_without_cupti() -> None:
    assert checks(replace(CUDA, activities=["CPU"]), LOST)["activities"].state == "problem"


def test_lost_kernels_are_a_problem_with_the_profiler_s_own_words() -> None:
    selftest = checks(selftest=LOST)["selftest"]
    assert selftest.state == "problem"
    assert "2 launches and no kernel" in selftest.detail
    assert "INSUFFICIENT_PRIVILEGES" in selftest.detail


def test_a_self_test_that_crashes_is_a_problem() -> None:
    selftest = checks(selftest={"error": "the self-test ended with exit code -11: no message"})["selftest"]
    assert selftest.state == "problem"
    assert "-11" in selftest.detail


# Each cause is a problem when the self-test failed, and a remark when it worked.
CAUSES = [
    (
        "ld_library_path",
        {"env": {"LD_LIBRARY_PATH": "/usr/local/cuda/extras/CUPTI/lib64"}}
        | {"files": {"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12": ""}},
        "another CUPTI",
        "take /usr/local/cuda/extras/CUPTI/lib64 out",
    ),
    (
        "ld_library_path",
        {"env": {"LD_LIBRARY_PATH": "/opt/lib:/usr/local/cuda/lib64/stubs/"}},
        "only for linking",
        "stubs",
    ),
    (
        "permissions",
        {
            "files": {
                "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
                "/proc/self/status": "CapEff:\t0000000000000000\n",
            }
        },
        "only administrators",
        "NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        "permissions",
        {
            "files": {
                "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
                "/proc/self/status": "CapEff:\t00000000a80425fb\n",  # Docker's default set
                "/.dockerenv": "",
            }
        },
        "in this container",
        "--cap-add SYS_ADMIN",
    ),
    ("other_profilers", {"env": {"CUDA_INJECTION64_PATH": "/x.so"}}, "injected", "Nsight"),
    ("other_profilers", {"files": {"/proc/77/comm": "nv-hostengine\n"}}, "DCGM", "dcgmi profile --pause"),
]


@pytest.mark.parametrize(("name", "given", "detail", "advice"), CAUSES)
def test_a_cause_explains_lost_kernels(name: str, given: dict[str, Any], detail: str, advice: str) -> None:
    check = checks(selftest=LOST, **given)[name]
    assert check.state == "problem"
    assert detail in check.detail
    assert advice in (check.advice or "")


@pytest.mark.parametrize(("name", "given", "detail", "advice"), CAUSES)
def test_the_same_is_a_remark_when_recording_works(name: str, given: dict[str, Any], detail: str, advice: str) -> None:
    check = checks(selftest=RECORDED, **given)[name]
    assert check.state == "ok"
    assert detail in check.detail
    assert "works all the same" in check.detail


def test_root_may_profile() -> None:
    files = {
        "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
        "/proc/self/status": "CapEff:\t000001ffffffffff\n",
    }
    assert checks(selftest=LOST, files=files)["permissions"].state == "ok"


def test_no_cupti_anywhere_is_unknown_and_not_guessed() -> None:
    assert checks(selftest={**LOST, "cupti_version": None}, wheels={})["cupti"].state == "unknown"


def test_an_installed_cupti_that_was_not_loaded_is_a_problem() -> None:
    assert checks(selftest=LOST)["cupti"].state == "problem"


def test_rocm_is_asked_about_roctracer() -> None:
    rocm = replace(CUDA, cuda_runtime=None, hip_runtime="6.2", gpus=["AMD Instinct MI300X"])
    assert checks(rocm)["roctracer"].state == "ok"
    assert checks(rocm, LOST)["roctracer"].state == "problem"
    assert "cupti" not in checks(rocm)


def test_triton_and_compiler_are_named_when_missing() -> None:
    found = checks(wheels={}, which=lambda _: None)
    assert found["triton"].advice == "pip install triton"
    assert found["compiler"].state == "unknown"
