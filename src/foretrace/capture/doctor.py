"""Can this machine record GPU traces? Checks, each with what to do.

The self-test decides: it records one kernel. The other checks explain it. So what merely *can* spoil a
recording (CUPTI of another version on ``LD_LIBRARY_PATH``, a driver that restricts profiling, a second
profiling tool) is a problem only when the self-test failed, and a remark when it did not.

Sources of the causes: pytorch#118982 (``LD_LIBRARY_PATH`` and stubs), pytorch-cpu-feedstock#367 of conda-forge
(builds without CUPTI), PaddlePaddle/Paddle#35857 (containers), pytorch#125272 (DCGM), and NVIDIA's page on
ERR_NVGPUCTRPERM (``NVreg_RestrictProfilingToAdminUsers``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from foretrace.capture.variants import CXX_COMPILERS
from foretrace.capture.world import TorchFacts, World

__all__ = ["Check", "State", "examine"]

State = Literal["ok", "problem", "unknown"]

# Environment variables and processes by which tools that use CUPTI themselves can be known.
_INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NCU_INJECTION_PATH")
_RIVALS = {
    "nv-hostengine": "DCGM",
    "dcgm-exporter": "DCGM",
    "dcgmi": "DCGM",
    "nsys": "Nsight Systems",
    "nsys-launcher": "Nsight Systems",
    "ncu": "Nsight Compute",
}
_CAP_SYS_ADMIN = 21  # linux/capability.h


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report; ``advice`` says what to do, where there is something to do."""

    name: str
    state: State
    detail: str
    advice: str | None = None


def examine(world: World | None = None) -> list[Check]:
    """Look at everything there is to look at on this machine, most important first."""
    world = world or World()
    torch = world.torch()
    if isinstance(torch, str):
        reason, _, remedy = torch.partition(": ")
        detail = f"{reason}; reading traces works without it"
        return [Check("torch", "unknown", detail, remedy or None), _triton(world, None)]
    checks = [Check("torch", "ok", f"{torch.version} (2.4 and later are supported)"), _gpu(world, torch)]
    result = world.selftest()
    if torch.gpu_available:
        works = bool(result.get("kernels"))
        checks += [_activities(torch), _selftest_gpu(result)]
        if torch.hip_runtime is not None:
            checks.append(_roctracer(torch, result))
        else:
            checks += [_cupti(world, result, works), _library_path(world, works)]
            checks += [_permissions(world, works), _rivals(world, works)]
    else:
        checks.append(_selftest_cpu(result))
    checks += [_triton(world, torch), _compiler(world)]
    return checks


def _suspect(name: str, works: bool, detail: str, advice: str) -> Check:
    """A possible cause: a problem if recording fails, a remark if it works all the same."""
    if works:
        return Check(name, "ok", f"{detail}; recording works all the same")
    return Check(name, "problem", detail, advice)


def _gpu(world: World, torch: TorchFacts) -> Check:
    if torch.gpu_available:
        names = ", ".join(dict.fromkeys(torch.gpus))
        runtime = f"CUDA {torch.cuda_runtime}" if torch.cuda_runtime else f"ROCm {torch.hip_runtime}"
        return Check("gpu", "ok", f"{len(torch.gpus)} × {names}, {runtime}")
    nvidia = world.glob("/dev/nvidia[0-9]*")
    amd = world.glob("/dev/kfd")
    if not (nvidia or amd):
        return Check("gpu", "ok", "none on this machine; CPU traces can be recorded, any trace can be read")
    brand = "NVIDIA" if nvidia else "AMD"
    variable = "CUDA_VISIBLE_DEVICES" if nvidia else "HIP_VISIBLE_DEVICES"
    hidden = world.env.get(variable)
    if hidden is not None and (not hidden.strip() or hidden.strip().startswith("-")):
        return Check(
            "gpu",
            "problem",
            f"an {brand} GPU is there and hidden by {variable}={hidden!r}",
            "unset that variable, or set it to the number of the GPU",
        )
    if (torch.cuda_runtime is None) if nvidia else (torch.hip_runtime is None):
        return Check(
            "gpu",
            "problem",
            f"an {brand} GPU is there, and this torch ({torch.version}) is built without support for it",
            "install a torch wheel for it; the selector on pytorch.org/get-started names the command",
        )
    driver = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", world.read("/proc/driver/nvidia/version") or "")
    shown = f"driver {driver.group(1)}, " if driver else ""
    built = f"CUDA {torch.cuda_runtime}" if nvidia else f"ROCm {torch.hip_runtime}"
    return Check(
        "gpu",
        "problem",
        f"an {brand} GPU is there, and torch cannot use it ({shown}torch built for {built})",
        "run `nvidia-smi`: if it fails the driver is not loaded (in a container: start it with --gpus all); "
        "if it works the driver is too old for this torch, so update it or install a torch for an older CUDA",
    )


