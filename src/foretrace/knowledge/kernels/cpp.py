"""Just enough C++ to take a demangled kernel name apart, in one pass and without failing on a name cut short."""

from __future__ import annotations

import re
from functools import cached_property

__all__ = ["CppName", "balanced", "last_identifier", "parse", "split_arguments"]

_MARKS = re.compile(r"[<>(){}\[\], ]")
_CLOSES = {">": "<", ")": "(", "}": "{", "]": "["}
_ANONYMOUS = "(anonymous namespace)"


class CppName:
    """The parts of ``void scope::base<arguments>(parameters)``; missing parts are empty."""

    def __init__(self, text: str, qualified: str, template: str, parameters: str) -> None:
        self.text = text
        self.qualified = qualified
        self.template = template
        self.parameters = parameters
        scope, _, self.base = qualified.rpartition("::")
        self.scope = scope

    @cached_property
    def arguments(self) -> list[str]:
        """The template arguments, each as it is written."""
        return split_arguments(self.template)


def parse(text: str) -> CppName:
    """Take a demangled name apart. Linear in its length; never raises."""
    text = text.replace("`anonymous namespace'", "anon").replace(_ANONYMOUS, "anon")
    text = text.replace("operator()", "operator_call")
    stack: list[str] = []
    start = 0  # of the qualified name: after the last blank outside all brackets
    template = (-1, -1)
    parameters = -1
    for match in _MARKS.finditer(text):
        mark, at = match.group(), match.start()
        if mark in "<({[":
            if not stack and mark == "(" and at > start:
                parameters = at
                break
            if not stack and mark == "<":
                template = (at, -1)
            stack.append(mark)
        elif mark in _CLOSES:
            opener = _CLOSES[mark]
            if mark == ">":
                # Inside round brackets `>` is a comparison, and `->` is no bracket at all.
                if stack and stack[-1] == "<" and text[at - 1 : at] != "-":
                    stack.pop()
            elif opener in stack:
                while stack and stack.pop() != opener:
                    pass
            if mark == ">" and not stack and template[1] < 0 <= template[0]:
                template = (template[0], at)
        elif mark == " " and not stack:
            if text.startswith(("[clone", "const"), at + 1):
                break
            start = at + 1
            template = (-1, -1)
    if template[0] >= 0:
        end = template[1] if template[1] >= 0 else len(text)
        qualified = text[start : template[0]]
        inside = text[template[0] + 1 : end]
    else:
        qualified = text[start : parameters if parameters >= 0 else len(text)]
        inside = ""
    return CppName(text, qualified.strip(), inside, text[parameters + 1 :] if parameters >= 0 else "")


def split_arguments(text: str) -> list[str]:
    """Split at the commas outside all brackets; an unclosed bracket takes the rest."""
    parts: list[str] = []
    stack: list[str] = []
    start = 0
    for match in _MARKS.finditer(text):
        mark, at = match.group(), match.start()
        if mark == "," and not stack:
            parts.append(text[start:at].strip())
            start = at + 1
        elif mark in "<({[":
            stack.append(mark)
        elif mark == ">":
            if stack and stack[-1] == "<" and text[at - 1 : at] != "-":
                stack.pop()
        elif mark in _CLOSES and _CLOSES[mark] in stack:
            while stack and stack.pop() != _CLOSES[mark]:
                pass
    rest = text[start:].strip()
    if rest:
        parts.append(rest)
    return parts


def balanced(text: str, opening: int) -> str:
    """What stands inside the bracket that opens at ``opening``, up to its partner or the end of a cut name."""
    depth = 0
    for match in _MARKS.finditer(text, opening):
        mark = match.group()
        if mark in "<({[":
            depth += 1
        elif mark in _CLOSES:
            depth -= 1
            if depth == 0:
                return text[opening + 1 : match.start()]
    return text[opening + 1 :]


def last_identifier(text: str) -> str:
    """The identifier at the end of a qualified name, its template arguments and parameters left out."""
    for match in _MARKS.finditer(text):
        if match.group() in "<(":
            text = text[: match.start()]
            break
    return text.rpartition("::")[2].strip()
