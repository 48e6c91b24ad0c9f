"""What each implementation needs, and the reason given where it cannot serve."""

import inspect
from dataclasses import replace

import pytest
import torch

from foretrace.errors import InputError
from foretrace.fused.dispatch.candidates import CANDIDATES, Candidate, possible, refusal, untried
from foretrace.fused.dispatch.choice import ROLES
from foretrace.fused.dispatch.environment import Environment, capability, named_architecture
from foretrace.fused.dispatch.machine import Gpu, gpu_of, may_measure
from foretrace.fused.plan import Problem
from foretrace.fused.steps import STEPS_OF, find, names

H200 = Environment(torch=(2, 11), triton=(3, 6))
MLP = Problem("gated_mlp", 8192, 3072, 768, 768, "bfloat16", "gelu_tanh", "sm_90", training=True)


def names_of(role: str, problem: Problem, environment: Environment = H200) -> list[str]:
    return [candidate.name for candidate in possible(role, problem, environment)]


def reason(name: str, problem: Problem, role: str = "expand", environment: Environment = H200) -> str | None:
    return refusal(next(c for c in CANDIDATES if c.name == name), role, problem, environment)


def test_on_hopper_everything_but_decode_and_library_serves_a_large_gated_mlp():
    assert names_of("expand", MLP) == ["plain", "elementwise", "portable", "tma", "hopper"]
    assert names_of("backward", MLP) == ["plain", "elementwise", "portable", "tma", "hopper"]
    assert names_of("project", MLP) == ["plain"]


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "cpu"},
        {"architecture": "mps"},
        {"architecture": "gfx942"},
        {"architecture": "sm_75"},
        {"dtype": "float64"},
        {"m": 0},
        {"n": 0},
    ],
)
def test_plain_is_all_there_is(changes: dict[str, object]):
    for role in ROLES:
        assert names_of(role, replace(MLP, **changes)) == ["plain"]


def test_without_triton_plain_is_all_there_is():
    for role in ROLES:
        assert names_of(role, MLP, Environment((2, 11), None)) == ["plain"]


def test_float32_stays_with_cublas_and_the_elementwise_kernel():
    assert names_of("expand", replace(MLP, dtype="float32")) == ["plain", "elementwise"]


def test_tma_needs_aligned_rows_of_whole_16_bytes():
    assert "16 bytes" in reason("tma", replace(MLP, aligned=False))
    assert "N to be a multiple of 8, it is 3071" in reason("tma", replace(MLP, n=3071))
    assert "K to be a multiple of 8, it is 431" in reason("hopper", replace(MLP, k=431))
    assert reason("tma", replace(MLP, k=431), "backward") is None
    assert "out to be a multiple of 8, it is 431" in reason("tma", replace(MLP, out=431), "backward")
    assert reason("portable", replace(MLP, n=3071, k=431, out=431, aligned=False)) is None


def test_gluon_kernels_need_the_triton_they_were_written_for():
    assert reason("hopper", MLP) is None
    for version in ((3, 5), (3, 7), None):
        assert "exactly Triton 3.6" in reason("hopper", MLP, environment=Environment((2, 11), version))
    assert "needs Hopper" in reason("hopper", replace(MLP, architecture="sm_100"))


def test_what_no_installation_mends_is_said_first():
    without = Environment((2, 11), None)
    assert reason("hopper", replace(MLP, dtype="float32"), environment=without).startswith("needs bfloat16 or float16")
    assert "N to be a multiple of 8, it is 333" in reason("hopper", replace(MLP, n=333), environment=without)
    assert "multiple of 8" in reason("tma", replace(MLP, n=333), environment=without)
    assert "at most 16 rows" in reason("small", MLP, environment=without)
    assert "there is nothing to compute" in reason("portable", replace(MLP, m=0), environment=without)


def test_architectures_go_by_their_number_or_a_name_that_is_known():
    for text in ("sm_90", "sm90", "SM_90a", "H200", "NVIDIA H100", " gh200 "):
        assert named_architecture(text) == "sm_90"
    assert [named_architecture(text) for text in ("sm_120", "gfx942", "cpu", "RTX 4090")] == [
        "sm_120",
        "gfx942",
        "cpu",
        "sm_89",
    ]
    for wrong in ("90", "hopper", "sm_9", "", 90, None):
        with pytest.raises(InputError, match="give a compute capability as 'sm_90'"):
            named_architecture(wrong)


def test_hopper_kernels_take_any_inner_size_of_whole_16_bytes():
    assert reason("hopper", replace(MLP, m=1, k=8, out=8)) is None
    assert reason("hopper", replace(MLP, m=1, k=8, out=8), "backward") is None


