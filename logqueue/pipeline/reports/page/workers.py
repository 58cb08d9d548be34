"""Sections about those who work: who is slow, how many are needed.

Owns: these two questions. Must not know: how anything is drawn or gathered.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from statistics import median
from typing import Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import SUMMED
from logqueue.pipeline.reports.page.markup import foreign, table, text
from logqueue.pipeline.reports.page.series import ALL, WORKERS
from logqueue.pipeline.reports.page.steps import Values
from logqueue.pipeline.reports.page.view import (
    BAD,
    GOOD,
    NEITHER,
    PageView,
    Section,
    flag,
    known,
    many,
    number,
    panel,
)

MOST_ROWS = 25
MOST_STRIPS = 24
SLOW = 1.5
"""How many times the usual p95 makes a worker slow."""
FEWEST_ACKS = 5
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def workers(view: PageView) -> Section:
    """Who worked, how fast, and leases that look stuck."""
    question = "Is a worker slow?"
    rows = view.figures.whole_range("report_workers")
    stuck = _stuck(view)
    if not rows:
        remark = flag(NEITHER, "No data") + " No worker claimed a job in this range."
        body = view.empty("No worker claimed a job.") + stuck
        return Section("workers", "Workers", question, remark, body)
    slow = _slow(rows)
    for row in rows:
        row["mean"] = number(row, "busy_ms") / number(row, "claims") if row["claims"] else None
    rows.sort(key=lambda row: (-number(row, "p95_run"), row["topic"], str(row["worker"])))
    top = max(number(row, "p95_run") for row in rows)
    made = table(
        ["worker", "topic", "#claims", "#acks", "#failures", "p95 of a run", "#jobs in hand"],
        (
            view.marked(
                [
                    foreign(row["worker"], 60),
                    foreign(row["topic"], 60),
                    numbers.count(row["claims"]),
                    numbers.count(row["acks"]),
                    numbers.count(row["failures"]),
                    charts.bar(number(row, "p95_run"), top, numbers.duration(row["p95_run"])),
                    numbers.count(row["utilisation"]),
                ],
                topic=row["topic"],
                worker=row["worker"],
            )
            for row in rows[:MOST_ROWS]
        ),
        caption=view.cut(len(rows), MOST_ROWS, "workers, the slowest first"),
    )
    body = panel("Workers", made, "whole range")
    return Section(
        "workers", "Workers", question, _workers_answer(rows, slow), _strips(view) + body + stuck
    )


def _slow(rows: list[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """Workers well above what is usual in their topic, the worst first, with how many times."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if number(row, "acks") >= FEWEST_ACKS and row["p95_run"]:
            by_topic.setdefault(row["topic"], []).append(row)
    found = []
    for mine in by_topic.values():
        usual = median(number(row, "p95_run") for row in mine)
        found += [
            (number(row, "p95_run") / usual, row)
            for row in mine
            if number(row, "p95_run") >= SLOW * usual
        ]
    return sorted(found, key=lambda item: (-item[0], str(item[1]["worker"])))


def _workers_answer(rows: list[dict[str, Any]], slow: list[tuple[float, dict[str, Any]]]) -> str:
    there = many(len({row["worker"] for row in rows}), "worker")
    if not slow:
        return flag(GOOD, "No") + f" {there}; none is far from what is usual in its topic."
    times, row = slow[0]
    more = len({one["worker"] for _, one in slow} - {row["worker"]})
    others = f" Beside it, {many(more, 'other worker')} are slow." if more else ""
    return (
        flag(BAD, "Yes")
        + f" <b>{foreign(row['worker'], 60)}</b> needs {times:.1f} times as long in "
        f"{foreign(row['topic'], 60)} as is usual there: a p95 of "
        f"{numbers.duration(row['p95_run'])}.{others}"
    )


def _strips(view: PageView) -> str:
    """How busy each worker was over time, over all topics."""
    found = view.figures.over_time("report_workers", ["worker"], {"busy_ms": SUMMED})
    width = view.figures.steps.width
    strips = []
    for (worker,), series in found.items():
        busy = series["busy_ms"]
        there = [n for n, value in enumerate(busy) if value]
        if there:
            hands: Values = [
                (value or 0.0) / width if there[0] <= n <= there[-1] else None
                for n, value in enumerate(busy)
            ]
            strips.append((sum(known(busy)), worker, hands))
    strips.sort(key=lambda item: (-item[0], item[1]))
    shown = sorted((name, hands) for _, name, hands in strips[:MOST_STRIPS])
    chart = view.chart("How busy workers were", f"jobs in hand, mean of {numbers.span(width)}")
    note = view.cut(len(strips), MOST_STRIPS, "workers, the busiest")
    return f'<div class="strips">{chart.heat(shown, note=note, empty=_IDLE)}</div>'


