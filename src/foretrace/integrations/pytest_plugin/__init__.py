"""The pytest plugin: what a test runs is recorded and held against what it says, or against its committed baseline.

``@pytest.mark.foretrace(kernels=5, gemm=3)`` and the fixture ``profiled``; how to use them is in
``docs/how-to/pytest.md``. This file holds pytest's hooks alone and imports nothing heavy: a run in which no test has
the mark or the fixture pays for nothing else.
"""

from __future__ import annotations

import functools
import inspect
import unittest
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from foretrace.integrations.pytest_plugin.case import Case
    from foretrace.integrations.pytest_plugin.measuring import Profiled

__all__ = ["Profiled", "profiled"]

_CASE: pytest.StashKey[Case] = pytest.StashKey()
_REFUSED: pytest.StashKey[str] = pytest.StashKey()
_MARK = "foretrace"
_HELP = (
    "foretrace(*lines, kernels=…, gemm=…, memcpys=…, max_step_us=…, baseline=True, …): what the test runs is recorded "
    "and held against these expectations (docs/how-to/pytest.md of foretrace)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("foretrace", "what tests run, held against expectations and baselines (foretrace)")
    group.addoption(
        "--foretrace-baseline",
        action="store_true",
        help="hold every test that has the mark foretrace or uses the fixture profiled against its baseline "
        "in __foretrace__/ beside the test's file",
    )
    group.addoption(
        "--foretrace-update",
        action="store_true",
        help="write the baselines anew from what the tests run now (for tests with baseline=True, or all with "
        "--foretrace-baseline); read the difference before you commit it",
    )
    group.addoption(
        "--foretrace-fail-on-increase",
        action="store_true",
        help="fail also the tests that only --foretrace-baseline holds to a baseline when they run more kernels, "
        "launches, copies, waits or operators than it (tests with baseline=True fail without this)",
    )
    group.addoption(
        "--foretrace-report-increase",
        action="store_true",
        help="only report at the end of the run that a test with baseline=True runs more than its baseline; also as "
        "foretrace_report_increase = true in pytest's settings",
    )
    parser.addini(
        "foretrace_report_increase",
        "report what a test runs more than its baseline, and do not fail it (foretrace)",
        type="bool",
        default=False,
    )
    group.addoption(
        "--foretrace-traces",
        metavar="DIR",
        help="keep every trace in DIR (without this those of failed tests are kept among pytest's temporary files)",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Announce the hook by which another profiler is put in the place of torch's."""
    from foretrace.integrations.pytest_plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known; refuse flags that contradict each other."""
    config.addinivalue_line("markers", _HELP)
    if config.getoption("--foretrace-fail-on-increase") and config.getoption("--foretrace-report-increase"):
        raise pytest.UsageError(
            "--foretrace-fail-on-increase and --foretrace-report-increase contradict each other: give one of them"
        )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Read the marks of the chosen tests; one that makes no sense ends the run with a sentence."""
    for item in items:
        if item.get_closest_marker(_MARK) is None:
            continue
        from foretrace.integrations.pytest_plugin.case import Case

        try:
            item.stash[_CASE] = Case(item)
        except pytest.UsageError as error:
            if not hasattr(item.config, "workerinput"):
                raise
            item.stash[_REFUSED] = str(error)  # a worker of xdist has no way to end the run with a sentence


def _case_of(item: pytest.Item) -> Case:
    """The case of a test, made for one that has the fixture and no mark."""
    if _CASE not in item.stash:
        from foretrace.integrations.pytest_plugin.case import Case

        item.stash[_CASE] = Case(item)
    return item.stash[_CASE]


def _case_now(item: pytest.Item) -> Case | None:
    """The case of a test by the marks it has by now: a fixture may add one, which is not there when it is collected."""
    __tracebackhide__ = True
    if item.get_closest_marker(_MARK) is None:
        return item.stash.get(_CASE, None)
    try:
        case = _case_of(item)
        case.reread()
    except pytest.UsageError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    return case


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin with nothing recorded: a plugin may run a test again."""
    refused = item.stash.get(_REFUSED, None)
    if refused is not None:
        pytest.fail(refused, pytrace=False)
    case = item.stash.get(_CASE, None)
    if case is not None:
        case.begin()


def __getattr__(name: str) -> Any:
    if name != "Profiled":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from foretrace.integrations.pytest_plugin.measuring import Profiled

    return Profiled


@pytest.fixture
def profiled(request: pytest.FixtureRequest) -> Profiled:
    """Record steps of a program: ``rec = profiled(model, x, steps=3)``, or ``with profiled() as rec`` and a loop."""
    from foretrace.integrations.pytest_plugin.measuring import Profiled

    return Profiled(_case_of(request.node))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Record the body of a test function, and judge what was recorded when it is over."""
    case = _case_now(pyfuncitem)
    if case is not None:
        with case.body():
            return (yield)
    result = yield
    case = _case_now(pyfuncitem)
    if case is not None:  # the fixture was asked for in the body, or the mark added there
        case.conclude()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Do the same with a method of a ``unittest.TestCase``, which ``pytest_pyfunc_call`` never sees."""
    cls = getattr(item, "cls", None)
    if not isinstance(item, pytest.Function) or not (cls and issubclass(cls, unittest.TestCase)):
        return (yield)
    case = _case_now(item)
    if case is None:
        return (yield)
    method = item.obj
    item.obj = body = _recorded(case, method)
    # pytest puts a plain method there itself, a coroutine not.
    vars(item.instance)[item.name] = body
    try:
        return (yield)
    finally:
        item.obj = method
        vars(item.instance).pop(item.name, None)


def _recorded(case: Case, method: Any) -> Any:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def body(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with case.body():
                return await method(*args, **kwargs)

    else:

        @functools.wraps(method)
        def body(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            with case.body():
                return method(*args, **kwargs)

    return body


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what was found into the test's report, where xdist carries it along."""
    report = yield
    case = item.stash.get(_CASE, None)
    if case is not None:
        case.tell(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end how it went."""
    told = [
        found
        for category, reports in terminalreporter.stats.items()
        if category != "rerun"
        for report in reports
        if (found := getattr(report, "foretrace", None)) is not None
    ]
    if told:
        from foretrace.integrations.pytest_plugin.summary import summary_lines

        for row in summary_lines(told):
            terminalreporter.write_line(row)
    if terminalreporter.config.getoption("--foretrace-update") and not any(one["guarded"] for one in told):
        terminalreporter.write_line(
            "foretrace: no baseline was written: no test that ran to its end has baseline=True (--foretrace-baseline "
            "makes them for all with the mark or the fixture)"
        )
