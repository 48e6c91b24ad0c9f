"""Faults that users of other fused layers reported, each as the behaviour that must hold here; the source is named.

Here: numbers and choices, in plain PyTorch and through our kernels in Triton's interpreter. Compiled graphs (7, 8),
autocast (17), adapters (18), checkpointing (22) and shards (23) are in `test_reported_faults_in_modules.py`.
`tests/gpu/test_reported_faults_gpu.py` has the same list on a GPU, and what only a GPU can show: speed (5), more than
2³¹ elements in a result (10), what TMA stores (11), many stages (27).
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreter import interpreted
from torch import Tensor
from torch.nn import functional

import foretrace
import fused_ways
import reported_faults as faults
from foretrace.errors import InputError
from foretrace.fused import gated_mlp, linear_act
from foretrace.fused.plan import Problem
from fused_ways import Way
from reported_faults import CHECKS

PLAIN = Way("plain", "cpu", torch.float32)
WAYS = {
    "plain PyTorch": PLAIN,
    "elementwise kernels": Way("elementwise", "cpu", torch.float32),
    "portable kernels": Way("portable", "cpu", torch.float16),
}
SMALL = Way("small", "cpu", torch.float16)
# Plain layers are quick enough for every subset; decoding has fewer paths of its own.
NOT_INTERPRETED = ("check_every_subset",)
OF_DECODING = ("check_tanh_gelu", "check_odd_sizes", "check_canaries", "check_nan_and_infinity")
KERNELS = Path(foretrace.__file__).parent / "fused" / "kernels"
MLP_ON_HOPPER = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=True)


def check_offsets(name: str) -> None:
    """Rows that lie 2³⁰ elements apart: the third begins where 32 bits no longer count."""
    apart, columns = 1 << 30, 40
    way = Way(name, "cpu", torch.float16)
    with tempfile.TemporaryDirectory() as folder:
        # A file with holes takes no room. In the middle of it, an offset that wraps around meets zeros.
        file = str(Path(folder) / "sparse")
        memory: Tensor = torch.from_file(file, shared=True, size=6 * apart + columns, dtype=torch.float16)

        def strided(seed: int) -> Tensor:
            place = memory.as_strided((4, columns), (apart, 1), storage_offset=2 * apart + 64 * seed)
            return place.copy_(way.normal(4, columns, seed=seed, grad=False))

        tensors = [strided(0), strided(1), strided(2), way.normal(24, 4, seed=3, grad=False)]
        dense = [one.clone() for one in tensors]
        with torch.no_grad():
            found, expected = way.run("gated_mlp", tensors), way.run("gated_mlp", dense)
            assert torch.equal(found, expected)
            assert found.any()
            if way.serves("gated_act"):
                assert torch.equal(way.run("gated_act", tensors[:2]), way.run("gated_act", dense[:2]))


CASES: dict[str, Callable[[], None]] = {
    **{
        f"{check} {way.name}": partial(CHECKS[check], way)
        for way in (*WAYS.values(), SMALL)
        for check in (OF_DECODING if way is SMALL else CHECKS)
        if way is not PLAIN and check not in NOT_INTERPRETED
    },
    **{f"check_offsets {name}": partial(check_offsets, name) for name in ("elementwise", "portable")},
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Callable[[Way], None]], None]:
    """Whether a check holds by one of the ways."""
    way = WAYS[request.param]

    def holds(check: Callable[[Way], None]) -> None:
        if way is PLAIN:
            check(way)
        else:
            assert request.getfixturevalue("outcomes")[f"{check.__name__} {way.name}"] == ""

    return holds


Holds = Callable[[Callable[[Way], None]], None]


def sources() -> Iterator[tuple[str, ast.AST]]:
    """Every node of the kernels' source code, with its file."""
    for file in sorted(KERNELS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield file.name, node


def refusal(name: str, problem: Problem, role: str = "expand", triton: tuple[int, int] = (3, 6)) -> str | None:
    from foretrace.fused.dispatch.candidates import CANDIDATES
    from foretrace.fused.dispatch.candidates import refusal as why_not
    from foretrace.fused.dispatch.environment import Environment

    candidate = next(one for one in CANDIDATES if one.name == name)
    return why_not(candidate, role, problem, Environment((2, 11), triton))  # type: ignore[arg-type]


# ---- numbers ----


def test_01_the_tanh_gelu_is_right_to_a_few_ulps(way: Holds) -> None:
    """linkedin/Liger-Kernel#959."""
    way(faults.check_tanh_gelu)


def test_02_the_product_is_no_further_from_float64_than_eagers(way: Holds) -> None:
    """linkedin/Liger-Kernel#783, EricLBuehler/mistral.rs#1867."""
    way(faults.check_rounding)


def test_03_backward_changes_no_input_and_nothing_saved(way: Holds) -> None:
    """linkedin/Liger-Kernel#254, #272, #343."""
    way(faults.check_saved_tensors)


def test_04_a_second_backward_equals_the_first(way: Holds) -> None:
    """axolotl-ai-cloud/axolotl#3892."""
    way(faults.check_second_backward)


def test_05_a_wide_row_is_shared_by_many_programs() -> None:
    """linkedin/Liger-Kernel#1330: one program a row was three times slower than torch.compile on wide rows."""
    pytest.importorskip("triton")
    from foretrace.fused.kernels.elementwise import BACKWARD_ELEMENTS, FORWARD_ELEMENTS, _block_shape

    for columns in (12288, 14336, 28672):
        for elements in (FORWARD_ELEMENTS, BACKWARD_ELEMENTS):
            rows, width = _block_shape(8192, columns, elements)
            assert rows * width == elements
            assert columns / width > 8


def test_06_no_kernel_takes_a_number_that_becomes_float64() -> None:
    """linkedin/Liger-Kernel#1350: under torch.compile a Python float is a float64 argument."""
    pytest.importorskip("triton")
    from foretrace.fused.kernels.elementwise import foretrace_elementwise_forward
    from foretrace.fused.kernels.launch import Launcher

    seen = 0
    for file, node in sources():
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list):
            seen += 1
            for argument in node.args.args:
                said = "" if argument.annotation is None else ast.unparse(argument.annotation)
                assert "float" not in said, f"{file}: {node.name}({argument.arg})"
    assert seen > 10
    names = ("GATED", "ACTIVATION", "PRECISION", "UNIT", "BLOCK_ROWS", "BLOCK_COLUMNS")
    with pytest.raises(TypeError, match="float arguments must be compile-time constants"):
        Launcher(foretrace_elementwise_forward, dict.fromkeys(names), {})((1,), 0.5)


