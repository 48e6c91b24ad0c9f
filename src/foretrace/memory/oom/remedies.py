"""What helps against running out of memory in one case and what cannot, each with its reason and its conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt

from foretrace.knowledge import out_of_memory as known
from foretrace.knowledge.oom_remedies import CHECKS, REMEDIES
from foretrace.memory.oom.accounts import Accounts
from foretrace.memory.oom.messages import Amount, Message
from foretrace.memory.oom.verdict import Contribution, Judgement
from foretrace.model.oom import Remedy
from foretrace.model.words import listed, share_of

__all__ = ["Case", "matrix_of", "places_of", "remedies_of", "words_of"]

_STANCES = ("helps", "may", "cannot")
_UNSAID = "what the message does not say"
_SHOWN_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One message with all that is known around it.

    ``conf``: the allocator's options as far as they are known. ``windows``: the text has paths of Windows. ``version``:
    PyTorch's, as the user says it. ``other_pools``: a snapshot shows that the idle memory is other streams' or pools'.
    """

    message: Message
    accounts: Accounts
    judgement: Judgement
    conf: Mapping[str, str] = field(default_factory=dict)
    windows: bool = False
    version: tuple[int, int] | None = None
    other_pools: bool = False

    @property
    def expandable(self) -> bool:
        """Whether expandable segments are known to be on."""
        return self.conf.get("expandable_segments") == "True"

    def cause(self, verdict: str) -> Contribution | None:
        """What the judgement has of one kind of memory."""
        return next((one for one in self.judgement.contributions if one.verdict == verdict), None)


def words_of(amount: Amount | None) -> str:
    """A size as messages print it; "about" or "less than" where its rounding is a tenth of it or more."""
    if amount is None:
        return _UNSAID
    size = known.printed(amount.nominal)
    if amount.high - amount.low <= 0.1 * amount.nominal:
        return size
    return f"about {size}" if amount.low > 0 and amount.nominal > 0 else f"less than {known.printed(amount.high + 1)}"


