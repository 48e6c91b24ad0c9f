"""Pages in a real, headless Chromium, which must ask for nothing but their own file and complain of nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HERE = Path(__file__).parent

OpenPage = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of a worker."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        # A container's /dev/shm is too small for pages with large canvases.
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """``open_page(html or path, fragment="", **options)``: the page, opened from its file.

    ``options`` are those of a Playwright context: ``viewport``, ``color_scheme``, ``has_touch`` … At the end the test
    fails if the page asked for anything but its file, logged an error, or let an exception escape.
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def opened(html: bytes | Path, fragment: str = "", **options: Any) -> Any:
        path = html
        if isinstance(html, bytes):
            path = tmp_path / f"page{len(contexts)}.html"
            path.write_bytes(html)
        address = Path(path).resolve().as_uri()
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()

        def logged(message: Any) -> None:
            if message.type == "error":
                complaints.append(f"console: {message.text}")

        def asked(request: Any) -> None:
            if request.url.split("#")[0] != address:
                complaints.append(f"request: {request.method} {request.url[:200]}")

        page.on("console", logged)
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.on("request", asked)
        page.on("websocket", lambda socket: complaints.append(f"socket: {socket.url}"))
        page.goto(address + fragment)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
