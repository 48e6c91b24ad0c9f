"""The pytest plugin with the real profiler on the CPU: marks, the fixture, kinds of tests, regressions, xdist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from foretrace import check, profile

torch = pytest.importorskip("torch", reason="recording needs the torch extra")

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "06_pytest"
HEAD = """
import pytest
import torch
foretrace = pytest.mark.foretrace
a = torch.ones(4, 4)
"""


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load what recording needs: of what a run in this process loads first, pytester leaves nothing."""
    import foretrace.analysis.baseline
    import foretrace.comparison.baseline
    import foretrace.integrations.pytest_plugin.case
    import foretrace.integrations.pytest_plugin.summary
    import foretrace.report.baseline
    import foretrace.report.check  # noqa: F401

    with profile(tmp_path_factory.mktemp("loading") / "it") as recording:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert check(recording.path, "op aten::mm: calls == 1").state == "held"


def run(project: pytest.Pytester, body: str, *flags: str) -> pytest.RunResult:
    """Run one test file; under xdist in processes of its own."""
    project.makepyfile(test_it=HEAD + body)
    apart = any(flag.startswith("-n") for flag in flags)
    return (project.runpytest_subprocess if apart else project.runpytest_inprocess)("-q", "-rs", *flags)


def words(result: pytest.RunResult) -> str:
    """The output as one line."""
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    return " ".join(result.stdout.str().split())


# ---- planted regressions ----

COPY = ("gelu(self.up(x))", "gelu(self.up(x).t().contiguous().t())")
ITEM = ("        return self", "        assert self.up.bias[0].item() < 1e9\n        return self")
EPILOGUE = ("gelu(self.up(x))", "gelu(x @ self.up.weight.t() + self.up.bias)")


@pytest.fixture
def example(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A copy of the example project with its committed baseline."""
    monkeypatch.delitem(sys.modules, "model", raising=False)  # another test of this process may have had one
    for file in (EXAMPLE / "model.py", EXAMPLE / "test_model.py", *EXAMPLE.glob("__foretrace__/*.json")):
        copy = pytester.path / file.relative_to(EXAMPLE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text())
    return pytester


def test_the_example_passes_and_a_planted_regression_names_its_operator(example: pytest.Pytester) -> None:
    example.runpytest_inprocess("-q", "--foretrace-fail-on-increase").assert_outcomes(passed=2, skipped=1)
    (baseline,) = (example.path / "__foretrace__").iterdir()
    baseline.unlink()
    missing = example.runpytest_inprocess("-q")
    missing.stdout.fnmatch_lines(["foretrace: there is no baseline __foretrace__/*.json yet: make it with pytest *"])
    made = example.runpytest_inprocess("-q", "--foretrace-update")
    made.assert_outcomes(passed=2, skipped=1)
    made.stdout.fnmatch_lines(["foretrace: 1 held, 1 skipped (no GPU), 1 baseline written"])
    flags = ("-q", "-rs", "--foretrace-fail-on-increase")
    good = example.runpytest_inprocess(*flags)
    good.assert_outcomes(passed=2, skipped=1)
    good.stdout.fnmatch_lines(
        ["*SKIPPED*foretrace: no GPU here, so not judged: kernels == 3; gemm == 2; memcpys == 0;*max_step_us <= 500"]
    )
    model = example.path / "model.py"
    text = model.read_text()
    for (old, new), by_mark, by_baseline in (
        (COPY, "aten::contiguous → aten::clone → aten::copy_", "1 call of aten::contiguous a step more"),
        (ITEM, "op aten::item: calls == 0 is 1", "1 call of aten::item a step more, with aten::_local_scalar_dense"),
        (EPILOGUE, "op aten::addmm: calls == 2 is 1", "aten::addmm was taken apart into aten::mm and aten::add"),
    ):
        assert old in text
        model.write_text(text.replace(old, new))
        planted = example.runpytest_inprocess(*flags)
        planted.assert_outcomes(failed=2, skipped=1)
        planted.stdout.fnmatch_lines([f"foretrace: 1 of 3 expectations is broken: *{by_mark}*"])
        planted.stdout.fnmatch_lines([f"foretrace: more than in the baseline *: {by_baseline}*"])
        planted.stdout.fnmatch_lines(["foretrace: 2 broken, 1 skipped (no GPU)"])


# ---- the fixture ----


def test_the_fixture_measures_functions_loops_and_blocks(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_function(profiled):
    calls = []
    rec = profiled(lambda x: calls.append(1) or x @ a, a, steps=2)
    assert torch.equal(rec.result, a @ a)
    assert len(rec.report.steps) == 2
    assert len(calls) >= 3 + 5 + 1 + 2  # warm, timed, the profiler's warm-up, recorded
    assert rec.step_us == rec.report.trace.unprofiled.median_us > 0
    rec.check("op aten::mm: calls == 1", unprofiled_us="<= 1e6")

def test_loop(profiled):
    with profiled(steps=2, timed=False) as rec:
        turns = sum(1 for _ in rec.steps() if (a + a) is not None)
    assert turns == 3 + 1 + 2
    rec.check("op aten::add: calls == 1")

def test_loop_over_a_loader(profiled):
    with profiled(steps=2) as rec:
        assert list(rec.steps([a] * 5)) == [a] * 5
    assert len(rec.trace.steps) == 2

def test_block(profiled):
    with profiled.block() as rec:
        (a + a) @ a
    rec.check("op aten::mm: calls == 1", "op aten::add: calls == 1")

def test_compare(profiled):
    one, two = profiled(lambda: a @ a), profiled(lambda: (a @ a) + a)
    changed = two.compare(one).pairs[0].operators
    assert [(c.name, c.a_calls, c.b_calls) for c in changed] == [("aten::add", 0, 1)]

@foretrace("module Linear_?: calls == 2")
def test_modules_are_recorded_where_the_mark_asks(profiled):
    profiled(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)), a)

@foretrace("op aten::mm: calls == 1")
def test_the_mark_is_about_the_fixture(profiled):
    a @ a @ a
    profiled(lambda: a @ a)
""",
    )
    result.assert_outcomes(passed=7)


