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


@pytest.mark.parametrize(
    ("given", "steps", "said"),
    [
        ("at=50", 3, "nothing was recorded from step 50: the training went from step 0 to 2"),
        ("at=[3, 9]", 3, "nothing was recorded from steps 3 and 9: the training went from step 0 to 2"),
        ("at=3, steps=1", 3, "nothing was recorded from step 3: the training went from step 0 to 2"),
    ],
    ids=["far", "warming-up-and-far", "warming-up"],
)
def test_a_training_that_never_gets_there_writes_nothing_and_says_so_once(tmp_path, given, steps, said):
    done = training(f'train(ProfileCallback("traces/t", {given}), {steps})', tmp_path)
    assert done.stdout.strip().endswith("[]")
    assert not list(tmp_path.glob("traces/*"))
    assert done.stderr.count("CaptureWarning: ") == 1
    assert said in done.stderr


def test_an_exception_in_the_training_leaves_no_profiler(tmp_path):
    done = training(
        """
        import gc
        import foretrace

        class Fails(Model):
            calls = 0
            def forward(self, x, labels):
                Fails.calls += 1
                if Fails.calls == 4:
                    raise ZeroDivisionError("in the training")
                return super().forward(x, labels)

        def fails(callback):
            global Model
            Fails.calls, whole = 0, Model
            Model = Fails
            try:
                train(callback, 6)
            finally:
                Model = whole

        def recordable():
            with foretrace.profile() as recording:
                torch.ones(2) + 1
            return recording.finished

        # The next training ends what the last one left, and records its own.
        callback = ProfileCallback("traces/again", at=2, html=False)
        try:
            fails(callback)
        except ZeroDivisionError:
            pass
        train(callback, 6)
        print("again", len(callback.reports), recordable())

        # A block ends it at once.
        try:
            with ProfileCallback("traces/block", at=2, html=False) as callback:
                fails(callback)
        except ZeroDivisionError as error:
            print("block", error.__notes__, recordable())

        # So does dropping it.
        try:
            fails(ProfileCallback("traces/dropped", at=2, html=False))
        except ZeroDivisionError:
            pass
        gc.collect()
        print("dropped", recordable())
        """,
        tmp_path,
    )
    assert "again 1 True" in done.stdout
    note = "foretrace: the steps that were recorded from 2 on were not written"
    assert f"block ['{note}'] True" in done.stdout
    assert "dropped True" in done.stdout
    assert "the training was left while steps were recorded from 2 on; they were not written" in done.stderr
    names = {path.name for path in (tmp_path / "traces").iterdir() if not path.name.startswith("profile")}
    assert names == {"again.trace.json.gz", "again.trace.side.json", "again.report.json"}


def test_no_error_of_ours_ends_a_training(tmp_path):
    done = training(
        """
        import foretrace.integrations.explained as explained

        def fails(*_, **__):
            raise RecursionError("of ours")

        explained.write_explained = fails
        train(ProfileCallback("traces/t", at=1, steps=1), 3)
        import foretrace.capture.recording as recording
        recording.Recording.step = fails
        train(ProfileCallback("traces/u", at=1, steps=1), 3)
        recording.Recording.__enter__ = fails
        train(ProfileCallback("traces/v", at=1, steps=1), 3)
        """,
        tmp_path,
    )
    assert done.stdout.count("[]") == 3
    assert "could not be explained: this is a defect of foretrace: RecursionError: of ours" in done.stderr
    assert "nothing is recorded from step 1: this is a defect of foretrace" in done.stderr
    assert done.stderr.count("CaptureWarning: ") == 3
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {"t.trace.json.gz", "t.trace.side.json"}


def test_a_process_may_be_named_by_its_number():
    assert ProfileCallback("traces/t", ranks=0)._ranks == [0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at": 0}, "from 1 on"),
        ({"at": []}, "from 1 on"),
        ({"at": 5, "steps": 0}, "records nothing"),
        ({"at": [5, 8], "steps": 3}, "4 or more steps apart"),
        ({"at": [3.5]}, r"at= takes global steps as whole numbers, not 3\.5"),
        ({"at": 2.5}, r"not 2\.5"),
        ({"at": "3"}, "not '3'"),
        ({"at": True}, "not True"),
        ({"at": None}, "not None"),
        ({"steps": 2.5}, r"steps= takes a whole number of steps, not 2\.5"),
        ({"steps": [1, 2]}, r"not \[1, 2\]"),
        ({"ranks": "0"}, "ranks= takes processes as whole numbers, not '0'"),
        ({"ranks": False}, "not False"),
        ({"ranks": ()}, "from 0 on"),
        ({"ranks": -1}, "from 0 on"),
    ],
)
def test_places_that_make_no_sense_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        ProfileCallback("traces/t", **given)
