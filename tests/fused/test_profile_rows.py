"""Steps in a profile: a row with operands while a profiler runs, and nothing otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.knowledge.costs import op_cost

torch: Any = pytest.importorskip("torch", reason="the fused modules need the torch extra")


def gate_up(x: Any, gate: Any, up: Any, gate_bias: Any, up_bias: Any, activation: str, *, keep: bool) -> Any:
    """The step's signature."""
    return x @ gate.t(), keep


def test_without_a_profiler_it_is_the_function() -> None:
    from foretrace.fused.rows import watched

    step = watched("gate_up", gate_up)
    x, w = torch.ones(4, 8), torch.ones(16, 8)
    result, kept = step(x, w, w, None, None, "silu", keep=True)
    assert (result.shape, kept) == ((4, 16), True)
    assert step.__name__ == "gate_up"


def test_in_a_profile_it_is_a_row_whose_cost_is_known(tmp_path: Path) -> None:
    from foretrace.fused.rows import watched

    step = watched("gate_up", gate_up)
    x, w = torch.ones(4, 8), torch.ones(16, 8)
    with torch.profiler.profile(record_shapes=True) as profile:
        step(x, w, w, None, None, "silu", keep=True)
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(str(path))
    rows = json.loads(path.read_text())["traceEvents"]
    (row,) = [row["args"] for row in rows if row.get("name") == "foretrace::gate_up"]
    if "Input Dims" not in row:
        pytest.skip("this torch records no operands of such rows")
    cost = op_cost(
        "foretrace::gate_up", shapes=row["Input Dims"], dtypes=row["Input type"], concrete=row["Concrete Inputs"]
    )
    assert cost.flops == 2 * 4 * 32 * 8
    assert cost.bytes == 4 * (4 * 8 + 2 * 16 * 8 + 4 * 16 + 4 * 32)
