"""Programs written by hand and a clock that needs no calibration: the predictor's outside, without its inside."""

from __future__ import annotations

from foretrace.knowledge.gpus import Gpu, find, peak_for
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Access, Operator, Product, Program, Tensor, Work

H200 = find("H200")
assert H200 is not None

_ROWS = 64 * 128


def tensor(*shape: int, storage: int, strides: tuple[int, ...] | None = None, dtype: str = "bf16") -> Tensor:
    """A tensor, contiguous unless ``strides`` says otherwise."""
    if strides is None:
        steps = [1]
        for size in shape[:0:-1]:
            steps.append(steps[-1] * size)
        strides = tuple(reversed(steps))
    return Tensor(shape, strides, dtype, storage)


def linear(x: int, weight: int, out: int, k: int, n: int) -> Operator:
    """``nn.Linear`` without bias in bf16 on ``[64, 128, k]``, as eager PyTorch dispatches it."""
    w = tensor(n, k, storage=weight)
    transposed = tensor(k, n, storage=weight, strides=(1, k))
    flat = tensor(_ROWS, k, storage=x)
    batched = tensor(64, 128, k, storage=x)
    product = Work(
        kind="gemm",
        op="aten::mm",
        dtype="bf16",
        reads=(Access(x, 2 * _ROWS * k), Access(weight, 2 * n * k)),
        writes=(Access(out, 2 * _ROWS * n),),
        elements=_ROWS * n,
        flops=2 * _ROWS * n * k,
        product=Product(_ROWS, n, k, 1, "TN"),
    )
    strided = Operator("aten::as_strided", (w, None, None, None))
    transpose = Operator("aten::transpose", (w, None, None), [strided])
    view = Operator("aten::view", (batched, None))
    matmul = Operator(
        "aten::matmul",
        (batched, transposed),
        [
            Operator("aten::reshape", (batched, None), [view]),
            Operator("aten::mm", (flat, transposed), work=[product]),
            Operator("aten::_unsafe_view", (tensor(_ROWS, n, storage=out), None)),
        ],
    )
    return Operator("aten::linear", (batched, w, None), [Operator("aten::t", (w,), [transpose]), matmul])


def pointwise(name: str, inputs: tuple[Tensor, ...], out: int) -> Operator:
    """A pointwise operator in bf16 on tensors of one shape."""
    elements = 1
    for size in inputs[0].shape:
        elements *= size
    work = Work(
        kind="elementwise",
        op=name,
        dtype="bf16",
        reads=tuple(Access(one.storage, 2 * elements) for one in inputs),
        writes=(Access(out, 2 * elements),),
        elements=elements,
        parts=(name.removeprefix("aten::"),),
    )
    operands = inputs if len(inputs) > 1 else (*inputs, None)
    return Operator(name, operands, work=[work])


def geglu(**changes: object) -> Program:
    """The built-in workload ``mlp`` with its defaults, eager, forward: three products and two pointwise kernels."""
    gated, up = tensor(64, 128, 3072, storage=4), tensor(64, 128, 3072, storage=6)
    forward = Operator(
        "mlp_fwd",
        children=[
            linear(0, 1, 4, 768, 3072),
            pointwise("aten::gelu", (gated,), 5),
            linear(0, 2, 6, 768, 3072),
            pointwise("aten::mul", (tensor(64, 128, 3072, storage=5), up), 7),
            linear(7, 3, 8, 3072, 768),
        ],
        annotation=True,
    )
    fields: dict[str, object] = {
        "name": "mlp",
        "roots": [forward],
        "variant": "eager",
        "mode": "forward",
        "persistent": {0: 2 * _ROWS * 768, 1: 2 * 768 * 3072, 2: 2 * 768 * 3072, 3: 2 * 768 * 3072},
    }
    return Program(**(fields | changes))  # type: ignore[arg-type]


class Roofline:
    """A clock: each item of work is one kernel at the rates of the datasheet, 10 % either way.

    With ``memset`` a product comes with one of 4 bytes, as some of cuBLAS's do on Hopper.
    """

    def __init__(self, *, host_us: float = 3.0, launch_us: float = 2.0, memset: bool = False) -> None:
        self._host_us = host_us
        self._launch_us = launch_us
        self._memset = memset

    def schedule(self, program: Program, gpu: Gpu) -> list[list[Planned]]:
        """One kernel an item."""
        return [self._rows(work, gpu) for work in program.work()]

    def host_us(self, _operator: Operator) -> float:
        """The same for every operator."""
        return self._host_us

    def launch_us(self, _gpu: Gpu) -> float:
        """The same on every GPU."""
        return self._launch_us

    def _rows(self, work: Work, gpu: Gpu) -> list[Planned]:
        moved = sum(access.bytes for access in (*work.reads, *work.writes))
        us = moved / gpu.memory_bandwidth_gbps / 1e3
        if work.flops:
            rate = peak_for(gpu, work.dtype, True)
            assert rate is not None
            us = max(us, work.flops / rate[0] / 1e6)
        low, high = 0.9 * us, 1.1 * us
        if work.kind in ("memset", "memcpy"):
            name = "Memset (Device)" if work.kind == "memset" else "Memcpy DtoD (Device -> Device)"
            return [Planned(work.kind, name, work.kind, us, low, high, None, moved, None, "measured")]
        layout = work.product.layout if work.product else None
        name = work.op if work.generated else spell(work.kind, dtype=work.dtype, layout=layout, ops=work.parts)
        kernel = Planned("kernel", name, work.kind, us, low, high, work.flops, moved, (132, 1, 1), "datasheet roofline")
        if self._memset and work.product is not None:
            fill = Planned("memset", "Memset (Device)", "memset", 0.8, 0.7, 0.9, None, 4, None, "measured")
            return [fill, kernel]
        return [kernel]
