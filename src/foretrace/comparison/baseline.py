"""What a test runs now against its committed baseline: what became more, what was lost, and what cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from foretrace.comparison.baseline_operators import Path, outermost, told_operators
from foretrace.knowledge.baseline import REASONS, guarded, is_generated
from foretrace.model.baseline import Baseline, Change, Drift, KernelCount, MadeOn, Part
from foretrace.model.words import count, first_of, listed

__all__ = ["against"]

_SHOWN = 4
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
        drift.compared &= _has_common(before, after, whole)
    return drift


def _has_common(old: Part, new: Part, whole: bool) -> bool:
    """Whether both hold anything that can be compared; else nothing would be found, whatever ran."""
    names = [name for name in _TOTALS if whole or name not in ("kernels", "launches")]
    return (
        old.operators is not None
        or new.operators is not None
        or (whole and old.kernels is not None and new.kernels is not None)
        or any(name in old.totals and name in new.totals for name in names)
    )


def _labelled(changes: list[Change], part: Part, parts: int) -> list[Change]:
    if parts == 1:
        return changes
    return [replace(change, text=f"{part.label}: {change.text}", part=part.label) for change in changes]


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
            before, after = outermost(before), outermost(after)
        yield from told_operators(before, after)
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
    for kind in sorted(set(kinds_before) & set(kinds_after) - told):
        was, now = _others(gone, come, kind), _others(come, gone, kind)
        if alike and was and len(was) == len(now):
            yield Change(f"{_named(was)} is now {_named(now)}", more=False)
    shrunk = sum(kinds_after.values()) < sum(kinds_before.values())
    for kind in sorted(more):
        if kind in told:
            continue
        found = [kernel for kernel in come if kernel.kind == kind]
        text = f"{count(more[kind], f'{kind} kernel')} a step more: {_named(found)}"
        was = [kernel for kernel in gone if kernel.kind == kind]
        text += f", where {_named(was)} ran before" if was else ""
        # Fewer kernels that do more each are what fusing is for.
        yield Change(text, more=not (kind == "fused" and shrunk), why=REASONS["copies"] if kind == "copy" else None)
    lost = [f"{fewer[kind]} {kind}" for kind in sorted(fewer) if kind not in told]
    if lost:
        yield Change(f"fewer kernels a step: {listed(lost)}", more=False)


def _others(kernels: Sequence[_Kernel], instead: Sequence[_Kernel], kind: str) -> list[_Kernel]:
    """The kernels of a kind that the other list has not by name: one that another operator calls is the same one."""
    left = Counter(kernel.name for kernel in instead if kernel.kind == kind)
    found = []
    for kernel in kernels:
        if kernel.kind == kind and not left[kernel.name]:
            found.append(kernel)
        elif kernel.kind == kind:
            left[kernel.name] -= 1
    return found


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
    path: Path
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
