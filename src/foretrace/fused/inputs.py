"""What a call's tensors must be, and which way it goes: our own autograd functions, or PyTorch's operators."""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad

from foretrace.errors import InputError
from foretrace.fused.dispatch.overrides import SCOPE
from foretrace.fused.plan import Precision, Save

__all__ = ["autocast", "check_tensors", "check_words", "direct", "fail_shape"]

# Anything else that is a tensor brings its own meaning of each operator.
_OWN: Final = (Tensor, torch.nn.Parameter)
# In these every operator of PyTorch's runs; kernels of ours exist for CUDA, plain steps for the CPU.
_DEVICES: Final = ("cpu", "cuda")
_SAVES: Final = ("auto", *get_args(Save))
_PRECISIONS: Final = get_args(Precision)
# autocast leaves float64 alone, as it does for torch.nn.functional.linear.
_CAST: Final = (torch.float32, torch.float16, torch.bfloat16)


def autocast(tensors: tuple[Tensor | None, ...]) -> Any:
    """Cast as autocast does for linear layers: inputs, weights and biases; unchanged where it is off."""
    device = cast(Tensor, tensors[0]).device.type
    if device not in _DEVICES and not torch.amp.is_autocast_available(device):  # "meta" has none
        return tensors
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(one if one is None or one.dtype not in _CAST else one.to(dtype) for one in tensors)


def direct(tensors: tuple[Tensor | None, ...]) -> tuple[bool, bool]:
    """Check dtypes and devices; return whether kernels may have the tensors directly, and whether to keep for backward.

    Not directly: under `torch.func` transforms, forward-mode differentiation and dispatch modes (which want to see
    PyTorch's operators), for tensor subclasses (which bring their own), for tensors whose values are the negatives of
    what lies in memory (imaginary parts of conjugates), and on devices other than CUDA and CPU.

    Raises :class:`InputError` for DTensors, mixed dtypes, mixed devices and dtypes that are not floating-point.
    """
    x = cast(Tensor, tensors[0])
    dtype, device, index = x.dtype, x.device, x.get_device()
    own, wants = True, False
    on_gpu = index is not None and index >= 0
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in _OWN:
            own = False
            _check_subclass(tensor)
        # The index is cheap to compare and tells GPUs apart; it is -1 for everything that has none, or None where the
        # compiler traces a tensor of the meta device.
        if tensor.dtype is not dtype or tensor.get_device() != index or (not on_gpu and tensor.device != device):
            _fail_mixed(tensors)
        if tensor.requires_grad:
            wants = True
    if not dtype.is_floating_point:
        raise InputError(f"x is {_short(dtype)}, and fused layers need a floating-point dtype; convert it with .to()")
    if torch.compiler.is_compiling():  # it can trace no further than this
        return False, wants
    if (
        not own
        or not (device.type in _DEVICES or _supposed(device))
        or _transformed()
        or any(map(_means_more, tensors))
    ):
        return False, wants
    # Inside inference mode nothing can be saved for backward, whatever grad mode says.
    return True, wants and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def _supposed(device: torch.device) -> bool:
    """Whether the call is made only to be explained, for a GPU that was named, with tensors that have no values."""
    scope = SCOPE.get() if device.type == "meta" else None
    if scope is None or scope.asked is None:
        return False
    if scope.architecture is None:
        raise InputError(
            "the tensors are on the meta device, where nothing runs; name the GPU to explain the call for, as in "
            "explain(layer, x, architecture='sm_90')"
        )
    return True


def _transformed() -> bool:
    return (
        torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    )


def _means_more(tensor: Tensor | None) -> bool:
    """Whether its memory does not say it all, nor its type: it wraps another for a transform, or is its negative."""
    return tensor is not None and (torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_neg())


def _check_subclass(tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise InputError(f"a tensor is expected where {type(tensor).__name__} was given; pass torch.Tensor objects")
    if any(kind.__name__ == "DTensor" for kind in type(tensor).__mro__):
        raise InputError(
            "a DTensor was given: fused layers need whole tensors. FSDP2 gives them inside a module's forward "
            "(unsharded parameters); tensor parallelism is not supported, use nn.Linear layers for it, or pass "
            "tensor.to_local() or tensor.full_tensor()"
        )


def _fail_mixed(tensors: tuple[Tensor | None, ...]) -> None:
    there = [tensor for tensor in tensors if tensor is not None]
    dtypes = sorted({_short(tensor.dtype) for tensor in there})
    if len(dtypes) > 1:
        raise InputError(
            f"x, weights and biases must have one dtype, and these have {' and '.join(dtypes)}; convert them with "
            ".to(), or use torch.autocast"
        )
    devices = sorted({str(tensor.device) for tensor in there})
    if len(devices) > 1:
        raise InputError(
            f"x, weights and biases must be on one device, these are on {' and '.join(devices)}; move them with .to()"
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def fail_shape(what: str, shape: torch.Size | None, wanted: str) -> NoReturn:
    """Raise :class:`InputError`: ``what`` is of this shape and not as wanted."""
    raise InputError(f"{what} is {'None' if shape is None else list(shape)}, and must be {wanted}; pass that")


def check_tensors(needed: tuple[str, ...], **given: object) -> None:
    """Raise :class:`InputError` for an argument that is no tensor, unless it is None and not ``needed``."""
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name in needed):
            kind = "None" if value is None else f"of type {type(value).__name__}"
            raise InputError(f"{name} is {kind}, and must be a tensor; pass a torch.Tensor")


def check_words(save: str, precision: str) -> None:
    """Raise :class:`InputError` unless both are known."""
    if save not in _SAVES:
        raise InputError(f"save {save!r} is not one of {', '.join(_SAVES)}; pass one of these names")
    if precision not in _PRECISIONS:
        raise InputError(f"precision {precision!r} is not one of {', '.join(_PRECISIONS)}; pass one of these names")
