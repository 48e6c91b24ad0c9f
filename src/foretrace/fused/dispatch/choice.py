"""The three steps of an operation and how each is computed, and one line of text for it.

The text is what tables and caches store, and what an override is written in::

    expand=tma[block_n=128,num_stages=4] project=plain backward=elementwise save=preact

Words that are absent mean ``plain`` (and ``save=preact``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from foretrace.errors import InputError
from foretrace.fused.plan import Implementation, Operation, Plan, Save

__all__ = [
    "PLAIN",
    "ROLES",
    "Choice",
    "Role",
    "check_save",
    "choice_of",
    "parse_choice",
    "parse_implementation",
    "parse_words",
    "roles_of",
    "write_implementation",
]

# A step's part in an operation: input to hidden, hidden to output, and the hidden's gradient to the pre-activations'.
Role = Literal["expand", "project", "backward"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_SAVES: Final[tuple[str, ...]] = get_args(Save)
PLAIN: Final = Implementation("plain")

_IMPLEMENTATION = re.compile(r"([a-z_][a-z0-9_]*)(?:\[([^\[\]]*)\])?")
_OPTION = re.compile(r"([a-z_][a-z0-9_]*)=(-?\d+)")


def roles_of(operation: Operation, training: bool) -> tuple[Role, ...]:
    """Return the steps in which an operation leaves a choice."""
    forward: tuple[Role, ...] = ("expand", "project") if operation in ("gated_mlp", "mlp") else ("expand",)
    return (*forward, "backward") if training else forward


@dataclass(frozen=True, slots=True)
class Choice:
    """One implementation for each step, and what forward keeps for backward."""

    expand: Implementation = PLAIN
    project: Implementation = PLAIN
    backward: Implementation = PLAIN
    save: Save = "preact"

    def of(self, role: Role) -> Implementation:
        """Return the implementation of one step."""
        return cast(Implementation, getattr(self, role))

    def having(self, role: Role, implementation: Implementation) -> Choice:
        """Return the choice with another implementation of one step."""
        steps = {each: implementation if each == role else self.of(each) for each in ROLES}
        return Choice(steps["expand"], steps["project"], steps["backward"], self.save)

    def label(self, operation: Operation, training: bool) -> str:
        """Return the line of text, with the words that matter to this operation; equal choices have equal lines."""
        words = [f"{role}={write_implementation(self.of(role))}" for role in roles_of(operation, training)]
        if training and operation != "gated_act":
            words.append(f"save={self.save}")
        return " ".join(words)


def choice_of(plan: Plan) -> Choice:
    """Return what a plan chose."""
    return Choice(plan.expand, plan.project, plan.backward, plan.save)


def write_implementation(implementation: Implementation) -> str:
    """Return ``name`` or ``name[option=1,…]``, options in order of their names."""
    if not implementation.options:
        return implementation.name
    return f"{implementation.name}[{','.join(f'{key}={value}' for key, value in sorted(implementation.options))}]"


def parse_implementation(text: str) -> Implementation:
    """Read ``name`` or ``name[option=1,…]``; raises `InputError` for anything else."""
    matched = _IMPLEMENTATION.fullmatch(text)
    if matched is None:
        raise InputError(f"{text!r} names no implementation; write NAME or NAME[option=1,other=2]")
    options = []
    for part in matched[2].split(",") if matched[2] else ():
        option = _OPTION.fullmatch(part)
        if option is None:
            raise InputError(f"{part!r} in {text!r} is no option; write option=1, a whole number")
        options.append((option[1], int(option[2])))
    return Implementation(matched[1], tuple(sorted(options)))


def parse_words(text: str) -> dict[str, Implementation | Save]:
    """Read the words of a line, which may lack some; raises `InputError` for an unknown, doubled or empty one."""
    found: dict[str, Implementation | Save] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or (key != "save" and key not in ROLES):
            raise InputError(f"{word!r} is not understood; write {', '.join(f'{role}=NAME' for role in ROLES)}, save=…")
        if key in found:
            raise InputError(f"{key}= stands twice in {text!r}; say it once")
        found[key] = check_save(value) if key == "save" else parse_implementation(value)
    return found


def check_save(value: str) -> Save:
    """Return ``value`` if it says what forward can keep; raises `InputError` otherwise."""
    if value not in _SAVES:
        raise InputError(f"save={value} is not known; choose from {', '.join(_SAVES)}")
    return cast(Save, value)


def parse_choice(text: str) -> Choice:
    """Read a line of text; raises `InputError` as `parse_words` does."""
    return Choice(**parse_words(text))  # type: ignore[arg-type]
