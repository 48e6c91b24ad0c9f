"""Built-in workloads and factories of users, made on the meta device though they ask for a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from programs import H200  # noqa: E402

from foretrace.capture.usercode import load_factory, make_program  # noqa: E402
from foretrace.capture.workloads import WORKLOADS, build  # noqa: E402
from foretrace.prediction.program import meta_target, trace_program  # noqa: E402


@pytest.mark.parametrize(("name", "kernels"), [("matmul-add", 2), ("linear", 1), ("mlp", 5)])
def test_the_built_in_workloads_take_no_memory(name: str, kernels: int) -> None:
    workload = WORKLOADS[name]
    large = dict.fromkeys(workload.defaults, 4096)
    made = meta_target(lambda: build(workload, large, "bf16", "meta", train=False))
    program = trace_program(made.function, made.inputs, made.keywords, name=name, gpu=H200, annotation=made.annotation)
    assert len(program.work()) == kernels
    assert program.roots[0].name == workload.annotation
    assert program.roots[0].annotation


@pytest.mark.parametrize(
    "body",
    [
        "m = torch.nn.Linear(64, 64).to('cuda', torch.bfloat16); x = torch.randn(8, 64, device='cuda:0').bfloat16()",
        "m = torch.nn.Linear(64, 64).cuda().bfloat16(); x = torch.randn(8, 64).cuda().bfloat16()",
        "d = torch.device('cuda'); m = torch.nn.Linear(64, 64, device=d).bfloat16(); x = torch.ones(8, 64).to(m.bias)",
    ],
)
def test_a_factory_may_ask_for_a_gpu(tmp_path: Path, body: str) -> None:
    file = tmp_path / "factory.py"
    file.write_text(f"import torch\ndef make():\n    {body}\n    return m, (x,)\n")
    factory = load_factory(f"{file}:make")
    made = meta_target(lambda: make_program("factory.py:make", factory, {}, "meta", train=False))
    (gemm,) = trace_program(made.function, made.inputs, made.keywords, name="make", gpu=H200).work()
    assert (gemm.op, gemm.dtype) == ("aten::addmm", "bf16")
