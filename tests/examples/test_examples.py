"""The examples run as they are shown, with the article's flags, on sizes a CPU can do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from foretrace import explain
from foretrace.capture.files import SUFFIX

EXAMPLES = Path(__file__).parents[2] / "examples"
# Example → what uv installs for it.
NAMES = {
    "01_matmul_add": "foretrace[torch]",
    "02_linear": "foretrace[torch]",
    "03_simple_mlp": "foretrace[torch]",
    "03_kernels_mlp": "foretrace[torch,triton,kernels]",
    "04_fused_linear_gelu": "foretrace[torch,triton]",
    "05_memory": "foretrace[torch]",
}

RUNS = [
    ("01_matmul_add", "--size 64 --dtype fp32 --warmup", "64_fp32_warm_eager", "aten::add"),
    ("02_linear", "--batch 64 --in_dim 32 --out_dim 64", "64_32_64_eager", "aten::linear"),
    ("03_simple_mlp", "--batch 1 --seq 4 --dim 8 --hidden 16", "1_4_8_16_eager", "aten::gelu"),
    (
        "03_kernels_mlp",
        "--batch 1 --seq 4 --dim 8 --hidden 16 --only eager foretrace",
        "1_4_8_16_foretrace",
        "aten::mm",
    ),
    ("04_fused_linear_gelu", "--batch 4 --in_dim 8 --out_dim 16", "4_8_16_eager", "aten::gelu"),
    ("04_fused_linear_gelu", "--batch 4 --in_dim 8 --out_dim 16 --fused --train", "4_8_16_fused_train", "aten::gelu"),
    ("05_memory", "--batch 1 --seq 4 --dim 8 --hidden 16", "1_4_8_16_forward", "aten::gelu"),
]


@pytest.mark.parametrize(("name", "flags", "tag", "operator"), RUNS)
def test_an_example_records_and_explains(tmp_path: Path, name: str, flags: str, tag: str, operator: str) -> None:
    pytest.importorskip("torch", reason="recording needs the torch extra")
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *flags.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert operator in done.stdout
    assert "USDT" not in done.stderr
    assert done.stdout.endswith(f"trace: traces/{name}/{tag}{SUFFIX}\n")
    assert (tmp_path / "traces" / name / f"{tag}{SUFFIX}").stat().st_size > 500


@pytest.mark.parametrize("name", NAMES)
def test_an_example_can_be_run_by_uv(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    block = re.search(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///$", text, re.MULTILINE)
    assert block is not None
    metadata = tomllib.loads(re.sub(r"^# ?", "", block.group(1), flags=re.MULTILINE))
    assert (metadata["requires-python"], metadata["dependencies"]) == (">=3.11", [NAMES[name]])
    source = metadata["tool"]["uv"]["sources"]["foretrace"]["path"]
    assert (EXAMPLES / source / "pyproject.toml").exists(), "uv must find this checkout, not a released foretrace"


def test_the_kernels_example_predicts_before_it_runs_and_says_what_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="recording needs the torch extra")
    flags = "--batch 1 --seq 4 --dim 8 --hidden 16 --only eager liger foretrace"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "03_kernels_mlp.py", *flags.split()],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PREDICTED for H200: a forward step, before anything runs")
    assert re.search(r"foretrace +2 kernels, \d+ to \d+ µs of GPU", done.stdout)
    assert "liger is left out: it needs a GPU and the package liger-kernel" in done.stdout
    assert "foretrace's module runs in plain PyTorch" in done.stdout


@pytest.mark.parametrize(("flags", "kept"), [("", []), ("--train", [4096, 4096])])
def test_the_memory_example_names_gate_up_and_the_activation(tmp_path: Path, flags: str, kept: list[int]) -> None:
    pytest.importorskip("torch", reason="recording needs the torch extra")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "05_memory.py", *f"--batch 2 --seq 32 --dim 16 --hidden 32 {flags}".split()],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no snapshot: without a GPU there is no allocator history" in done.stdout
    (trace,) = tmp_path.glob("traces/05_memory/*.gz")
    memory = explain(trace).memory
    assert memory is not None
    for step in memory.devices[0].steps:
        found = step.intermediates
        assert found is not None
        wide = 2 * 32 * 32 * 2  # batch, seq, hidden, two bytes a number
        assert [(t.role, t.bytes) for t in found.tensors] == [("gate", wide), ("up", wide), ("activated", wide)]
        assert [t.kept_bytes for t in found.tensors if t.kept_bytes] == kept


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_how_to_run_it_and_what_to_guess(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert f"python examples/{name}.py" in text
    assert "Guess first, then look." in text


def readme_snippet(word: str) -> str:
    """The README's one Python snippet that has this word in it."""
    snippets = re.findall(r"```python\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.DOTALL)
    (snippet,) = [one for one in snippets if word in one]
    return snippet


def run_snippet(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_readme_s_snippet_runs_twice_and_keeps_both_traces(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="recording needs the torch extra")
    snippet = readme_snippet("foretrace.profile")
    program = f"import torch\nloader = [torch.ones(4, 4)] * 6\ndef train_step(batch): batch @ batch\n{snippet}"
    for _ in range(2):
        done = run_snippet(tmp_path, program)
        assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.glob("traces/*.gz")} == {f"train{SUFFIX}", f"train.2{SUFFIX}"}


def test_the_readme_s_fused_snippet_runs(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the torch extra")
    before = """
import torch
from types import SimpleNamespace

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = (torch.nn.Linear(8, 16, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = torch.nn.Linear(16, 8, bias=False), torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))

model, x = SimpleNamespace(mlp=Mlp()), torch.randn(4, 8)
expected = model.mlp(x)
gate_weight, up_weight, down_weight = (layer.weight for layer in model.mlp.children() if hasattr(layer, "weight"))
"""
    after = "\ntorch.testing.assert_close(model.mlp(x), expected)\nassert y.shape == x.shape"
    done = run_snippet(tmp_path, before + readme_snippet("foretrace import fused") + after)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gated_mlp" in done.stdout
