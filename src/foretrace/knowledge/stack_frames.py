"""Which frames of an allocation's stack are the program's, and what the others say.

Stacks are recorded by `torch.cuda.memory._record_memory_history` (torch/csrc/profiler/combined_traceback.cpp and
torch/csrc/profiler/unwind): Python frames have the file's path as the interpreter knows it and a line from 1 on; C++
frames have the symbol's name and, where no debug information is at hand, the file "??", "" or a bare source name and
the line 0.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "AUTOGRAD_NODE",
    "BACKWARD_FUNCTIONS",
    "CPP_FILES",
    "GENERATED",
    "GENERIC_FILES",
    "INSTALLED",
    "INTERPRETER_FILES",
    "LIBRARY_PLUMBING",
    "NO_STACK_TEXT",
    "OPERATOR",
    "PLUMBING_FUNCTIONS",
    "SPECIAL_ALLOCATIONS",
    "STANDARD_LIBRARY",
    "STANDARD_LIBRARY_FILES",
    "TELLING_TORCH",
    "TORCH_SOURCE",
    "UNKNOWN_FRAMES_TEXT",
]

# What is said where frames say nothing.
NO_STACK_TEXT: Final = "no stack recorded"
UNKNOWN_FRAMES_TEXT: Final = "only frames without a name"

# Endings of source files that are not Python: the unwinder names these when it finds debug information.
CPP_FILES: Final = (".cpp", ".cc", ".cxx", ".c", ".cu", ".cuh", ".h", ".hpp", ".hip", ".so", ".pyx", ".rs")

# What the interpreter itself adds around a program: frozen modules (importlib, runpy, zipimport).
INTERPRETER_FILES: Final = ("<frozen ", "<__array_function__")

# Folders of installed packages (PEP 668 and Debian's name for it); what follows is the package.
INSTALLED: Final = re.compile(r"(?:^|/)(?:site-packages|dist-packages)/")

# The standard library's place: lib/python3.11/threading.py, Lib/threading.py on Windows, python311.zip.
STANDARD_LIBRARY: Final = re.compile(
    r"(?:^|/)(?:lib(?:64)?/python3(?:\.\d+)?t?/|[Pp]ython\d[\w.]*/[Ll]ib/|python3\d+\.zip/)"
)

# Its modules that stand between a program and its own code, for stacks that hold file names without their folders.
STANDARD_LIBRARY_FILES: Final = frozenset(
    {"threading.py", "runpy.py", "contextlib.py", "functools.py", "_bootstrap.py", "_bootstrap_external.py"}
)

# torch from a source tree lies in no site-packages: .../torch/ and one of its packages or modules. A program's own
# folder may be called torch too, so the next part must be torch's.
TORCH_SOURCE: Final = re.compile(
    r"(?:^|/)(?=torch/(?:_\w+|accelerator|amp|ao|autograd|backends|compiler|cuda|distributed|distributions|export|fft|func|fx"
    r"|futures|jit|library|linalg|masked|monitor|mps|multiprocessing|nested|nn|onnx|optim|package|profiler|quantization"
    r"|sparse|special|testing|utils|xpu)/|torch/(?:functional|overrides|random|serialization|storage|hub|library|_\w+)\.py$)"
)

# Packages that hand a call on: they never are where memory is asked for. triton launches kernels; pluggy and _pytest
# call tests; IPython, ipykernel, tornado, traitlets and nest_asyncio run cells; debugpy and pydevd follow them.
LIBRARY_PLUMBING: Final = frozenset(
    {"torch", "functorch", "torchgen", "triton", "pluggy", "_pytest", "IPython", "ipykernel", "tornado", "traitlets",
     "nest_asyncio", "debugpy", "pydevd", "_pydevd_bundle", "click", "typer", "wrapt", "decorator"}
)  # fmt: skip

# Code that inductor wrote into its cache: its folder is $TMPDIR/torchinductor_USER unless TORCHINDUCTOR_CACHE_DIR
# says otherwise (torch/_inductor/runtime/cache_dir_utils.py). Dynamo and fx give theirs such names.
GENERATED: Final = re.compile(r"torchinductor|^<eval_with_key>|^<torch_package_|^<dynamo|^<inductor|/inductor_cache/")

# Functions that only hand a call on; they are recognised by their names where a stack holds no folders.
# torch/nn/modules/module.py, torch/utils/_contextlib.py, torch/optim/optimizer.py, threading, runpy.
PLUMBING_FUNCTIONS: Final = frozenset(
    {"_call_impl", "_wrapped_call_impl", "_slow_forward", "_fn", "decorate_context", "profile_hook_step",
     "_use_grad", "_use_grad_for_differentiable", "_bootstrap", "_bootstrap_inner", "_run_module_as_main", "_run_code",
     "_engine_run_backward", "_call_with_frames_removed", "__torch_function__", "__torch_dispatch__"}
)  # fmt: skip

# Python functions through which every backward pass goes (torch/autograd/graph.py, torch/autograd/function.py).
BACKWARD_FUNCTIONS: Final = frozenset({"_engine_run_backward"})

# A node of the backward graph in a C++ frame: torch::autograd::generated::AddmmBackward0::apply(...), and the nodes
# written by hand in torch/csrc/autograd/functions.
AUTOGRAD_NODE: Final = re.compile(
    r"(?:^|::|\s)(\w*Backward\d*|AccumulateGrad|CopySlices|CopyBackwards|PyNode)::apply\b"
)

# The operator of a C++ frame, in its dispatcher's entry: at::_ops::empty_memory_format::call(...), where the name of
# the operator and of its overload are joined by "_" (torchgen/api/..., ATen/Operators.h).
OPERATOR: Final = re.compile(r"\bat::_ops::(\w+)::(?:call|redispatch)\b")

# File names that say nothing without their folder.
GENERIC_FILES: Final = frozenset(
    {"__init__.py", "__main__.py", "attention.py", "base.py", "block.py", "blocks.py", "common.py", "core.py",
     "functional.py", "layer.py", "layers.py", "loss.py", "main.py", "model.py", "models.py", "module.py", "modules.py",
     "optim.py", "optimizer.py", "trainer.py", "util.py", "utils.py"}
)  # fmt: skip

# torch's own Python files by how much they tell of an allocation, where nothing else is known: the optimizer whose
# state it is, the module, the function; then any.
TELLING_TORCH: Final = ("torch/optim/", "torch/nn/modules/", "torch/nn/", "torch/distributed/", "torch/amp/")

# Memory that libraries ask for behind an operator, and that outlives it: a C++ name that shows it → what it is.
# aten/src/ATen/cuda/CublasHandlePool.cpp (one workspace a handle and stream, kept until the process ends or
# torch._C._cuda_clearCublasWorkspaces() is called), torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
# aten/src/ATen/native/cudnn/Conv_v8.cpp and Conv_v7.cpp.
SPECIAL_ALLOCATIONS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\bat::cuda::\w*(?:getNewWorkspace|CUDABlasWorkspace|CUDABlasLtWorkspace|CublasWorkspace)|"
                r"\bat::cuda::getCurrentCUDABlasHandle\b"), "a cuBLAS workspace"),
    (re.compile(r"\bc10d::ProcessGroupNCCL::"), "NCCL communication"),
    (re.compile(r"\bat::native::.*(?:run_conv_plan|allocate_workspace)"), "a cuDNN workspace"),
)  # fmt: skip
