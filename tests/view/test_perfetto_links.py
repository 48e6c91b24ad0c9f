"""Links into the Perfetto UI carry the address and the place whole, in the times that Perfetto has."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.knowledge.perfetto import PARAMETERS, UI_ORIGIN, UI_TRACE_LINK, perfetto_ns
from foretrace.trace.load import parse
from foretrace.trace.table import Trace
from foretrace.view.links import Window, perfetto_link, window_of

HUB = "https://huggingface.co/buckets/someone/traces/resolve/"


def arguments(link: str) -> dict[str, str]:
    """What the UI's router reads of a link: what stands behind ``#!/?``, by name."""
    assert link.startswith(UI_TRACE_LINK)
    pairs = parse_qsl(link.removeprefix(UI_TRACE_LINK), keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs), "a name stands there twice"
    return dict(pairs)


def trace_of(events: str, meta: str = "") -> Trace:
    return parse(f'{{"schemaVersion": 1, {meta}"traceEvents": [{events}]}}'.encode())


def row(name: str, ts: str, dur: str, *, pid: str = "1", tid: str = "2", cat: str = "cpu_op") -> str:
    return f'{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid}, "ts": {ts}, "dur": {dur}}}'


def test_the_address_of_the_trace_never_reaches_the_server_of_the_ui() -> None:
    link = perfetto_link(f"{HUB}a.json.gz")
    assert link.startswith(f"{UI_ORIGIN}/#!/?url=https%3A%2F%2Fhuggingface.co%2F")
    assert arguments(link) == {"url": f"{HUB}a.json.gz"}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("my trace.json", "my%20trace.json"),
        ("über/Größe.json", "%C3%BCber/Gr%C3%B6%C3%9Fe.json"),
        ("100%.json", "100%25.json"),
        ("my%20trace.json", "my%20trace.json"),
        ("a.json?download=true&x=1", "a.json?download=true&x=1"),
        ("a+b.json", "a+b.json"),
        ("a\nb\t\"<>'.json", "a%0Ab%09%22%3C%3E'.json"),
    ],
    ids=["space", "unicode", "percent", "quoted already", "query", "plus", "control characters and quotes"],
)
def test_an_address_is_quoted_once_and_comes_out_whole(name: str, asked: str) -> None:
    link = perfetto_link(HUB + name)
    assert arguments(link) == {"url": HUB + asked}
    assert link.isascii()
    assert link.isprintable()
    assert " " not in link


@given(st.text(max_size=40))
def test_no_name_can_break_out_of_its_parameter(name: str) -> None:
    found = arguments(perfetto_link(f"{HUB}{name}", window=Window(1, 2)))
    assert set(found) == {"url", "visStart", "visEnd"}
    assert found["url"].startswith(HUB)
    assert (found["visStart"], found["visEnd"]) == ("1", "2")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.json",
        "http://localhost:9001/a.json",
        "http://127.0.0.1.example.com/a.json",
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "a.json",
        "",
        "https://",
        "https://[bad/a.json",
        "https://example.com/half a pair \ud800",
    ],
)
def test_what_the_ui_may_not_fetch_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="fetches only from https"):
        perfetto_link(url)


def test_a_password_is_not_put_into_a_link() -> None:
    with pytest.raises(InputError, match="password") as refused:
        perfetto_link("https://me:secret@example.com/a.json")
    assert "secret" not in str(refused.value)


def test_a_window_and_its_event_are_integers_under_documented_names() -> None:
    window = Window(5127716513782000, 5127716514153000, (5127716513782249, 371432, 478, 478))
    found = arguments(perfetto_link("http://127.0.0.1:9001/x/a.json", window=window))
    assert found == {
        "url": "http://127.0.0.1:9001/x/a.json",
        "ts": "5127716513782249",
        "dur": "371432",
        "pid": "478",
        "tid": "478",
        "visStart": "5127716513782000",
        "visEnd": "5127716514153000",
    }
    assert set(found) <= set(PARAMETERS)


@pytest.mark.parametrize("lane", [("Spans", "PyTorch Profiler"), (-1, -1)], ids=["names", "none"])
def test_a_process_without_a_number_is_left_out(lane: tuple[int | str, int | str]) -> None:
    found = arguments(perfetto_link(HUB, window=Window(1, 9, (2, 3, *lane))))
    assert set(found) == {"url", "ts", "dur", "visStart", "visEnd"}


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5)])
def test_an_empty_window_is_refused(start: int, end: int) -> None:
    with pytest.raises(InputError, match="shows nothing"):
        perfetto_link(HUB, window=Window(start, end))


# ---- times


@given(st.integers(0, 2**43 * 1000 - 1))
def test_times_of_the_usual_clocks_are_exact(ns: int) -> None:
    assert perfetto_ns(ns) == ns


def test_a_file_time_that_a_float_cannot_hold_is_what_perfetto_makes_of_it() -> None:
    # A float64 keeps quarters of a microsecond there, and of the ns every 256th.
    assert int(float("1700000000123456.789") * 1000.0) == 1700000000123456768
    assert perfetto_ns(1700000000123456789) == 1700000000123456768


def test_whole_microseconds_stay_exact_however_large() -> None:
    assert perfetto_ns(1700000000123457000) == 1700000000123457000


def test_a_window_lies_inside_the_trace_with_a_margin_where_there_is_room() -> None:
    trace = trace_of(",".join([row("a", "100.5", "900"), row("b", "400", "100.25"), row("c", "900", "200")]))
    assert window_of(trace, 400_000, 500_250, row=1) == Window(394_988, 505_262, (400_000, 100_250, 1, 2))
    assert window_of(trace, 0, 10_000_000) == Window(100_500, 1_100_000)


def test_an_event_without_duration_still_has_a_window() -> None:
    trace = trace_of(",".join([row("a", "100", "900"), row("b", "400", "0")]))
    assert window_of(trace, 400_000, 400_000, row=1) == Window(399_999, 400_001, (400_000, 0, 1, 2))


def test_the_base_time_of_the_file_is_not_added() -> None:
    trace = trace_of(row("a", "100", "900"), meta='"baseTimeNanoseconds": 1790857026000000000, ')
    assert window_of(trace, 100_000, 1_000_000) == Window(100_000, 1_000_000)


def test_a_stream_is_a_process_and_thread_as_well() -> None:
    trace = trace_of(",".join([row("a", "100", "900"), row("k", "400", "1", pid="0", tid="7", cat="kernel")]))
    window = window_of(trace, 400_000, 401_000, row=1)
    assert window is not None
    assert window.event == (400_000, 1_000, 0, 7)


@pytest.mark.parametrize(
    "events",
    [row("a", "1700000000123456789", "1000"), row("a", "100", "0"), ""],
    ids=["nanoseconds as microseconds", "no extent", "no rows"],
)
def test_no_window_where_no_link_could_lead(events: str) -> None:
    assert window_of(trace_of(events), 0, 2**61) is None


def test_no_window_beside_the_trace() -> None:
    assert window_of(trace_of(row("a", "100", "900")), 2_000_000, 3_000_000) is None
