"""Operators that launch nothing, held against what torch declares."""

from __future__ import annotations

import pytest
import torch

from foretrace.knowledge import views
from foretrace.knowledge.views import effect, is_metadata_only


@pytest.mark.parametrize("op", ["t", "transpose", "view", "_unsafe_view", "as_strided", "expand", "detach", "empty"])
def test_metadata_only(op: str) -> None:
    assert is_metadata_only(f"aten::{op}")
    assert is_metadata_only(op)


@pytest.mark.parametrize("op", ["reshape", "contiguous", "to", "flatten"])
def test_what_may_copy_is_not_promised(op: str) -> None:
    assert effect(f"aten::{op}") == "maybe"
    assert not is_metadata_only(f"aten::{op}")


@pytest.mark.parametrize("op", ["aten::mm", "aten::add", "aten::copy_", "triton_poi_fused_add_0", ""])
def test_what_computes(op: str) -> None:
    assert effect(op) is None
    assert not is_metadata_only(op)


def test_every_declared_view_aliases_its_input_in_torch() -> None:
    # torch marks a result that shares its input's storage with an alias annotation, "Tensor(a)".
    # Those exempt share it without being marked (autograd treats their results as new tensors).
    exempt = {"_unsafe_view", "broadcast_tensors", "unflatten_dense_tensors", "atleast_1d", "atleast_2d", "atleast_3d"}
    exempt |= {"lift", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "tensor_split", "resolve_conj"}
    for name, kind in views._EFFECTS.items():
        if kind != "view" or name in exempt:
            continue
        packet = getattr(torch.ops.aten, name)
        overloads = [getattr(packet, o)._schema for o in packet.overloads() if not o.endswith("out")]
        assert any(schema.arguments[0].alias_info is not None for schema in overloads), name
