"""Host cost: how soon a call returns, and how long the first one takes in a process with empty caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fused_bench.case import Case
from fused_bench.contest import host_cost
from fused_bench.device import Device
from fused_bench.document import ratios
from fused_bench.entrants import UnavailableError
from fused_bench.operands import make_operands
from fused_bench.opponents import OPPONENTS
from fused_bench.ours import OURS, choices_for, forced
from fused_bench.prepare import leaves_of, prepare_all, said, step_of
from fused_bench.session import Session
from fused_bench.shapes import SMALL
from fused_bench.tables import case_table, text_table

__all__ = ["first_call", "host", "measure_host"]

# So small that the GPU is always done before the host: what remains is the host.
_TINY = ((16, 256, 512), (64, 512, 1536))
_FIRST = ("eager", "compile", "liger", "quack-untuned", "foretrace", "foretrace-module")
_FIRST_LIMIT_S = 120.0


def host(session: Session) -> None:
    """µs of host time a call, and seconds of the first."""
    shapes = session.shapes or list(_TINY)
    cases = [
        Case(operation, *shape, "gelu_tanh", mode, session.dtype, bias=operation == "linear_act")
        for shape in shapes
        for operation in ("gated_mlp", "linear_act")
        for mode in ("forward", "train")
    ]
    session.each("host", cases, lambda case: measure_host(session, case))
    first = [Case("gated_mlp", *(session.shapes or [SMALL])[0], "gelu_tanh", "train", session.dtype)]
    session.each("first-call", first, lambda case: _first_calls(session, case))


def measure_host(session: Session, case: Case) -> dict[str, Any] | None:
    """Host µs of a call of every entrant."""
    device = session.device
    words = [*session.forced, *choices_for(case, device.name)]
    entrants = [*OPPONENTS.values(), *OURS.values(), *(forced(choice) for choice in dict.fromkeys(words))]
    entrants = [entrant for entrant in entrants if entrant.name not in ("max-autotune", "max-autotune-tma", "quack")]
    operands = make_operands(case, device.name, session.seed)
    prepared = prepare_all(session.wanted(case, entrants), case, operands, device, check=session.preparing is None)
    if session.preparing:
        return None
    steps = {one.name: one.step for one in prepared if one.step is not None}
    record: dict[str, Any] = {
        "name": case.name,
        **case.as_dict(),
        "entrants": {one.name: one.result for one in prepared},
    }
    for name, timing in host_cost(steps, device, session.rounds).items():
        record["entrants"][name]["host"] = timing
    record["ratios"] = ratios(record["entrants"], "foretrace", ("host",))
    session.say(case_table(record) + "\n")
    return record


def _first_calls(session: Session, case: Case) -> dict[str, Any] | None:
    if session.preparing:
        return None
    names = [name for name in _FIRST if not session.only or name in session.only]
    record: dict[str, Any] = {"name": f"first call {case.name}", **case.as_dict(), "entrants": {}}
    rows = []
    for name in names:
        left = min(_FIRST_LIMIT_S, session.deadline.left_s)
        found = first_call(name, case, session.device.name, left)
        record["entrants"][name] = found
        seconds = found["first_call_s"]
        rows.append([name, "-" if seconds is None else f"{seconds:.2f}", found["reason"] or ""])
    session.say(f"{record['name']}, empty caches\n{text_table(['', 's', ''], rows)}\n")
    return record


def first_call(name: str, case: Case, device: str, timeout_s: float) -> dict[str, Any]:
    """Run the first step of an entrant in a process of its own, with compiler caches in an empty folder.

    What is timed: building the call (importing the package included), the step, and waiting for it. Not timed:
    starting Python and torch, the operands, and the first matrix product of the process, which cuBLAS needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "QUACK_CACHE_DIR", "FORETRACE_CACHE_DIR")
        paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        environment |= {variable: str(Path(folder) / variable.lower()) for variable in caches}
        code = "import sys; from fused_bench.hostcost import child; child(sys.argv[1])"
        order = json.dumps({"name": name, "case": asdict(case), "device": device})
        result: dict[str, Any] = {"state": "failed", "reason": None, "first_call_s": None}
        try:
            done = subprocess.run(
                [sys.executable, "-c", code, order],
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {**result, "reason": f"took more than {timeout_s:.0f} s"}
        if done.returncode:
            return {**result, "reason": (done.stderr.strip().splitlines() or ["it died"])[-1][:300]}
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer


def child(order: str) -> None:
    """Print the JSON result of one first call; the other side of :func:`first_call`."""
    asked = json.loads(order)
    case, device = Case(**asked["case"]), Device(asked["device"])
    entrant = {**OPPONENTS, **OURS}[asked["name"]]
    operands = make_operands(case, device.name)
    eager_case = replace(case, m=16)
    small = make_operands(eager_case, device.name)
    warm = OPPONENTS["eager"].build(eager_case, small)
    step_of(warm, eager_case, small, leaves_of(warm, eager_case, small))()
    device.synchronize()
    result: dict[str, Any] = {"state": "ok", "reason": None, "first_call_s": None}
    try:
        start = time.perf_counter()
        built = entrant.build(case, operands)
        step_of(built, case, operands, leaves_of(built, case, operands))()
        device.synchronize()
        result["first_call_s"] = round(time.perf_counter() - start, 4)
    except UnavailableError as error:
        result.update(state="absent", reason=str(error))
    except Exception as error:
        result.update(state="failed", reason=said(error))
    print(json.dumps(result))
