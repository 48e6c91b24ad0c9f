"""The data block of a timeline, as the page reads it."""

from __future__ import annotations

from dataclasses import replace

from blocks import read

from builders import TraceBuilder
from foretrace import explain
from foretrace.analysis.timeline import timeline_of
from foretrace.report.html.timeline import timeline_block


def test_a_timeline_comes_out_as_it_went_in():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 30)
    build.kernel("</script><b>", 50, 12, launch=build.launch(20, 5))
    trace = build.trace()
    timeline = timeline_of(trace, explain(trace))
    block = timeline_block("timeline", timeline)
    id, document, columns = read(block)
    assert id == "timeline"
    assert document["names"] == timeline.names
    assert len(document["labels"]) == len(document["names"])
    assert document["bands"] == [{"label": "ProfilerStep#1", "start": 0, "end": 100_000}]
    assert [lane["title"] for lane in document["lanes"]] == ["thread 100", "stream 7"]
    assert {lane["side"] for lane in document["lanes"]} == {"cpu", "gpu"}
    assert document["unit"] == "ns"
    assert document["left_out"] == {}
    for name in ("lane", "depth", "start", "duration", "name", "kind", "event", "arrow_from", "arrow_to"):
        assert columns[name].tolist() == getattr(timeline, name).tolist()
    assert columns["start"].dtype == "float64"
    assert "<b>" not in str(block)


def test_every_text_of_a_timeline_is_spelled_out():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.kernel("k\u202e\x00", 50, 12, launch=build.launch(20, 5))
    trace = build.trace()
    timeline = timeline_of(trace, explain(trace))
    timeline.lanes = [replace(lane, title="\x1b", group="\u2028", subtitle="\n") for lane in timeline.lanes]
    timeline.bands = [replace(band, label="\u200b") for band in timeline.bands]
    timeline.kinds = [f"{kind}\x07" for kind in timeline.kinds]
    _, document, _ = read(timeline_block("t", timeline))
    assert "k\\u202e\\x00" in document["names"]
    assert {(lane["title"], lane["group"], lane["subtitle"]) for lane in document["lanes"]} == {
        ("\\x1b", "\\u2028", "\\n")
    }
    assert [band["label"] for band in document["bands"]] == ["\\u200b"]
    assert all(kind.endswith("\\x07") for kind in document["kinds"])


def test_a_timeline_without_labels_shows_names():
    trace = TraceBuilder().trace()
    timeline = timeline_of(trace, explain(trace))
    timeline.names, timeline.labels = ["a"], []
    _, document, _ = read(timeline_block("t", timeline))
    assert document["labels"] == ["a"]
