"""Out-of-memory messages explained: why each failed, what the device's memory was, what helps and what cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from foretrace.errors import InputError
from foretrace.knowledge import out_of_memory as known
from foretrace.knowledge.allocator import LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES
from foretrace.memory.oom.accounts import accounts_of, own_overhead, size_of
from foretrace.memory.oom.contradictions import FREE, OWN, PROCESS
from foretrace.memory.oom.evidence import check, conf_of, examined, fits, unused
from foretrace.memory.oom.headline import first_of, headline_of
from foretrace.memory.oom.messages import Amount, Message, read_messages
from foretrace.memory.oom.remedies import Case, Surroundings, held_of, matrix_of, remedies_of, words_of
from foretrace.memory.oom.settings import fitting_version
from foretrace.memory.oom.verdict import judge
from foretrace.model.oom import Cause, Explanation, Oom, Said, SaidProcess, Size, SnapshotCheck, Verdict

if TYPE_CHECKING:
    from foretrace.memory.snapshot import Snapshot

__all__ = ["explain_message", "explain_text"]

_WINDOWS: Final = re.compile(known.WINDOWS_SIGNS)
_SERVER: Final = re.compile(known.SERVER_SIGNS)
_NOTEBOOK: Final = re.compile(known.NOTEBOOK_SIGNS)

# More different messages than this are counted only: they are of one kind or another, and nobody reads as many.
_MOST = 1000

_CAUSES: Final[dict[Verdict, str]] = {
    "limit": "free on the device, but beyond the process's limit",
    "fragmentation": "cached by PyTorch, in pieces",
    "graph_pool": "idle in private pools",
    "other_process": "held by others",
}


def explain_text(
    text: str,
    *,
    path: str = "-",
    conf: Mapping[str, str] | None = None,
    version: tuple[int, int] | None = None,
    snapshot: Snapshot | None = None,
) -> Oom:
    """Explain every out-of-memory message of a text.

    ``conf``: the allocator's options (`memory.oom.settings.read_conf`), ``version``: PyTorch's, where they are known;
    ``snapshot``: of the process, to hold the verdicts against. Raises `InputError` where there is no such message.
    """
    messages, left_out = read_messages(text, _MOST)
    if not messages:
        raise InputError(f"there is no out-of-memory message in {_named(path)}; looked for: {known.LOOKED_FOR}")
    around = Surroundings(
        windows=":\\" in text and _WINDOWS.search(text) is not None,
        serving="vllm" in text.lower() and _SERVER.search(text) is not None,
        notebook=_NOTEBOOK.search(text) is not None,
    )
    explained = [
        explain_message(message, conf=conf, version=version, around=around, snapshot=snapshot) for message in messages
    ]
    return Oom(path=path, messages=explained, left_out=left_out)


def explain_message(
    message: Message,
    *,
    conf: Mapping[str, str] | None = None,
    version: tuple[int, int] | None = None,
    around: Surroundings | None = None,
    snapshot: Snapshot | None = None,
) -> Explanation:
    """Explain one message; see `explain_text`. ``around``: what the text beside it shows."""
    accounts = accounts_of(message)
    doubts, version = fitting_version(message, version)
    case = Case(message, accounts, judge(message, accounts), dict(conf or {}), around or Surroundings(), version)
    checked: SnapshotCheck | None = None
    if snapshot is not None:
        memory = examined(snapshot, message, case.judgement)
        if memory is None:
            checked = unused(snapshot, message)
        else:
            checked, other_pools = check(memory, message, case.judgement)
            recorded = conf_of(memory) if fits(memory, message) is not False else {}
            case = replace(case, conf={**recorded, **case.conf}, other_pools=other_pools)
    judgement = case.judgement
    remedies = remedies_of(case)
    return Explanation(
        verdict=judgement.verdict,
        certain=judgement.certain,
        headline=headline_of(case),
        first=first_of(case, remedies),
        because=doubts + _because(case),
        requested=size_of(judgement.requested),
        missing=size_of(judgement.missing),
        said=_said(message),
        accounts=list(accounts.parts),
        adds_up=accounts.adds_up,
        surplus_bytes=None if accounts.surplus is None else max(_size(accounts.surplus).bytes, -(1 << 63)),
        causes=[
            Cause(
                verdict=one.verdict,
                what=_CAUSES[one.verdict],
                size=_size(one.amount),
                suffices=one.suffices,
                counts=one.counts,
            )
            for one in judgement.contributions
        ],
        remedies=remedies,
        not_known=_not_known(case),
        count=message.count,
        ranks=list(message.ranks),
        line=message.line,
        snapshot=checked,
    )


def _size(amount: Amount) -> Size:
    size = size_of(amount)
    assert size is not None
    return size


def _named(path: str) -> str:
    return "standard input" if path == "-" else path


def _said(message: Message) -> Said:
    return Said(
        kind=message.kind,
        backend=message.backend,
        device=message.device,
        torch_versions=known.WORDINGS.get(message.wording or "")
        if message.backend in known.WORDED_BY_VERSION
        else None,
        asked=size_of(message.asked),
        total=size_of(message.total),
        free=size_of(message.free),
        this_process=size_of(message.own),
        processes=[SaidProcess(pid=one.pid, size=_size(one.amount)) for one in message.others],
        allowed=size_of(message.allowed),
        reserved=size_of(message.reserved),
        allocated=size_of(message.allocated),
        private_pools_idle=size_of(message.private),
        unallocated=size_of(message.unallocated),
        elsewhere=size_of(message.elsewhere),
        advice=message.advice,
    )


def _because(case: Case) -> list[str]:
    message, judgement = case.message, case.judgement
    said = [*_request(case), *_reason(case), *_assumed(case)]
    ranked = [one for one in judgement.contributions if one.amount.nominal > 0]
    if len(ranked) > 1:
        parts = [f"{held_of(one)} {_CAUSES[one.verdict]}" for one in ranked]
        said.append(f"By size: {'; '.join(parts)}.")
    if (
        judgement.verdict == "other_process"
        and (cause := case.cause("other_process"))
        and _mostly_own(case, cause.amount.nominal)
    ):
        said.append("Yet this process holds most of the device itself: with others gone, it fails a little later.")
    # Numbers that contradict each other come first: all else rests on them.
    caveats = _caveats(case) if message.kind in ("allocator", "async") else []
    return caveats + said if case.accounts.contradictions else said + caveats


def _request(case: Case) -> list[str]:
    """What was asked for, where the message's size is that of a segment."""
    asked = case.message.asked
    if asked is None or case.message.kind != "allocator" or case.judgement.requested == asked:
        return []
    if asked.low <= SMALL_SEGMENT_BYTES <= asked.high:
        return ["The program asked for 1 MiB or less; the allocator gets 2 MiB of the device for such."]
    if asked.low <= LARGE_SEGMENT_BYTES <= asked.high:
        return [
            "The program asked for more than 1 MiB, most likely less than 10: the allocator gets 20 MiB of the "
            "device for such."
        ]
    return []


