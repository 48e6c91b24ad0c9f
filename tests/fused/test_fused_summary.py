"""``benchmarks/fused_summary.py``: what the README of the results says is what the result files say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

if not (BENCHMARKS / "fused_summary.py").is_file():
    pytest.skip("the benchmarks come with the repository, not with the package", allow_module_level=True)

sys.path.insert(0, str(BENCHMARKS))
try:
    import fused_summary
finally:
    sys.path.pop(0)


def record(entrants: dict[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """One case of a result file, as far as the summary reads it."""
    case = {
        "operation": "gated_mlp",
        "m": 16,
        "k": 4096,
        "n": 14336,
        "activation": "silu",
        "mode": "forward",
        "dtype": "bf16",
        "bias": False,
        "ratios": {},
    }
    return {**case, "entrants": entrants, **fields}


def graph(median_us: float, **fields: Any) -> dict[str, Any]:
    return {"graph": {"median_us": median_us}, **fields}


def decoded(median_us: float, rate: float) -> dict[str, Any]:
    return graph(median_us, weights_tb_per_s=rate)


def ratio(median: float, *interval: float) -> dict[str, Any]:
    return {"median": median, "interval": list(interval) or None}


def lines(folder: Path, **suites: list[dict[str, Any]]) -> list[str]:
    """The summary of one result file with these suites (``first_call`` for ``first-call``)."""
    content = {"suites": {name.replace("_", "-"): records for name, records in suites.items()}}
    (folder / "result.json").write_text(json.dumps(content))
    return fused_summary.summary(folder).splitlines()


def test_the_readme_of_the_results_says_what_they_say() -> None:
    """`python benchmarks/fused_summary.py` after a new measurement."""
    text = (fused_summary.FOLDER / "README.md").read_text()
    assert fused_summary.rewritten(text) == text
    assert "| quack |" in text


@pytest.mark.parametrize(
    ("line", "file", "suite"),
    [
        ("forward, 8192 rows, 768 → 3072", "small", "mlp"),
        ("with backward", "small", "train"),
        ("forward, 8192 rows, 4096 → 14336", "large", "mlp"),
        ("with backward", "large", "train"),
    ],
)
def test_the_front_page_says_what_was_measured(line: str, file: str, suite: str) -> None:
    """GPU time over that of eager, compile, Liger and QuACK, with the default GELU."""
    record = json.loads((fused_summary.FOLDER / f"mlp_train_{file}_gelu_tanh.json").read_text())["suites"][suite][0]
    ratios = record["ratios"]["graph"]
    shown = " | ".join(f"{ratios[name]['median']:.2f}" for name in ("eager", "compile", "liger", "quack"))
    assert f"| {line} | {shown} |" in (ROOT / "README.md").read_text()


def test_a_suite_without_cases_has_no_heading(tmp_path: Path) -> None:
    suites = ("mlp", "train", "linear", "decode", "memory", "host", "first_call", "accuracy")
    assert lines(tmp_path, **{suite: [] for suite in suites}) == []


def test_a_case_in_which_nothing_was_measured_has_no_heading(tmp_path: Path) -> None:
    """On a CPU there is neither a graph's replay nor a peak."""
    nothing = record({"eager": {"events": {"median_us": 9.0}, "peak_bytes": None, "weights_tb_per_s": 0.001}})
    assert lines(tmp_path, mlp=[nothing], decode=[nothing], memory=[nothing], host=[nothing]) == []


def test_a_linear_layer_is_shown_with_its_bias_and_without_the_forced_choices(tmp_path: Path) -> None:
    entrants = {
        "eager": graph(200.0),
        "addmm_activation": graph(160.0),
        "liger": {"state": "absent"},
        "foretrace": graph(150.0),
        "foretrace-module": graph(150.5),
        "expand=tma": graph(149.0),
    }
    ratios = {"graph": {"eager": ratio(0.75, 0.745, 0.755), "addmm_activation": ratio(0.9375), "expand=tma": None}}
    case = record(entrants, operation="linear_act", m=8192, k=1024, n=4096, ratios=ratios)
    table = [
        "|  | GPU µs | foretrace / it |",
        "| --- | --- | --- |",
        "| eager | 200.0 | 0.750 [0.745, 0.755] |",
        "| addmm_activation | 160.0 | 0.938 |",
        "| foretrace | 150.0 |  |",
    ]
    assert lines(tmp_path, linear=[case | {"bias": True}, case | {"activation": "relu", "mode": "train"}]) == [
        "### Linear + activation, relu, 8,192 rows, 1,024 → 4,096, forward and backward",
        "",
        *table,
        "",
        "### Linear + bias + activation, silu, 8,192 rows, 1,024 → 4,096, forward",
        "",
        *table,
    ]


