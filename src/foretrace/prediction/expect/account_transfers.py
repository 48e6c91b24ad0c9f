"""Accounts of copies and memsets that were not expected, or that are missing."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.knowledge.copying import SEEDED, is_scalar_read, on_purpose
from foretrace.knowledge.results import is_fill
from foretrace.model.expectations import Account
from foretrace.model.report import Transfer
from foretrace.model.words import bytes_of
from foretrace.prediction.expect.accounts import Case
from foretrace.prediction.expect.roles import reason_of
from foretrace.prediction.expect.subject import Subject

__all__ = ["memcpy_role", "memcpys", "memset_role", "memsets", "told"]


def memcpys(case: Case) -> Iterator[Account]:
    """Why there are more, or fewer, copies than expected."""
    if case.difference > 0:
        yield from _groups(case, memcpy_role)
        return
    copies = [kernel for kernel in case.view.kernels if kernel.kind == "copy"]
    if copies:
        names = ", ".join(dict.fromkeys(kernel.short_name for kernel in copies))
        yield case.account("copies_as_kernels", f"{len(copies)} copies run as kernels: {names}", work=copies)


def memsets(case: Case) -> Iterator[Account]:
    """Why there are more, or fewer, memsets than expected."""
    if case.difference > 0:
        yield from _groups(case, memset_role)
        return
    fills = [kernel for kernel in case.view.kernels if is_fill(kernel.op or "")]
    if fills:
        names = ", ".join(dict.fromkeys(kernel.short_name for kernel in fills))
        yield case.account("fills_as_kernels", f"{len(fills)} fills run as kernels: {names}", work=fills)


def memcpy_role(subject: Subject, transfer: Transfer) -> str:
    """The fact that tells why a copy is there."""
    op = transfer.op or ""
    if transfer.direction is not None and transfer.direction not in ("DtoD", "PtoP"):
        return "scalar_read" if is_scalar_read(op) else "host_copy"
    if op in SEEDED:
        return "seeded_output"
    if any(kernel.graph for kernel in subject.kernels_by_step.get(transfer.step, [])):
        return "graph_input"
    return "requested_copy" if not op or on_purpose(_path(subject, transfer)) else "hidden_copy"


def memset_role(subject: Subject, transfer: Transfer) -> str:
    """The fact that tells why a memset is there."""
    if transfer.graph:
        return "graph_memset"
    if is_fill(transfer.op or "") or transfer.op is None:
        return "fill_memset"
    launching = {kernel.op for kernel in subject.kernels_by_step.get(transfer.step, [])}
    return "library_memset" if transfer.op in launching else "of_operator"


def _path(subject: Subject, transfer: Transfer) -> list[str]:
    """The operators around a copy, outermost first; its own alone where the trace is not at hand."""
    row = subject.row_of_event.get(transfer.event)
    if row is None or subject.context is None:
        return [transfer.op] if transfer.op else []
    return subject.context.op_path(row)


def told(transfers: list[Transfer]) -> str:
    """``2 memsets of 4 B by aten::mm`` in words; the sizes only where they agree."""
    first = transfers[0]
    many = "" if len(transfers) == 1 else "s"
    way = f" {first.direction}" if first.direction else ""
    sizes = {transfer.bytes for transfer in transfers}
    known = next(iter(sizes)) if len(sizes) == 1 else None
    size = f" of {bytes_of(known)}" if known is not None else ""
    where = f" by {first.op}" if first.op else " replayed by a CUDA graph" if first.graph else " outside any operator"
    return f"{len(transfers)} {first.kind}{many}{way}{size}{where}"


def _groups(case: Case, role_of: object) -> Iterator[Account]:
    find = memcpy_role if role_of is memcpy_role else memset_role
    groups: dict[tuple[str, str, str], list[Transfer]] = {}
    for item in case.counted:
        if isinstance(item, Transfer):
            fact = find(case.subject, item)
            groups.setdefault((fact, item.op or "", item.direction or ""), []).append(item)
    for (fact, _, _), members in sorted(groups.items(), key=lambda item: -len(item[1])):
        why = reason_of(_path(case.subject, members[0])) if fact == "hidden_copy" else None
        yield case.account(fact, told(members), work=members, count=min(len(members), case.difference), why=why)
