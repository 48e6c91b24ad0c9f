"""The nodes of an AOT graph in the few classes that fusion knows, after the rewrites that decide who adds a bias."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch

from foretrace.knowledge.dtypes import dtype as element_type
from foretrace.knowledge.lowering.inductor import (
    EXTERN,
    GENERATED_POINTWISE,
    REDUCTION,
    SCATTER,
    VIEWS,
    keeps_half_addmm,
)
from foretrace.prediction.work import Tensor

__all__ = ["Kind", "Node", "read_graph"]

Kind = Literal["input", "view", "pointwise", "reduction", "extern", "scatter", "item", "output", "none"]


@dataclass(slots=True, eq=False)
class Node:
    """One node: what it is, its result, and whom it reads. ``values``: its arguments, nodes in place of tensors."""

    name: str
    base: str
    kind: Kind
    results: tuple[Tensor, ...]  # storages are 0: nothing is in memory yet
    values: tuple[Any, ...]
    keywords: dict[str, Any]
    origin: str | None
    module: str | None
    overload: str = ""
    users: list[Node] = field(default_factory=list)

    @property
    def tensor(self) -> Tensor:
        """Its result, the first of several."""
        return self.results[0]

    @property
    def numel(self) -> int:
        """Elements of its result."""
        return prod(self.results[0].shape) if self.results else 0

    def reads(self) -> list[Node]:
        """The nodes among its arguments, in order, one entry each time."""
        return [*_nodes(self.values), *_nodes(tuple(self.keywords.values()))]


def read_graph(module: torch.fx.GraphModule, torch_version: tuple[int, int]) -> list[Node]:
    """The nodes of a graph after AOT, dead ones left out, in order."""
    made: dict[torch.fx.Node, Node] = {}
    nodes: list[Node] = []
    for fx in module.graph.nodes:
        node = _node(fx, made)
        made[fx] = node
        nodes.append(node)
    _rewrite(nodes, torch_version)
    return _alive(nodes)


def _node(fx: torch.fx.Node, made: dict[torch.fx.Node, Node]) -> Node:
    def value(item: Any) -> Any:
        if isinstance(item, torch.fx.Node):
            return made[item]
        if isinstance(item, (tuple, list)):
            return tuple(value(part) for part in item)
        if isinstance(item, slice):
            return (value(item.start), value(item.stop), value(item.step))
        return item

    results = tuple(_tensors(fx.meta.get("val")))
    base, overload = _base(fx)
    original = fx.meta.get("original_aten")
    packet = getattr(original, "_overloadpacket", None)
    stack = fx.meta.get("nn_module_stack") or fx.meta.get("fwd_nn_module_stack") or {}
    paths = [str(item[0]) for item in stack.values() if isinstance(item, tuple)]
    return Node(
        name=fx.name,
        base=base,
        kind=_kind(fx, base, results),
        results=results,
        values=tuple(value(item) for item in fx.args),
        keywords={key: value(item) for key, item in fx.kwargs.items()},
        origin=packet.__name__ if packet is not None else None,
        module=_plain_path(paths[-1]) if paths else None,
        overload=overload,
    )


def _plain_path(path: str) -> str | None:
    """``L['self'].gate`` as the module's own name, ``gate``."""
    for before in ("L['self']", "self"):
        if path.startswith(before):
            return path.removeprefix(before).lstrip(".").replace("._modules[", "").replace("']", "").replace("'", "")
    return path


def _base(fx: torch.fx.Node) -> tuple[str, str]:
    if fx.op != "call_function":
        return fx.op, ""
    if fx.target is operator.getitem:
        return "getitem", ""
    schema = getattr(fx.target, "_schema", None)
    if schema is None:
        return getattr(fx.target, "__name__", str(fx.target)), ""
    return schema.name.rsplit("::", 1)[-1], schema.overload_name


def _kind(fx: torch.fx.Node, base: str, results: Sequence[Tensor]) -> Kind:
    if fx.op in ("placeholder", "get_attr"):
        return "input"
    if fx.op == "output":
        return "output"
    if base == "getitem":
        return "item"
    if not results:
        return "none"
    if base in VIEWS:
        return "view"
    if base in EXTERN:
        return "extern"
    if base in SCATTER:
        return "scatter"
    if base in REDUCTION and not _pointwise(fx):
        return "reduction"
    if base in GENERATED_POINTWISE or _pointwise(fx):
        return "pointwise"
    return "extern"


def _pointwise(fx: torch.fx.Node) -> bool:
    return torch.Tag.pointwise in getattr(fx.target, "tags", ())


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, torch.Tensor):
        known = element_type(str(value.dtype))
        shape = tuple(int(size) for size in value.shape)
        strides = tuple(int(stride) for stride in value.stride())
        yield Tensor(shape, strides, known.name if known is not None else str(value.dtype), 0)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _nodes(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)


