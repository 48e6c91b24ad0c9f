"""From measurements to the tuned table that dispatch ships with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fused_bench.case import Case
from fused_bench.ours import problem_of

__all__ = ["costs_of", "write_tuned_table"]

_CASE = ("operation", "m", "k", "n", "activation", "mode", "dtype", "bias")
# Suites whose cases are timed one by one; decode times chains, which is the better figure for few rows.
_SUITES = ("never-slower", "mlp", "train", "linear", "decode")

# What the time of a choice that computes hidden again counts.
_RECOMPUTED = 1.03


def write_tuned_table(results: Iterable[dict[str, Any]], path: Path) -> int:
    """Write every case of these result documents that has several forced choices; returns how many. Later ones win.

    Median GPU µs (graph replay; events where a choice could not be captured are not comparable and left out).
    Raises ``ValueError`` when no document was measured on a GPU, or when they were on different ones.
    """
    from foretrace.fused.dispatch.tables import write_table

    documents = list(results)
    devices = {str((document["machine"]["gpu"] or {}).get("name", "no GPU")) for document in documents}
    if len(devices) != 1 or "no GPU" in devices:
        raise ValueError(f"a tuned table is of one GPU, these results are of {', '.join(sorted(devices))}")
    architecture = {document["machine"]["architecture"] for document in documents}.pop()
    packages = documents[-1]["machine"]["packages"]
    versions = {name: packages[name] for name in ("torch", "triton") if packages.get(name)}
    measured = [
        (problem_of(Case(**{key: record[key] for key in _CASE}), architecture), costs)
        for document in documents
        for record, costs in _records(document)
    ]
    write_table(path, architecture, devices.pop(), versions, measured)
    return len(measured)


def costs_of(record: dict[str, Any]) -> dict[str, float]:
    """Choice, in the words of dispatch, and its median µs; one for each set of implementations, the best of its kind.

    That is the fastest of those that differ in options alone. Recomputing hidden takes the host more calls: it has to
    be faster by more than a few percent. What is all PyTorch's own costs what eager takes, which is what then runs; the
    forced entrant of that name runs our autograd function with PyTorch's operators in it.
    """
    from foretrace.fused.dispatch.choice import parse_choice

    best: dict[tuple[str, ...], tuple[float, str, float]] = {}
    for name, result in record["entrants"].items():
        if name.startswith("expand=") and result["state"] == "ok" and result.get("graph"):
            choice = parse_choice(name)
            cost = float(_run_as(choice, record, result)["graph"]["median_us"])
            label = choice.label(record["operation"], record["mode"] == "train")
            names = (choice.expand.name, choice.project.name, choice.backward.name)
            found = (cost * (_RECOMPUTED if choice.save == "recompute" else 1.0), label, cost)
            best[names] = min(found, best.get(names, found))
    return {label: cost for _, label, cost in best.values()}


def _run_as(choice: Any, record: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The result of what dispatch runs for a choice."""
    eager = record["entrants"].get("eager")
    plain = choice.expand.name == choice.project.name == choice.backward.name == "plain" and choice.save == "preact"
    return eager if plain and eager is not None and eager.get("graph") else result


def _records(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    for suite in _SUITES:
        for record in document["suites"].get(suite, ()):
            costs = costs_of(record)
            if len(costs) > 1:  # one alone was compared with nothing
                yield record, costs