_IDLE = "No worker had a job in hand in any bucket."


def _stuck(view: PageView) -> str:
    figures = view.figures
    there_are = figures.count("report_stuck")
    if not there_are:
        return view.empty("No lease looks stuck: none was held far longer than usual or lost.")
    rows = figures.rows(
        "report_stuck",
        order=[("open", "descending"), ("held_ms", "descending"), ("topic", "ascending")],
        most=MOST_ROWS,
    )
    top = max(number(row, "held_ms") for row in rows)
    made = table(
        ["topic", "#job", "worker", "held", "#extended", "still held", "why"],
        (
            view.marked(
                [
                    foreign(row["topic"], 60),
                    view.job(row["topic"], row["job_seq"]),
                    foreign(row["worker"], 60),
                    charts.bar(number(row, "held_ms"), top, numbers.duration(row["held_ms"]), "b"),
                    numbers.count(row["extensions"]),
                    "yes" if row["open"] else "no",
                    text(row["why"]),
                ],
                topic=row["topic"],
                worker=row["worker"],
            )
            for row in rows
        ),
        caption=view.cut(there_are, MOST_ROWS, "leases, those still held first"),
    )
    remark = "extended too often, held far longer than others, or never given back"
    return panel("Leases that look stuck", made, remark)


def capacity(view: PageView) -> Section:
    """Workers needed against workers seen, over time and by day of the week."""

    def chart_of(topic: str) -> str:
        return view.draw(WORKERS, topic)

    def remark(topic: str) -> str:
        needed = [known(line.values) for line in view.lines(WORKERS, topic)[:1]]
        most = max(needed[0], default=None) if needed else None
        return f"at most {numbers.count(math.ceil(most))} needed" if most is not None else ""

    body = view.for_all_then_each(chart_of(ALL), chart_of, remark)
    week = _week(view)
    answer = _capacity_answer(week)
    question = "How many workers will Monday need?"
    return Section("capacity", "Capacity", question, answer, _week_panel(week) + body)


Week = dict[int, tuple[float, float, int]]


def _week(view: PageView) -> Week:
    """By day of the week: what its usual bucket needed, what its peak needed, how many buckets."""
    found = view.figures.totals("report_capacity", ["bucket"], {"needed_workers": SUMMED})
    days: dict[int, list[float]] = {}
    for (bucket,), of in found.items():
        if bucket != "None" and of["needed_workers"] is not None:
            day = datetime.fromtimestamp(int(bucket) / 1000, UTC).weekday()
            days.setdefault(day, []).append(number(of, "needed_workers"))
    return {day: (median(needed), max(needed), len(needed)) for day, needed in sorted(days.items())}


def _week_panel(week: Week) -> str:
    if not week:
        return ""
    top = max(peak for _, peak, _ in week.values())
    made = table(
        ["day (UTC)", "peak bucket", "#usual bucket", "#buckets seen"],
        (
            [
                DAYS[day],
                charts.bar(peak, top, numbers.count(math.ceil(peak))),
                numbers.count(math.ceil(usual)),
                numbers.count(buckets),
            ]
            for day, (usual, peak, buckets) in week.items()
        ),
        caption="Whole workers that take one job at a time.",
    )
    return panel("Needed by day of the week", made, "all topics")


def _capacity_answer(week: Week) -> str:
    if not week:
        return flag(NEITHER, "Not known") + " No jobs came in, so there is nothing to go by."
    day = 0 if 0 in week else max(week, key=lambda one: week[one][1])
    usual, peak, _ = week[day]
    there = "" if day == 0 else f" There is no Monday in this range; {DAYS[day]} is used instead."
    return (
        flag(NEITHER, many(math.ceil(peak), "worker"))
        + f" to keep up in the busiest bucket, <b>{numbers.count(math.ceil(usual))}</b> in a usual "
        f"one, if {DAYS[day]} is like the last and each takes one job at a time.{there}"
    )
