"""GPU expectations and baselines through the plugin, on recordings of an H200 played back as if they had just run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from replay_backend import TRACES

pytest.importorskip("torch", reason="recording needs the torch extra")
# What a run inside this process imports first, pytester forgets at its end, and the next run imports it again.
import torch.profiler  # noqa: F401

import foretrace.analysis.baseline
import foretrace.comparison.baseline
import foretrace.integrations.pytest_plugin.case
import foretrace.integrations.pytest_plugin.summary
import foretrace.prediction.expect.checker
import foretrace.report.baseline
import foretrace.report.check  # noqa: F401

pytest_plugins = ["pytester"]

CONFTEST = """
from replay_backend import ReplayBackend

def pytest_configure(config):
    config.addinivalue_line("markers", "replay(*traces): what the recordings of this test are")

def pytest_foretrace_backend(item):
    mark = item.get_closest_marker("replay")
    return None if mark is None else ReplayBackend(*mark.args)
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    return pytester


def run(project: pytest.Pytester, body: str, *flags: str) -> pytest.RunResult:
    """Run one test file in this process: nothing in it starts a real profiler."""
    project.makepyfile(test_it=f"import pytest\nreplay, foretrace = pytest.mark.replay, pytest.mark.foretrace\n{body}")
    return project.runpytest_inprocess("-q", "-rs", *flags)