def _activities(torch: TorchFacts) -> Check:
    shown = ", ".join(torch.activities)
    if "CUDA" in torch.activities:
        return Check("activities", "ok", f"this torch can record {shown}")
    return Check(
        "activities",
        "problem",
        f"this torch can record {shown} only: it was built without CUPTI",
        "install the wheel from PyPI or pytorch.org instead of this build",
    )


def _selftest_gpu(result: dict[str, Any]) -> Check:
    if result.get("kernels"):
        return Check("selftest", "ok", f"{result['kernels']} kernels of a small test were recorded")
    if "error" in result:
        return Check("selftest", "problem", str(result["error"]), "see the other lines for causes")
    launches = result.get("launches") or 0
    what = f"{launches} launches and no kernel" if launches else "neither a launch nor a kernel"
    log = [line for line in str(result.get("log", "")).splitlines() if "CUPTI" in line]
    said = f"; the profiler said: {log[0].strip()}" if log else ""
    return Check("selftest", "problem", f"of a small test {what} were recorded{said}", "see the other lines for causes")


def _selftest_cpu(result: dict[str, Any]) -> Check:
    if result.get("operators"):
        return Check("selftest", "ok", f"{result['operators']} operators of a small test were recorded on the CPU")
    return Check(
        "selftest",
        "problem",
        str(result.get("error", "no operator of a small test was recorded")),
        "reinstall torch from PyPI; this one's profiler does not work",
    )


def _cupti(world: World, result: dict[str, Any], works: bool) -> Check:
    loaded = result.get("cupti_library")
    version = result.get("cupti_version")
    wheels = [
        f"{name} {found}"
        for name in ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu13", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti-cu11")
        if (found := world.package(name)) is not None
    ]
    files = world.site_libraries("nvidia/*/lib/libcupti.so*") + world.site_libraries("torch/lib/libcupti*.so*")
    parts = [part for part in (f"version {version}" if version else "", *wheels) if part]
    shown = ", ".join(parts) or "no wheel of its own"
    if loaded:
        return Check("cupti", "ok", f"{shown}, loaded from {loaded}")
    if works:
        return Check("cupti", "ok", f"{shown}; it works, and is part of torch's own libraries")
    if files or wheels:
        return Check(
            "cupti",
            "problem",
            f"{shown} is installed and was not loaded",
            "its version must be the one torch was built for: reinstall torch, so that pip brings the right one",
        )
    return Check(
        "cupti",
        "unknown",
        "no libcupti among the installed wheels",
        "builds outside PyPI need the CUPTI of a CUDA toolkit: extras/CUPTI/lib64 on LD_LIBRARY_PATH",
    )


def _library_path(world: World, works: bool) -> Check:
    name = "ld_library_path"
    folders = [folder for folder in world.env.get("LD_LIBRARY_PATH", "").split(":") if folder]
    stubs = [folder for folder in folders if folder.rstrip("/").endswith("stubs")]
    shadows = [folder for folder in folders if world.glob(f"{folder.rstrip('/')}/libcupti.so*")]
    if stubs:
        return _suspect(
            name,
            works,
            f"it holds {stubs[0]}, whose libcuda is only for linking",
            f"take {stubs[0]} out of LD_LIBRARY_PATH",
        )
    if shadows:
        return _suspect(
            name,
            works,
            f"{shadows[0]} holds another CUPTI, which comes before the one of torch's wheel",
            f"take {shadows[0]} out of LD_LIBRARY_PATH, or start with LD_LIBRARY_PATH= in front of the command",
        )
    return Check(name, "ok", "not set" if not folders else "holds no other CUPTI and no stubs")


