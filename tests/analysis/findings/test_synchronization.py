"""Synchronization inside the step: who waits, what it costs, and what is none."""

from __future__ import annotations

import pytest
from timeline import found, found_in, work

from builders import TraceBuilder


def read_a_value(build: TraceBuilder, at: float, *, gpu_done: float, name: str = "aten::item") -> None:
    """``tensor.item()``: a copy to the host and a wait for it that returns 3 µs after the GPU is done."""
    returns = gpu_done + 3
    build.op(name, at, returns + 4 - at)
    build.op("aten::_local_scalar_dense", at + 1, returns + 2 - at)
    copy = build.call("cudaMemcpyAsync", at + 3, 5)
    build.memcpy(gpu_done - 2, 2, name="Memcpy DtoH (Device -> Pinned)", launch=copy)
    build.call("cudaStreamSynchronize", at + 10, returns - at - 10)


def one_step_with_item() -> TraceBuilder:
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=100)  # the GPU works from 20 to 120
    read_a_value(build, 30, gpu_done=125)
    work(build, "aten::mul", 180, runs=200)  # and from 190 to 390
    return build


def test_item_is_named_with_its_count_and_the_idle_time_after_it():
    (finding,) = found(one_step_with_item(), "synchronization")
    assert finding.severity == "warning"
    assert finding.title == "aten::item waits for the GPU once a step; the GPU then idles 65.0 µs"
    assert finding.saving_us == pytest.approx(190 - 125)
    assert [e.name for e in finding.evidence] == ["cudaStreamSynchronize"]
    assert "85" not in finding.title  # the wait itself is no cost


def test_item_on_a_cpu_tensor_is_none():
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=100)
    build.op("aten::item", 30, 10)
    build.op("aten::_local_scalar_dense", 31, 8)
    work(build, "aten::mul", 180, runs=200)
    assert found(build, "synchronization") == []


def test_a_copy_to_pageable_memory_waits_without_a_synchronizing_call():
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=100)
    build.op("aten::to", 30, 100)
    build.op("aten::copy_", 32, 96)
    copy = build.call("cudaMemcpyAsync", 35, 88)
    build.memcpy(120, 2, name="Memcpy DtoH (Device -> Pageable)", launch=copy)
    build.call("cudaStreamSynchronize", 124, 2)  # nothing left to wait for
    work(build, "aten::mul", 180, runs=200)
    (finding,) = found(build, "synchronization")
    assert finding.title.startswith("aten::to waits for the GPU once a step")
    assert finding.saving_us == pytest.approx(190 - 122)
    assert "non_blocking" in finding.suggestion


def test_an_asynchronous_copy_to_the_device_is_none():
    build = TraceBuilder()
    build.step(1, 0, 400)
    build.op("aten::copy_", 5, 20)
    copy = build.call("cudaMemcpyAsync", 10, 5)
    build.memcpy(20, 5, name="Memcpy HtoD (Pinned -> Device)", launch=copy)
    work(build, "aten::mul", 100, runs=200)
    assert found(build, "synchronization") == []


def test_a_wait_without_idle_time_after_it_costs_nothing():
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=20)  # done at 40, long before anybody waits
    build.op("aten::nonzero", 100, 30)
    build.call("cudaStreamSynchronize", 110, 5)
    work(build, "aten::mul", 180, runs=200)
    (finding,) = found(build, "synchronization")
    assert (finding.severity, finding.saving_us) == ("note", None)
    assert "size" in finding.suggestion  # the result's size depends on the data


def test_the_profilers_own_final_synchronize_never_counts():
    build = TraceBuilder()
    build.step(1, 0, 100)
    work(build, "aten::mm", 10, runs=300)
    build.call("cudaDeviceSynchronize", 120, 250)
    assert found(build, "synchronization") == []


def test_a_synchronize_at_the_end_of_every_step_is_said_to_be_the_users():
    build = TraceBuilder()
    for number, start in enumerate((0, 400, 800)):
        build.step(number, start, 390)
        work(build, "aten::mm", start + 20, runs=200)
        build.python("torch/cuda/__init__.py(975): synchronize", start + 40, 260)
        build.call("cudaDeviceSynchronize", start + 50, 190)  # from 50 to 240, the GPU is done at 230
    build.call("cudaDeviceSynchronize", 1300, 10)
    (finding,) = found(build, "synchronization")
    assert finding.severity == "note"
    assert finding.count == 3
    assert "torch.cuda.synchronize() ends the step" in finding.title
    # 200 µs until the next step's kernel twice; in the last step until its end at 1190.
    assert finding.saving_us == pytest.approx((200 + 200 + 160) / 3)


def test_waits_of_distributed_data_parallel_are_its_own():
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=100)
    build.annotation("DistributedDataParallel.forward", 30, 350)
    build.call("cudaEventSynchronize", 40, 85)
    work(build, "aten::mul", 180, runs=200)
    (finding,) = found(build, "synchronization")
    assert (finding.severity, finding.saving_us) == ("info", None)
    assert finding.title.startswith("DistributedDataParallel.forward itself")


def test_without_the_profiler_no_idle_time_means_no_saving():
    build = one_step_with_item()
    busy = 100 + 2 + 200
    (finding,) = found(build, "synchronization", unprofiled_us=busy)
    assert (finding.severity, finding.saving_us) == ("note", None)
    (finding,) = found(build, "synchronization", unprofiled_us=10_000)
    assert finding.saving_us == pytest.approx(65)  # never more than was seen


def test_the_line_of_code_is_named_where_stacks_were_recorded():
    build = one_step_with_item()
    build.python("train.py(41): log", 28, 120)
    build.python("torch/_tensor.py(10): item", 29, 110)
    (finding,) = found(build, "synchronization")
    assert finding.source == "train.py:41 in log"


def test_many_places_are_counted_together_beyond_the_first_few():
    build = TraceBuilder()
    build.step(1, 0, 10_000)
    for i in range(12):
        at = 100 + 500 * i
        work(build, "aten::mm", at, runs=100)
        build.python(f"model{i}.py(1): forward", at + 15, 300)
        read_a_value(build, at + 20, gpu_done=at + 115)
    work(build, "aten::mm", 9000, runs=100)
    findings = found(build, "synchronization")
    assert len(findings) == 6
    assert sum(f.count for f in findings) == 12
    assert findings[0].saving_us is not None
    assert any("7 more places" in f.title for f in findings)


def test_in_a_trace_without_steps_no_saving_is_claimed():
    build = one_step_with_item()
    build.events = build.events[1:]
    (finding,) = found(build, "synchronization")
    assert finding.saving_us is None
    assert "in this trace" in finding.title


@pytest.mark.parametrize("name", ["mlp_eager", "mlp_compile", "mlp_cudagraph", "linear_eager", "mlp_train_eager"])
def test_traces_whose_only_synchronization_is_the_profilers(name):
    assert found_in(name, "synchronization") == []


def test_ddp_trace_shows_only_waits_of_ddp_itself():
    (finding,) = found_in("ddp_rank0", "synchronization")
    assert (finding.severity, finding.count, finding.saving_us) == ("info", 24, None)
