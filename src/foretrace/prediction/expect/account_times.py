"""Accounts of times: kernels where the GPU works too long, idle causes where it waits, operators on the CPU.

A time that is too short has no row to blame: nothing is said of it, but for kernels, which are listed. Parts that add
up to more than the time looked at (recorded under the profiler, or at once on several threads) are told as shares of
what was recorded; where that is many times as long, it was another kind of step, and its parts are withheld.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretrace.knowledge.expectations import OTHER_STEP_TIMES
from foretrace.knowledge.limits import OVERHEAD_SHARE
from foretrace.model.expectations import Account
from foretrace.model.report import Kernel
from foretrace.model.words import share_of, time
from foretrace.prediction.expect.accounts import Case
from foretrace.prediction.expect.observe import observe

__all__ = ["cpu_time", "idle_time", "kernel_time", "step_time", "unprofiled_time"]

_SHOWN = 4
_WORTH = 0.05  # share of the whole from which a part is named
_SLACK = 1.02  # parts are rounded, each by itself
_MOST = 0.5  # share of it from which the parts named are most of it


def kernel_time(case: Case) -> Iterator[Account]:
    """The kernels that hold most of the time, and what nobody may have counted beside them."""
    wanted = set(case.seen.events) if case.seen is not None else set()
    kernels = [kernel for kernel in case.view.kernels if kernel.event in wanted]
    total = sum(kernel.duration_us for kernel in kernels)
    if case.of_ratio and case.seen is not None:
        total = max(total, case.seen.value or 0.0)  # those of the smaller part are not among the kernels
    groups: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.short_name, []).append(kernel)
    ranked = sorted(groups.items(), key=lambda item: -sum(kernel.duration_us for kernel in item[1]))
    parts, longest, told = [], [], 0.0
    for name, members in ranked[:_SHOWN]:
        us = sum(kernel.duration_us for kernel in members)
        if us < _WORTH * total:
            break
        times = f"{len(members)} × " if len(members) > 1 else ""
        parts.append(f"{times}{name} {time(us)} ({share_of(us / total)})" if total else name)
        longest.append(max(members, key=lambda kernel: kernel.duration_us))
        told += us
    if parts:
        # Of too little time, and of a small part, the list says what there is and is no reason.
        why = None if case.difference > 0 and told >= _MOST * total else ""
        seen = case.seen.value if case.seen is not None else None
        at_once = seen is not None and not case.of_ratio and total > seen * _SLACK
        lead = f"of {time(total)} of kernels, some of which ran at once: " if at_once else ""
        yield case.account("time_of_kernels", case.where + lead + ", ".join(parts), work=longest, why=why)


def idle_time(case: Case) -> Iterator[Account]:
    """A cold first step, and what the GPU waited for."""
    step = case.view.step
    if case.difference <= 0:
        return
    yield from _cold(case)
    if step.idle:
        parts = [
            f"{_cause(cause.cause)}{f' ({cause.detail})' if cause.detail else ''} {time(cause.us)}"
            for cause in step.idle[:_SHOWN]
        ]
        yield case.account("idle_causes", f"{case.where}the GPU was idle: {', '.join(parts)}")


def step_time(case: Case) -> Iterator[Account]:
    """Of a step: idle causes and the GPU's work, on a CPU alone the operators; of a place inside: its operators."""
    if case.difference <= 0:
        return
    if case.view.scope.inner or not case.subject.report.trace.has.gpu:
        yield from cpu_time(case)
        return
    idle = list(idle_time(case))
    busy = observe(case.subject, case.view, "gpu_busy_us")
    if case.of_ratio or not busy.value:
        yield from idle  # what lowers a ratio of GPU work to time is the time without work
    elif busy.value > (case.view.step.gpu_idle_us or 0.0):
        yield from kernel_time(replace(case, seen=busy))
        yield from idle
    else:
        yield from idle
        yield case.account("time_of_kernels", f"{case.where}the GPU works {time(busy.value)} of it", why="")


