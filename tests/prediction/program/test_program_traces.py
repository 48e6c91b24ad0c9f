"""Predicted programs beside traces captured on an H200: the same rows, the same kernels in the same order."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from programs import H200, Gated, rows, traced  # noqa: E402

from foretrace.knowledge.kernels import decode  # noqa: E402
from foretrace.prediction.program import trace_program  # noqa: E402
from foretrace.prediction.work import Program  # noqa: E402

TRACES = Path(__file__).parents[2] / "data" / "traces"
CPU = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
PRODUCTS = ("aten::mm", "aten::addmm")


def last_step(name: str) -> tuple[list[tuple[int, str]], list[tuple[str, str]]]:
    """The CPU rows of the last step with their depth, and operator and kind of what the GPU ran.

    What cuBLAS adds to a product (a memset on Hopper) is left out: a program has one item a product.
    """
    events = [e for e in json.loads(gzip.decompress((TRACES / name).read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    step = max((e for e in events if e["name"].startswith("ProfilerStep")), key=lambda e: e["ts"])
    launched = defaultdict(list)
    threads = defaultdict(list)
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            launched[event["args"]["correlation"]].append(event)
        elif event.get("cat") in CPU and event is not step and 0 <= event["ts"] - step["ts"] < step["dur"]:
            threads[event["tid"]].append(event)
    tree: list[tuple[int, str]] = []
    ran: list[tuple[float, str, str]] = []
    for tid in sorted(threads, key=lambda tid: min(e["ts"] for e in threads[tid])):
        stack: list[Any] = []
        for event in sorted(threads[tid], key=lambda e: (e["ts"], -e["dur"])):
            while stack and event["ts"] >= stack[-1]["ts"] + stack[-1]["dur"]:
                stack.pop()
            if not event["cat"].startswith("cuda"):
                tree.append((len(stack), event["name"]))
                stack.append(event)
                continue
            op = next((e["name"] for e in reversed(stack) if e["name"] != "aten::as_strided"), "")
            for row in launched.get(event["args"].get("correlation"), []):
                kind = {"gpu_memset": "memset", "gpu_memcpy": "memcpy"}.get(row["cat"])
                if not (kind == "memset" and op in PRODUCTS):
                    ran.append((row["ts"], op, kind or decode(row["name"], op=op).kind))
    return tree, [(op, kind) for _, op, kind in sorted(ran)]


def predicted(program: Program) -> list[tuple[str, str]]:
    return [(item.op, item.kind) for item in program.work()]


def matmul_add() -> Program:
    with torch.device("meta"):
        x, w, b = (torch.empty(s, dtype=torch.bfloat16) for s in ((1024, 32), (32, 64), (64,)))
    return trace_program(
        lambda x, w, b: torch.add(torch.matmul(x, w), b),
        (x, w, b),
        name="matmul-add",
        gpu=H200,
        annotation="matmul_add",
    )


def linear(variant: str) -> Program:
    return traced(lambda: torch.nn.Linear(32, 64), 1024, 32, variant=variant, annotation="linear_fwd")


def mlp(variant: str) -> Program:
    return traced(Gated, 64, 128, 768, variant=variant, annotation="mlp_fwd")


def training() -> Program:
    """The step of the trace: gradients are kept from the step before, and added to."""
    with torch.device("meta"):
        module = Gated().to(torch.bfloat16)
        x = torch.empty(64, 128, 768, dtype=torch.bfloat16, requires_grad=True)

    @torch.enable_grad()
    def step() -> None:
        with torch.profiler.record_function("mlp_train"):
            total = module(x).sum()
            total.backward()

    return trace_program(step, (), name="mlp-train", gpu=H200)


CASES = {
    "matmul_add_eager.json.gz": matmul_add,
    "linear_eager.json.gz": lambda: linear("eager"),
    "linear_compile.json.gz": lambda: linear("compile"),
    "mlp_eager.json.gz": lambda: mlp("eager"),
    "mlp_compile.json.gz": lambda: mlp("compile"),
    "mlp_train_eager.json.gz": training,
}


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_is_asked_for_the_same_in_the_same_order(name: str) -> None:
    assert predicted(CASES[name]()) == last_step(name)[1]


@pytest.mark.parametrize("name", ["matmul_add_eager.json.gz", "linear_eager.json.gz", "mlp_eager.json.gz"])
def test_the_rows_of_eager_code_are_the_same(name: str) -> None:
    assert [(depth, node.name) for depth, node in rows(CASES[name]())] == last_step(name)[0]


def test_the_rows_of_compiled_code_are_the_same_but_for_the_hash_of_the_graph() -> None:
    def plain(tree: list[tuple[int, str]]) -> list[tuple[int, str]]:
        return [(depth, "## Call ##" if name.startswith("## Call") else name) for depth, name in tree]

    assert plain([(d, node.name) for d, node in rows(mlp("compile"))]) == plain(last_step("mlp_compile.json.gz")[0])


def test_a_training_step_has_the_backward_nodes_of_the_trace() -> None:
    def nodes(names: list[str]) -> list[str]:
        return [name for name in names if name.startswith("autograd::engine::evaluate_function")]

    real = [name for _, name in last_step("mlp_train_eager.json.gz")[0]]
    assert nodes([node.name for _, node in rows(training())]) == nodes(real)
