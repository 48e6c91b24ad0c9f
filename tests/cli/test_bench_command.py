"""``foretrace bench`` from the command line; what it measures is tested in ``tests/capture``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretrace.capture import bench as room
from foretrace.capture import runner
from foretrace.capture.bench import Request
from foretrace.cli import main
from foretrace.cli.bench import parse_sweep
from foretrace.errors import CaptureError, InputError
from foretrace.model.bench import Bench, Flushing, Limits, Load, Result, Work
from schemas import validator


class Bencher:
    """Takes the place of what measures: notes what was asked for, and answers with states of variants."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.states: dict[str, str] = {}

    def __call__(self, request: Request, **_: Any) -> Bench:
        self.requests.append(request)
        return Bench(
            workload=request.workload,
            parameters=dict(request.parameters),
            mode=request.mode,
            device=request.device,
            seed=request.seed,
            method="perf_counter",
            rounds=10,
            variants=[
                Result(name=name, variant=name, state=self.states.get(name, "ok"), median_us=1.0)  # type: ignore[arg-type]
                for name in request.variants
            ],
            flush=Flushing(on=False, reason="as asked for"),
            limits=Limits(),
            work=Work(missing={"floor_us": "not measured"}),
            load=Load(),
        )


@pytest.fixture(autouse=True)
def bencher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bencher:
    bencher = Bencher()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(room, "run_bench", bencher)
    monkeypatch.setattr(runner, "pick_device", lambda wanted: wanted or "cuda")
    return bencher


def test_eager_and_compile_are_the_default(bencher: Bencher) -> None:
    assert main(["bench", "mlp"]) == 0
    (request,) = bencher.requests
    assert request.variants == ("eager", "compile")
    assert request.parameters == {"batch": 64, "seq": 128, "dim": 768, "hidden": 3072, "dtype": "bf16"}
    assert (request.mode, request.flush, request.rounds, request.cuda_graph) == ("forward", None, None, False)


def test_flags_arrive(bencher: Bencher) -> None:
    words = "bench linear --batch 8 --dtype fp32 --variant compile --variant eager --mode train --rounds 20"
    more = "--cuda_graph --no-flush-l2 --sweep batch=1,8 --sweep in-dim=4 --seed 3 --device cpu"
    assert main([*words.split(), *more.split()]) == 0
    (request,) = bencher.requests
    assert request.variants == ("compile", "eager")
    assert request.sweep == {"batch": [1, 8], "in_dim": [4]}
    assert (request.mode, request.rounds, request.cuda_graph, request.flush, request.seed) == (
        "train",
        20,
        True,
        False,
        3,
    )
    assert request.parameters["batch"] == 8


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({}, 0),
        ({"compile": "wrong"}, 1),
        ({"compile": "failed"}, 2),
        ({"eager": "failed", "compile": "wrong"}, 1),
        ({"eager": "unchecked"}, 0),
    ],
)
def test_the_exit_code_says_whether_results_are_right(bencher: Bencher, states: dict[str, str], code: int) -> None:
    bencher.states = states
    assert main(["bench", "mlp"]) == code


def test_json_is_the_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "mlp", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "foretrace.bench/1"
    validator(Bench).validate(document)


