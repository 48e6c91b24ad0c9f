"""Operators now against those of a baseline: taken apart, exchanged, more, fewer; each call is told once.

A call inside an operator that is new itself belongs to that operator and is not told again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foretrace.knowledge.baseline import (
    FUSED_OPERATORS,
    REASONS,
    guarded,
    is_generated,
    kind_of,
    reason_of,
    taken_apart,
    waits,
)
from foretrace.model.baseline import Change
from foretrace.model.words import count, first_of, listed

__all__ = ["Path", "outermost", "told_operators"]

Path = tuple[str, ...]  # the operators around a call, outermost first, and its own name

_SHOWN = 4


def outermost(paths: Counter[Path]) -> Counter[Path]:
    """The calls that the program makes itself."""
    return Counter({path: times for path, times in paths.items() if len(path) == 1})


def told_operators(before: Counter[Path], after: Counter[Path]) -> Iterator[Change]:
    """What changed between two counts of calls by place."""
    before, after = _once(before), _once(after)
    fresh = _net(after - before, _by_name(after) - _by_name(before))
    gone = _net(before - after, _by_name(before) - _by_name(after))
    yield from _apart(fresh, gone)
    yield from _fused(fresh, gone)
    yield from _exchanged(fresh, gone)
    yield from _more(fresh)
    yield from _fewer(gone)
    views = Counter({path: times for path, times in fresh.items() if times and not guarded(path[-1])})
    views = Counter({path: times for path, times in views.items() if _root(path, fresh) is None})
    if views:
        names = sorted({path[-1] for path in views})
        said = f"{count(sum(views.values()), 'row')} a step more that neither compute nor copy"
        yield Change(f"{said}: {first_of(names, _SHOWN)}", more=False, paths=tuple(sorted(views)))


def _once(paths: Counter[Path]) -> Counter[Path]:
    """Without the calls of an operator to itself (``aten::sum`` to ``aten::sum``), which are no further calls."""
    return Counter({path: times for path, times in paths.items() if path[-1] not in path[:-1]})


def _by_name(paths: Counter[Path]) -> Counter[str]:
    names: Counter[str] = Counter()
    for path, times in paths.items():
        names[path[-1]] += times
    return names


def _net(came: Counter[Path], more: Counter[str]) -> Counter[Path]:
    """The calls that are more by name, in their places: one that only moved is none.

    Of several new places those inside a new operator are taken to have moved: its work was done elsewhere before.
    """
    net: Counter[Path] = Counter()
    for name, extra in more.items():
        paths = [path for path in came if path[-1] == name]
        moved = sum(came[path] for path in paths) - extra
        for path in sorted(paths, key=lambda path: (not _inside(path, came, more), -len(path), path)):
            away = min(moved, came[path])
            moved -= away
            if came[path] > away:
                net[path] = came[path] - away
    return net


def _inside(path: Path, came: Counter[Path], more: Counter[str]) -> bool:
    return any(came[path[:length]] and more[path[length - 1]] for length in range(1, len(path)))


def _root(path: Path, calls: Counter[Path]) -> Path | None:
    """The outermost operator around a path that is among the calls itself and does work."""
    above = (path[:length] for length in range(1, len(path)))
    return next((up for up in above if calls[up] and guarded(up[-1])), None)


def _below(path: Path, calls: Counter[Path]) -> list[Path]:
    return [one for one in calls if len(one) > len(path) and one[: len(path)] == path and calls[one]]


def _take(path: Path, times: int, calls: Counter[Path]) -> None:
    """These calls are told: take them out, with what is inside, and the operators around them that are new for them."""
    for inner in _below(path, calls):
        calls[inner] -= min(calls[inner], times * -(-calls[inner] // calls[path]))
    for length in range(1, len(path) + 1):
        calls[path[:length]] -= min(calls[path[:length]], times)


def _apart(fresh: Counter[Path], gone: Counter[Path]) -> Iterator[Change]:
    for fused in FUSED_OPERATORS:
        plus, minus = _by_name(fresh), _by_name(gone)
        names = taken_apart(fused, +plus)
        times = min(minus[fused], *(plus[name] for name in names)) if names else 0
        if not times:
            continue
        places = []
        for name in names:
            places += _use(name, times, fresh)
        _use(fused, times, gone)
        often = f"{times} × " if times > 1 else ""
        yield Change(
            f"{often}{fused} was taken apart into {listed(names)}: its epilogue is lost",
            more=True,
            why=REASONS["epilogue"],
            paths=tuple(places),
        )


def _use(name: str, times: int, calls: Counter[Path]) -> list[Path]:
    """Take so many calls of an operator out, wherever they are; returns where they were."""
    used = []
    for path in sorted(path for path in calls if path[-1] == name):
        now = min(times, calls[path])
        if now:
            _take(path, now, calls)
            times -= now
            used.append(path)
    return used


def _fused(fresh: Counter[Path], gone: Counter[Path]) -> Iterator[Change]:
    """A kernel that Inductor wrote is no increase where operators that its name lists are gone."""
    for path in sorted(path for path in fresh if is_generated(path[-1])):
        words = path[-1]
        parts = [one for one in sorted(gone) if gone[one] and _bare(one[-1]) in words and guarded(one[-1])]
        if fresh[path] and sum(gone[one] for one in parts) >= fresh[path]:
            named = list(dict.fromkeys(one[-1] for one in parts))
            for one in parts:
                _take(one, gone[one], gone)
            _take(path, fresh[path], fresh)
            verb = "is" if len(named) == 1 else "are"
            yield Change(f"{listed(named)} {verb} now done by {words}", more=False, paths=(path,))


def _bare(operator: str) -> str:
    """``_gelu`` of ``aten::gelu``: how the name of a generated kernel lists it."""
    return "_" + operator.rpartition("::")[2].strip("_")


def _exchanged(fresh: Counter[Path], gone: Counter[Path]) -> Iterator[Change]:
    """One operator where another of its kind was, with no more work inside it: a change, and no increase."""
    for path in sorted(fresh, key=lambda path: (len(path), path)):
        kind = kind_of(path[-1])
        if kind is None:
            continue
        for other in sorted(one for one in gone if one[:-1] == path[:-1] and kind_of(one[-1]) == kind):
            times = min(fresh[path], gone[other])
            if not times or _work(path, fresh) * gone[other] > _work(other, gone) * fresh[path]:
                continue
            often = f"{times} × " if times > 1 else ""
            _take(path, times, fresh)
            _take(other, times, gone)
            yield Change(f"{often}{other[-1]} is now {path[-1]}{_where(path)}", more=False, paths=(path,))


def _work(path: Path, calls: Counter[Path]) -> int:
    return sum(calls[one] for one in _below(path, calls) if guarded(one[-1]))


def _more(fresh: Counter[Path]) -> Iterator[Change]:
    roots = [path for path in +fresh if guarded(path[-1]) and _root(path, fresh) is None]
    for path in sorted(roots, key=lambda path: (not waits(path[-1]), -fresh[path], path)):
        inside = _by_name(Counter({one: fresh[one] for one in _below(path, fresh)}))
        named = [
            f"{inside[name]} × {name}" if inside[name] != fresh[path] else name
            for name in sorted(inside)
            if guarded(name)
        ]
        text = f"{count(fresh[path], 'call')} of {path[-1]} a step more{_where(path)}"
        text += f", with {first_of(named, _SHOWN)} inside" if named else ""
        yield Change(text, more=True, why=reason_of(path[-1], frozenset(inside)), paths=(path,), times=fresh[path])


def _fewer(gone: Counter[Path]) -> Iterator[Change]:
    names = _by_name(Counter({p: n for p, n in (+gone).items() if guarded(p[-1]) and _root(p, gone) is None}))
    if names:
        said = [f"{names[name]} × {name}" for name in sorted(names)]
        yield Change(f"fewer a step: {first_of(said, _SHOWN)}", more=False)


def _where(path: Path) -> str:
    around = path[:-1] if len(path) <= _SHOWN else (path[0], "…", *path[-3:-1])
    return f", in {' → '.join(around)}" if around else ""
