"""Redacted copies of what would be uploaded, in a folder of their own; the originals are only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretrace.errors import InputError
from foretrace.knowledge.sharing import Category, Kind
from foretrace.view.sharing.checking import difference
from foretrace.view.sharing.planning import Item, Plan, renamed
from foretrace.view.sharing.reading import UnreadableError, is_packed, opened_text, writing_text
from foretrace.view.sharing.redaction import Redactor, names_of_this_machine
from foretrace.view.sharing.rewriting import learn_json, rewrite_json, rewrite_lines

__all__ = ["Redacted", "redacted"]

_JSON = (Kind.TRACE, Kind.DOCUMENT)


@dataclass(frozen=True)
class Redacted:
    """The plan with the copies in it, and how many pieces of each category were replaced in all files together.

    ``doubtful``: names that are words of traces as well, taken out only where a path or a key says that they are names.
    """

    plan: Plan
    counts: Counter[Category]
    doubtful: list[str] = field(default_factory=list)


def redacted(
    plan: Plan,
    categories: Collection[Category],
    folder: Path,
    *,
    names: tuple[Iterable[str], Iterable[str]] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Redacted:
    """Copy every item into ``folder`` without what the categories name, and return the plan of the copies.

    ``names``: users and hosts known beforehand, by default those of this machine. ``tell`` hears of each file.
    Raises `InputError` for a file that cannot be redacted, and for a trace that would be explained otherwise
    afterwards; nothing of it may then be uploaded.
    """
    _refuse_other_kinds(plan)
    users, hosts = names if names is not None else names_of_this_machine()
    redactor = Redactor(categories, users=users, hosts=hosts)
    if Category.USERS in redactor.categories:
        # A name that one file gives away may stand in any other.
        for item in plan.items:
            redactor.learn(item.path.removeprefix(plan.prefix))
            _pass(item, None, redactor, tell)
    items = []
    for number, item in enumerate(plan.items):
        target = folder / f"{number}{''.join(Path(item.path).suffixes[-2:])}"
        _pass(item, target, redactor, tell)
        _refuse_other_explanation(item, target, redactor, tell)
        items.append(replace(item, source=target, bytes=target.stat().st_size))

    def named(path: str) -> str:
        # What stands before the names was typed by whoever shares, to be found there.
        return plan.prefix + redactor.redact_name(path.removeprefix(plan.prefix))

    paths = [named(item.path) for item in items]
    redactor.counts[Category.USERS] += sum(item.path != path for item, path in zip(items, paths, strict=True))
    # A file that is left out today may be in the bucket under the name that redaction gave it.
    unseen = [replace(place, path=named(place.path)) for place in plan.unseen if place.path.startswith(plan.prefix)]
    plan = replace(
        plan,
        items=items,
        local=plan.local | {named(path) for path in plan.local},
        unseen=(*plan.unseen, *unseen),
        renamed=Category.USERS in redactor.categories,
    )
    return Redacted(renamed(plan, paths), +redactor.counts, redactor.doubtful)


def _refuse_other_explanation(item: Item, copy: Path, redactor: Redactor, tell: Callable[[str], None]) -> None:
    if item.kind is not Kind.TRACE:
        return
    tell(f"comparing {item.path}")
    counts = redactor.counts.copy()
    changed = difference(
        item.source,
        copy,
        lambda name: redactor.redact(name, paths_only=True),
        without_frames=Category.STACKS in redactor.categories,
    )
    redactor.counts = counts
    if changed is not None:
        asked = ",".join(category for category in Category if category in redactor.categories)
        raise InputError(
            f"redaction would change {changed} in what foretrace says of {item.source}, and nothing was uploaded: "
            f"leave the file out with --exclude, or take out less than --redact {asked}"
        )


def _refuse_other_kinds(plan: Plan) -> None:
    others = [item for item in plan.items if item.kind not in (*_JSON, Kind.TABLE)]
    if others:
        one = f"{others[0].path} ({others[0].kind})"
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise InputError(
            f"{one}{more} cannot be redacted, only traces, tables and foretrace's JSON files can: leave out what "
            "cannot with --exclude, or share without --redact"
        )


def _pass(item: Item, target: Path | None, redactor: Redactor, tell: Callable[[str], None]) -> None:
    """Learn from the file, or with ``target`` write its copy."""
    tell(f"{'reading' if target is None else 'redacting'} {item.path}")
    try:
        with opened_text(item.source) as text:
            if target is None:
                if item.kind in _JSON:
                    learn_json(text, redactor)
                else:
                    rewrite_lines(text, None, redactor)
                return
            with writing_text(target, packed=is_packed(item.source)) as copy:
                if item.kind in _JSON:
                    rewrite_json(text, copy, redactor)
                else:
                    rewrite_lines(text, copy, redactor)
    except UnreadableError as reason:
        raise InputError(
            f"{item.source} cannot be redacted safely: {reason}; mend it, leave it out with --exclude, or share it as "
            "it is without --redact"
        ) from None
