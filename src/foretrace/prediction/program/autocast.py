"""``torch.autocast`` on the meta device: the casts that CUDA's autocast would make, as operators of their own.

PyTorch has no autocast for the meta device. Its mechanism is a dispatch key that wraps the operators of a list; the
wrappers here do as CUDA's do, under a key of a backend that is never present, which is switched on together with the
autocast of the program. So the rows, the cached casts of weights and the gradients are those of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch.utils.checkpoint

from foretrace.errors import InputError
from foretrace.knowledge.lowering.autocast import POLICIES, Policy

__all__ = ["as_autocast", "autocast_on_gpu"]

_KEY = "AutocastIPU"
_WIDTHS = {torch.float16: 0, torch.bfloat16: 0, torch.float32: 1}
# Casts of parameters are made once while an autocast is active (``cached_cast`` in aten/src/ATen/autocast_mode.cpp).
_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


@contextmanager
def autocast_on_gpu() -> Iterator[None]:
    """Meanwhile ``torch.autocast`` for ``"cuda"`` (or ``"meta"``, the device the program sees) takes effect.

    Raises :class:`InputError` from the program's autocast where the installed torch does not offer what this needs.
    """
    kind: Any = torch.autocast
    checkpoint: Any = torch.utils.checkpoint
    kept = kind.__init__, kind.__enter__, kind.__exit__
    depth = 0

    def made(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if device_type not in ("cuda", "meta"):
            kept[0](self, device_type, dtype, enabled, cache_enabled)
            return
        kept[0](self, "cuda", dtype, False, cache_enabled)  # enabled, it would ask for a GPU
        self._enabled = enabled

    def entered(self: Any) -> Any:
        nonlocal depth
        result = kept[1](self)
        depth += 1
        _switch(torch.is_autocast_enabled("cuda"))
        return result

    def left(self: Any, *error: Any) -> Any:
        nonlocal depth
        result = kept[2](self, *error)
        depth -= 1
        if not depth:
            _casts.clear()
        _switch(torch.is_autocast_enabled("cuda"))
        return result

    device_of = getattr(checkpoint, "_infer_device_type", None)

    def as_cuda(*args: Any) -> Any:
        found = device_of(*args) if device_of is not None else "meta"
        return "cuda" if found == "meta" else found

    kind.__init__, kind.__enter__, kind.__exit__ = made, entered, left
    if device_of is not None:  # it asks for the autocast of this device, to enter it again when it recomputes
        checkpoint._infer_device_type = as_cuda
    try:
        yield
    finally:
        if device_of is not None:
            checkpoint._infer_device_type = device_of
        kind.__init__, kind.__enter__, kind.__exit__ = kept
        _casts.clear()
        _switch(False)


def as_autocast(name: str, *tensors: Any) -> tuple[Any, ...]:
    """The arguments of an operator as the active autocast would hand them on; as they are where none is active."""
    policy = POLICIES.get(name)
    if policy is None or not torch.is_autocast_enabled("cuda"):
        return tensors
    target = torch.get_autocast_dtype("cuda") if policy == "lower" else torch.float32
    return tuple(_cast(item, target) for item in tensors)


def _switch(on: bool) -> None:
    key = getattr(torch._C.DispatchKey, _KEY, None)
    if on:
        _register()
    if key is not None:
        torch._C._dispatch_tls_set_dispatch_key_included(key, on)
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, not on)


@lru_cache(maxsize=1)
def _register() -> tuple[Any, Any]:
    """Wrap the operators of the table, once in a process; without the key switched on nothing sees the wrappers."""
    try:
        library: Any = torch.library.Library
        rest, wrapped = library("_", "IMPL", _KEY), library("aten", "IMPL", _KEY)
        rest.fallback(torch.library.fallthrough_kernel)
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))
        for name, policy in POLICIES.items():
            packet = getattr(torch.ops.aten, name, None)
            for overload in packet.overloads() if packet is not None else ():
                operator = getattr(packet, overload)
                if _is_wrapped_on_gpu(operator):
                    wrapped.impl(operator, _wrapper(operator, policy, keys))
    except (AttributeError, RuntimeError) as error:
        raise InputError(
            f"torch {torch.__version__} offers no way to apply autocast without a GPU; predict the program without it, "
            "or with a newer torch"
        ) from error
    return rest, wrapped


def _is_wrapped_on_gpu(operator: Any) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "AutocastCUDA"))
    except RuntimeError:  # an overload of TorchScript's, which the dispatcher does not have
        return False


def _wrapper(operator: Any, policy: Policy, keys: Any) -> Callable[..., Any]:
    names = [argument.name for argument in operator._schema.arguments]

    def run(*args: Any, **keywords: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if policy == "fp32_result":
                return _in_fp32(operator, names, args, keywords)
            if policy == "lower":
                target = torch.get_autocast_dtype("cuda")
            elif policy == "fp32":
                target = torch.float32
            else:
                target = _widest((*args, *keywords.values()))
            return operator(
                *(_cast(item, target) for item in args),
                **{name: _cast(item, target) for name, item in keywords.items()},
            )

    return run


def _in_fp32(operator: Any, names: list[str], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    place = names.index("dtype") if "dtype" in names else None
    if place is None:  # norms: of their overloads, the one that takes a type
        return operator(*(_cast(item, torch.float32) for item in args), **keywords)
    given = args[place] if place < len(args) else keywords.get("dtype")
    if given is not None or not _eligible(args[0]):
        return operator(*args, **keywords)
    if place < len(args):
        return operator(*args[:place], torch.float32, *args[place + 1 :], **keywords)
    return operator(*args, **{**keywords, "dtype": torch.float32})


def _widest(values: tuple[Any, ...]) -> torch.dtype:
    widest = torch.get_autocast_dtype("cuda")
    for item in _tensors(values):
        if _eligible(item) and _WIDTHS.get(item.dtype, 0) > _WIDTHS[widest]:
            widest = item.dtype
    return widest


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _eligible(item: Any) -> bool:
    return (
        isinstance(item, torch.Tensor)
        and item.device.type != "cpu"
        and item.is_floating_point()
        and item.dtype != torch.float64
    )


def _cast(item: Any, target: torch.dtype) -> Any:
    if isinstance(item, (tuple, list)):
        return [_cast(part, target) for part in item]
    if not _eligible(item) or item.dtype == target:
        return item
    keep = (
        torch.is_autocast_cache_enabled()
        and target == torch.get_autocast_dtype("cuda")
        and item.dtype == torch.float32
        and item.requires_grad
        and item.is_leaf
        and not item._is_view()
    )
    if not keep:
        return item.to(target)
    found = _casts.get(id(item))
    if found is None:
        found = _casts[id(item)] = (item, item.to(target))
    return found[1]
