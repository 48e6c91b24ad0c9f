"""Out-of-memory messages explained, as text: the verdict, a bar of the device's memory, why, what helps and what "
"cannot."""

from __future__ import annotations

from pathlib import PurePath

from foretrace.knowledge.out_of_memory import printed
from foretrace.model.oom import Account, Explanation, Oom, Remedy
from foretrace.model.words import count, listed
from foretrace.report.text import Line, Span, cut, fitted, line, paint, plain
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["render_oom"]

# kind of account → its mark in the bar and its style; those of this process first
_MARKS = {
    "tensors": ("█", ""),
    "reserved": ("█", ""),
    "unallocated": ("▒", "suspect"),
    "private_idle": ("▓", "suspect"),
    "own_other": ("▪", ""),
    "process": ("▚", "saving"),
    "rest": ("?", "dim"),
    "free": ("·", "dim"),
}
_HELPS = 5
_CANNOT = 5
_ACCOUNTS = 12
_STYLES = {"unknown": "suspect"}


def render_oom(oom: Oom, view: View | None = None) -> str:
    """The explanations as text that ends in a newline; ``view`` defaults to plain text, 100 columns wide."""
    view = view or View()
    content = _title(oom, view)
    for explanation in oom.messages:
        content += [[], *_message(explanation, view, numbered=len(oom.messages) > 1)]
    content = [fitted(row, view.width) for row in content]
    return paint(content) if view.color else plain(content)


def _title(oom: Oom, view: View) -> list[Line]:
    name = PurePath(oom.path).name if oom.path != "-" else "standard input"
    lines = [line(Span("foretrace oom", "dim"), "  ", Span(cut(name, view.width - 15, "middle"), "title"))]
    if len(oom.messages) > 1:
        lines.append(line(f"{count(len(oom.messages), 'different message')}, in the order of the text"))
    return lines


def _message(explanation: Explanation, view: View, *, numbered: bool) -> list[Line]:
    style = _STYLES.get(explanation.verdict, "verdict")
    lines = [line(Span(_facts(explanation, numbered), "dim"))] if _facts(explanation, numbered) else []
    lines += paragraph(explanation.headline, view.width, lead=Span("VERDICT  ", "section"), indent=0, style=style)
    if bar := _bar(explanation, view):
        lines += [[], *bar]
    if explanation.because:
        lines += [[], line(Span("WHY", "section"))]
        for sentence in explanation.because:
            lines += paragraph(sentence, view.width)
    lines += _snapshot(explanation, view)
    helps = [one for one in explanation.remedies if one.stance != "cannot"]
    cannot = [one for one in explanation.remedies if one.stance == "cannot"]
    lines += _remedies("WHAT HELPS", helps, view, _HELPS)
    lines += _remedies("WHAT CANNOT", cannot, view, _CANNOT)
    if explanation.not_known:
        lines += [[], *paragraph(f"not known: {'; '.join(explanation.not_known)}", view.width, indent=0, style="dim")]
    return lines


def _facts(explanation: Explanation, numbered: bool) -> str:
    said = explanation.said
    facts = []
    if numbered or explanation.line > 1:
        facts.append(f"line {explanation.line}")
    if explanation.count > 1:
        facts.append(f"{explanation.count} times")
    if explanation.ranks:
        facts.append(f"{'rank' if len(explanation.ranks) == 1 else 'ranks'} {listed(map(str, explanation.ranks))}")
    if said.device is not None:
        facts.append(f"{said.backend} device {said.device}")
    if said.torch_versions is not None:
        facts.append(f"worded as PyTorch {said.torch_versions} does")
    return " · ".join(facts)


def _bar(explanation: Explanation, view: View) -> list[Line]:
    """One bar of the device's memory and its legend; none where the message has no total to draw it against."""
    total = explanation.said.total
    order = list(_MARKS)
    parts = sorted((one for one in explanation.accounts if one.size.bytes > 0), key=lambda one: order.index(one.kind))
    if total is None or not parts:
        return []
    width = max(10, view.width - 4)
    whole = max(total.bytes, sum(one.size.bytes for one in parts))
    bar: Line = [Span("  ")]
    drawn = 0
    reached = 0
    for one in parts:
        mark, style = _MARKS[one.kind]
        reached += one.size.bytes
        cells = max(0, round(reached * width / whole) - drawn)
        drawn += cells
        bar.append(Span(mark * cells, style))
    lines = [bar]
    lines += [_legend(one) for one in parts[:_ACCOUNTS]]
    if len(parts) > _ACCOUNTS:
        lines.append(line(Span(f"    … {len(parts) - _ACCOUNTS} more (--json)", "dim")))
    lines.append(line(f"    {printed(total.bytes):>12}  the device in all"))
    return lines


def _legend(account: Account) -> Line:
    mark, style = _MARKS[account.kind]
    return line("  ", Span(mark, style), f" {printed(account.size.bytes):>12}  {account.what}")


def _snapshot(explanation: Explanation, view: View) -> list[Line]:
    checked = explanation.snapshot
    if checked is None:
        return []
    lines = [[], line(Span("SNAPSHOT", "section"), f"  {cut(PurePath(checked.path).name, view.width - 12, 'middle')}")]
    if checked.where is not None:
        lines += paragraph(f"the request that failed: {checked.where}", view.width)
    for sentence in checked.because:
        lines += paragraph(sentence, view.width)
    for where in checked.pinned_by:
        lines += paragraph(f"pinned by {where}", view.width)
    return lines


def _remedies(head: str, remedies: list[Remedy], view: View, most: int) -> list[Line]:
    if not remedies:
        return []
    shown = remedies if view.everything else remedies[: view.rows(most)]
    lines = [[], line(Span(head, "section"))]
    for one in shown:
        lead = {"helps": Span("+ ", "good"), "may": Span("? ", "suspect"), "cannot": Span("- ", "dim")}[one.stance]
        lines += paragraph(f"{one.title}: {one.because}", view.width, lead=lead)
        lines += _conditions(one, view)
    if len(shown) < len(remedies):
        lines.append(line(Span(f"  … {len(remedies) - len(shown)} more (--all)", "dim")))
    return lines


def _conditions(remedy: Remedy, view: View) -> list[Line]:
    """Each on its own line where they are steps; of what only may help, in short."""
    if remedy.stance == "helps" or remedy.key == "check_driver" or view.everything:
        return [
            row
            for condition in remedy.preconditions
            for row in paragraph(condition, view.width, lead=Span("· ", "dim"), indent=4, style="dim")
        ]
    if not remedy.preconditions:
        return []
    return paragraph("; ".join(remedy.preconditions), view.width, lead=Span("· ", "dim"), indent=4, style="dim")
