"""``foretrace compare``: forms of output, gates as exit codes, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.cli import main
from foretrace.model.comparison import Comparison
from schemas import validator

TRACES = Path(__file__).parents[1] / "data" / "traces"
EAGER, COMPILED = (str(TRACES / f"mlp_{name}.json.gz") for name in ("eager", "compile"))


GOLDEN = Path(__file__).parents[1] / "data" / "golden"
GOLDEN_CASES = {
    "compare_mlp": ["mlp_eager", "mlp_compile", "mlp_liger"],
    "compare_linear": ["linear_eager", "linear_compile"],
    "compare_cudagraph": ["mlp_eager", "mlp_cudagraph"],
    "compare_unrelated": ["linear_eager", "mlp_eager"],
}


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_golden_comparison(name, capsys, monkeypatch, regolden):
    monkeypatch.chdir(TRACES)
    assert main(["compare", *(f"{trace}.json.gz" for trace in GOLDEN_CASES[name])]) == 0
    out = capsys.readouterr().out
    golden = GOLDEN / f"{name}.txt"
    if regolden:
        golden.write_text(out, encoding="utf-8")
    assert out == golden.read_text(encoding="utf-8")


def test_text(capsys):
    assert main(["compare", EAGER, COMPILED]) == 0
    out, err = capsys.readouterr()
    assert "CONCLUSION  against mlp_eager" in out
    assert err == ""


def test_json_is_one_line_that_the_schema_accepts(capsys):
    assert main(["compare", EAGER, COMPILED, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert document["schema"] == "foretrace.compare/1"
    validator(Comparison).validate(document)


@pytest.mark.parametrize(
    ("name", "begins"), [("x.md", "# Comparison"), ("x.json", '{"schema"'), ("x.txt", "foretrace compare")]
)
def test_the_name_of_the_output_says_its_form(tmp_path, name, begins, capsys):
    target = tmp_path / name
    assert main(["compare", EAGER, COMPILED, "-o", str(target)]) == 0
    assert target.read_text(encoding="utf-8").startswith(begins)
    assert capsys.readouterr().out == ""


def test_markdown_on_standard_output(capsys):
    assert main(["compare", EAGER, COMPILED, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Comparison")


@pytest.mark.parametrize(
    ("gates", "code"),
    [
        (["--fail-on", "gpu_time > +3%"], 0),
        (["--fail-on", "gpu_time < -3%"], 1),
        (["--fail-on", "kernels > +0", "--fail-on", "cpu_time > +10%"], 1),
        (["--fail-on", "end_to_end > +3%"], 0),
        (["--fail-on", "end_to_end > +3%", "--strict"], 1),
    ],
)
def test_gates(gates, code, capsys):
    assert main(["compare", EAGER, COMPILED, *gates]) == code
    out, err = capsys.readouterr()
    assert "GATES" in out
    assert bool(err) == bool(code)


@pytest.mark.parametrize(("gate", "code"), [("gpu_time > +3%", 1), ("memcpys > 0", 0)])
def test_a_gate_on_a_change_between_unrelated_traces_is_exit_code_one(gate, code, capsys):
    assert main(["compare", str(TRACES / "linear_eager.json.gz"), EAGER, "--fail-on", gate]) == code
    assert ("the traces are unrelated" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([EAGER], "at least two traces"),
        ([EAGER, "no_such_file.json"], "no_such_file.json"),
        ([EAGER, COMPILED, "--fail-on", "gpu_tme > +3%"], "did you mean 'gpu_time'"),
        ([EAGER, ""], "an empty path"),
        (["-", "-"], "only once"),
        ([EAGER, COMPILED, "-o", EAGER], "is a file that is read here"),
        ([EAGER, COMPILED, "-o", ""], "--output is empty"),
        ([EAGER, COMPILED, "-o", str(TRACES)], "is a folder"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_two(arguments, said, capsys):
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1


def test_nothing_is_overwritten_without_force(tmp_path, capsys):
    target = tmp_path / "x.md"
    target.write_text("mine")
    assert main(["compare", EAGER, COMPILED, "-o", str(target)]) == 2
    assert target.read_text() == "mine"
    assert main(["compare", EAGER, COMPILED, "-o", str(target), "--force"]) == 0
    assert target.read_text(encoding="utf-8").startswith("# Comparison")
    capsys.readouterr()
