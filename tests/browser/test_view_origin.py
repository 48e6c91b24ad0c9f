"""A real browser before the server of ``foretrace view``: the UI's page reads the trace, no other page does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from foretrace.knowledge.perfetto import UI_ORIGIN
from foretrace.view.opening import OpenTrace
from foretrace.view.server import TraceServer

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2}]})
ELSEWHERE = "https://elsewhere.example"
READ = "url => fetch(url).then(r => r.text()).catch(error => 'refused: ' + error)"
# What a page may do with any address without asking: fetch it unseen, or run it as a script.
EMBED = """url => new Promise(done => {
    const script = document.createElement('script');
    script.onload = () => done('loaded');
    script.onerror = () => done('refused');
    script.src = url;
    document.head.append(script);
})"""
UNSEEN = "url => fetch(url, {mode: 'no-cors'}).then(() => 'loaded').catch(() => 'refused')"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TraceServer]:
    file = tmp_path / "a trace.json"
    file.write_text(TRACE)
    with OpenTrace(file) as trace, TraceServer([trace], port=0) as running:
        yield running


def page_of(browser: Any, origin: str) -> Any:
    """An empty page that the browser takes for one of ``origin``; nothing is asked of the network.

    The user has allowed it to reach this device: what stays closed then is closed by the server.
    """
    context = browser.new_context()
    context.grant_permissions(["local-network-access"], origin=origin)
    context.route(f"{origin}/**", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    page = context.new_page()
    page.goto(f"{origin}/")
    assert page.evaluate("location.origin") == origin
    return page


def test_the_ui_reads_the_trace_and_the_server_ends(browser: Any, server: TraceServer) -> None:
    assert page_of(browser, UI_ORIGIN).evaluate(READ, server.urls[0]) == TRACE
    assert server.wait(timeout=20, grace=0.05) == []


@pytest.mark.parametrize("origin", [ELSEWHERE, "https://ui.perfetto.dev.elsewhere.example"])
def test_a_page_of_another_site_reads_nothing(browser: Any, server: TraceServer, origin: str) -> None:
    page = page_of(browser, origin)
    assert page.evaluate(READ, server.urls[0]).startswith("refused: TypeError")
    assert server.wait(timeout=0.05) == [0]


@pytest.mark.parametrize("how", [EMBED, UNSEEN], ids=["script", "unseen fetch"])
def test_a_page_of_another_site_embeds_nothing(browser: Any, server: TraceServer, how: str) -> None:
    assert page_of(browser, ELSEWHERE).evaluate(how, server.urls[0]) == "refused"


def test_a_name_that_was_pointed_at_this_machine_gets_nothing(browser: Any, server: TraceServer) -> None:
    page = browser.new_context().new_page()
    parts = urlsplit(server.urls[0])
    # Browsers look up every name below localhost here, as they would one that its owner points at 127.0.0.1.
    response = page.goto(f"http://rebound.localhost:{parts.port}{parts.path}")
    assert response.status == 403
    assert "traceEvents" not in page.content()
