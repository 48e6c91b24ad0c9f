"""Never slower: over a grid of shapes, the dispatched call against the best of eager, compile and Liger.

Every implementation of ours is measured beside them, which is what the shipped tuned table is made from.
"""

from __future__ import annotations

from typing import Any

from fused_bench import shapes
from fused_bench.case import Case
from fused_bench.document import ratio
from fused_bench.opponents import OPPONENTS
from fused_bench.ours import OURS, choices_for, forced
from fused_bench.session import Session, measure_case
from fused_bench.tables import grid_table, show_ratio

__all__ = ["PROMISED", "RIVALS", "conclude", "held_out", "never_slower", "slower", "verdict"]

RIVALS = ("eager", "compile", "liger", "liger-fused")
# The dispatched call takes at most this much of the best rival's time.
PROMISED = 1.02


def never_slower(session: Session) -> None:
    """Measure the grid."""
    _measure(session, "never-slower", shapes.grid(session.shapes, session.dtype))


def held_out(session: Session) -> None:
    """Measure shapes that are in no table."""
    _measure(session, "held-out", shapes.held_out(session.shapes, session.dtype))


def _measure(session: Session, suite: str, cases: list[Case]) -> None:
    """Measure all cases; the table comes at the end, since one line is enough for a case."""
    records: list[dict[str, Any]] = []

    def run(case: Case) -> dict[str, Any] | None:
        entrants = [OPPONENTS[name] for name in RIVALS] + [OURS["foretrace"]]
        words = choices_for(case, session.device.name, variants=session.variants)
        entrants += [forced(choice) for choice in dict.fromkeys([*session.forced, *words])]
        record = measure_case(
            session,
            case,
            entrants,
            clocks=("graph", "wall") if session.device.is_gpu else ("events", "wall"),
            wall_only=[*RIVALS, "foretrace"],
            show=False,
        )
        if record is None:
            return None
        conclude(record, "graph" if session.device.is_gpu else "events")
        records.append(record)
        return record

    session.each(suite, cases, run)
    if records:
        session.say(grid_table(records))
        session.say(verdict(records))


def conclude(record: dict[str, Any], clock: str) -> None:
    """Add to a case: its best rival and our ratio to it, in GPU and in wall time, and our best choice."""
    record["clock"] = clock
    record["against_best"] = against_best(record["entrants"], clock)
    record["against_best_wall"] = against_best(record["entrants"], "wall")
    ours = {
        name: result[clock]["median_us"] for name, result in record["entrants"].items() if _forced(name, result, clock)
    }
    best = min(ours, key=lambda name: ours[name], default=None)
    record["best_choice"] = None if best is None else {"choice": best, "median_us": ours[best]}


def against_best(entrants: dict[str, dict[str, Any]], clock: str) -> dict[str, Any] | None:
    """The rival with the smallest median, and the ratio of ours to it; ``None`` where one side was not timed."""
    ours = entrants.get("foretrace", {}).get(clock)
    rivals = {name: entrants[name][clock] for name in RIVALS if entrants.get(name, {}).get(clock)}
    if not ours or not rivals:
        return None
    best = min(rivals, key=lambda name: rivals[name]["median_us"])
    return {"other": best, "ratio": ratio(ours["samples_us"], rivals[best]["samples_us"])}


def slower(records: list[dict[str, Any]], key: str = "against_best", *, surely: bool = False) -> list[dict[str, Any]]:
    """Cases above what is promised: by the median, or ``surely``, by the lower end of its interval as well."""
    found = []
    for record in records:
        against = record[key]
        if against is None or against["ratio"] is None or against["ratio"]["median"] <= PROMISED:
            continue
        interval = against["ratio"]["interval"]
        if not surely or interval is None or interval[0] > PROMISED:
            found.append(record)
    return found


def _forced(name: str, result: dict[str, Any], clock: str) -> bool:
    return name.startswith("expand=") and bool(result.get(clock))


def verdict(records: list[dict[str, Any]]) -> str:
    """How many cases keep the promise, and by name those that do not."""
    lines = []
    for key, what in (("against_best", "GPU time"), ("against_best_wall", "wall time of a loop")):
        compared = [record for record in records if record[key] is not None]
        above, surely = slower(compared, key), slower(compared, key, surely=True)
        lines.append(
            f"{what}: {len(compared)} cases, {len(above)} with a median above {PROMISED} of the best rival, "
            f"{len(surely)} of them with the whole interval"
        )
        lines += [f"  {record['name']}: {show_ratio(record[key]['ratio'])} {record[key]['other']}" for record in above]
    return "\n".join(lines)
