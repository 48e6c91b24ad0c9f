"""Decoding: few rows, so the weights' way through memory is all there is. One CUDA graph over several weight sets.

Each call's output is the next one's input, as through the layers of a model, and the sets together are far larger than
the L2, so that every weight comes from memory without a flush: a flush would leave dirty lines that are written back
during the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from foretrace.errors import CaptureError
from foretrace.timing.graphs import capture_graph
from fused_bench.case import Case
from fused_bench.contest import time_calls
from fused_bench.device import Device
from fused_bench.document import ratios
from fused_bench.entrants import Built, Entrant
from fused_bench.operands import Operands, make_operands
from fused_bench.opponents import OPPONENTS
from fused_bench.ours import OURS, choices_for, forced
from fused_bench.prepare import prepare_all, said
from fused_bench.session import Session
from fused_bench.shapes import decode_cases
from fused_bench.tables import case_table

__all__ = ["decode", "measure_chain"]

_LEAST_SETS = 5
# The sets together are at least this many times the L2.
_TIMES_L2 = 10


def decode(session: Session) -> None:
    """µs a layer, and the bandwidth at which its weights are read."""
    cases = decode_cases(session.shapes, session.dtype)
    session.each("decode", cases, lambda case: measure_chain(session, case))


def sets_for(case: Case, device: Device) -> int:
    """How many weight sets make a chain."""
    bytes_each = case.weight_elements * (4 if case.dtype == "fp32" else 2)
    return max(_LEAST_SETS, math.ceil(_TIMES_L2 * device.l2_bytes() / bytes_each))


def _entrants(session: Session, case: Case) -> list[Entrant]:
    words = [*session.forced, *choices_for(case, session.device.name, variants=session.variants)]
    return session.wanted(
        case, [*OPPONENTS.values(), *OURS.values(), *(forced(choice) for choice in dict.fromkeys(words))]
    )


def measure_chain(session: Session, case: Case) -> dict[str, Any] | None:
    """Check every entrant on the first weight set, then time the chains."""
    device = session.device
    operands = [make_operands(case, device.name, session.seed + number) for number in range(sets_for(case, device))]
    entrants = _entrants(session, case)
    prepared = prepare_all(entrants, case, operands[0], device, check=session.preparing is None)
    if session.preparing:
        return None
    calls: dict[str, Callable[[], object]] = {}
    by_name = {entrant.name: entrant for entrant in entrants}
    for one in prepared:
        if one.step is None:
            continue
        one.step = None
        try:
            chain = _chain([by_name[one.name].build(case, each) for each in operands], operands)
            chain()
            calls[one.name] = capture_graph(chain, device.name)[0] if device.is_gpu else chain
        except (CaptureError, RuntimeError) as error:
            one.result.update(state="failed", reason=said(error))
    timings, load = time_calls(calls, device, session.rounds, flush=False, read=session.read)
    bytes_each = sum(weight.numel() * weight.element_size() for weight in operands[0].weights.values())
    record: dict[str, Any] = {
        "name": case.name,
        **case.as_dict(),
        "flops": case.flops,
        "weight_sets": len(operands),
        "weight_bytes": bytes_each,
        "entrants": {one.name: one.result for one in prepared},
        "load": {"chain": load},
    }
    clock = "graph" if device.is_gpu else "events"
    for name, timing in timings.items():
        result = record["entrants"][name]
        result[clock] = _each(timing, len(operands))
        result["weights_tb_per_s"] = round(bytes_each / result[clock]["median_us"] / 1e6, 3)
    record["ratios"] = ratios(record["entrants"], "foretrace", (clock,))
    session.say(f"{len(operands)} weight sets of {bytes_each / 1e6:.0f} MB\n{case_table(record)}")
    rates = {name: result.get("weights_tb_per_s") for name, result in record["entrants"].items()}
    session.say("TB/s of weights: " + ", ".join(f"{name} {rate:.2f}" for name, rate in rates.items() if rate) + "\n")
    return record


def _chain(built: list[Built], operands: list[Operands]) -> Callable[[], Tensor]:
    def call() -> Tensor:
        with torch.no_grad():
            x = operands[0].x
            for one in built:
                x = one.forward(x)
        return x

    return call


def _each(timing: dict[str, Any], sets: int) -> dict[str, Any]:
    """The chain's times, for one layer."""
    return {
        "median_us": round(timing["median_us"] / sets, 3),
        "iqr_us": None if timing["iqr_us"] is None else round(timing["iqr_us"] / sets, 3),
        "interval_us": None if timing["interval_us"] is None else [round(e / sets, 3) for e in timing["interval_us"]],
        "samples_us": [round(sample / sets, 3) for sample in timing["samples_us"]],
    }
