"""The section about what would have been: scenarios beside what was measured, and how far to trust.

Owns: this one question. Must not know: how a queue is replayed.
"""

from __future__ import annotations

from typing import Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.charts import Line
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import HIGHEST
from logqueue.pipeline.reports.page.markup import foreign, table, text
from logqueue.pipeline.reports.page.steps import Values
from logqueue.pipeline.reports.page.view import (
    BAD,
    GOOD,
    NEITHER,
    PageView,
    Section,
    flag,
    panel,
)

TRUSTED = 0.5
"""A back-test whose error is at most this counts as good."""
SCENARIOS_DRAWN = 4
SHARE_WORTH_SAYING = 0.2
AS_MEASURED = "as measured"

_SHOWN = {
    "wait_p50": ("wait, median", numbers.duration),
    "wait_p95": ("wait, p95", numbers.duration),
    "whole_p95": ("until done, p95", numbers.duration),
    "backlog_max": ("deepest backlog", numbers.count),
    "dead": ("dead letters", numbers.count),
    "utilisation": ("workers busy", numbers.share),
}
Bands = dict[tuple[str, str], dict[str, Any]]
"""Rows of a topic by scenario and metric."""


def what_if(view: PageView) -> Section | None:
    """Scenarios beside what was measured; None when nothing was simulated."""
    if not view.figures.has("report_what_if"):
        return None
    by_topic: dict[str, Bands] = {}
    for row in view.figures.rows("report_what_if"):
        by_topic.setdefault(row["topic"], {})[row["scenario"], row["metric"]] = row
    if not by_topic:
        return None
    tests: dict[str, dict[str, dict[str, Any]]] = {}
    for row in view.figures.rows("report_back_test"):
        tests.setdefault(row["topic"], {})[row["metric"]] = row
    topics = [topic for topic in view.topics if topic in by_topic] or [*by_topic]
    parts = [_topic(view, name, by_topic[name], tests.get(name, {})) for name in topics]
    answer = " ".join(_sentence(name, by_topic[name], len(topics) > 1) for name in topics[:3])
    verdict = _verdict([tests.get(name, {}) for name in topics])
    return Section(
        "what-if", "What if", "What if there were other workers or more work?",
        f"{verdict} {answer}", "".join(parts),
    )  # fmt: skip


def _topic(view: PageView, topic: str, bands: Bands, tests: dict[str, dict[str, Any]]) -> str:
    scenarios = list(dict.fromkeys(scenario for scenario, _ in bands))
    scenarios.sort(key=lambda scenario: scenario != AS_MEASURED)
    shown = {
        name: how for name, how in _SHOWN.items() if any((s, name) in bands for s in scenarios)
    }
    rows = [["measured", *(_measured(bands, name) for name in shown)]]
    for scenario in scenarios:
        words = "replayed as measured" if scenario == AS_MEASURED else foreign(scenario, 120)
        rows.append([words, *(_cell(bands.get((scenario, name)), name) for name in shown)])
    heads = ["", *(f"#{label}" for label, _ in shown.values())]
    heading = "Scenarios" if view.is_one else f"Scenarios: {foreign(topic, 80)}"
    listed = panel(heading, table(heads, rows), _trust(tests))
    return f'<div data-topic="{text(topic)}">{listed}{_backlogs(view, topic, scenarios)}</div>'


def _measured(bands: Bands, metric: str) -> str:
    row = next((row for (_, name), row in bands.items() if name == metric), None)
    return "" if row is None or row["measured"] is None else _SHOWN[metric][1](row["measured"])


def _cell(row: dict[str, Any] | None, metric: str) -> str:
    if row is None:
        return ""
    show = _SHOWN[metric][1]
    low, mid, high = (show(row[name]) for name in ("low", "mid", "high"))
    return mid if low == high else f'{mid} <span class="soft">({low} to {high})</span>'


def _backlogs(view: PageView, topic: str, scenarios: list[str]) -> str:
    found = view.figures.over_time(
        "report_what_if_backlog",
        ["topic", "scenario"],
        {"measured": HIGHEST, "mid": HIGHEST},
    )
    nothing: Values = [None] * view.figures.steps.count
    known = found.get((topic, AS_MEASURED), {}).get("measured", nothing)
    lines = [Line("measured", known, "a", "area")]
    drawn = [scenario for scenario in scenarios if scenario != AS_MEASURED][:SCENARIOS_DRAWN]
    for scenario, look in zip(drawn, "bcde", strict=False):
        series = found.get((topic, scenario), {}).get("mid", nothing)
        lines.append(Line(scenario, series, look, "stairs"))
    return view.chart("Backlog that would have been", "jobs waiting", topic).over_time(
        lines, charts.COUNTS, empty="No job was waiting at the end of a bucket."
    )


def _sentence(topic: str, bands: Bands, is_named: bool) -> str:
    """The scenario that changes most about waiting, in one sentence."""
    base = bands.get((AS_MEASURED, "wait_p95"))
    others = [
        row for (scenario, metric), row in bands.items()
        if metric == "wait_p95" and scenario != AS_MEASURED
    ]  # fmt: skip
    if base is None or not others:
        return ""
    row = max(others, key=lambda row: abs(row["mid"] - base["mid"]))
    where = f"of {foreign(topic, 80)} " if is_named else ""
    words = (
        f"With <b>{foreign(row['scenario'], 120)}</b>, 95 % of the jobs {where}would wait at most"
    )
    change = abs(row["mid"] - base["mid"])
    if change < SHARE_WORTH_SAYING * max(base["mid"], 1):
        return f"{words} about as long as they did ({numbers.duration(base['mid'])})."
    return f"{words} {numbers.duration(row['mid'])} instead of {numbers.duration(base['mid'])}."


def _errors(tests: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {
        metric: row["error"] for metric, row in tests.items()
        if metric in _SHOWN and row["error"] is not None
    }  # fmt: skip


def _trust(tests: dict[str, dict[str, Any]]) -> str:
    errors = _errors(tests)
    if not errors:
        return "not back-tested: the first half of the log has too few runs"
    listed = ", ".join(
        f"{_SHOWN[metric][0]} {numbers.share(error)} off" for metric, error in errors.items()
    )
    return f"back-test, the second half predicted from the first: {listed}"


def _verdict(all: list[dict[str, dict[str, Any]]]) -> str:
    waits = [errors["wait_p95"] for tests in all if "wait_p95" in (errors := _errors(tests))]
    if not waits:
        return flag(NEITHER, "Not tested")
    if max(waits) <= TRUSTED:
        return flag(GOOD, "Predicts well")
    return flag(BAD, "Predicts badly") + (
        f" The back-test is {numbers.share(max(waits))} off for long waits: read these numbers as "
        "a direction only."
    )