def test_wall_time_and_peak_have_columns_where_they_were_measured(tmp_path: Path) -> None:
    entrants = {
        "eager": graph(700.0, wall={"median_us": 1250.4}, peak_bytes=319_000_000),
        "foretrace": graph(560.0, wall={"median_us": 703.2}, peak_bytes=168_000_000),
        "cublas": graph(520.0, peak_bytes=None),
    }
    ratios = {
        "graph": {"eager": ratio(0.8, 0.79, 0.81), "cublas": ratio(1.077, 1.07, 1.08)},
        "wall": {"eager": ratio(0.562, 0.5, 0.6)},
    }
    assert lines(tmp_path, train=[record(entrants, mode="train", ratios=ratios)])[2:] == [
        "|  | GPU µs | foretrace / it | wall µs | foretrace / it | peak MB |",
        "| --- | --- | --- | --- | --- | --- |",
        "| eager | 700.0 | 0.800 [0.790, 0.810] | 1,250 | 0.562 [0.500, 0.600] | 319 |",
        "| foretrace | 560.0 |  | 703 |  | 168 |",
        "| cublas | 520.0 | 1.077 [1.070, 1.080] |  |  |  |",
    ]


def test_decoding_is_shown_as_bandwidth_by_rows(tmp_path: Path) -> None:
    """Against whichever of eager and compile is faster; who was not timed leaves a gap."""
    one = record(
        {"eager": decoded(100.0, 3.524), "compile": decoded(90.0, 3.915), "foretrace": decoded(80.0, 4.404)},
        m=1,
        ratios={"graph": {"eager": ratio(0.8, 0.79, 0.81), "compile": ratio(0.889, 0.88, 0.9)}},
    )
    sixteen = record(
        {
            "eager": decoded(88.0, 4.003),
            "compile": {"state": "failed"},
            "liger": decoded(95.0, 3.708),
            "foretrace": decoded(84.0, 4.194),
            "expand=tma": decoded(83.0, 4.245),
        },
        ratios={"graph": {"eager": ratio(0.955), "liger": ratio(0.884)}},
    )
    assert lines(tmp_path, decode=[sixteen, one]) == [
        "### gated MLP in bf16, silu, 4,096 → 14,336, forward: weights read, TB/s",
        "",
        "| rows | eager | compile | liger | foretrace | time of foretrace / best of eager and compile |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 1 | 3.52 | 3.92 |  | 4.40 | 0.889 [0.880, 0.900] (compile) |",
        "| 16 | 4.00 |  | 3.71 | 4.19 | 0.955 (eager) |",
    ]


def test_peaks_are_shown_by_entrant_and_case(tmp_path: Path) -> None:
    small = record(
        {
            "eager": {"peak_bytes": 319_291_392},
            "foretrace": {"peak_bytes": 168_001_536},
            "cublas": {"peak_bytes": None},
        },
        m=8192,
        k=768,
        n=3072,
        mode="train",
    )
    large = record({"eager": {"peak_bytes": 1_594_000_000}, "foretrace": {"state": "failed"}}, m=8192, mode="train")
    assert lines(tmp_path, memory=[large, small]) == [
        "### gated MLP in bf16: peak MB",
        "",
        "|  | silu, 8,192 rows, 768 → 3,072, forward and backward "
        "| silu, 8,192 rows, 4,096 → 14,336, forward and backward |",
        "| --- | --- | --- |",
        "| eager | 319 | 1,594 |",
        "| foretrace | 168 |  |",
    ]


def test_host_time_is_shown_by_operation_size_and_mode(tmp_path: Path) -> None:
    def took(eager: float, foretrace: float, **fields: Any) -> dict[str, Any]:
        entrants = {"eager": eager, "quack-untuned": None, "foretrace": foretrace, "foretrace-module": foretrace + 7}
        timed = {name: {"host": {"median_us": us}} if us else {} for name, us in entrants.items()}
        return record(timed, k=256, n=512, **fields)

    linear = took(15.02, 18.0, operation="linear_act", bias=True)
    assert lines(tmp_path, host=[took(1040.0, 170.06, mode="train"), took(30.0, 20.0), linear]) == [
        "### gated MLP in bf16: host time of a call, µs",
        "",
        "|  | silu, 16 rows, 256 → 512, forward | silu, 16 rows, 256 → 512, forward and backward |",
        "| --- | --- | --- |",
        "| eager | 30.0 | 1,040.0 |",
        "| foretrace | 20.0 | 170.1 |",
        "| foretrace-module | 27.0 | 177.1 |",
        "",
        "### Linear + bias + activation in bf16: host time of a call, µs",
        "",
        "|  | silu, 16 rows, 256 → 512, forward |",
        "| --- | --- |",
        "| eager | 15.0 |",
        "| foretrace | 18.0 |",
        "| foretrace-module | 25.0 |",
    ]


