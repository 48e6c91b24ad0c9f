"""What helps against running out of memory in one case and what cannot, each with its reason and its conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt

from foretrace.knowledge import out_of_memory as known
from foretrace.knowledge.oom_remedies import CHECKS, REMEDIES
from foretrace.knowledge.oom_serving import NOT_IN_SERVERS, SERVING
from foretrace.memory.oom.accounts import Accounts
from foretrace.memory.oom.messages import Amount, Message
from foretrace.memory.oom.verdict import Contribution, Judgement
from foretrace.model.oom import Remedy
from foretrace.model.words import listed, number, share_of

__all__ = ["Case", "Surroundings", "held_of", "matrix_of", "places_of", "remedies_of", "words_of"]

_STANCES = ("helps", "may", "cannot")
_UNSAID = "what the message does not say"
_SHOWN_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the text around a message shows: paths of Windows, vLLM, a notebook."""

    windows: bool = False
    serving: bool = False
    notebook: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """One message with all that is known around it.

    ``conf``: the allocator's options as far as they are known. ``version``: PyTorch's, as the user says it.
    ``other_pools``: a snapshot shows that the idle memory is other streams' or pools'.
    """

    message: Message
    accounts: Accounts
    judgement: Judgement
    conf: Mapping[str, str] = field(default_factory=dict)
    around: Surroundings = Surroundings()
    version: tuple[int, int] | None = None
    other_pools: bool = False

    @property
    def expandable(self) -> bool:
        """Whether expandable segments are known to be on."""
        return self.conf.get("expandable_segments") == "True"

    @property
    def serving(self) -> bool:
        """Whether it is vLLM that ran out of memory."""
        return self.around.serving or self.message.kind.startswith("vllm")

    @property
    def old(self) -> bool:
        """Whether this PyTorch has no expandable segments yet: by the version given, else by the wording."""
        if self.version is not None:
            return self.version < known.EXPANDABLE_SINCE
        message = self.message
        return message.wording in known.OLD_WORDINGS and message.backend in known.WORDED_BY_VERSION

    @property
    def variable(self) -> str:
        """The environment variable of the allocator's settings: as the message names it, else by version and device."""
        if self.message.variable is not None:
            return self.message.variable
        if self.version is not None and self.version >= known.COMMON_CONF_SINCE:
            return known.COMMON_CONF
        return known.CONF_NAMES.get(self.message.backend, "PYTORCH_CUDA_ALLOC_CONF")

    @property
    def times(self) -> float | None:
        """How many times what the device, or its limit, has in all was asked for."""
        sizes = [one.nominal for one in (self.message.total, self.message.allowed) if one is not None]
        if self.message.asked is None or not sizes or min(sizes) == 0:
            return None
        return self.message.asked.nominal / min(sizes)

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


def held_of(cause: Contribution | None) -> str:
    """What others hold; where that is only what is missing in a sum, no more than its order of magnitude."""
    if cause is None or not cause.guessed:
        return words_of(None if cause is None else cause.amount)
    size = cause.amount.nominal / (1 << 30)
    return f"about {size:.0f} GiB" if size >= 1 else f"about {max(0.1, size):.1f} GiB"


def matrix_of(amount: Amount | None) -> str | None:
    """The square matrix of that size, if its side is a round number: scores of attention are ``heads · length²``."""
    if amount is None or amount.unreal or amount.low < known.MATRIX_LEAST_BYTES:
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
        # A device that is nearly full is full where a remedy makes no difference.
        fit = remedy.fits.get(name) or (remedy.fits.get("full") if name == "nearly_full" else None) if name else None
        if fit is None or (fit.stance == "may" and _gains_little(key, case)):
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
    if case.judgement.verdict == "driver" and case.message.backend != "MPS":
        found.insert(0, _checks(case))
    return sorted(found, key=lambda one: _STANCES.index(one.stance))


def _gains_little(key: str, case: Case) -> bool:
    """Whether a remedy's whole gain is next to nothing of what was lacking."""
    others, missing = case.cause("other_process"), case.judgement.missing
    gain = {
        "close_programs": case.message.elsewhere,
        "share_graph_pool": case.message.private,
        "end_other_process": others.amount if others else None,
    }.get(key)
    return gain is not None and missing is not None and gain.high < known.SMALL_GAIN_SHARE * missing.nominal


