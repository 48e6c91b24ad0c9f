"""The program to predict, on the meta device: built-in workloads and factories, and moving what was built elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from foretrace.errors import InputError
from foretrace.prediction.program.stand_ins import AsOnGpu, torch_version
from foretrace.prediction.program.walk import tensors_of

__all__ = ["meta_target", "to_meta"]


def meta_target(build: Callable[[], Any]) -> Any:
    """Call ``build`` so that what it makes is made on the meta device, whatever device it asks for.

    ``build`` makes a program as `foretrace.capture.workloads.build` or a factory does; requests for a GPU are turned
    to the meta device, and so is the default device, so that no memory is taken.
    """
    with torch.device("meta"), AsOnGpu(None, [], torch_version()):
        return build()


def to_meta(
    name: str, function: Callable[..., Any], inputs: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """The program with its parameters and inputs on the meta device; what is there already is left as it is."""
    try:
        if isinstance(function, torch.nn.Module) and any(
            item.device.type != "meta" for item in tensors_of(function, modules=True)
        ):
            function = function.to("meta")
        return function, tuple(_moved(item) for item in inputs), {key: _moved(item) for key, item in keywords.items()}
    except (RuntimeError, NotImplementedError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} cannot be moved to the meta device: {first}") from error


def _moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return value
        moved = value.detach().to("meta")
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, torch.nn.Module):
        return value.to("meta")
    if isinstance(value, dict):
        return {key: _moved(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(_moved(item) for item in value)
    return value
