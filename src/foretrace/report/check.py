"""A checked expectation as text: the verdicts, why the broken ones broke, and what nobody spoke of."""

from __future__ import annotations

from pathlib import PurePath

from foretrace.model.expectations import Account, Checked, Outcome, Scope, Surprise
from foretrace.model.report import Evidence
from foretrace.model.words import count, listed, time
from foretrace.report.ink import finished
from foretrace.report.text import Line, Span, cut, line, width_of
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["broken_where", "clause_words", "render_check", "score"]

_STATES = {"held": Span("held   ", "good"), "broken": Span("BROKEN ", "bad"), "unknown": Span("unknown", "suspect")}
_KINDS = ("region", "module", "op")
_EVIDENCE_ROWS = 3
_TEXT = 11  # where the text of a verdict starts
_WIDEST = 44  # clauses up to this width stand in one column with what was seen


def render_check(checked: Checked, view: View | None = None, *, guess: bool = False) -> str:
    """The check as text that ends in a newline; ``view`` defaults to plain text, 100 columns wide.

    ``guess``: the expectations are a person's guesses, and the sum says how many were right.
    """
    view = view or View()
    content = [*_title(checked, view, guess), *_check_lines(checked, view), [], score(checked, guess=guess)]
    return finished(content, view)


def _check_lines(checked: Checked, view: View) -> list[Line]:
    """All between title and sum: alarms, verdicts by place, surprises."""
    lines: list[Line] = []
    for alarm in checked.alarms:
        lines += paragraph(alarm, view.width, lead=Span("DO NOT TRUST  ", "bad"), indent=0)
    told: set[str] = set()
    short = [width_of(clause_words(outcome)) for outcome in checked.outcomes]
    column = max([width for width in short if width <= _WIDEST], default=0)
    for scope in dict.fromkeys(outcome.scope for outcome in checked.outcomes):
        lines += [[], [Span(_place(scope, checked), "section")]]
        for outcome in checked.outcomes:
            if outcome.scope == scope:
                lines += _outcome(outcome, column, told, view)
    if checked.surprises:
        lines += [[], [Span("NOT SPOKEN OF", "section"), Span("  what the trace holds besides", "dim")]]
        for surprise in checked.surprises:
            lines += _surprise(surprise, told, view)
    return lines


def score(checked: Checked, *, guess: bool = False) -> Line:
    """``4 expectations: 3 held and 1 broken``; of guesses how many were right."""
    if guess:
        told = checked.held + checked.broken
        rest = f"; {checked.unknown} cannot be told from this trace" if checked.unknown else ""
        right = f"{checked.held} of {told} right" if told else "none can be told from this trace"
        return line(Span("Your guesses: ", "head"), Span(right, "verdict"), rest if told else "")
    style = {"held": "good", "broken": "bad", "unknown": "suspect"}[checked.state]
    sums = {"held": checked.held, "broken": checked.broken, "unknown": checked.unknown}
    parts = [f"{number} {state}" for state, number in sums.items() if number] or ["none"]
    return line(Span(f"{count(len(checked.outcomes), 'expectation')}: ", "head"), Span(listed(parts), style))


def _title(checked: Checked, view: View, guess: bool) -> list[Line]:
    name = PurePath(checked.trace).name if checked.trace != "-" else "standard input"
    facts = [*dict.fromkeys(checked.gpus), count(len(checked.steps), "step")]
    if checked.predicted:
        facts.insert(0, "PREDICTED, not measured")
    what = "your guesses and" if guess else "foretrace check "
    head = line(Span(what, "dim"), " ", Span(cut(name, view.width - 17, "middle"), "title"))
    return [head, *paragraph(" · ".join(facts), view.width, indent=0)]


def _place(scope: Scope, checked: Checked) -> str:
    whole = "EVERY STEP" if len(checked.steps) != 1 else "THE STEP"
    step = whole if scope.step is None else f"STEP {scope.step}"
    return ", ".join([step, *(f"{kind} {getattr(scope, kind)}" for kind in _KINDS if getattr(scope, kind))])


