"""Accounts of kernels that are more, fewer or of another kind than expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from foretrace.knowledge.comparing import is_part
from foretrace.knowledge.kernels import KINDS
from foretrace.model.expectations import Account
from foretrace.model.report import Kernel
from foretrace.model.words import listed
from foretrace.prediction.expect.accounts import Case
from foretrace.prediction.expect.relations import fits
from foretrace.prediction.expect.roles import ROLE_ORDER, aten_path, chain, reason_of, role

__all__ = ["counts", "done_elsewhere", "fused_away", "patterns"]

_SHOWN = 4
_PASSES = frozenset({"backward", "optimizer", "gradient_sum", "communication"})


def counts(case: Case) -> Iterator[Account]:
    """Accounts of ``kernels`` or of one kind."""
    if case.difference > 0:
        yield from _more(case)
    else:
        yield from _fewer(case)


def patterns(case: Case) -> Iterator[Account]:
    """Accounts of a pattern: the kernels that fit, or those that miss it by the fewest fields."""
    pattern = case.clause.pattern
    if case.difference > 0:
        kernels = [item for item in case.counted if isinstance(item, Kernel)]
        yield case.account("of_operator", _named(kernels), work=kernels, count=case.difference)
        return
    if not case.view.kernels:
        return
    near: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in case.view.kernels:
        lacking = [(name, wanted) for name, wanted in pattern if not fits(kernel, [(name, wanted)])]
        # A kernel whose name says nothing of a field is no near miss.
        if len(lacking) == 1 and _value(kernel, lacking[0][0]) is not None:
            near.setdefault(lacking[0], []).append(kernel)
    for (name, wanted), kernels in sorted(near.items(), key=lambda item: -len(item[1]))[:2]:
        values = ", ".join(list(dict.fromkeys(str(_value(kernel, name)) for kernel in kernels))[:_SHOWN])
        verb = "has" if len(kernels) == 1 else "have"
        yield case.account("near_miss", f"{_named(kernels)} {verb} {name} {values}, not {wanted}", work=kernels)
    if not near:
        yield _composition(case)


# ---- more than expected ----


def _more(case: Case) -> Iterator[Account]:
    kernels, left = _surplus(case), case.difference
    backward = [kernel for kernel in kernels if kernel.phase == "backward"]
    if 2 * len(backward) >= left:
        # A backward pass nobody counted: one account, whatever its kernels do.
        yield _extra(case, "backward", "", backward)
        left -= len(backward)
        kernels = [kernel for kernel in kernels if kernel.phase != "backward"]
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        fact = role(case.subject, kernel) or ""
        # One account a pass, however many operators it has.
        groups.setdefault((fact, "" if fact in _PASSES else chain(kernel)), []).append(kernel)
    for (fact, where), members in sorted(groups.items(), key=lambda item: _place(item[0][0])):
        if left <= 0 or not fact:
            break
        yield _extra(case, fact, where, members)
        left -= len(members)
    if left > 0:
        plain = [kernel for (fact, _), found in groups.items() if not fact for kernel in found]
        yield from _plain(case, _unexpected(case, plain))


def _unexpected(case: Case, kernels: list[Kernel]) -> list[Kernel]:
    """The kernels without those that were expected, which are taken to be the first of their kind."""
    expected = {clause.quantity: clause.range.high or 0 for clause in case.siblings if clause.range is not None}
    if case.clause.range is not None:
        expected[case.clause.quantity] = case.clause.range.high or 0
    seen: Counter[str] = Counter()
    left = []
    for kernel in sorted(kernels, key=lambda kernel: kernel.start_us):
        seen[kernel.kind] += 1
        if seen[kernel.kind] > expected.get(kernel.kind, 0):
            left.append(kernel)
    return left or kernels


def _surplus(case: Case) -> list[Kernel]:
    """The kernels among which the extra ones are: those of kinds that nobody expected, or not so many of."""
    counted = [item for item in case.counted if isinstance(item, Kernel)]
    expected = {
        clause.quantity: clause.range.high
        for clause in case.siblings
        if clause.quantity in KINDS and clause.range is not None and clause.range.high is not None
    }
    if case.clause.quantity != "kernels" or not expected:
        return counted
    there = Counter(kernel.kind for kernel in counted)
    over = {kind for kind, times in there.items() if times > expected.get(kind, 0)}
    return [kernel for kernel in counted if kernel.kind in over] or counted


def _place(fact: str) -> int:
    return ROLE_ORDER.index(fact) if fact in ROLE_ORDER else len(ROLE_ORDER)


def _extra(case: Case, fact: str, where: str, members: list[Kernel]) -> Account:
    text = f"{_named(members)}, launched by {where}" if where else _named(members)
    why = None
    if fact == "hidden_copy":
        why = reason_of(aten_path(members[0]))
    return case.account(fact, text, work=members, count=min(len(members), case.difference), why=why)


def _plain(case: Case, kernels: list[Kernel]) -> Iterator[Account]:
    """Kernels without a role: by operator, those that launch several at once first."""
    by_place: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_place.setdefault(chain(kernel), []).append(kernel)
    ranked = sorted(by_place.items(), key=lambda item: -len(item[1]))
    for place, members in ranked[:_SHOWN]:
        several = len({kernel.kind for kernel in members}) > 1
        fact = "several_kernels" if several else "of_operator"
        yield case.account(fact, f"{_named(members)}, launched by {place}", work=members)
    if len(ranked) > _SHOWN:
        yield _composition(case)


# ---- fewer than expected ----


def _fewer(case: Case) -> Iterator[Account]:
    name = case.clause.quantity
    kernels = case.view.kernels
    fused = _fused(kernels)
    epilogues = [kernel for kernel in kernels if kernel.kind == "gemm" and kernel.decoded.get("epilogue")]
    attention = [kernel for kernel in kernels if kernel.kind == "attention"]
    explained, left = False, -case.difference
    if name in ("kernels", "elementwise", "reduction", "normalization", "softmax") and fused:
        explained = True
        for kernel in fused[:_SHOWN]:
            lost = len(_parts(kernel)) - (1 if name == "kernels" else 0)
            left -= lost
            yield case.account("fused", _does(kernel), work=[kernel], count=-lost)
    if name in ("kernels", "elementwise", "fused") and epilogues:
        explained = True
        done = list(dict.fromkeys(str(word) for kernel in epilogues for word in kernel.decoded["epilogue"]))
        does = "does" if len(epilogues) == 1 else "do"
        text = f"{_named(epilogues)} {does} {listed(done)} in the epilogue"
        left -= len(epilogues)
        yield case.account("epilogue", text, work=epilogues, count=-len(epilogues))
    if name in ("kernels", "gemm", "softmax", "elementwise") and attention:
        explained = True
        yield case.account("fused_attention", _named(attention), work=attention)
    if name == "fused" and not explained:
        pointwise = [kernel for kernel in kernels if kernel.kind == "elementwise"]
        if len(pointwise) > 1:
            explained = True
            yield case.account("not_fused", f"{_named(pointwise)} run one by one", work=pointwise)
        elif kernels:
            explained = True
            text = f"{_named(pointwise)} is the only pointwise kernel" if pointwise else "there is no pointwise kernel"
            yield case.account("nothing_to_fuse", text, work=pointwise)
    if not explained or (name == "kernels" and left > 0):
        yield from done_elsewhere(case)
        yield _composition(case)


def done_elsewhere(case: Case) -> Iterator[Account]:
    """The fused kernels outside an operator's scope whose names list what its own kernels do."""
    op = case.clause.scope.op
    if op is None:
        return
    inside = {kernel.event for kernel in case.view.kernels}
    does = {op, *(kernel.op for kernel in case.view.kernels)}
    phases = {kernel.phase for kernel in case.view.kernels}
    for kernel in case.subject.kernels_by_step.get(case.view.step.index, []):
        parts = _parts(kernel)
        other = kernel.event in inside or (bool(phases) and kernel.phase not in phases)
        if other or len(parts) < 2 or not any(is_part(part, name) for part in parts for name in does):
            continue
        where = f", launched by {chain(kernel)}, outside {op}" if kernel.op else f", outside {op}"
        yield case.account("done_elsewhere", f"{kernel.short_name} does {listed(parts)}{where}", work=[kernel])


