"""Other people's MLPs in place of a program's own: foretrace's fused modules, Liger's, or a layer of the hub.

A swap works on a copy of the program that shares all parameters, replaces every MLP it recognises in it, and says
which. The program that was given stays as it is.
"""

from __future__ import annotations

import copy
import os
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from foretrace.errors import CaptureError, InputError, MissingExtraError

if TYPE_CHECKING:
    from foretrace.capture.renamed import RenamedMLP

__all__ = ["HUB", "Swap", "check_hub", "check_liger", "hub_swap", "note_of", "swap_foretrace", "swap_liger"]

Swap = Callable[[Callable[..., Any]], Callable[..., Any]]

# `hub:OWNER/NAME@VERSION`; a version is a branch v1, v2, … of the repository.
HUB = "hub:"
_REPOSITORY = re.compile(r"hub:(?P<repo>[\w.-]+/[\w.-]+)@(?P<version>[1-9][0-9]{0,5})")
# Layers of hub repositories that compute a gated MLP on a module's own projections, by activation, best first.
_ANY_ACTIVATION = ("GatedMLP",)
_HUB_LAYERS = {"gelu_tanh": ("LigerGEGLUMLP", "GEGLUMLP"), "silu": ("LigerSwiGLUMLP", "SwiGLUMLP")}
_GATED = "a gated MLP is recognised by its gate_proj, up_proj, down_proj and act_fn"
_ANY_MLP = (
    f"{_GATED}, another by the names of its two layers (fc1 and fc2), or as Sequential(Linear, activation, Linear)"
)
# What a module is called, or calls its layers, that a reader would take for an MLP.
_MLP_WORDS = ("mlp", "ffn", "feedforward", "glu")
_MLP_LAYERS = (
    *("gate_proj", "gate_up_proj", "wi_0", "w1", "fc1", "c_fc", "fc_in", "dense_h_to_4h"),
    *("linear1", "lin1", "wi"),
)
# Names that are written out, of modules that were replaced or left alone.
_NAMED = 3

_notes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def note_of(function: Callable[..., Any]) -> str | None:
    """What a swap replaced in a program it returned, as a sentence; ``None`` for any other program."""
    function = getattr(function, "_orig_mod", function)  # what torch.compile made of a module holds it there
    try:
        return _notes.get(function)
    except TypeError:  # a callable without weak references was never swapped
        return None


