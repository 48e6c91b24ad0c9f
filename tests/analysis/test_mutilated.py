"""Whatever is missing from a recording, explaining it ends in a report, never in a traceback."""

from __future__ import annotations

import gzip
import json
import random
from functools import lru_cache
from pathlib import Path

import pytest

from foretrace import explain
from foretrace.trace.load import parse

TRACES = Path(__file__).parents[1] / "data" / "traces"
NAMES = ("mlp_train_eager", "mlp_cudagraph", "mlp_compile", "matmul_add_eager")
CATEGORIES = ("kernel", "cpu_op", "cuda_runtime", "overhead", "user_annotation", "gpu_memcpy", "python_function")


@lru_cache
def document(name: str):
    return json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))


def drop(event, dice):
    return event if dice.random() < 0.5 else None


def drop_args(event, dice):
    return {k: v for k, v in event.items() if k != "args" or dice.random() < 0.5}


def change_category(event, dice):
    return {**event, "cat": dice.choice(CATEGORIES)} if dice.random() < 0.2 and "cat" in event else event


def no_time(event, dice):
    return {**event, "dur": 0} if dice.random() < 0.4 and "dur" in event else event


def no_steps(event, dice):
    return None if str(event.get("name")).startswith("ProfilerStep") else event


def no_calls(event, dice):
    return None if event.get("cat") in ("cuda_runtime", "cuda_driver") else event


def no_gpu(event, dice):
    return None if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") else event


def no_operators(event, dice):
    return None if event.get("cat") == "cpu_op" else event


@pytest.mark.parametrize(
    "change", [drop, drop_args, change_category, no_time, no_steps, no_calls, no_gpu, no_operators]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_mutilated_recording_is_explained(name, change):
    dice = random.Random(f"{name} {change.__name__}")
    whole = document(name)
    for _ in range(3):
        events = [changed for event in whole["traceEvents"] if (changed := change(event, dice)) is not None]
        trace = parse(json.dumps({**whole, "traceEvents": events}).encode())
        report = explain(trace)
        assert report.steps
        for finding in report.findings:
            assert "{" not in finding.title + finding.explanation
        explain(trace, steps=[0])
