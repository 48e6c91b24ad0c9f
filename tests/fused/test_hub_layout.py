"""The Hugging Face `kernels` repository: written from the sources here, loaded offline, and the same results."""

from __future__ import annotations

import ast
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is first imported

from foretrace.errors import InputError
from foretrace.fused.hub import BACKENDS, build_repository
from foretrace.fused.hub.__main__ import main
from foretrace.fused.hub.rewrite import rewritten

torch: Any = pytest.importorskip("torch", reason="the fused modules need the torch extra")
kernels: Any = pytest.importorskip("kernels", reason="loading a repository needs the kernels extra")

nn = torch.nn
NAME = "foretrace-fused-layout"  # of its own: a process can hold a build's operators only once


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_repository(tmp_path_factory.mktemp("hub") / "repository", name=NAME, repo_id="tests/fused")


class LlamaMLP(nn.Module):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(8, 12, bias=False)
        self.up_proj = nn.Linear(8, 12, bias=False)
        self.down_proj = nn.Linear(12, 8, bias=False)
        self.act_fn = act

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class ViTMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 12), nn.Linear(12, 8)
        self.activation_fn = nn.GELU()

    def forward(self, hidden_states: Any) -> Any:
        return self.fc2(self.activation_fn(self.fc1(hidden_states)))


class BertIntermediate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 12)
        self.intermediate_act_fn = nn.functional.gelu

    def forward(self, hidden_states: Any) -> Any:
        return self.intermediate_act_fn(self.dense(hidden_states))


def kernelized(module: Any, repository: Path, layer: str, mode: Any) -> Any:
    """The module with the forward of a layer, in place; without a fallback to its own."""
    from kernels import LocalLayerRepository, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping

    replace_kernel_forward_from_hub(type(module), layer)
    mapping = {layer: {"cpu": LocalLayerRepository(repository, layer_name=layer)}}
    with use_kernel_mapping(mapping, inherit_mapping=False):
        return kernelize(module, mode=mode, device="cpu", use_fallback=False)


# ---- what is written ----


def test_every_variant_says_what_it_is(repository: Path) -> None:
    for backend in BACKENDS:
        metadata = json.loads((repository / "build" / f"torch-{backend}" / "metadata.json").read_text())
        assert metadata["id"].isidentifier()
        assert metadata["backend"] == {"type": backend}
        assert (metadata["name"], metadata["version"], metadata["python-depends"]) == (NAME, 1, [])
    recipe = tomllib.loads((repository / "build.toml").read_text())
    assert recipe["general"]["hub"]["repo-id"] == "tests/fused"
    assert recipe["general"]["backends"] == list(BACKENDS)
    assert (repository / "torch-ext" / NAME.replace("-", "_") / "layers.py").exists()
    assert "GatedMLP" in (repository / "CARD.md").read_text()


def test_no_file_imports_foretrace_itself(repository: Path) -> None:
    files = sorted((repository / "build" / "torch-cuda").rglob("*.py"))
    assert {"layers.py", "_ops.py", "functional.py", "errors.py"} <= {path.name for path in files}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level or not (node.module or "").startswith("foretrace"), path
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith("foretrace") for alias in node.names), path


def test_tuned_tables_are_copied(repository: Path) -> None:
    import foretrace.fused

    tables = Path(foretrace.fused.__file__).parent / "dispatch" / "tables"
    built = repository / "build" / "torch-cuda" / "dispatch" / "tables"
    assert {path.name for path in tables.glob("*.json")} == {path.name for path in built.glob("*.json")}


def test_the_same_sources_give_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    again = build_repository(tmp_path / "again", name=NAME, repo_id="tests/fused")
    first = {path.relative_to(repository): path for path in repository.rglob("*") if "__pycache__" not in path.parts}
    for name, path in first.items():
        if path.is_file():
            assert (again / name).read_bytes() == path.read_bytes(), name


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main([str(tmp_path)]) == 2
    assert "is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(InputError, match="cannot be called"):
        build_repository(tmp_path / "new", name="Fused_")


def test_the_command_says_how_to_try_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new"), "--repo-id", "me/fused", "--version", "2"]) == 0
    assert f"LOCAL_KERNELS=me/fused={tmp_path / 'new'}" in capsys.readouterr().out


