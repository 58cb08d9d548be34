"""Sections about what flows through: is it backing up, is it slower, were promises kept.

Owns: these three questions. Must not know: how anything is drawn or gathered.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.breakdown import heatmaps, tag_tables
from logqueue.pipeline.reports.page.figures import HIGHEST, SUMMED
from logqueue.pipeline.reports.page.markup import foreign, table, text, when
from logqueue.pipeline.reports.page.series import AGE, ALL, DEPTH, FLOW, RUN, WAIT, ChartKind
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

SLOWER = 1.5
"""How many times longer counts as slower."""
FEWEST_PER_HALF = 3
MOST_ROWS = 20


def backing_up(view: PageView) -> Section:
    """Throughput, depth and the age of the oldest job."""

    def charts_of(topic: str) -> str:
        return view.grid([view.draw(kind, topic) for kind in (FLOW, DEPTH, AGE)])

    def remark(topic: str) -> str:
        waiting = known(_ready(view, topic))
        return f"{numbers.count(waiting[-1])} ready at the end" if waiting else ""

    body = view.for_all_then_each(charts_of(ALL), charts_of, remark)
    return Section("backlog", "Backlog", "Is it backing up?", _backlog_answer(view), body)


def _ready(view: PageView, topic: str = ALL) -> Values:
    return next((line.values for line in view.lines(DEPTH, topic) if line.name == "ready"), [])


def _backlog_answer(view: PageView) -> str:
    ready = known(_ready(view))
    if not ready:
        return flag(NEITHER, "Not known") + " There are no events of queues in this range."
    flow = view.lines(FLOW)
    came, went = (sum(known(line.values)) for line in flow[:2]) if flow else (0.0, 0.0)
    flows = f"{many(came, 'job')} came in, {numbers.count(went)} ended."
    peak = max(ready)
    steps = view.figures.steps
    peak_at = when(steps.start + steps.width * _ready(view).index(peak))
    last = _last_backlog(view)
    if not last[0]:
        deepest = f" At most {numbers.count(peak)} were ready, at {peak_at}." if peak else ""
        return flag(GOOD, "No") + f" {flows} Nothing waits at the end.{deepest}"
    waits = (
        f"<b>{many(last[0], 'job')}</b> waited at the end, the oldest for "
        f"<b>{numbers.duration(last[1])}</b>."
    )
    half = ready[: len(ready) // 2]
    if half and last[0] > max(half):
        return flag(BAD, "Yes") + f" {waits} {flows} It was never so high in the first half."
    most = f" The most was {numbers.count(peak)}, at {peak_at}." if peak > last[0] else ""
    return flag(NEITHER, "Not growing") + f" {waits} {flows}{most}"


def _last_backlog(view: PageView) -> tuple[float, float]:
    """Ready jobs and the age of the oldest in the last bucket there is, over all topics."""
    totals = view.figures.totals(
        "report_backlog", ["bucket"], {"ready": SUMMED, "oldest_age_ms": HIGHEST}
    )
    last = max(totals, key=lambda key: int(key[0]))
    return number(totals[last], "ready"), number(totals[last], "oldest_age_ms")


_METRICS = {"wait": WAIT, "run": RUN}


def slower(view: PageView) -> Section:
    """How long jobs wait and run, over time and per topic."""

    def charts_of(topic: str) -> str:
        return view.grid([view.draw(kind, topic) for kind in _METRICS.values()])

    def remark(topic: str) -> str:
        highest = known(_p95(view, RUN, topic))
        return f"p95 of running at most {numbers.duration(max(highest))}" if highest else ""

    body = view.for_all_then_each(charts_of(ALL), charts_of, remark)
    tables = f'<div class="after">{_latency_tables(view)}</div>'
    heat = f'<div class="after">{view.grid(heatmaps(view))}</div>'
    more = heat + tables + tag_tables(view)
    return Section("speed", "Speed", "Is it slower, and why?", _slower_answer(view), body + more)


def _p95(view: PageView, kind: ChartKind, topic: str) -> Values:
    return next((line.values for line in view.lines(kind, topic) if line.name == "p95"), [])


def _slower_answer(view: PageView) -> str:
    worst: tuple[float, str, str, float, float] | None = None
    for topic in view.topics:
        for metric, kind in _METRICS.items():
            halves = _halves(_p95(view, kind, topic))
            if halves and (worst is None or halves[1] / halves[0] > worst[0]):
                worst = (halves[1] / halves[0], topic, metric, *halves)
    if worst is None:
        return flag(NEITHER, "Not known") + " There is too little to compare early with late."
    times, topic, metric, before, after = worst
    doing = {"wait": "waiting", "run": "running"}[metric]
    of = "" if view.is_one else f" in {foreign(topic, 60)}"
    change = f"from {numbers.duration(before)} to {numbers.duration(after)}"
    if times < SLOWER:
        return (
            flag(GOOD, "No") + " The usual p95 of waiting and of running is about what it was. The "
            f"largest change from the first half to the second is that of {doing}{of}: {change}."
        )
    why = {
        "wait": "Jobs wait for workers: see the backlog, and how many workers were needed.",
        "run": "The work itself takes longer: see who is slow, and what the jobs depend on.",
    }[metric]
    return (
        flag(BAD, "Yes")
        + f" The usual p95 of {doing}{of} went {change} between the first half and the second. "
        + why
    )


def _halves(values: Values) -> tuple[float, float] | None:
    """The usual value before and after the middle; None when there is too little to compare."""
    middle = len(values) // 2
    before, after = known(values[:middle]), known(values[middle:])
    if min(len(before), len(after)) < FEWEST_PER_HALF or not median(before):
        return None
    return median(before), median(after)


def _latency_tables(view: PageView) -> str:
    """Percentiles over the whole range, the slowest topics first."""
    rows = view.figures.whole_range("report_latency")
    tables = []
    names = {name: (kind.title, kind.unit) for name, kind in _METRICS.items()} | {"e2e": _WHOLE}
    for metric, (title, unit) in names.items():
        mine = [row for row in rows if row["metric"] == metric and row["n"]]
        mine.sort(key=lambda row: (-number(row, "p95"), row["topic"]))
        if not mine:
            continue
        top = number(mine[0], "p95")
        # They have waited at least so long, and count with that.
        waiting = ["#of them still waiting"] * any(row.get("waiting") for row in mine)
        made = table(
            ["topic", "#jobs", *waiting, "#p50", "p95", "#p99", "#max"],
            (
                view.marked(
                    [
                        foreign(row["topic"], 60),
                        numbers.count(row["n"]),
                        *(numbers.count(row["waiting"]) for _ in waiting),
                        numbers.duration(row["p50"]),
                        charts.bar(number(row, "p95"), top, numbers.duration(row["p95"])),
                        numbers.duration(row["p99"]),
                        numbers.duration(row["max"]),
                    ],
                    topic=row["topic"],
                )
                for row in mine[:MOST_ROWS]
            ),
            caption=view.cut(len(mine), MOST_ROWS, "topics, the slowest first"),
        )
        tables.append(panel(title, made, f"{unit}, whole range"))
    return view.grid(tables) if tables else ""


_WHOLE = ("From end to end", "from ready to ack")


def promises(view: PageView) -> Section:
    """Breaches of limits on waiting, running or the whole way."""
    question = "Were promises kept?"
    limits = view.figures.rows(
        "report_sla_summary", order=[("kept_share", "ascending"), ("breaches", "descending")]
    )
    if not limits:
        return Section(
            "promises",
            "Promises",
            question,
            flag(NEITHER, "Not known") + " This report was made without limits.",
            view.empty(
                "Name limits, such as <code>--sla wait=30s,e2e=5m</code>, and every job is held "
                "against them."
            ),
        )
    breaches = int(sum(number(row, "breaches") for row in limits))
    measured = int(sum(number(row, "measured") for row in limits))
    parts = [_limits_panel(view, limits)]
    if not breaches:
        answer = flag(GOOD, "Yes") + f" All {many(measured, 'measurement')} kept to their limits."
    else:
        worst = max(
            limits, key=lambda row: number(row, "worst_ms") / max(number(row, "limit_ms"), 1)
        )
        answer = (
            flag(BAD, "Not all")
            + f" {many(breaches, 'breach', 'breaches')} in {many(measured, 'measurement')} "
            f"({numbers.share(breaches / max(measured, 1))}). The worst took "
            f"<b>{numbers.duration(worst['worst_ms'])}</b> where "
            f"{numbers.duration(worst['limit_ms'])} were allowed."
        )
        parts.append(_breaches_panel(view, breaches))
    return Section("promises", "Promises", question, answer, view.grid(parts))


def _limits_panel(view: PageView, limits: list[dict[str, Any]]) -> str:
    top = max(number(row, "breaches") for row in limits)
    made = table(
        ["topic", "rule", "#limit", "#kept", "breaches", "#worst"],
        (
            view.marked(
                [
                    foreign(row["topic"], 60),
                    text(row["rule"]),
                    numbers.duration(row["limit_ms"]),
                    numbers.share(row["kept_share"]),
                    charts.bar(number(row, "breaches"), top, numbers.count(row["breaches"]), "b"),
                    numbers.duration(row["worst_ms"]),
                ],
                topic=row["topic"],
            )
            for row in limits[:MOST_ROWS]
        ),
        caption=view.cut(len(limits), MOST_ROWS, "limits, the worst kept first"),
    )
    return panel("Limits", made)


def _breaches_panel(view: PageView, breaches: int) -> str:
    worst = view.figures.rows(
        "report_sla", order=[("value_ms", "descending"), ("topic", "ascending")], most=MOST_ROWS
    )
    made = table(
        ["topic", "rule", "#job", "#took", "#limit", "#passed at (UTC)"],
        (
            view.marked(
                [
                    foreign(row["topic"], 60),
                    text(row["rule"]),
                    view.job(row["topic"], row["seq"]),
                    numbers.duration(row["value_ms"]),
                    numbers.duration(row["limit_ms"]),
                    when(row["at"]),
                ],
                topic=row["topic"],
            )
            for row in worst
        ),
        caption=view.cut(breaches, MOST_ROWS, "breaches, the longest first"),
    )
    return panel("The longest breaches", made)