def _permissions(world: World, works: bool) -> Check:
    name = "permissions"
    if world.platform != "linux":
        return Check(name, "unknown", "only looked at on Linux")
    params = world.read("/proc/driver/nvidia/params")
    found = re.search(r"RmProfilingAdminOnly:\s*(\d)", params or "")
    admin = _is_admin(world)
    container = bool(world.glob("/.dockerenv") or world.glob("/run/.containerenv"))
    where = " in this container" if container else ""
    if found is not None and found.group(1) == "1" and admin is False:
        advice = (
            "start the container with --cap-add SYS_ADMIN"
            if container
            else "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > "
            "/etc/modprobe.d/nvidia-profiling.conf, then reboot"
        )
        return _suspect(
            name, works, f"the driver lets only administrators profile, and this process is none{where}", advice
        )
    if container and admin is False:
        return _suspect(
            name,
            works,
            "this container has no CAP_SYS_ADMIN",
            "start the container with --cap-add SYS_ADMIN (Docker, Podman)",
        )
    if found is None:
        return Check(name, "unknown", "the driver does not say whether profiling is restricted")
    return Check(name, "ok", f"this process may profile{where}")


def _is_admin(world: World) -> bool | None:
    found = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", world.read("/proc/self/status") or "", re.MULTILINE)
    return None if found is None else bool(int(found.group(1), 16) >> _CAP_SYS_ADMIN & 1)


def _rivals(world: World, works: bool) -> Check:
    name = "other_profilers"
    for variable in _INJECTIONS:
        if world.env.get(variable):
            return _suspect(
                name,
                works,
                f"{variable} is set: another profiling tool is injected into this process",
                "CUPTI serves one tool at a time: start without Nsight Systems or Nsight Compute",
            )
    running = {
        _RIVALS[comm]
        for path in world.glob("/proc/[0-9]*/comm")
        if (comm := (world.read(path) or "").strip()) in _RIVALS
    }
    if running:
        shown = " and ".join(sorted(running))
        return _suspect(
            name,
            works,
            f"{shown} is running on this machine",
            "pause it while you record (DCGM: dcgmi profile --pause); it may hold the GPU's counters",
        )
    return Check(name, "ok", "none seen")


def _roctracer(torch: TorchFacts, result: dict[str, Any]) -> Check:
    if result.get("kernels"):
        return Check("roctracer", "ok", f"records kernels, ROCm {torch.hip_runtime}")
    return Check(
        "roctracer",
        "problem",
        f"recorded no kernel, ROCm {torch.hip_runtime}",
        "its version must be the one torch was built for; check that the user is in the groups render and video",
    )


def _triton(world: World, torch: TorchFacts | None) -> Check:
    version = world.package("triton") or world.package("pytorch-triton-rocm")
    if version is not None or world.module_found("triton"):
        return Check("triton", "ok", version or "installed")
    if torch is not None and torch.gpu_available:
        advice = "pip install triton" if world.platform == "linux" else "it has wheels for Linux only"
        return Check("triton", "unknown", "not installed; torch.compile on a GPU needs it", advice)
    return Check("triton", "ok", "not installed, and needed only for torch.compile on a GPU")


def _compiler(world: World) -> Check:
    name = "compiler"
    wanted = world.env.get("CXX")
    words = [wanted] if wanted else CXX_COMPILERS
    found = next((path for word in words if (path := world.which(word))), None)
    if found is not None:
        return Check(name, "ok", found)
    what = f"CXX={wanted} was not found" if wanted else "no C++ compiler was found"
    return Check(name, "unknown", f"{what}; torch.compile on a CPU needs one", "Debian, Ubuntu: apt install g++")
