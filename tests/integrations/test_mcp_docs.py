"""The dialogue of docs/how-to/agents.md is what the server says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_session import Session, served

from foretrace.knowledge.agents import TOOLS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/agents.md").read_text()
DIALOGUE = [
    json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE.partition("## A dialogue")[2], re.DOTALL)
]

pytestmark = pytest.mark.xdist_group("mcp")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with served(ROOT / "src/foretrace/cli/samples") as opened:
        yield opened


def holds(whole: Any, part: Any) -> bool:
    """Whether an excerpt is in an answer: some keys of its objects, the first items of its lists."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(part) <= len(whole) and all(holds(a, b) for a, b in zip(whole, part, strict=False))
    return bool(whole == part)


@pytest.mark.parametrize("turn", range(len(DIALOGUE) // 2), ids=[one["tool"] for one in DIALOGUE[::2]])
def test_the_dialogue_is_real(session: Session, turn: int) -> None:
    question, excerpt = dict(DIALOGUE[2 * turn]), DIALOGUE[2 * turn + 1]
    answer = session.answer(question.pop("tool"), **question)
    assert holds(answer, excerpt), json.dumps(answer, ensure_ascii=False, indent=1)


def test_an_excerpt_that_is_not_there_is_noticed() -> None:
    assert holds({"a": [1, {"b": 2, "c": 3}]}, {"a": [1, {"b": 2}]})
    assert not holds({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})
    assert not holds({"a": [1]}, {"a": [1, 2]})


def test_the_page_lists_every_tool() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(TOOLS)
