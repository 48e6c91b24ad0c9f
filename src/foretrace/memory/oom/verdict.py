"""Why a request failed, from what its message says: what was lacking, and whose memory would have served it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.knowledge import allocator
from foretrace.knowledge import out_of_memory as known
from foretrace.memory.oom.accounts import Accounts
from foretrace.memory.oom.contradictions import FREE, PROCESS
from foretrace.memory.oom.messages import Amount, Message
from foretrace.model.oom import Verdict

__all__ = ["Contribution", "Judgement", "judge", "request_of"]

# Kinds of message whose size is that of a segment (get_allocation_size): not those of Metal, the host and libraries.
_ALLOCATOR = "allocator"
_WITH_SIZES = (_ALLOCATOR, "async")


@dataclass(frozen=True, slots=True)
class Contribution:
    """Memory that could have served the request, and whether it would have by itself.

    ``guessed``: that it is there follows from what is missing in the sum. ``counts``: False for what is too little of
    the whole to be why a request failed (cached memory that every run has, another process's context), though it would
    have served this one.
    """

    verdict: Verdict
    amount: Amount
    suffices: bool | None
    guessed: bool = False
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict. ``case`` tells variants of one verdict apart; ``missing``: lacking beyond what was free."""

    verdict: Verdict
    certain: bool
    case: str = ""
    requested: Amount | None = None
    missing: Amount | None = None
    contributions: tuple[Contribution, ...] = field(default=())


def request_of(message: Message) -> Amount | None:
    """What the program asked for: the message names the segment that the allocator asked the device for.

    2 MiB stand for up to 1 MiB, 20 MiB for 1 to 10 MiB or just that, and other sizes were rounded up to the next 2 MiB.
    """
    asked = message.asked
    if asked is None or message.kind != _ALLOCATOR:
        return asked
    if asked.low <= allocator.SMALL_SEGMENT_BYTES <= asked.high:
        return Amount(1, allocator.SMALL_REQUEST_BYTES, allocator.SMALL_REQUEST_BYTES)
    if asked.low <= allocator.LARGE_SEGMENT_BYTES <= asked.high:
        likely = allocator.MIN_OWN_SEGMENT_BYTES - allocator.MIN_BLOCK_BYTES
        return Amount(allocator.SMALL_REQUEST_BYTES + 1, allocator.LARGE_SEGMENT_BYTES, likely)
    if asked.high < allocator.MIN_OWN_SEGMENT_BYTES:
        return asked
    least = max(1, asked.low - allocator.ROUND_SEGMENT_BYTES + 1)
    return Amount(least, asked.high, asked.nominal)


def judge(message: Message, accounts: Accounts) -> Judgement:
    """The verdict on one message.

    A verdict is certain where it holds for every size that the printed ones may stand for, and rests on nothing that
    was inferred or that another number of the message contradicts.
    """
    if FREE in accounts.contradictions:
        judgement = _judged(replace(message, free=None), accounts)
        if judgement.case == "no_numbers":
            judgement = replace(judgement, case="contradiction")
    else:
        judgement = _judged(message, accounts)
    return replace(judgement, certain=False) if accounts.contradictions else judgement


def _judged(message: Message, accounts: Accounts) -> Judgement:
    if message.asked is not None and message.asked.unreal:
        # Whatever allocator it was: no device and no host has as much.
        return Judgement("impossible", certain=True, case="overflow", requested=message.asked)
    if message.kind == "exabyte":
        return Judgement("impossible", certain=True, case="exabyte")
    if message.backend == "MPS":
        return _metal(message)
    asked, requested = message.asked, request_of(message)
    if message.kind == "vllm_cache":
        return Judgement("limit", certain=True, case=message.kind)
    if message.kind == "vllm_startup":
        return _startup(message, accounts)
    if message.kind not in _WITH_SIZES or asked is None or requested is None:
        return Judgement("unknown", certain=False, case=message.kind, requested=requested)
    if message.total is not None and asked.low > message.total.high:
        return Judgement("impossible", certain=True, requested=requested, missing=_above(asked, message.total))
    free = message.free
    if message.allowed is not None and asked.low > message.allowed.high:
        fits = free is not None and free.at_least(asked)
        missing = _above(asked, message.allowed)
        if not fits:
            return Judgement(
                "impossible", certain=fits is False, case="limit_impossible", requested=requested, missing=missing
            )
        size = free if free is not None else asked
        causes = (Contribution("limit", size, suffices=True),)
        return Judgement("limit", certain=True, requested=requested, missing=missing, contributions=causes)
    if free is None:
        return Judgement("unknown", certain=False, case="no_numbers", requested=requested)
    return _weighed(message, accounts, asked, requested, free)


def _weighed(message: Message, accounts: Accounts, asked: Amount, requested: Amount, free: Amount) -> Judgement:
    held = message.counted
    room = message.allowed - held if message.allowed is not None and held is not None else None
    binding = None if room is None else _less(room, asked)
    plenty = free.low >= asked.high + known.DRIVER_KEEPS_BYTES
    if plenty and binding is not True:
        if room is not None and binding is None:
            cause = Contribution("limit", free, suffices=None)
            return Judgement("limit", False, requested=requested, missing=_above(asked, room), contributions=(cause,))
        return Judgement("driver", certain=accounts.adds_up is not False, requested=requested)
    usable = _usable(free, asked)
    if room is not None and binding is True and room.nominal < usable.nominal:
        usable = Amount(max(0, room.low), max(0, room.high), max(0, room.nominal))
    causes = sorted(_contributions(message, accounts, usable, requested, free), key=lambda one: -one.amount.nominal)
    missing = _above(asked, usable)
    counting = [one for one in causes if one.counts]
    surely = [one for one in counting if one.suffices]
    perhaps = [one for one in counting if one.suffices is None]
    if surely or perhaps:
        chosen = (surely or perhaps)[0]
        certain = bool(surely) and not chosen.guessed
        return Judgement(chosen.verdict, certain, requested=requested, missing=missing, contributions=tuple(causes))
    together = usable
    for one in counting:
        together = together + one.amount
    if counting and together.low >= requested.high:
        return Judgement(counting[0].verdict, False, "mixed", requested, missing, tuple(causes))
    certain = not counting or together.at_least(requested) is False
    nearly = any(one.verdict == "fragmentation" and one.suffices is not False for one in causes)
    case = "nearly_full" if nearly and _crowded(message, limited=_limited(message, usable, free)) else ""
    return Judgement("full", certain, case, requested, missing, tuple(causes))


def _contributions(
    message: Message, accounts: Accounts, usable: Amount, requested: Amount, free: Amount
) -> list[Contribution]:
    found = []

    def add(
        verdict: Verdict, amount: Amount, whole: Amount | None = None, *, guessed: bool = False, small: bool = False
    ) -> None:
        counts = not small and (whole is None or amount.high >= known.NOISE_SHARE * whole.low)
        found.append(Contribution(verdict, amount, (usable + amount).at_least(requested), guessed, counts))

    limited = _limited(message, usable, free)
    if limited:
        add("limit", free - usable)
    if message.unallocated is not None and message.unallocated.high > 0:
        add("fragmentation", message.unallocated, message.reserved, small=_crowded(message, limited=limited))
    if message.private is not None:
        add("graph_pool", message.private)
    if limited:
        # What others hold counts against the device, not against this process's limit.
        return found
    if accounts.others:
        doubted = bool(accounts.contradictions)
        held = Amount.exactly(0)
        for one in accounts.others:
            held = held + one.amount
        add(
            "other_process",
            held,
            message.total,
            guessed=accounts.inferred is not None or doubted,
            small=PROCESS in accounts.contradictions,
        )
    elif accounts.hidden is not None:
        add("other_process", accounts.hidden, guessed=True)
    return found


def _limited(message: Message, usable: Amount, free: Amount) -> bool:
    return usable.nominal < free.nominal and message.allowed is not None and _room(message) < free.nominal


def _room(message: Message) -> int:
    if message.allowed is None or message.counted is None:
        return known.NOT_REPORTED_BYTES
    return max(0, message.allowed.nominal - message.counted.nominal)


def _crowded(message: Message, *, limited: bool) -> bool:
    """Whether tensors fill the device, or what of it the process may have, so far that it is full rather than holed."""
    most = message.allowed if limited else message.total
    if most is None or message.allocated is None:
        return False
    idle = message.private.nominal if message.private is not None else 0
    return message.allocated.nominal - idle >= known.NEARLY_FULL_SHARE * most.nominal


def _startup(message: Message, accounts: Accounts) -> Judgement:
    """VLLM's refusal to start: less was free than the share it was told to take."""
    asked, free = message.asked, message.free
    missing = None if asked is None or free is None else _above(asked, free)
    if accounts.hidden is None:
        return Judgement("limit", True, message.kind, asked, missing)
    suffices = None if asked is None or free is None else (free + accounts.hidden).at_least(asked)
    causes = (Contribution("other_process", accounts.hidden, suffices, guessed=True),)
    return Judgement("other_process", False, message.kind, asked, missing, causes)


def _usable(free: Amount, asked: Amount) -> Amount:
    """What of the free memory the device would have given: less than was asked for, as it refused."""
    most = max(0, asked.low - 1)
    return Amount(min(free.low, most), min(free.high, most), min(free.nominal, most))


def _less(one: Amount, other: Amount) -> bool | None:
    enough = one.at_least(other)
    return None if enough is None else not enough


def _above(one: Amount, other: Amount) -> Amount:
    rest = one - other
    return Amount(max(0, rest.low), max(0, rest.high), max(0, rest.nominal))


def _metal(message: Message) -> Judgement:
    """Metal's allocator has a limit of its own (recommendedMaxWorkingSetSize times a ratio), and refuses beyond it."""
    asked, allowed = message.asked, message.allowed
    if message.kind == "mps_buffer":
        return Judgement("impossible", certain=True, case="mps_buffer", requested=asked)
    if allowed is None:
        return Judgement("unknown", certain=False, case="no_numbers", requested=asked)
    if asked is not None and asked.low > allowed.high:
        return Judgement("impossible", True, "mps_impossible", asked, _above(asked, allowed))
    used = message.allocated or Amount.exactly(0)
    if message.elsewhere is not None:
        used = used + message.elsewhere
    if asked is None:
        return Judgement("limit", certain=True, case="mps_limit")
    missing = _above(used + asked, allowed)
    room = allowed - used
    enough = room.at_least(asked)
    if enough and not _needs_heap(asked, room):
        return Judgement("driver", certain=False, case="mps_room", requested=asked)
    return Judgement("limit", certain=enough is False, case="mps_limit", requested=asked, missing=missing)


def _needs_heap(asked: Amount, room: Amount) -> bool:
    """Whether the request may have been one for a whole heap, which the limit left no room for."""
    least, most = known.METAL_HEAP_OF
    return asked.high >= least and asked.low < most and room.low < known.METAL_HEAP_BYTES