def matrix_of(amount: Amount | None) -> str | None:
    """The square matrix of that size, if its side is a round number: scores of attention are ``heads · length²``."""
    if amount is None or amount.low < known.MATRIX_LEAST_BYTES:
        return None
    for matrices in (1, 32):
        for width, name in ((4, "float32"), (2, "16 bits")):
            middle = isqrt(amount.high // (width * matrices))
            side = middle // known.MATRIX_STEP * known.MATRIX_STEP
            if side and amount.low <= matrices * width * side * side <= amount.high:
                many = "a matrix" if matrices == 1 else f"{matrices} matrices"
                return f"{many} of {side} × {side} in {name}"
    return None


def remedies_of(case: Case) -> list[Remedy]:
    """Every remedy that has something to say, those that help first, those that cannot last."""
    places = places_of(case)
    found: list[Remedy] = []
    for key, remedy in REMEDIES.items():
        name = _fit(key, case)
        fit = remedy.fits.get(name) if name else None
        if fit is None:
            continue
        conditions = [] if fit.stance == "cannot" else list(remedy.preconditions)
        found.append(
            Remedy(
                key=key,
                stance=fit.stance,
                title=remedy.title.format(**places),
                because=fit.because.format(**places),
                preconditions=conditions,
                source=remedy.source,
            )
        )
    if case.judgement.verdict == "driver":
        found.insert(0, _checks(case))
    return sorted(found, key=lambda one: _STANCES.index(one.stance))


def _checks(case: Case) -> Remedy:
    wanted = ("always", case.message.backend)
    return Remedy(
        key="check_driver",
        stance="may",
        title="find the limit that the message does not know of",
        because="The device said that it had enough and did not give it.",
        preconditions=[what for when, what in CHECKS if when in wanted],
        source="cudaMemGetInfo is an estimate; taggui#188, OOTDiffusion#167",
    )


def _fit(key: str, case: Case) -> str | None:
    """The name of the remedy's fit for this case; None: it is not shown."""
    judgement, message = case.judgement, case.message
    special = _SPECIAL.get(key)
    if message.backend == "MPS":
        return judgement.case
    if message.kind == "library" or message.kind.startswith("nccl"):
        return "host" if message.backend == "CPU" else "library"
    if message.kind in ("host", "driver_call"):
        return message.kind
    if message.kind in ("hip_call", "xpu_call"):
        return "driver_call"
    if judgement.verdict == "unknown":
        return None
    return special(case) if special else judgement.verdict


def _expandable(case: Case) -> str | None:
    verdict, pieces = case.judgement.verdict, case.cause("fragmentation")
    if case.expandable:
        return "expandable_on"
    if case.windows:
        return "expandable_windows"
    if (case.version is not None and case.version < known.EXPANDABLE_SINCE) or case.message.wording == "cached":
        return "expandable_old"
    if verdict == "fragmentation":
        if case.other_pools:
            return "expandable_snapshot"
        return "expandable_split" if "max_split_size_mb" in case.conf else "fragmentation"
    if pieces is None:
        return verdict
    if verdict == "full":
        free, requested = case.message.free, case.judgement.requested
        enough = free is not None and requested is not None and (free + pieces.amount).at_least(requested)
        return "full_some" if enough else "full"
    if pieces.suffices and pieces.counts and verdict in ("limit", "other_process"):
        return {"limit": "limit_fragmented", "other_process": "other_fragmented"}[verdict]
    return verdict


def _split(case: Case) -> str | None:
    on = case.expandable and case.judgement.verdict == "fragmentation"
    return "split_expandable" if on else case.judgement.verdict


def _other(case: Case) -> str | None:
    if case.judgement.verdict == "other_process":
        return "other_process" if case.accounts.others else "other_hidden"
    cause = case.cause("other_process")
    return "other_small" if cause is not None and case.judgement.verdict == "full" else None


def _graphs(case: Case) -> str | None:
    if case.judgement.verdict == "graph_pool":
        return "graph_pool"
    return "graph_some" if case.cause("graph_pool") else None


def _limit(case: Case) -> str | None:
    return "limit_impossible" if case.judgement.case == "limit_impossible" else case.judgement.verdict


def _matrix(case: Case) -> str | None:
    large = case.judgement.verdict in ("impossible", "full") and matrix_of(case.judgement.requested)
    return "matrix" if large else case.judgement.verdict


_SPECIAL: dict[str, Callable[[Case], str | None]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _split,
    "end_other_process": _other,
    "share_graph_pool": _graphs,
    "raise_limit": _limit,
    "smaller_step": _matrix,
    "fused_attention": _matrix,
}


def places_of(case: Case) -> dict[str, str]:
    """The numbers of a case, for the places in the knowledge's texts."""
    message, judgement = case.message, case.judgement
    pieces, others = case.cause("fragmentation"), case.cause("other_process")
    # As much was free as was wanted, and the driver kept the last of it.
    refused = message.free and message.asked and message.free.at_least(message.asked) is not False
    share = None
    if message.unallocated is not None and message.reserved is not None and message.reserved.nominal:
        share = message.unallocated.nominal / message.reserved.nominal
    return {
        "asked": words_of(message.asked),
        "free": words_of(message.free),
        "total": words_of(message.total),
        "allowed": words_of(message.allowed),
        "elsewhere": words_of(message.elsewhere),
        "missing": "a few MiB" if refused else words_of(judgement.missing),
        "unallocated": words_of(pieces.amount if pieces else message.unallocated),
        "private": words_of(message.private),
        "others": words_of(others.amount if others else None),
        "listing": _listing(case),
        "variable": known.CONF_NAMES.get(message.backend, "PYTORCH_CUDA_ALLOC_CONF"),
        "matrix": matrix_of(judgement.requested) or "",
        "share": share_of(share),
    }


def _listing(case: Case) -> str:
    others = sorted(case.accounts.others, key=lambda one: -one.amount.nominal)
    if not others:
        return (
            "The message lists no such process: it may run in another container, belong to another user, or its "
            "version of "
            "PyTorch lists none; the display and the driver of Windows count as well."
        )
    named = [f"{one.pid} ({words_of(one.amount)})" for one in others[:_SHOWN_PROCESSES]]
    if len(others) > _SHOWN_PROCESSES:
        named.append(f"{len(others) - _SHOWN_PROCESSES} more")
    return f"By the message: process {listed(named)}; in a container its number is that of the host."