def test_what_goes_wrong_with_the_fixture_is_one_sentence(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@foretrace("op aten::mm: calls == 1")
def test_not_used(profiled): pass

def test_no_loop(profiled):
    with profiled() as rec: a @ a

def test_no_function(profiled): profiled(3)

def test_no_steps(profiled): profiled(lambda: a @ a, steps=0)

def test_too_short(profiled):
    with profiled() as rec:
        for _ in rec.steps(range(1)): a @ a

def test_left_early(profiled):
    with profiled() as rec:
        for _ in rec.steps(): break

def test_two_at_once(profiled):
    with profiled.block():
        profiled(lambda: a @ a)

def test_broken_check(profiled):
    profiled(lambda: a @ a).check("op aten::mm: calls == 2")

def test_no_such_quantity(profiled):
    profiled(lambda: a @ a).check(gems=3)

def test_a_gpu_s_counts_are_skipped_at_the_end(profiled):
    profiled(lambda: a @ a).check(kernels=1, peak_memory_bytes=">= 1")

def test_asked_for_late(request):
    request.getfixturevalue("profiled")(lambda: a @ a).check(kernels=1)
""",
    )
    result.assert_outcomes(failed=9, skipped=2)
    text = words(result)
    for sentence in (
        "the test takes the fixture profiled and recorded nothing with it, so there is nothing to judge",
        "nothing was recorded: loop over rec.steps() inside `with profiled() as rec:`",
        "profiled takes a function or a module and its arguments, not 3",
        "steps is a number of steps to record, at least 1, not 0",
        "the loop over rec.steps() ended before 3 steps could be recorded",
        "a foretrace recording is already running in this process",
        "op aten::mm: calls == 2 is 1",
        "gems is no quantity; did you mean gemm?",
    ):
        assert sentence in text
    assert "src/foretrace/" not in result.stdout.str(), "no frame of ours in a user's traceback"
    result.stdout.fnmatch_lines(["foretrace: 1 broken, 1 not judged, 2 skipped (no GPU)"])


# ---- kinds of tests ----


def test_kinds_of_tests(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import unittest

mm = foretrace("op aten::mm: calls == 1")

@mm
class TestClass:
    def test_method(self): a @ a
    @foretrace("op aten::add: calls == 1")
    def test_both_marks(self): a @ a + a
    @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.xfail(strict=True))])
    def test_parametrized(self, n):
        for _ in range(n): a @ a

class TestUnit(unittest.TestCase):
    def setUp(self): a @ a @ a
    @mm
    def test_held(self): a @ a
    @mm
    def test_broken(self): a @ a @ a
    @foretrace(kernels=1)
    def test_skipped(self): a @ a

class TestAsyncUnit(unittest.IsolatedAsyncioTestCase):
    @mm
    async def test_held(self): a @ a
    @mm
    async def test_broken(self): a @ a @ a

@pytest.mark.anyio
@mm
async def test_async_held(anyio_backend): a @ a

@pytest.mark.anyio
@mm
async def test_async_broken(anyio_backend): a @ a @ a

@pytest.fixture
def anyio_backend(): return "asyncio"

@mm
def test_fails_by_itself():
    a @ a @ a
    assert False, "its own"

@mm
def test_skips_by_itself(): pytest.skip("its own reason")

@pytest.mark.xfail(strict=True)
@mm
def test_expected_to_break(): a @ a @ a

@mm
def test_has_its_own_profiler():
    with torch.profiler.profile(): a @ a

@mm
def test_after_all_that(): a @ a
""",
    )
    result.assert_outcomes(passed=7, failed=5, skipped=2, xfailed=2)
    text = words(result)
    assert "AssertionError: its own" in text
    assert "an exception ended the recording" not in text
    broken = "foretrace: 1 of 1 expectation is broken: op aten::mm: calls == 1 is 2 (2 × aten::matmul → aten::mm)"
    assert result.outlines.count(broken) == 3
    assert "another profiler was started while foretrace records" in text
    result.stdout.fnmatch_lines(["foretrace: 7 held, 3 broken, 1 skipped (no GPU)"])


