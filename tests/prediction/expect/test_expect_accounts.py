"""What accounts for a difference, on traces made for one mechanism each."""

from __future__ import annotations

import pytest

from builders import TraceBuilder
from foretrace import check, expect
from foretrace.knowledge.differences import DIFFERENCES
from foretrace.knowledge.rules import RULES
from foretrace.model.expectations import Account, Expectation
from foretrace.trace import Trace

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float>(float const*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"


def product(build: TraceBuilder, at: float, *, query: bool = True, split: bool = False, op: str = "aten::mm") -> None:
    """One product: an operator, maybe an occupancy query, its launch and kernel."""
    build.op(op, at, 30)
    if query:
        build.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", at + 2, 1)
    build.kernel(GEMM, at + 40, 20, launch=build.launch(at + 5))
    if split:
        build.kernel(SPLIT_K, at + 60, 5, launch=build.launch(at + 12))


def accounts(trace: Trace, expectation: Expectation) -> list[Account]:
    (outcome,) = [one for one in check(trace, expectation).outcomes if one.state == "broken"]
    return outcome.accounts


def test_a_split_k_sum_is_the_kernel_too_many():
    build = TraceBuilder(gpu="NVIDIA A100-SXM4-80GB")
    build.step(1, 0, 100)
    product(build, 10, split=True)
    (account,) = accounts(build.trace(), expect(kernels=1))
    assert (account.rule, account.count) == ("split_k", 1)
    assert account.text == "splitKreduce, launched by aten::mm"
    assert account.why is not None
    assert "reduction dimension K" in account.why
    assert [one.name for one in account.evidence] == [SPLIT_K, "cudaLaunchKernel"]


def test_the_kind_nobody_expected_is_the_surplus():
    build = TraceBuilder()
    build.step(1, 0, 200)
    product(build, 10)
    build.op("aten::add", 50, 20)
    build.kernel(ADD, 80, 5, launch=build.launch(55))
    (account,) = accounts(build.trace(), expect(kernels=1, gemm=1))
    assert account.text == "elementwise<4> add, launched by aten::add"


def test_queries_before_every_product_hold_on_older_gpus():
    build = TraceBuilder(gpu="NVIDIA A100-SXM4-80GB")
    build.step(1, 0, 300)
    product(build, 10)
    build.op("aten::mm", 100, 40)
    build.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 102, 1)
    build.memset(150, 1, launch=build.call("cudaMemsetAsync", 104))  # stands between query and launch
    build.kernel(GEMM, 160, 20, launch=build.launch(110))
    trace = build.trace()
    assert check(trace, expect(occupancy_query_before="gemm")).state == "held"
    assert check(trace, expect(occupancy_queries=2)).state == "held"


def test_one_product_without_a_query_is_named():
    build = TraceBuilder(gpu="NVIDIA A100-SXM4-80GB")
    build.step(1, 0, 300)
    product(build, 10)
    product(build, 100, query=False)
    (outcome,) = check(build.trace(), expect(occupancy_query_before="gemm")).outcomes
    assert outcome.observed == "1 of 2"
    (account,) = outcome.accounts
    assert (account.rule, account.count) == ("no_query_library", -1)


def test_a_query_too_many_is_told_by_operator():
    build = TraceBuilder()
    build.step(1, 0, 300)
    product(build, 10)
    (account,) = accounts(build.trace(), expect(occupancy_queries=0))
    assert account.text == "1 occupancy query in aten::mm: cudaOccupancyMaxActiveBlocksPerMultiprocessor"


@pytest.mark.parametrize(
    ("op", "name", "rule"),
    [
        ("aten::addmm", "Memcpy DtoD (Device -> Device)", "seeded_output"),
        ("aten::copy_", "Memcpy HtoD (Pageable -> Device)", "host_copy"),
        ("aten::_local_scalar_dense", "Memcpy DtoH (Device -> Pageable)", "scalar_read"),
        ("aten::reshape", "Memcpy DtoD (Device -> Device)", "hidden_copy"),
        ("aten::clone", "Memcpy DtoD (Device -> Device)", "requested_copy"),
    ],
)
def test_a_copy_is_told_by_what_it_is_for(op: str, name: str, rule: str):
    build = TraceBuilder()
    build.step(1, 0, 200)
    build.op(op, 10, 50)
    build.memcpy(70, 5, name=name, launch=build.call("cudaMemcpyAsync", 20))
    build.kernel(GEMM, 80, 5, launch=build.launch(30))
    (account,) = accounts(build.trace(), expect(memcpys=0))
    assert (account.rule, account.count) == (rule, 1)
    assert op in account.text
    assert account.why


def test_a_copy_that_is_a_kernel_accounts_for_a_missing_memcpy():
    build = TraceBuilder()
    build.step(1, 0, 200)
    build.op("aten::copy_", 10, 50)
    build.kernel(COPY, 80, 5, launch=build.launch(30))
    (account,) = accounts(build.trace(), expect(memcpys=1))
    assert account.rule == "copies_as_kernels"


