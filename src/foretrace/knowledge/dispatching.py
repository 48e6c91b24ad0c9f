"""What the CPU pays for dispatching: µs of one row itself, without what it calls, and of one launch call.

Source: the traces of an H200 machine's programs (torch 2.11, benchmarks/predictor), tenth percentile of each row's own
time, scaled to what the same calls take without the profiler: an ``nn.Linear`` without bias takes 43 µs of such rows
under the profiler and 23.3 µs alone on that host. Another host is up to twice as fast; the order stays.
"""

from __future__ import annotations

__all__ = ["HOST_MARGIN", "LAUNCH_US", "row_us"]

LAUNCH_US = 4.0

# What recorded steps took end to end, at most, for a µs of CPU time predicted for them. On the H200 machine of the
# recordings that come with foretrace, 501 µs where 171 were predicted, 913 for 194, 1170 for 394, 1760 for 565: Python
# between the operators and the hand-over to autograd's thread are in no row, and another host is another host.
HOST_MARGIN = 5.0

# Name → µs of the row itself. A name ending in * is a prefix.
_ROWS = {
    "aten::mm": 10.0,
    "aten::addmm": 12.0,
    "aten::bmm": 11.0,
    "aten::as_strided": 0.3,
    "aten::t": 0.9,
    "aten::transpose": 0.9,
    "aten::view": 0.7,
    "aten::reshape": 0.7,
    "aten::_unsafe_view": 0.6,
    "aten::linear": 1.7,
    "aten::matmul": 3.3,
    "aten::detach": 0.5,
    "detach": 0.4,
    "aten::empty": 2.4,
    "aten::empty_like": 1.3,
    "aten::empty_strided": 5.7,
    "aten::sum": 6.8,
    "aten::copy_": 4.5,
    "TorchDynamo Cache Lookup": 22.0,
    "Torch-Compiled Region*": 60.0,
    "Pregraph bytecode": 5.7,
    "AOTDispatcher Runtime Wrapper Prologue": 9.0,
    "CompiledFunctionBackward": 120.0,
    "CompiledFunction": 65.0,
    "## Call CompiledFxGraph*": 20.0,
    "triton_*": 20.0,
    "autograd::engine::evaluate_function*": 2.2,
    "torch::autograd::AccumulateGrad": 0.9,
}
_EXACT = {name: us for name, us in _ROWS.items() if not name.endswith("*")}
_PREFIXES = tuple((name[:-1], us) for name, us in _ROWS.items() if name.endswith("*"))
# Rows without an entry: one that launches a kernel itself, and one that only calls others.
_LAUNCHING_US = 7.0
_OTHER_US = 1.2


def row_us(name: str, *, launches: bool) -> float:
    """µs a CPU row takes itself; ``launches``: whether it puts work on the GPU."""
    if name in _EXACT:
        return _EXACT[name]
    for prefix, us in _PREFIXES:
        if name.startswith(prefix):
            return us
    return _LAUNCHING_US if launches else _OTHER_US
