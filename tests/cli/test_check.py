"""``foretrace check``, and ``--expect`` and ``--guess`` on ``explain`` and ``run``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from foretrace.cli import main

TRACES = Path(__file__).parents[1] / "data" / "traces"
GOLDEN = Path(__file__).parents[1] / "data" / "golden"
EAGER = str(TRACES / "mlp_eager.json.gz")
STORY = ["--expect", "kernels == 5", "--expect", "gemm == 3", "--expect", "elementwise == 2"]
QUERIES = ["--expect", "occupancy_query_before == gemm"]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "e.toml").write_text("kernels = 5\ngemm = 3\n", encoding="utf-8")
    return str(tmp_path / "e.toml")


GOLDEN_CASES = {
    "check_mlp_eager": ("mlp_eager", ["memsets == 0", "occupancy_query_before == gemm", "launches == 5", "fused == 1"]),
    "check_mlp_compile": (
        "mlp_compile",
        ["kernels == 5", "elementwise == 2", "metadata_only >= 1", "graph_breaks == 0"],
    ),
    "check_mlp_cudagraph": ("mlp_cudagraph", ["launches == 5", "op aten::mm: gemm == 3", "flops > 0", "kernels == 4"]),
    "check_mlp_train_eager": ("mlp_train_eager", ["kernels == 5", "gemm == 3", "memcpys == 0", "wall_us <= 300"]),
}


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_golden(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, regolden: bool):
    trace, expectations = GOLDEN_CASES[name]
    monkeypatch.chdir(TRACES)
    flags = [word for text in expectations for word in ("--expect", text)]
    code, out, _ = said(capsys, "check", f"{trace}.json.gz", *flags)
    golden = GOLDEN / f"{name}.txt"
    if regolden:
        golden.write_text(out, encoding="utf-8")
    assert (code, out) == (1, golden.read_text(encoding="utf-8"))


def test_the_exit_code_says_how_it_went(capsys: pytest.CaptureFixture[str], file: str):
    assert said(capsys, "check", EAGER, file)[0] == 0
    assert said(capsys, "check", EAGER, file, *QUERIES)[0] == 1
    assert said(capsys, "check", EAGER, "--expect", "graph_breaks == 0")[0] == 0
    assert said(capsys, "check", EAGER, "--expect", "graph_breaks == 0", "--strict")[0] == 1


def test_files_and_lines_are_one_expectation(capsys: pytest.CaptureFixture[str], file: str):
    code, out, _ = said(capsys, "check", EAGER, file, "--expect", file, *QUERIES)
    assert out.endswith("3 expectations: 2 held and 1 broken\n")
    code, _, err = said(capsys, "check", EAGER, file, "--expect", "gemm == 4")
    assert (code, "gemm cannot be both" in err) == (2, True)


def test_json_is_the_document_and_nothing_else(capsys: pytest.CaptureFixture[str], file: str):
    code, out, err = said(capsys, "check", EAGER, file, *QUERIES, "--json")
    document = json.loads(out)
    assert (code, err, document["schema"], document["state"]) == (1, "", "foretrace.check/1", "broken")
    assert [one["state"] for one in document["outcomes"]] == ["held", "held", "broken"]


def test_a_report_is_checked_as_far_as_it_goes(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    report = tmp_path / "report.json"
    report.write_text(said(capsys, "explain", EAGER, "--json")[1], encoding="utf-8")
    code, out, _ = said(capsys, "check", str(report), "--expect", "gemm == 3", "--expect", "recompiles == 0")
    assert code == 0
    assert "2 expectations: 1 held and 1 unknown" in out
    assert "check the trace itself" in out


def test_a_misspelt_region_fails(capsys: pytest.CaptureFixture[str]):
    code, out, _ = said(capsys, "check", EAGER, "--expect", "mlp_fw: gpu_busy_us <= 250")
    assert (code, "no region is called mlp_fw in the trace; it has mlp_fwd" in out) == (1, True)


def test_that_a_region_is_nowhere_is_said_beside_its_verdict(capsys: pytest.CaptureFixture[str]):
    code, out, _ = said(capsys, "check", EAGER, "--expect", "mlp_fw: calls == 0")
    assert code == 0
    assert "note: no region is called mlp_fw in the trace; it has mlp_fwd" in out


def test_standard_input_may_be_either(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("gemm = 3\n"))
    assert said(capsys, "check", EAGER, "-")[0] == 0
    assert "only once" in said(capsys, "check", "-", "-")[2]


def test_an_existing_file_is_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path, file: str):
    target = tmp_path / "out.txt"
    assert said(capsys, "check", EAGER, file, "-o", str(target))[:2] == (0, "")
    assert "2 expectations: 2 held" in target.read_text(encoding="utf-8")
    code, _, err = said(capsys, "check", EAGER, file, "-o", str(target))
    assert (code, "--force" in err) == (2, True)
    assert said(capsys, "check", EAGER, file, "-o", str(target), "--force", "--json")[0] == 0
    assert json.loads(target.read_text(encoding="utf-8"))["held"] == 2
    code, _, err = said(capsys, "check", EAGER, file, "-o", file, "--force")
    assert (code, "never replaces" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([EAGER], "nothing is expected"),
        ([EAGER, "none.toml"], "none.toml does not exist"),
        (["none.json", "--expect", "gemm == 3"], "none.json: no such file"),
        ([EAGER, "--expect", "gemmm == 3"], "did you mean gemm"),
        (
            [EAGER, "--expect", "step #9: gemm == 3"],
            "the step of an expectation is a position or a label, of: 0 (ProfilerStep#2)",
        ),
        ([EAGER, "--expect", "same_kernels_as == none.json"], "same_kernels_as: none.json"),
        ([EAGER, "--expect", "gemm == 3", "-o", ""], "--output is empty"),
        (["", "--expect", "gemm == 3"], "an empty path"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], sentence: str):
    code, out, err = said(capsys, "check", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_a_mistake_in_the_file_is_told_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "e.toml").write_text("kernels = 2\n\ngemm = 3\n", encoding="utf-8")
    _, _, err = said(capsys, "check", EAGER, str(tmp_path / "e.toml"))
    assert err == f"foretrace: {tmp_path / 'e.toml'}:3: 3 gemm cannot be among 2 kernels\n"


# ---- explain ----


def test_explain_adds_the_check_below_the_report(capsys: pytest.CaptureFixture[str]):
    code, out, _ = said(capsys, "explain", EAGER, "--section", "steps", *STORY, *QUERIES)
    assert code == 1
    assert out.index("STEPS") < out.index("BROKEN   an occupancy query before each gemm")
    assert out.endswith("4 expectations: 3 held and 1 broken\n")


def test_explain_checks_the_steps_it_shows(capsys: pytest.CaptureFixture[str]):
    slow = ["--expect", "wall_us <= 400"]
    assert said(capsys, "explain", EAGER, "--step", "#3", *slow)[0] == 0
    assert said(capsys, "explain", EAGER, *slow)[0] == 1


def test_explain_writes_the_check_as_a_line_of_its_own(capsys: pytest.CaptureFixture[str]):
    code, out, _ = said(capsys, "explain", EAGER, "--json", *STORY)
    report, checked = map(json.loads, out.splitlines())
    assert (code, report["schema"], checked["schema"]) == (0, "foretrace.report/1", "foretrace.check/1")


# ---- run ----


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_run_refuses_a_wrong_expectation_before_it_records(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    code, _, err = said(capsys, "run", "linear", "-o", str(tmp_path / "t.json"), "--expect", "gemmm == 3")
    assert (code, "did you mean gemm" in err, list(tmp_path.iterdir())) == (2, True, [])


def test_guessing_needs_a_person(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretrace.capture.runner.pick_device", lambda _: "cuda")
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n"))
    assert "--expect 'kernels == 5'" in said(capsys, "run", "linear", "--guess")[2]
    monkeypatch.setattr(sys, "stdin", _Terminal("5\n"))
    assert "does not go with --json" in said(capsys, "run", "linear", "--guess", "--json")[2]


def test_guessing_is_refused_before_it_asks_where_no_gpu_would_be_recorded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch", reason="the device is asked of torch")
    monkeypatch.setattr(sys, "stdin", _Terminal("5\n"))
    code, out, err = said(capsys, "run", "linear", "--guess", "--device", "cpu")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "a recording on this CPU holds none" in err
    assert "foretrace predict linear --gpu H200 --expectation FILE" in err


def test_run_checks_what_it_recorded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch", reason="recording needs the torch extra")
    monkeypatch.setattr(sys, "stdin", _Terminal("5\n3\n" + "\n" * 20))
    devices = iter(["cuda", "cpu", "cpu", "cpu"])  # asked as on a GPU, recorded here
    monkeypatch.setattr("foretrace.capture.runner.pick_device", lambda _: next(devices))
    words = ["run", "linear", "--batch", "4", "--device", "cpu", "--active", "1", "--no-explain", "-o"]
    held = ["--expect", "op aten::linear: calls == 1"]
    code, out, err = said(capsys, *words, str(tmp_path / "a.json"), *held, "--guess")
    assert code == 0, err
    assert err.index("How many kernels does one step launch?") < err.index("recording linear")
    assert out.index("1 expectation: 1 held") < out.index("Your guesses: none can be told from this trace")
    broken = ["--expect", "op aten::linear: calls == 2"]
    assert said(capsys, *words, str(tmp_path / "b.json"), *broken)[0] == 1
    code, out, _ = said(capsys, *words, str(tmp_path / "c.json"), *broken, "--json")
    assert (code, json.loads(out)["recordings"][0]["check"]["state"]) == (1, "broken")
