"""Hold the predictor against recordings it was not fitted to.

    python benchmarks/predictor/evaluate.py DIRECTORY --set evaluation --gpu H200 --output results.json
    python benchmarks/predictor/evaluate.py --list-products products.json

Truth is what the profiler's rows say: GPU busy time a step and the rows of a step, each the median of the recorded
steps. Beside the prediction stands a roofline from the datasheet alone (the larger of FLOPs over peak rate and logical
bytes over memory bandwidth, kernel by kernel), on the same kernels. ``--list-products`` writes the matrix products of
the judged programs, which ``calibrate.py --without`` keeps out of the calibration.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from configurations import CALIBRATION, EVALUATION, Configuration

import foretrace
from foretrace.capture.workloads import WORKLOADS, build
from foretrace.model.report import Report

LARGEST = 3


def truth_of(report: Report) -> dict[str, Any]:
    """Medians over the steps; the rows are those of the step that is the median in busy time."""
    steps = sorted(report.steps, key=lambda step: step.gpu_busy_us or 0.0)
    middle = steps[len(steps) // 2]
    kernels = [k for k in report.kernels if k.step == middle.index]
    return {
        "gpu_busy_us": median(step.gpu_busy_us or 0.0 for step in steps),
        "kernels": middle.kernels,
        "memsets": middle.memsets,
        "memcpys": middle.memcpys,
        "rows": [[k.kind, k.op, k.name, k.duration_us] for k in kernels],
    }


@cache
def predict(configuration: Configuration, gpu: str, release: tuple[int, int]) -> Any:
    """The prediction for one configuration, made without a GPU."""
    import torch

    with torch.device("meta"):
        program = build(
            WORKLOADS[configuration.workload],
            configuration.flags,
            configuration.dtype,
            "meta",
            train=configuration.mode == "train",
        )
    return foretrace.predict(
        program.function,
        program.inputs,
        program.keywords,
        gpu=gpu,
        name=configuration.name,
        variant=configuration.variant,
        mode=configuration.mode,
        annotation=program.annotation,
        release=release,
    )


def judge(configuration: Configuration, trace: Path, gpu: str, release: tuple[int, int]) -> dict[str, Any]:
    """One line of the result."""
    truth = truth_of(foretrace.explain(trace))
    info = predict(configuration, gpu, release).info
    predicted = [row for row in info.rows if row.row == "kernel"]
    pairs = paired(predicted, truth["rows"])
    return {
        **configuration.as_dict(),
        "gpu_busy_us": truth["gpu_busy_us"],
        "predicted_us": info.gpu_busy_us,
        "low_us": info.gpu_busy_low_us,
        "high_us": info.gpu_busy_high_us,
        "error": info.gpu_busy_us / truth["gpu_busy_us"] - 1,
        "roofline_us": sum(row.floor_us or 0.0 for row in info.rows),
        "counts": {name: [getattr(info, name), truth[name]] for name in ("kernels", "memsets", "memcpys")},
        "largest": [[row.us, us] for row, us in pairs[:LARGEST]],
        "kernels_inside": [sum(row.low_us <= us <= row.high_us for row, us in pairs), len(pairs)],
        "rows": [[row.kind, row.name, round(row.us, 3)] for row in info.rows],
        "seen": truth["rows"],
    }


def paired(predicted: list[Any], seen: list[Any]) -> list[tuple[Any, float]]:
    """``(predicted row, measured µs)`` of each kernel, the longest first.

    Within a kind the order of launch decides; where a kind has other numbers, its kernels are not compared, which the
    count of kernels shows.
    """
    pairs: list[tuple[Any, float]] = []
    for kind in sorted({row[0] for row in seen}):
        mine = [row for row in predicted if row.kind == kind]
        theirs = [row[3] for row in seen if row[0] == kind]
        if len(mine) == len(theirs):
            pairs += zip(mine, theirs, strict=True)
    return sorted(pairs, key=lambda pair: -pair[1])


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of the README, from the lines."""
    errors = [abs(line["error"]) for line in results]
    kernels = [abs(a / b - 1) for line in results for a, b in line["largest"]]
    roofline = [abs(line["roofline_us"] / line["gpu_busy_us"] - 1) for line in results]
    right = [line["counts"]["kernels"][0] == line["counts"]["kernels"][1] for line in results]
    sets = [line["counts"]["memsets"][0] == line["counts"]["memsets"][1] for line in results]
    held, compared = (sum(line["kernels_inside"][which] for line in results) for which in (0, 1))
    inside = [line["low_us"] <= line["gpu_busy_us"] <= line["high_us"] for line in results]
    return {
        "configurations": len(results),
        "median_error": median(errors),
        "worst_error": max(errors),
        "median_error_of_three_largest_kernels": median(kernels),
        "kernel_counts_right": sum(right) / len(right),
        "memset_counts_right": sum(sets) / len(sets),
        "inside_interval": sum(inside) / len(inside),
        "kernels_inside_interval": held / compared,
        "roofline_median_error": median(roofline),
        "roofline_worst_error": max(roofline),
    }