def test_a_profiler_that_runs_already_is_one_sentence(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture
def profiling():
    with torch.profiler.profile() as p: yield p

@foretrace("op aten::mm: calls == 1")
def test_it(profiling): a @ a
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["foretrace: a torch profiler is already recording in this process; *"])


# ---- marks ----

BAD = {
    "(gems=3)": "gems is no quantity; did you mean gemm?",
    "(kernels='many')": "kernels: *many*",
    "('gemm = 3 or so')": "*'gemm = 3 or so'*",
    "(5)": "5 is no expectation: give a text such as 'gemm == 3', or kernels=5",
    "(kernels=1, gemm=2)": "*",
    "(max_step_us=-1)": "max_step_us is a number of µs above 0, not -1",
    "(max_step_us=250)": "'max_step_us <= 250' is about a time, and a test's body runs once and cold, *profiled",
    "('gemm_us <= 3')": "'gemm_us <= 3' is about a time, *",
    "(baseline='yes')": "baseline is True or False, not 'yes'",
    "(op='aten::mm')": "op='aten::mm' says where to look, and no keyword says at what: add one, such as calls=1",
    "('kernels == 1', region='x')": "region='x' says where to look, *a line in quotes names its own, *",
}


@pytest.mark.parametrize("arguments", BAD)
def test_a_mark_that_makes_no_sense_ends_the_run_with_a_sentence(pytester: pytest.Pytester, arguments: str) -> None:
    pytester.makepyfile(test_it=f"import pytest\n@pytest.mark.foretrace{arguments}\ndef test_it(): pass")
    result = pytester.runpytest_inprocess("-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: test_it.py::test_it: @pytest.mark.foretrace: {BAD[arguments]}"])
    assert len([row for row in result.errlines if row.strip()]) == 1


def test_a_bad_mark_of_a_test_that_is_not_chosen_is_in_nobody_s_way(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="import pytest\n@pytest.mark.foretrace(gems=3)\ndef test_bad(): pass\ndef test_good(): pass"
    )
    pytester.runpytest_inprocess("-q", "-k", "good").assert_outcomes(passed=1, deselected=1)