def _reason(case: Case) -> list[str]:
    message, judgement = case.message, case.judgement
    free, asked, cached = words_of(message.free), words_of(message.asked), words_of(message.unallocated)
    pieces = case.cause("fragmentation")
    match judgement.verdict:
        case "fragmentation":
            returned = (
                "Whole free segments had been given back before it failed: what is left shares segments with live "
                "tensors, belongs to other streams, or waits for them."
            )
            return [f"{_lacking(case)}, and {cached} are cached.", returned]
        case "full" if judgement.case == "nearly_full":
            return [
                f"{_lacking(case)}. Joined, the {cached} in pieces would have served it, but not much more: the device "
                "holds as many tensors as it can."
            ]
        case "full":
            rest = (
                f" With all {cached} of cached memory in one piece it would still lack {_still(case)}."
                if message.unallocated and not _noise_only(case)
                else ""
            )
            noise = f" The {cached} of cached memory are what every run has." if _noise_only(case) else ""
            return [f"{_lacking(case)}.{rest}{noise}"]
        case "other_process":
            return [f"{_lacking(case)}."]
        case "graph_pool":
            return [
                f"{_lacking(case)}.",
                "What the message calls allocated in private pools is idle there: freed by the graphs that own the "
                "pools, and kept for their next replay.",
            ]
        case "limit" if message.kind == "vllm_cache":
            return [
                "gpu_memory_utilization is the share of the device that weights, the profiled activations and the "
                "cache may take together; the first two take it all."
            ]
        case "limit" if message.kind == "vllm_startup":
            return [f"It starts only where its share is free: {words_of(judgement.missing)} were lacking."]
        case "limit" if judgement.case == "mps_limit":
            other = f" and {words_of(message.elsewhere)} of other allocations" if message.elsewhere else ""
            return [f"{words_of(message.allocated)} of PyTorch's{other} count against {words_of(message.allowed)}."]
        case "limit":
            return [
                f"The allocator holds {words_of(message.reserved)} of the {words_of(message.allowed)} it may have, "
                f"while the device has {free} free."
            ]
        case "impossible":
            return _impossible(case)
        case "driver" if judgement.case == "mps_room":
            used = message.allocated or Amount.exactly(0)
            used = used + message.elsewhere if message.elsewhere is not None else used
            assert message.allowed is not None
            assert message.asked is not None
            return [
                f"{words_of(used)} were in use. With {asked} more, {words_of(message.allowed - used - message.asked)} "
                f"of the limit of {words_of(message.allowed)} would still have been left: Metal itself refused, or the "
                "numbers are not of one moment."
            ]
        case "driver":
            held = "" if pieces is None else f" The {cached} cached by PyTorch do not matter."
            return [
                f"The device said it had {free} free, enough for {asked}, and refused.{held} Some other limit was "
                "hit, which the message does not name."
            ]
        case _ if judgement.case == "contradiction":
            return ["More free than there is cannot be, and without what was free there is no verdict."]
        case _ if message.kind == "nvml":
            return [
                "The allocator was about to write its out-of-memory message and asked NVML for the processes; NVML did "
                "not answer, and that became the error."
            ]
        case _:
            return []