# Figure → its line in the tables of README and documentation, and how it is spelt there.
TOLD = {
    "median_error": ("GPU time of a step: median error", ".1%"),
    "worst_error": ("GPU time of a step: worst error", ".1%"),
    "median_error_of_three_largest_kernels": ("three largest kernels of each step: median error", ".1%"),
    "kernel_counts_right": ("programs whose number of kernels is exactly right", ".0%"),
    "memset_counts_right": ("programs whose number of memsets is exactly right", ".0%"),
    "inside_interval": ("measured steps inside the predicted interval", ".0%"),
    "kernels_inside_interval": ("measured kernels inside their intervals", ".0%"),
    "roofline_median_error": ("a roofline from the datasheet alone: median error", ".1%"),
    "roofline_worst_error": ("a roofline from the datasheet alone: worst error", ".1%"),
}


def table(figures: dict[str, Any]) -> str:
    """The lines of the tables in ``benchmarks/predictor/README.md`` and ``docs/concepts/prediction.md``."""
    told = ((words, format(figures[name], spelling)) for name, (words, spelling) in TOLD.items())
    return "\n".join(f"| {words} | {value.replace('%', ' %')} |" for words, value in told)


def products(gpu: str = "H200", release: tuple[int, int] = (2, 11)) -> set[tuple[int, int, int, int, str, str]]:
    """Every matrix product of the judged programs: m, n, k, batch, element type and layout."""
    found = set()
    for configuration in EVALUATION:
        for work in predict(configuration, gpu, release).program.work():
            if (p := work.product) is not None:
                found.add((p.m, p.n, p.k, p.batch, work.dtype, p.layout))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--set", choices=("calibration", "evaluation"), default="evaluation", dest="which")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--list-products", type=Path)
    args = parser.parse_args()
    if args.list_products is not None:
        args.list_products.write_text(json.dumps(sorted(products())) + "\n")
        return
    results = []
    machine = json.loads((args.directory / "machine.json").read_text())
    major, minor = machine["torch"].split(".")[:2]
    for configuration in EVALUATION if args.which == "evaluation" else CALIBRATION:
        line = judge(
            configuration, args.directory / f"{configuration.name}.trace.json.gz", args.gpu, (int(major), int(minor))
        )
        results.append(line)
        counts = " ".join(f"{a}/{b}" for a, b in line["counts"].values())
        print(f"{line['error']:+7.1%}  {line['gpu_busy_us']:9.1f} us  {counts:12}  {configuration.name}", flush=True)
    figures = summary(results)
    print(json.dumps(figures, indent=1))
    print(table(figures))
    if args.output is not None:
        document = {"machine": machine, "summary": figures, "results": results}
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