def _set_users(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.users = []
    for node in nodes:
        for read in dict.fromkeys(node.reads()):
            read.users.append(node)


def _alive(nodes: Sequence[Node]) -> list[Node]:
    needed: set[int] = set()
    for node in reversed(nodes):
        if node.kind in ("output", "input") or node.base == "copy_" or id(node) in needed:
            needed.update(id(read) for read in node.reads())
            needed.add(id(node))
    alive = [node for node in nodes if id(node) in needed]
    _set_users(alive)
    return alive


# ---- who adds a bias (torch/_inductor/fx_passes/post_grad.py) ----


def _rewrite(nodes: list[Node], torch_version: tuple[int, int]) -> None:
    _set_users(nodes)
    for node in list(nodes):
        if node.base == "convolution" and len(node.values) > 2 and isinstance(node.values[2], Node):
            _separate_bias(nodes, node)
        elif node.base == "addmm" and node.kind == "extern":
            _unfuse_bias(nodes, node, torch_version)
        elif node.base == "add" and node.kind == "pointwise":
            _fuse_added_matrix(node)
        elif node.kind == "scatter" and _writes_one_value(node):
            node.kind = "pointwise"
    _set_users(nodes)


def _only_pointwise_uses(node: Node) -> bool:
    return all(
        _only_pointwise_uses(user) if user.kind in ("view", "item") else user.kind == "pointwise" and _tagged(user)
        for user in node.users
    )


# Pointwise to Inductor, but not so tagged, and therefore no reason to take a bias out of a product.
_UNTAGGED = GENERATED_POINTWISE - {"clone", "_to_copy", "convert_element_type", "where", "masked_fill", "copy"}


def _tagged(node: Node) -> bool:
    return node.base not in _UNTAGGED


def _unfuse_bias(nodes: list[Node], node: Node, torch_version: tuple[int, int]) -> None:
    """A bias that only pointwise code waits for is added there: ``addmm`` becomes ``mm`` and ``add``."""
    half = node.tensor.dtype in ("bf16", "fp16")
    if (half and keeps_half_addmm(torch_version)) or not node.users or not _only_pointwise_uses(node):
        return
    bias, first, second = node.values[:3]
    product = Node(f"{node.name}_mm", "mm", "extern", node.results, (first, second), {}, node.origin, node.module)
    nodes.insert(nodes.index(node), product)
    node.base, node.kind, node.values, node.keywords = "add", "pointwise", (bias, product), {}
    _set_users(nodes)


def _separate_bias(nodes: list[Node], node: Node) -> None:
    """The bias of a convolution is added by generated code (lowering.py)."""
    bias = node.values[2]
    values = (*node.values[:2], None, *node.values[3:])
    bare = Node(f"{node.name}_bare", "convolution", "extern", node.results, values, {}, node.origin, node.module)
    nodes.insert(nodes.index(node), bare)
    node.base, node.kind, node.values, node.keywords = "add", "pointwise", (bare, bias), {}
    _set_users(nodes)


def _fuse_added_matrix(node: Node) -> None:
    """A matrix that is added to a product, where the sum is not for pointwise code alone, is given to the library."""
    if len(node.values) < 2 or node.keywords.get("alpha", 1) != 1 or _only_pointwise_uses(node):
        return
    for product, added in (node.values[:2], node.values[1::-1]):
        if not (isinstance(product, Node) and isinstance(added, Node) and product.base == "mm"):
            continue
        if len(product.users) != 1 or product.kind != "extern" or not added.results:
            continue
        same_type = added.tensor.dtype == product.values[0].tensor.dtype == node.tensor.dtype
        if same_type and len(added.tensor.shape) <= 2 and _expands(added.tensor.shape, product.tensor.shape):
            node.base, node.kind = "addmm", "extern"
            node.values, node.keywords = (added, *product.values), {}
            product.kind = "none"
            return


def _writes_one_value(node: Node) -> bool:
    """A number scattered into a constant, one place a row: a comparison of positions does that (joint_graph.py)."""
    if node.base != "scatter" or node.overload != "value" or len(node.values) < 4:
        return False
    base, dim, index = node.values[:3]
    if not (isinstance(base, Node) and base.base == "full" and isinstance(index, Node) and isinstance(dim, int)):
        return False
    shape, places = base.tensor.shape, index.tensor.shape
    dim %= max(len(shape), 1)
    others_match = all(a == b for i, (a, b) in enumerate(zip(shape, places, strict=False)) if i != dim)
    return len(shape) == len(places) and others_match and places[dim] == 1


def _expands(shape: Sequence[int], target: Sequence[int]) -> bool:
    return all(size in (1, wanted) for size, wanted in zip(reversed(shape), reversed(target), strict=False))
