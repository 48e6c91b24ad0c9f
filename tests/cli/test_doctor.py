"""``foretrace doctor``: what it prints, and its exit code."""

from __future__ import annotations

import json

import pytest

from foretrace.capture.doctor import Check
from foretrace.cli import doctor, main

FINE = [
    Check("torch", "ok", "2.13.0"),
    Check("gpu", "ok", "1 × NVIDIA H200"),
    Check("activities", "ok", "CPU, CUDA"),
    Check("selftest", "ok", "2 kernels"),
]
BROKEN = [*FINE[:3], Check("selftest", "problem", "no kernel", "see the other lines")]
NO_GPU = [FINE[0], Check("gpu", "ok", "none on this machine"), Check("selftest", "ok", "9 operators")]
NO_TORCH = [Check("torch", "unknown", "not installed; reading works", "pip install torch")]


@pytest.mark.parametrize(
    ("checks", "code", "verdict"),
    [
        (FINE, 0, "GPU traces can be recorded"),
        (BROKEN, 1, "see selftest"),
        (NO_GPU, 0, "CPU traces can be recorded"),
        (NO_TORCH, 0, "Traces can be read; recording needs PyTorch 2.4 or newer"),
    ],
)
def test_a_problem_is_exit_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    checks: list[Check],
    code: int,
    verdict: str,
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: checks)
    assert main(["doctor"]) == code
    output = capsys.readouterr().out
    assert verdict in output
    for check in checks:
        assert check.detail in output
        assert check.advice is None or f"→ {check.advice}" in output


def test_json_holds_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: BROKEN)
    assert main(["doctor", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "foretrace.doctor/1"
    assert document["checks"][-1] == {
        "name": "selftest",
        "state": "problem",
        "detail": "no kernel",
        "advice": "see the other lines",
    }


def test_no_color_into_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: FINE)
    main(["doctor"])
    assert "\033" not in capsys.readouterr().out


def test_on_this_machine_it_records_and_finds_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("tests/gpu holds this one for machines with a GPU")
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["torch"]["state"] == "ok"
    assert checks["selftest"]["state"] == "ok"
