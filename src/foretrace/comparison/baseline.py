"""What a test runs now against its committed baseline: what became more, what was lost, and what cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from foretrace.knowledge.baseline import FUSED_OPERATORS, REASONS, guarded, is_generated, reason_of, taken_apart, waits
from foretrace.model.baseline import Baseline, Change, Drift, KernelCount, MadeOn, Part
from foretrace.model.words import count, first_of, listed

__all__ = ["against"]

_SHOWN = 4
_Path = tuple[str, ...]
_TOTALS = {
    "kernels": ("kernel", "kernels"),
    "launches": ("launch", "launches"),
    "memcpys": ("copy", "copies"),
    "memsets": ("memset", "memsets"),
    "synchronizations": ("wait for the GPU", "waits for the GPU"),
}


def against(old: Baseline, new: Baseline) -> Drift:
    """Compare what runs now with the baseline, as far as torch, GPU and element types allow."""
    drift = Drift()
    was, now = old.made_on, new.made_on
    if was.gpu is not None and now.gpu is None:
        drift.unseen = f"the baseline was made on {was.gpu}, and nothing ran on a GPU here"
    whole = was.gpu == now.gpu and was.torch == now.torch
    drift.notes += _notes(was, now)
    if len(old.parts) != len(new.parts):
        text = f"the test is recorded {count(len(new.parts), 'time')}, in the baseline {count(len(old.parts), 'time')}"
        drift.changes.append(Change(text, more=True, why="make the baseline anew with --foretrace-update"))
    for before, after in zip(old.parts, new.parts, strict=False):
        drift.changes += _labelled(list(_of_part(before, after, whole, was == now)), after, len(new.parts))
    return drift


def _labelled(changes: list[Change], part: Part, parts: int) -> list[Change]:
    if parts == 1:
        return changes
    return [Change(f"{part.label}: {change.text}", change.more, change.why) for change in changes]


def _notes(was: MadeOn, now: MadeOn) -> Iterator[str]:
    if was.torch != now.torch:
        yield (
            f"the baseline was made with torch {was.torch or 'of unknown version'}, this is "
            f"{now.torch or 'an unknown version'}: of the operators only those that the program calls are compared"
        )
    if was.gpu != now.gpu and was.gpu is not None and now.gpu is not None:
        yield (
            f"the baseline was made on {was.gpu}, this is {now.gpu}: another GPU gets other kernels, "
            "so copies, waits and operators are compared, and kernels are not"
        )
    if was.gpu is None and now.gpu is not None:
        yield (
            f"the baseline was made without a GPU and holds no kernels; on {now.gpu} only the operators "
            "that the program calls are compared: make it anew here with --foretrace-update"
        )
    if was.dtypes != now.dtypes:
        yield f"the baseline was made in {listed(was.dtypes) or 'no type'}, this is {listed(now.dtypes) or 'none'}"


def _of_part(old: Part, new: Part, whole: bool, alike: bool) -> Iterator[Change]:
    """``whole``: same torch and same GPU, or none both times; ``alike``: element types, too."""
    if whole and old.kernels is not None and new.kernels is not None:
        yield from _kernels(old.kernels, new.kernels, alike)
    if old.operators is not None and new.operators is not None:
        before = Counter({tuple(one.path): one.count for one in old.operators})
        after = Counter({tuple(one.path): one.count for one in new.operators})
        if not whole:
            before, after = _outermost(before), _outermost(after)
        yield from _operators(before, after)
    elif old.operators is not None or new.operators is not None:
        known = count(sum(one.count for one in old.operators or new.operators or []), "operator")
        gone = new.operators is None
        text = f"no operator ran, where the baseline has {known}" if gone else f"{known}, where the baseline has none"
        yield Change(text, more=not gone)
    for name, (one, many) in _TOTALS.items():
        if name not in old.totals or name not in new.totals or (not whole and name in ("kernels", "launches")):
            continue
        was, now = old.totals[name], new.totals[name]
        if was == now:
            continue
        found = list(_new_rows(name, old, new))
        by = f": {first_of(found, _SHOWN)}" if found and now > was else ""
        yield Change(f"{was} → {count(now, one, many)} a step{by}", more=now > was)


def _new_rows(name: str, old: Part, new: Part) -> Iterator[str]:
    """Copies, memsets and waits that the baseline has not, with the operator that makes them."""
    if name == "synchronizations":
        gone = Counter({(w.call, w.operator): w.count for w in old.waits or []})
        for wait in new.waits or []:
            if wait.count > gone[wait.call, wait.operator]:
                yield f"{wait.call} by {wait.operator or 'no operator'}"
    elif name in ("memcpys", "memsets"):
        seen = Counter({(t.copy, t.operator): t.count for t in old.transfers or []})
        for transfer in new.transfers or []:
            if f"{transfer.kind}s" == name and transfer.count > seen[transfer.copy, transfer.operator]:
                yield f"{transfer.copy} by {transfer.operator or 'no operator'}"


# ---- operators ----


def _operators(before: Counter[_Path], after: Counter[_Path]) -> Iterator[Change]:
    came, went = after - before, before - after
    plus, minus = _by_name(after) - _by_name(before), _by_name(before) - _by_name(after)
    groups = _groups(came, plus)
    told: set[str] = set()
    for fused in FUSED_OPERATORS:
        names = taken_apart(fused, plus)
        if not minus[fused] or not names:
            continue
        taken = f"{fused} was taken apart into {listed(names)}: its epilogue is lost"
        yield Change(taken, more=True, why=REASONS["epilogue"])
        told |= {fused, *names}
        told |= {root for root, inside in groups.items() if inside & set(names)}
        told |= {name for path in went if path[-1] == fused for name in path}
    more = [name for name in groups if name not in told and guarded(name)]
    for name in sorted(more, key=lambda name: (not waits(name), -plus[name], name)):
        inside = sorted(other for other in groups[name] if other != name and guarded(other) and other not in told)
        where = next((path[:-1] for path in sorted(came, key=len) if path[-1] == name), ())
        text = f"{count(plus[name], 'call')} of {name} a step more"
        text += f", in {' → '.join(where[-2:])}" if where else ""
        text += f", with {first_of(inside, _SHOWN)} inside" if inside else ""
        yield Change(text, more=True, why=reason_of(name, frozenset(groups[name])))
    fewer = [f"{minus[name]} × {name}" for name in sorted(minus) if guarded(name) and name not in told]
    if fewer:
        yield Change(f"fewer a step: {first_of(fewer, _SHOWN)}", more=False)
    views = sorted(name for name in plus if not guarded(name))
    if views:
        total = sum(plus[name] for name in views)
        said = f"{count(total, 'row')} a step more that neither compute nor copy"
        yield Change(f"{said}: {first_of(views, _SHOWN)}", more=False)


def _outermost(paths: Counter[_Path]) -> Counter[_Path]:
    return Counter({path: times for path, times in paths.items() if len(path) == 1})


def _by_name(paths: Counter[_Path]) -> Counter[str]:
    """Calls by operator; one that dispatches to itself (``aten::sum`` to ``aten::sum``) counts once."""
    names: Counter[str] = Counter()
    for path, times in paths.items():
        if path[-1] not in path[:-1]:
            names[path[-1]] += times
    return names


def _groups(came: Counter[_Path], plus: Counter[str]) -> dict[str, set[str]]:
    """New calls by the outermost of them: its name → the names of all new calls inside it, its own included."""
    fresh = {path for path in came if plus[path[-1]]}
    groups: dict[str, set[str]] = {}
    for path in fresh:
        above = [path[:length] for length in range(1, len(path)) if path[:length] in fresh]
        roots = [up for up in above if guarded(up[-1])]
        groups.setdefault((roots[0] if roots else path)[-1], set()).add(path[-1])
    return groups


# ---- kernels ----


def _kernels(old: Sequence[KernelCount], new: Sequence[KernelCount], alike: bool) -> Iterator[Change]:
    before, after = _counted(old), _counted(new)
    gone, come = list((before - after).elements()), list((after - before).elements())
    kinds_before, kinds_after = _kinds(old), _kinds(new)
    more, fewer = kinds_after - kinds_before, kinds_before - kinds_after
    told: set[str] = set()
    if more["elementwise"] or more["reduction"]:
        passes = [kernel for kernel in come if kernel.kind in ("elementwise", "reduction")]
        bare = [k for k in gone if k.kind == "gemm" and k.epilogue and len(k.epilogue) > _epilogue_left(k, come)]
        if bare:
            words = listed(list(dict.fromkeys(word for kernel in bare for word in kernel.epilogue)))
            instead = [kernel for kernel in come if kernel.kind == "gemm"]
            text = f"a GEMM lost its epilogue ({words}): {_named(bare)} is now {_named([*instead, *passes])}"
            yield Change(text, more=True, why=REASONS["epilogue"])
            told |= {"gemm", "elementwise", "reduction"}
        elif fewer["fused"]:
            fused = [kernel for kernel in gone if kernel.kind == "fused"]
            text = f"a fused kernel was taken apart: {_named(fused)} is now {_named(passes)}"
            yield Change(text, more=True, why=REASONS["fusion"])
            told |= {"fused", "elementwise", "reduction"}
    shrunk = sum(kinds_after.values()) < sum(kinds_before.values())
    for kind in sorted(more):
        if kind in told:
            continue
        found = [kernel for kernel in come if kernel.kind == kind]
        text = f"{count(more[kind], f'{kind} kernel')} a step more: {_named(found)}"
        # Fewer kernels that do more each are what fusing is for.
        yield Change(text, more=not (kind == "fused" and shrunk), why=REASONS["copies"] if kind == "copy" else None)
    lost = [f"{fewer[kind]} {kind}" for kind in sorted(fewer) if kind not in told]
    if lost:
        yield Change(f"fewer kernels a step: {listed(lost)}", more=False)
    if alike and not more and not fewer and gone:
        yield Change(f"{_named(gone)} is now {_named(come)}", more=False)


def _counted(kernels: Iterable[KernelCount]) -> Counter[_Kernel]:
    found: Counter[_Kernel] = Counter()
    for one in kernels:
        found[_Kernel(one.kernel, one.kind, one.operator, tuple(one.path), tuple(one.epilogue))] += one.count
    return found


@dataclass(frozen=True)
class _Kernel:
    name: str
    kind: str
    operator: str | None
    path: _Path
    epilogue: tuple[str, ...]


def _kinds(kernels: Iterable[KernelCount]) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in kernels:
        found[one.kind] += one.count
    return found


def _epilogue_left(lost: _Kernel, come: Sequence[_Kernel]) -> int:
    """How much of a lost GEMM's epilogue the new GEMMs have."""
    return max((len(set(lost.epilogue) & set(k.epilogue)) for k in come if k.kind == "gemm"), default=0)


def _named(kernels: Sequence[_Kernel]) -> str:
    """``nvjet 64x8 by aten::mm and elementwise add by aten::add``, with where it is called from."""
    names = []
    for kernel, times in Counter(kernels).items():
        outer = next((name for name in kernel.path if guarded(name)), None)
        by = f" by {kernel.operator}" if kernel.operator and not is_generated(kernel.operator) else ""
        by += f" in {outer}" if by and outer is not None and outer != kernel.operator else ""
        names.append(f"{times} × {kernel.name}{by}" if times > 1 else f"{kernel.name}{by}")
    if len(names) > _SHOWN:
        return first_of(names, _SHOWN)
    return listed(names) or "none"
