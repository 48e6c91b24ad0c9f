"""Hooks that other plugins and ``conftest.py`` files may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from foretrace.capture.backend import Backend


@pytest.hookspec(firstresult=True)
def pytest_foretrace_backend(item: pytest.Item) -> Backend | None:
    """Return the profiler that records this test; ``None`` leaves it to the next one, and in the end to torch's.

    It is meant for tests of expectations themselves: a backend may write a recorded trace as if it had just run.
    """
