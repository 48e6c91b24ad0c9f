"""The device's memory at the moment of an out-of-memory message: who held what, and whether it adds up."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.knowledge import out_of_memory as known
from foretrace.memory.oom.contradictions import FREE, OWN, contradictions_of
from foretrace.memory.oom.messages import Amount, Message, Process
from foretrace.model.oom import Account, AccountKind, Size

__all__ = ["Accounts", "accounts_of", "own_overhead", "size_of"]

_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who held what.

    ``others``: processes that are not this one. ``inferred``: this process, where the message gives it a number only
    (in a container it has another number outside). ``rest``: in use, and nobody's by the message. ``hidden``: the part
    of it that is taken for other processes', where it is clearly beyond what a process has beside its allocator.
    ``surplus``: by how much the parts exceed the total. ``contradictions``: numbers that others contradict
    (`memory.oom.contradictions`).
    """

    parts: tuple[Account, ...]
    others: tuple[Process, ...]
    inferred: Process | None
    hidden: Amount | None
    rest: Amount | None
    surplus: Amount | None
    adds_up: bool | None
    contradictions: tuple[str, ...] = ()


def size_of(amount: Amount | None) -> Size | None:
    """An amount as the document has it."""
    if amount is None:
        return None
    # Sums of nonsense may be larger than readers of JSON take.
    low, high, nominal = (min(size, _MOST) for size in (amount.low, amount.high, amount.nominal))
    return Size(bytes=nominal, low_bytes=low, high_bytes=high)


def accounts_of(message: Message) -> Accounts:
    """The accounts of one message: free, this process, other processes and the rest.

    ``total = free + reserved + the process's other memory + other processes`` where each is said; what is not is left
    to the rest, which is then nobody's by name.
    """
    inferred = _this_process(message)
    others = tuple(one for one in message.others if one is not inferred)
    wrong = contradictions_of(message)
    # Counted in another namespace, or at another moment. What is reserved is the larger, and the allocator's own.
    own = message.reserved if OWN in wrong else message.own or (inferred.amount if inferred else None)
    parts = _inside(message)
    if own is not None and message.reserved is not None and (beside := own - message.reserved).high > 0:
        parts.append(
            _part("own_other", "this process, beside PyTorch's allocator (context, libraries)", _floor(beside))
        )
    elif own is not None and message.reserved is None:
        parts.append(_part("own_other", "this process", own))
    parts += [_part("process", f"process {one.pid}", one.amount, one.pid) for one in others]
    if message.free is not None and FREE not in wrong:
        parts.append(_part("free", "free", message.free))
    if message.total is None or message.free is None or FREE in wrong:
        adds_up = None if not wrong else False
        return Accounts(tuple(parts), others, inferred, None, None, None, adds_up, wrong)
    held = own or message.counted
    used = message.free
    for amount in (held, *(one.amount for one in others)):
        used = used + amount if amount is not None else used
    rest = message.total - used
    hidden = None if wrong else _hidden(message, own, rest)
    adds_up = (
        not wrong and rest.high >= -known.ACCOUNT_NOISE_BYTES and (own is None or rest.low <= known.HIDDEN_LEAST_BYTES)
    )
    if rest.low > 0:
        parts.append(_part("rest", _of_rest(message, own if OWN not in wrong else None), rest))
    surplus = Amount(-rest.high, -rest.low, -rest.nominal)
    return Accounts(tuple(parts), others, inferred, hidden, rest, surplus, adds_up, wrong)


def _of_rest(message: Message, own: Amount | None) -> str:
    if own is not None:
        return "in use, and nobody's by the message"
    if message.kind == "async":
        return "context, libraries, the driver's pool and other processes together"
    return "context and libraries of this process and other processes together"


def _inside(message: Message) -> list[Account]:
    """What the allocator holds: tensors, idle in private pools, cached."""
    if message.allocated is None:
        return [] if message.reserved is None else [_part("reserved", "reserved by PyTorch", message.reserved)]
    parts = []
    tensors = message.allocated
    if message.private is not None:
        # The message adds what is idle in private pools to what is allocated.
        tensors = _floor(tensors - message.private)
    parts.append(_part("tensors", "tensors", tensors))
    if message.private is not None:
        parts.append(_part("private_idle", "idle in private pools (CUDA graphs)", message.private))
    if message.unallocated is not None:
        what = "cached, in pieces" if message.private is not None or message.own is not None else "cached"
        parts.append(_part("unallocated", what, message.unallocated))
    return parts


def _this_process(message: Message) -> Process | None:
    """The listed process that is this one, where the message does not say which.

    It holds what is reserved and not much more. Of several such, the one that holds least.
    """
    if message.own is not None or message.reserved is None:
        return None
    beside = own_overhead(message)
    fitting = [
        one
        for one in message.others
        if one.amount.high >= message.reserved.low and one.amount.low <= message.reserved.high + beside
    ]
    return min(fitting, key=lambda one: one.amount.nominal, default=None)


def _hidden(message: Message, own: Amount | None, rest: Amount) -> Amount | None:
    if own is not None:
        return rest if rest.low >= known.HIDDEN_LEAST_BYTES else None
    # vLLM's message at its start is of a process that holds nothing yet.
    if message.counted is None and message.kind != "vllm_startup":
        return None
    beside = own_overhead(message)
    if rest.nominal < known.CLEARLY_BEYOND * beside:
        return None
    return Amount(max(0, rest.low - beside), rest.high, rest.nominal - beside)


def own_overhead(message: Message) -> int:
    """What is allowed for a process's own context and libraries, in bytes (`knowledge.out_of_memory`)."""
    least, most = known.OWN_OVERHEAD_BYTES
    total = message.total.nominal if message.total is not None else 0
    return int(min(most, max(least, known.OWN_OVERHEAD_SHARE * total)))


def _floor(amount: Amount) -> Amount:
    return Amount(max(0, amount.low), max(0, amount.high), max(0, amount.nominal))


def _part(kind: AccountKind, what: str, amount: Amount, pid: int | None = None) -> Account:
    size = size_of(amount)
    assert size is not None
    return Account(kind=kind, what=what, size=size, pid=pid)
