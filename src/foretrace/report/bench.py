"""A bench as text: one table of the variants, a few sentences in plain words, and the sweep where there is one."""

from __future__ import annotations

from foretrace.model.bench import Bench, Result, ShapeResult, Sweep
from foretrace.model.words import UNKNOWN, bytes_of, count, flop, listed, number, scale_of_times, share_of, time
from foretrace.report.ink import finished
from foretrace.report.table import Cell, Column, table
from foretrace.report.text import Line, Span, line, wrap
from foretrace.report.view import View

__all__ = ["render_bench"]

_STYLES = {"ok": "good", "wrong": "bad", "unchecked": "suspect", "failed": "suspect"}


def render_bench(bench: Bench, view: View | None = None) -> str:
    """The bench as text that ends in a newline, at most ``view.width`` wide."""
    view = view or View()
    content: list[Line] = [_title(bench), [], *_variants(bench, view.width), []]
    for sentence in _sentences(bench):
        content += [line(piece) for piece in wrap(sentence, view.width)]
    content += [
        line(Span(piece, "suspect"))
        for warning in [*_failures(bench.variants), *bench.warnings]
        for piece in wrap(warning, view.width)
    ]
    if bench.sweep is not None:
        content += [[], *_sweep(bench.sweep, view.width)]
    return finished(content, view)


def _title(bench: Bench) -> Line:
    sizes = " ".join(f"{name} {value}" for name, value in bench.parameters.items())
    device = next((gpu.name for gpu in bench.gpus if gpu.name), None) if bench.device != "cpu" else bench.machine.cpu
    parts = [bench.workload, sizes, bench.mode, count(bench.rounds, "round"), device or bench.device]
    return line(Span(" · ".join(part for part in parts if part), "title"))


def _variants(bench: Bench, width: int) -> list[Line]:
    divisor, unit = scale_of_times([result.median_us for result in bench.variants])
    # A time of a CPU says little about another one.
    where = " here" if bench.device == "cpu" else ""
    columns = [
        Column("variant", left=True, least=16, keep=9, cut="middle"),
        Column(f"median\n{unit}{where}", keep=9),
        Column("95 %\ninterval", keep=6),
        Column("vs first", keep=8),
        Column("× floor", keep=7),
        Column("peak\nmemory", keep=5),
        Column("error", keep=6),
        Column("compile\ntime", keep=4),
        Column("pays\nafter", keep=5),
        Column("results", left=True, keep=9),
    ]
    return table(columns, [_row(result, divisor) for result in bench.variants], width)


def _row(result: Result, divisor: float) -> list[Cell]:
    def scaled(value: float | None) -> str:
        return number(None if value is None else value / divisor)

    interval = UNKNOWN
    if result.interval_us is not None:
        interval = f"{scaled(result.interval_us[0])}–{scaled(result.interval_us[1])}"
    pays = result.pays_after
    after = UNKNOWN
    if pays is not None and pays.state != "unknown":
        after = "never" if pays.state == "never" else number(pays.calls)
    return [
        result.name,
        scaled(result.median_us),
        interval,
        _against_first(result),
        number(result.of_floor),
        bytes_of(result.peak_memory_bytes),
        f"{result.check.relative_error:.1e}" if result.check and result.check.relative_error is not None else UNKNOWN,
        time(result.setup_us),
        after,
        Span({"ok": "right"}.get(result.state, result.state), _STYLES[result.state]),
    ]


def _against_first(result: Result) -> str:
    if result.difference == "first":
        return "first"
    if result.ratio is None:
        return UNKNOWN
    return "same" if result.difference == "none" else f"{number(result.ratio.median)}×"


def _sentences(bench: Bench) -> list[str]:
    first, *others = bench.variants
    said = [_difference(result, first, bench.compiler_start_us) for result in others if result.ratio is not None]
    if bench.device == "cpu":
        said.append("The times are those of this CPU and say nothing about another machine.")
    said.append(_floor(bench))
    said.append(f"L2 cache {'emptied before each call' if bench.flush.on else 'not emptied'}: {bench.flush.reason}.")
    if bench.compiler_start_us is not None and any(result.setup_us is not None for result in bench.variants):
        ready = time(bench.compiler_start_us)
        said.append(f"Compile times are with empty caches; before them the compiler took {ready} to get ready, once.")
    for result in bench.variants:
        if (result.graphs_compiled or 0) > 1 and not result.cuda_graph:
            said.append(
                f"{result.name} became {result.graphs_compiled} graphs: its code breaks between them or was compiled "
                "again (TORCH_LOGS=graph_breaks,recompiles says where and why)."
            )
    unchecked = [result for result in bench.variants if result.state == "unchecked"]
    if unchecked:
        said.append(f"Results were not checked: {unchecked[0].reason}.")
    return said