@pytest.mark.parametrize(
    ("op", "kernel", "rule"), [("aten::mm", True, "library_memset"), ("aten::zero_", False, "fill_memset")]
)
def test_a_memset_is_told_by_whose_it_is(op: str, kernel: bool, rule: str):
    build = TraceBuilder()
    build.step(1, 0, 200)
    build.op(op, 10, 50)
    build.memset(70, 2, launch=build.call("cudaMemsetAsync", 20))
    if kernel:
        build.kernel(GEMM, 80, 5, launch=build.launch(30))
    (account,) = accounts(build.trace(), expect(memsets=0))
    assert account.rule == rule


def test_a_wait_is_told_by_its_operator_and_the_profiler_s_own_is_none():
    build = TraceBuilder()
    build.step(1, 0, 200)
    product(build, 10)
    build.op("aten::item", 60, 60)
    build.op("aten::_local_scalar_dense", 62, 50)
    build.memcpy(80, 2, name="Memcpy DtoH (Device -> Pageable)", launch=build.call("cudaMemcpyAsync", 65))
    build.call("cudaStreamSynchronize", 75, 20)
    build.call("cudaDeviceSynchronize", 300, 20)
    trace = build.trace()
    (account,) = accounts(trace, expect(synchronizations=0))
    assert account.text == "1 wait in aten::_local_scalar_dense: cudaStreamSynchronize"
    (surprise,) = [s for s in check(trace, expect(kernels=1)).surprises if s.quantity == "synchronizations"]
    assert surprise.text == "1 call waits for the GPU (cudaStreamSynchronize)"


def test_a_recompile_is_seen_in_its_step():
    build = TraceBuilder()
    for number, region in ((1, "0/0"), (2, "0/1"), (3, "0/1")):
        start = number * 1000
        build.step(number, start, 500)
        build.annotation(f"Torch-Compiled Region: {region}", start + 10, 100)
        build.kernel(GEMM, start + 60, 20, launch=build.launch(start + 20))
    (outcome,) = check(build.trace(), expect(recompiles=0)).outcomes
    assert [step.observed for step in outcome.steps] == [0, 1, 0]
    assert (outcome.accounts[0].rule, outcome.accounts[0].finding) == ("compilation", "recompile")


def test_graph_breaks_are_frames_beyond_the_first():
    build = TraceBuilder()
    build.step(1, 0, 500)
    for at, region in ((10, "0/0"), (150, "1/0"), (300, "0/0")):
        build.annotation(f"Torch-Compiled Region: {region}", at, 100)
        build.kernel(GEMM, at + 50, 20, launch=build.launch(at + 10))
    (account,) = accounts(build.trace(), expect(graph_breaks=0))
    assert account.rule == "frames"
    assert "Torch-Compiled Region: 1/0" in account.text


def test_the_peak_of_a_step_is_the_allocator_s():
    build = TraceBuilder()
    build.step(1, 0, 200)
    product(build, 10)
    for at, total, size, device in (
        (20, 3000, 3000, 1),
        (50, 9000, 6000, 1),
        (60, 99_000, 6000, 0),
        (300, 80_000, 1, 1),
    ):
        build.event(
            ph="i", cat="cpu_instant_event", name="[memory]", pid=100, tid=100, ts=build.base_us + at,
            args={"Total Allocated": total, "Bytes": size, "Device Type": device},
        )  # fmt: skip
    trace = build.trace()
    assert check(trace, expect(peak_memory_bytes=9000)).state == "held"
    (account,) = accounts(trace, expect(peak_memory_bytes="< 9 kB"))
    assert "6.00 kB" in account.text


def test_a_module_has_its_forward_and_its_backward_work():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    build.python("nn.Module: MLP_0", 10, 200)
    build.python("nn.Module: Linear_0", 20, 100)
    build.op("aten::mm", 30, 50, sequence=7)
    build.kernel(GEMM, 90, 20, launch=build.launch(40))
    build.op("autograd::engine::evaluate_function: MmBackward0", 300, 100, sequence=7, tid=200)
    build.op("aten::mm", 310, 50, tid=200)
    build.kernel(GEMM, 390, 20, launch=build.launch(320, tid=200))
    trace = build.trace()
    checked = check(
        trace, expect("module Linear_0: kernels == 2", "module MLP_*: kernels == 2", "module Linear_0: calls == 1")
    )
    assert [one.observed for one in checked.outcomes] == ["2", "2", "1"]


def test_a_region_is_judged_in_the_steps_that_run_it():
    build = TraceBuilder()
    for number in (1, 2):
        build.step(number, number * 1000, 500)
        if number == 2:
            build.annotation("log", 2100, 100)
        product(build, number * 1000 + 110)
    (outcome,) = check(build.trace(), expect("log: gemm == 1")).outcomes
    assert (outcome.state, [step.label for step in outcome.steps]) == ("held", ["ProfilerStep#2"])


