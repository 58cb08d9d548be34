"""The report as one HTML file that any browser can open: no network needed, and no script.

Owns: the page as a whole, its summary, writing it. Must not know: Spark, how charts are drawn.

Sections answer what an operator asks. Everything on the page comes from the tables, so the same
tables give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.page import (
    assets,
    comparison,
    embedded,
    failures,
    numbers,
    throughput,
    what_if,
    workers,
)
from logqueue.pipeline.reports.page.controls import CONTROLS
from logqueue.pipeline.reports.page.explained import explained
from logqueue.pipeline.reports.page.figures import SUMMED, Figures
from logqueue.pipeline.reports.page.markup import UTC_MARK, foreign, plain, table, when
from logqueue.pipeline.reports.page.view import PageView, Section, number
from logqueue.pipeline.reports.page_options import PageOptions

if TYPE_CHECKING:
    import pyarrow as pa

TOPICS_DRAWN = 12
"""Topics with charts of their own; all are in the tables."""
TOPICS_LISTED = 500

Range = tuple[datetime | None, datetime | None]


def page(
    tables: Mapping[str, pa.Table],
    *,
    title: str,
    range: Range = (None, None),
    bucket_ms: int | None = None,
    about: Sequence[str] = (),
    topics_drawn: int = TOPICS_DRAWN,
    zone: str = "UTC",
    dashboard: str = "",
) -> str:
    """The report page as text.

    Args:
        tables: The report's tables by name, in the shapes of `report_tables`. One that is missing
            counts as empty.
        title: Heading of the page.
        range: Which time the report is of: from, and until (exclusive), each None where it is
            open. Without a time zone it is UTC. The time axis covers it even where nothing was.
        bucket_ms: Width of a bucket in milliseconds; by default the smallest distance between two.
        about: Lines below the title: where the numbers come from.
        topics_drawn: How many topics get charts of their own where no script runs, those with
            the most jobs.
        zone: The IANA time zone that the script shows times in at first, such as Europe/Berlin.
        dashboard: Address of the server, such as http://127.0.0.1:4000: numbers of jobs link to
            their pages on its dashboard. "" for no links.

    Raises:
        PipelineError: There is no such time zone, or the address is not one of HTTP.
    """
    start, end = (None if at is None else _ms(at) for at in range)
    figures = Figures(tables, start=start, end=end, bucket=bucket_ms)
    topics = _topics(figures)
    look = PageOptions.of(zone, dashboard)
    names, unnamed = embedded.names_of(figures, topics)
    view = PageView(figures, topics, topics[:topics_drawn], look.dashboard, names)
    sections = [made for make in _SECTIONS if (made := make(view)) is not None]
    data = embedded.script_text(embedded.data_of(figures, topics, names, unnamed, look.zone))
    span = f"{when(figures.start)} to {when(figures.end)} {UTC_MARK}"
    lines = [
        f"{span}, in buckets of {numbers.span(figures.steps.bucket)}",
        *(foreign(line, 600) for line in about),
    ]
    paragraphs = "".join(f"<p>{line}</p>" for line in lines)
    return (
        f'{_head(title)}<body><header class="top"><h1>{foreign(title, 200)}</h1>'
        f'<div class="about">{paragraphs}</div>{_summary(view)}{explained(view)}</header>'
        f"{_menu(sections)}{CONTROLS}"
        f"<main>{_overview(view)}{''.join(section.html() for section in sections)}</main>"
        f'<footer>{_FOOTER}</footer><script type="application/json" id="data">{data}</script>'
        f"<script>{assets.library()}</script><script>{assets.script()}</script></body></html>\n"
    )


_SECTIONS: Sequence[Callable[[PageView], Section | None]] = (
    throughput.backing_up,
    throughput.slower,
    throughput.promises,
    failures.dying,
    workers.workers,
    workers.capacity,
    comparison.comparison,
    what_if.what_if,
    failures.paths,
)
"""In the order of the page; one that has nothing to say is None."""

_FOOTER = (
    f"<p>Made by logqueue from its logs. All times come from the log and are shown in {UTC_MARK}. "
    "“Open” is open at the end of the range. Percentiles of waits count jobs that were still "
    "waiting then, with the time that they had waited.</p>"
)


def _head(title: str) -> str:
    # Even a text that slipped through as markup could load nothing and run nothing.
    scripts = " ".join(_digest(one) for one in (assets.library(), assets.script()))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src-elem {_digest(assets.style())}; "
        "style-src-attr 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{plain(title)}</title>'
        f"<style>{assets.style()}</style></head>"
    )


def _digest(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _topics(figures: Figures) -> list[str]:
    """All topics, those with the most jobs first."""
    jobs: dict[str, float] = {}
    for name, columns in _ACTIVITY.items():
        for (topic,), of in figures.totals(name, ["topic"], dict.fromkeys(columns, SUMMED)).items():
            jobs[topic] = jobs.get(topic, 0.0) + sum(number(of, column) for column in columns)
    return sorted(jobs, key=lambda topic: (-jobs[topic], topic))


_ACTIVITY = {
    "report_outcomes": ["jobs"],
    "report_throughput": ["appended", "claimed"],
    "report_backlog": ["ready", "in_flight"],
}


def _summary(view: PageView) -> str:
    counts = failures.states(view).get("", {})
    jobs = sum(counts.values())
    done, dead = counts.get("acked", 0.0), failures.total(counts, failures.DEAD)
    cells = [
        ("Jobs", numbers.count(jobs), _in_topics(view), ""),
        ("Done", numbers.count(done), _of_all(done, jobs), ""),
        ("Dead", numbers.count(dead), _of_all(dead, jobs), "bad" if dead else ""),
        (
            "Open at the end",
            numbers.count(failures.total(counts, failures.OPEN)),
            _opened(counts),
            "",
        ),
        ("p95 wait", *_worst(view, "wait"), ""),
        ("p95 run", *_worst(view, "run"), ""),
    ]
    made = "".join(
        f'<div class="{kind}"><dt>{name}</dt><dd><b>{value}</b><span>{note}</span></dd></div>'
        for name, value, note, kind in cells
    )
    return f'<dl class="strip">{made}</dl>'


def _in_topics(view: PageView) -> str:
    return f"in {len(view.topics)} topics" if len(view.topics) != 1 else "in 1 topic"


def _of_all(part: float, jobs: float) -> str:
    return f"{numbers.share(part / jobs)} of all" if jobs else "no jobs"


def _opened(counts: Mapping[str, float]) -> str:
    names = (("in_flight", "in flight"), ("delayed", "delayed"), ("held", "held"))
    parts = [f"{numbers.count(counts[key])} {name}" for key, name in names if counts.get(key)]
    return ", ".join(parts) if parts else "ready, delayed, in flight, held"


def _worst(view: PageView, metric: str) -> tuple[str, str]:
    """The highest p95 of a topic over the whole range: value, and whose it is."""
    rows = [
        row
        for row in view.figures.whole_range("report_latency")
        if row["metric"] == metric and row["n"] and row["p95"] is not None
    ]
    if not rows:
        return numbers.NOTHING, "nothing measured"
    worst = max(rows, key=lambda row: (number(row, "p95"), row["topic"]))
    of = f"of {numbers.count(worst['n'])} {metric}s"
    return (
        numbers.duration(worst["p95"]),
        of if view.is_one else f"worst topic: {foreign(worst['topic'], 40)}",
    )


def _menu(sections: Sequence[Section]) -> str:
    links = "".join(f'<a href="#{section.anchor}">{section.menu}</a>' for section in sections)
    return f'<nav aria-label="Questions"><div class="in">{links}</div></nav>'


def _overview(view: PageView) -> str:
    """A line per topic: its input and its state."""
    if view.is_one:
        return ""
    found = failures.states(view)
    arrivals = view.figures.over_time("report_throughput", ["topic"], {"appended": SUMMED})
    p95: dict[tuple[str, str], Any] = {
        (row["topic"], row["metric"]): row["p95"]
        for row in view.figures.whole_range("report_latency")
    }
    top = max((sum(found[topic].values()) for topic in view.topics if topic in found), default=0.0)

    def cells(topic: str) -> list[str]:
        counts = found.get(topic, {})
        series = arrivals.get((topic,), {}).get("appended", [])
        jobs = sum(counts.values())
        return [
            foreign(topic, 60),
            charts.spark(series, f"jobs appended to {topic[:60]} over time") if series else "",
            charts.bar(jobs, top, numbers.count(jobs)),
            numbers.count(counts.get("acked", 0.0)),
            numbers.count(failures.total(counts, failures.DEAD)),
            numbers.count(failures.total(counts, failures.OPEN)),
            numbers.duration(p95.get((topic, "wait"), math.nan)),
            numbers.duration(p95.get((topic, "run"), math.nan)),
        ]

    made = table(
        ["topic", "appended", "jobs", "#done", "#dead", "#open", "#p95 wait", "#p95 run"],
        (view.marked(cells(topic), topic=topic) for topic in view.topics[:TOPICS_LISTED]),
        "overview",
        view.cut(len(view.topics), TOPICS_LISTED, "topics, those with the most jobs first"),
    )
    return (
        '<section id="topics" aria-label="Topics"><div class="panel">'
        f"<h3>Topics</h3>{made}</div></section>"
    )


def _ms(at: datetime) -> int:
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
