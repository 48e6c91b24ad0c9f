"""Variants that put other modules in the place of a program's own: which, how, and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is first imported

from foretrace.capture.renamed import renamed
from foretrace.capture.swaps import check_liger, note_of
from foretrace.capture.variants import check_variant, find_variant, make_step, transform
from foretrace.capture.workloads import WORKLOADS, Program, build
from foretrace.errors import CaptureError, InputError, MissingExtraError

torch: Any = pytest.importorskip("torch")
nn = torch.nn


class Llama(nn.Module):
    def __init__(self, act: Any) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False)
        self.down_proj = nn.Linear(12, 8, bias=False)
        self.act_fn = act

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, *mlps: Any) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.layers = nn.ModuleList(mlps)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x


def workload(*, train: bool = False) -> Program:
    torch.manual_seed(0)
    return build(WORKLOADS["mlp"], {"batch": 2, "seq": 3, "dim": 8, "hidden": 16}, "fp32", "cpu", train=train)


# ---- foretrace ----


def test_the_built_in_mlp_becomes_a_fused_module() -> None:
    program = workload()
    function = transform(program.function, "foretrace")
    assert note_of(function) == "foretrace replaced GeGLU → foretrace GatedMLP"
    torch.testing.assert_close(function(*program.inputs), program.function(*program.inputs))


def test_the_program_that_was_given_stays_as_it_is() -> None:
    program = workload()
    before = {name: id(item) for name, item in program.function.named_parameters()}
    function = transform(program.function, "foretrace")
    assert {name: id(item) for name, item in program.function.named_parameters()} == before
    assert {id(item) for item in function.parameters()} == set(before.values()), "parameters are shared"
    assert note_of(program.function) is None


def test_every_mlp_of_a_model_is_replaced_and_counted() -> None:
    torch.manual_seed(0)
    block = Block(Llama(nn.SiLU()), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))).eval()
    function = transform(block, "foretrace")
    assert note_of(function) == (
        "foretrace replaced 2 modules: Llama → foretrace GatedMLP (layers.0), Sequential → foretrace MLP (layers.1)"
    )
    assert [type(layer).__name__ for layer in function.layers] == ["GatedMLP", "MLP"]
    assert not any(module.training for module in function.modules())
    x = torch.randn(3, 8)
    torch.testing.assert_close(function(x), block(x))


class Conv1D(nn.Module):
    """As in Hugging Face's GPT-2: the weight is transposed."""

    def __init__(self, features: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(features, out)), nn.Parameter(torch.zeros(out))

    def forward(self, x: Any) -> Any:
        return torch.addmm(self.bias, x, self.weight)


class GPT2MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc, self.c_proj, self.act = Conv1D(8, 32), Conv1D(32, 8), nn.GELU(approximate="tanh")

    def forward(self, x: Any) -> Any:
        return self.c_proj(self.act(self.c_fc(x)))


def test_what_looks_like_an_mlp_and_stays_is_named_with_convert_s_own_reason() -> None:
    with pytest.raises(InputError, match="GPT2MLP cannot be converted: it keeps 'c_fc' transposed") as raised:
        transform(GPT2MLP(), "foretrace")
    assert "gate_proj" not in str(raised.value)
    function = transform(Block(*(Llama(nn.SiLU()) for _ in range(5)), GPT2MLP()), "foretrace")
    note = note_of(function)
    assert note is not None
    assert note.startswith(
        "foretrace replaced 5 modules: Llama → foretrace GatedMLP (layers.0, layers.1, layers.2 and 2 more); "
        "left alone layers.5: GPT2MLP cannot be converted"
    )


