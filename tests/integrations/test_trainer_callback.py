"""The callback in a real ``transformers.Trainer`` on the CPU, in a process of its own: a process has one profiler."""

import json
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from foretrace.errors import InputError
from foretrace.integrations.trainer import ProfileCallback

_TRAINING = """
import sys, torch
from transformers import Trainer, TrainingArguments
from foretrace.integrations.trainer import ProfileCallback

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}

def train(callback, steps, **more):
    data = [{"x": torch.ones(8), "labels": torch.tensor(1.0)} for _ in range(8)]
    given = dict(output_dir="out", max_steps=steps, per_device_train_batch_size=2, report_to=[], use_cpu=True,
                 disable_tqdm=True, save_strategy="no", dataloader_pin_memory=False)
    Trainer(Model(), TrainingArguments(**given, **more), train_dataset=data, callbacks=[callback]).train()
    print(callback.reports)
"""


def training(code: str, folder) -> subprocess.CompletedProcess:
    script = _TRAINING + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)


def test_the_chosen_steps_are_recorded_and_explained(tmp_path):
    training('train(ProfileCallback("traces/t", at=[2, 6], steps=2), 9, gradient_accumulation_steps=2)', tmp_path)
    files = sorted(path.name for path in (tmp_path / "traces").iterdir())
    names = ["html", "report.json", "trace.json.gz", "trace.side.json"]
    assert files == [f"t_step{step}.{name}" for step in (2, 6) for name in names]
    report = json.loads((tmp_path / "traces" / "t_step2.report.json").read_text())
    assert len(report["steps"]) == 2
    # A step is one of the optimizer: two batches, each with its forward and backward product.
    forward = next(row for row in report["operators"] if row["name"] == "aten::addmm")
    assert forward["calls"] == 4


def test_a_training_that_ends_early_keeps_what_there_is_and_says_so(tmp_path):
    done = training('train(ProfileCallback("traces/t", at=3, steps=3, html=False), 4)', tmp_path)
    assert "CaptureWarning" in done.stderr
    assert (tmp_path / "traces" / "t.report.json").is_file()


def test_a_training_that_never_gets_there_writes_nothing(tmp_path):
    done = training('train(ProfileCallback("traces/t", at=50), 3)', tmp_path)
    assert done.stdout.strip().endswith("[]")
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at": 0}, "from 1 on"),
        ({"at": []}, "from 1 on"),
        ({"at": 5, "steps": 0}, "records nothing"),
        ({"at": [5, 8], "steps": 3}, "4 or more steps apart"),
    ],
)
def test_places_that_make_no_sense_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        ProfileCallback("traces/t", **given)