def test_what_the_eager_mlp_runs_holds(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
@replay("mlp_eager")
@foretrace("mlp_fwd: gemm == 3", kernels=5, gemm=3, elementwise=2, memcpys=0, synchronizations=0)
def test_counts(): pass

@replay("mlp_eager")
@foretrace(max_gpu_us=250, max_step_us=1e6)
def test_times(profiled): profiled(lambda: None, timed=True)
""",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["foretrace: 2 held"])


def test_a_broken_count_shows_expected_observed_and_why_and_keeps_the_trace(project: pytest.Pytester) -> None:
    result = run(project, '@replay("mlp_eager")\n@foretrace(gemm=2, kernels=4)\ndef test_counts(): pass')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "foretrace: 2 of 2 expectations are broken: gemm == 2 is 3 (*nvjet*aten::mm*",
            "*- foretrace -*",
            "*BROKEN   gemm == 2     is 3",
            "*→ *nvjet*aten::mm*",
            "the trace: foretrace explain *test_it.test_counts.trace.json.gz",
            "foretrace: 1 broken",
        ]
    )
    path = next(line for line in result.outlines if line.startswith("the trace:")).split()[-1]
    assert Path(path).exists()
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_time_beyond_its_limit_names_the_kernels_that_take_it(project: pytest.Pytester) -> None:
    result = run(
        project, '@replay("mlp_eager")\n@foretrace(max_gpu_us=100)\ndef test_it(profiled): profiled(lambda: None)'
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*BROKEN   gpu_busy_us *", "*nvjet*"])


def test_what_cannot_be_judged_on_a_gpu_fails_and_is_not_skipped(project: pytest.Pytester) -> None:
    project.makefile(".json", cpu=json.dumps({"schemaVersion": 1, "traceEvents": [OPERATOR]}))
    result = run(project, f'@replay(r"{project.path}/cpu.json")\n@foretrace(kernels=0)\ndef test_it(): pass')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "foretrace: 1 of 1 expectation cannot be judged: kernels == 0: no kernel, copy or memset was recorded",
            "foretrace: 1 not judged",
        ]
    )


OPERATOR = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}


def test_the_fixture_s_checks_and_comparison(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
@replay("mlp_eager", "mlp_compile")
def test_them(profiled):
    eager, compiled = profiled(lambda: 1), profiled(lambda: 2)
    assert (eager.result, compiled.result) == (1, 2)
    assert eager.check(kernels=5).state == "held"
    assert [len(one.report.kernels) for one in (eager, compiled)] == [15, 12]
    assert eager.trace.steps[0].label == "ProfilerStep#2"
    pair = compiled.compare(eager).pairs[0]
    assert any("triton_poi gelu·mul" in text for text in compiled.compare(eager).conclusion[0].changed)
    with pytest.raises(pytest.fail.Exception, match="kernels == 5 is 4"):
        compiled.check(kernels=5)

@replay("mlp_eager", "mlp_compile")
@foretrace(kernels=5)
def test_the_mark_speaks_of_both(profiled):
    profiled(lambda: None)
    profiled(lambda: None)
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["foretrace: recording 2: 1 of 1 expectation is broken: kernels == 5 is 4*"])


BASELINE = '@replay("{}")\n@foretrace(baseline=True)\ndef test_step(): pass'


def drift(project: pytest.Pytester, before: str, after: str) -> pytest.RunResult:
    """Make the baseline of one trace and hold another against it."""
    run(project, BASELINE.format(before), "--foretrace-update").assert_outcomes(passed=1)
    run(project, BASELINE.format(before), "--foretrace-fail-on-increase").assert_outcomes(passed=1)
    return run(project, BASELINE.format(after), "--foretrace-fail-on-increase")


def test_a_fused_kernel_that_is_taken_apart_is_named(project: pytest.Pytester) -> None:
    result = drift(project, "mlp_compile", "mlp_eager")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "foretrace: more than in the baseline __foretrace__/test_it.test_step.json: a fused kernel was taken "
            "apart: triton_poi gelu·mul is now elementwise<8> gelu by aten::gelu and elementwise<8> mul by aten::mul*",
            "  MORE     4 → 5 kernels a step",
        ]
    )


def test_fusing_is_no_increase(project: pytest.Pytester) -> None:
    # Inductor's kernel is an operator that was not there before; the count of kernels is what fell.
    run(project, BASELINE.format("mlp_eager"), "--foretrace-update")
    result = run(project, BASELINE.format("mlp_compile"))
    result.assert_outcomes(passed=1)
    (remark,) = (line for line in result.outlines if line.startswith("foretrace: test_it.py::test_step: not as in"))
    assert "aten::gelu and aten::mul are now done by triton_poi_fused__unsafe_view_gelu_mul" in remark
    assert remark.endswith("(--foretrace-update accepts it)")
    result.stdout.fnmatch_lines(["foretrace: 1 held"])


def test_a_lost_epilogue_is_named_with_both_kernels_and_their_operators(project: pytest.Pytester) -> None:
    result = drift(project, "linear_eager", "matmul_add_eager")
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "a GEMM lost its epilogue (bias): nvjet 64x8 64x16 TN bias by aten::addmm" in text
    assert "elementwise add by aten::add" in text
    assert "aten::addmm was taken apart into aten::mm and aten::add: its epilogue is lost" in text


def with_item(path: Path) -> Path:
    """The eager MLP with a ``.item()`` after each step's work: a copy to the host, and a wait for it."""
    trace: dict[str, Any] = json.loads(gzip.decompress((TRACES / "mlp_eager.json.gz").read_bytes()))
    events = trace["traceEvents"]
    steps = [e for e in events if e.get("name", "").startswith("ProfilerStep") and e["cat"] == "user_annotation"]
    for number, step in enumerate(steps):
        end = step["ts"] + step["dur"]

        def row(
            category: str, name: str, before: float, length: float, step: dict[str, Any] = step, **args: Any
        ) -> dict[str, Any]:
            start = step["ts"] + step["dur"] - before
            place = {"pid": step["pid"], "tid": step["tid"], "ts": start, "dur": length}
            return {"ph": "X", "cat": category, "name": name, **place, "args": args}

        copy = row("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 0.5, 0.2, correlation=900_000 + number)
        copy.update(pid=0, tid=7, ts=end + 400)
        copy["args"].update(device=0, stream=7, bytes=4)
        events += [
            row("cpu_op", "aten::item", 1.0, 0.9),
            row("cpu_op", "aten::_local_scalar_dense", 0.9, 0.7),
            row("cuda_runtime", "cudaMemcpyAsync", 0.8, 0.2, correlation=900_000 + number),
            row("cuda_runtime", "cudaStreamSynchronize", 0.5, 0.2, correlation=910_000 + number),
            copy,
        ]
    path.write_text(json.dumps(trace))
    return path


def test_a_new_item_is_named_by_operator_copy_and_wait(project: pytest.Pytester) -> None:
    result = drift(project, "mlp_eager", str(with_item(project.path / "item.json")))
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "1 call of aten::item a step more, with aten::_local_scalar_dense inside" in text
    assert "0 → 1 copy a step: Memcpy DtoH (Device -> Pageable) by aten::_local_scalar_dense" in text
    assert "0 → 1 wait for the GPU a step: cudaStreamSynchronize by aten::_local_scalar_dense" in text


FLAG_ALONE = '@replay("{}")\n@foretrace\ndef test_step(): pass'


@pytest.mark.parametrize(
    ("body", "flags", "fails"),
    [
        (BASELINE, (), True),
        (BASELINE, ("--foretrace-fail-on-increase",), True),
        (BASELINE, ("--foretrace-report-increase",), False),
        (BASELINE, ("-o", "foretrace_report_increase=true"), False),
        (BASELINE, ("-o", "foretrace_report_increase=true", "--foretrace-fail-on-increase"), True),
        (FLAG_ALONE, ("--foretrace-baseline",), False),
        (FLAG_ALONE, ("--foretrace-baseline", "--foretrace-fail-on-increase"), True),
    ],
)
def test_an_increase_fails_the_test_that_asks_for_a_baseline(
    project: pytest.Pytester, body: str, flags: tuple[str, ...], fails: bool
) -> None:
    run(project, body.format("mlp_compile"), "--foretrace-update", "--foretrace-baseline")
    result = run(project, body.format("mlp_eager"), *flags)
    result.assert_outcomes(failed=int(fails), passed=int(not fails))
    if fails:
        result.stdout.fnmatch_lines(["foretrace: more than in the baseline *", "foretrace: 1 broken"])
    else:
        remark = "foretrace: test_it.py::test_step: more than in the baseline: *"
        result.stdout.fnmatch_lines([remark, "foretrace: 1 more than the baseline (reported)"])
        assert not any(row.startswith("foretrace: 1 held") for row in result.outlines), "it did not hold"


def test_flags_that_contradict_each_other_are_one_sentence(project: pytest.Pytester) -> None:
    result = run(project, "def test_it(): pass", "--foretrace-fail-on-increase", "--foretrace-report-increase")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --foretrace-fail-on-increase and * contradict each other: give one of them"])


def test_update_accepts_and_says_how_many(project: pytest.Pytester) -> None:
    for trace, said in (
        ("mlp_compile", "foretrace: 1 baseline written"),
        ("mlp_eager", "foretrace: 1 baseline written"),
        ("mlp_eager", "foretrace: 1 held"),
    ):
        run(project, BASELINE.format(trace), "--foretrace-update").stdout.fnmatch_lines([said])
    file = project.path / "__foretrace__" / "test_it.test_step.json"
    assert '"kernel": "elementwise<8> gelu"' in file.read_text()
    run(project, BASELINE.format("mlp_eager"), "--foretrace-fail-on-increase").assert_outcomes(passed=1)


def test_a_baseline_of_a_gpu_is_neither_passed_nor_replaced_without_one(project: pytest.Pytester) -> None:
    run(project, BASELINE.format("mlp_eager"), "--foretrace-update")
    file = project.path / "__foretrace__" / "test_it.test_step.json"
    made = file.read_bytes()
    project.makefile(".json", cpu=json.dumps({"schemaVersion": 1, "traceEvents": [OPERATOR]}))
    project.makeconftest(CONFTEST.replace("(*mark.args)", '(*mark.args, activities=("CPU",))'))
    for flags in ((), ("--foretrace-update",)):
        result = run(project, BASELINE.format(f"{project.path}/cpu.json"), *flags)
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["*SKIPPED*no GPU here, so not judged: *NVIDIA H200*"])
        assert file.read_bytes() == made
    # With a GPU at hand, that nothing runs on it is what a baseline is there to notice.
    project.makeconftest(CONFTEST)
    for flags, said in (((), "nothing ran on a GPU here, though there is one"), (("--foretrace-update",), "*kept*")):
        result = run(project, BASELINE.format(f"{project.path}/cpu.json"), *flags)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines([f"foretrace: *{said}*"])
        assert file.read_bytes() == made