def _checks(case: Case) -> Remedy:
    wanted = ("windows", "always", case.message.backend) if case.around.windows else ("always", case.message.backend)
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
    if (key in NOT_IN_SERVERS) if case.serving else (key in SERVING):
        return None
    if key == "restart_kernel" and not case.around.notebook:
        return None
    if judgement.case in ("overflow", "exabyte"):
        return "overflow"
    if message.backend == "MPS":
        hopeless = key == "smaller_step" and judgement.verdict == "impossible" and _hopeless(case)
        return "hopeless" if hopeless else judgement.case
    if message.kind.startswith("vllm"):
        if key == "end_other_process":
            return "other_hidden" if judgement.verdict == "other_process" else message.kind
        return message.kind
    if message.kind == "library" or message.kind.startswith("nccl"):
        return "host" if message.backend == "CPU" else "library"
    if message.kind in ("host", "driver_call", "nvml", "runtime_call"):
        return message.kind
    if message.kind in ("hip_call", "xpu_call"):
        return "driver_call"
    if judgement.verdict == "unknown":
        return None
    return special(case) if special else _verdict(case)


def _verdict(case: Case) -> str:
    return "nearly_full" if case.judgement.case == "nearly_full" else case.judgement.verdict


def _hopeless(case: Case) -> bool:
    return case.times is not None and case.times >= known.HOPELESS_TIMES


def _expandable(case: Case) -> str | None:
    verdict, pieces = _verdict(case), case.cause("fragmentation")
    if case.message.kind == "async":
        return "expandable_async"
    if case.expandable:
        return "expandable_on"
    if case.around.windows:
        return "expandable_windows"
    if case.old:
        return "expandable_old"
    if verdict in ("fragmentation", "nearly_full"):
        if case.other_pools:
            return "expandable_snapshot"
        return "expandable_split" if "max_split_size_mb" in case.conf else verdict
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
    if case.message.kind == "async":
        return "split_async"
    on = case.expandable and case.judgement.verdict == "fragmentation"
    return "split_expandable" if on else _verdict(case)


def _cache(case: Case) -> str | None:
    return "cache_async" if case.message.kind == "async" else _verdict(case)


def _other(case: Case) -> str | None:
    if case.judgement.verdict == "other_process":
        if case.accounts.contradictions:
            return "other_doubted"
        return "other_process" if case.accounts.others else "other_hidden"
    cause = case.cause("other_process")
    if cause is None or case.judgement.verdict != "full":
        return None
    if case.accounts.contradictions:
        return "other_doubted"
    return "other_hidden" if cause.guessed else "other_small"


def _graphs(case: Case) -> str | None:
    if case.judgement.verdict == "graph_pool":
        return "graph_pool"
    return "graph_some" if case.cause("graph_pool") else None


def _limit(case: Case) -> str | None:
    return "limit_impossible" if case.judgement.case == "limit_impossible" else case.judgement.verdict


def _matrix(case: Case) -> str | None:
    large = case.judgement.verdict in ("impossible", "full") and matrix_of(case.judgement.requested)
    if large:
        return "matrix"
    return "hopeless" if case.judgement.verdict == "impossible" and _hopeless(case) else _verdict(case)


def _more(case: Case) -> str | None:
    return None if case.judgement.verdict == "impossible" and _hopeless(case) else _verdict(case)


_SPECIAL: dict[str, Callable[[Case], str | None]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _split,
    "end_other_process": _other,
    "share_graph_pool": _graphs,
    "raise_limit": _limit,
    "smaller_step": _matrix,
    "fused_attention": _matrix,
    "empty_cache": _cache,
    "more_memory": _more,
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
        "others": held_of(others),
        "listing": _listing(case),
        "variable": case.variable,
        "times": "" if case.times is None else number(case.times, 2),
        "free_share": _free_share(message),
        "pid": _largest(case),
        "matrix": matrix_of(judgement.requested) or "",
        "share": share_of(share),
    }


def _free_share(message: Message) -> str:
    """Free of total as a share of two decimals, rounded down: a setting above it is refused."""
    if message.free is None or message.total is None or message.total.nominal == 0:
        return _UNSAID
    return f"{message.free.nominal * 100 // message.total.nominal / 100:.2f}"


def _largest(case: Case) -> str:
    return str(max(case.accounts.others, key=lambda one: one.amount.nominal).pid) if case.accounts.others else ""


def _listing(case: Case) -> str:
    others = sorted(case.accounts.others, key=lambda one: -one.amount.nominal)
    if not others:
        return (
            "The message lists no such process: it may run in another container, belong to another user, or its "
            "version of PyTorch lists none; the display and the driver of Windows count as well."
        )
    named = [f"{one.pid} ({words_of(one.amount)})" for one in others[:_SHOWN_PROCESSES]]
    if len(others) > _SHOWN_PROCESSES:
        named.append(f"{len(others) - _SHOWN_PROCESSES} more")
    return f"By the message: process {listed(named)}; in a container its number is that of the host."
