"""What foretrace says of out-of-memory messages, as plain data: schema ``foretrace.oom/1``.

Sizes are bytes. Messages print them with two decimals, so each is the one written and the two it lies between. What a
message does not say is ``None``, never zero.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "SCHEMA",
    "Account",
    "Cause",
    "Explanation",
    "Oom",
    "Remedy",
    "Said",
    "SaidProcess",
    "Size",
    "SnapshotCheck",
    "Stance",
    "Verdict",
]

SCHEMA: Literal["foretrace.oom/1"] = "foretrace.oom/1"

# fragmentation: cached free memory would have served it in one piece. full: it would not fit even then, or tensors fill
# the device so far ("nearly full") that no more than one such request would.
# other_process: what others hold would have sufficed. graph_pool: what is idle in private pools would have.
# limit: a limit below the device's memory refused it. impossible: more than there is. driver: more was free than asked
# for. unknown: the message does not say enough.
Verdict = Literal[
    "fragmentation", "full", "other_process", "graph_pool", "limit", "impossible", "driver", "unknown"
]  # fmt: skip
Stance = Literal["helps", "may", "cannot"]
AccountKind = Literal["free", "tensors", "private_idle", "unallocated", "reserved", "own_other", "process", "rest"]


class Size(msgspec.Struct, kw_only=True):
    """A size as printed, and the two it lies between."""

    bytes: int
    low_bytes: int
    high_bytes: int


class SaidProcess(msgspec.Struct, kw_only=True):
    """A process the message lists."""

    pid: int
    size: Size


class Said(msgspec.Struct, kw_only=True):
    """What the message says, and nothing else."""

    kind: str
    backend: str
    device: int | None
    torch_versions: str | None  # those that word it so
    asked: Size | None  # of the device: for a caching allocator a whole segment
    total: Size | None
    free: Size | None
    this_process: Size | None
    processes: list[SaidProcess]
    allowed: Size | None
    reserved: Size | None
    allocated: Size | None
    private_pools_idle: Size | None
    unallocated: Size | None
    elsewhere: Size | None  # MPS: allocations besides PyTorch's
    advice: str | None  # what the message itself recommends


class Account(msgspec.Struct, kw_only=True):
    """A part of the device's memory."""

    kind: AccountKind
    what: str
    size: Size
    pid: int | None = None


class Cause(msgspec.Struct, kw_only=True):
    """What contributed, and by how much; the most bytes first."""

    verdict: Verdict
    what: str
    size: Size
    counts: bool  # False: too little of the whole to be the reason, though it may have served this request
    suffices: bool | None  # whether this alone would have served the request; None: the rounding hides it


class Remedy(msgspec.Struct, kw_only=True):
    """Something people do about it, whether it helps here, and why or why not."""

    key: str
    stance: Stance
    title: str
    because: str
    preconditions: list[str]
    source: str | None


class SnapshotCheck(msgspec.Struct, kw_only=True):
    """What an allocator snapshot adds to the message."""

    path: str
    agrees: bool | None  # with the verdict; None: it cannot tell
    because: list[str]
    pinned_by: list[str]  # the program's lines that keep holes from being joined, the worst first
    where: str | None  # the failed request's line, where its history has it


class Explanation(msgspec.Struct, kw_only=True):
    """One message explained."""

    verdict: Verdict
    certain: bool  # False: inferred, or hidden by rounding
    headline: str
    first: str  # the one thing to do first
    because: list[str]
    requested: Size | None  # by the program; the message itself names the segment
    missing: Size | None  # what was lacking to the request, beyond free and cached memory
    said: Said
    accounts: list[Account]
    adds_up: bool | None
    surplus_bytes: int | None  # by how much the parts exceed the total (below zero: fall short of it)
    causes: list[Cause]
    remedies: list[Remedy]
    not_known: list[str]
    count: int
    ranks: list[int]
    line: int
    snapshot: SnapshotCheck | None = None


class Oom(msgspec.Struct, kw_only=True):
    """Every out-of-memory message of a text, explained."""

    schema: Literal["foretrace.oom/1"] = SCHEMA
    path: str
    messages: list[Explanation]
    left_out: int = 0  # how often further messages stand in the text, beyond the most that are explained
