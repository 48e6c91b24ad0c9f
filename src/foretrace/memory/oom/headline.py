"""The headline of an explained message, and the one thing to do first."""

from __future__ import annotations

from typing import Final

from foretrace.knowledge.oom_remedies import FIRST
from foretrace.memory.oom.amounts import Amount
from foretrace.memory.oom.remedies import Case, held_of, matrix_of, places_of, words_of
from foretrace.model.oom import Remedy

__all__ = ["first_of", "headline_of"]


def headline_of(case: Case) -> str:
    """The verdict in one sentence."""
    message, judgement = case.message, case.judgement
    asked, free = words_of(message.asked), words_of(message.free)
    pieces, others = case.cause("fragmentation"), case.cause("other_process")
    likely = "" if judgement.certain else "likely "
    match judgement.verdict:
        case "fragmentation":
            cached = words_of(pieces.amount if pieces else None)
            return f"{likely}fragmentation: {cached} are cached, but not in one piece of {asked}"
        case "full":
            if judgement.case == "nearly_full":
                return _nearly(case)
            also = f" and {words_of(message.unallocated)} cached" if message.unallocated is not None else ""
            return f"the device is full: {asked} wanted, {free} free{also}"
        case "other_process":
            return f"{likely}others hold it: {held_of(others)} of {words_of(message.total)}"
        case "graph_pool":
            return f"{likely}private pools hold it: {words_of(message.private)} are idle there, {asked} wanted"
        case "limit" if message.kind == "vllm_cache":
            return "vLLM's share of the device is used up: nothing is left for its cache"
        case "limit" if message.kind == "vllm_startup":
            share = "" if message.utilization is None else f", {message.utilization:g} of the device"
            return f"vLLM was told to take {asked}{share}: {free} of {words_of(message.total)} were free"
        case "limit":
            return f"{likely}a limit of {words_of(message.allowed)} forbids {asked}"
        case "impossible" if judgement.case == "overflow":
            below = message.below_zero
            return f"impossible: {asked} wanted" if below is None else _below(below)
        case "impossible":
            most = message.total if judgement.case == "" else message.allowed
            if most is None:
                return (
                    "impossible: more than 1 EiB was asked for"
                    if judgement.case == "exabyte"
                    else f"impossible: {asked} at once"
                )
            return f"impossible: {asked} wanted of {words_of(most)}"
        case "driver" if judgement.case == "mps_room":
            return f"refused, but not by the limit of {words_of(message.allowed)} alone: {asked} wanted"
        case "driver":
            return f"refused with {free} free: {asked} wanted"
        case _:
            return _UNKNOWN.get(judgement.case, "the message says too little").format(
                asked=asked, library=message.library, free=free, total=words_of(message.total)
            )


def _below(below: Amount) -> str:
    how_far = f"{words_of(below)} below zero" if below.nominal else "just below zero"
    return f"impossible: the size overflowed: it was {how_far}"


_UNKNOWN: Final = {
    "host": "the host, not a GPU, is out of memory: {asked} wanted",
    "nccl_host": "NCCL got no memory of the host: {asked} wanted",
    "nccl": "NCCL got no memory of the GPU: {asked} wanted",
    "nccl_driver": "NCCL got no memory of the GPU",
    "library": "{library} got no memory of the GPU",
    "driver_call": "the driver got no memory of the GPU for a call of its own",
    "hip_call": "the driver got no memory of the GPU for a call of its own",
    "xpu_call": "the driver got no memory of the GPU for a call of its own",
    "runtime_call": "out of memory in an old PyTorch (about 1.0 or before), which names no size",
    "nvml": "out of memory, sizes unknown: PyTorch failed in asking NVML who holds the memory",
    "async": "out of memory, without a size: paste the lines below it as well",
    "bare": "out of memory, without a size: paste the whole message",
    "contradiction": "{asked} wanted; the message contradicts itself: {free} free of {total}",
    "no_numbers": "{asked} wanted; the message is cut off before it says of what",
}


def _nearly(case: Case) -> str:
    message, pieces = case.message, case.cause("fragmentation")
    limited = message.total is None or (message.allowed is not None and message.allowed.high < message.total.low)
    most = message.allowed if limited else message.total
    tensors = message.allocated
    if tensors is not None and message.private is not None:
        tensors = tensors - message.private
    if case.old:
        gain = ", which PyTorch before 2.1 cannot join"
    elif case.expandable or case.around.windows or case.other_pools:
        gain = ", which are no use to it"
    else:
        gain = ", which expandable_segments could gain"
    cached = words_of(pieces.amount if pieces else None)
    return (
        f"nearly full: tensors take {words_of(tensors)} of {words_of(most)}, {words_of(message.asked)} wanted; "
        f"{cached} lie in pieces{gain}"
    )


def first_of(case: Case, remedies: list[Remedy]) -> str:
    """The one thing to do first (`knowledge.oom_remedies.FIRST`), of what the remedies leave."""
    return FIRST[_step(case, {one.key: one.stance for one in remedies})].format(**places_of(case))


def _step(case: Case, stances: dict[str, str]) -> str:
    judgement, message = case.judgement, case.message
    expandable = stances.get("expandable_segments")
    match judgement.verdict:
        case "fragmentation":
            if expandable == "helps":
                return "expandable"
            if expandable == "may":
                return "split"
            if case.old:
                return "update"
            return "max_split" if stances.get("max_split_size_mb") == "may" and not case.other_pools else "holes"
        case "full":
            if judgement.case == "nearly_full" and expandable == "helps":
                return "expandable_or_less"
            return _less(case)
        case "other_process":
            if message.kind == "vllm_startup":
                return "vllm_startup"
            return "other_listed" if case.accounts.others else "other_hidden"
        case "graph_pool":
            return "graphs_serving" if case.serving else "graph_pool"
        case "limit":
            if message.kind == "vllm_startup":
                return "vllm_startup_share"
            if message.kind == "vllm_cache":
                return "vllm_cache"
            return _less(case) if message.backend == "MPS" else "limit"
        case "impossible":
            return "shape"
        case "driver" if judgement.case == "mps_room":
            return "mps_room"
        case "driver":
            return "driver_windows" if case.around.windows else "driver"
        case "unknown" if judgement.case == "contradiction":
            return "contradiction"
        case _:
            return _UNSAID.get(message.kind, "whole")


def _less(case: Case) -> str:
    if case.serving:
        return "serving"
    if case.around.notebook:
        return "kernel"
    return "matrix" if matrix_of(case.judgement.requested) else "step"


_UNSAID: Final = {
    "host": "host",
    "nccl_host": "host",
    "library": "library",
    "nccl": "library",
    "nccl_driver": "library",
    "driver_call": "driver_call",
    "hip_call": "driver_call",
    "xpu_call": "driver_call",
    "runtime_call": "driver_call",
    "nvml": "nvml",
}