def test_decode_kernels_end_at_16_rows():
    assert names_of("project", replace(MLP, m=16)) == ["plain", "small"]
    assert reason("small", replace(MLP, m=17)) == "is for at most 16 rows, these are 17"
    assert names_of("project", replace(MLP, m=1, dtype="float32")) == ["plain", "small"]
    assert reason("small", replace(MLP, m=2, dtype="float32")) == "is for at most 1 row, these are 2"


def test_the_library_epilogue_is_for_tanh_gelu_of_one_product_with_bias_in_inference():
    linear = Problem(
        "linear_act", 8192, 4096, 1024, 0, "bfloat16", "gelu_tanh", "sm_90", False, bias=True, precision="fast"
    )
    assert reason("library", linear) is None
    for changes in ({"activation": "gelu"}, {"bias": False}, {"training": True}, {"precision": "exact"}):
        assert reason("library", replace(linear, **changes)) is not None
    assert "no kernel for this step of gated_mlp" in reason("library", MLP)


def test_an_activation_alone_has_no_product_to_fuse():
    act = Problem("gated_act", 4096, 3072, 0, 0, "bfloat16", "silu", "sm_90", training=True)
    assert names_of("expand", act) == ["plain", "elementwise"]
    assert names_of("backward", act) == ["plain", "elementwise"]
    linear = replace(act, operation="linear_act", k=768)
    assert names_of("backward", linear) == ["plain", "elementwise"]


def test_kernels_are_not_trusted_on_an_architecture_they_were_not_run_on():
    blackwell = replace(MLP, architecture="sm_100")
    portable = next(c for c in CANDIDATES if c.name == "portable")
    assert refusal(portable, "expand", blackwell, H200) is None
    assert "not been run on sm_100" in untried(portable, blackwell)
    assert untried(portable, MLP) is None


def test_every_implementation_of_every_step_has_its_limits_here():
    known = {candidate.name for candidate in CANDIDATES}
    for steps in STEPS_OF.values():
        for step in steps:
            assert step is None or set(names(step)) <= known


def test_variants_are_ordered_by_name_and_belong_to_steps_that_exist():
    for candidate in CANDIDATES:
        for variant in candidate.variants:
            assert candidate.name in names(variant.step)
            assert variant.options == tuple(sorted(variant.options))


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda c: c.name)
def test_every_variant_is_an_option_of_its_kernel(candidate: Candidate):
    """Options a kernel has not would be refused by every autotune, without anyone noticing."""
    pytest.importorskip("triton")
    for variant in candidate.variants:
        known = inspect.signature(find(variant.step, candidate.name)).parameters
        assert {name for name, _ in variant.options} <= known.keys()


def test_one_row_is_tried_with_nothing_that_its_registers_cannot_hold():
    """A matrix-vector kernel of 64 x 2048 weights keeps the compiler busy for minutes."""
    small = next(candidate for candidate in CANDIDATES if candidate.name == "small")
    tried = {m: small.implementations(replace(MLP, m=m), "expand") for m in (1, 2)}
    assert [dict(one.options) for one in tried[1]] == [{}, {"pdl": 1}]
    assert {"block_n": 64} in [dict(one.options) for one in tried[2]]
    assert [dict(one.options) for one in small.implementations(replace(MLP, m=1), "project")] == [{}, {"pdl": 1}]


@pytest.mark.parametrize("step", ["gate_up", "linear_act"])
def test_one_row_refuses_a_wide_block(step: str):
    pytest.importorskip("triton")
    x, weight = torch.zeros(1, 64), torch.zeros(64, 64)
    weights = (weight, weight, None, None) if step == "gate_up" else (weight, None)
    with pytest.raises(InputError, match="block_n=64 is for more rows than one"):
        find(step, "small")(x, *weights, "silu", keep=False, block_n=64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("sm_90", (9, 0)), ("sm_90a", (9, 0)), ("sm_103", (10, 3)), ("cpu", None), ("gfx942", None), ("sm_9", None)],
)
def test_compute_capability_from_its_name(text: str, expected: tuple[int, int] | None):
    assert capability(text) == expected


def test_a_process_without_a_gpu_has_none_of_any_architecture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    gpu_of.cache_clear()
    assert gpu_of("sm_90") is None
    assert gpu_of("cpu") is None
    gpu_of.cache_clear()


def test_the_first_gpu_of_an_architecture_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda index: [(8, 0), (9, 0)][index])
    monkeypatch.setattr("torch.cuda.get_device_name", lambda index: ["A100", "H200"][index])
    gpu_of.cache_clear()
    assert gpu_of("sm_90") == Gpu(1, "H200")
    assert gpu_of("sm_89") is None
    gpu_of.cache_clear()


def test_measuring_is_allowed_in_plain_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    assert may_measure()
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: True)
    assert not may_measure()
