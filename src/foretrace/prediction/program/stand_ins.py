"""Operators that a GPU dispatches otherwise than the meta device does, called as the GPU would.

The meta device has no kernels of its own, so where PyTorch asks for the device (attention, dropout, RMS norm) it takes
the road of a CPU. The function mode here takes the GPU's road instead; the table of attention backends lives in
`foretrace.knowledge.lowering.attention`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from foretrace.knowledge.dtypes import dtype as element_type
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.lowering.attention import AttentionCall, choose_attention
from foretrace.prediction.program.autocast import as_autocast
from foretrace.prediction.program.observe import RENAMED
from foretrace.prediction.program.rms import fused_rms_norm

__all__ = ["IN_GRAPHS", "AsOnGpu", "attend", "torch_version"]

# The first release whose CUDA build has a fused RMS norm behind `torch.rms_norm`.
_FUSED_RMS_NORM = (2, 9)
_RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_RECURRENT_NOTE = (
    "on a GPU cuDNN runs recurrent layers with kernels that are not predicted; here they are taken operator by "
    "operator, which is more kernels and more time"
)


def torch_version() -> tuple[int, int]:
    """The release of torch that is installed."""
    major, minor = torch.__version__.split("+")[0].split(".")[:2]
    return int(major), int(minor)


class AsOnGpu(TorchFunctionMode):
    """Takes the GPU's road while it is active, that of torch ``release``; ``notes`` collects what is a guess."""

    def __init__(self, gpu: Gpu | None, notes: list[str], release: tuple[int, int]) -> None:
        super().__init__()
        self.gpu = gpu
        self.notes = notes
        self.release = release

    @contextmanager
    def within_functions(self) -> Iterator[None]:
        """The same for what Python functions of torch call (attention in MultiheadAttention), which no mode sees.

        The names are replaced where such functions look them up.
        """
        functional = torch.nn.functional
        kept = {name: getattr(functional, name) for name in ("scaled_dot_product_attention", "dropout")}
        try:
            for name, original in kept.items():
                setattr(functional, name, functools.partial(self._called, original, name))
            yield
        finally:
            for name, original in kept.items():
                setattr(functional, name, original)

    def _called(self, original: Any, name: str, *args: Any, **keywords: Any) -> Any:
        if name == "dropout":
            return _dropout(original, *args, **keywords)
        with torch.profiler.record_function(f"{RENAMED}aten::scaled_dot_product_attention"):
            return attend(original, self.gpu, self.notes, self.release, *args, **keywords)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.cuda:
            return args[0].to("meta")
        args, keywords = _off_cuda(args, keywords)
        if name in ("scaled_dot_product_attention", "dropout"):
            return self._called(func, name, *args, **keywords)
        if name in _RECURRENT and _RECURRENT_NOTE not in self.notes:
            self.notes.append(_RECURRENT_NOTE)
        if name == "rms_norm" and self.release >= _FUSED_RMS_NORM:
            return _rms_norm(func, *args, **keywords)
        return func(*args, **keywords)


def attend(
    original: Callable[..., Any],
    gpu: Gpu | None,
    notes: list[str],
    release: tuple[int, int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Any,
) -> Any:
    """Scaled dot product attention by the implementation that PyTorch would pick on ``gpu``."""
    scale = keywords.get("scale")
    aten = torch.ops.aten
    query, key, value, attn_mask = as_autocast("scaled_dot_product_attention", query, key, value, attn_mask)
    if query.dim() != 4 or not all(hasattr(item, "dtype") for item in (query, key, value)):
        notes.append("attention on tensors of other than four dimensions is taken to be computed step by step")
        return original(query, key, value, attn_mask, dropout_p, is_causal, **keywords)
    known = element_type(str(query.dtype))
    facts = AttentionCall(
        dtype=known.name if known is not None else str(query.dtype),
        head=max(query.shape[-1], value.shape[-1]),
        mask=attn_mask is not None,
        dropout=dropout_p > 0,
        rows_contiguous=all(item.stride(-1) == 1 for item in (query, key, value)),
        same_head=query.shape[-1] == value.shape[-1],
    )
    chosen, note = choose_attention(
        facts,
        gpu.compute_capability if gpu is not None else None,
        release,
        vendor=gpu.vendor if gpu is not None else None,
    )
    if note is not None and note not in notes:
        notes.append(note)
    wants_gradient = torch.is_grad_enabled() and any(item.requires_grad for item in (query, key, value))
    if chosen == "math" or query.is_nested:
        return original(query, key, value, attn_mask, dropout_p, is_causal, **keywords)
    if chosen == "efficient" and key.shape[1] != query.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    calls: dict[str, Callable[[], Any]] = {
        "flash": lambda: aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale),
        "cudnn": lambda: aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale
        ),
        "efficient": lambda: aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, wants_gradient, dropout_p, is_causal, scale=scale
        ),
    }
    try:
        return calls[chosen]()[0]
    except (NotImplementedError, AttributeError):
        notes.append(f"torch {torch.__version__} cannot run {chosen} attention without data: taken step by step")
        return original(query, key, value, attn_mask, dropout_p, is_causal, **keywords)


def _dropout(
    func: Any, input: torch.Tensor, p: float = 0.5, training: bool | None = None, *rest: Any, **kw: Any
) -> Any:
    if training is None:
        training = bool(kw.pop("train", True))
    if training and 0 < p < 1 and input.numel() and not (rest and rest[0]) and not kw.get("inplace"):
        with torch.profiler.record_function(f"{RENAMED}aten::dropout"):
            return torch.native_dropout(input, p, True)[0]
    return func(input, p, training, *rest, **kw)


def _rms_norm(func: Any, input: torch.Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    input, weight = as_autocast("rms_norm", input, weight)
    if weight is not None and weight.dtype != input.dtype:
        return func(input, normalized_shape, weight, eps)
    with torch.profiler.record_function(f"{RENAMED}aten::rms_norm"):
        return fused_rms_norm(input, list(normalized_shape), weight, eps)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value == "cuda" or (value.startswith("cuda:") and value[5:].isdecimal())
    return isinstance(value, torch.device) and value.type == "cuda"


def _off_cuda(args: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call for the meta device where it asks for a GPU, which a CPU build of torch could not give."""
    if _is_cuda(keywords.get("device")):
        keywords["device"] = "meta"
    return tuple("meta" if _is_cuda(item) else item for item in args), keywords


def _cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    plain = size_average is None and reduce is None and label_smoothing == 0.0 and x.dim() == 2 and target.dim() == 1
    if not plain:
        return torch.nn.functional.cross_entropy(
            x, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    return _nll_loss(torch.log_softmax(x, 1), target, weight, size_average, ignore_index, reduce, reduction)


def _nll_loss(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> torch.Tensor:
    if size_average is not None or reduce is not None or x.dim() != 2:
        return torch.nn.functional.nll_loss(x, target, weight, size_average, ignore_index, reduce, reduction)
    how = {"none": 0, "mean": 1, "sum": 2}[reduction]
    loss: torch.Tensor = torch.ops.aten.nll_loss_forward(x, target, weight, how, ignore_index)[0]
    return loss


# Functions in Dynamo's graphs whose parts lose their gradient when AOT traces them on the meta device.
IN_GRAPHS: dict[str, Callable[..., Any]] = {"cross_entropy": _cross_entropy, "nll_loss": _nll_loss}
