"""Communication that computation hides, and that it does not."""

from __future__ import annotations

import pytest
from timeline import found, found_in

from builders import TraceBuilder

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def one_step(*communication: tuple[float, float], name: str = ALL_REDUCE, elements: int | None = None, device: int = 0):
    """Computation from 100 to 200 and from 300 to 400 beside communication kernels (start, duration)."""
    build = TraceBuilder()
    build.step(1, 0, 1000)
    for start in (100, 300):
        launch = build.launch(start - 20)
        build.kernel("some_gemm", start, 100, launch=launch)
    for start, duration in communication:
        launch = build.launch(start - 10)
        args = {"Collective name": "allreduce", "In msg nelems": elements} if elements else None
        build.kernel(name, start, duration, launch=launch, stream=20, device=device, args=args)
    return build


def test_exposed_is_what_no_computation_covers():
    (finding,) = found(one_step((150, 100), (360, 100)), "exposed_communication")  # covered 50 and 40
    assert finding.severity == "note"
    assert finding.title == "110 µs of 200 µs communication a step is hidden by no computation"
    assert finding.saving_us == pytest.approx(110)


def test_hidden_communication_saves_nothing():
    (finding,) = found(one_step((110, 80)), "exposed_communication")
    assert (finding.severity, finding.saving_us) == ("info", None)


def test_computation_on_another_device_hides_nothing():
    (finding,) = found(one_step((110, 80), device=1), "exposed_communication")
    assert finding.saving_us == pytest.approx(80)


def test_copies_do_not_hide_communication():
    build = one_step((500, 100))
    copy = build.call("cudaMemcpyAsync", 480)
    build.memcpy(500, 100, launch=copy)
    (finding,) = found(build, "exposed_communication")
    assert finding.saving_us == pytest.approx(100)


def test_equal_messages_show_which_part_is_waiting():
    build = one_step((500, 30), (600, 230), elements=1 << 20)
    (finding,) = found(build, "exposed_communication")
    assert finding.title.endswith("260 µs of 260 µs communication a step is hidden by no computation; 200 µs waits")
    assert finding.saving_us == pytest.approx(60)  # two transfers of 30 µs


def test_it_is_told_by_family_not_by_the_letters_nccl():
    (finding,) = found(one_step((500, 100), name="multimem_all_reduce_kernel"), "exposed_communication")
    assert finding.saving_us == pytest.approx(100)
    assert found(one_step((500, 100), name="my_ncclish_gemm"), "exposed_communication") == []


def test_real_rank_of_two_with_a_straggler():
    (finding,) = found_in("ddp_rank0", "exposed_communication")
    assert finding.title.startswith("6.44 ms of 8.31 ms communication a step")
    assert finding.saving_us == pytest.approx(314.6, abs=1)  # most of it waits for the other rank
    assert finding.count == 18


def test_single_gpu_traces_have_none():
    assert found_in("mlp_train_eager", "exposed_communication") == []
