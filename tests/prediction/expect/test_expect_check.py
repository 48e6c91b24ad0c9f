"""Verdicts on real traces: what held, what broke and by which events, what is unknown and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import foretrace
from builders import TraceBuilder
from foretrace import check, expect
from foretrace.cli.demo import SAMPLES
from foretrace.errors import InputError
from foretrace.model.expectations import Account, Checked, Outcome

TRACES = Path(__file__).parents[2] / "data" / "traces"
EAGER, COMPILED = TRACES / "mlp_eager.json.gz", TRACES / "mlp_compile.json.gz"
GRAPH, TRAIN = TRACES / "mlp_cudagraph.json.gz", TRACES / "mlp_train_eager.json.gz"


def outcome(checked: Checked, quantity: str) -> Outcome:
    (found,) = [one for one in checked.outcomes if one.quantity == quantity]
    return found


def rules(accounts: list[Account]) -> list[str | None]:
    return [account.rule for account in accounts]


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_operators_that_a_fused_kernel_stands_for_are_called_less_often(mode: str):
    checked = check(SAMPLES / f"h200_geglu_{mode}" / "foretrace.trace.json.gz", expect(op="aten::linear", calls=3))
    (account,) = outcome(checked, "calls").accounts
    assert account.rule == "done_elsewhere"
    assert account.text == (
        "foretrace hopper gate_up gelu_tanh 128x256 does mm, gelu_tanh and mul, launched by foretrace::gate_up, "
        "outside aten::linear"
    )


def test_a_kernel_of_ours_is_launched_without_a_query_for_another_reason_than_cublas():
    trace = SAMPLES / "h200_geglu_forward" / "foretrace.trace.json.gz"
    checked = check(trace, expect(occupancy_query_before="gemm"))
    assert rules(outcome(checked, "occupancy_query_before").accounts) == ["no_query_triton", "no_query_by_design"]


def test_several_epilogues_are_told_in_one_sentence():
    checked = check(SAMPLES / "h200_geglu_train" / "foretrace.trace.json.gz", expect(elementwise=2))
    (account,) = outcome(checked, "elementwise").accounts
    assert account.text.endswith(" do gelu_tanh, mul and gelu_tanh_backward in the epilogue")


def test_the_guess_of_the_article_is_half_right_on_hopper():
    guess = expect(kernels=5, gemm=3, elementwise=2, occupancy_query_before="gemm")
    checked = check(EAGER, guess)
    assert [one.state for one in checked.outcomes] == ["held", "held", "held", "broken"]
    wrong = checked.outcomes[3]
    assert wrong.observed == "0 of 3"
    (account,) = wrong.accounts
    assert account.rule == "no_query_by_design"
    assert "cuLaunchKernelEx" in account.text
    assert account.why is not None
    assert "nvjet" in account.why
    # The three products of the step and their launch calls.
    assert len(account.evidence) == 6
    assert {one.name for one in account.evidence if "nvjet" not in one.name} == {"cuLaunchKernelEx"}
    (surprise,) = checked.surprises
    assert surprise.text == "2 memsets of 4 B by aten::mm in every step"
    assert (surprise.rule, surprise.finding) == ("library_memset", "library_memsets")


def test_every_step_is_judged():
    held = outcome(check(EAGER, expect(kernels=5)), "kernels")
    assert [(step.label, step.observed) for step in held.steps] == [
        ("ProfilerStep#2", 5), ("ProfilerStep#3", 5), ("ProfilerStep#4", 5),
    ]  # fmt: skip
    slow = outcome(check(EAGER, expect(wall_us="<= 400")), "wall_us")
    assert [step.state for step in slow.steps] == ["broken", "held", "held"]
    assert "cold_step" in rules(slow.accounts)


def test_one_step_can_be_asked():
    assert check(EAGER, expect(step="#3", wall_us="<= 400")).state == "held"
    assert check(EAGER, expect(step=0, wall_us="<= 400")).state == "broken"
    with pytest.raises(InputError, match="there is no step '#9'"):
        check(EAGER, expect(step="#9", kernels=5))


def test_a_fused_kernel_accounts_for_missing_pointwise_ones():
    checked = check(COMPILED, expect(kernels=5, elementwise=2))
    fewer = outcome(checked, "elementwise")
    (account,) = fewer.accounts
    assert (account.rule, account.count) == ("fused", -2)
    assert "gelu and mul in one kernel" in account.text
    assert account.evidence[0].name == "triton_poi_fused__unsafe_view_gelu_mul_0"
    assert [(a.rule, a.count) for a in outcome(checked, "kernels").accounts] == [("fused", -1)]


def test_pointwise_kernels_account_for_a_missing_fusion():
    (account,) = outcome(check(EAGER, expect(fused=1)), "fused").accounts
    assert (account.rule, account.finding) == ("not_fused", "hbm_round_trip")


def test_nothing_to_fuse_is_said_of_one_pointwise_kernel():
    trace = TRACES / "matmul_add_eager.json.gz"
    assert rules(outcome(check(trace, expect(fused=1)), "fused").accounts) == ["nothing_to_fuse"]


def test_memsets_are_the_library_s():
    (account,) = outcome(check(EAGER, expect(memsets=0)), "memsets").accounts
    assert (account.rule, account.finding, account.count) == ("library_memset", "library_memsets", 2)
    assert len(account.evidence) == 2


def test_launches_are_more_than_kernels():
    (account,) = outcome(check(EAGER, expect(launches=5)), "launches").accounts
    assert account.text == "7 launch calls: 5 kernels, 2 memsets"


def test_a_graph_launch_accounts_for_missing_launches():
    first, _ = outcome(check(GRAPH, expect(launches=5)), "launches").accounts
    assert (first.rule, first.finding) == ("graph_launch", "cuda_graph")
    assert first.text == "1 graph launch put 4 kernels on the GPU"


def test_a_backward_pass_accounts_for_kernels_nobody_counted():
    accounts = outcome(check(TRAIN, expect(kernels=5, gemm=3, elementwise=2)), "kernels").accounts
    assert [(a.rule, a.count) for a in accounts] == [("backward", 16), ("fill", 1), ("of_operator", None)]


def test_a_bias_in_the_epilogue_accounts_for_a_missing_addition():
    trace = TRACES / "linear_eager.json.gz"
    (account,) = outcome(check(trace, expect(elementwise=1)), "elementwise").accounts
    assert (account.rule, account.finding) == ("epilogue", "bias_in_epilogue")


@pytest.mark.parametrize(
    ("trace", "expectation", "why"),
    [
        (EAGER, expect(peak_memory_bytes="<= 1 GB"), "profile_memory=True"),
        (EAGER, expect(bound="compute"), "this trace alone cannot tell"),
        (EAGER, expect(unprofiled_us="<= 250"), "no mlp_eager.side.json lies beside the trace; copy it along"),
        (EAGER, expect(bound="compute"), "no mlp_eager.side.json lies beside the trace"),
        (EAGER, expect(graph_breaks=0), "no compiled region"),
        (EAGER, expect(module="Linear_0", kernels=1), "with_stack=True"),
        (GRAPH, expect(flops="> 0"), "replayed by a CUDA graph"),
        (GRAPH, expect(op="aten::mm", kernels=3), "a CUDA graph replays 4 kernels"),
        (GRAPH, expect(occupancy_query_before="gemm"), "a CUDA graph replays the kernels"),
        (GRAPH, expect(metadata_only=0), "CUDA graph"),
        (EAGER, expect(occupancy_query_before="attention"), "no attention kernel ran"),
    ],
)
def test_what_the_trace_does_not_hold_is_unknown_with_the_reason(
    trace: Path, expectation: foretrace.Expectation, why: str
):
    checked = check(trace, expectation)
    assert checked.state == "unknown"
    (one,) = checked.outcomes
    assert one.observed is None
    assert one.reason is not None
    assert any(part in one.reason for part in why.split("|")), one.reason


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (expect(op="aten::bmm", kernels=0), "no operator is called aten::bmm in the trace; it has aten::mm"),
        (expect(op="aten::bmm", calls=1), "no operator is called aten::bmm in the trace; it has aten::mm"),
    ],
)
def test_what_an_operator_does_that_never_ran_is_broken(expectation: foretrace.Expectation, said: str):
    (one,) = check(EAGER, expectation).outcomes
    assert (one.state, one.reason) == ("broken", None)
    assert [(account.rule, account.text) for account in one.accounts] == [("no_such_place", said)]


def test_that_an_operator_does_not_run_is_asked_with_its_calls():
    (one,) = check(EAGER, expect(op="aten::bmm", calls=0)).outcomes
    # aten::mm is near, and aten::bmm is an operator of its own all the same.
    assert (one.state, one.note) == ("held", None)


_NO_REGION = "no region is called mlp_fw in the trace; it has mlp_fwd"


@pytest.mark.parametrize(
    ("expectation", "why"),
    [
        (expect(region="mlp_fw", op="aten::mm", calls=0), _NO_REGION),
        (expect(region="mlp_fw", op="aten::bmm", calls=0), _NO_REGION),
        (expect(region="mlp_fw", op="aten::bmm", kernels=0), _NO_REGION),
        (expect("op mm: calls == 0"), "no operator is called mm in the trace; mm is recorded as aten::mm"),
        (expect("op mm: kernels == 0"), "no operator is called mm in the trace; mm is recorded as aten::mm"),
        (expect("op m*: calls == 0"), "no operator is called m* in the trace; m* is recorded as aten::m*"),
        # Not in the trace, and known all the same.
        (expect("op item: calls == 0"), "no operator is called item in the trace; item is recorded as aten::item"),
        (expect("aten::mm: calls == 0"), "aten::mm is an operator: write op aten::mm"),
        (expect("aten::item: calls == 0"), "aten::item is named like an operator: write op aten::item"),
        (expect("op mlp_fwd: calls == 0"), "mlp_fwd is a region: write region mlp_fwd"),
        (expect(module="Nosuch", calls=0), "the trace has no module rows to find Nosuch in"),
        (expect(module="Nosuch", op="aten::mm", calls=0), "the trace has no module rows to find Nosuch in"),
    ],
)
def test_a_place_that_is_nowhere_lets_nothing_pass(expectation: foretrace.Expectation, why: str):
    (one,) = check(EAGER, expectation).outcomes
    assert (one.state, one.observed, one.note) == ("unknown", None, None)
    assert why in (one.reason or "")


@pytest.mark.parametrize("said", [{"kernels": 5}, {"gemm": 0}, {"gpu_busy_us": "<= 250"}, {"order": ["gemm"]}], ids=str)
def test_what_is_to_hold_of_a_region_that_is_nowhere_is_broken(said: dict[str, Any]):
    (one,) = check(EAGER, expect(region="mlp_fw", **said)).outcomes
    assert one.state == "broken"
    assert [account.text for account in one.accounts] == [_NO_REGION]


def test_that_a_region_never_ran_holds_with_a_note():
    (one,) = check(EAGER, expect("mlp_fw: calls == 0")).outcomes
    assert (one.state, one.observed, one.note) == ("held", "0", _NO_REGION)
    (broken,) = check(EAGER, expect("mlp_fw: calls == 1")).outcomes
    assert (broken.state, broken.note) == ("broken", None)
    assert [account.text for account in broken.accounts] == [_NO_REGION]


def test_a_slip_in_an_operator_is_asked_after():
    (one,) = check(EAGER, expect("op aten::linaer: calls == 0")).outcomes
    said = "no operator is called aten::linaer in the trace; did you mean aten::linear?"
    assert (one.state, one.note) == ("held", said)
    (far,) = check(EAGER, expect("op aten::lnaer_fast: calls == 0")).outcomes
    assert (far.state, far.note) == ("held", None)


def test_modules_are_judged_as_regions_are():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.python("nn.Module: Linear_0", 0, 50)
    build.op("aten::mm", 10, 30)
    trace = build.trace()
    (held,) = check(trace, expect(module="Linear_9", calls=0)).outcomes
    assert (held.state, held.note) == ("held", "no module is called Linear_9 in the trace; it has Linear_0")
    (inside,) = check(trace, expect(module="Linear_9", op="aten::mm", calls=0)).outcomes
    assert (inside.state, inside.reason) == ("unknown", "no module is called Linear_9 in the trace; it has Linear_0")
    (other,) = check(trace, expect(region="Linear_0", calls=0)).outcomes
    assert other.state == "unknown"
    assert "Linear_0 is a module: write module Linear_0" in (other.reason or "")


def test_what_is_asked_inside_of_a_region_is_judged_where_the_region_runs():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 30)
    build.step(2, 100, 100)
    build.annotation("evaluate", 110, 50)
    build.op("aten::add", 120, 10)
    (one,) = check(build.trace(), expect(region="evaluate", op="aten::mm", calls=0)).outcomes
    assert (one.state, [step.index for step in one.steps]) == ("held", [1])
    (first,) = check(build.trace(), expect(step=0, region="evaluate", op="aten::mm", calls=0)).outcomes
    assert (first.state, first.reason) == ("unknown", "it does not run in this step")


def test_without_operators_nothing_says_that_one_never_ran():
    build = TraceBuilder()
    build.kernel("sgemm", 50, 12, launch=build.launch(20))
    (one,) = check(build.trace(), expect(op="aten::item", calls=0)).outcomes
    assert (one.state, one.reason) == ("unknown", "no operators were recorded (record with ProfilerActivity.CPU)")
    (label,) = check(build.trace(), expect(region="evaluate", calls=0)).outcomes
    assert label.state == "unknown"
    assert "neither operators nor labels were recorded" in (label.reason or "")


def test_what_is_no_trace_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="takes a trace, its path or a report, not a dict"):
        check({"traceEvents": []}, "gemm == 3")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"dict is no expectation: make one with foretrace\.expect"):
        check(EAGER, {"gemm": 3})  # type: ignore[arg-type]


def test_what_nobody_can_set_the_pace_of_is_broken_all_the_same():
    one = outcome(check(EAGER, expect(bound="memory")), "bound")
    assert one.state == "broken"
    assert "70.6 % compute-bound" in one.accounts[0].text


def test_places_divide_a_step():
    checked = check(
        EAGER,
        expect("mlp_fwd: kernels == 5", "op aten::linear: calls == 3", "op aten::linear: gemm == 3")
        & expect("op aten::linear: memsets == 2", "op aten::gelu: kernels == 1", "op aten::gelu: elementwise_us <= 33")
        & expect("op aten::*: kernels == 5", "region mlp_fwd, op aten::mul: gpu_busy_us == 36..38")
        & expect("op aten::bmm: calls == 0", "mlp_fwd: metadata_only == 18", "mlp_fwd: bound == compute"),
    )
    assert [(one.expectation, one.observed) for one in checked.outcomes if one.state != "held"] == []


def test_patterns_look_into_decoded_names():
    checked = check(
        COMPILED,
        expect(
            "kernel[tile=256x128, layout=TN] == 2",
            "kernel[name=/^nvjet_.*_TNT$/] == 3",
            'kernel[parts="gelu, mul", kind=fused] == 1',
            "kernel[dtype=bf16] == 3",
            "kernel[op=aten::*] == 3",
            "kernel[parts=silu] == 0",
        ),
    )
    assert [one.state for one in checked.outcomes] == ["held"] * 6


def test_a_pattern_that_misses_names_what_is_there_instead():
    (account,) = check(EAGER, expect("kernel[tile=256x128] == 3")).outcomes[0].accounts
    assert account.text == "nvjet 192x128 64x5 TN has tile 192x128, not 256x128"


def test_the_order_of_kernels():
    kinds = ["gemm", "elementwise", "gemm", "elementwise", "gemm"]
    assert check(EAGER, expect(order=kinds)).state == "held"
    assert check(EAGER, expect(order=["memset", "gemm", "memset", "gemm", "gemm"])).state == "held"
    assert check(EAGER, expect(order=["op:aten::gelu", "op:aten::mul"])).state == "held"
    wrong = check(EAGER, expect(order=["op:aten::mul", "op:aten::gelu"])).outcomes[0]
    assert wrong.observed == "op:aten::gelu → op:aten::mul"
    assert "number 1 is op:aten::gelu" in wrong.accounts[0].text


def test_an_order_broken_by_fusion_names_the_fused_kernel():
    kinds = ["gemm", "elementwise", "gemm", "elementwise", "gemm"]
    accounts = check(COMPILED, expect(order=kinds)).outcomes[0].accounts
    assert rules(accounts) == ["order_differs", "fused"]
    assert accounts[1].text == "triton_poi gelu·mul does gelu and mul in one kernel"
    # The train step has its pointwise kernels; its order differs for another reason.
    assert rules(check(TRAIN, expect(order=kinds)).outcomes[0].accounts) == ["order_differs"]


def test_numbers_that_round_alike_are_told_with_all_their_digits():
    close = check(EAGER, expect("flops == 115.96 GFLOP")).outcomes[0]
    assert (close.state, close.expected, close.observed) == ("broken", "115960000000 FLOP", "115964116992 FLOP")
    far = check(EAGER, expect("flops == 100 GFLOP")).outcomes[0]
    assert (far.expected, far.observed) == ("100.0 GFLOP", "116.0 GFLOP")


def test_one_kernel_too_many_is_one_other():
    checked = check(GRAPH, expect(same_kernels_as=str(COMPILED)))
    assert checked.outcomes[0].observed == "4 of its 4 kernels and 1 other"


def test_the_same_kernels_as_another_trace():
    checked = check(EAGER, expect(same_kernels_as=[[str(COMPILED)], [str(COMPILED), "gemm"], [str(EAGER)]]))
    assert [one.state for one in checked.outcomes] == ["broken", "held", "held"]
    assert checked.outcomes[0].observed == "3 of its 4 kernels and 2 others"
    text = checked.outcomes[0].accounts[0].text
    assert "triton_poi gelu·mul" in text
    assert "only here: elementwise<8> gelu, elementwise<8> mul" in text


def test_ratios_and_amounts():
    checked = check(
        EAGER,
        expect(
            "gpu_busy_us / period_us >= 40%", "bytes / flops < 0.01", "gemm_us / gpu_busy_us == 69%..71%",
            "flops == 115.96 GFLOP ± 0.1%", "bytes == 455 MB ± 1%", "cpu_us <= 400", "metadata_only == 18",
        ),
    )  # fmt: skip
    assert [(one.expectation, one.observed) for one in checked.outcomes if one.state != "held"] == []


def test_a_report_alone_is_checked_as_far_as_it_goes():
    report = foretrace.explain(EAGER)
    checked = check(report, expect("op aten::linear: gemm == 3", kernels=5, occupancy_queries=0, recompiles=0))
    assert [one.state for one in checked.outcomes] == ["held", "held", "held", "unknown"]
    assert checked.outcomes[3].reason is not None
    assert "check the trace itself" in checked.outcomes[3].reason


def test_the_file_of_a_report_is_checked_like_the_report(tmp_path: Path):
    file = tmp_path / "report.json"
    file.write_bytes(msgspec.json.encode(foretrace.explain(EAGER)))
    checked = check(file, expect(kernels=5, recompiles=0))
    assert [one.state for one in checked.outcomes] == ["held", "unknown"]
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"report\.json is a report of foretrace that cannot be read"):
        check(file, expect(kernels=5))


def test_a_line_or_a_file_is_an_expectation_too(tmp_path: Path):
    (tmp_path / "e.toml").write_text("gemm = 3", encoding="utf-8")
    assert check(EAGER, "gemm == 3").state == check(EAGER, tmp_path / "e.toml").state == "held"


def test_the_kinds_nobody_named_are_told():
    surprises = check(EAGER, expect(gemm=3, memsets=2)).surprises
    assert [one.quantity for one in surprises] == ["elementwise"]
    assert check(EAGER, expect(gemm=3, memsets=2, kernels=5)).surprises == []
