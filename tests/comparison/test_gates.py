"""``--fail-on``: what can be written, and what it does with unknown and noisy numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comparison.comparing import COMPILED, EAGER, program
from foretrace import InputError, compare
from foretrace.comparison.gates import parse_condition


def state(condition: str, a=EAGER, b=EAGER, **options) -> str:
    (gate,) = compare([program(a, **options).trace(), program(b, **options).trace()], fail_on=[condition]).gates
    return gate.state


SLOWER = [replace(call, us=call.us * 1.10) for call in EAGER]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("gpu_time > +3%", "failed"),
        ("gpu_time > 3%", "failed"),
        ("gpu_time > +15%", "held"),
        ("gpu_time > +1us", "failed"),
        ("gpu_time > +1ms", "held"),
        ("gpu_time > 100us", "failed"),
        ("gpu_time>=0.3ms", "held"),
        ("gpu_time < -1%", "held"),
        ("kernels > +0", "held"),
        ("kernels == 5", "failed"),
        ("gemm != 3", "held"),
        ("memcpys > 0", "held"),
    ],
)
def test_conditions_on_a_slower_trace(condition, expected):
    assert state(condition, EAGER, SLOWER) == expected


def test_fewer_kernels_are_a_negative_change():
    assert state("kernels < +0", EAGER, COMPILED) == "failed"
    assert state("elementwise < -1", EAGER, COMPILED) == "failed"
    assert state("fused > +0", EAGER, COMPILED) == "failed"  # from none to one


def test_a_percentage_of_nothing_is_beyond_every_limit():
    assert state("fused > +500%", EAGER, COMPILED) == "failed"


def test_a_difference_inside_the_spread_holds_and_says_so():
    found = compare([program(EAGER, wander=4).trace(), program(SLOWER, wander=4).trace()], fail_on=["gpu_time > +1%"])
    assert found.gates[0].state == "held"
    assert "inside the spread" in found.gates[0].detail


def test_what_was_not_measured_is_unknown_with_its_reason():
    found = compare([program(EAGER).trace(), program(EAGER).trace()], fail_on=["end_to_end > +3%", "peak_memory > 1GB"])
    assert [gate.state for gate in found.gates] == ["unknown", "unknown"]
    assert "foretrace run" in found.gates[0].detail


def test_each_gate_speaks_of_each_trace():
    traces = [program(calls).trace() for calls in (EAGER, EAGER, COMPILED)]
    gates = compare(traces, fail_on=["kernels < +0", "memsets > 0"]).gates
    assert [(gate.side, gate.state) for gate in gates] == [(1, "held"), (2, "failed"), (1, "held"), (2, "held")]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("gpu_tme > +3%", "did you mean 'gpu_time'"),
        ("speed > 3%", "the metrics are"),
        ("gpu_time +3%", "cannot be read"),
        ("gpu_time > +3 parsecs", "unit 'parsecs'"),
        ("gpu_time > 300", "no unit"),
        ("kernels > 3us", "unit 'us'"),
        ("", "cannot be read"),
        ("gpu_time > ", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused_with_help(condition, said):
    with pytest.raises(InputError, match="--fail-on") as caught:
        parse_condition(condition)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "limit"),
    [("bytes > 1.5MB", 1.5e6), ("bytes > 2 kb", 2000), ("wall > 2 ms", 2000), ("wall > 3 µs", 3), ("memcpys > 0", 0)],
)
def test_units(condition, limit):
    assert parse_condition(condition).limit == limit
