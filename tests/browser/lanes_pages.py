"""Small pages around the lanes component, and timelines to put into them."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from foretrace.model.timeline import Band, DrawnLane, Timeline
from foretrace.report.html.timeline import timeline_block

__all__ = ["lanes_page", "many_rows", "timeline_with"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_START = """
foretrace.unpack('timeline').then((data) => {
  window.told = [];
  const options = foretrace.timelineOptions(data);
  const onSelect = (row) => window.told.push(row);
  const here = document.getElementById('here');
  window.lanes = new foretrace.Lanes(here, { ...options, label: 'Timeline of a test', onSelect });
});
"""


def lanes_page(timeline: Timeline, *, below: str = "") -> bytes:
    """A page that holds a timeline and nothing else, under the policy of the reports."""
    root = files("foretrace.report.html")
    assets = sorted(
        (one for one in root.joinpath("assets").iterdir() if one.name.startswith("lanes") and one.name.endswith(".js")),
        key=lambda one: one.name,
    )
    scripts = [
        root.joinpath("vendor/d3.min.js"),
        root.joinpath("assets/payload.js"),
        root.joinpath("assets/words.js"),
        *assets,
    ]
    code = "".join(f"<script>{one.read_text(encoding='utf-8')}</script>" for one in scripts)
    style = root.joinpath("assets/lanes.css").read_text(encoding="utf-8")
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>Lanes</title>'
        f"<style>body {{ margin: 12px }} {style}</style><div id='here'></div>{below}"
        f"{timeline_block('timeline', timeline)}{code}<script>{_START}</script></html>"
    ).encode()


def timeline_with(
    rows: list[tuple[int, int, int, int, str, str]],
    *,
    lanes: list[DrawnLane],
    arrows: list[tuple[int, int]] | None = None,
    bands: list[Band] | None = None,
) -> Timeline:
    """A timeline of (lane, depth, start, duration, name, kind) rows in order of lane, then start; events from 1000."""
    names = sorted({row[4] for row in rows})
    kinds = sorted({row[5] for row in rows})
    tied = arrows or []
    return Timeline(
        lanes=lanes,
        names=names,
        kinds=kinds,
        lane=np.array([row[0] for row in rows], dtype=np.uint16),
        depth=np.array([row[1] for row in rows], dtype=np.uint16),
        start=np.array([row[2] for row in rows], dtype=np.int64),
        duration=np.array([row[3] for row in rows], dtype=np.int64),
        name=np.array([names.index(row[4]) for row in rows], dtype=np.uint32),
        kind=np.array([kinds.index(row[5]) for row in rows], dtype=np.uint8),
        event=np.arange(len(rows), dtype=np.int64) + 1000,
        arrow_from=np.array([one for one, _ in tied], dtype=np.uint32),
        arrow_to=np.array([other for _, other in tied], dtype=np.uint32),
        bands=bands or [],
    )


def many_rows(count: int) -> Timeline:
    """About ``count`` rows within a second: three threads eight calls deep, four streams that are mostly busy."""
    random = np.random.default_rng(0)
    span, depth = 10**9, 8
    per_lane = count // 7
    parts: dict[str, list[np.ndarray]] = {key: [] for key in ("lane", "depth", "start", "duration", "name", "kind")}

    def add(lane: int, below: int, start: np.ndarray, end: np.ndarray, name: np.ndarray, kind: np.ndarray) -> None:
        columns = (np.full(len(start), lane), np.full(len(start), below), start, end - start, name, kind)
        for key, column in zip(parts, columns, strict=True):
            parts[key].append(column)

    for lane in range(3):
        roots = per_lane // depth
        start = np.sort(random.choice(span, roots, replace=False))
        end = np.append(start[1:], span)
        for below in range(depth):
            inner = start + (end - start) * below // 40
            outer = end - (end - start) * (below + 1) // 20
            add(lane, below, inner, outer, random.integers(0, 300, roots), np.full(roots, int(below == depth - 1)))
    for lane in range(3, 7):
        start = np.sort(random.choice(span, per_lane, replace=False))
        length = (np.append(np.diff(start), 1000) * random.uniform(0.2, 0.95, per_lane)).astype(np.int64)
        add(lane, 0, start, start + length, random.integers(300, 600, per_lane), random.integers(2, 7, per_lane))
    columns = {key: np.concatenate(part) for key, part in parts.items()}
    order = np.lexsort((columns["depth"], columns["start"], columns["lane"]))
    columns = {key: column[order] for key, column in columns.items()}
    launches = np.flatnonzero(columns["kind"] == 1)
    launched = np.flatnonzero(columns["lane"] >= 3)[: len(launches)]
    cpu = [DrawnLane(f"thread {i}", "CPU, process 1", "cpu", depth) for i in range(3)]
    gpu = [DrawnLane(f"stream {i}", "GPU 0", "gpu", 1) for i in range(4)]
    return Timeline(
        lanes=[*cpu, *gpu],
        names=[f"aten::operator_{i}" for i in range(300)] + [f"kernel_{i}<float, {i}>" for i in range(300)],
        kinds=["operator", "call", "gemm", "elementwise", "fused", "reduction", "copy"],
        lane=columns["lane"].astype(np.uint16),
        depth=columns["depth"].astype(np.uint16),
        start=columns["start"].astype(np.int64),
        duration=columns["duration"].astype(np.int64),
        name=columns["name"].astype(np.uint32),
        kind=columns["kind"].astype(np.uint8),
        event=np.arange(len(order), dtype=np.int64),
        arrow_from=launches[: len(launched)].astype(np.uint32),
        arrow_to=launched.astype(np.uint32),
        bands=[Band(f"ProfilerStep#{i}", i * 10**7, (i + 1) * 10**7 - 10**5) for i in range(100)],
    )
