"""Four times the rows must not cost sixteen times the time."""

from time import process_time

import pytest

from builders import TraceBuilder
from foretrace.analysis import explain


def many_steps(n: int) -> TraceBuilder:
    build = TraceBuilder()
    for i in range(n):
        build.step(i, 100 * i, 95)
        build.op("aten::mm", 100 * i + 10, 30)
        build.kernel("k", 100 * i + 30, 20, launch=build.launch(100 * i + 15))
    return build


def many_kernels_of_one_operator(n: int) -> TraceBuilder:
    build = TraceBuilder()
    build.op("aten::mm", 0, 20 * n, shapes=[[8, 8], [8, 8]], dtypes=["float", "float"])
    for i in range(n):
        build.kernel("ampere_sgemm_128x64_nn", 20 * i + 10, 5, launch=build.launch(20 * i + 1, 3))
    return build


def many_gaps_in_one_step(n: int) -> TraceBuilder:
    build = TraceBuilder()
    build.step(0, 0, 40 * n)
    for i in range(n):
        build.op(f"aten::op{i % 7}", 40 * i, 30)
        build.kernel(f"kernel_{i}", 40 * i + 20, 5, launch=build.launch(40 * i + 10, 3), stream=i)
    return build


def many_kernels_under_a_deep_stack(n: int) -> TraceBuilder:
    build = TraceBuilder()
    for depth in range(100):
        build.python(f"deep.py({depth}): f", depth / 100, 30 * n + 100 - depth / 50)
    for i in range(n):
        build.kernel("k", 30 * i + 60, 5, launch=build.launch(30 * i + 50, 3))
    return build


@pytest.mark.parametrize(
    "build",
    [many_steps, many_kernels_of_one_operator, many_gaps_in_one_step, many_kernels_under_a_deep_stack],
)
def test_four_times_the_rows_cost_about_four_times_the_time(build):
    def seconds(n: int) -> float:
        trace = build(n).trace()
        begin = process_time()
        explain(trace)
        return process_time() - begin

    seconds(50)  # imports and tables
    small = min(seconds(500) for _ in range(2))
    assert seconds(2000) < 9 * small + 0.3
