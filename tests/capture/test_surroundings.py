"""What is written down about the machine, and what is not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foretrace.capture.surroundings import describe, gpu_states, nvidia_smi, safe_command
from foretrace.model.sidefile import SideFile

# A line of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`
LINE = "GPU-0a1b, NVIDIA H200, 580.159, Enabled, 1980, 1980, 3201, 3201, 700.00, [N/A]"


def smi(stdout: str = LINE, returncode: int = 0) -> Any:
    return lambda *_args, **_more: SimpleNamespace(stdout=stdout, returncode=returncode)


def fake_torch(*uuids: str) -> Any:
    def properties(index: int) -> Any:
        return SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=150, uuid=uuids[index])

    return SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: len(uuids), get_device_properties=properties))


def test_clocks_and_driver_come_from_nvidia_smi() -> None:
    (state,), driver, missing = gpu_states(fake_torch("0a1b"), nvidia_smi(smi()))
    assert driver == "580.159"
    assert (state.sm_clock_mhz, state.memory_clock_max_mhz, state.power_limit_w) == (1980.0, 3201.0, 700.0)
    assert state.temperature_c is None  # "[N/A]" is not zero
    assert state.compute_capability == "9.0"
    assert missing == {}


def test_devices_are_joined_by_uuid_not_by_position() -> None:
    lines = "\n".join([LINE.replace("0a1b", "other").replace("1980", "111"), LINE])
    (state,), _, _ = gpu_states(fake_torch("0A1B"), nvidia_smi(smi(lines)))
    assert state.sm_clock_mhz == 1980.0


def test_devices_that_cannot_be_joined_have_a_reason() -> None:
    lines = "\n".join([LINE, LINE.replace("0a1b", "ffff")])
    (state,), _, missing = gpu_states(fake_torch(""), nvidia_smi(smi(lines)))
    assert state.sm_clock_mhz is None
    assert "no UUID" in missing["gpus.sm_clock_mhz"]


def test_without_nvidia_smi_there_is_a_reason() -> None:
    def absent(*_args: Any, **_more: Any) -> Any:
        raise FileNotFoundError

    def slow(*_args: Any, **_more: Any) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", 10)

    assert nvidia_smi(absent) == "nvidia-smi was not found"
    assert "TimeoutExpired" in nvidia_smi(slow)
    assert nvidia_smi(smi("", 9)) == "nvidia-smi failed with exit code 9"
    assert nvidia_smi(smi("")) == "nvidia-smi listed no GPU"
    (state,), _, missing = gpu_states(fake_torch("0a1b"), "nvidia-smi was not found")
    assert state.name == "NVIDIA H200"
    assert missing["gpus.sm_clock_mhz"] == "nvidia-smi was not found"


def test_commands_lose_paths_and_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    command = ["/opt/venv/bin/foretrace", "run", "--", str(tmp_path / "train.py"), "/home/somebody/data"]
    command += ["--hf-token", "hf_abc", "--api_key=xyz", "--lr", "3e-4", "--password", "--verbose"]
    shown = safe_command(command)
    assert shown[:5] == ["foretrace", "run", "--", "./train.py", "~/data"]
    assert shown[5:] == ["--hf-token", "***", "--api_key=***", "--lr", "3e-4", "--password", "--verbose"]


def test_python_m_foretrace_is_shown_by_its_name() -> None:
    assert safe_command(["/opt/lib/foretrace/__main__.py", "run"]) == ["foretrace", "run"]


def test_this_machine_can_be_described() -> None:
    side = SideFile()
    describe(side)
    assert side.software.python is not None
    assert side.machine.cores is not None
    assert side.created is not None
    assert side.created.endswith("+00:00")
    assert side.gpus or "gpus" in side.missing or "software.torch" in side.missing
