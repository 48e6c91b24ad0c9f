"""Where the numbers come from and whether they may be trusted: title, alarms, health, footer."""

from __future__ import annotations

from pathlib import PurePath

from foretrace.model.report import Coverage, Report, TraceInfo
from foretrace.model.words import count, listed, number, share_of, time
from foretrace.report.text import Line, Span, cut, line, width_of, wrap
from foretrace.report.view import SECTIONS, View

__all__ = ["alarm_words", "alarms", "footer", "health", "paragraph", "title", "unprofiled"]

# How an alarm begins, by the outcome of the check that raises it.
_LEADS = {"bad": "DO NOT TRUST", "suspect": "SUSPECT"}
# what `has` says was not recorded → what it would give, and how torch.profiler.profile records it
_RECORD = {
    "shapes": ("M·K·N, FLOPs, bytes", "record_shapes=True"),
    "stacks": ("source lines", "with_stack=True"),
    "memory": ("allocations", "profile_memory=True"),
}


def paragraph(
    text: str, width: int, *, lead: Span | str = "", indent: int = 2, style: str = "", hang: int | None = None
) -> list[Line]:
    """Wrapped text after a lead; further lines start under the text (or ``hang`` cells in)."""
    lead = lead if isinstance(lead, Span) else Span(lead)
    first = indent + width_of(lead.text)
    rest = first if hang is None else hang
    room = max(10, width - max(first, rest))
    pieces = wrap(text, room)
    lines = [line(" " * indent, lead, Span(pieces[0], style))]
    return lines + [line(" " * rest, Span(piece, style)) for piece in pieces[1:]]


def title(report: Report, view: View) -> list[Line]:
    """The file, the machine, and what was captured."""
    trace = report.trace
    name = PurePath(trace.path).name if trace.path != "-" else "standard input"
    facts = [_gpus(trace)]
    if trace.torch_version or not trace.predicted:
        facts.append(f"torch {trace.torch_version}" if trace.torch_version else "torch version unknown")
    if trace.rank is not None:
        facts.append(f"rank {trace.rank}")
    facts.append(_steps(report))
    if trace.predicted:
        facts.insert(0, "PREDICTED, not measured")
    else:
        facts.append(_captured(trace))
    head = line(Span("foretrace", "dim"), "  ", Span(cut(name, view.width - 11, "middle"), "title"))
    return [head, *paragraph(" · ".join(facts), view.width, indent=0)]


def _gpus(trace: TraceInfo) -> str:
    if not trace.has.gpu:
        return "CPU only" if not trace.gpus else f"no GPU work ({_named_gpus(trace)} present)"
    return _named_gpus(trace)


def _named_gpus(trace: TraceInfo) -> str:
    names: dict[str, int] = {}
    for gpu in trace.gpus:
        name = gpu.name or "GPU of unknown model"
        names[name] = names.get(name, 0) + 1
    if not names:
        return "GPU of unknown model"
    return listed(f"{many} × {name}" if many > 1 else name for name, many in names.items())


def _steps(report: Report) -> str:
    if len(report.steps) == 1 and not _is_profiler_step(report.steps[0].label):
        return "whole trace"
    return count(len(report.steps), "step")


def _is_profiler_step(label: str) -> bool:
    return "#" in label


def _captured(trace: TraceInfo) -> str:
    has = {"shapes": trace.has.shapes, "stacks": trace.has.stacks, "memory": trace.has.memory}
    there = [name for name, recorded in has.items() if recorded]
    absent = [name for name, recorded in has.items() if not recorded]
    words = []
    if there:
        words.append(f"with {listed(there)}")
    if absent:
        words.append(f"without {listed(absent, 'or')}")
    if trace.has.graphs:
        words.append("GPU graph replays")
    return ", ".join(words)


def alarm_words(report: Report) -> list[tuple[str, str]]:
    """What forbids or limits trust: each with the words it begins with, ``("DO NOT TRUST", why)``."""
    raised = [check for check in report.health if check.state != "ok"]
    said = [(_LEADS[check.state], f"{_words(check.check)}: {check.detail}") for check in raised]
    # A repair that a check tells of, with what it means, is not told twice.
    repairs = [repair for repair in report.trace.repairs if not any(repair in check.detail for check in raised)]
    return [*said, *(("REPAIRED", repair) for repair in repairs)]