def _outcome(outcome: Outcome, column: int, told: set[str], view: View) -> list[Line]:
    said, seen = clause_words(outcome), outcome.observed
    lead = Span(_STATES[outcome.state].text + "  ", _STATES[outcome.state].style)
    exact = outcome.state == "held" and seen == outcome.expected
    tail = "" if exact or outcome.state == "unknown" or seen is None else f"is {seen}"
    room = view.width - _TEXT - column - 2
    if width_of(said) <= column and width_of(tail) <= room:
        padding = " " * (column - width_of(said) + 2)
        lines = [line("  ", lead, said, Span(padding + tail, "verdict" if outcome.state == "broken" else ""))]
    else:
        lines = paragraph(said, view.width, lead=lead, hang=_TEXT)
        lines += paragraph(tail, view.width, indent=_TEXT) if tail else []
    if outcome.state == "unknown":
        reason = outcome.reason or "it could not be measured"
        return lines + paragraph(reason, view.width, lead=Span("why: ", "dim"), indent=_TEXT)
    if outcome.note is not None:
        lines += paragraph(outcome.note, view.width, lead=Span("note: ", "dim"), indent=_TEXT)
    if outcome.state == "broken":
        where = broken_where(outcome)
        lines += paragraph(where, view.width, indent=_TEXT) if where else []
    for account in outcome.accounts:
        lines += _account(account, told, view)
    return lines


def broken_where(outcome: Outcome) -> str:
    """In which steps a clause broke; empty where in all."""
    broken = [step.label for step in outcome.steps if step.state == "broken"]
    others = {step.state for step in outcome.steps} - {"broken"}
    if not others:
        return ""
    rest = "held in" if others == {"held"} else "unknown in" if others == {"unknown"} else "not broken in"
    number = len(outcome.steps) - len(broken)
    return f"broken in {listed(broken)}; {rest} {count(number, 'other step')}"


def clause_words(outcome: Outcome) -> str:
    """A clause without its place: ``gemm == 3``, ``gpu_busy_us 220 µs to 260 µs``, ``order gemm → elementwise``."""
    if outcome.quantity == "occupancy_query_before":
        return f"an occupancy query {outcome.expected}"
    if outcome.quantity == "same_kernels_as":
        return f"the same as {outcome.expected}"
    if outcome.unit == "count":
        # The place stands in the heading; behind it the line ends with the clause itself.
        start = outcome.expectation.rfind(_subject(outcome))
        return outcome.expectation[start:]
    return f"{outcome.quantity} {outcome.expected}"


def _subject(outcome: Outcome) -> str:
    return "kernel[" if outcome.quantity == "kernel" else f"{outcome.quantity} "


def _account(account: Account, told: set[str], view: View) -> list[Line]:
    lines = paragraph(account.text, view.width, lead=Span("→ ", "head"), indent=_TEXT)
    again = account.rule is not None and account.rule in told
    if account.why and not again:
        lines += paragraph(account.why, view.width, indent=_TEXT + 2)
    lines += _evidence(account.evidence, view)
    facts = [f"rule {account.rule}"] if account.rule else []
    facts += ["explained above"] if again else [f"finding {account.finding}"] if account.finding else []
    facts += [account.source] if account.source and not again else []
    if account.rule:
        told.add(account.rule)
    return lines + paragraph(" · ".join(facts), view.width, indent=_TEXT + 2, style="dim") if facts else lines


def _evidence(evidence: list[Evidence], view: View) -> list[Line]:
    most = None if view.everything else _EVIDENCE_ROWS
    lines: list[Line] = []
    for one in evidence[:most]:
        where = f"  at {time(one.start_us)}, event {one.event}"
        name = cut(one.name, max(20, view.width - _TEXT - 4 - width_of(where)), "middle")
        lines.append(line(" " * (_TEXT + 2), Span("• ", "dim"), name, Span(where, "dim")))
    left = len(evidence) - len(evidence[:most])
    if left:
        lines.append(line(" " * (_TEXT + 2), Span(f"• and {count(left, 'more event')}", "dim")))
    return lines


def _surprise(surprise: Surprise, told: set[str], view: View) -> list[Line]:
    lines = paragraph(surprise.text, view.width, lead="  • ", indent=0)
    if surprise.why and surprise.rule not in told:
        told.add(surprise.rule or "")
        lines += paragraph(surprise.why, view.width, indent=4, style="dim")
    return lines
