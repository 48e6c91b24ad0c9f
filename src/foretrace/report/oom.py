"""Out-of-memory messages explained, as text: the verdict, what to do first, a bar of the memory, why, what helps."""

from __future__ import annotations

import re
from pathlib import PurePath

from foretrace.knowledge.out_of_memory import printed
from foretrace.model.oom import Account, Explanation, Oom, Remedy, Size
from foretrace.model.words import count, listed
from foretrace.report.ink import finished
from foretrace.report.text import Line, Span, cut, line
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
# What counts against a process's limit.
_COUNTED = ("tensors", "reserved", "unallocated", "private_idle")
# One message is one screen, as far as it can be: rows by default, and the least of what gives way.
_SCREEN = 28
_HELPS = 4
_HELPS_LEAST = 2
_REASONS = 3
_CHECKS = 2
_ACCOUNTS = 5
_ACCOUNTS_IN_FULL = 12
# Of more different messages, the first of each verdict is shown; so many of the others' lines are named.
_MESSAGES = 4
_LINES = 4
_STYLES = {"unknown": "suspect"}


def render_oom(oom: Oom, view: View | None = None) -> str:
    """The explanations as text that ends in a newline; ``view`` defaults to plain text, 100 columns wide."""
    view = view or View()
    content = _title(oom, view)
    for explanation, alike in _kinds(oom, view):
        content += [[], *_message(explanation, view, numbered=len(oom.messages) > 1)]
        content += _alike(alike, view)
    return finished(content, view)


def _kinds(oom: Oom, view: View) -> list[tuple[Explanation, list[Explanation]]]:
    """The messages to show, each with those it stands for: of many, the first of each verdict stands for the others."""
    if view.everything or len(oom.messages) <= _MESSAGES:
        return [(one, []) for one in oom.messages]
    kinds: dict[str, list[Explanation]] = {}
    for one in oom.messages:
        kinds.setdefault(one.verdict, []).append(one)
    return [(first, rest) for first, *rest in list(kinds.values())[: view.rows(_MESSAGES)]]


def _alike(alike: list[Explanation], view: View) -> list[Line]:
    if not alike:
        return []
    lines = listed([str(one.line) for one in alike[:_LINES]])
    more = f" and {len(alike) - _LINES} more" if len(alike) > _LINES else ""
    said = f"the same verdict: {count(len(alike), 'other message')}, line {lines}{more} (--all)"
    return [[], *paragraph(said, view.width, indent=0)]


def _title(oom: Oom, view: View) -> list[Line]:
    name = PurePath(oom.path).name if oom.path != "-" else "standard input"
    lines = [line(Span("foretrace oom", "dim"), "  ", Span(cut(name, view.width - 15, "middle"), "title"))]
    if len(oom.messages) > 1:
        lines.append(line(f"{count(len(oom.messages), 'different message')}, in the order of the text"))
    if oom.left_out:
        said = f"{oom.left_out} more messages are not read, as there are too many different ones"
        lines += paragraph(f"{said}: cut out the part of the log that matters", view.width, indent=0)
    kinds = len({one.verdict for one in oom.messages})
    if not view.everything and len(oom.messages) > _MESSAGES:
        least = min(kinds, view.rows(_MESSAGES) or kinds)
        what = f"the first message of {'each verdict' if least == kinds else f'{least} of {kinds} verdicts'} is shown"
        lines += paragraph(f"{what}; --all shows every one", view.width, indent=0)
    return lines


def _message(explanation: Explanation, view: View, *, numbered: bool) -> list[Line]:
    style = _STYLES.get(explanation.verdict, "verdict")
    lines = [line(Span(_facts(explanation, numbered), "dim"))] if _facts(explanation, numbered) else []
    lines += paragraph(explanation.headline, view.width, lead=Span("VERDICT  ", "section"), indent=0, style=style)
    lines += paragraph(explanation.first, view.width, lead=Span("FIRST    ", "section"), indent=0)
    bar = _bar(explanation, view)
    lines += [[], *bar] if bar else []
    helps = [one for one in explanation.remedies if one.stance != "cannot"]
    cannot = [one for one in explanation.remedies if one.stance == "cannot"]
    not_known = explanation.not_known if view.everything or not bar else []
    if not view.everything:
        cannot = [one for one in cannot if one.key in (explanation.said.advice, "empty_cache")]
        helps = helps[: view.rows(_HELPS)]
    rows = len(_why(explanation, view, _REASONS))
    while True:
        below = [*_snapshot(explanation, view)]
        below += [[], *_remedies("WHAT HELPS", helps, view), *_remedies("WHAT CANNOT", cannot, view)]
        if not_known:
            below += [[], *paragraph(f"not known: {'; '.join(not_known)}", view.width, indent=0, style="dim")]
        if view.everything:
            break
        below += _more(explanation, len(explanation.remedies) - len(helps) - len(cannot), bool(not_known), view)
        # The title and the line below it stand above.
        room = _SCREEN - 2 - len(lines) - len(below)
        if room >= rows or len(helps) <= _HELPS_LEAST or view.top is not None:
            break
        # What helps less gives way to the reasons of the verdict.
        helps = helps[:-1]
    return [*lines, *_why(explanation, view, None if view.everything else max(_REASONS, room - 1)), *below]


