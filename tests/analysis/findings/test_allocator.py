"""Driver allocations inside steps."""

from __future__ import annotations

from timeline import found, found_in, work

from builders import TraceBuilder


def program(*allocating_steps: int, name: str = "cudaMalloc") -> TraceBuilder:
    build = TraceBuilder()
    for number in range(3):
        at = number * 1000
        build.step(number, at, 900)
        build.op("aten::empty", at + 5, 300)
        if number in allocating_steps:
            build.call(name, at + 10, 240)
        work(build, "aten::mm", at + 400, runs=100)
    return build


def test_an_allocation_after_the_first_step_is_found():
    (finding,) = found(program(0, 2), "allocator_calls")
    assert finding.count == 1
    assert finding.title == "1 allocation of device memory inside the steps (80.0 µs a step)"
    assert "cudaMalloc 240 µs, in aten::empty 240 µs" in finding.explanation


def test_the_first_step_of_the_program_fills_the_cache():
    assert found(program(0), "allocator_calls") == []


def test_frees_say_that_memory_ran_short():
    build = program(1)
    build.call("cudaFree", 1270, 20)
    (finding,) = found(build, "allocator_calls")
    assert finding.title.startswith("1 allocation and 1 free")
    assert "ran into its limit" in finding.explanation


def test_hip_allocates_too():
    assert len(found(program(1, name="hipMalloc"), "allocator_calls")) == 1


def test_without_steps_it_cannot_be_told():
    build = program(1, 2)
    build.events = [e for e in build.events if not e["name"].startswith("ProfilerStep")]
    assert found(build, "allocator_calls") == []
    assert found_in("mlp_eager", "allocator_calls") == []
