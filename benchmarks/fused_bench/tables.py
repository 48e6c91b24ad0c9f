"""What a suite found, as a table on the terminal."""

from __future__ import annotations

from typing import Any

__all__ = ["case_table", "grid_table", "show_ratio", "text_table"]


def text_table(head: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their widest cell; the first flush left, the others flush right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: list[str]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))])

    return "\n".join(line(row).rstrip() for row in [head, *rows])


def show_ratio(found: dict[str, Any] | None) -> str:
    """``0.93 [0.92, 0.94]``; a dash where there is none."""
    if found is None:
        return "-"
    if found["interval"] is None:
        return f"{found['median']:.3f}"
    low, high = found["interval"]
    return f"{found['median']:.3f} [{low:.3f}, {high:.3f}]"


def case_table(record: dict[str, Any], name: str = "foretrace") -> str:
    """All entrants of one case: times, memory, and how entrant ``name`` compares to each."""
    clocks = [clock for clock in ("graph", "events", "wall", "host") if _has(record, clock)]
    with_peak = any(result.get("peak_bytes") is not None for result in record["entrants"].values())
    first = clocks[0] if clocks else "events"
    head = ["", *(f"{clock} µs" for clock in clocks), *(["peak MiB"] if with_peak else []), "first s"]
    head.append(f"{name} / it ({first})")
    rows, notes = [], []
    for entrant, result in record["entrants"].items():
        if result["state"] == "absent":
            continue
        if result["state"] != "ok":
            notes.append(f"  {entrant}: {result['state']}: {result['reason']}")
            continue
        cells = [entrant, *(_time(result.get(clock)) for clock in clocks)]
        if with_peak:
            peak = result.get("peak_bytes")
            cells.append("-" if peak is None else f"{peak / 2**20:.1f}")
        seconds = result.get("first_call_s")
        cells.append("-" if seconds is None else f"{seconds:.2f}")
        cells.append(show_ratio(record.get("ratios", {}).get(first, {}).get(entrant)))
        rows.append(cells)
    return "\n".join([text_table(head, rows) if rows else "  nothing was timed", *notes])


def grid_table(records: list[dict[str, Any]]) -> str:
    """One line a case: the best of the others, and how the dispatched call compares to it."""
    head = [
        "case",
        "eager µs",
        "compile µs",
        "liger µs",
        "foretrace µs",
        "foretrace / best other",
        "best choice of ours",
    ]
    rows = []
    for record in records:
        clock = record["clock"]
        entrants = record["entrants"]
        cells = [record["name"]]
        cells += [_time((entrants.get(name) or {}).get(clock)) for name in ("eager", "compile", "liger", "foretrace")]
        worst = record["against_best"]
        cells.append("-" if worst is None else f"{show_ratio(worst['ratio'])} {worst['other']}")
        best = record["best_choice"]
        cells.append("-" if best is None else f"{best['median_us']:.1f} {best['choice']}")
        rows.append(cells)
    return text_table(head, rows)


def _has(record: dict[str, Any], clock: str) -> bool:
    return any(result.get(clock) for result in record["entrants"].values())


def _time(timing: dict[str, Any] | None) -> str:
    if not timing:
        return "-"
    if timing["iqr_us"] is None:
        return f"{timing['median_us']:.1f}"
    return f"{timing['median_us']:.1f} ±{timing['iqr_us'] / 2:.1f}"
