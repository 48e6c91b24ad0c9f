"""``trace_program``: run one step of a program on the meta device and write down what it asks of a GPU."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from foretrace.errors import InputError
from foretrace.knowledge.compiled import PROGRESS_BARS
from foretrace.knowledge.gpus import Gpu
from foretrace.model.words import many_of
from foretrace.prediction.dispatch import FusedModules
from foretrace.prediction.program.autocast import autocast_on_gpu
from foretrace.prediction.program.failures import failure_said
from foretrace.prediction.program.fused import holds_fused, with_fused, with_liger
from foretrace.prediction.program.graphs import Compiler
from foretrace.prediction.program.lower import Lowering
from foretrace.prediction.program.observe import ModulePath, Recorder, Storages, dtype_of, observe
from foretrace.prediction.program.stand_ins import AsOnGpu, torch_version
from foretrace.prediction.program.target import to_meta
from foretrace.prediction.program.tree import build_tree
from foretrace.prediction.program.walk import tensors_of
from foretrace.prediction.variants import check_variant
from foretrace.prediction.work import Mode, Program

__all__ = ["trace_program"]

# Inputs that are named one by one; of more only the number.
_SHOWN = 4


def trace_program(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any] | None = None,
    *,
    name: str,
    variant: str = "eager",
    mode: Mode = "forward",
    gpu: Gpu | None = None,
    annotation: str | None = None,
    release: tuple[int, int] | None = None,
    fused: FusedModules | None = None,
) -> Program:
    """What one step of ``function(*inputs, **keywords)`` asks of a GPU.

    The step is what ``foretrace run`` records: ``forward`` without gradients; ``train`` forward, the sum of all
    outputs, and backward, gradients dropped before each step. One step is run before the one that is written down, so
    that an optimizer has its state and compiled code is compiled.

    Args:
        function: a module or callable; its parameters, like the inputs, on the meta device (others are moved there).
        inputs, keywords: what it is called with.
        name: what to call the program.
        variant: ``eager``, ``compile``, ``foretrace`` or ``liger``.
        mode: ``forward`` or ``train``.
        gpu: the GPU to choose attention backends and reductions for; ``None``: a recent data-centre GPU.
        release: the release of torch that will run on the GPU, ``(2, 11)``; ``None``: the one that is installed here.
        fused: what to ask about the modules of `foretrace.fused`; ``None``: they are run as PyTorch's operators.
        annotation: a `record_function` around the forward pass, as the built-in workloads have one.

    Raises:
        InputError: the variant or mode is not known, or the program needs data that the meta device does not have.
        ProfilerActiveError: a profiler is running in this process.
    """
    check_variant(variant)
    if mode not in ("forward", "train"):
        raise InputError(f"--mode {mode} is not known; choose from forward, train")
    function, inputs, keywords = to_meta(name, function, inputs, keywords or {})
    runs_with = release or torch_version()
    storages = Storages()
    notes = _not_followed(function, mode)
    function = _with_replacements(function, variant, fused, notes)
    path = ModulePath(function)
    recorder = Recorder(storages, path)
    context = Lowering(gpu, fresh=storages.fresh)
    roads = AsOnGpu(gpu, notes, runs_with)
    compiler = Compiler(roads, recorder, context.unknown) if variant == "compile" else None
    step = _make_step(function, inputs, keywords, mode, annotation, compiler)
    with ExitStack() as stack:
        stack.enter_context(_lists_as_on_gpu())
        stack.enter_context(autocast_on_gpu())
        stack.enter_context(_threads_noticed(context.unknown))
        if compiler is None:
            stack.enter_context(roads.within_functions())
            stack.enter_context(roads)
        with failure_said(name):
            step(None)
            if compiler is not None:
                compiler.start()
            with path.watched() if compiler is None else nullcontext():
                events = observe(lambda: step(recorder))
    roots = build_tree(events, recorder.calls, context, compiler.rows if compiler is not None else None)
    program = Program(name, roots, variant, mode, {}, context.unknown, list(dict.fromkeys(notes)))
    program.modelled = _modelled(function, inputs, keywords)
    program.persistent = _persistent(program)
    for tensor in tensors_of((function, inputs, dict(keywords)), modules=True):
        item = recorder.operand(tensor)
        program.persistent.setdefault(item.tensor.storage, item.access.bytes)
    return program


def _with_replacements(
    function: Callable[..., Any], variant: str, fused: FusedModules | None, notes: list[str]
) -> Callable[..., Any]:
    """The program with its MLPs run by the kernels of a variant, or by those of the fused modules it holds."""
    if variant == "liger":
        return with_liger(function)
    if variant == "foretrace":
        if fused is None:
            raise InputError("nothing was given that tells what the fused modules run; call foretrace.predict")
        function, said = fused.swap(function)
        notes += [said] if said is not None else []
    if not holds_fused(function):
        return function
    if variant == "compile" or fused is None:
        notes.append(
            "the program holds modules of foretrace.fused, and here they are predicted as PyTorch's operators, with no "
            "kernel of foretrace; predict it with --variant eager for what their dispatcher runs"
        )
        return function
    return with_fused(function, fused, notes)


@contextmanager
def _threads_noticed(unknown: dict[str, str]) -> Iterator[None]:
    """Say so where the program starts threads: what they dispatch is seen by no mode of this thread."""
    start = threading.Thread.start

    def noticed(thread: threading.Thread) -> None:
        if type(thread).__module__.partition(".")[0] != PROGRESS_BARS:
            said = "what they run is not followed, so it is in none of the numbers"
            unknown.setdefault("threads of the program", said)
        start(thread)

    threading.Thread.start = noticed  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


def _not_followed(function: Callable[..., Any], mode: Mode) -> list[str]:
    """What a GPU would do otherwise, and the meta device has no road for."""
    modules = function.modules() if isinstance(function, torch.nn.Module) else ()
    kinds = (torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
    if mode == "forward" and any(isinstance(item, kinds) and not item.training for item in modules):
        return [
            "in eval mode and without gradients torch may run nn.TransformerEncoderLayer and nn.MultiheadAttention as "
            "one fused operator (the fast path); here their operators are taken one by one"
        ]
    return []


def _modelled(function: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[str]:
    """What was traced: ``inputs [8, 256, 512] bf16`` and ``parameters 12.6 M fp32``."""
    shown = [f"{list(item.shape)} {dtype_of(item)}" for item in tensors_of((inputs, dict(keywords)), modules=True)]
    more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    said = [f"inputs {', '.join(shown[:_SHOWN])}{more}"] if shown else []
    counts: Counter[str] = Counter()
    for item in function.parameters() if isinstance(function, torch.nn.Module) else ():
        counts[dtype_of(item)] += item.numel()
    if counts:
        said.append(f"parameters {', '.join(f'{many_of(many)} {name}' for name, many in counts.most_common())}")
    return said


def _persistent(program: Program) -> dict[int, int]:
    """Storages that are read before anything in the step writes them: they were there before."""
    found: dict[int, int] = {}
    written: set[int] = set()
    for work in program.work():
        for access in work.reads:
            if access.storage not in written:
                found[access.storage] = max(found.get(access.storage, 0), access.bytes)
        written.update(access.storage for access in work.writes)
    return found


def _make_step(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
    mode: Mode,
    annotation: str | None,
    compiler: Compiler | None,
) -> Callable[[Recorder | None], None]:
    called = compiler.compile(function) if compiler is not None else function
    leaves = [
        item
        for item in tensors_of((function, inputs, dict(keywords)), modules=True)
        if item.requires_grad and item.is_leaf
    ]

    def forward(recorder: Recorder | None) -> Any:
        # Dynamo leaves code alone that runs under a dispatch mode, so compiled code reports its calls itself.
        watching = recorder if recorder is not None and compiler is None else nullcontext()
        with torch.profiler.record_function(annotation) if annotation is not None else nullcontext(), watching:
            return called(*inputs, **keywords)

    def step(recorder: Recorder | None) -> None:
        if mode == "forward":
            with torch.no_grad():
                forward(recorder)
            return
        for leaf in leaves:
            leaf.grad = None
        with torch.enable_grad():
            outputs = [item for item in tensors_of(forward(recorder), modules=True) if item.requires_grad]
            if not outputs:
                raise InputError("--mode train needs an output with gradients, and this program returns none")
            with recorder if recorder is not None else nullcontext():
                total = outputs[0].sum()
                for tensor in outputs[1:]:
                    total = total + tensor.sum()
                total.backward()

    return step


@contextmanager
def _lists_as_on_gpu() -> Iterator[None]:
    """Optimizers walk lists of tensors at once on a GPU; here they must take the meta device for one."""
    try:
        from torch.utils import _foreach_utils as module
    except ImportError:
        yield
        return
    kept = {
        name: getattr(module, name)
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices")
        if hasattr(module, name)
    }

    def with_meta(original: Callable[[], list[str]]) -> Callable[[], list[str]]:
        return lambda: [*original(), "meta"]

    users = [module, sys.modules[torch.optim.Optimizer.__module__]]
    before = [(user, name, getattr(user, name)) for user in users for name in kept if hasattr(user, name)]
    try:
        for user, name, original in before:
            setattr(user, name, with_meta(original))
        yield
    finally:
        for user, name, original in before:
            setattr(user, name, original)