def alarms(report: Report, view: View) -> list[Line]:
    """What forbids or limits trust, loud and first; empty when there is nothing."""
    lines: list[Line] = []
    for lead, text in alarm_words(report):
        lines += _alarm(Span(lead, "bad" if lead == _LEADS["bad"] else "suspect"), text, view)
    return [[], *lines] if lines else []


def _alarm(lead: Span, text: str, view: View) -> list[Line]:
    # The lead keeps its own style; the text starts in one column whichever lead it has.
    padding = " " * (14 - width_of(lead.text))
    body = paragraph(text, view.width, indent=14)
    return [[lead, *line(padding), *body[0][1:]], *body[1:]]


def _words(identifier: str) -> str:
    return identifier.replace("_", " ")


def unprofiled(report: Report) -> str | None:
    """The step's time without the profiler, in words; ``None`` where it was not measured."""
    timing = report.trace.unprofiled
    if timing is None:
        return None
    spread = "" if timing.iqr_us is None else f", interquartile range {time(timing.iqr_us)}"
    return (
        f"Without the profiler a step takes {time(timing.median_us)} "
        f"(median of {number(timing.runs)}{spread}; {_words(timing.method)})."
    )


def health(report: Report, view: View) -> list[Line]:
    """Every check with its outcome."""
    if not report.health:
        return [line("  No checks were made.")]
    marks = {
        "ok": Span("ok     ", "good"),
        "suspect": Span("suspect", "suspect"),
        "bad": Span("BAD    ", "bad"),
    }
    widest = max(width_of(_words(check.check)) for check in report.health)
    lines: list[Line] = []
    for check in report.health:
        name = _words(check.check)
        start = 2 + 7 + 2 + widest + 2
        pieces = wrap(check.detail, max(20, view.width - start))
        padding = " " * (widest - width_of(name) + 2)
        lines.append(line("  ", marks[check.state], "  ", name, padding, pieces[0]))
        lines += [line(" " * start, piece) for piece in pieces[1:]]
    for repair in report.trace.repairs:
        lines += paragraph(repair, view.width, lead=Span("repaired: ", "suspect"))
    return lines


def _products(coverage: Coverage) -> str:
    """How much of the products is counted: pointwise kernels have no FLOPs, so the share of all time misleads."""
    counted = coverage.products_counted
    return "" if counted is None else f" (of GEMM, attention and convolution {share_of(counted)})"


def footer(report: Report, view: View) -> list[Line]:
    """What the numbers cover, what was not recorded and how to record it, and how to see more."""
    lines: list[Line] = []
    coverage = report.coverage
    if coverage.kernels_linked is not None:
        text = (
            f"launch known {share_of(coverage.kernels_linked)}, "
            f"operator known {share_of(coverage.kernels_with_op)}, "
            f"FLOPs counted {share_of(coverage.flops_counted)}" + _products(coverage)
        )
        lines += _note("Of kernel time", text, view)
    has = report.trace.has
    # What a warning already says is missing is not said twice.
    said = " ".join(report.trace.warnings)
    missing = [
        f"{gives} ({flag})" for name, (gives, flag) in _RECORD.items() if not getattr(has, name) and flag not in said
    ]
    if missing and not report.trace.predicted:
        lines += _note("Not recorded", " · ".join(missing), view)
    for warning in report.trace.warnings:
        lines += _note("Note", warning, view)
    if not view.everything:
        lines += _note("More", "--all, or --section NAME: " + ", ".join(_offered(report)), view)
    return lines


def _note(lead: str, text: str, view: View) -> list[Line]:
    return paragraph(text, view.width, lead=Span(f"{lead}: ", "dim"), indent=0, style="dim", hang=2)


def _offered(report: Report) -> list[str]:
    """The sections that hold something for this report."""
    holds = {
        "findings": report.findings,
        "phases": any(step.phases for step in report.steps),
        "idle": report.gaps or any(step.idle for step in report.steps),
        "kernels": report.groups,
        "gemms": report.gemms,
        "elementwise": report.elementwise,
        "transfers": report.transfers,
        "memory": report.memory is not None,
        "chain": report.chain,
        "operators": report.operators,
        "metadata-only": any(operator.metadata_only for operator in report.operators),
    }
    return [name for name in SECTIONS if holds.get(name, True)]