def test_imports_and_names_of_modules_are_turned() -> None:
    source = (
        '"""foretrace.fused.steps stays in a text."""\n'
        "from foretrace.errors import InputError\n"
        "from foretrace.fused.plan import (\n    Plan,\n    Save as Kept,\n)\n"
        'home = import_module("foretrace.fused.kernels.tma")  # µ\n'
    )
    turned = rewritten(source, "foretrace.fused.autograd.compute", is_package=False)
    assert "from ..errors import (InputError)" in turned
    assert "from ..plan import (Plan, Save as Kept)" in turned
    assert 'import_module((__package__.rsplit(".", 1)[0] + ".kernels.tma"))  # µ' in turned
    assert turned.startswith('"""foretrace.fused.steps stays')
    assert "from . import (plan)" in rewritten("from foretrace.fused import plan\n", "foretrace.fused", is_package=True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import foretrace.fused.plan", "a plain import cannot be turned"),
        ('name = f"foretrace.fused.kernels.{one}"', "without an f-string"),
        ("run = torch.ops.foretrace.gated_mlp", "operators by operators.NAMESPACE"),
    ],
)
def test_what_cannot_be_turned_is_refused(line: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        rewritten(line, "foretrace.fused.steps", is_package=False)


# ---- what is loaded ----


def test_its_functions_are_those_of_foretrace(repository: Path) -> None:
    from foretrace import fused

    kernel = kernels.get_local_kernel(repository)
    torch.manual_seed(0)
    x, gate, up, down = torch.randn(5, 8), torch.randn(12, 8), torch.randn(12, 8), torch.randn(8, 12)
    for activation in fused.ACTIVATIONS:
        mine = kernel.gated_mlp(x, gate, up, down, activation=activation)
        assert torch.equal(mine, fused.gated_mlp(x, gate, up, down, activation=activation))
    assert kernel.__name__.startswith("_foretrace_fused_layout_cpu_")


def test_a_local_folder_stands_for_a_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KERNELS", f"tests/fused={repository}")
    kernel = kernels.get_kernel("tests/fused", version=1)
    assert kernel.layers.GatedMLP.has_backward
    assert kernels.has_kernel("tests/fused", version=1)


@pytest.mark.parametrize("act", [nn.SiLU(), nn.GELU(), nn.GELU(approximate="tanh")], ids=str)
@pytest.mark.parametrize("modes", ["INFERENCE", "TRAINING", "TRAINING TORCH_COMPILE"])
def test_a_gated_mlp_keeps_its_results(repository: Path, act: Any, modes: str) -> None:
    torch.manual_seed(0)
    module = LlamaMLP(act)
    x = torch.randn(2, 3, 8, requires_grad=True)
    expected = module(x)
    expected.sum().backward()
    gradients = [x.grad.clone(), *(item.grad.clone() for item in module.parameters())]
    module.zero_grad()
    x.grad = None
    mode = kernels.Mode.FALLBACK
    for index, name in enumerate(modes.split()):
        mode = kernels.Mode[name] if index == 0 else mode | kernels.Mode[name]
    own_forward = module.forward.__func__
    module = kernelized(module, repository, "GatedMLP", mode)
    assert module.forward.__func__ is not own_forward
    found = module(x)
    found.sum().backward()
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip([x.grad, *(item.grad for item in module.parameters())], gradients, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("module", "layer"), [(ViTMLP, "MLP"), (BertIntermediate, "LinearAct")])
def test_plain_mlps_keep_their_results(repository: Path, module: Any, layer: str) -> None:
    torch.manual_seed(0)
    made = module()
    x = torch.randn(2, 3, 8)
    expected = made(x)
    made = kernelized(made, repository, layer, kernels.Mode.TRAINING)
    torch.testing.assert_close(made(x), expected)


def test_an_adapter_on_a_projection_is_never_bypassed(repository: Path) -> None:
    class Adapted(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + 1

    torch.manual_seed(0)
    module = LlamaMLP(nn.SiLU())
    module.up_proj = Adapted(8, 12)
    x = torch.randn(3, 8)
    expected = module(x)
    assert torch.equal(kernelized(module, repository, "GatedMLP", kernels.Mode.TRAINING)(x), expected)


def test_an_unknown_activation_runs_as_it_is(repository: Path) -> None:
    torch.manual_seed(0)
    module = LlamaMLP(nn.Mish())
    x = torch.randn(3, 8)
    expected = module(x)
    assert torch.equal(kernelized(module, repository, "GatedMLP", kernels.Mode.TRAINING)(x), expected)


def test_a_layer_is_one_node_of_a_compiled_graph(repository: Path) -> None:
    torch.manual_seed(0)
    module = kernelized(LlamaMLP(nn.SiLU()), repository, "GatedMLP", kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE)
    x = torch.randn(3, 8)
    expected = module(x)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
