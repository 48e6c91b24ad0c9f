"""Choices that a person makes instead of the dispatcher: for a block of code, or for a process by a variable."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from foretrace.errors import InputError
from foretrace.fused.dispatch.candidates import CANDIDATES, has_step, refusal
from foretrace.fused.dispatch.choice import ROLES, Choice, Role, check_save, parse_implementation, parse_words, roles_of
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.plan import Implementation, Problem, Save
from foretrace.fused.steps import STEPS_OF

__all__ = ["SCOPE", "VARIABLE", "Noted", "Scope", "Words", "apply_words", "override", "recording", "words_of_process"]

VARIABLE: Final = "FORETRACE_FUSED_OVERRIDE"

Words = tuple[tuple[str, Implementation | Save], ...]


class Noted(BaseException):
    """Ends a call whose problem is noted and whose result nobody wants. No error, so that no one handles it."""


@dataclass(frozen=True)
class Scope:
    """What holds inside a block.

    ``words`` override; ``asked`` is where the problems asked about are noted, each as often as it is met, and ``stop``
    ends the call then. ``architecture``: note them as those of this one, and compute in plain PyTorch meanwhile.
    """

    words: Words = ()
    asked: list[Problem] | None = None
    stop: bool = False
    architecture: str | None = None

    def note(self, problem: Problem) -> None:
        """Note a problem."""
        if self.asked is None:
            return
        self.asked.append(problem if self.architecture is None else replace(problem, architecture=self.architecture))
        if self.stop:
            raise Noted


# None outside every block, so that a call finds out with one look-up.
SCOPE: Final[contextvars.ContextVar[Scope | None]] = contextvars.ContextVar("foretrace_fused_scope", default=None)


@contextlib.contextmanager
def override(
    words: str = "",
    *,
    expand: str | None = None,
    project: str | None = None,
    backward: str | None = None,
    save: str | None = None,
) -> Iterator[None]:
    """Choose implementations by name for every call inside the block, in this thread or task.

    ``override("expand=tma backward=plain")`` and ``override(expand="tma", backward="plain")`` mean the same;
    options are written ``tma[num_stages=3]``. What is not named is chosen as ever; an inner block's words come
    before an outer one's.

    The words apply to calls made inside the block, those of compiled functions included (``save`` is settled when a
    function is compiled); a block inside a compiled function is not supported. Outside of blocks the variable
    ``FORETRACE_FUSED_OVERRIDE`` holds such words. A backward pass follows the plan of its forward.

    Raises `InputError` for a name that is not known; a call inside the block raises it when the implementation
    cannot serve it, with the reason.
    """
    merged = dict(parse_words(words))
    for role, text in zip(ROLES, (expand, project, backward), strict=True):
        if text is not None:
            merged[role] = parse_implementation(text)
    if save is not None:
        merged["save"] = check_save(save)
    _check_names(merged)
    outer = SCOPE.get() or Scope()
    token = SCOPE.set(replace(outer, words=tuple(sorted((dict(outer.words) | merged).items()))))
    try:
        yield
    finally:
        SCOPE.reset(token)


@contextlib.contextmanager
def recording(*, stop: bool = False, architecture: str | None = None) -> Iterator[list[Problem]]:
    """Note every problem for which a plan is asked inside the block, in order, each as often as it is met.

    ``stop``: raise `Noted` at the first one, before anything is computed. ``architecture``: note the problems as those
    of a GPU of this kind, which this process need not have: calls then run in plain PyTorch, whatever overrides say.
    """
    asked: list[Problem] = []
    token = SCOPE.set(replace(SCOPE.get() or Scope(), asked=asked, stop=stop, architecture=architecture))
    try:
        yield asked
    finally:
        SCOPE.reset(token)


def words_of_process() -> Words:
    """Return the words of the environment variable; raises `InputError`, naming it, when they are not understood."""
    text = os.environ.get(VARIABLE, "")
    try:
        merged = parse_words(text)
        _check_names(merged)
    except InputError as error:
        raise InputError(f"{VARIABLE}={text}: {error}") from None
    return tuple(sorted(merged.items()))


def apply_words(words: Words, choice: Choice, problem: Problem, environment: Environment) -> Choice:
    """Return the choice with the words in place of its own; words for steps an operation has not are ignored.

    Raises `InputError` when a named implementation cannot serve the problem.
    """
    roles = roles_of(problem.operation, problem.training)
    for key, value in words:
        if isinstance(value, str):
            choice = replace(choice, save=value)
        elif key in roles:
            role: Role = next(role for role in roles if role == key)
            candidate = next(c for c in CANDIDATES if c.name == value.name)
            reason = refusal(candidate, role, problem, environment)
            if reason is not None:
                raise InputError(f"{role}={value.name} was asked for and cannot be used: {reason}")
            choice = choice.having(role, value)
    return choice


def _check_names(words: dict[str, Implementation | Save]) -> None:
    for key, value in words.items():
        if isinstance(value, Implementation):
            role: Role = next(role for role in ROLES if role == key)
            known = [c.name for c in CANDIDATES if any(has_step(c.name, operation, role) for operation in STEPS_OF)]
            if value.name not in known:
                raise InputError(f"{key}={value.name} is not known; choose from {', '.join(known)}")
