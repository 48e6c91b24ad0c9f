"""Titles are lines of the first screen: they must fit one."""

from __future__ import annotations

import pytest
from timelines import TRACES

import foretrace

LINE = 85


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.glob("*.json.gz")))
def test_the_titles_of_findings_fit_a_line(name: str) -> None:
    titles = [finding.title for finding in foretrace.explain(TRACES / name).findings]
    assert titles
    assert not [title for title in titles if len(title) > LINE]