def test_of_two_marks_the_closer_one_holds(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
pytestmark = foretrace(calls=2, op="aten::mm")

def test_module(): a @ a @ a

@foretrace(calls=1, op="aten::mm")
def test_function(): a @ a

@foretrace(calls=1, op="aten::add")
def test_another_place(): a @ a @ a + a
""",
    )
    result.assert_outcomes(passed=3)


# ---- the run ----


@pytest.mark.slow
def test_xdist_holds_writes_and_sums_up(pytester: pytest.Pytester) -> None:
    body = """
@foretrace("op aten::mm: calls == 1", baseline=True)
@pytest.mark.parametrize("n", [1, 2, 3, 4, "../x", "A", "a", "é"])
def test_it(n): a @ (a + 1)

@foretrace("op aten::mm: calls == 1")
def test_broken(): a @ a @ a
"""
    result = run(pytester, body, "-n2", "--foretrace-update")
    result.assert_outcomes(passed=8, failed=1)
    result.stdout.fnmatch_lines(["*- foretrace -*", "foretrace: 1 broken, 8 baselines written"])
    files = sorted((pytester.path / "__foretrace__").iterdir())
    assert len(files) == len({file.name.lower() for file in files}) == 8
    assert [file.name for file in files if file.suffix != ".json"] == []
    run(pytester, body, "--foretrace-fail-on-increase").stdout.fnmatch_lines(["foretrace: 8 held, 1 broken"])
    copied = body.replace("a @ (a + 1)", "(a @ (a + 1)).t().contiguous()")
    result = run(pytester, copied, "--foretrace-report-increase")
    assert words(result).count("1 call of aten::contiguous a step more, with aten::clone, aten::copy_ inside") == 8
    result.stdout.fnmatch_lines(["foretrace: 1 broken, 8 more than the baseline (reported)"])
    run(pytester, copied, "-n2").stdout.fnmatch_lines(["foretrace: 9 broken"])


def test_a_bad_mark_under_xdist_is_said_and_is_no_internal_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.foretrace(gems=3)\ndef test_it(): pass")
    result = pytester.runpytest_subprocess("-n2")
    assert result.ret != 0
    assert "gems is no quantity; did you mean gemm?" in words(result) + result.stderr.str()


def test_traces_are_kept_where_asked_and_of_failed_tests(pytester: pytest.Pytester) -> None:
    body = """
@foretrace("op aten::mm: calls == 1")
@pytest.mark.parametrize("n", [1, 2])
def test_it(n):
    for _ in range(n): a @ a
"""
    run(pytester, body, "--basetemp=temporary").assert_outcomes(passed=1, failed=1)
    kept = sorted(path.name for path in (pytester.path / "temporary").rglob("*.trace.*"))
    assert kept == ["test_it.test_it-2.trace.json.gz", "test_it.test_it-2.trace.side.json"]
    run(pytester, body, "--foretrace-traces=kept").assert_outcomes(passed=1, failed=1)
    assert len(list((pytester.path / "kept").glob("*.trace.json.gz"))) == 2


def test_where_warnings_are_errors_ours_do_not_fail_a_test(pytester: pytest.Pytester) -> None:
    body = """
@foretrace("op aten::mm: calls == 1")
def test_held(): a @ a

@foretrace("op aten::mm: calls == 0")
def test_nothing_ran(): pass

def test_goes_elsewhere(profiled, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert profiled(lambda: a @ a).path.is_absolute()
"""
    result = run(pytester, body, "-Werror", "--foretrace-traces=kept")
    result.assert_outcomes(passed=2, failed=1)
    assert len(list((pytester.path / "kept").glob("test_it.test_goes_elsewhere.trace.json.gz"))) == 1
    assert "foretrace: no operator ran in the test, so there is nothing to judge" in words(result)


def test_an_update_keeps_the_baseline_of_a_test_that_fails(pytester: pytest.Pytester) -> None:
    body = """
@foretrace("op aten::mm: calls == 1", baseline=True)
def test_broken(): a @ a @ a

@foretrace(baseline=True)
def test_fails(): assert a @ a is None

@foretrace(baseline=False)
def test_without(): a @ a

def test_fixture(profiled): profiled(lambda: a @ a)
"""
    result = run(pytester, body, "--foretrace-update", "--foretrace-baseline")
    result.assert_outcomes(passed=2, failed=2)
    assert [file.name for file in (pytester.path / "__foretrace__").iterdir()] == ["test_it.test_fixture.json"]


def test_a_damaged_baseline_fails_its_test_with_a_sentence(pytester: pytest.Pytester) -> None:
    pytester.mkdir("__foretrace__").joinpath("test_it.test_it.json").write_text("<<<<<<< HEAD")
    result = run(pytester, "@foretrace(baseline=True)\ndef test_it(): a @ a")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["foretrace: the baseline *test_it.test_it.json is no JSON (*); make it anew with *"])


def test_without_the_plugin_nothing_of_it_is_left(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it():\n    assert not [m for m in sys.modules if m.startswith('foretrace')]"
    )
    pytester.runpytest_subprocess("-q", "-p", "no:foretrace", "--strict-markers").assert_outcomes(passed=1)


def test_a_run_without_a_mark_pays_for_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import sys
def test_it():
    heavy = [m for m in sys.modules if m.partition(".")[0] in ("torch", "numpy", "polars", "msgspec")]
    ours = {m.split(".")[1] for m in sys.modules if m.startswith("foretrace.")}
    assert not heavy
    assert ours <= {"errors", "integrations", "version"}
"""
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=1)
    assert "foretrace" not in result.stdout.str()


def test_the_plugin_is_imported_in_a_blink() -> None:
    code = (
        "import sys, time, unittest, pytest; start = time.process_time()\n"
        "import foretrace.integrations.pytest_plugin, foretrace.integrations.pytest_plugin.hookspecs\n"
        "print(time.process_time() - start)"
    )
    taken = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    assert min(taken) < 0.03


def test_the_help_and_the_markers_name_the_plugin(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--markers")
    assert re.search(r"@pytest\.mark\.foretrace\(\*lines, kernels=", result.stdout.str())
    shown = pytester.runpytest_inprocess("--help").stdout.str()
    assert all(f"--foretrace-{flag}" in shown for flag in ("baseline", "update", "fail-on-increase", "traces"))


# ---- what must not pass in silence ----


def test_nothing_that_was_not_judged_counts_as_held(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
@pytest.fixture
def late(request): request.node.add_marker(foretrace("op aten::mm: calls == 7"))
@pytest.fixture
def late_and_wrong(request): request.node.add_marker(foretrace(gems=3))

def test_a_fixture_adds_the_mark(late): a @ a
def test_a_fixture_adds_a_bad_mark(late_and_wrong): a @ a
def test_the_body_adds_it(request):
    request.node.add_marker(foretrace("op aten::mm: calls == 7"))
    a @ a
def test_the_body_adds_it_and_measures(request, profiled):
    request.node.add_marker(foretrace("op aten::mm: calls == 7"))
    profiled(lambda: a @ a)
@foretrace("op aten::itme: calls == 0")
def test_no_such_operator(): a @ a
@foretrace("op item: calls == 0")
def test_no_namespace(): a @ a
@foretrace("module Linear_9: calls == 0")
def test_no_modules_recorded(): a @ a
@foretrace("op aten::item: calls == 0", "op mine::op: calls == 0", "op aten::conv*: calls == 0")
def test_what_torch_could_call(): a @ a
""",
    )
    result.assert_outcomes(passed=1, failed=7)
    text = words(result)
    for sentence in (
        "op aten::mm: calls == 7 is 1",
        "@pytest.mark.foretrace: gems is no quantity; did you mean gemm?",
        "foretrace: the mark came while the test ran, too late to record it: add it before",
        "no operator of torch is called aten::itme, so 'op aten::itme: calls == 0' would hold whatever runs; "
        "did you mean aten::item?",
        "op item: calls == 0: no operator is called item",
    ):
        assert sentence in text
    result.stdout.fnmatch_lines(["foretrace: 1 held, 2 broken, 4 not judged"])


def test_an_update_that_writes_nothing_says_so(pytester: pytest.Pytester) -> None:
    result = run(pytester, '@foretrace("op aten::mm: calls == 1")\ndef test_it(): a @ a', "--foretrace-update")
    result.stdout.fnmatch_lines(["foretrace: no baseline was written: no test that ran to its end has baseline=True *"])


def test_a_baseline_tells_the_place_of_what_came_and_an_exchange_as_one(pytester: pytest.Pytester) -> None:
    body = """
class Net(torch.nn.Module):
    def forward(self, x): return HERE

@foretrace(baseline=True)
def test_it(profiled): profiled(Net(), a, timed=False, stacks=STACKS)
"""

    def planted(code: str, *flags: str, stacks: bool = False) -> pytest.RunResult:
        return run(pytester, body.replace("HERE", code).replace("STACKS", str(stacks)), *flags)

    plain = "torch.nn.functional.silu(x @ x) + x"
    planted(plain, "--foretrace-update").assert_outcomes(passed=1)
    copied = plain.replace("(x @ x)", "((x @ x).t().contiguous())")
    beside = planted(copied)
    beside.assert_outcomes(failed=1)
    assert "aten::clone, aten::copy_ inside (after aten::t, before aten::silu); accept it" in words(beside)
    assert "are recorded with profiled(…, stacks=True)" in words(beside)
    stacked = words(planted(copied, stacks=True))
    assert "in forward, in module Net_0); accept it with --foretrace-update" in stacked
    assert "are recorded with profiled" not in stacked
    exchanged = planted(plain.replace("silu", "gelu"))
    exchanged.assert_outcomes(passed=1)
    exchanged.stdout.fnmatch_lines(
        ["foretrace: test_it.py::test_it: not as in the baseline, and no increase: aten::silu is now aten::gelu (*)"]
    )
