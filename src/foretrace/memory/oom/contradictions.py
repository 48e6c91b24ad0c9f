"""Numbers of one message that cannot all be true of one device at one moment."""

from __future__ import annotations

from foretrace.knowledge import out_of_memory as known
from foretrace.memory.oom.amounts import Amount
from foretrace.memory.oom.messages import Message

__all__ = ["FREE", "OWN", "PROCESS", "contradictions_of"]

# What is contradicted: what is free, what this process has in all, what another process has.
FREE = "free"
OWN = "own"
PROCESS = "process"


def contradictions_of(message: Message) -> tuple[str, ...]:
    """Which of the numbers another one contradicts, beyond rounding and the time between two questions."""
    found = []
    if _above(message.free, message.total):
        found.append(FREE)
    if _above(message.reserved, message.own):
        found.append(OWN)
    if any(_above(one.amount, message.total) for one in message.others):
        found.append(PROCESS)
    return tuple(found)


def _above(part: Amount | None, whole: Amount | None) -> bool:
    return part is not None and whole is not None and part.low > whole.high + known.ACCOUNT_NOISE_BYTES
