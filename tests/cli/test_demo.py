"""``foretrace demo``: what a newcomer sees first."""

from pathlib import Path

import pytest

import foretrace
from foretrace.cli import main
from foretrace.cli.demo import AFTER, BEFORE, SAMPLE
from foretrace.errors import MissingExtraError


def test_the_bundled_trace_is_whole_and_has_its_unprofiled_timing():
    report = foretrace.explain(SAMPLE)
    assert [s.kernels for s in report.steps] == [5, 5, 5]
    assert report.trace.unprofiled is not None
    assert report.verdict.bound == "compute"
    assert not [h for h in report.health if h.state != "ok"]


def test_without_torch_the_demo_explains_the_bundled_trace_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(name: str, **options: object) -> list[Path]:
        raise MissingExtraError("recording needs torch: pip install 'foretrace[torch]'")

    monkeypatch.setattr("foretrace.cli.run.record_workload", refuse)
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "Not recorded: recording needs torch" in shown
    assert "VERDICT  compute-bound" in shown


def test_the_demo_guesses_and_predicts_before_it_explains_and_compares(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("foretrace.cli.run.record_workload", lambda name, output=None: [])
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    told = ("BROKEN", "predicted  5 kernels", "VERDICT", "GPU time: 1.41× faster")
    guess, prediction, explained, proven = (shown.index(text) for text in told)
    assert guess < prediction < explained < proven
    assert "5 expectations: 4 held and 1 broken" in shown


def test_the_demo_ends_with_the_path_of_what_it_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    written = tmp_path / "mlp.trace.json.gz"
    written.write_bytes(SAMPLE.read_bytes())
    monkeypatch.setattr("foretrace.cli.run.record_workload", lambda name, output=None: [written])
    assert main(["demo"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(f"Written: {written}")


def test_the_readme_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert main(["explain", str(SAMPLE)]) == 0
    assert capsys.readouterr().out.rstrip() in readme


def test_the_readme_shows_what_the_check_prints(capsys: pytest.CaptureFixture[str]):
    root = Path(__file__).parents[2]
    assert main(["check", str(SAMPLE), str(root / "examples" / "expectations.toml")]) == 1
    assert capsys.readouterr().out.rstrip() in (root / "README.md").read_text()


def test_the_readme_shows_how_the_comparison_ends(capsys: pytest.CaptureFixture[str]):
    assert main(["compare", str(BEFORE), str(AFTER)]) == 0
    shown = capsys.readouterr().out
    conclusion = shown[shown.index("CONCLUSION") :].rstrip()
    assert conclusion in (Path(__file__).parents[2] / "README.md").read_text()
