"""The same on rows that torch's profiler really writes, read from the trace it exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from foretrace.knowledge.costs import op_cost

LAUNCHING = ("aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::convolution_backward")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = torch.nn.LayerNorm(8)
        self.gate = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.norm(self.conv(x).flatten(2).transpose(1, 2))
        hidden = torch.nn.functional.gelu(self.gate(rows))
        return torch.softmax(torch.bmm(self.down(hidden), rows.transpose(1, 2)), dim=-1)


@pytest.fixture(scope="module")
def trace_rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], int]:
    net, x = Net(), torch.randn(2, 3, 8, 8)
    with FlopCounterMode(display=False) as counter:
        net(x).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recording:
        net(x).sum().backward()
    path: Path = tmp_path_factory.mktemp("trace") / "trace.json"
    recording.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return [e for e in events if e.get("cat") == "cpu_op"], counter.get_total_flops()


def cost_of(event: dict[str, Any]) -> Any:
    args = event["args"]
    return op_cost(
        event["name"],
        shapes=args.get("Input Dims", []),
        dtypes=args.get("Input type", []),
        strides=args.get("Input Strides"),
        concrete=args.get("Concrete Inputs"),
    )


def test_the_sum_over_a_training_step_is_torchs(trace_rows: tuple[list[dict[str, Any]], int]) -> None:
    events, total = trace_rows
    assert total > 0
    assert sum(cost_of(e).flops for e in events if e["name"] in LAUNCHING) == total


def test_every_computing_operator_of_the_step_has_bytes_or_a_reason(
    trace_rows: tuple[list[dict[str, Any]], int],
) -> None:
    events, _ = trace_rows
    known = {e["name"] for e in events if cost_of(e).bytes is not None}
    assert {"aten::gelu", "aten::gelu_backward", "aten::native_layer_norm", "aten::native_layer_norm_backward",
            "aten::_softmax", "aten::_softmax_backward_data", "aten::sum", "aten::copy_"} <= known  # fmt: skip
    for event in events:
        cost = cost_of(event)
        assert cost.bytes is not None or cost.reason, event["name"]


def test_layouts_of_forward_and_backward(trace_rows: tuple[list[dict[str, Any]], int]) -> None:
    events, _ = trace_rows
    (forward,) = [cost_of(e) for e in events if e["name"] == "aten::addmm"]
    assert forward.gemms[0].layout == "TN"  # x @ w.T
    assert forward.gemms[0].bias
    backward = {cost_of(e).gemms[0].layout for e in events if e["name"] == "aten::mm"}
    assert {"NN", "NT"} <= backward  # gradients of the input and of the weight
