"""``FILE.py:FACTORY``: what a factory may return, and a clear sentence for every way it can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretrace.capture.usercode import is_factory, load_factory, make_program
from foretrace.capture.workloads import Program
from foretrace.errors import InputError

torch = pytest.importorskip("torch")


def made(tmp_path: Path, code: str, flags: dict[str, Any] | None = None, *, train: bool = False) -> Program:
    file = tmp_path / "model.py"
    file.write_text("import torch\n" + code)
    word = f"{file}:make"
    return make_program(word, load_factory(word), flags or {}, "cpu", train=train)


def test_words_that_mean_a_factory() -> None:
    assert is_factory("model.py:make")
    assert is_factory("dir/model.py:make")
    assert not is_factory("model.py")
    assert not is_factory("mlp")


@pytest.mark.parametrize(
    ("inputs", "result"),
    [
        ("torch.ones(2)", 2.0),
        ("(torch.ones(2), 5)", 5.0),
        ("[torch.ones(2), 5]", 5.0),
        ("{'a': torch.ones(2), 'b': 5}", 5.0),
    ],
)
def test_inputs_of_every_kind(tmp_path: Path, inputs: str, result: float) -> None:
    program = made(tmp_path, f"def f(a, b=2): return a * b\ndef make(): return f, {inputs}")
    assert float(program.function(*program.inputs, **program.keywords)[0]) == result


def test_a_module_and_its_neighbours_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_model.py").write_text("SIZE = 3")
    program = made(
        tmp_path,
        "from neighbour_of_model import SIZE\ndef make(): return torch.nn.Linear(SIZE, 2), torch.ones(1, SIZE)",
    )
    assert program.function(*program.inputs).shape == (1, 2)


def test_flags_and_the_device_reach_a_factory_that_asks_for_them(tmp_path: Path) -> None:
    program = made(
        tmp_path,
        "def make(batch, dtype, *, device): return torch.relu, torch.ones(batch, dtype=dtype, device=device)",
        {"batch": 7, "dtype": "bf16"},
    )
    assert program.inputs[0].shape == (7,)
    assert program.inputs[0].dtype == torch.bfloat16


def test_training_gives_floating_inputs_gradients(tmp_path: Path) -> None:
    program = made(
        tmp_path, "def make(): return torch.add, (torch.ones(2), torch.ones(2, dtype=torch.int64))", train=True
    )
    assert [tensor.requires_grad for tensor in program.inputs] == [True, False]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "has no make; it defines no function"),
        ("def build(): ...", "has no make; it defines build"),
        ("make = 3", "make in .* is not a function"),
        ("1 / 0", "failed while it was imported: ZeroDivisionError"),
        ("def make(:", "failed while it was imported: SyntaxError"),
        ("def make(): raise ValueError('no weights')", "make failed: ValueError: no weights"),
        ("raise SystemExit(3)", "failed while it was imported: SystemExit: 3"),
        ("def make(): raise SystemExit(3)", "make failed: SystemExit: 3"),
        (
            "def make(): return torch.nn.Linear(2, 2, device='meta'), torch.ones(2)",
            "could not be moved to cpu: NotImplementedError",
        ),
        ("def make(): return None", "returned a NoneType; it must return"),
        ("def make(): return torch.relu", "it must return"),
        ("def make(): return torch.relu, torch.ones(1), 3", "returned a tuple of 3"),
        ("def make(): return 3, torch.ones(1)", "returned a int as what to run"),
        ("def make(): return torch.relu, 3", "inputs of type int"),
        ("def make(): return torch.relu, {1: torch.ones(1)}", "parameters' names"),
        ("def make(path): return torch.relu, torch.ones(1)", "needs a value for path"),
    ],
)
def test_each_way_to_be_wrong_is_named(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(tmp_path, code)


def test_a_flag_the_factory_does_not_take_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="takes no --in-dim"):
        made(tmp_path, "def make(batch=1): return torch.relu, torch.ones(1)", {"in_dim": 3})


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_factory(f"{tmp_path}/absent.py:make")
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(InputError, match="is not a file"):
        load_factory(f"{tmp_path}/folder.py:make")
    (tmp_path / "model.py").write_text("")
    with pytest.raises(InputError, match="name the factory"):
        load_factory(f"{tmp_path}/model.py:")