def _assumed(case: Case) -> list[str]:
    """What is taken for the process's own and what for others', where the message does not tell them apart."""
    message, accounts = case.message, case.accounts
    if message.kind not in ("allocator", "async", "vllm_startup"):
        return []
    if message.own is not None or accounts.inferred is not None or accounts.rest is None or accounts.rest.low <= 0:
        return []
    allowance = own_overhead(message)
    if accounts.rest.nominal <= allowance:
        return []
    said = (
        f"{words_of(accounts.rest)} are nobody's by the message: up to {known.printed(allowance)} are assumed to be "
        "this process's context and libraries, "
    )
    if accounts.hidden is not None:
        return [f"{said}the rest others'."]
    return [f"{said}and what exceeds that is too little to blame others."]


def _impossible(case: Case) -> list[str]:
    message, judgement = case.message, case.judgement
    if judgement.case == "overflow" and message.below_zero is not None:
        return [
            "Sizes are written without a sign: one below zero wraps around 2^64 and reads as next to 16 EiB. A number "
            "overflowed where it was computed, or was read from garbage."
        ]
    if judgement.case in ("exabyte", "overflow"):
        return [
            "No device has that much: a size overflowed or was read from garbage (a negative number, uninitialised "
            "memory, ranks that wait for different messages)."
        ]
    if judgement.case == "mps_buffer":
        return ["Metal has no buffers of that size, however much memory is free."]
    most = message.total if judgement.case == "" else message.allowed
    said = [
        f"Even with nothing else in it, {words_of(most)} do not hold {words_of(message.asked)}: no setting of the "
        "allocator helps."
    ]
    if matrix := matrix_of(judgement.requested):
        said.append(f"The size is that of {matrix}: it grows with the square of a length.")
    return said


