"""What the allocator's rows of a trace say: by step, by operator, and what fusing would not write."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace import explain
from foretrace.knowledge.kineto import Call, call_kind
from foretrace.model.report import Finding, Report
from foretrace.model.sidefile import DeviceMemory, MemoryHistory, SideFile
from foretrace.model.trace_memory import Intermediate, StepMemory
from foretrace.report import View, render

LLAMA = Path(__file__).parents[1] / "data" / "traces_memory" / "llama_train.json.gz"
MIB = 1 << 20


class Program:
    """A small program with an allocator: each method takes the time in µs at which it happens."""

    def __init__(self, held: int = 0, *, gpu: bool = True, totals: bool = True) -> None:
        self.build = TraceBuilder(gpu="NVIDIA H200" if gpu else None)
        self.totals = totals
        self.kind, self.index = (1, 0) if gpu else (0, -1)
        self.held: dict[tuple[int, int], int] = defaultdict(int, {(self.kind, self.index): held})
        self.reserved = 1000 * MIB if gpu else 0
        self.sizes: dict[int, int] = {}

    def move(self, at: float, address: int, moved: int, *, device: tuple[int, int] | None = None, **extra: Any) -> None:
        """A row of the allocator."""
        device = device or (self.kind, self.index)
        self.held[device] += moved
        args: dict[str, Any] = {"Bytes": moved, "Addr": address, "Device Type": device[0], "Device Id": device[1]}
        if self.totals:
            args |= {"Total Allocated": self.held[device], "Total Reserved": self.reserved if device[0] else 0}
        row = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 100}
        self.build.event(**{**row, "ts": round(1_000_000 + at, 3), "args": args, **extra})

    def get(self, at: float, address: int, size: int, **extra: Any) -> None:
        """Memory is given out."""
        self.sizes[address] = size
        self.move(at, address, size, **extra)

    def free(self, at: float, address: int, **extra: Any) -> None:
        """Memory is taken back."""
        self.move(at, address, -self.sizes.pop(address), **extra)

    def op(self, name: str, at: float, address: int, size: int, *shapes: list[int]) -> None:
        """An operator of 8 µs that allocates its result, and its kernel."""
        self.build.op(name, at, 8, shapes=list(shapes), dtypes=["c10::BFloat16"] * len(shapes))
        self.get(at + 1, address, size)
        if self.kind:
            names = {"aten::mm": "nvjet_tst_128x128", "aten::gelu": "vectorized_elementwise_kernel<4, gelu>"}
            kernel = names.get(name, "vectorized_elementwise_kernel<4, BinaryFunctor>")
            self.build.kernel(f"void at::native::{kernel}", at + 12, 5, launch=self.build.launch(at + 3, 2))

    def report(self, **options: Any) -> Report:
        return explain(self.build.trace(), **options)

    def steps(self, device: int = 0) -> list[StepMemory]:
        memory = self.report().memory
        assert memory is not None
        return memory.devices[device].steps


ROWS, DIM, HIDDEN = 1024, 512, 4096
WIDE, NARROW = ROWS * HIDDEN * 2, ROWS * DIM * 2


def geglu(program: Program, at: float = 10) -> None:
    """down(gelu(gate(x)) * up(x)); each tensor dies when Python lets go of it."""
    x, w, down = [ROWS, DIM], [DIM, HIDDEN], [HIDDEN, DIM]
    wide = [ROWS, HIDDEN]
    program.op("aten::mm", at, 1, WIDE, x, w)  # gate
    program.op("aten::gelu", at + 10, 2, WIDE, wide)
    program.free(at + 19, 1)
    program.op("aten::mm", at + 20, 3, WIDE, x, w)  # up
    program.op("aten::mul", at + 30, 4, WIDE, wide, wide)
    program.free(at + 39, 2)
    program.free(at + 39.5, 3)
    program.op("aten::mm", at + 40, 5, NARROW, wide, down)
    program.free(at + 49, 4)


# ---- a real trace: the numbers were counted from its JSON by a program that shares nothing with foretrace ----


@lru_cache
def llama() -> Report:
    return explain(LLAMA)


def test_a_real_training_step() -> None:
    memory = llama().memory
    assert memory is not None
    gpu, cpu = memory.devices
    assert (gpu.device, gpu.rows, cpu.device, cpu.rows) == ("cuda:0", 3090, "cpu", 208)
    (step,) = gpu.steps
    assert (step.start_bytes, step.peak_bytes, step.end_bytes) == (2256080384, 6075103744, 2256080384)
    assert step.peak_op == "aten::_log_softmax_backward_data"
    assert (step.allocations, step.allocated_bytes) == (1545, 16764645376)
    assert (step.frees, step.freed_bytes) == (1545, 16764645376)
    assert (step.reserved_bytes, step.reserved_grown_bytes) == (6721372160, 0)
    assert step.held_before_bytes == 1746945536
    (on_cpu,) = cpu.steps
    assert (on_cpu.peak_bytes, on_cpu.allocations, on_cpu.allocated_bytes) == (8, 104, 828)
    assert on_cpu.reserved_bytes is None  # never zero for what does not exist


def test_a_real_step_by_operator() -> None:
    memory = llama().memory
    assert memory is not None
    (step,) = memory.devices[0].steps
    largest = {(entry.op, entry.within, entry.phase): (entry.allocations, entry.bytes) for entry in step.largest}
    assert largest["aten::mm", "aten::linear", "forward"] == (85, 1470103552)
    assert largest["aten::mm", None, "backward"] == (170, 1458569216)
    assert largest["aten::mul", None, "forward"] == (112, 1334312960)
    assert largest["aten::_to_copy", "aten::to", "forward"] == (55, 1153700352)
    alive = {(entry.op, entry.phase): (entry.allocations, entry.bytes) for entry in step.alive_at_peak}
    assert alive["aten::mm", "forward"] == (24, 805306368)
    assert alive["aten::silu", "forward"] == (12, 402653184)
    assert alive["aten::nll_loss_backward", "backward"] == (1, 524288000)
    (silu,) = [entry for entry in step.alive_at_peak if entry.op == "aten::silu"]
    assert silu.modules == ["SiLUActivation_0", "SiLUActivation_1", "SiLUActivation_2"]


def test_the_mlps_of_a_real_training_step() -> None:
    # Twelve layers, each with gate, up and silu(gate) of 4 × 1024 × 4096 numbers of two bytes: 32 MiB.
    memory = llama().memory
    assert memory is not None
    found = memory.devices[0].steps[0].intermediates
    assert found is not None
    roles = {tensor.role: tensor for tensor in found.tensors if tensor.role in ("gate", "up", "activated")}
    for role in ("gate", "up", "activated"):
        assert (roles[role].tensors, roles[role].bytes) == (12, 12 * 32 * MIB)
    # The backward pass needs gate and up; silu(gate) it can work out from gate.
    assert {role: tensor.kept_bytes for role, tensor in roles.items()} == {
        "gate": 384 * MIB,
        "up": 384 * MIB,
        "activated": 0,
    }
    assert found.kept_bytes == 768 * MIB
    # At the peak, before the first layer's backward pass, all twelve silu results are alive.
    assert found.peak_without_bytes == 6075103744 - 384 * MIB


def test_the_totals_of_a_real_trace_are_the_sums_of_its_rows() -> None:
    events = json.loads(gzip.decompress(LLAMA.read_bytes()))["traceEvents"]
    rows = [event["args"] for event in events if event.get("cat") == "cpu_instant_event"]
    on_gpu = [args["Bytes"] for args in rows if args["Device Type"] == 1]
    memory = llama().memory
    assert memory is not None
    (step,) = memory.devices[0].steps
    assert step.allocated_bytes == sum(size for size in on_gpu if size > 0)
    assert step.peak_bytes == max(args["Total Allocated"] for args in rows)


def test_the_operators_of_a_real_step_sum_to_its_totals() -> None:
    memory = llama().memory
    assert memory is not None
    for device in memory.devices:
        for step in device.steps:
            assert sum(entry.bytes for entry in step.largest) == step.allocated_bytes
            assert sum(entry.allocations for entry in step.largest) == step.allocations
            assert step.held_before_bytes is not None
            assert sum(entry.bytes for entry in step.alive_at_peak) + step.held_before_bytes == step.peak_bytes
    assert len(memory.devices[0].steps[0].largest) == 39


def test_many_kinds_of_operators_are_all_in_the_report() -> None:
    program = Program(held=300)
    program.build.step(1, 0, 1000)
    for number in range(40):
        program.build.op(f"aten::op{number}", 10 + 20 * number, 10)
        program.get(15 + 20 * number, number, 512 * (number + 1))
    (step,) = program.steps()
    assert [entry.bytes for entry in step.largest] == [512 * number for number in range(40, 0, -1)]
    assert step.allocated_bytes == 512 * 820
    assert step.peak_bytes == 300 + sum(entry.bytes for entry in step.alive_at_peak) == 300 + 512 * 820


def test_what_is_found_in_a_real_trace() -> None:
    (finding,) = [f for f in llama().findings if f.rule == "fusable_intermediates"]
    assert finding.title.startswith("1265 MiB a step of results that fused kernels would not write: activated,")
    assert "384 MiB gate (12 tensors of mm, read by silu)" in finding.explanation
    assert "reads 768 MiB of them again (gate and up)" in finding.explanation
    assert "peak at 5410 MiB instead of 5794 MiB" in finding.explanation
    assert finding.saving_us is None
    assert finding.evidence[0].name == "aten::mm"


def test_the_section_of_a_real_trace() -> None:
    text = render(llama(), View(sections=("memory",)))
    assert "2152 MiB  5794 MiB  2152 MiB" in text
    assert "1666 MiB more were allocated before the recording" in text
    cells = [row.split() for row in text.splitlines()]
    assert ["gate", "mm", "silu", "12", "384", "MiB", "384", "MiB"] in cells
    assert ["activated", "silu", "mul", "12", "384", "MiB"] in cells
    assert "MEMORY BY STEP" in render(llama(), View(everything=True))
    assert "memory" in render(llama()).splitlines()[-1]  # offered below the first screen


# ---- steps ----


def test_without_allocator_rows_there_is_nothing() -> None:
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 20)
    report = explain(build.trace())
    assert report.memory is None
    assert "no allocator rows" in render(report, View(sections=("memory",)))
    assert "MEMORY BY STEP" not in render(report, View(everything=True))


def test_each_step_begins_where_the_one_before_ended() -> None:
    program = Program(held=100)
    for number in range(3):
        program.build.step(number, number * 100, 90)
        program.build.op("aten::add", number * 100 + 10, 20)
        program.get(number * 100 + 15, 1000 + number, 512)
        program.get(number * 100 + 20, 1, 4096)
        program.free(number * 100 + 40, 1)
    steps = program.steps()
    assert [(s.start_bytes, s.peak_bytes, s.end_bytes) for s in steps] == [
        (100, 4708, 612),
        (612, 5220, 1124),
        (1124, 5732, 1636),
    ]
    assert [(s.allocations, s.frees) for s in steps] == [(2, 1)] * 3
    # What earlier steps left is of known operators; only the 100 bytes before the recording are not.
    assert [s.held_before_bytes for s in steps] == [100, 100, 100]
    assert [(e.op, e.allocations, e.bytes) for e in steps[2].alive_at_peak] == [("aten::add", 4, 3 * 512 + 4096)]


def test_a_step_without_rows_keeps_what_there_is() -> None:
    program = Program(held=100)
    for number in range(2):
        program.build.step(number, number * 100, 90)
        program.build.op("aten::add", number * 100 + 10, 20)
    program.get(15, 1, 512)
    second = program.steps()[1]
    assert (second.start_bytes, second.peak_bytes, second.end_bytes, second.allocations) == (612, 612, 612, 0)
    assert second.peak_event is None
    assert second.missing["peak_event"] == "the step began at its peak"
    assert [entry.bytes for entry in second.alive_at_peak] == [512]


def test_the_first_of_equal_peaks_is_named() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 5)
    program.build.op("aten::add", 30, 5)
    program.get(12, 1, 2048)
    program.free(20, 1)
    program.get(32, 2, 2048)
    assert program.steps()[0].peak_op == "aten::mm"


def test_an_address_is_reused_in_order() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 5)
    program.build.op("aten::add", 30, 5)
    program.get(12, 7, 512)
    program.free(20, 7)
    program.get(32, 7, 1024)
    (step,) = program.steps()
    assert [(entry.op, entry.bytes) for entry in step.alive_at_peak] == [("aten::add", 1024)]


def test_an_address_given_out_twice_was_freed_in_between() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 20)
    program.get(12, 7, 512)
    program.move(20, 7, 1024)  # the row of the free was lost
    program.build.events[-1]["args"]["Total Allocated"] = 1024
    memory = program.report().memory
    assert memory is not None
    (device,) = memory.devices
    assert [entry.bytes for entry in device.steps[0].alive_at_peak] == [1024]
    assert "jumps at 1 row" in device.missing["alive_at_peak"]
    assert device.steps[0].held_before_bytes is None


def test_devices_are_kept_apart_and_the_cpu_comes_last() -> None:
    program = Program(held=0)
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 30)
    program.get(11, 1, 64, device=(0, -1))
    program.get(12, 1, 512, device=(1, 0))
    program.get(13, 1, 1024, device=(1, 1))
    memory = program.report().memory
    assert memory is not None
    assert [(d.device, d.steps[0].peak_bytes) for d in memory.devices] == [
        ("cuda:0", 512),
        ("cuda:1", 1024),
        ("cpu", 64),
    ]
    assert "since the profiler began" in memory.devices[2].missing["start_bytes"]


def test_processes_are_kept_apart() -> None:
    program = Program()
    for pid in (100, 200):
        program.build.step(1, 0, 100, pid=pid, tid=pid)
        program.build.op("aten::mm", 10, 30, pid=pid, tid=pid)
    program.get(12, 1, 512)
    program.held.clear()
    program.get(13, 1, 1024, pid=200, tid=200)
    memory = program.report().memory
    assert memory is not None
    assert [(d.process, [s.peak_bytes for s in d.steps]) for d in memory.devices] == [(100, [512]), (200, [1024])]


def test_the_rows_of_another_thread_count_in_the_step_they_fall_into() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 20, 30, tid=7)
    program.get(25, 1, 512, tid=7)
    (step,) = program.steps()
    assert step.peak_op == "aten::mm"


def test_the_operator_is_the_one_that_computes_and_the_one_that_was_called() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::linear", 10, 50)
    program.build.op("aten::addmm", 15, 40)
    program.build.op("aten::empty", 20, 10)
    program.get(25, 1, 512)
    program.build.op("aten::empty_like", 70, 20)
    program.build.op("aten::empty_strided", 75, 10)
    program.get(80, 2, 1024)
    program.get(95, 3, 2048)
    (step,) = program.steps()
    assert [(e.op, e.within, e.bytes) for e in step.largest] == [
        (None, None, 2048),
        ("aten::empty_like", None, 1024),
        ("aten::addmm", "aten::linear", 512),
    ]


def test_what_the_allocator_took_from_the_device() -> None:
    program = Program()
    for number in range(2):
        program.build.step(number, number * 100, 90)
        program.build.op("aten::mm", number * 100 + 10, 50)
        program.get(number * 100 + 20, number, 512)
        program.reserved += 20 * MIB
        program.get(number * 100 + 30, 10 + number, 512)
    first, second = program.steps()
    # No API calls were recorded, so whether the first row itself came with new memory is not known.
    assert first.reserved_grown_bytes is None
    assert "before its first allocator row" in first.missing["reserved_grown_bytes"]
    assert (second.reserved_bytes, second.reserved_grown_bytes) == (1040 * MIB, 20 * MIB)
    program.build.launch(12)
    assert program.steps()[0].reserved_grown_bytes == 20 * MIB
    program.build.call("cudaMalloc", 15)
    assert program.steps()[0].reserved_grown_bytes is None


def test_rows_without_totals_have_no_peak_and_say_so() -> None:
    program = Program(totals=False)
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 30)
    program.get(12, 1, 512)
    (step,) = program.steps()
    assert (step.start_bytes, step.peak_bytes, step.end_bytes, step.held_before_bytes) == (None,) * 4
    assert "how much was allocated in all" in step.missing["peak_bytes"]
    assert (step.allocations, step.allocated_bytes) == (1, 512)


def test_rows_that_cannot_be_used_are_counted() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.build.op("aten::mm", 10, 30)
    program.get(12, 1, 512)
    device = {"Addr": 1, "Device Type": 1}
    for args in ({}, {"Bytes": "many"}, {"Bytes": 1 << 70, **device}, {"Bytes": 0, **device}, {"Bytes": 5, "Addr": 1}):
        row = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 100, "ts": 1_000_013}
        program.build.event(**row, args=args)
    memory = program.report().memory
    assert memory is not None
    assert memory.devices[0].rows == 1
    assert memory.devices[0].missing["rows"].startswith("5 allocator rows")


def test_a_trace_without_steps_is_one() -> None:
    program = Program(held=5)
    program.build.op("aten::mm", 10, 30)
    program.get(12, 1, 512)
    (step,) = program.steps()
    assert (step.label, step.start_bytes, step.peak_bytes) == ("whole trace", 5, 517)


def test_only_the_steps_asked_for() -> None:
    program = Program()
    for number in range(2):
        program.build.step(number, number * 100, 90)
        program.build.op("aten::mm", number * 100 + 10, 50)
        program.get(number * 100 + 20, number, 512)
    memory = program.report(steps=[1]).memory
    assert memory is not None
    assert [(s.step, s.start_bytes) for s in memory.devices[0].steps] == [(1, 512)]


@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4096)), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_the_accounts_add_up(held: int, moves: list[tuple[int, int]], steps: int) -> None:
    program = Program(held=held)
    levels = [held]
    for number, (address, size) in enumerate(moves):
        at = 10 * number + 5
        if address in program.sizes:
            program.free(at, address)
        else:
            program.get(at, address, size)
        levels.append(program.held[1, 0])
    length = 10 * -(-len(moves) // steps)
    for number in range(steps):
        program.build.step(number, number * length, length)
        program.build.op("aten::mm", number * length, length)
    found = program.steps()
    assert found[0].start_bytes == held
    assert found[-1].end_bytes == levels[-1]
    assert max(step.peak_bytes or 0 for step in found) == max(levels)
    for before, after in pairwise(found):
        assert before.end_bytes == after.start_bytes
    for step in found:
        assert step.start_bytes is not None
        assert step.end_bytes == step.start_bytes + step.allocated_bytes - step.freed_bytes
        known = sum(entry.bytes for entry in step.alive_at_peak)
        assert step.held_before_bytes is not None
        assert step.peak_bytes == known + step.held_before_bytes
        assert step.held_before_bytes == held
        assert sum(entry.bytes for entry in step.largest) == step.allocated_bytes


# ---- what fusing would not write ----


def of(tensors: list[Intermediate]) -> list[tuple[str, str, list[str], int, int]]:
    return [(t.role, t.op, t.read_by, t.bytes, t.kept_bytes) for t in tensors]


@pytest.mark.parametrize("gpu", [True, False])
def test_a_gated_mlp_in_inference(gpu: bool) -> None:
    program = Program(held=10 * MIB, gpu=gpu)
    program.build.step(1, 0, 100)
    geglu(program)
    (step,) = program.steps()
    found = step.intermediates
    assert found is not None
    # The product act(gate) · up is read by the projection down: it has to be written.
    assert of(found.tensors) == [
        ("gate", "mm", ["gelu"], WIDE, 0),
        ("up", "mm", ["mul"], WIDE, 0),
        ("activated", "gelu", ["mul"], WIDE, 0),
    ]
    assert (found.bytes, found.kept_bytes) == (3 * WIDE, 0)
    # Three wide tensors at once while mul runs; with one kernel the product, and the result beside it.
    assert step.peak_bytes == 10 * MIB + 3 * WIDE
    assert found.peak_without_bytes == 10 * MIB + WIDE + NARROW


def test_a_gated_mlp_is_found() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    geglu(program)
    (finding,) = found_by(program, "fusable_intermediates")
    assert finding.title == "24 MiB a step of results that fused kernels would not write: gate, up and activated"
    assert "their product is still written once" in finding.explanation
    assert "backward pass" not in finding.explanation
    assert "peak at 9 MiB instead of 24 MiB" in finding.explanation
    assert [evidence.name for evidence in finding.evidence] == ["aten::mm", "aten::mm", "aten::gelu"]


def test_small_intermediates_are_in_the_report_and_no_finding() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.op("aten::mm", 10, 1, 8192, [64, 8], [8, 64])
    program.op("aten::relu", 20, 2, 8192, [64, 64])
    program.free(29, 1)
    program.op("aten::mm", 30, 3, 1024, [64, 64], [64, 8])
    found = program.steps()[0].intermediates
    assert found is not None
    assert of(found.tensors) == [("pre-activation", "mm", ["relu"], 8192, 0)]
    assert found_by(program, "fusable_intermediates") == []


def test_what_is_read_by_a_product_as_well_is_written() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.op("aten::mm", 10, 1, WIDE, [ROWS, DIM], [DIM, HIDDEN])
    program.op("aten::mm", 20, 2, NARROW, [ROWS, HIDDEN], [HIDDEN, DIM])
    program.free(29, 1)
    assert program.steps()[0].intermediates is None
    assert "elementwise operators alone" in program.steps()[0].missing["intermediates"]


def test_what_lives_on_long_after_its_reader_may_have_others() -> None:
    program = Program()
    program.build.step(1, 0, 300)
    program.op("aten::mm", 10, 1, WIDE, [ROWS, DIM], [DIM, HIDDEN])
    program.op("aten::relu", 20, 2, WIDE, [ROWS, HIDDEN])
    for number in range(6):
        program.op("aten::mm", 30 + 10 * number, 10 + number, NARROW, [ROWS, HIDDEN], [HIDDEN, DIM])
    program.free(95, 1)
    assert program.steps()[0].intermediates is None


def test_a_result_written_in_place_takes_no_memory() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    program.op("aten::mm", 10, 1, WIDE, [ROWS, DIM], [DIM, HIDDEN])
    program.build.op("aten::relu_", 20, 8, shapes=[[ROWS, HIDDEN]], dtypes=["c10::BFloat16"])
    program.build.kernel("vectorized_elementwise_kernel<4, relu>", 32, 5, launch=program.build.launch(23, 2))
    program.op("aten::mm", 30, 3, NARROW, [ROWS, HIDDEN], [HIDDEN, DIM])
    program.free(39, 1)
    assert [t.op for t in (program.steps()[0].intermediates or empty()).tensors] == ["mm"]


def empty() -> Any:
    return pytest.fail("nothing was found")


def test_without_shapes_it_is_not_known() -> None:
    program = Program()
    program.build.step(1, 0, 100)
    geglu(program)
    for event in program.build.events:
        event["args"].pop("Input Dims", None)
    (step,) = program.steps()
    assert step.intermediates is None
    assert "shapes were not recorded" in step.missing["intermediates"]


# ---- an allocator at its limit ----


def found_by(program: Program | TraceBuilder, rule: str, side: SideFile | None = None) -> list[Finding]:
    build = program.build if isinstance(program, Program) else program
    return [finding for finding in explain(build.trace(), side=side).findings if finding.rule == rule]


def retrying(*calls: str) -> TraceBuilder:
    build = TraceBuilder()
    for number in range(2):
        build.step(number, number * 1000, 900)
        build.op("aten::mm", number * 1000 + 5, 800)
    build.op("aten::empty", 1010, 700)
    for number, name in enumerate(calls):
        build.call(name, 1020 + 50 * number, 40)
    return build


def test_memory_given_back_and_asked_for_again_is_a_retry() -> None:
    build = retrying("cudaMalloc", "cudaFree", "cudaFree", "cudaMalloc")
    (finding,) = found_by(build, "allocator_retry")
    assert finding.title == "The allocator emptied its cache once to serve a request (140 µs)"
    assert "Inside aten::mm 140 µs it gave memory back to the device (2 cudaFree)" in finding.explanation
    assert finding.severity == "warning"
    side = SideFile(memory=MemoryHistory(devices=[DeviceMemory(index=0, alloc_retries=3)]))
    (finding,) = found_by(build, "allocator_retry", side)
    assert "the allocator itself counted 3" in finding.explanation
    side = SideFile(memory=MemoryHistory(devices=[DeviceMemory(index=0, alloc_retries=0)]))
    assert found_by(build, "allocator_retry", side) == []


def test_giving_pages_their_rights_sets_no_memory() -> None:
    assert (call_kind("cuMemSetAccess"), call_kind("cuMemsetD8Async")) == (Call.OTHER, Call.MEMSET)


def test_pages_of_expandable_segments_are_retried_too() -> None:
    calls = ("cuMemCreate", "cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess")
    assert len(found_by(retrying(*calls), "allocator_retry")) == 1


@pytest.mark.parametrize(
    "calls",
    [
        ("cudaMalloc",),
        ("cudaMalloc", "cudaFree"),
        ("cudaFree", "cudaMalloc"),  # a library that makes its context
        ("cudaMalloc", "cudaFree", "cudaHostAlloc"),
        ("cudaMalloc", "cudaFreeHost", "cudaMalloc"),
    ],
)
def test_what_is_no_retry(calls: tuple[str, ...]) -> None:
    assert found_by(retrying(*calls), "allocator_retry") == []


def test_a_search_for_convolution_algorithms_is_no_retry() -> None:
    build = retrying("cudaMalloc", "cudaFree", "cudaMalloc")
    for event in build.events:
        event["name"] = {"aten::mm": "aten::cudnn_convolution"}.get(event["name"], event["name"])
    assert found_by(build, "allocator_retry") == []


def test_a_cache_emptied_by_the_program_is_no_retry() -> None:
    build = TraceBuilder()
    build.step(1, 0, 1000)
    build.call("cudaFree", 20, 40)
    build.op("aten::mm", 100, 100)
    build.call("cudaMalloc", 120, 40)
    assert found_by(build, "allocator_retry") == []