def cpu_time(case: Case) -> Iterator[Account]:
    """A cold first step, and the operators that take most of the CPU time of a step or of a place inside one."""
    context = case.subject.context
    if case.difference <= 0:
        return
    if not case.view.scope.inner:
        yield from _cold(case)
    if context is None:
        return
    trace = context.trace
    by_name: dict[str, list[int]] = {}
    for row in _operators(case) or case.view.rows:
        by_name.setdefault(trace.name(row), []).append(row)
    spent = {name: int(trace.duration[rows].sum()) / 1000 for name, rows in by_name.items()}
    ranked = sorted(spent, key=lambda name: -spent[name])[:_SHOWN]
    total, whole = sum(spent.values()), case.seen.value if case.seen is not None else None
    longest = [max(by_name[name], key=lambda row: int(trace.duration[row])) for name in ranked]
    if not ranked:
        return
    called = {name: f"{len(rows)} × {name}" if len(rows) > 1 else name for name, rows in by_name.items()}
    if not whole or total <= whole * _SLACK:
        parts = [f"{called[name]} {time(spent[name])}" for name in ranked]
        yield case.account("time_of_host", case.where + ", ".join(parts), rows=longest)
    elif total <= whole * OTHER_STEP_TIMES:
        parts = [f"{called[name]} {share_of(spent[name] / total)}" for name in ranked]
        text = f"of {time(total)} of CPU time under the profiler: {', '.join(parts)}"
        yield case.account("shares_of_host", case.where + text, rows=longest)
    else:
        text = f"the operators of the recorded step took {time(total)}, {total / whole:.0f} times as long"
        yield case.account("recorded_apart", case.where + text, rows=longest)


def unprofiled_time(case: Case) -> Iterator[Account]:
    """What of the step without the profiler the GPU works; on a CPU alone the operators."""
    timing = case.subject.report.trace.unprofiled
    if case.difference <= 0 or timing is None:
        return
    if not case.subject.report.trace.has.gpu:
        # The unprofiled median leaves cold calls out, so a cold recorded step is no reason for it.
        yield from (account for account in cpu_time(case) if account.rule != "cold_step")
        return
    busy = observe(case.subject, case.view, "gpu_busy_us")
    if not busy.value:
        return
    share = min(1.0, busy.value / timing.median_us)
    if share >= OVERHEAD_SHARE and not case.of_ratio:
        yield from kernel_time(replace(case, seen=busy, of_many=False))
    left = timing.median_us - busy.value
    if left < 0:
        yield case.account(
            "recorded_apart",
            f"without the profiler a step takes {time(timing.median_us)}, less than the {time(busy.value)} that the "
            "GPU worked in the recorded one",
        )
        return
    yield case.account(
        "unprofiled_rest",
        f"without the profiler a step takes {time(timing.median_us)}; the GPU works {time(busy.value)} of it "
        f"({share_of(share)}) and waits {time(left)}",
    )


def _cold(case: Case) -> Iterator[Account]:
    cold = next((finding for finding in case.subject.report.findings if finding.rule == "cold_first_step"), None)
    if cold is not None and case.view.step.index == 0:
        account = case.account("cold_step", cold.title)
        account.evidence = cold.evidence
        yield account


def _operators(case: Case) -> list[int]:
    """The operators of the step, or of the place inside it, that no other operator of it contains."""
    context = case.subject.context
    assert context is not None
    place, operators = set(case.view.rows), set(context.operator_rows.tolist())
    whole = not case.view.scope.inner
    found = []
    for row in context.operator_rows.tolist():
        if int(context.attribution.step[row]) != case.view.step.index:
            continue
        for up in context.trace.forest.ancestors(row):
            if up in place or up in operators:
                if up in place:
                    found.append(row)
                break
        else:
            found += [row] if whole else []
    return found


def _cause(name: str) -> str:
    return name.replace("_", " ").replace("cpu", "the CPU")