def _why(explanation: Explanation, view: View, most: int | None) -> list[Line]:
    """The reasons: sentences of their own with --all, else as many rows of a paragraph as the screen has room for."""
    if not explanation.because:
        return []
    if most is None:
        rows = [row for sentence in explanation.because for row in paragraph(sentence, view.width)]
        return [[], line(Span("WHY", "section")), *rows]
    rows = paragraph(" ".join(explanation.because), view.width, lead=Span("WHY      ", "section"), indent=0)
    if len(rows) > most:
        rows = [*rows[: most - 1], line(*rows[most - 1], Span(" …", "dim"))]
    return [[], *rows]


def _more(explanation: Explanation, remedies: int, told: bool, view: View) -> list[Line]:
    """What --all adds, in one line."""
    added = [count(remedies, "more remedy", "more remedies")] if remedies > 0 else []
    added.append("conditions, sources")
    if explanation.not_known and not told:
        added.append(f"{count(len(explanation.not_known), 'thing')} not known")
    return paragraph(f"more with --all: {', '.join(added)}", view.width, indent=0, style="dim")


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
    """One bar of the memory that the verdict is about, and its legend; none where there is no total to draw against."""
    drawn_of = _limit_of(explanation) or _device_of(explanation)
    if drawn_of is None:
        return []
    order = list(_MARKS)
    total, what, accounts = drawn_of
    parts = sorted((one for one in accounts if one.size.bytes > 0), key=lambda one: order.index(one.kind))
    if not parts:
        return []
    width = max(10, view.width - 4)
    whole = max(total, sum(one.size.bytes for one in parts))
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
    most = _ACCOUNTS_IN_FULL if view.everything else _ACCOUNTS
    lines += [_legend(one) for one in parts[:most]]
    if len(parts) > most:
        lines.append(line(Span(f"    … {len(parts) - most} more (--json)", "dim")))
    lines.append(line(f"    {printed(total):>12}  {what}"))
    return lines


def _device_of(explanation: Explanation) -> tuple[int, str, list[Account]] | None:
    total = explanation.said.total
    return None if total is None else (total.bytes, "the device in all", explanation.accounts)


def _limit_of(explanation: Explanation) -> tuple[int, str, list[Account]] | None:
    """The limit with what counts against it, where it is nearer than the end of the device; None where it is not."""
    said = explanation.said
    if said.allowed is None:
        return None
    parts = [one for one in explanation.accounts if one.kind in _COUNTED]
    if said.elsewhere is not None:
        parts.append(Account(kind="process", what="other allocations of the system", size=said.elsewhere))
    left = max(0, said.allowed.bytes - sum(one.size.bytes for one in parts))
    if said.free is not None and said.free.bytes <= left:
        return None
    parts.append(Account(kind="free", what="left of the limit", size=Size(bytes=left, low_bytes=left, high_bytes=left)))
    device = "" if said.total is None else f"; the device has {printed(said.total.bytes)}"
    if said.total is not None and said.free is not None:
        device += f", {printed(said.free.bytes)} of them free"
    return said.allowed.bytes, f"the limit{device}", parts


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


def _remedies(head: str, remedies: list[Remedy], view: View) -> list[Line]:
    if not remedies:
        return []
    lines = [line(Span(head, "section"))]
    for one in remedies:
        lead = {"helps": Span("+ ", "good"), "may": Span("? ", "suspect"), "cannot": Span("- ", "dim")}[one.stance]
        if view.everything:
            lines += paragraph(f"{one.title}: {one.because}", view.width, lead=lead)
            lines += _conditions(one, view)
        elif one.stance == "cannot":
            lines.append(line("  ", lead, cut(f"{one.key}: {_sentence(one.because)}", view.width - 4)))
        else:
            lines += paragraph(f"{one.title}: {_sentence(one.because)}", view.width, lead=lead)
            lines += _conditions(one, view) if one.key == "check_driver" else []
    return lines


def _sentence(text: str) -> str:
    """The first sentence, which stands alone on the first screen."""
    end = re.search(r"\.(?= [A-Z0-9])", text)
    return text if end is None else text[: end.end()]


def _conditions(remedy: Remedy, view: View) -> list[Line]:
    """What a remedy needs, and where it is written."""
    told = remedy.preconditions if view.everything else remedy.preconditions[:_CHECKS]
    if view.everything and remedy.source is not None:
        told = [*told, f"see {remedy.source}"]
    return [
        row
        for condition in told
        for row in paragraph(condition, view.width, lead=Span("· ", "dim"), indent=4, style="dim")
    ]
