"""Which lines of a stack are the program's: the same stack as torch records it, cut down to what matters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.memory.frames import module_of, own_lines, where
from foretrace.memory.snapshot import Frame

SITE = "/opt/venv/lib/python3.12/site-packages"

UNWIND = Frame("torch::unwind::unwind()", "??", 0)
ALLOCATOR = Frame(
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)",
    "CUDACachingAllocator.cpp",
    0,
)
EMPTY = Frame("at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>, std::optional<bool>)", "??", 0)
ADDMM = Frame("at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)", "??", 0)
EVALUATE = Frame("_PyEval_EvalFrameDefault", "??", 0)
LINEAR = Frame("forward", f"{SITE}/torch/nn/modules/linear.py", 125)
CALL = Frame("_call_impl", f"{SITE}/torch/nn/modules/module.py", 1784)
MLP = Frame("forward", "/home/ann/project/mlp.py", 12)
TRAIN = Frame("<module>", "/home/ann/project/train.py", 30)
LLAMA = Frame("forward", f"{SITE}/transformers/models/llama/modeling_llama.py", 177)
NODE = Frame("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", "Functions.cpp", 0)
ENGINE = Frame("_engine_run_backward", f"{SITE}/torch/autograd/graph.py", 829)
ADAM = Frame("_init_group", f"{SITE}/torch/optim/adam.py", 180)
INDUCTOR = Frame("call", "/tmp/torchinductor_ann/xy/cxyabc.py", 88)
THREAD = Frame("_bootstrap_inner", "/usr/lib/python3.12/threading.py", 1075)
FROZEN = Frame("_run_module_as_main", "<frozen runpy>", 198)


def test_a_stack_as_torch_records_it_is_one_line_of_the_program():
    stack = (UNWIND, ALLOCATOR, EMPTY, Frame("PyCMethod_New", "??", 0), TRAIN, EVALUATE, FROZEN)
    assert own_lines(stack) == ["train.py:30 in <module>"]
    assert where(stack) == "train.py:30 in <module>"


def test_lines_are_innermost_first_and_torch_and_the_interpreter_are_left_out():
    stack = (ALLOCATOR, ADDMM, LINEAR, CALL, MLP, CALL, TRAIN, THREAD, FROZEN)
    assert own_lines(stack) == ["mlp.py:12 in forward", "train.py:30 in <module>"]
    assert where(stack) == "mlp.py:12 in forward"


def test_a_line_in_a_package_is_named_from_the_package_on_with_the_program_line_behind_it():
    stack = (ALLOCATOR, LINEAR, LLAMA, CALL, TRAIN)
    assert own_lines(stack) == [
        "transformers/models/llama/modeling_llama.py:177 in forward",
        "train.py:30 in <module>",
    ]
    assert where(stack) == "transformers/models/llama/modeling_llama.py:177 in forward, from train.py:30 in <module>"


def test_a_package_without_a_line_of_the_program_stands_alone():
    assert where((LLAMA, CALL)) == "transformers/models/llama/modeling_llama.py:177 in forward"


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ((UNWIND, ALLOCATOR, EMPTY, NODE), "backward: AddmmBackward0"),
        ((ALLOCATOR, EMPTY, ADAM, CALL), "torch/optim/adam.py:180 in _init_group"),
        ((ALLOCATOR, LINEAR, CALL), "torch/nn/modules/linear.py:125 in forward"),
        ((ALLOCATOR, EMPTY, INDUCTOR), "generated code, cxyabc.py:88 in call"),
        ((ALLOCATOR, EMPTY, ADDMM), "aten::addmm"),
        ((ALLOCATOR,), "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc"),
        ((ALLOCATOR, Frame("at::cuda::getNewWorkspace()", "??", 0)), "a cuBLAS workspace"),
        ((Frame("", "??", 0),), "only frames without a name"),
        ((Frame("<lambda>", f"{SITE}/torch/utils/_foreach.py", 7),), "torch/utils/_foreach.py:7 in <lambda>"),
    ],
)  # fmt: skip
def test_without_a_line_of_the_program_the_most_telling_frame_speaks(stack: tuple[Frame, ...], said: str):
    assert own_lines(stack) == [said]
    assert where(stack) == said


def test_no_stack_is_said():
    assert own_lines(()) == []
    assert where(()) == "no stack recorded"
    assert module_of(()) is None


def test_a_workspace_that_a_library_keeps_is_named_with_the_line_that_first_needed_it():
    stack = (ALLOCATOR, Frame("at::cuda::getNewWorkspace()", "CublasHandlePool.cpp", 0), ADDMM, LINEAR, MLP, TRAIN)
    assert where(stack) == "a cuBLAS workspace, from mlp.py:12 in forward"


@pytest.mark.parametrize(
    "filename",
    [
        "/work/pytorch/torch/nn/modules/linear.py",  # a build from source
        "/work/pytorch/torch/_inductor/runtime.py",
        r"C:\Python311\Lib\site-packages\torch\_tensor.py",
        "torch/functional.py",
        "/usr/lib/python3/dist-packages/torch/functional.py",
        "/usr/lib/python3.11/contextlib.py",
        "contextlib.py",
        r"C:\Python311\Lib\threading.py",
        f"{SITE}/IPython/core/interactiveshell.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_files_that_are_not_the_program(filename: str):
    assert own_lines((Frame("f", filename, 3), TRAIN)) == ["train.py:30 in <module>"]


@pytest.mark.parametrize(
    ("filename", "shown"),
    [
        ("/home/ann/torch/train.py", "train.py:3 in f"),  # a folder of the program that is called torch
        ("/home/ann/torch/models/net.py", "net.py:3 in f"),
        (r"C:\work\net.py", "net.py:3 in f"),
        ("/home/ann/gpt/model.py", "gpt/model.py:3 in f"),
        ("/model.py", "model.py:3 in f"),
        ("<stdin>", "<stdin>:3 in f"),
        ("/tmp/ipykernel_17/2750.py", "2750.py:3 in f"),
        ("capture_traces.py", "capture_traces.py:3 in f"),
    ],
)
def test_files_of_the_program_and_how_they_are_shown(filename: str, shown: str):
    assert own_lines((ALLOCATOR, Frame("f", filename, 3))) == [shown]


def test_a_cpp_frame_with_debug_information_is_not_the_program():
    native = Frame("at::native::addmm_out(at::Tensor&)", "/pytorch/aten/src/ATen/native/cuda/Blas.cpp", 312)
    assert own_lines((native, TRAIN)) == ["train.py:30 in <module>"]


def test_the_module_is_the_innermost_forward_of_the_program():
    assert module_of((ALLOCATOR, LINEAR, CALL, MLP, CALL, TRAIN)) == "mlp.py:12 in forward"
    assert module_of((ALLOCATOR, LINEAR, CALL, TRAIN)) == "torch/nn/modules/linear.py:125 in forward"
    assert module_of((ALLOCATOR, Frame("MLP.forward", "/home/ann/mlp.py", 4))) == "mlp.py:4 in MLP.forward"
    assert module_of((ALLOCATOR, TRAIN)) is None


def test_in_the_backward_pass_the_node_is_named():
    assert module_of((ALLOCATOR, NODE)) == "backward: AddmmBackward0"
    assert module_of((ALLOCATOR, ENGINE, TRAIN)) == "backward"


anything = st.text(max_size=12)
frames = st.lists(
    st.builds(Frame, anything, st.one_of(anything, st.sampled_from([MLP.filename, LINEAR.filename, "??"])),
              st.integers(0, 99)),
    max_size=6,
)  # fmt: skip


@given(frames)
def test_any_stack_has_a_short_name_in_one_line(stack: list[Frame]):
    lines = own_lines(stack)
    assert bool(lines) == bool(stack)
    assert where(stack)
    assert all(lines)
