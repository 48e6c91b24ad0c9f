"""``foretrace explain --html``: the page is written beside what is printed, or nothing is and one sentence says why."""

import contextlib
import json
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace.cli import main


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    build = TraceBuilder()
    build.step(0, 0, 900)
    build.op("aten::mm", 10, 30, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
    build.kernel("sgemm_128x64_nn", 50, 120, launch=build.launch(20))
    return build.write(tmp_path / "one.json.gz")


def explain(*words: object) -> int:
    return main(["explain", *map(str, words)])


def test_the_page_is_written_and_the_screen_still_printed(trace, tmp_path, capfd):
    target = tmp_path / "report.html"
    assert explain(trace, "--html", target) == 0
    out, err = capfd.readouterr()
    assert out.startswith("foretrace  one.json.gz\n")
    assert err == f"foretrace: wrote {target}\n"
    assert target.read_bytes().startswith(b"<!doctype html>")


def test_json_stays_alone_on_standard_output(trace, tmp_path, capfd):
    assert explain(trace, "--json", "--html", tmp_path / "report.html") == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "foretrace.report/1"


def test_a_file_that_exists_is_kept_and_replaced_only_with_force(trace, tmp_path, capfd):
    target = tmp_path / "report.html"
    target.write_text("mine")
    assert explain(trace, "--html", target) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "report.html" in err
    assert "--force" in err
    assert target.read_text() == "mine"
    assert explain(trace, "--html", target, "--force") == 0
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("content", [b"", b"no trace", b'{"traceEvents": 7}'], ids=["empty", "text", "number"])
def test_nothing_is_written_of_a_trace_that_cannot_be_read(content, tmp_path, capfd):
    bad = tmp_path / "bad.json"
    bad.write_bytes(content)
    target = tmp_path / "report.html"
    target.write_text("mine")
    assert explain(bad, "--html", target, "--force") == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert target.read_text() == "mine"


def test_the_trace_itself_is_never_replaced(trace, capfd):
    before = trace.read_bytes()
    assert explain(trace, "--html", trace, "--force") == 2
    assert "never replaces it" in capfd.readouterr().err
    assert trace.read_bytes() == before


def test_page_and_output_are_two_files(trace, tmp_path, capfd):
    target = tmp_path / "report.html"
    assert explain(trace, "--html", target, "-o", target) == 2
    assert "each a file of its own" in capfd.readouterr().err
    assert not target.exists()


def test_a_page_is_of_one_trace(trace, tmp_path, capfd):
    target = tmp_path / "report.html"
    assert explain(trace, trace, "--html", target) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "one trace" in err
    assert not target.exists()


@pytest.mark.parametrize(("name", "said"), [("", "empty"), ("-", "give it a name"), ("nowhere/report.html", "folder")])
def test_a_name_that_is_no_file_is_refused(name, said, trace, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert explain(trace, "--html", name) == 2
    err = capfd.readouterr().err
    assert err.startswith("foretrace: ")
    assert said in err
    assert "--html" in err or said == "folder"


def test_a_broken_expectation_is_in_the_page_and_in_the_exit_code(trace, tmp_path):
    target = tmp_path / "report.html"
    assert explain(trace, "--html", target, "--expect", "kernels == 7") == 1
    assert "1 expectation: 1 broken" in target.read_text()


def test_the_page_of_one_step_holds_that_step(tmp_path):
    build = TraceBuilder()
    for number in range(2):
        build.step(number, number * 1000.0, 900)
        build.op(f"aten::op{number}", number * 1000.0 + 10, 30)
        build.kernel(f"kernel_of_{number}", number * 1000.0 + 50, 120, launch=build.launch(number * 1000.0 + 20))
    trace = build.write(tmp_path / "two.json")
    target = tmp_path / "report.html"
    assert explain(trace, "--html", target, "--step", "1") == 0
    assert "kernel_of_1" in target.read_text()
    assert "kernel_of_0" not in target.read_text()


def test_two_spellings_of_one_file_are_one_file(trace, tmp_path, capfd):
    folder = tmp_path / "o"
    folder.mkdir()
    other = folder / ".." / "o" / "report.html"
    assert explain(trace, "--html", other, "-o", folder / "report.html") == 2
    assert "give each a file of its own" in capfd.readouterr().err
    assert list(folder.iterdir()) == []


def test_a_packed_page_is_refused_for_no_browser_opens_it(trace, tmp_path, capfd):
    assert explain(trace, "--html", tmp_path / "report.html.gz") == 2
    captured = capfd.readouterr()
    assert "ends in .html" in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert list(tmp_path.glob("report*")) == []


def test_what_is_printed_does_not_wait_for_the_page(trace, tmp_path, capfd, monkeypatch):
    def defective(*_):
        raise ValueError("the page")

    monkeypatch.setattr("foretrace.cli.explain.page_of", defective)
    with contextlib.suppress(ValueError):
        explain(trace, "--html", tmp_path / "report.html")
    assert capfd.readouterr().out.startswith("foretrace")


def test_a_trace_with_an_event_of_another_age_has_its_page(tmp_path, capfd):
    build = TraceBuilder(base_us=1.7e15)
    build.op("aten::add", start=0, duration=3)
    build.kernel("add", start=10, duration=20, launch=build.launch(1))
    build.kernel("stray", start=5 - 1.7e15, duration=3)
    source, target = build.write(tmp_path / "trace.json"), tmp_path / "report.html"
    assert explain(source, "--html", target) == 0
    assert "Not drawn: 1 row: so far in time" in target.read_text()
    assert capfd.readouterr().out.startswith("foretrace")