def test_a_stacked_weight_whose_order_is_not_known_is_named() -> None:
    class Phi(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj, self.down_proj = nn.Linear(8, 24), nn.Linear(12, 8)
            self.activation_fn = nn.SiLU()

    with pytest.raises(InputError, match="does not say in which order"):
        transform(Phi(), "foretrace")


def test_on_a_cpu_it_is_said_that_plain_pytorch_runs() -> None:
    for variant in ("foretrace", "foretrace+compile"):
        note = check_variant(variant, "cpu", which=lambda name: name)
        assert note is not None
        assert "PyTorch's own operators" in note
    assert check_variant("foretrace", "cuda") is None
    assert check_variant("eager", "cpu") is None


def test_gradients_reach_the_parameters_of_the_program() -> None:
    program = workload(train=True)
    said: list[str] = []
    make_step(program, "eager", "train")()
    expected = [item.grad.clone() for item in program.function.parameters()]
    make_step(program, "foretrace", "train", said.append)()
    for item, gradient in zip(program.function.parameters(), expected, strict=True):
        torch.testing.assert_close(item.grad, gradient)
    assert said == ["foretrace replaced GeGLU → foretrace GatedMLP"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x, "this program is a plain function"),
        (nn.Linear(8, 8), "found nothing to replace in Linear: a gated MLP is recognised by its gate_proj"),
        (Llama(nn.Mish()), r"an activation that is not known \(Mish\)"),
    ],
    ids=["function", "linear", "mish"],
)
def test_where_nothing_can_be_replaced_that_is_said(function: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        transform(function, "foretrace")


def test_a_module_that_hides_its_activation_is_not_guessed_at() -> None:
    module = Llama(None)
    with pytest.raises(InputError, match=r"does not say its activation; give it an attribute such as activation ="):
        renamed(module)
    module.activation = "gelu_pytorch_tanh"
    made = renamed(module)
    assert made is not None
    assert made.act_fn.approximate == "tanh"


# ---- Liger ----


def test_liger_without_a_gpu_or_the_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretrace.capture.swaps.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pip install liger-kernel"):
        check_liger("cuda")
    monkeypatch.setattr("foretrace.capture.swaps.find_spec", lambda _: True)
    with pytest.raises(CaptureError, match="needs a GPU"):
        check_variant("liger", "cpu")
    check_liger("cuda")


def test_liger_s_modules_take_the_projections() -> None:
    pytest.importorskip("liger_kernel", reason="Liger's modules need the kernels extra")
    block = Block(Llama(nn.SiLU()), Llama(nn.GELU(approximate="tanh")), Llama(nn.GELU()))
    function = transform(block, "liger")
    assert [type(layer).__name__ for layer in function.layers] == ["LigerSwiGLUMLP", "LigerGEGLUMLP", "Llama"]
    assert function.layers[0].gate_proj.weight is block.layers[0].gate_proj.weight
    with pytest.raises(InputError, match="Liger has gated MLPs with gelu_tanh and silu, and this one's is gelu"):
        transform(Llama(nn.GELU()), "liger")


# ---- the hub ----


@pytest.fixture(scope="module")
def local_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from foretrace.fused.hub import build_repository

    # A name of its own: a process can hold a build's operators only once.
    return build_repository(tmp_path_factory.mktemp("hub") / "repository", name="foretrace-fused-swaps")


def test_a_layer_of_the_hub_takes_the_module_s_place(local_repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kernels", reason="loading a repository needs the kernels extra")
    monkeypatch.setenv("LOCAL_KERNELS", f"tests/swaps={local_repository}")
    program = workload(train=True)
    function = transform(program.function, "hub:tests/swaps@1")
    assert note_of(function) == "hub:tests/swaps@1 replaced GeGLU → GatedMLP"
    assert function.forward.__func__.__module__.startswith("_foretrace_fused_swaps_cpu_")
    result = function(*program.inputs)
    torch.testing.assert_close(result, program.function(*program.inputs))
    result.sum().backward()
    assert all(item.grad is not None for item in program.function.parameters())


@pytest.mark.parametrize("name", ["hub:", "hub:fused@1", "hub:a/b", "hub:a/b@main", "hub:a/b@0"])
def test_how_a_repository_is_named(name: str) -> None:
    with pytest.raises(InputError, match="write hub:OWNER/NAME@VERSION"):
        find_variant(name)


def test_without_the_package_kernels_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretrace.capture.swaps.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foretrace\[kernels\]'"):
        check_variant("hub:a/b@1", "cpu")


def test_a_repository_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kernels", reason="loading a repository needs the kernels extra")
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    with pytest.raises(
        InputError, match=r"^the kernel nobody/nothing@1 cannot be loaded: .*; LOCAL_KERNELS=nobody/nothing=FOLDER"
    ):
        transform(workload().function, "hub:nobody/nothing@1")


def test_a_repository_without_such_a_layer_says_what_it_has(
    tmp_path: Path, local_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kernels", reason="loading a repository needs the kernels extra")
    variant = tmp_path / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    metadata = (local_repository / "build" / "torch-cpu" / "metadata.json").read_text()
    (variant / "metadata.json").write_text(metadata.replace("_foretrace_fused_swaps_cpu_", "_other_"))
    (variant / "__init__.py").write_text("from . import layers\n")
    (variant / "layers.py").write_text("import torch\n\n\nclass RMSNorm(torch.nn.Module):\n    pass\n")
    monkeypatch.setenv("LOCAL_KERNELS", f"tests/other={tmp_path}")
    with pytest.raises(InputError, match=r"has no layer for a gated MLP with gelu_tanh .* it has RMSNorm"):
        transform(workload().function, "hub:tests/other@1")
