"""A damaged recording against the whole one: never a traceback, and every row in one place."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from foretrace import compare
from foretrace.trace.load import parse

TRACES = Path(__file__).parents[1] / "data" / "traces"
CATEGORIES = ("kernel", "cpu_op", "cuda_runtime", "user_annotation", "gpu_memcpy", "gpu_memset")


def drop_some(event, dice):
    return event if dice.random() < 0.7 else None


def no_shapes(event, dice):
    kept = {k: v for k, v in event.get("args", {}).items() if not k.startswith("Input")}
    return {**event, "args": kept} if "args" in event else event


def renamed(event, dice):
    other = event.get("cat") == "kernel" and dice.random() < 0.5
    return {**event, "name": f"kernel_{dice.randrange(9)}"} if other else event


def no_steps(event, dice):
    return None if str(event.get("name")).startswith("ProfilerStep") else event


def other_category(event, dice):
    return {**event, "cat": dice.choice(CATEGORIES)} if "cat" in event and dice.random() < 0.1 else event


def without(category):
    def change(event, dice):
        return None if event.get("cat") == category else event

    return change


@pytest.mark.parametrize(
    "change",
    [drop_some, no_shapes, renamed, no_steps, other_category, *(without(category) for category in CATEGORIES)],
)
@pytest.mark.parametrize("name", ["mlp_train_eager", "mlp_cudagraph", "mlp_compile"])
def test_a_mutilated_recording_is_compared(name, change):
    dice = random.Random(name)
    whole = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    events = [kept for event in whole["traceEvents"] if (kept := change(event, dice)) is not None]
    traces = [parse(json.dumps(document).encode()) for document in (whole, {**whole, "traceEvents": events})]
    for both in (traces, traces[::-1]):
        (pair,) = compare(both).pairs
        for counted, rows in (("a_kernels", "a"), ("b_kernels", "b")):
            kernels = sum(
                p.count * sum(row.kind not in ("memcpy", "memset") for row in getattr(p, rows)) for p in pair.places
            )
            assert kernels == sum(getattr(c, counted) for c in pair.categories)


def test_without_shapes_the_story_is_the_same_but_for_the_bytes():
    whole = json.loads(gzip.decompress((TRACES / "mlp_compile.json.gz").read_bytes()))
    bare = {**whole, "traceEvents": [no_shapes(event, None) for event in whole["traceEvents"]]}
    eager = parse(gzip.decompress((TRACES / "mlp_eager.json.gz").read_bytes()))
    (pair,) = compare([eager, parse(json.dumps(bare).encode())]).pairs
    assert {c.category: (c.a_kernels, c.b_kernels) for c in pair.categories} == {"identical": (3, 3), "fused": (2, 1)}
    assert pair.related
    assert pair.bytes_vanished is None
    assert pair.same_work is None
