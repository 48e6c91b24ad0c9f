"""``benchmarks/fused.py``: the referee must itself be fair. On a CPU, at tiny sizes, with a made-up clock."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import foretrace
from foretrace.errors import CaptureError
from foretrace.timing import HostClock

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

torch = pytest.importorskip("torch", reason="the benchmark runs PyTorch")
if not (BENCHMARKS / "fused.py").is_file():
    pytest.skip("the benchmarks come with the repository, not with the package", allow_module_level=True)

sys.path.insert(0, str(BENCHMARKS))
try:
    from fused_bench import accuracy, decode, neverslower, shapes
    from fused_bench.case import Case
    from fused_bench.contest import Rounds
    from fused_bench.deadline import Deadline
    from fused_bench.device import Device
    from fused_bench.document import Document, measured_version, ratio, shown_command
    from fused_bench.entrants import Built, Entrant, UnavailableError, own_leaves
    from fused_bench.operands import composed, make_operands, reference
    from fused_bench.opponents import OPPONENTS
    from fused_bench.ours import OURS, choices_for, forced
    from fused_bench.prepare import prepare_all
    from fused_bench.session import Session, measure_case
    from fused_bench.tables import case_table, grid_table, text_table
    from fused_bench.tuned import costs_of, write_tuned_table
finally:
    sys.path.pop(0)

FORWARD = Case("gated_mlp", 12, 16, 40, "silu", "forward", "fp32")
TRAIN = Case("gated_mlp", 12, 16, 40, "gelu", "train", "fp32")
LINEAR = Case("linear_act", 12, 16, 40, "gelu_tanh", "train", "fp32", bias=True)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products on several threads wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ticking(step_ns: int = 1000) -> HostClock:
    """A clock that moves by the same amount whenever it is looked at."""
    now = iter(range(0, 1 << 40, step_ns))
    return HostClock(counter_ns=lambda: next(now))


def session(path: Path | None = None, **settings: Any) -> Session:
    device = settings.pop("device", None) or Device("cpu", ticking())
    document = Document(path, device.describe(), {})
    said: list[str] = []
    rounds = Rounds(least=6, most=6, budget_s=0.0, warm_s=0.0)
    made = Session(device, document, settings.pop("deadline", Deadline(None)), rounds, say=said.append, **settings)
    made.said = said  # type: ignore[attr-defined]
    return made


def entrant(name: str, forward: Any) -> Entrant:
    """One that computes ``forward(case, x, weights)``."""

    def build(case: Case, operands: Any) -> Built:
        leaves = own_leaves(case, operands.weights)
        return Built(lambda x: forward(case, x, leaves), leaves)

    return Entrant(name, "opponent", build)


def unavailable(case: Case, operands: Any) -> Built:
    raise UnavailableError("no such package")


# --- who may be timed


@pytest.mark.parametrize("case", [FORWARD, TRAIN, LINEAR], ids=lambda case: case.name)
def test_eager_is_right_and_its_copy_is_as_right(case: Case) -> None:
    prepared = prepare_all(
        [OPPONENTS["eager"], entrant("copy", composed)], case, make_operands(case, "cpu"), Device("cpu")
    )
    eager, copy = (one.result for one in prepared)
    assert eager["state"] == copy["state"] == "ok"
    assert eager["errors"] == copy["errors"]
    wanted = {"y"} if case.mode == "forward" else {"y", "x", *make_operands(case, "cpu").weights}
    assert set(eager["errors"]) == wanted
    assert 0 < max(eager["errors"].values()) < 1e-5


def wrong_value(case: Case, x: Any, weights: Any) -> Any:
    return composed(case, x, weights) * 1.001


def wrong_gradient(case: Case, x: Any, weights: Any) -> Any:
    # The output is right; gate's gradient goes missing by half.
    half = {**weights, "gate": weights["gate"] / 2 + weights["gate"].detach() / 2}
    return composed(case, x, half)


def not_a_number(case: Case, x: Any, weights: Any) -> Any:
    y = composed(case, x, weights)
    return torch.cat([y[:-1], y[-1:] * math.nan])


def broken(case: Case, x: Any, weights: Any) -> Any:
    raise ValueError("a sentence\nand what nobody reads")


@pytest.mark.parametrize(
    ("who", "state", "reason"),
    [
        (entrant("it", wrong_value), "wrong", "error of y is"),
        (entrant("it", wrong_gradient), "wrong", "error of gate is"),
        (entrant("it", not_a_number), "wrong", "error of y is nan"),
        (entrant("it", broken), "failed", "ValueError: a sentence"),
        (Entrant("it", "opponent", unavailable), "absent", "no such package"),
    ],
    ids=["wrong value", "wrong gradient", "NaN", "raises", "absent"],
)
def test_who_is_wrong_or_fails_is_named_and_not_timed(who: Entrant, state: str, reason: str) -> None:
    record = measure_case(session(), TRAIN, [OPPONENTS["eager"], who], clocks=("events",))
    assert record is not None
    it = record["entrants"]["it"]
    assert it["state"] == state
    assert it["reason"].startswith(reason)
    assert "events" not in it
    assert record["entrants"]["eager"]["events"]["median_us"] == 1.0  # the others go on
    if state != "absent":
        assert f"it: {state}" in case_table(record)


def test_the_reference_is_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = make_operands(TRAIN, "cpu")
    whole = reference(TRAIN, operands)
    monkeypatch.setattr("fused_bench.operands._CHUNK_ROWS", 5)
    pieces = reference(TRAIN, operands)
    assert whole.keys() == pieces.keys() == {"y", "x", "gate", "up", "down"}
    for name, value in whole.items():
        torch.testing.assert_close(pieces[name], value, rtol=1e-12, atol=1e-12)


# --- how they are timed


def test_everything_of_ours_takes_part_on_a_cpu_too() -> None:
    entrants = [OPPONENTS["eager"], OPPONENTS["cublas"], *(one for one in OURS.values() if not one.compiles)]
    entrants += [forced(choice) for choice in choices_for(TRAIN, "cpu")]
    record = measure_case(session(), TRAIN, entrants, clocks=("events", "wall"), with_memory=True)
    assert record is not None
    assert {name: result["reason"] for name, result in record["entrants"].items() if result["state"] != "ok"} == {}
    ours = record["entrants"]["foretrace"]
    assert ours["events"]["samples_us"] == [1.0] * 6
    assert ours["wall"]["iterations"] >= 3
    assert ours["peak_bytes"] is None  # not zero: a CPU's is not measured
    assert record["ratios"]["events"]["eager"] == {"median": 1.0, "interval": [1.0, 1.0]}
    assert "expand=plain project=plain backward=plain save=preact" in record["entrants"]


class PretendedGpu(Device):
    """Takes the paths of a GPU, on a CPU: graphs are the calls themselves."""

    def __init__(self) -> None:
        super().__init__("cpu", ticking())
        self.is_gpu = True
        self.flushes = 0

    def l2_bytes(self) -> int:
        return 20_000

    def flush(self) -> None:
        self.flushes += 1

    def synchronize(self) -> None: ...

    def release(self) -> None: ...

    def poison(self, size: int) -> None: ...

    def describe(self) -> dict[str, Any]:
        return {}

    def peak_bytes(self, call: Any) -> int | None:
        call()
        return 1 << 20


def no_capture(call: Any, device: str) -> tuple[Any, Any]:
    return call, call()


def refused(call: Any, device: str) -> tuple[Any, Any]:
    raise CaptureError("it cannot be captured as a CUDA graph: a synchronisation")


def test_on_a_gpu_each_replay_is_timed_after_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fused_bench.contest.capture_graph", no_capture)
    device = PretendedGpu()
    made = session(device=device)
    entrants = [OPPONENTS["eager"], OURS["foretrace"]]
    record = measure_case(made, TRAIN, entrants, clocks=("graph",), with_memory=True)
    assert record is not None
    ours = record["entrants"]["foretrace"]
    assert (ours["graph"]["median_us"], ours["peak_bytes"]) == (1.0, 1 << 20)
    assert device.flushes == 2 * 6
    assert "foretrace / it (graph)" in case_table(record)


def test_who_cannot_be_captured_says_why_and_keeps_its_other_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fused_bench.contest.capture_graph", refused)
    made = session(device=PretendedGpu())
    record = measure_case(made, FORWARD, [OPPONENTS["eager"]], clocks=("graph", "events"))
    assert record is not None
    eager = record["entrants"]["eager"]
    assert (eager["state"], eager["graph"]) == ("ok", None)
    assert "a synchronisation" in eager["graph_reason"]
    assert eager["events"]["median_us"] == 1.0


def test_a_decode_chain_is_longer_than_the_cache_and_times_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fused_bench.decode.capture_graph", no_capture)
    case = Case("gated_mlp", 2, 16, 40, "silu", "forward", "fp32")
    made = session(device=PretendedGpu(), only=("eager", "foretrace"))
    record = decode.measure_chain(made, case)
    assert record is not None
    assert record["weight_bytes"] == 3 * 16 * 40 * 4
    assert record["weight_sets"] == 27  # ten times the cache
    ours = record["entrants"]["foretrace"]
    assert ours["graph"]["median_us"] == round(1 / 27, 3)
    assert ours["weights_tb_per_s"] == round(7680 / 0.037 / 1e6, 3)


def test_a_ratio_compares_round_by_round() -> None:
    base = [100.0, 200.0, 100.0, 300.0, 100.0, 100.0, 150.0]
    found = ratio([sample * 0.9 for sample in base], base)
    assert found == {"median": 0.9, "interval": [0.9, 0.9]}
    assert ratio([1.0, 2.0], [1.0]) is None
    assert ratio([1.0] * 3, [2.0] * 3) == {"median": 0.5, "interval": None}


def test_what_the_time_did_not_reach_is_in_the_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    seconds = iter([0.0, 1.0, 1.0, 99.0, 99.0, 99.0])
    short = session(path, deadline=Deadline(10.0, lambda: next(seconds)))
    short.each("mlp", [FORWARD, TRAIN], lambda case: {"name": case.name})
    content = json.loads(path.read_text())
    assert [record["name"] for record in content["suites"]["mlp"]] == [FORWARD.name]
    assert content["skipped"] == [{"suite": "mlp", "case": TRAIN.name, "reason": "the time budget was spent"}]


def test_a_case_that_cannot_be_made_does_not_end_the_run(tmp_path: Path) -> None:
    def run(case: Case) -> dict[str, Any]:
        if case is FORWARD:
            raise RuntimeError("out of memory")
        return {"name": case.name}

    path = tmp_path / "result.json"
    session(path).each("mlp", [FORWARD, TRAIN], run)
    content = json.loads(path.read_text())
    assert content["skipped"][0]["reason"] == "RuntimeError: out of memory"
    assert len(content["suites"]["mlp"]) == 1


def test_parts_share_the_cases_out() -> None:
    cases = shapes.grid(None, "bf16")
    parts = [session(part=(index, 3)).share(cases) for index in range(3)]
    assert sorted(case.name for part in parts for case in part) == sorted(case.name for case in cases)


def test_each_kernel_is_compiled_by_one_process() -> None:
    everyone = [OPPONENTS["eager"], OPPONENTS["compile"], OPPONENTS["max-autotune"], *OURS.values()]
    shares = [session(preparing=(index, 3)) for index in range(3)]
    for case in shapes.grid(None, "bf16")[:20]:
        found = [one.name for share in shares for one in share.wanted(case, everyone)]
        assert sorted(found) == sorted(one.name for one in everyone if one.name != "max-autotune")
    wide, narrow = (Case("gated_mlp", m, 64, 128, "silu", "forward", "bf16") for m in (16, 8192))
    ours = list(OURS.values())[:3]
    assert [one.name for one in shares[0].wanted(wide, ours)] == [one.name for one in shares[0].wanted(narrow, ours)]


# --- never slower


def test_the_grid_is_as_wide_as_promised() -> None:
    cases = shapes.grid(None, "bf16")
    sizes = {(case.m, case.k, case.n) for case in cases}
    assert len(sizes) >= 60
    assert len(cases) == 2 * len(sizes)
    for values, low, high in zip(zip(*sizes, strict=True), (1, 512, 1536), (16384, 8192, 28672), strict=True):
        assert (min(values), max(values)) == (low, high)


def timed(samples: list[float]) -> dict[str, Any]:
    return {
        "state": "ok",
        "graph": {"median_us": sorted(samples)[len(samples) // 2], "iqr_us": 1.0, "samples_us": samples},
    }


def record_of(ours: list[float], **rivals: list[float]) -> dict[str, Any]:
    entrants = {name: timed(samples) for name, samples in rivals.items()} | {"foretrace": timed(ours)}
    record = {"name": "a case", "entrants": entrants}
    neverslower.conclude(record, "graph")
    return record


def test_the_best_rival_counts_and_noise_is_told_from_loss() -> None:
    base = [100.0, 110.0, 90.0, 100.0, 105.0, 95.0, 100.0]
    fine = record_of([b * 1.01 for b in base], eager=[b * 1.5 for b in base], compile=base)
    slow = record_of([b * 1.10 for b in base], eager=base, compile=[b * 1.5 for b in base])
    unsure = record_of([100.0, 116.0, 87.0, 107.0, 112.0, 91.0, 107.0], eager=base)
    assert fine["against_best"]["other"] == "compile"
    assert slow["against_best"]["ratio"]["median"] == 1.1
    assert neverslower.slower([fine, slow, unsure]) == [slow, unsure]
    assert neverslower.slower([fine, slow, unsure], surely=True) == [slow]
    assert "3 cases, 2 with a median above 1.02" in neverslower.verdict([fine, slow, unsure])
    assert "a case" in grid_table([fine, slow])


def test_measurements_become_the_table_that_dispatch_reads(tmp_path: Path) -> None:
    from foretrace.fused.dispatch.tables import read_table

    choices = {"expand=plain project=plain": timed([20.0]), "expand=tma[stages=3] project=plain": timed([10.0])}
    record = {**FORWARD.as_dict(), "name": "a case", "entrants": {**choices, "eager": timed([18.0])}}
    # What is all plain runs as eager does, whatever its own entrant took.
    assert costs_of(record) == {"expand=plain project=plain": 18.0, "expand=tma[stages=3] project=plain": 10.0}
    machine = {"gpu": {"name": "NVIDIA H200"}, "architecture": "sm_90", "packages": {"torch": "2.11.0", "triton": None}}
    document = {"machine": machine, "suites": {"never-slower": [record], "host": [{"entrants": {}}]}}

    assert write_tuned_table([document], tmp_path / "sm_90_h200.json") == 1
    (row,) = read_table(tmp_path / "sm_90_h200.json").rows
    assert (row.m, row.n, row.k, row.out, row.dtype) == (12, 40, 16, 16, "float32")
    assert row.costs[0] == ("expand=tma[stages=3] project=plain", 10.0)

    with pytest.raises(ValueError, match="of one GPU, these results are of no GPU"):
        write_tuned_table([{**document, "machine": {**machine, "gpu": None}}], tmp_path / "none.json")


# --- accuracy


@pytest.mark.parametrize("operation", ["gated_mlp", "linear_act"])
def test_the_sweep_turns_the_operation_into_its_activation(operation: Any) -> None:
    case = Case(operation, 24, 24, 48, "gelu", "train", "bf16", bias=operation == "linear_act")
    operands, z = accuracy.sweep_operands(case, "cpu")
    assert z.shape == (24, 16)
    y = composed(case, operands.x, operands.weights)
    assert torch.equal(y[:, :16], torch.nn.functional.gelu(z))
    record = accuracy.measure_sweep(session(only=("eager",)), case)
    eager = record["entrants"]["eager"]
    assert eager["state"] == "ok"
    assert eager["value"]["worse_than_eager"] == eager["slope"]["worse_than_eager"] == 0
    assert 0 < eager["value"]["mean"] < 5


def test_every_number_of_the_type_is_in_the_sweep() -> None:
    numbers = accuracy.all_numbers(torch.bfloat16, "cpu")
    assert numbers.isfinite().all()
    assert float(numbers.abs().max()) <= 1e4
    assert len(numbers.unique()) == len(numbers) - 1  # zero of both signs
    assert float(numbers[numbers > 0].min()) < 1e-38  # subnormals are there


def test_errors_are_in_units_in_the_last_place() -> None:
    exact = torch.tensor([1.0, 1.5, 4.0, 1e-45], dtype=torch.float64)
    step = torch.finfo(torch.bfloat16).eps
    found = torch.tensor([1.0 + step, 1.5, 4.0 + 2 * step, math.nan], dtype=torch.float64)
    assert accuracy.ulp_errors(found, exact, torch.bfloat16).tolist() == [1.0, 0.0, 0.5, math.inf]


# --- the command


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; the folders it would share with others are this test's own."""
    spec = importlib.util.spec_from_file_location("fused_benchmark_script", BENCHMARKS / "fused.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "share_caches", lambda: None)
    return module


def test_the_whole_command_runs_without_a_gpu(
    program: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    words = ["--suite", "mlp", "train", "linear", "decode", "never-slower", "held-out", "memory"]
    words += ["--device", "cpu"]
    words += ["--shapes", "8x16x32", "--dtype", "fp32", "--rounds", "6", "--most-rounds", "6", "--case-s", "0.01"]
    words += ["--warm-s", "0", "--without", "compile", "max-autotune", "foretrace-compiled", "--output", str(path)]
    assert program.main(words) == 0
    content = json.loads(path.read_text())
    assert content["skipped"] == []
    counts = {suite: len(records) for suite, records in content["suites"].items()}
    expected = {"mlp": 3, "train": 3, "linear": 4, "decode": 1, "never-slower": 2, "held-out": 2, "memory": 2}
    assert counts == expected
    for suite, records in content["suites"].items():
        for record in records:
            assert record["entrants"]["foretrace"]["state"] == "ok", (suite, record["entrants"]["foretrace"])
    assert content["machine"]["gpu"] is None
    assert str(tmp_path) not in path.read_text()
    assert "foretrace / it (events)" in capsys.readouterr().out


def test_a_shape_that_is_none_is_refused(program: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--suite", "mlp", "--shapes", "8192x768"])
    assert "as 8192x768x3072, not 8192x768" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--only", "eagre"], "eagre: not known; choose from eager, compile"),
        (["--force", "expand=tma[fast]"], "'fast' in 'tma[fast]' is no option"),
        (["--part", "3/2"], "--part is I/N"),
        (["--prepare-only", "2"], "--prepare-only is I/N"),
    ],
)
def test_a_word_that_would_be_ignored_is_refused(
    program: ModuleType, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        program.main(["--suite", "mlp", *words])
    assert reason in capsys.readouterr().err


def test_workers_get_the_question_but_not_what_is_the_parents_own(program: ModuleType) -> None:
    words = ["--suite", "mlp", "--precompile", "4", "--output", "a.json", "--dtype", "fp16", "--table=t.json"]
    assert program._for_workers(words) == ["--suite", "mlp", "--dtype", "fp16"]


def test_columns_line_up() -> None:
    assert text_table(["", "µs"], [["a", "1.0"], ["long", "10.0"]]) == "        µs\na      1.0\nlong  10.0"


# --- what was measured and committed


def test_the_committed_grid_is_never_slower() -> None:
    paths = sorted((BENCHMARKS / "results" / "fused").glob("never_slower_*.json"))
    records = [record for path in paths for record in json.loads(path.read_text())["suites"]["never-slower"]]
    for mode in ("forward", "train"):
        shapes = {(record["m"], record["k"], record["n"]) for record in records if record["mode"] == mode}
        assert len(shapes) >= 60
    assert [record["name"] for record in neverslower.slower(records)] == []


def test_held_out_shapes_are_in_no_table() -> None:
    table = ROOT / "src" / "foretrace" / "fused" / "dispatch" / "tables" / "sm_90_h200.json"
    known = {(row["m"], row["k"], row["n"]) for row in json.loads(table.read_text())["rows"]}
    held_out = {(case.m, case.k, case.n) for case in shapes.held_out(None, "bf16")}
    assert len(held_out) >= 40
    assert not held_out & known


def test_a_result_says_which_foretrace_was_measured(tmp_path: Path) -> None:
    document = Document(tmp_path / "result.json", {}, {})
    document.write()
    found = json.loads((tmp_path / "result.json").read_text())["foretrace"]
    assert found == measured_version()
    assert found["version"] == foretrace.__version__
    assert len(found["fused_sha256"]) == 16


def test_the_command_of_a_result_names_no_folder_of_the_machine() -> None:
    shown = shown_command(["--part", "1/2", "--output", "/somewhere/else/result.json"])
    assert shown == ["python", "benchmarks/fused.py", "--part", "1/2", "--output", "result.json"]