def swap_foretrace(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every MLP that `foretrace.fused.convert` knows becomes a fused module with the same parameters.

    Raises `InputError` where there is none.
    """
    from foretrace.capture.renamed import renamed
    from foretrace.fused.convert import from_module

    def replace(module: Any) -> Any:
        # The names of the built-in workload are not the usual ones; what is no gated MLP may be another kind.
        found = renamed(module)
        if found is not None:
            return from_module(found)
        try:
            return from_module(module)
        except InputError:
            if _looks_like_mlp(module):
                raise
            return None

    return _swapped(function, "foretrace", replace, takes=_ANY_MLP)


def _looks_like_mlp(module: Any) -> bool:
    """Whether a reader would expect to see a module replaced, so that it is told why it is not."""
    children = dict(module.named_children())
    matrices = [name for name, child in children.items() if getattr(getattr(child, "weight", None), "ndim", 0) == 2]
    if len(matrices) < 2:
        return False
    called = type(module).__name__.lower().replace("_", "")
    return any(word in called for word in _MLP_WORDS) or any(name in _MLP_LAYERS for name in matrices)


def check_liger(device: str) -> None:
    """Raise :class:`MissingExtraError` without liger-kernel, and :class:`CaptureError` without a GPU."""
    if find_spec("liger_kernel") is None:
        raise MissingExtraError("--variant liger needs liger-kernel, which is not installed: pip install liger-kernel")
    if device == "cpu":
        raise CaptureError(
            "--variant liger needs a GPU: Liger's kernels are Triton's; use --variant foretrace on a CPU"
        )


def swap_liger(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every gated MLP becomes Liger's module for its activation; raises `InputError` where there is none."""

    from foretrace.capture.renamed import renamed

    def replace(module: Any) -> Any:
        found = renamed(module)
        return None if found is None else _of_liger(found)

    return _swapped(function, "liger", replace)


def _of_liger(module: RenamedMLP) -> Any:
    import torch
    from liger_kernel.transformers.geglu import LigerGEGLUMLP
    from liger_kernel.transformers.swiglu import LigerSwiGLUMLP

    kinds = {"gelu_tanh": (LigerGEGLUMLP, "gelu_pytorch_tanh"), "silu": (LigerSwiGLUMLP, "silu")}
    if module.activation not in kinds:
        raise InputError(f"Liger has gated MLPs with {' and '.join(kinds)}, and this one's is {module.activation}")
    kind, spelled = kinds[module.activation]
    sizes = {"hidden_size": module.gate_proj.in_features, "intermediate_size": module.gate_proj.out_features}
    with torch.device("meta"):  # its own parameters are dropped at once
        made = kind(SimpleNamespace(**sizes, hidden_act=spelled))
    for name in ("gate_proj", "up_proj", "down_proj"):
        setattr(made, name, getattr(module, name))
    return made


def check_hub(variant: str) -> None:
    """Raise `InputError` for a spelling that names no repository, `MissingExtraError` without the package kernels."""
    _named(variant)
    if find_spec("kernels") is None:
        raise MissingExtraError(f"--variant {variant} needs the package kernels: pip install 'foretrace[kernels]'")


def hub_swap(variant: str) -> Swap:
    """The swap that ``hub:OWNER/NAME@VERSION`` stands for; ``LOCAL_KERNELS`` of `kernels` names a folder instead."""
    repository, version = _named(variant)

    def swap(function: Callable[..., Any]) -> Callable[..., Any]:
        from foretrace.capture.renamed import renamed

        layers = _layers_of(repository, version)

        def replace(module: Any) -> Any:
            found = renamed(module)
            return None if found is None else _kernelized(found, repository, version, layers)

        return _swapped(function, variant, replace)

    return swap


def _named(variant: str) -> tuple[str, int]:
    found = _REPOSITORY.fullmatch(variant)
    if found is None:
        raise InputError(f"--variant {variant}: write hub:OWNER/NAME@VERSION, as in hub:foretrace/fused@1")
    return found["repo"], int(found["version"])


def _layers_of(repository: str, version: int) -> Any:
    """The module with the layers of a repository; raises `InputError` where it cannot be had or has none."""
    from kernels import get_kernel

    try:
        kernel = get_kernel(repository, version=version)
    except Exception as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        # What the package says of a hub that it cannot reach does not name the way around it.
        hint = (
            "" if os.environ.get("LOCAL_KERNELS") else f"; LOCAL_KERNELS={repository}=FOLDER takes a copy that is here"
        )
        raise InputError(f"the kernel {repository}@{version} cannot be loaded: {said.rstrip('.')}{hint}") from error
    layers = getattr(kernel, "layers", None)
    if layers is None:
        raise InputError(f"the kernel {repository}@{version} has functions only, and no layers to put into a program")
    return layers


def _kernelized(module: RenamedMLP, repository: str, version: int, layers: Any) -> Any:
    """The module with the ``forward`` of a layer of the repository."""
    from kernels import Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping

    wanted = (*_ANY_ACTIVATION, *_HUB_LAYERS.get(module.activation, ()))
    name = next((name for name in wanted if hasattr(layers, name)), None)
    if name is None:
        there = sorted(name for name, value in vars(layers).items() if isinstance(value, type))
        raise InputError(
            f"{repository}@{version} has no layer for a gated MLP with {module.activation} "
            f"({' or '.join(wanted)}); it has {', '.join(there) or 'none'}"
        )
    replace_kernel_forward_from_hub(type(module), name)
    device = _device_of(module.gate_proj.weight)
    layer = _Layer(f"{repository}@{version}", name, getattr(layers, name))
    try:
        with use_kernel_mapping({name: {device: layer}}, inherit_mapping=False):
            # Without a fallback to the module's own forward, which would time and record the wrong thing.
            mode = Mode.TRAINING if getattr(layer.kind, "has_backward", True) else Mode.INFERENCE
            return kernelize(module, mode=mode, device=device, use_fallback=False)
    except Exception as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise InputError(f"{name} of {repository}@{version} cannot take the module's place: {said}") from error


def _device_of(tensor: Any) -> str:
    """The kind of device as `kernels` calls it; torch calls AMD's GPUs ``cuda`` too."""
    import torch

    kind = str(tensor.device.type)
    return "rocm" if kind == "cuda" and torch.version.hip is not None else kind


@dataclass(frozen=True)
class _Layer:
    """A layer of a repository that is loaded already, as ``kernelize`` takes one.

    `kernels.LayerRepository` would ask the hub for it once more, even where ``LOCAL_KERNELS`` names a folder.
    """

    repository: str
    layer_name: str
    kind: Any

    def load(self) -> Any:
        return self.kind

    def __str__(self) -> str:
        return f"{self.repository}, layer {self.layer_name}"


@dataclass(frozen=True)
class _Replaced:
    path: str
    old: str
    new: str


def _swapped(
    function: Callable[..., Any], variant: str, replace: Callable[[Any], Any], *, takes: str = _GATED
) -> Callable[..., Any]:
    """A copy of a module, sharing its tensors, with what ``replace`` returns in place of each module it accepts.

    ``replace`` returns ``None`` for a module that is none of its kind, and raises `InputError` for one that is and
    cannot be taken; the parts of one that it takes are not looked at. ``takes`` says what it knows.
    """
    import torch

    if not isinstance(function, torch.nn.Module):
        raise InputError(f"--variant {variant} replaces modules, and this program is a plain function; use eager")
    shared = {id(tensor): tensor for tensor in (*function.parameters(), *function.buffers())}
    root = copy.deepcopy(function, shared)
    replaced: list[_Replaced] = []
    refused: list[tuple[str, str]] = []

    def visit(module: Any, path: str) -> Any:
        try:
            new = replace(module)
        except InputError as error:
            refused.append((path, str(error)))
            new = None
        if new is not None:
            new.train(module.training)
            replaced.append(_Replaced(path, type(module).__name__, _shown(new)))
            return new
        for name, child in module.named_children():
            setattr(module, name, visit(child, f"{path}.{name}" if path else name))
        return module

    result = visit(root, "")
    if not replaced:
        why = refused[0][1] if refused else takes
        raise InputError(f"--variant {variant} found nothing to replace in {type(function).__name__}: {why}")
    _notes[result] = f"{variant} replaced {_counted(replaced)}{_left_alone(refused)}"
    return result  # type: ignore[no-any-return]


def _shown(module: Any) -> str:
    kind = type(module)
    layer = getattr(kind, "kernel_layer_name", None)
    return str(layer) if layer is not None else f"{kind.__module__.partition('.')[0]} {kind.__name__}"


def _counted(replaced: list[_Replaced]) -> str:
    """``GeGLU → foretrace GatedMLP``, of parts of a program with their places."""
    kinds: dict[str, list[str]] = {}
    for item in replaced:
        kinds.setdefault(f"{item.old} → {item.new}", []).append(item.path)
    said = ", ".join(f"{kind} ({_listed(paths)})" if paths[0] else kind for kind, paths in kinds.items())
    return said if len(replaced) == 1 else f"{len(replaced)} modules: {said}"


def _left_alone(refused: list[tuple[str, str]]) -> str:
    reasons: dict[str, list[str]] = {}
    for path, reason in refused:
        reasons.setdefault(reason, []).append(path)
    return "".join(f"; left alone {_listed(paths)}: {reason}" for reason, paths in reasons.items())


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:_NAMED])
    return shown if len(paths) <= _NAMED else f"{shown} and {len(paths) - _NAMED} more"