def _still(case: Case) -> str:
    missing, cached = case.judgement.missing, case.message.unallocated
    return "some" if missing is None or cached is None else words_of(missing - cached)


def _noise_only(case: Case) -> bool:
    """Whether cached memory is too little of what is reserved to count, though it would have served the request."""
    cause, free, requested = case.cause("fragmentation"), case.message.free, case.judgement.requested
    if cause is None or cause.counts or free is None or requested is None:
        return False
    return (free + cause.amount).at_least(requested) is not False


def _lacking(case: Case) -> str:
    free, asked = words_of(case.message.free), words_of(case.message.asked)
    if case.message.free and case.message.asked and case.message.free.at_least(case.message.asked) is not False:
        return f"The device had {free} free for {asked}, but the driver never gives the last of it"
    return f"The device had {free} free for {asked}; {words_of(case.judgement.missing)} were lacking"


def _mostly_own(case: Case, others: int) -> bool:
    reserved = case.message.reserved
    return reserved is not None and others * 10 < reserved.nominal


def _caveats(case: Case) -> list[str]:
    message, accounts = case.message, case.accounts
    said = []
    if OWN in accounts.contradictions:
        said.append(
            f"The numbers contradict each other: {words_of(message.reserved)} are reserved in this process, which is "
            f"said to have {words_of(message.own)} in all (a process of another namespace?). The larger one is taken."
        )
    if FREE in accounts.contradictions:
        said.append(f"The numbers contradict each other: {words_of(message.free)} free of {words_of(message.total)}.")
    if PROCESS in accounts.contradictions:
        said.append("The numbers contradict each other: a process is said to hold more than the device has.")
    if message.total is not None and message.reserved is not None and message.reserved.low > message.total.high:
        said.append(
            f"{words_of(message.reserved)} are reserved on a device of {words_of(message.total)}: the driver (of "
            "Windows) has put part of it into the host's memory, which is slow, and the sums say little."
        )
    elif accounts.adds_up is False and accounts.surplus is not None and accounts.surplus.low > 0:
        said.append(
            f"The parts exceed the total by {words_of(accounts.surplus)}: not all are of one moment, or one is wrong."
        )
    if accounts.inferred is not None:
        said.append(
            f"Process {accounts.inferred.pid} is taken for this one: it holds what PyTorch has reserved. (In a "
            "container a process has another number outside.)"
        )
    if message.own_hidden:
        said.append(
            "The memory of this process is printed as 16 EiB, which is how the driver (of WSL, Windows) says that it "
            "does not know."
        )
    return said


def _not_known(case: Case) -> list[str]:
    message, accounts = case.message, case.accounts
    if message.backend == "MPS":
        return [] if message.allowed else ["how much is used and allowed"]
    if message.kind == "host":
        return ["how much memory the host, its container or its page file had left"]
    if message.kind == "vllm_startup":
        return ["who holds the rest: nvidia-smi says it"]
    if message.kind not in ("allocator", "async"):
        return ["how much was asked for"] * (message.asked is None) + [
            "what was free, and who held the rest: nvidia-smi says it"
        ]
    missing = [
        (message.total, "the device's total"),
        (message.free, "what was free"),
        (message.counted, "what PyTorch had reserved"),
    ]
    unknown = [what for amount, what in missing if amount is None]
    if accounts.rest is not None and message.own is None and accounts.inferred is None and accounts.rest.low > 0:
        unknown.append(
            f"whose the remaining {words_of(accounts.rest)} are: context and libraries of this process, or other "
            "processes"
        )
    if (
        message.kind == "allocator"
        and "expandable_segments" not in case.conf
        and case.judgement.verdict == "fragmentation"
    ):
        unknown.append("whether expandable segments were on (--conf or --snapshot says it)")
    if (
        accounts.parts
        and message.allocated is not None
        and message.private is None
        and message.wording in ("parentheses", "capacty", "cached")
    ):
        unknown.append("how much of the cached memory is in CUDA graphs' pools: this version counts it with the rest")
    return unknown
