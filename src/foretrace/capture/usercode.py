"""A user's own code as a workload: ``FILE.py:FACTORY``.

The factory is called once and returns what to run and with which inputs: ``(module_or_function, inputs)``,
the inputs being a tensor, a tuple or list of arguments, or a dict of keyword arguments. A factory may take
the workload flags it wants (``batch``, ``dim``, ``dtype``, …) as parameters, and ``device``.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from foretrace.capture.workloads import DTYPES, Program
from foretrace.errors import InputError

__all__ = ["check_file", "defaults_of", "is_factory", "load_factory", "make_program"]

_RETURNS = "return (module_or_function, inputs), the inputs being a tensor, a tuple, a list or a dict"


def is_factory(word: str) -> bool:
    """Whether a command-line word is meant as ``FILE.py:FACTORY``."""
    file, colon, _ = word.rpartition(":")
    return bool(colon) and file.endswith(".py")


def check_file(word: str) -> Path:
    """The file of ``FILE.py:FACTORY``; raises :class:`InputError` where it or the factory's name is missing."""
    file, _, name = word.rpartition(":")
    path = Path(file)
    if not name:
        raise InputError(f"{word}: name the factory after the colon, as in {file}:make")
    if not path.is_file():
        raise InputError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    return path


def load_factory(word: str) -> Callable[..., Any]:
    """Import the file and return its factory.

    Raises :class:`InputError` when the file is missing or fails to import, or has no such callable.
    """
    path = check_file(word)
    name = word.rpartition(":")[2]
    module = _import(path)
    factory = getattr(module, name, None)
    if factory is None:
        functions = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        has = f"it defines {', '.join(functions[:8])}" if functions else "it defines no function"
        raise InputError(f"{path} has no {name}; {has}")
    if not callable(factory):
        raise InputError(f"{name} in {path} is not a function; write `def {name}(): …` and {_RETURNS}")
    return factory  # type: ignore[no-any-return]


def defaults_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """The plain values (numbers, texts) that a factory's parameters have where nothing is passed."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
    return {name: item.default for name, item in parameters.items() if isinstance(item.default, int | float | str)}


def _import(path: Path) -> ModuleType:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # its neighbours can be imported, as if it were run
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickling and dataclasses look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise InputError(f"{path} failed while it was imported: {_said(error)}") from error
    return module


def make_program(
    word: str, factory: Callable[..., Any], flags: Mapping[str, Any], device: str, *, train: bool
) -> Program:
    """Call the factory and check what it returns; modules and tensors are moved to ``device``.

    Raises :class:`InputError` for each way in which the factory or its result can be wrong.
    """
    import torch

    result = _call(word, factory, flags, device)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        kind = type(result).__name__
        extra = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
        raise InputError(f"{word} returned a {kind}{extra}; it must {_RETURNS}")
    function, inputs = result
    if not callable(function):
        raise InputError(f"{word} returned a {type(function).__name__} as what to run; it must {_RETURNS}")
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(inputs, torch.Tensor):
        arguments = (inputs,)
    elif isinstance(inputs, (tuple, list)):
        arguments = tuple(inputs)
    elif isinstance(inputs, dict):
        if not all(isinstance(key, str) for key in inputs):
            raise InputError(f"{word}: a dict of inputs needs the parameters' names as keys")
        keywords = inputs
    else:
        raise InputError(f"{word} returned inputs of type {type(inputs).__name__}; it must {_RETURNS}")

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().to(device) if value.is_leaf else value.to(device)
        return value.requires_grad_() if train and value.is_floating_point() and value.is_leaf else value

    try:
        if isinstance(function, torch.nn.Module):
            function = function.to(device)
        return Program(
            function,
            tuple(place(value) for value in arguments),
            {key: place(value) for key, value in keywords.items()},
        )
    except (RuntimeError, NotImplementedError) as error:  # no room there, or parameters without data ("meta")
        raise InputError(f"{word}: what it returned could not be moved to {device}: {_said(error)}") from error


def _call(word: str, factory: Callable[..., Any], flags: Mapping[str, Any], device: str) -> Any:
    import torch

    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]  # a builtin without a signature
    takes_all = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    named = {
        name
        for name, item in parameters.items()
        if item.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
    unknown = [name for name in flags if not takes_all and name not in named]
    if unknown:
        shown = ", ".join(f"--{name.replace('_', '-')}" for name in unknown)
        raise InputError(f"{word} takes no {shown}: add a parameter of that name to the factory, or leave the flag out")
    values = dict(flags)
    if "dtype" in values:
        values["dtype"] = getattr(torch, DTYPES[values["dtype"]])
    if "device" in named:
        values["device"] = device
    missing = [
        name
        for name, item in parameters.items()
        if item.default is inspect.Parameter.empty
        and item.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and name not in values
    ]
    if missing:
        raise InputError(f"{word} needs a value for {', '.join(missing)}: give the parameter a default")
    try:
        return factory(**values)
    except (Exception, SystemExit) as error:
        raise InputError(f"{word} failed: {_said(error)}") from error


def _said(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
