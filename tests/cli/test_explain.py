"""``foretrace explain``: what it writes where, which steps it takes, and one sentence for what goes wrong."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace.cli import main
from foretrace.cli.explain import show
from foretrace.errors import TraceReadError
from foretrace.model.report import Report
from schemas import validator


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three steps, each a matrix product of one kernel."""
    build = TraceBuilder()
    for number in range(3):
        at = number * 1000.0
        build.step(number + 2, at, 900.0)
        build.op("aten::mm", at + 10, 30, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
        build.kernel("sgemm_128x64_nn", at + 50, 120 + number, launch=build.launch(at + 20))
    return build.write(tmp_path / "three.json.gz")


def explain(*words: object) -> int:
    return main(["explain", *map(str, words)])


def test_one_screen_on_standard_output_and_nothing_on_standard_error(trace, capfd):
    assert explain(trace) == 0
    out, err = capfd.readouterr()
    assert out.startswith("foretrace  three.json.gz\n")
    assert "\x1b" not in out
    assert "3 steps" in out
    assert err == ""


def test_json_is_the_schema_and_nothing_else(trace, capfd):
    assert explain(trace, "--json") == 0
    document = json.loads(capfd.readouterr().out)
    validator(Report).validate(document)
    assert [step["label"] for step in document["steps"]] == [
        "ProfilerStep#2",
        "ProfilerStep#3",
        "ProfilerStep#4",
    ]


def test_several_traces_are_json_lines(trace, capfd):
    assert explain(trace, trace, "--json") == 0
    documents = [json.loads(row) for row in capfd.readouterr().out.splitlines()]
    assert len(documents) == 2
    assert documents[0] == documents[1]


def test_of_several_traces_one_that_cannot_be_read_does_not_stop_the_others(trace, tmp_path, capfd):
    assert explain(tmp_path / "absent.json", trace) == 2
    out, err = capfd.readouterr()
    assert "three.json.gz" in out
    assert err.count("\n") == 1
    assert "absent.json" in err


def test_standard_input(trace, capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(trace.read_bytes())))
    assert explain("-") == 0
    assert capfd.readouterr().out.startswith("foretrace  standard input\n")


def test_standard_input_twice_is_refused(capfd):
    assert explain("-", "-") == 2
    assert "only once" in capfd.readouterr().err


@pytest.mark.parametrize("step", ["1", "#3", "ProfilerStep#3"])
def test_a_step_by_position_or_label(trace, capfd, step):
    assert explain(trace, "--json", "--step", step) == 0
    document = json.loads(capfd.readouterr().out)
    assert [s["label"] for s in document["steps"]] == ["ProfilerStep#3"]
    assert [k["duration_us"] for k in document["kernels"]] == [121.0]


def test_a_step_that_does_not_exist_lists_the_choices(trace, capfd):
    assert explain(trace, "--step", "#9") == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        "foretrace: there is no step '#9'; --step takes a position or a label, of: "
        "0 (ProfilerStep#2), 1 (ProfilerStep#3), 2 (ProfilerStep#4)\n"
    )


def test_all_sections_and_top(trace, capfd):
    assert explain(trace, "--all") == 0
    assert "DISPATCH CHAIN" in capfd.readouterr().out
    assert explain(trace, "--section", "chain", "--top", "1") == 0
    out = capfd.readouterr().out
    assert "DISPATCH CHAIN" in out
    assert "STEPS" not in out
    assert "more line" in out


@pytest.mark.parametrize("words", [["--top", "0"], ["--top", "x"], ["--section", "nonsense"], []])
def test_bad_flags_exit_with_2(trace, words, capfd):
    with pytest.raises(SystemExit) as stop:
        main(["explain", *([str(trace)] if words else []), *words])
    assert stop.value.code == 2
    assert "Traceback" not in capfd.readouterr().err


def test_output_goes_to_the_file_only_and_is_never_overwritten(trace, tmp_path, capfd):
    target = tmp_path / "report.txt"
    assert explain(trace, "-o", target) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"foretrace: wrote {target}\n"
    before = target.read_bytes()
    assert before.startswith(b"foretrace  three.json.gz\n")

    assert explain(trace, "--json", "-o", target) == 2
    assert "--force" in capfd.readouterr().err
    assert target.read_bytes() == before

    assert explain(trace, "--json", "-o", target, "--force") == 0
    assert json.loads(target.read_bytes())["schema"] == "foretrace.report/1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.txt", "three.json.gz"]


def test_output_never_replaces_the_trace_itself(trace, capfd):
    before = trace.read_bytes()
    assert explain(trace, "-o", trace, "--force") == 2
    assert "is a file that is read here" in capfd.readouterr().err
    assert trace.read_bytes() == before


@pytest.mark.parametrize("target", ["", "absent/report.txt"])
def test_an_output_that_cannot_be_written_is_one_sentence(trace, tmp_path, target, capfd):
    assert explain(trace, "-o", tmp_path / target) == 2
    err = capfd.readouterr().err
    assert err.startswith("foretrace: ")
    assert err.count("\n") == 1


def test_a_directory_is_one_sentence(tmp_path, capfd):
    assert explain(tmp_path) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "is a directory" in err
    assert err.count("\n") == 1


def test_show_prints_the_same_screen(trace, capfd):
    assert explain(trace) == 0
    screen = capfd.readouterr().out
    assert show(trace) == 0
    assert capfd.readouterr().out == screen
    assert show(trace, brief=True) == 0
    assert "More:" not in capfd.readouterr().out
    assert show(trace, json=True) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "foretrace.report/1"
    with pytest.raises(TraceReadError):
        show(trace.parent)


def test_a_stream_without_bytes_gets_text(trace):
    with contextlib.redirect_stdout(io.StringIO()) as caught:
        assert explain(trace) == 0
    assert caught.getvalue().startswith("foretrace  three.json.gz\n")


def test_explaining_imports_neither_torch_nor_polars_nor_rich(trace):
    code = (
        "import sys; from foretrace.cli import main; code = main(['explain', sys.argv[1]]); "
        "print(code, [m for m in ('torch', 'polars', 'rich', 'triton') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(trace)], capture_output=True, text=True, check=False)
    assert done.stderr == "0 []\n"


def test_help_loads_neither_numpy_nor_msgspec():
    code = (
        "import sys\nfrom foretrace.cli import main\n"
        "try: main(['explain', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'msgspec') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"
    assert "--section" in done.stdout


def test_a_path_that_is_too_long_for_the_system_is_one_sentence(trace, capfd):
    for words in (["a" * 300], [trace, "-o", "a" * 300]):
        assert explain(*words) == 2
        err = capfd.readouterr().err
        assert err == f"foretrace: {'a' * 300}{err[311:]}"
        assert "name too long" in err
        assert err.count("\n") == 1


def test_an_empty_path_is_said_to_be_empty(trace, capfd):
    assert explain("") == 2
    assert "an empty path was given" in capfd.readouterr().err
    assert explain(trace, "-o", "") == 2
    assert "--output is empty" in capfd.readouterr().err