def fused_away(case: Case) -> Iterator[Account]:
    """The fused kernels that do what an order looks for in pointwise kernels of their own."""
    for kernel in _fused(case.view.kernels)[:_SHOWN]:
        yield case.account("fused", _does(kernel), work=[kernel])


def _fused(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels that do the work of several operators, by their names."""
    return [kernel for kernel in kernels if kernel.kind == "fused" and len(_parts(kernel)) > 1]


def _does(kernel: Kernel) -> str:
    return f"{kernel.short_name} does {listed(_parts(kernel))} in one kernel"


def _parts(kernel: Kernel) -> list[str]:
    """The operators a fused kernel does, views left out."""
    views = set(map(str, kernel.decoded.get("view_ops") or []))
    return [str(part) for part in kernel.decoded.get("ops") or [] if str(part) not in views]


# ---- words ----


def _composition(case: Case) -> Account:
    kinds = Counter(kernel.kind for kernel in case.view.kernels)
    listed = ", ".join(f"{times} {kind}" for kind, times in kinds.most_common())
    total = len(case.view.kernels)
    text = f"{_times(total)} there: {listed}" if total else "no kernel was launched there"
    return case.account("other_kinds", text, work=case.view.kernels)


def _named(kernels: list[Kernel]) -> str:
    """``2 × nvjet 256x128 TN, elementwise gelu``."""
    short = Counter(kernel.short_name for kernel in kernels)
    shown = [f"{times} × {name}" if times > 1 else name for name, times in short.most_common(_SHOWN)]
    rest = sum(times for _, times in short.most_common()[_SHOWN:])
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _times(number: int) -> str:
    return f"{number} kernel{'' if number == 1 else 's'}"


def _value(kernel: Kernel, name: str) -> str | None:
    """What a kernel has in a field of a pattern, in words; None where its name does not say."""
    value = getattr(kernel, name) if hasattr(kernel, name) else kernel.decoded.get({"parts": "ops"}.get(name, name))
    return ", ".join(map(str, value)) if isinstance(value, list) else None if value is None else str(value)
