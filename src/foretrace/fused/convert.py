"""Fused modules from the MLPs of other libraries, sharing their layers.

What a module computes is read from its layers' names, its activation and the order of its weights are read or given,
never guessed, and the result is compared with the module's own on random rows: a scale, a clamp or a sparsity inside a
``forward`` cannot be seen from outside, and a converted layer that ignored it would be wrong without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.fused import activations
from foretrace.fused.alike import refuse_unlike, unfit
from foretrace.fused.functional import SaveChoice
from foretrace.fused.modules import MLP, GatedMLP, LinearAct
from foretrace.fused.plan import Packing, Precision

__all__ = ["from_module", "replace"]

# The names libraries give to (gate, up, down), the stacked (gate and up, down) and (first, second) layers.
_GATED = (
    ("gate_proj", "up_proj", "down_proj"),
    ("gate", "up", "down"),
    ("wi_0", "wi_1", "wo"),
    ("w1", "w3", "w2"),
)
_STACKED = (("gate_up_proj", "down_proj"),)
_PLAIN = (
    ("fc1", "fc2"),
    ("c_fc", "c_proj"),
    ("fc_in", "fc_out"),
    ("dense_h_to_4h", "dense_4h_to_h"),
    ("up_proj", "down_proj"),
    ("linear1", "linear2"),
    ("lin1", "lin2"),
    ("wi", "wo"),
)
_ACTIVATION_NAMES = ("act_fn", "activation_fn", "act", "activation", "hidden_act")
_CONFIG_NAMES = ("hidden_activation", "hidden_act", "activation_function", "activation", "feed_forward_proj")


def from_module(
    module: nn.Module,
    *,
    activation: str | None = None,
    packing: Packing | None = None,
    save: SaveChoice = "auto",
    precision: Precision = "exact",
    check: bool = True,
) -> GatedMLP | MLP | LinearAct:
    """The fused module that computes what ``module`` computes, on the same layers: nothing is copied.

    Known are gated MLPs with ``gate_proj``, ``up_proj``, ``down_proj`` (Llama, Gemma, Mistral, Qwen; also ``gate``,
    ``up``, ``down`` and the names of T5 and of Meta's own Llama), stacked ones with ``gate_up_proj`` (Phi-3, GLM), MLPs
    of two layers (``fc1`` and ``fc2``, and the names of GPT-J, GPT-NeoX, DistilBERT, T5, Nemotron),
    ``nn.Sequential(Linear, activation, Linear)`` and ``nn.Sequential(Linear, activation)``. Their layers are called
    ``gate_proj``, ``up_proj`` (or ``gate_up_proj``), ``down_proj``, or ``fc1``, ``fc2`` in the fused module; where they
    had other names, the keys of the ``state_dict`` change with them.

    ``activation`` is needed only where the module holds none that is known by name, ``packing`` ("gate_up", "up_gate",
    "interleaved") only for a stacked weight: the module does not say its order. ``check`` compares both modules on four
    random rows, unless the weights are on the meta device.

    Raises `InputError` where the module is not known, its activation is unknown or another than the one given, it has
    hooks, parameters or layers of its own that the fused module would lose, or the comparison fails.
    """
    if isinstance(module, GatedMLP | MLP | LinearAct):
        return module
    _refuse_wrapped(module)
    _refuse_what_would_be_lost(module)
    layers = _layers(module)
    rules: Any = {"activation": _activation(module, activation), "save": save, "precision": precision, "device": "meta"}
    made: GatedMLP | MLP | LinearAct
    if len(layers) == 3:
        made = GatedMLP(1, 1, **rules)
        made.gate_proj, made.up_proj, made.down_proj = layers.values()
    elif "gate_up_proj" in layers:
        made = GatedMLP(1, 1, packing=_packing(module, packing), **rules)
        made.gate_up_proj, made.down_proj = layers.values()
    elif len(layers) == 2:
        made = MLP(1, 1, **rules)
        made.fc1, made.fc2 = layers.values()
    else:
        made = LinearAct(1, 1, **rules)
        (linear,) = layers.values()
        made.in_features, made.out_features = linear.in_features, linear.out_features
        made.weight, made.bias = linear.weight, linear.bias
    # Of the new module alone: its layers are the caller's, and in the mode the caller chose.
    made.training = module.training
    if check:
        refuse_unlike(module, made)
    return made


def replace(model: nn.Module, *, save: SaveChoice = "auto", precision: Precision = "exact") -> list[str]:
    """Put fused modules into ``model`` in place of the MLPs that `from_module` converts; returns their names.

    Only where the ``state_dict`` keeps its names, so that checkpoints load as before; everything else is left alone.
    """
    done: dict[nn.Module, nn.Module] = {}
    names = []
    for name, module in list(model.named_modules(remove_duplicate=False)):
        # What torch.compile made of a module calls the one it was given, whatever is put in its place.
        if not name or isinstance(module, GatedMLP | MLP | LinearAct) or name.rpartition(".")[2] == "_orig_mod":
            continue
        made = done.get(module)
        if made is None:
            try:
                made = from_module(module, save=save, precision=precision)
            except InputError:
                continue
            if set(made.state_dict()) != set(module.state_dict()):
                continue
            done[module] = made
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, made)
        names.append(name)
    return names


def _layers(module: nn.Module) -> dict[str, Any]:
    """The linear layers by name, in the order in which a fused module takes them."""
    children = {name: child for name, child in module.named_children() if not _is_idle(name, child)}
    if type(module) is nn.Sequential:
        return _sequence(module, children)
    for names in (*_GATED, *_STACKED, *_PLAIN):
        if all(name in children for name in names):
            others = [name for name in children if name not in names]
            if others:
                raise unfit(module, f"has a layer {others[0]!r} that a fused module would leave out")
            for name in names:
                _refuse_foreign(module, name, children[name])
            return {name: children[name] for name in names}
    raise unfit(module, f"holds {', '.join(children) or 'no layers'}, and no set of names that is known")


def _sequence(module: nn.Sequential, children: dict[str, nn.Module]) -> dict[str, Any]:
    if [type(child) is nn.Linear for child in children.values()] not in ([True, False], [True, False, True]):
        raise unfit(module, "is neither (Linear, activation, Linear) nor (Linear, activation)")
    return {name: child for name, child in children.items() if type(child) is nn.Linear}


def _is_dropped(child: nn.Module) -> bool:
    return type(child) is nn.Identity or (type(child) is nn.Dropout and child.p == 0)


def _is_idle(name: str, child: nn.Module) -> bool:
    """Whether ``child`` does nothing, or is the activation, which `_activation` reads."""
    return _is_dropped(child) or name in _ACTIVATION_NAMES


def _refuse_foreign(module: nn.Module, name: str, child: nn.Module) -> None:
    if any(kind.__name__ == "Conv1D" for kind in type(child).__mro__):
        raise unfit(module, f"keeps {name!r} transposed, [in, out]: replace that Conv1D by an nn.Linear first")
    if not isinstance(getattr(child, "weight", None), Tensor):
        raise unfit(module, f"has a {type(child).__name__} for {name!r}, which is no linear layer")


def _refuse_wrapped(module: nn.Module) -> None:
    """Refuse what holds the layers of another module: its own hooks and compiled code would be lost."""
    wrapper = type(module).__name__
    for name in ("_orig_mod", "module"):
        inner = module._modules.get(name)
        if inner is not None and len(module._modules) == 1:
            raise InputError(
                f"{type(inner).__name__} is wrapped in {wrapper}{' by torch.compile' if name == '_orig_mod' else ''}: "
                f"convert the module inside (.{name}), and wrap the result"
            )
    if type(module) is nn.Linear:
        raise unfit(module, "has no activation: give both, as nn.Sequential(linear, nn.GELU())")


def _refuse_what_would_be_lost(module: nn.Module) -> None:
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    if hooked or "forward" in module.__dict__:
        raise unfit(module, "has hooks or a forward of its own, which a new module would not run: remove them first")
    for held in _held(module):
        if isinstance(held, nn.Module) and (held._forward_hooks or held._forward_pre_hooks):
            raise unfit(module, "has hooks on its activation, which a new module would not run: remove them first")
    own = [*module._parameters, *module._buffers]
    if own:
        raise unfit(module, f"has a parameter or buffer {own[0]!r} beside its layers")


def _packing(module: nn.Module, packing: Packing | None) -> Packing:
    if packing is None or packing == "separate":
        raise InputError(
            f"{type(module).__name__} stacks gate and up in one weight and does not say in which order: "
            "give packing='gate_up', 'up_gate' or 'interleaved' (Phi-3 and GLM: 'gate_up')"
        )
    return packing


def _activation(module: nn.Module, given: str | None) -> str:
    """The activation's name: what the module holds, or what its configuration says, or ``given``; never a default."""
    named = None if given is None else activations.canonical(given)
    held = list(_held(module))
    found = {activations.canonical(one) for one in held if named is None or _is_known(one)}
    if len(found) > 1:
        raise unfit(module, f"names several activations ({', '.join(sorted(found))}): give activation=")
    if not found and named is None:
        raise unfit(module, "does not say its activation: give activation=")
    own = found.pop() if found else named
    if named is not None and own != named:
        raise unfit(module, f"computes {own}, not the activation={given!r} that was given")
    assert own is not None
    return own


def _is_known(activation: Any) -> bool:
    try:
        activations.canonical(activation)
    except InputError:
        return False
    return True


def _held(module: nn.Module) -> Iterable[Any]:
    """What says the activation: the functions a module holds; only without any its configuration."""
    if type(module) is nn.Sequential:
        return [child for child in module if type(child) is not nn.Linear and not _is_dropped(child)]
    functions = [getattr(module, name) for name in _ACTIVATION_NAMES if getattr(module, name, None) is not None]
    if functions:
        return functions
    config = getattr(module, "config", None)
    return [getattr(config, name) for name in _CONFIG_NAMES if getattr(config, name, None) is not None]
