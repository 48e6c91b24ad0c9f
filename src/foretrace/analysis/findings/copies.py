"""Copies the author of the model may not know of: layout copies, casts, graph inputs, host transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.copying import (
    COPYING,
    DDP_BUCKET_COPY,
    FEEDS_GRAPH,
    direction,
    is_pageable,
    is_scalar_read,
    on_purpose,
)
from foretrace.knowledge.dtypes import dtype
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.knowledge.limits import SHOWN_KINDS, WORTH_SHARE
from foretrace.knowledge.rules_kernels import HIDDEN_COPY, HIDDEN_COPY_OPERATORS
from foretrace.model.report import Finding
from foretrace.model.words import bytes_of, share_of, whole

__all__ = ["find"]

_ARROW = " → "
_CAT_OF_ONE = "cat of one tensor with empty ones"
# Steps of a path that copy, whatever the reason is.
_THE_COPY = frozenset(name.removeprefix("aten::") for name in COPYING)
_WHERE_LENGTH = 44
# Of more causes than this the texts would be a page: then what holds of any is said.
_TOLD_CAUSES = 2


@dataclass
class _Sorted:
    """GPU rows of copies by what they are."""

    hidden: dict[str, list[int]] = field(default_factory=dict)  # by the operators they are hidden in
    casts: dict[str, list[int]] = field(default_factory=dict)  # by "bf16 → fp32"
    graph_inputs: list[int] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)  # DistributedDataParallel's, back into the gradients
    host: dict[str, list[int]] = field(default_factory=dict)  # by direction


def find(facts: Facts) -> Iterable[Finding]:
    """``hidden_copy``, ``graph_input_copy``, ``dtype_casts``, ``host_transfers``."""
    found = _sort(facts)
    yield from _hidden(facts, found.hidden)
    if found.graph_inputs:
        yield _told(facts, "graph_input_copy", found.graph_inputs, saves=True)
    if found.casts:
        rows = sorted((row for rows in found.casts.values() for row in rows), key=_start(facts))
        pairs = Counter({pair: len(rows) for pair, rows in found.casts.items()})
        listed = ", ".join(f"{pair} ×{whole(facts.per_step(n))}" for pair, n in pairs.most_common(SHOWN_KINDS))
        share = _us(facts, rows) / facts.kernel_us if facts.kernel_us else 0.0
        if share >= WORTH_SHARE:
            yield _told(facts, "dtype_casts", rows, pairs=listed, share=share_of(share))
    if found.buckets:
        yield _told(facts, "ddp_bucket_copies", found.buckets, saves=True)
    for way, rows in found.host.items():
        yield _transfer(facts, way, rows)


def _sort(facts: Facts) -> _Sorted:
    context = facts.context
    trace, attribution = context.trace, context.attribution
    steps = {step.index for step in facts.steps}
    found = _Sorted()
    feeding = _before_graphs(facts)
    for row in context.gpu_rows.tolist():
        kind = trace.kind[row]
        if kind == RowKind.MEMSET or int(attribution.step[row]) not in steps:
            continue
        op = int(attribution.op[row])
        name = trace.name(op) if op >= 0 else ""
        if kind == RowKind.MEMCPY:
            way = direction(trace.name(row))
            if way is not None and way != "DtoD":
                if not is_scalar_read(name):
                    found.host.setdefault(way, []).append(row)
                continue
        elif name not in COPYING and name != "aten::cat" and name not in FEEDS_GRAPH:
            continue
        if op < 0:
            continue
        if int(trace.links.launch[row]) in feeding:
            found.graph_inputs.append(row)
            continue
        _sort_one(facts, found, row, op, name)
    return found


def _sort_one(facts: Facts, found: _Sorted, row: int, op: int, name: str) -> None:
    operands = facts.context.operands(op)
    if name == "aten::cat":
        if _joins_one(operands["shapes"]):
            found.hidden.setdefault(_CAT_OF_ONE, []).append(row)
        return
    if name == "aten::addmm" or name == "aten::_foreach_copy_":
        return  # the seed of an addmm is told under epilogue_lost
    types = [found_type.name for t in operands["dtypes"][:2] if (found_type := dtype(t)) is not None]
    if name == "aten::copy_" and len(types) == 2 and types[0] != types[1]:
        found.casts.setdefault(f"{types[1]} → {types[0]}", []).append(row)
        return
    path = _path(facts, op)
    if DDP_BUCKET_COPY in path:
        found.buckets.append(row)
    elif not on_purpose(path):
        found.hidden.setdefault(_words(path), []).append(row)


def _path(facts: Facts, op: int) -> list[str]:
    """Operators around a copy, itself included, outermost first; user annotations are no operators."""
    trace = facts.context.trace
    names = [trace.name(op)]
    names += [trace.name(up) for up in trace.forest.ancestors(op) if trace.kind[up] == RowKind.OPERATOR]
    return names[::-1]


def _words(path: list[str]) -> str:
    """``reshape → clone → copy_``, with the backward node in front where there is one."""
    aten = [name.removeprefix("aten::") for name in path if name.startswith("aten::")]
    nodes = [name for name in path if name.endswith(("Backward0", "Backward1", "Backward2"))]
    node = nodes[-1].rsplit(" ", 1)[-1] if nodes else ""
    return _ARROW.join([node, *aten] if node else aten)


def _joins_one(shapes: list[object]) -> bool:
    """Whether a ``cat`` takes one tensor with data beside empty ones."""
    members = shapes[0] if shapes and isinstance(shapes[0], list) else []
    if len(members) < 2 or not all(isinstance(member, list) for member in members):
        return False
    full = [member for member in members if 0 not in member]
    return len(full) == 1


def _before_graphs(facts: Facts) -> set[int]:
    """Launch calls of copies that come right before a graph launch, nothing else being launched between.

    That is how torch's CUDA graph trees, and programs with graphs of their own, bring inputs to their fixed places.
    """
    trace = facts.context.trace
    calls = np.flatnonzero(trace.links.enqueues)
    found: set[int] = set()
    if not (trace.links.call[calls] == Call.LAUNCH_GRAPH).any():
        return found
    feeding: dict[int, bool] = {}
    for call in calls[np.argsort(-trace.start[calls], kind="stable")].tolist():
        lane = int(trace.lane[call])
        if trace.links.call[call] == Call.LAUNCH_GRAPH:
            feeding[lane] = True
        elif feeding.get(lane):
            op = int(trace.links.op[call])
            if op >= 0 and trace.name(op) in FEEDS_GRAPH:
                found.add(call)
            else:
                feeding[lane] = False
    return found


def _hidden(facts: Facts, groups: dict[str, list[int]]) -> Iterable[Finding]:
    ranked = sorted(groups.items(), key=lambda item: -_us(facts, item[1]))
    shown = [item for item in ranked[:SHOWN_KINDS] if facts.worth(_us(facts, item[1]))]
    if len(ranked) == len(shown) + 1 and facts.worth(_us(facts, ranked[-1][1])):
        shown = ranked  # one more is as short as saying that there is one more
    for words, rows in shown:
        yield _copied(facts, [words], rows)
    others = ranked[len(shown) :]
    rest = sorted((row for _, rows in others for row in rows), key=_start(facts))
    if rest and facts.worth(_us(facts, rest)):
        yield _copied(facts, [words for words, _ in others], rest)


def _copied(facts: Facts, paths: list[str], rows: list[int]) -> Finding:
    """One finding about copies hidden in one place, or about all places that are not told one by one."""
    causes = list(dict.fromkeys(_cause(path) for path in paths))
    if len(causes) > _TOLD_CAUSES:
        causes = ["other"]
    why, advice = (" ".join(HIDDEN_COPY[cause][part] for cause in causes) for part in (0, 1))
    where = _fitted(paths[0]) if len(paths) == 1 else f"{_owner(paths[0])} and {len(paths) - 1} more"
    if len(paths) == 2:
        where = " and ".join(dict.fromkeys(map(_owner, paths)))
    named = ", ".join(paths[:SHOWN_KINDS]) + (", …" if len(paths) > SHOWN_KINDS else "")
    return _told(facts, "hidden_copy", rows, saves=True, where=where, paths=named, why=why, advice=advice)


def _cause(path: str) -> str:
    """Why a copy is there: by the innermost operator around it whose reason to copy is known."""
    if path == _CAT_OF_ONE:
        return HIDDEN_COPY_OPERATORS["cat"]
    causes = (HIDDEN_COPY_OPERATORS.get(name) for name in reversed(path.split(_ARROW)))
    return next((cause for cause in causes if cause is not None), "other")


def _owner(path: str) -> str:
    """The innermost operator of a path that does more than copy: ``pad → constant_pad_nd → copy_`` → the second."""
    steps = [name for name in path.split(_ARROW) if name not in _THE_COPY]
    return steps[-1] if steps else path


def _fitted(path: str) -> str:
    """A path as a title can hold it: one that is too long without its copying end, then without its middle."""
    if len(path) <= _WHERE_LENGTH:
        return path
    first, *steps = path.split(_ARROW)
    while len(steps) > 1 and steps[-1] in _THE_COPY:
        steps.pop()
    path = _ARROW.join([first, *steps])
    while len(path) > _WHERE_LENGTH and len(steps) > 1:
        steps.pop(0)
        path = _ARROW.join([first, "…", *steps])
    return path


def _transfer(facts: Facts, way: str, rows: list[int]) -> Finding:
    """Pageable copies are a warning where they take a share of the steps worth speaking of."""
    trace = facts.context.trace
    pageable = [row for row in rows if is_pageable(trace.name(row))]
    period_us = sum(step.period_us for step in facts.steps)
    rule = "pageable_transfers" if _us(facts, pageable) >= WORTH_SHARE * period_us else "host_transfers"
    told = pageable if rule == "pageable_transfers" else rows
    sizes = [trace.args(row).get("bytes") for row in told]
    known = [size for size in sizes if isinstance(size, int)]
    return _told(
        facts,
        rule,
        told,
        way={"HtoD": "from the host to the GPU", "DtoH": "from the GPU to the host"}.get(way, way),
        size=f", {bytes_of(facts.per_step(sum(known)))}" if len(known) == len(told) else "",
        pageable=f" {len(pageable)} of {len(rows)} go through pageable memory, for which the calling thread waits."
        if pageable
        else "",
    )


def _told(facts: Facts, rule: str, rows: list[int], *, saves: bool = False, **places: Any) -> Finding:
    number, each = facts.tally(len(rows))
    return facts.finding(
        rule,
        rows,
        saving_us=facts.per_step(_us(facts, rows)) if saves else None,
        source_row=facts.anchor(rows[0]),
        number=number,
        copies="copy" if number == "1" else "copies",
        each=each,
        time=facts.spent(_us(facts, rows), each),
        total=facts.spent(_us(facts, rows)),
        **places,
    )


def _us(facts: Facts, rows: list[int]) -> float:
    return int(facts.context.trace.duration[rows].sum()) / 1000


def _start(facts: Facts) -> Callable[[int], int]:
    trace = facts.context.trace
    return lambda row: int(trace.start[row])