def test_09_the_choice_is_made_once_and_is_the_same_in_every_process() -> None:
    """pytorch/pytorch#180811: an autotune picked another kernel from run to run."""
    from foretrace.fused.dispatch import plans

    assert plans.plan_for(MLP_ON_HOPPER) is plans.plan_for(replace(MLP_ON_HOPPER))
    code = (
        "from itertools import product; from foretrace.fused.dispatch.plans import plan_for; "
        "from foretrace.fused.plan import Problem; "
        "print([plan_for(Problem(o, m, 3072, k, k, d, 'silu', 'sm_90', t)) for o, m, k, d, t in "
        "product(('gated_mlp', 'mlp'), (1, 16, 300, 8192), (768, 4096), ('bfloat16', 'float32'), (True, False))])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("Plan(") == 64


@pytest.mark.parametrize("name", ["elementwise", "portable"])
def test_10_offsets_have_64_bits(name: str, outcomes: dict[str, str]) -> None:
    """deepspeedai/DeepSpeed#8590, fla-org/flash-linear-attention#1082, state-spaces/mamba#1015."""
    assert outcomes[f"check_offsets {name}"] == ""


def test_11_nothing_is_written_past_the_end_of_a_result(way: Holds) -> None:
    """triton-lang/triton#11583: a TMA store wrote on to the next 16 bytes."""
    way(faults.check_canaries)


@pytest.mark.parametrize("name", fused_ways.BY_TMA)
@pytest.mark.parametrize("n", [3071, 3076, 1])
def test_11_rows_that_do_not_end_on_16_bytes_are_not_stored_by_tma(name: str, n: int) -> None:
    for role in ("expand", "backward"):
        assert refusal(name, replace(MLP_ON_HOPPER, n=n), role) is not None
        assert refusal(name, MLP_ON_HOPPER, role) is None


@pytest.mark.parametrize("name", fused_ways.BY_TMA)
def test_12_misaligned_memory_is_not_read_by_tma(name: str) -> None:
    """triton-lang/triton#10927, #10931: silently wrong."""
    assert "16 bytes" in str(refusal(name, replace(MLP_ON_HOPPER, aligned=False)))


@pytest.mark.parametrize(
    "view",
    [
        lambda wide: wide[:, :64],
        lambda wide: wide[:, 1:],
        lambda wide: wide.flatten()[3 : 3 + 128].view(2, 64),
        lambda wide: wide[:, :64].unsqueeze(1),
        lambda wide: wide[:, None, None, :64],
        lambda wide: wide[:1, :64].expand(5, 64),
        lambda wide: wide[::2, :64],
        lambda wide: wide.flatten()[:320].view(5, 64),
        lambda wide: wide.flatten()[:320].view(5, 1, 64),
    ],
    ids=["sliced", "shifted", "address", "one row each", "4-D", "expanded", "every other", "aligned", "aligned 3-D"],
)
def test_12_whatever_the_view_what_is_called_aligned_is(view: Callable[[Tensor], Tensor]) -> None:
    """Of the matrix that a kernel gets, which is x with its leading dimensions made one."""
    from foretrace.fused.autograd.functions import rows_of
    from foretrace.fused.planning import _aligned

    x = view(torch.zeros(5, 65, dtype=torch.bfloat16))
    rows = rows_of(x)
    really = rows.data_ptr() % 16 == 0 and (rows.shape[0] == 1 or rows.stride(0) * 2 % 16 == 0)
    assert really or not _aligned(x, ())


def test_13_odd_sizes_work(way: Holds) -> None:
    """linkedin/Liger-Kernel, LigerMLP: an intermediate size of 431 raises."""
    way(faults.check_odd_sizes)


def test_14_any_number_of_dimensions_and_any_strides(way: Holds) -> None:
    """linkedin/Liger-Kernel#1347."""
    way(faults.check_layouts)


def test_14_no_rows_at_all(way: Holds) -> None:
    way(faults.check_no_rows)


def test_14_a_layer_of_no_outputs_is_left_to_plain_pytorch() -> None:
    assert gated_mlp(*[torch.ones(3, 8)] * 3, torch.ones(0, 3)).shape == (3, 0)
    for name in fused_ways.BY_TMA:  # no copy engine describes an empty matrix
        assert refusal(name, replace(MLP_ON_HOPPER, out=0), "backward") is not None


def test_15_a_gradient_of_strides_0_is_a_gradient(way: Holds) -> None:
    """Dao-AILab/quack, test_mlp_zero_stride_grad."""
    way(faults.check_gradient_of_one_number)


def test_16_each_gradient_is_right_alone_and_none_is_another(way: Holds) -> None:
    """unslothai/unsloth#3314: gate's and up's were exchanged."""
    way(faults.check_each_gradient_alone)


def test_16_gradcheck() -> None:
    wide = Way("plain", "cpu", torch.float64)
    for operation in fused_ways.OPERATIONS:
        tensors = wide.tensors(operation, (3, 4, 5, 6))
        assert torch.autograd.gradcheck(lambda *given, operation=operation: wide.run(operation, given), tensors)


def test_19_the_order_of_gate_and_up_is_what_is_said(way: Holds) -> None:
    """sgl-project/sglang#34940, vllm-project/vllm#22951."""
    way(faults.check_packings)


def test_20_the_two_gelus_are_two(way: Holds) -> None:
    """m87-labs/kestrel#162, tenstorrent/tt-metal#56387."""
    way(faults.check_both_gelus)


def test_21_the_librarys_epilogue_runs_only_where_it_computes_the_tanh() -> None:
    """NVIDIA/TensorRT-LLM#17693, pytorch/pytorch#191431: `_addmm_activation` is another function on a CPU."""
    from foretrace.fused.dispatch.overrides import override
    from foretrace.fused.unfused import library_linear_act

    x, weight, bias = torch.linspace(-4, 4, 32).view(4, 8), torch.eye(8), torch.zeros(8)
    torch.testing.assert_close(linear_act(x, weight, bias, "gelu_tanh"), functional.gelu(x, approximate="tanh"))
    torch.testing.assert_close(linear_act(x, weight, bias, "gelu"), functional.gelu(x))
    with override(expand="library"), pytest.raises(InputError, match="library was asked for and cannot be used"):
        linear_act(x, weight, bias, "gelu_tanh", precision="fast")
    with pytest.raises(InputError, match="on CUDA"):
        library_linear_act(x, weight, bias, "gelu_tanh", keep=False)
    layer = replace(MLP_ON_HOPPER, operation="linear_act", out=0, bias=True, training=False, precision="fast")
    assert refusal("library", layer) is None
    assert "tanh" in str(refusal("library", replace(layer, activation="gelu")))


def test_24_biases_of_gate_up_and_down_have_their_own_gradients(way: Holds) -> None:
    """NVIDIA/TransformerEngine#196, Dao-AILab/quack#112, AMD-AGI/Primus-Turbo#329."""
    way(faults.check_biases)


def test_24_every_subset_of_gradients() -> None:
    faults.check_every_subset(PLAIN)


# ---- choices ----


def test_25_a_wrong_configuration_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dao-AILab/quack#133, Liger on SM100: columns written twice, 45 % of the results wrong."""
    from foretrace.fused import functional as layers
    from foretrace.fused.dispatch.choice import Choice
    from foretrace.fused.dispatch.trial import Trial

    right = layers.gated_mlp

    def twice(*given: Any, plan: Any = None, **named: Any) -> Tensor:
        y = right(*given, plan=plan, **named)
        # Two columns of the many: the second as the first.
        return y if plan is None else torch.cat([y[:, :1], y[:, :1], y[:, 2:]], 1)

    problem, asked = Problem("gated_mlp", 5, 43, 37, 31, "float32", "silu", "cpu", training=False), Choice(save="input")
    trial = Trial(problem, "cpu")
    assert trial.refusal(asked) is None
    monkeypatch.setattr(layers, "gated_mlp", twice)
    assert str(trial.refusal(asked)).startswith("wrong: result 0")


def test_26_tritons_own_warp_specialisation_is_used_nowhere() -> None:
    """triton-lang/triton#9728, #8260, #10284, #8311: it crashes, hangs or is wrong."""
    for file, node in sources():
        assert not (isinstance(node, ast.keyword) and node.arg == "warp_specialize"), file


def test_26_hand_written_specialisation_stays_with_the_version_it_was_tried_on() -> None:
    assert refusal("hopper", MLP_ON_HOPPER) is None
    for version in ((3, 5), (3, 7), (3, 9)):
        assert "exactly Triton 3.6" in str(refusal("hopper", MLP_ON_HOPPER, triton=version))
        assert refusal("tma", MLP_ON_HOPPER, triton=max(version, (3, 4))) is None


def test_26_a_configuration_that_raises_is_passed_over() -> None:
    from foretrace.fused.dispatch.choice import Choice
    from foretrace.fused.dispatch.environment import Environment
    from foretrace.fused.dispatch.plans import base_plan
    from foretrace.fused.dispatch.tuning import search

    def measure(choices: Any) -> dict[Choice, float | str]:
        return {one: "raised RuntimeError: PassManager::run failed" if one != Choice() else 9.0 for one in choices}

    tuned = search(MLP_ON_HOPPER, Environment((2, 11), (3, 6)), base_plan(MLP_ON_HOPPER), measure)
    assert tuned.best == Choice().label("gated_mlp", training=True)


def test_27_descriptors_are_made_by_the_host() -> None:
    """triton-lang/triton#10474: those made on the device were misaligned with three stages or more."""
    for file, node in sources():
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            assert name not in ("make_tensor_descriptor", "_experimental_make_tensor_descriptor", "set_allocator"), file


def test_28_the_package_works_wherever_it_lies(tmp_path: Path) -> None:
    """Dao-AILab/quack outside of site-packages."""
    place = tmp_path / "some where" / "else"
    shutil.copytree(KERNELS.parents[1], place / "foretrace", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import foretrace, torch; from foretrace.fused import gated_mlp; from foretrace.fused.steps import find; "
        "x, w = torch.randn(3, 24), torch.randn(24, 24); expected = gated_mlp(x, w, w, torch.eye(24)); "
        "found = find('gate_up', 'elementwise')(x, w, w, None, None, 'gelu_tanh', keep=False)[0]; "
        "torch.testing.assert_close(found, expected); print(foretrace.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "PYTHONPATH": str(place), "TRITON_INTERPRET": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == place / "foretrace"


def test_29_nan_and_infinity_come_out_as_from_pytorch(way: Holds) -> None:
    """Dao-AILab/quack: relu(NaN) was 0."""
    way(faults.check_nan_and_infinity)


@pytest.mark.parametrize("check", OF_DECODING)
def test_01_11_13_29_hold_of_decoding_too(check: str, outcomes: dict[str, str]) -> None:
    assert outcomes[f"{check} small"] == ""


def test_results_are_the_same_bits_in_every_run(way: Holds) -> None:
    way(faults.check_repeatability)
