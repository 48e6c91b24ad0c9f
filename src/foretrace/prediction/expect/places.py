"""Names of places as a person writes them: what has to stand in quotes, so that no place is swallowed by a name.

``mlp_fwd: op aten::mm: calls == 0`` would ask for a region that nobody has, and hold.
"""

from __future__ import annotations

import json
import re

from foretrace.errors import InputError
from foretrace.knowledge.kineto import compiled_region

__all__ = ["ambiguous", "not_one_place", "one_place", "quoted", "unquoted"]

# What in a name without quotes is a place inside another, or the sort of a place.
_NESTED = re.compile(r":\s")
_WORD_FIRST = re.compile(r"(?:step|region|module|op)(?:\s|\Z)")
_NEXT_PLACE = re.compile(r"\s*[:,]\s*(?=(?:region|module|op)\s+\S)")
_PLAIN = re.compile(r"[\w.*?:#+-]+(?: [\w.*?:#+/-]+)*\Z")


def ambiguous(name: str) -> bool:
    """Whether a name without quotes may as well be two places, or a place without its name.

    The label that torch.compile gives its regions has a colon and is none of these.
    """
    if _WORD_FIRST.match(name):
        return True
    return _NESTED.search(name) is not None and compiled_region(name) is None


def not_one_place(kind: str | None, name: str) -> str:
    """What to write for a name without quotes that is ambiguous; ``kind`` is the word in front of it."""
    lead = f"{kind} " if kind else ""
    apart = _NEXT_PLACE.sub(", ", name)
    if apart != name:
        return f"separate places with a comma: '{lead}{apart}: …'; a name with a colon in it stands in quotes"
    quoted = f"{kind or 'region'} {json.dumps(name, ensure_ascii=False)}"
    if _WORD_FIRST.match(name):
        return (
            f"{name.split()[0]} is a sort of place, whose name is missing; a name so written stands in quotes: {quoted}"
        )
    return (
        f"separate places with a comma, as in 'mlp_fwd, op aten::mm: …'; a name with a colon stands in quotes: {quoted}"
    )


def one_place(kind: str, name: int | str | None) -> int | str | None:
    """A name of the Python form, without the quotes that say that it is one name and not two places.

    Raises ``InputError`` for one that reads like two places.
    """
    if not isinstance(name, str) or _NEXT_PLACE.search(name) is None:
        return name
    text = name.strip()
    if len(text) > 2 and text[0] == text[-1] == '"':
        return unquoted(text)
    first, second = _NEXT_PLACE.split(text, maxsplit=1)
    inner, rest = second.split(maxsplit=1)
    raise InputError(
        f"{kind}={text!r} reads like two places: write {kind}={first!r}, {inner}={rest!r}, "
        "or put what is one name in double quotes inside the text"
    )


def quoted(text: str) -> str:
    """A name or a value as a line has it: in double quotes where it would be read as something else."""
    plain = _PLAIN.match(text) and not text.endswith(":") and not ambiguous(text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def unquoted(text: str) -> str:
    """What stands between double quotes; a text without them as it is. Raises ``InputError``."""
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        raise InputError(f"{text} is no quoted text") from None
