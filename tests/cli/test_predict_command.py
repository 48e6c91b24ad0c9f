"""``foretrace predict``: one sentence for what goes wrong, and what it writes where."""

import json
from pathlib import Path

import pytest

from foretrace.cli import main
from foretrace.cli.subject import Subject
from foretrace.errors import InputError
from foretrace.model.report import Report
from foretrace.prediction.expect import read_toml
from foretrace.trace import load
from schemas import validator


def predict(*words: object) -> int:
    return main(["predict", *map(str, words)])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mlp"], "name the GPU to predict for: --gpu H200 or --gpu A100"),
        (["mlp", "--gpu", "H20O"], "no datasheet of a GPU called 'H20O' is known; did you mean"),
        (["--gpu", "H200"], "nothing to predict was given"),
        (["mpl", "--gpu", "H200"], "mpl is no workload"),
        (["mlp", "--gpu", "H200", "--in-dim", "3"], "the workload mlp has no --in-dim"),
        (["mlp", "--gpu", "H200", "-o", "taken.json"], "taken.json exists"),
        (["mlp", "--gpu", "H200", "--expectation", "taken.json"], "taken.json exists"),
        (["mlp", "--gpu", "H200", "-o", ""], "--output is empty"),
        (["mlp", "--gpu", "H200", "-o", "."], "is a folder"),
        (["mlp", "--gpu", "H200", "-o", "-"], "names no file"),
        (["mlp", "--gpu", "H200", "-o", "x.trace"], "end its name in .json or .json.gz"),
        (["mlp", "--gpu", "H200", "-o", "x", "--expectation", "x"], "both name x"),
        (["mlp", "--gpu", "H200", "--variant", "compile-max-autotune"], "times candidate kernels on the GPU itself"),
        (["mlp", "--gpu", "H200", "--variant", "reduce-overhead"], "--variant compile is the nearest"),
        (["mlp", "--gpu", "H200", "--variant", "fast"], "--variant fast is not known; choose from eager, compile"),
        (["mlp", "--gpu", "H200", "--variant", "eager", "--variant", "compile"], "predict each by itself"),
        (["mlp", "--gpu", "H200", "--variant", "hub:a/b@1"], "what a layer of the hub launches is known to its code"),
        (["mlp", "--gpu", "H200", "--variant", "foretrace+compile"], "--variant foretrace is the nearest"),
        (["linear", "--gpu", "H200", "--variant", "foretrace"], "found nothing to replace in Linear"),
        (["mlp", "--gpu", "H200", "--torch", "new"], "'new' is no version of torch; give one such as 2.11"),
        (["missing.py:make", "--gpu", "H200"], "missing.py does not exist"),
    ],
)
def test_what_cannot_be_predicted_is_one_sentence(words, sentence, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("taken.json").write_text("mine")
    assert predict(*words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert Path("taken.json").read_text() == "mine"


def test_without_torch_the_command_to_install_it_is_named(monkeypatch, capfd):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert predict("mlp", "--gpu", "H200") == 2
    assert "which is not installed: pip install torch" in capfd.readouterr().err


def test_one_screen(capfd):
    assert predict("mlp", "--gpu", "h200") == 0
    out, _ = capfd.readouterr()
    assert out.splitlines()[1] == "PREDICTED for NVIDIA H200 SXM 141GB; nothing ran, nothing was measured"
    assert "8192×3072×768 TN" in out
    assert len(out.splitlines()) < 40


def test_a_missing_file_is_said_before_torch_is_loaded():
    with pytest.raises(InputError, match=r"nofile\.py does not exist"):
        Subject("nofile.py:make", {}, None, train=False)


def test_what_a_factory_prints_stays_out_of_the_document(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("predict_me.py").write_text(
        "import torch\n"
        "def make(batch: int = 8):\n"
        "    print('made', batch)\n"
        "    return torch.nn.Linear(16, 4), torch.ones(batch, 16)\n"
    )
    assert predict("predict_me.py:make", "--gpu", "H200", "--json") == 0
    out, err = capfd.readouterr()
    assert "made 8" in err
    assert json.loads(out)["prediction"]["modelled"] == ["inputs [8, 16] fp32", "parameters 68 fp32"]


def test_json_is_the_report_of_the_written_timeline(tmp_path, capfd):
    timeline = tmp_path / "mlp.trace.json.gz"
    assert predict("mlp", "--gpu", "H200", "--json", "-o", timeline) == 0
    document = json.loads(capfd.readouterr().out)
    validator(Report).validate(document)
    assert document["trace"]["predicted"] is True
    assert main(["explain", "--json", str(timeline)]) == 0
    explained = json.loads(capfd.readouterr().out)
    for field in ("steps", "kernels", "verdict", "prediction"):
        assert explained[field] == document[field]


def test_the_expectation_file_holds_for_the_timeline(tmp_path, capfd):
    timeline, expected = tmp_path / "mlp.trace.json", tmp_path / "mlp.toml"
    assert predict("linear", "--gpu", "H200", "-o", timeline, "--expectation", expected) == 0
    assert f"wrote the expectation: {expected}" in capfd.readouterr().err
    assert read_toml(expected).clauses
    assert load(timeline).predicted
    assert main(["check", str(timeline), str(expected)]) == 0


def test_a_factory_and_a_training_step(tmp_path, capfd):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def make(dim=64):\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(dim, dim), torch.nn.ReLU())\n"
        "    return model, torch.randn(8, dim, requires_grad=True)\n"
    )
    assert predict(f"{tmp_path / 'mine.py'}:make", "--gpu", "A100", "--mode", "train", "--dim", "128", "--json") == 0
    report = json.loads(capfd.readouterr().out)
    phases = {phase["phase"] for phase in report["steps"][0]["phases"]}
    assert {"forward", "backward"} <= phases


def test_names_of_fused_steps_are_not_clipped(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    words = ["mlp", "--gpu", "H200", "--variant", "foretrace", "--mode", "train", "--torch"]
    for release, step in (("2.11", "gate_up_backward "), ("2.13", "gated_act_backward ")):
        assert predict(*words, release) == 0
        printed = capsys.readouterr().out
        assert step in printed
    assert "…" not in printed