def _difference(result: Result, first: Result, start_us: float | None) -> str:
    ratio, pays = result.ratio, result.pays_after
    assert ratio is not None
    if ratio.low is None or ratio.high is None:
        return (
            f"{result.name} takes {number(ratio.median)} times as long as {first.name}, but whether that is a "
            f"difference is unknown: {result.missing.get('ratio.low', 'there is no interval')}."
        )
    spread = f"{number(ratio.low)} to {number(ratio.high)}"
    if result.difference == "none":
        found = f"No difference between {result.name} and {first.name} was found: the ratio of times is {spread}"
        return f"{found}." if ratio.low <= 1 <= ratio.high else f"{found}, as close as two equal programs come."
    text = f"{result.name} is {result.difference} than {first.name}: {number(ratio.median)} times its time ({spread})"
    if pays is None or pays.state != "after" or pays.calls is None:
        return f"{text}, so compiling never pays." if pays is not None and pays.state == "never" else f"{text}."
    won_back = count(pays.calls, "call")
    start = f", without the {time(start_us)} in which the compiler gets ready once" if start_us is not None else ""
    return f"{text}; the {time(result.setup_us)} spent before the first fast call are won back after {won_back}{start}."


def _floor(bench: Bench) -> str:
    work, limits = bench.work, bench.limits
    rates = [f"{number(max(rate.tflops, rate.end_tflops or 0.0))} TFLOP/s {rate.dtype} GEMM" for rate in limits.gemm]
    if limits.copy is not None:
        rates.append(f"{number(max(limits.copy.gbps, limits.copy.end_gbps or 0.0))} GB/s copy")
    if work.floor_us is None:
        return f"There is no floor to hold the times against: {work.missing.get('floor_us', 'it was not measured')}."
    total = None if work.bytes_read is None or work.bytes_written is None else work.bytes_read + work.bytes_written
    amount = flop(work.flops) if work.flops is not None else "no counted FLOPs"
    timed = [r for r in bench.variants if r.of_floor is not None and r.state != "wrong"]
    text = (
        f"This device measured {listed(rates)}; {amount} and at least {bytes_of(total)} take {time(work.floor_us)} "
        f"at that rate (bound by {work.floor_by})"
    )
    if not timed:
        return f"{text}."
    best = min(timed, key=lambda result: result.of_floor or 0.0)
    if best.of_floor is not None and best.of_floor < 1:
        return f"{text}; {best.name} is below that: caches served part of the bytes, or a smaller product runs faster."
    return f"{text}; {best.name} comes closest, at {share_of(1 / (best.of_floor or 1.0))} of what is possible."


def _failures(results: list[Result]) -> list[str]:
    said = [f"{result.name} failed: {result.reason}" for result in results if result.state == "failed"]
    return said + [f"{result.name} is wrong: {result.reason}" for result in results if result.state == "wrong"]


def _sweep(sweep: Sweep, width: int) -> list[Line]:
    names = [total.variant for total in sweep.totals if total.reason is None]
    found = {(row.variant, *row.parameters.values()): row for row in sweep.shapes}
    shapes = list(dict.fromkeys(tuple(row.parameters.values()) for row in sweep.shapes))
    divisor, unit = scale_of_times([row.median_us for row in sweep.shapes])
    columns = [Column(axis, keep=9) for axis in sweep.axes]
    for name in names:
        columns += [Column(f"{name}\n{unit}", keep=8), Column("compiles", keep=7), Column("first\ncall", keep=4)]
    rows = [
        [*map(str, shape), *(cell for name in names for cell in _cells(found.get((name, *shape)), divisor))]
        for shape in shapes
    ]
    content = [line(Span("SHAPES, each variant by itself", "section")), *table(columns, rows, width)]
    for total in sweep.totals:
        if total.reason is not None:
            sentence = f"{total.variant} failed: {total.reason}"
        elif total.compiles is None:
            continue
        else:
            sentence = f"{total.variant}: {count(len(shapes), 'shape')} took {count(total.compiles, 'compile')}"
            sentence += f" ({time(total.setup_us)} in first calls)."
        content += [line(piece) for note in [sentence, *total.notes] for piece in wrap(note, width)]
    return content


def _cells(row: ShapeResult | None, divisor: float) -> list[str]:
    if row is None:
        return [UNKNOWN] * 3
    return [
        number(None if row.median_us is None else row.median_us / divisor),
        number(row.compiles),
        time(row.first_call_us),
    ]
