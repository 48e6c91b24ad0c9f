"""The mark ``foretrace`` as an expectation: what it says, on the function, its class and its module together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from foretrace.errors import InputError
from foretrace.knowledge.baseline import GPU_QUANTITIES
from foretrace.model.expectations import Clause, Expectation
from foretrace.prediction.expect.language import clause_text, expect
from foretrace.prediction.expect.quantities import SCOPES, find, ratio_of

__all__ = ["Asked", "Wanted", "asked", "read_marks", "says_what"]

# Shorthands of the mark → the quantity they set an upper limit to.
_LIMITS = {"max_step_us": "unprofiled_us", "max_gpu_us": "gpu_busy_us"}


@dataclass(frozen=True)
class Asked:
    """Expectations, and which of them are about a GPU: without one they cannot be judged."""

    expectation: Expectation = field(default_factory=Expectation)
    about_gpu: frozenset[Clause] = frozenset()

    def __and__(self, other: Asked) -> Asked:
        # Of clauses that may go together; expect() says which do not.
        return Asked(expect(self.expectation, other.expectation), self.about_gpu | other.about_gpu)

    def __bool__(self) -> bool:
        return len(self.expectation) > 0

    @property
    def without_gpu(self) -> Expectation:
        """The expectations that can be judged on a machine without a GPU."""
        return Expectation(tuple(clause for clause in self.expectation.clauses if clause not in self.about_gpu))

    @property
    def gpu_lines(self) -> list[str]:
        """The expectations about a GPU, as they may be written."""
        return [_as_written(clause) for clause in self.expectation.clauses if clause in self.about_gpu]


@dataclass(frozen=True)
class Wanted:
    """What the marks of a test ask for; ``baseline`` is None where they do not speak of one."""

    asked: Asked = field(default_factory=Asked)
    baseline: bool | None = None


def read_marks(item: pytest.Item, name: str, *, fixture: str) -> Wanted:
    """Join the marks of a test: of two that speak of the same quantity in the same place the closer one holds.

    ``fixture``: the name of the fixture without which times cannot be asked for. Raises ``pytest.UsageError`` with one
    sentence.
    """
    try:
        return _read(item, name, fixture)
    except InputError as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{name}: {error}") from None


def _read(item: pytest.Item, name: str, fixture: str) -> Wanted:
    marks = list(item.iter_markers(name))
    if not isinstance(item, pytest.Function):
        raise InputError(f"the mark is for test functions and methods, not for a {type(item).__name__}")
    baseline: bool | None = None
    said: set[tuple[object, ...]] = set()
    total = Asked()
    for mark in marks:
        words = dict(mark.kwargs)
        own = words.pop("baseline", None)
        if own is not None and not isinstance(own, bool):
            raise InputError(f"baseline is True or False, not {own!r}")
        baseline = own if baseline is None else baseline
        says_what(words, but=bool(mark.args))
        place = tuple(str(words.get(scope)) for scope in SCOPES)
        kept = {key: value for key, value in words.items() if key in SCOPES or (key, *place) not in said}
        said |= {(key, *place) for key in words}
        try:
            total = total & asked(*mark.args, **kept)
        except TypeError as error:
            raise InputError(f"it cannot be read: {error}") from None
    if fixture not in item.fixturenames:
        for clause in total.expectation.clauses:
            if _timed(clause):
                raise InputError(
                    f"'{_as_written(clause)}' is about a time, and a test's body runs once and cold, so its time says "
                    f"nothing; let the test measure the step with the fixture {fixture}"
                )
    return Wanted(total, baseline)


def asked(*lines: str | Expectation, **words: Any) -> Asked:
    """``foretrace.expect`` with the shorthands ``max_step_us`` and ``max_gpu_us``. Raises ``InputError``."""
    for line in lines:
        if not isinstance(line, str | Expectation):
            raise InputError(f"{line!r} is no expectation: give a text such as 'gemm == 3', or kernels=5")
    limits = {name: words.pop(name) for name in _LIMITS if name in words}
    found = expect(*lines, **words)
    about_gpu = {clause for clause in found.clauses if _needs_gpu(clause)}
    places = {name: words[name] for name in SCOPES if words.get(name) is not None}
    for name, value in limits.items():
        limit = _limit(name, value, places)
        found = found & limit
        # A limit to a step's time is set with a GPU in mind; unprofiled_us speaks of any machine.
        about_gpu |= set(limit.clauses)
    return Asked(expect(found), frozenset(about_gpu))


def says_what(words: Mapping[str, object], *, but: bool = False) -> None:
    """Raise ``InputError`` for places at which nothing is looked at. ``but``: lines stand beside, with their own."""
    places = [name for name in SCOPES if words.get(name) is not None]
    if places and not set(words) - set(SCOPES):
        line = "; a line in quotes names its own, as in 'op aten::mm: calls == 1'" if but else ""
        raise InputError(
            f"{places[0]}={words[places[0]]!r} says where to look, and no keyword says at what: add one, such as "
            f"calls=1{line}"
        )


def _limit(name: str, value: object, places: Mapping[str, Any]) -> Expectation:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"{name} is a number of µs above 0, not {value!r}")
    if name == "max_step_us" and places:
        raise InputError(f"max_step_us is the time of a whole step; it takes no {next(iter(places))}")
    limit: dict[str, Any] = {_LIMITS[name]: (None, value)}
    return expect(**limit, **places)


def _parts(clause: Clause) -> tuple[str, ...]:
    """The quantities of a clause: two for a ratio."""
    return ratio_of(clause.quantity) or (clause.quantity,)


def _needs_gpu(clause: Clause) -> bool:
    return any(name in GPU_QUANTITIES or ((one := find(name)) is not None and one.gpu) for name in _parts(clause))


def _timed(clause: Clause) -> bool:
    """Whether a clause is about a time, which only warm steps can tell."""
    return any((one := find(name)) is not None and one.unit == "us" for name in _parts(clause))


def _as_written(clause: Clause) -> str:
    """``max_step_us <= 250`` for what it stands for, else the clause."""
    text = clause_text(clause)
    for short, quantity in _LIMITS.items():
        if text.startswith(f"{quantity} <= "):
            return text.replace(quantity, short, 1)
    return text
