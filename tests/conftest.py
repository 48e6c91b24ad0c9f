"""Shared by all tests; its place puts ``tests/`` on the import path, for ``from builders import …``."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples on every run, and no verdict by the clock of a busy machine.
settings.register_profile("foretrace", derandomize=True, deadline=None)
settings.load_profile("foretrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regolden",
        action="store_true",
        help="write the golden files (tests/data/golden, the JSON Schema) anew instead of comparing with "
        "them; read the diff before you commit it",
    )


@pytest.fixture
def regolden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--regolden"))