def test_a_trace_that_cannot_be_trusted_gives_no_verdict():
    build = TraceBuilder()
    build.step(1, 0, 500)
    for at in range(10, 400, 20):
        build.launch(at)  # launches whose kernels are missing
    product(build, 450)
    checked = check(build.trace(), expect(kernels=1, wall_us="> 0"))
    assert checked.alarms
    assert [one.state for one in checked.outcomes] == ["unknown", "unknown"]
    assert checked.surprises == []


def test_without_gpu_rows_nothing_is_said_of_a_gpu():
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 500)
    build.op("aten::mm", 10, 30)
    checked = check(build.trace(), expect("op aten::mm: calls == 1", kernels=0, gpu_busy_us="<= 1", launches=0))
    assert [one.state for one in checked.outcomes] == ["held", "unknown", "unknown", "unknown"]


def test_facts_name_findings_that_exist():
    named = {rule for fact in DIFFERENCES.values() for rule in fact.findings}
    assert named - set(RULES) == set()


def test_of_many_causes_only_the_largest_are_told_one_by_one():
    build = TraceBuilder()
    build.step(1, 0, 2000)
    for number, op in enumerate(["aten::a", "aten::b", "aten::c", "aten::d", "aten::e", "aten::e"]):
        at = 10 + number * 100
        build.op(op, at, 90)
        build.memset(at + 60, 2, launch=build.call("cudaMemsetAsync", at + 10))
        build.kernel(GEMM, at + 70, 5, launch=build.launch(at + 30))
    texts = [one.text for one in check(build.trace(), expect(kernels=6)).surprises]
    assert texts[0] == "2 memsets of 4 B by aten::e"
    assert texts[3:] == ["2 more memsets by 2 other operators"]


def test_what_no_event_stands_for_is_said_to_be_missing():
    build = TraceBuilder()
    build.step(1, 0, 500)
    product(build, 10)
    (account,) = accounts(build.trace(), expect(memcpys=1))
    assert account.text == "nothing here stands for it; the place holds 1 kernel, 0 memcpys, 0 memsets"


def test_an_empty_recording_gives_no_verdict():
    assert {one.state for one in check(TraceBuilder().trace(), expect(kernels=0, bound="memory")).outcomes} == {
        "unknown"
    }


# ---- calls, on a machine without a GPU ----


def on_a_cpu(*names: str) -> Trace:
    """One step of operators, one after another; ``a>b`` is b inside a."""
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 1000)
    for number, name in enumerate(names):
        for depth, part in enumerate(name.split(">")):
            build.op(part, 10 + 100 * number + depth, 50 - 2 * depth)
    return build.trace()


def test_too_many_calls_are_told_by_the_operators_around_them_and_speak_of_no_launch():
    trace = on_a_cpu("aten::linear>aten::copy_", "aten::gelu", "aten::contiguous>aten::copy_")
    (account,) = accounts(trace, expect("op aten::copy_: calls == 0"))
    assert account.text == "aten::linear → aten::copy_, aten::contiguous → aten::copy_"
    assert account.rule == "calls_made"
    said = f"{account.text} {account.why} {account.source}"
    assert not any(word in said for word in ("launch", "chain", "correlation", "kernel"))


def test_the_only_call_is_told_with_the_calls_beside_it():
    (account,) = accounts(on_a_cpu("aten::mm", "aten::item", "aten::gelu"), expect("op aten::item: calls == 0"))
    assert account.text == "aten::item (after aten::mm, before aten::gelu)"


@pytest.mark.parametrize("kept", [0, 1])
def test_a_fused_operator_that_was_taken_apart_is_no_nothing(kept: int):
    trace = on_a_cpu("aten::mm", "aten::add", *["aten::linear>aten::addmm"] * kept)
    found = accounts(trace, expect("op aten::addmm: calls == 2"))
    assert [one.rule for one in found] == ["taken_apart", "calls_left" if kept else "no_such_place"]
    assert found[0].text == (
        "aten::mm and aten::add run in this step: together they do what aten::addmm does in one call"
    )
    assert not any("kernel" in one.text or "memcpy" in one.text for one in found)


def test_the_peak_of_a_cpu_s_memory_is_not_asked_to_be_recorded_again():
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 1000)
    build.op("aten::mm", 10, 50)
    build.event(
        ph="i",
        cat="cpu_instant_event",
        name="[memory]",
        ts=20.0,
        args={"Device Type": 0, "Bytes": 64, "Total Allocated": 64},
    )
    (one,) = check(build.trace(), "peak_memory_bytes <= 1 GB").outcomes
    assert one.state == "unknown"
    assert one.reason == "the peak is known for GPUs only, and the allocations of this trace are the CPU's"