def test_the_first_call_is_shown_in_seconds(tmp_path: Path) -> None:
    entrants = {"eager": {"first_call_s": 0.0021}, "compile": {"first_call_s": 21.348}, "liger": {"first_call_s": None}}
    assert lines(tmp_path, first_call=[record(entrants, mode="train")]) == [
        "### gated MLP in bf16: first call with empty caches, s",
        "",
        "|  | silu, 16 rows, 4,096 → 14,336, forward and backward |",
        "| --- | --- |",
        "| eager | 0.00 |",
        "| compile | 21.35 |",
    ]


def test_accuracy_is_shown_beside_eager_s(tmp_path: Path) -> None:
    """By type and operation; fast math may lack a derivative, and an error may be infinite."""

    def ulps(largest: float | str, mean: float | str, worse: int) -> dict[str, Any]:
        return {"largest": largest, "mean": mean, "worse_than_eager": worse}

    entrants = {
        "eager": {"value": ulps(255.6951, 0.7191, 0), "slope": ulps(0.5, 0.25, 0)},
        "compile": {"value": ulps(0.5, 0.25, 0)},
        "foretrace": {"value": ulps(0.5012, 0.2481, 12), "slope": ulps("infinite", "infinite", 1)},
        "foretrace-fast": {"value": ulps(2.0, 0.3, 65432), "missing": {"slope": "there is none"}},
    }
    sweep = record(entrants, mode="train", points=6_225_920)
    without_fast = record({"eager": entrants["eager"]}, mode="train", dtype="fp16", points=1024)
    assert lines(tmp_path, accuracy=[sweep, without_fast]) == [
        "### gated MLP in bf16: error in ulps at 6,225,920 points",
        "",
        "| activation | result | eager: largest | mean | foretrace: largest | mean | worse than eager at "
        "| foretrace-fast: largest | mean | worse than eager at |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| silu | value | 255.695 | 0.719 | 0.501 | 0.248 | 12 | 2.000 | 0.300 | 65,432 |",
        "| silu | slope | 0.500 | 0.250 | infinite | infinite | 1 |  |  |  |",
        "",
        "### gated MLP in fp16: error in ulps at 1,024 points",
        "",
        "| activation | result | eager: largest | mean |",
        "| --- | --- | --- | --- |",
        "| silu | value | 255.695 | 0.719 |",
        "| silu | slope | 0.500 | 0.250 |",
    ]


def test_a_grid_is_told_by_rows(tmp_path: Path) -> None:
    def case(rows: int, mode: str, gpu: float, wall: float | None) -> dict[str, Any]:
        beside = {"other": "compile", "ratio": ratio(gpu)}
        loop = None if wall is None else {"other": "eager", "ratio": ratio(wall)}
        name = f"gated_mlp silu ({rows}, 512, 1536) bf16 {mode}"
        return record({}, m=rows, mode=mode, name=name, against_best=beside, against_best_wall=loop)

    cases = [case(48, "forward", 0.9, None), case(3, "forward", 0.7, 0.5), case(12000, "train", 1.01, 0.8)]
    cases.append(case(3000, "train", 0.95, 0.9))
    shown = lines(tmp_path, held_out=cases)
    assert shown[0].startswith("### 4 gated MLPs of sizes that are in no table: time over that of the best of")
    assert shown[4:6] == [
        "| forward | 3 to 48 | 2 | 0.800 | 0.700 to 0.900 | 0.500 | 0.500 to 0.500 |",
        "| forward and backward | 3,000 to 12,000 | 2 | 0.980 | 0.950 to 1.010 | 0.850 | 0.800 to 0.900 |",
    ]
    assert shown[-1] == "The worst in GPU time is gated_mlp silu (12000, 512, 1536) bf16 train, against compile."


def test_a_grid_of_cases_that_were_not_timed_says_nothing_of_the_worst(tmp_path: Path) -> None:
    unknown = {"other": "eager", "ratio": None}
    fields = {"mode": "forward", "name": "a case", "against_best": None, "against_best_wall": unknown}
    shown = lines(tmp_path, held_out=[record({}, **fields), record({}, **{**fields, "against_best": unknown})])
    assert shown[4:] == ["| forward | 16 | 2 |  |  |  |  |"]
