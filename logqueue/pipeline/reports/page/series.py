"""The charts over time of a page: what each shows of all topics, and of every single one.

Owns: which series a chart has, how they are gathered from the tables. Must not know: how anything
is drawn, on the page or by its script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.charts import Axis, Line
from logqueue.pipeline.reports.page.figures import HIGHEST, LOWEST, NULL, SUMMED, Figures
from logqueue.pipeline.reports.page.steps import Values, known

ALL = ""
"""The key of what all topics are together."""
TOPICS_COMPARED = 6
"""Lines in a chart that has one for each topic."""
OUT = ("acked", "dead", "dropped")
PERCENTILES = ("p50", "p95", "p99")

Series = dict[str, Values]
LinesByTopic = dict[str, list[Line]]


@dataclass(frozen=True)
class ChartKind:
    """A chart over time.

    Attributes:
        name: Its name in the page's data.
        title: Above the chart.
        unit: What is counted; `{step}` is the width of a step.
        axis: How its numbers are written.
        empty: Said where there is nothing to draw.
        gathered: How a step is made of several buckets, as in "Each step of 1 h ...".
        lines: Its lines by topic, `ALL` for all topics together; topics are given busiest first.
        note: Always said below the chart.
        is_wide: Whether it takes the whole width.
    """

    name: str
    title: str
    unit: str
    axis: Axis
    empty: str
    gathered: str
    lines: Callable[[Figures, Sequence[str]], LinesByTopic]
    note: str = ""
    is_wide: bool = False


def _by_topic(
    found: dict[tuple[str, ...], Series], for_all: Series, make: Callable[[Series], list[Line]]
) -> LinesByTopic:
    lines = {topic: make(series) for (topic,), series in found.items()}
    return {**lines, ALL: make(for_all)}


def _keys(topics: Sequence[str]) -> list[tuple[str, ...]]:
    return [(topic,) for topic in topics]


def _flow(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    how = dict.fromkeys(("appended", *OUT, "released", "expired"), SUMMED)
    nothing: Values = [None] * figures.steps.count

    def lines(series: Series) -> list[Line]:
        made = [
            Line("in: appended", series.get("appended", nothing), "a", "area"),
            Line("out: ended", plus(series, OUT), "b", "stairs"),
        ]
        back = plus(series, ("released", "expired"))
        if any(known(back)):
            made.append(Line("came back: handed back or expired", back, "e", "stairs"))
        return made

    return _by_topic(
        figures.over_time("report_throughput", ["topic"], how, _keys(topics)),
        figures.over_time("report_throughput", [], how).get((), {}),
        lines,
    )


def plus(series: Series, names: Sequence[str]) -> Values:
    """The sum of some columns."""
    columns = [series[name] for name in names if name in series]
    return [sum(known(at)) for at in zip(*columns, strict=True)]


_DEPTHS = ("ready", "delayed", "in_flight", "held")


def depths(figures: Figures, topics: Sequence[str]) -> tuple[dict[tuple[str, ...], Series], Series]:
    """Depths and the age of the oldest job by topic, and of all topics together."""
    how = dict.fromkeys((*_DEPTHS, "oldest_age_ms"), HIGHEST)
    added = dict.fromkeys(_DEPTHS, SUMMED)
    return (
        figures.over_time("report_backlog", ["topic"], how, _keys(topics)),
        figures.over_time_for_all("report_backlog", {**added, "oldest_age_ms": HIGHEST}, how),
    )


def _depth(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    nothing: Values = [None] * figures.steps.count

    def lines(series: Series) -> list[Line]:
        made = [
            Line("ready", series.get("ready", nothing), "a", "stack"),
            Line("in flight", series.get("in_flight", nothing), "b", "stack"),
        ]
        if any(known(series.get("held", []))):
            made.append(Line("held", series["held"], "d", "stack"))
        return made

    return _by_topic(*depths(figures, topics), lines)


def _age(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    nothing: Values = [None] * figures.steps.count
    return _by_topic(
        *depths(figures, topics),
        lambda series: [Line("oldest", series.get("oldest_age_ms", nothing), "d", "stairs")],
    )


def _latency(metric: str) -> Callable[[Figures, Sequence[str]], LinesByTopic]:
    def make(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
        how = dict.fromkeys(PERCENTILES, HIGHEST)
        found = figures.over_time("report_latency", ["topic", "metric"], how, _keys(topics))
        nothing: Values = [None] * figures.steps.count
        looks = ("a", "b", "e")
        lines = {
            topic: [
                Line(name, found.get((topic, metric), {}).get(name, nothing), look)
                for name, look in zip(PERCENTILES, looks, strict=True)
            ]
            for topic in topics
        }
        if len(topics) == 1:
            return {**lines, ALL: lines[topics[0]]}
        # Percentiles of several topics cannot be made from those of each: they are compared.
        compared = [
            Line(f"p95 of {topic[:60]}", found[topic, metric]["p95"], look)
            for topic, look in zip(topics[:TOPICS_COMPARED], "abcdef", strict=False)
            if (topic, metric) in found
        ]
        return {**lines, ALL: compared}

    return make


_FAILED = (
    ("handed back", "released", "e"),
    ("expired", "expired", "a"),
    ("dead", "dead", "b"),
    ("held", "held", "d"),
)


def _failures(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    how = dict.fromkeys((column for _, column, _ in _FAILED), SUMMED)
    nothing: Values = [None] * figures.steps.count

    def lines(series: Series) -> list[Line]:
        return [
            Line(name, series.get(column, nothing), look, "stack")
            for name, column, look in _FAILED
            if any(known(series.get(column, [])))
        ]

    return _by_topic(
        figures.over_time("report_throughput", ["topic"], how, _keys(topics)),
        figures.over_time("report_throughput", [], how).get((), {}),
        lines,
    )


REASONS_SHOWN = 5


def _reasons(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    """Ways to fail over time, the most frequent of each topic, and all others together."""
    how = {"n": SUMMED}
    kinds = ["outcome", "reason"]
    found = figures.over_time("report_failures_over_time", ["topic", *kinds], how, _keys(topics))
    ways: dict[str, dict[str, Values]] = {topic: {} for topic in topics}
    for (topic, outcome, reason), series in found.items():
        ways[topic][_way(outcome, reason)] = series["n"]
    every = figures.over_time("report_failures_over_time", kinds, how)
    ways[ALL] = {_way(*key): series["n"] for key, series in every.items()}
    return {topic: _most_frequent(of) for topic, of in ways.items()}


def _way(outcome: str, reason: str) -> str:
    if outcome == NULL:
        return OTHERS
    ended = outcome.replace("_", " ")
    return f"{ended}: {reason[:60]}" if reason not in ("", NULL) else ended


OTHERS = "all others"


def _most_frequent(ways: dict[str, Values]) -> list[Line]:
    ordered = sorted(ways, key=lambda name: (name == OTHERS, -sum(known(ways[name])), name))
    named = [name for name in ordered if name != OTHERS][:REASONS_SHOWN]
    looks = zip(named, "beadc", strict=False)
    lines = [Line(name, ways[name], look, "stack") for name, look in looks]
    rest = [ways[name] for name in ordered if name not in named]
    if rest:
        others: Values = [sum(known(at)) for at in zip(*rest, strict=True)]
        lines.append(Line(OTHERS, others, "f", "stack"))
    return lines


def _workers(figures: Figures, topics: Sequence[str]) -> LinesByTopic:
    how = {"needed_workers": HIGHEST, "seen_workers": LOWEST}
    needed = figures.over_time_for_all(
        "report_capacity", {"needed_workers": SUMMED}, {"needed_workers": HIGHEST}
    )
    seen = figures.distinct_over_time("report_workers", "worker")
    nothing: Values = [None] * figures.steps.count
    return _by_topic(
        figures.over_time("report_capacity", ["topic"], how, _keys(topics)),
        {**needed, "seen_workers": seen},
        lambda series: [
            Line("needed", series.get("needed_workers", nothing), "b", "stairs"),
            Line("seen with a lease", series.get("seen_workers", nothing), "c", "area"),
        ],
    )


FLOW = ChartKind(
    "flow",
    "In and out",
    "jobs per {step}",
    charts.COUNTS,
    "No job came in, ended or came back in this time.",
    "holds the sum",
    _flow,
    is_wide=True,
)
DEPTH = ChartKind(
    "depth",
    "Backlog",
    "jobs at the end of a bucket",
    charts.COUNTS,
    "Whenever a bucket ended, no job was waiting, in flight or held.",
    "shows the highest",
    _depth,
)
AGE = ChartKind(
    "age",
    "Age of the oldest ready job",
    "at the end of a bucket",
    charts.AGES,
    "Whenever a bucket ended, no job was waiting.",
    "shows the highest",
    _age,
)
WAIT = ChartKind(
    "wait",
    "Waiting",
    "from ready to the first claim",
    charts.DURATIONS,
    "No job was claimed in this time.",
    "shows the highest",
    _latency("wait"),
)
RUN = ChartKind(
    "run",
    "Running",
    "from claim to ack",
    charts.DURATIONS,
    "No run ended in an ack in this time.",
    "shows the highest",
    _latency("run"),
)
FAILURES = ChartKind(
    "failures",
    "Failures over time",
    "leases and jobs per {step}",
    charts.COUNTS,
    "No lease was handed back or expired, and no job died or was held in this time.",
    "holds the sum",
    _failures,
    is_wide=True,
)
REASONS = ChartKind(
    "reasons",
    "Ways to fail over time",
    "failures per {step}",
    charts.COUNTS,
    "No lease ended other than in an ack, and no job ended badly, in this time.",
    "holds the sum",
    _reasons,
    is_wide=True,
)
WORKERS = ChartKind(
    "workers",
    "Workers",
    "needed and seen",
    charts.COUNTS,
    "No jobs came in and no worker was active, so no capacity was needed.",
    "shows the most needed and the fewest seen",
    _workers,
    note="Needed: jobs in hand that keep up with arrivals, which is arrival rate times mean run.",
    is_wide=True,
)
KINDS = (FLOW, DEPTH, AGE, WAIT, RUN, FAILURES, REASONS, WORKERS)
