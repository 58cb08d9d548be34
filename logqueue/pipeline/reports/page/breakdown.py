"""Parts of the answer to "why": how long things took as a picture, and by tag.

Owns: the heatmaps of waits and runs, the table of tags. Must not know: the other questions.
"""

from __future__ import annotations

from typing import Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import NULL, SUMMED
from logqueue.pipeline.reports.page.markup import foreign, table
from logqueue.pipeline.reports.page.steps import Values
from logqueue.pipeline.reports.page.view import PageView, number, panel

MOST_ROWS = 25
_HEATS = {"wait": "How long jobs waited", "run": "How long runs took"}


def heatmaps(view: PageView) -> list[str]:
    """How many values were how long, over time: slow ones show even where percentiles hide them."""
    found = view.figures.over_time("report_heatmap", ["metric", "from_ms"], {"n": SUMMED})
    step = numbers.span(view.figures.steps.width)
    made = []
    for metric, title in _HEATS.items():
        rows: dict[int, Values] = {}
        for (name, low), series in found.items():
            if name == metric and low != NULL:
                edge = _octave(int(low))
                before = rows.get(edge)
                rows[edge] = (
                    series["n"]
                    if before is None
                    else [(a or 0) + (b or 0) for a, b in zip(before, series["n"], strict=True)]
                )
        if not rows:
            continue
        highest, lowest = max(rows), min(rows)
        edges = [edge for edge in _EDGES if lowest <= edge <= highest]
        nothing: Values = [0.0] * view.figures.steps.count
        chart = view.chart(title, f"how many per {step}, by at least how long")
        shown = [
            (numbers.duration(edge) if edge else "less", rows.get(edge, nothing))
            for edge in reversed(edges)
        ]
        made.append(chart.heat(shown, name=f"heat-{metric}"))
    return made


_EDGES = (0, *(1 << n for n in range(40)))


def _octave(low: int) -> int:
    return 0 if low <= 0 else 1 << (low.bit_length() - 1)


def tag_tables(view: PageView) -> str:
    """Leases, failures, waits and runs of each tag over the whole range."""
    figures = view.figures
    rows = [row for row in figures.whole_range("report_tags") if row["claims"] or row["appended"]]
    if not any(row["tag"] is not None for row in rows):
        return ""
    latency: dict[tuple[Any, Any, str], dict[str, Any]] = {
        (row["topic"], row["tag"], row["metric"]): row
        for row in figures.whole_range("report_latency_by_tag")
    }

    def p95(row: dict[str, Any], metric: str) -> float | None:
        found = latency.get((row["topic"], row["tag"], metric))
        return found["p95"] if found else None

    def share(row: dict[str, Any]) -> float:
        ended = number(row, "acks") + number(row, "failures")
        return number(row, "failures") / ended if ended else 0.0

    rows.sort(key=lambda row: (-number(row, "run_ms"), row["topic"], str(row["tag"])))
    top = max(number(row, "run_ms") for row in rows)
    worst = max(share(row) for row in rows)
    made = table(
        [
            "tag",
            "topic",
            "#jobs",
            "#acks",
            "failures",
            "#p95 wait",
            "#p95 run",
            "time under leases",
        ],
        (
            view.marked(
                [
                    foreign(row["tag"], 60),
                    foreign(row["topic"], 60),
                    numbers.count(row["appended"]),
                    numbers.count(row["acks"]),
                    charts.bar(share(row), worst, numbers.share(share(row)), "b"),
                    numbers.duration(p95(row, "wait")),
                    numbers.duration(p95(row, "run")),
                    charts.bar(number(row, "run_ms"), top, numbers.duration(row["run_ms"])),
                ],
                topic=row["topic"],
                tag=row["tag"],
            )
            for row in rows[:MOST_ROWS]
        ),
        "tags",
        view.cut(len(rows), MOST_ROWS, "tags, those with the most work first"),
    )
    return f'<div class="after">{panel("Tags", made, "whole range")}</div>'