def test_a_file_is_written_and_never_replaced_unasked(
    tmp_path: Path, bencher: Bencher, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "mlp", "-o", "b.json"]) == 0
    written = (tmp_path / "b.json").read_text()
    assert json.loads(written)["workload"] == "mlp"
    assert "eager" in capsys.readouterr().out  # the screen is shown all the same
    assert main(["bench", "linear", "-o", "b.json"]) == 2
    assert "b.json exists; choose another name, or replace it with --force" in capsys.readouterr().err
    assert (tmp_path / "b.json").read_text() == written
    assert len(bencher.requests) == 1  # refused before any work
    assert main(["bench", "linear", "-o", "b.json", "--force"]) == 0
    assert json.loads((tmp_path / "b.json").read_text())["workload"] == "linear"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mpl"], "mpl is no workload: give one of matmul-add, linear, mlp, or FILE.py:FACTORY"),
        (["mlp", "--size", "8"], "has no --size"),
        (["mlp", "--variant", "fast"], "--variant fast is not known; choose from eager, compile"),
        (["mlp", "--sweep", "size=8"], "has no --size"),
        (["mlp", "--sweep", "batch"], "as in --sweep batch=1,8,64"),
        (["mlp", "-o", "nowhere/b.json"], "nowhere does not exist"),
        (["mlp", "-o", "."], "is a folder"),
        (["mlp", "--seed", str(2**64)], "too large"),
        (["missing.py:make"], "missing.py does not exist"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_bench_that_fails_is_exit_code_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Bench:
        raise CaptureError("the program failed (eager): RuntimeError: no")

    monkeypatch.setattr(room, "run_bench", fails)
    assert main(["bench", "mlp"]) == 2


def test_sweeps_are_read() -> None:
    assert parse_sweep(["batch=1,8,8,64", "in-dim = 4"]) == {"batch": [1, 8, 64], "in_dim": [4]}
    assert parse_sweep([]) == {}


@pytest.mark.parametrize(
    "words",
    [
        ["batch"],
        ["batch="],
        ["=1"],
        ["batch=0"],
        ["batch=1,x"],
        ["batch=²"],
        ["batch=" + "1" * 5000],
        ["batch=1", "batch=2"],
        [f"batch={','.join(map(str, range(1, 300)))}"],
    ],
)
def test_sweeps_that_say_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(InputError, match="--sweep"):
        parse_sweep(words)


def test_for_real_on_this_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from foretrace.capture.bench.contest import run_bench
    from foretrace.timing import limits

    monkeypatch.setattr(room, "run_bench", run_bench)
    monkeypatch.setitem(limits._GEMM_SIZES, "cpu", (64, 64))
    monkeypatch.setitem(limits._COPY_BYTES, "cpu", 1 << 16)
    words = "bench linear --batch 4 --device cpu --variant eager --rounds 6 --mode train --sweep batch=2,3 -o b.json"
    assert main(words.split()) == 0
    assert "eager" in capsys.readouterr().out
    document = json.loads((tmp_path / "b.json").read_text())
    validator(Bench).validate(document)
    (eager,) = document["variants"]
    assert eager["state"] == "ok"
    assert len(eager["samples_us"]) == 6
    assert document["work"]["flops"] == 3 * 2 * 4 * 32 * 64
    assert [row["parameters"] for row in document["sweep"]["shapes"]] == [{"batch": 2}, {"batch": 3}]


def test_a_factory_gets_the_shapes_and_may_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from foretrace.capture.bench.contest import run_bench
    from foretrace.timing import limits

    monkeypatch.setattr(room, "run_bench", run_bench)
    monkeypatch.setitem(limits._COPY_BYTES, "cpu", 1 << 16)
    (tmp_path / "bench_model.py").write_text(
        "import torch\n"
        "def make(rows: int = 2, batch: int = 2):\n"
        "    print('made', batch)\n"
        "    return torch.nn.ReLU(), torch.ones(batch, 4)\n"
    )
    words = ["bench", "bench_model.py:make", "--device", "cpu", "--variant", "eager", "--rounds", "6", "--json"]
    assert main([*words, "--sweep", "batch=3,5"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert "made 5" in captured.err
    assert document["workload"] == "bench_model_make"
    assert document["parameters"] == {"rows": 2, "batch": 2}
    assert [row["parameters"]["batch"] for row in document["sweep"]["shapes"]] == [3, 5]
    assert main([*words, "--sweep", "depth=1"]) == 2
    (total,) = json.loads(capsys.readouterr().out)["sweep"]["totals"]
    assert total["reason"].startswith("bench_model.py:make takes no --depth")
