"""Four times the rows must not cost sixteen times the time."""

from time import process_time

import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, MM, Call, program
from foretrace import explain
from foretrace.comparison.compare import read_subject
from foretrace.comparison.kinship import kinship
from foretrace.comparison.places import align_steps, folded


def one_long_step(n: int) -> tuple[TraceBuilder, TraceBuilder]:
    return program(EAGER * n, steps=1), program(COMPILED * n, steps=1)


def nothing_in_common(n: int) -> tuple[TraceBuilder, TraceBuilder]:
    renamed = [[call.renamed(f"k{i}_{s}") for i, call in enumerate(EAGER * n)] for s in range(2)]
    return program(renamed[0], steps=1, shapes=False), program(renamed[1][::-1], steps=1, shapes=False)


def products_joined(n: int) -> tuple[TraceBuilder, TraceBuilder]:
    def product(width: int) -> Call:
        return Call("aten::mm", MM, 50.0, ((64, 32), (32, width)), within="aten::linear")

    attend = Call("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<64, 128>(params)", 6.0)
    apart, together = [*map(product, (64, 16, 16)), attend], [product(96), attend]
    return program(apart * n, steps=1), program(together * n, steps=1)


@pytest.mark.parametrize("build", [one_long_step, nothing_in_common, products_joined])
def test_four_times_the_rows_cost_about_four_times_the_time(build):
    def seconds(n: int) -> float:
        a, b = (read_subject(side.trace()) for side in build(n))
        begin = process_time()
        alignment = align_steps(a.items, b.items)
        folded(alignment)
        kinship(a, b, alignment)
        return process_time() - begin

    seconds(5)  # imports and tables
    small = min(seconds(50) for _ in range(2))
    # The least of two, as of the small ones: a collection of garbage that other tests left falls into one of them.
    assert min(seconds(200) for _ in range(2)) < 9 * small + 0.3


def test_reading_for_a_comparison_costs_little_more_than_explaining():
    build = program(EAGER * 10, steps=60)
    trace = build.trace()
    begin = process_time()
    explain(trace)
    explained = process_time() - begin
    trace = build.trace()
    begin = process_time()
    read_subject(trace)
    assert process_time() - begin < 1.6 * explained + 0.2
