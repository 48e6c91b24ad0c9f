"""The gradient of a weight from few rows: a pass over memory, and what comes on top."""

from __future__ import annotations

import pytest

from foretrace.knowledge.gpus import find
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.knowledge.kernels import decode
from foretrace.prediction.clock import schedule
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Access, Operator, Product, Program, Work
from prediction.programs import H200

# On an H200, operands in memory: rows of the result, columns, and µs from 1, 16 and 32 rows.
MEASURED = [
    (16384, 2048, (18.0, 20.7, 23.1)),
    (2048, 8192, (10.3, 11.9, 13.0)),
    (11264, 2048, (13.4, 15.0, 19.1)),
    (28672, 4096, (53.9, 58.8, 66.6)),
    (1536, 512, (1.7, 2.2, 2.3)),
]


def gradient(rows: int, n: int, k: int, gpu: Gpu = H200) -> Planned:
    work = Work(
        kind="gemm",
        op="foretrace::weight_gradient",
        dtype="bf16",
        reads=(Access(1, 2 * rows * n), Access(2, 2 * rows * k)),
        writes=(Access(3, 2 * n * k),),
        elements=n * k,
        flops=2 * n * k * rows,
        product=Product(n, k, rows, 1, "NT"),
    )
    ((row,),) = schedule(Program("p", [Operator(work.op, work=[work])], "eager", "train", {}), gpu)
    return row


@pytest.mark.parametrize(("n", "k", "measured"), MEASURED)
def test_it_takes_as_long_as_was_measured(n: int, k: int, measured: tuple[float, ...]) -> None:
    for rows, us in zip((1, 16, 32), measured, strict=True):
        assert gradient(rows, n, k).us == pytest.approx(us, rel=0.17)


def test_it_is_one_product_of_a_kernel_s_name() -> None:
    row = gradient(16, 1536, 512)
    decoded = decode(row.name).decoded
    assert (row.kind, decoded["ops"], decoded["layout"]) == ("gemm", ["mm"], "NT")
    assert (row.flops, row.bytes) == (2 * 16 * 1536 * 512, 2 * (16 * (1536 + 512) + 1536 * 512))


def test_rows_are_multiplied_by_sixteens_unless_there_is_one() -> None:
    one, two, sixteen, more = (gradient(rows, 16384, 2048).us for rows in (1, 2, 16, 17))
    assert one < two
    assert two == pytest.approx(sixteen, rel=0.03)
    assert more > 1.1 * sixteen


def test_elsewhere_it_scales_with_the_bandwidth() -> None:
    a100 = find("A100")
    assert a100 is not None
    there, here = gradient(1, 16384, 2048, a100), gradient(1, 16384, 2048)
    assert there.us / here.us == pytest.approx(4800 / 2039, rel=0.1)
    assert there.high_us / there.us > here.high_us / here.us
