"""What the parts of a bench share: how variants are made (tests replace it), and small helpers on programs."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foretrace.capture.variants import check_variant, compiles, refusal_of, replays_graphs, transform
from foretrace.capture.workloads import Program
from foretrace.prediction.program.walk import tensors_of
from foretrace.timing import Clock

__all__ = ["Tools", "cold_caches", "copy_of", "mapped", "persistent_bytes", "quiet_compiler", "said", "synchronize"]


def _start_compiler(device: str) -> None:
    """Compile something trivial: imports, precompiled headers, Triton's launcher are made once, whoever is first."""
    import torch

    torch.compile(lambda x: x + 1)(torch.ones(16, device=device))


@dataclass(frozen=True)
class Tools:
    """How a variant is made of a function, and what is to be known of it."""

    transform: Callable[[Callable[..., Any], str], Callable[..., Any]] = transform
    check: Callable[[str, str], str | None] = check_variant
    refuses: Callable[[Callable[..., Any], str], str | None] = refusal_of
    replays_graphs: Callable[[str], bool] = replays_graphs
    compiles: Callable[[str], bool] = compiles
    start_compiler: Callable[[str], None] = _start_compiler
    clock: Clock | None = None  # None: that of the device
    limits: bool = True  # measure the GEMM rate and the bandwidth


def said(error: BaseException) -> str:
    """The first line of an error with its type: compilers put pages of advice after it."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def synchronize(device: str) -> None:
    """Wait for the device; a CPU has nothing to wait for."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(torch.device(device))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists and dicts with every tensor changed."""
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(mapped(item, change) for item in value)
    return value


def copy_of(program: Program) -> Program:
    """The program with weights and inputs of its own, equal to those it has now."""

    def fresh(tensor: Any) -> Any:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return replace(
        program,
        function=copy.deepcopy(program.function),
        inputs=mapped(program.inputs, fresh),
        keywords=mapped(dict(program.keywords), fresh),
    )


def persistent_bytes(program: Program) -> int:
    """Bytes of the storages of inputs, parameters and buffers, shared ones once."""
    tensors = list(tensors_of((program.inputs, dict(program.keywords))))
    for kind in ("parameters", "buffers"):
        listed = getattr(program.function, kind, None)
        tensors += list(listed()) if callable(listed) else []
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """Without Dynamo's pages of advice on graph breaks, which are counted and told; TORCH_LOGS asks for them."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    if "TORCH_LOGS" not in os.environ:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def cold_caches() -> Iterator[Callable[[], None]]:
    """Let Inductor and Triton begin with empty caches; yields what empties them again.

    What is compiled already stays usable.
    """
    import torch

    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-", ignore_cleanup_errors=True) as folder:

        def empty() -> None:
            number = next(numbers)
            for name in names:
                os.environ[name] = str(Path(folder) / f"{name.lower()}-{number}")
            utils = getattr(torch._inductor, "utils", None)
            # In memory, too; the newer name and the one up to torch 2.7.
            clear = getattr(utils, "clear_caches", None) or getattr(utils, "clear_inductor_caches", None)
            if clear is not None:
                clear()

        try:
            empty()
            yield empty
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
