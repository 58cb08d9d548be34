"""The section that compares a stretch of time with the one before: this week with the last.

Owns: which stretches are compared, what of them. Must not know: how anything is drawn or gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from logqueue.pipeline.reports.charts import COUNTS, Chart, Line
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import SUMMED, USUAL
from logqueue.pipeline.reports.page.markup import foreign, table, when
from logqueue.pipeline.reports.page.numbers import DAY
from logqueue.pipeline.reports.page.steps import MOST_STEPS, Steps
from logqueue.pipeline.reports.page.view import (
    NEITHER,
    PageView,
    Section,
    flag,
    known,
    number,
    panel,
)

WEEK = 7 * DAY
MOST_ROWS = 25
NOTABLE = 1.2
"""How many times more or less is named in the answer."""
FEWEST = 20
"""Jobs below which a change is not named."""

Period = tuple[int, int]


def periods(start: int, end: int) -> tuple[Period, Period, str]:
    """The later stretch, the one before, and what they are called.

    Two weeks where the range has them, or else its halves.
    """
    if end - start >= 2 * WEEK:
        return (end - WEEK, end), (end - 2 * WEEK, end - WEEK), "week"
    middle = start + (end - start) // 2
    return (middle, end), (start, middle), "half"


def comparison(view: PageView) -> Section:
    """What changed."""
    question = "What changed?"
    start, end = view.figures.start, view.figures.end
    later, before, name = periods(start, end)
    rows = _rows(view, later, before)
    called = {"week": ("the last 7 days", "the 7 days before"), "half": _HALVES}[name]
    if not rows:
        nothing = view.empty("There is too little in this range to compare.")
        answer = flag(NEITHER, "Not known") + " There is nothing to compare."
        return Section("changes", "Changes", question, answer, nothing)
    answer = _answer(rows, called)
    if name == "half":
        answer += " The range is shorter than two weeks, so its halves are compared."
    spans = " to ".join(when(at) for at in later) + " against " + " to ".join(map(when, before))
    made = table(
        ["", f"#{called[0]}", f"#{called[1]}", "#change"],
        ([words, show(now), show(then), _change(now, then)] for words, show, now, then in rows),
    )
    parts = [panel("All topics", made, spans)]
    if not view.is_one:
        parts.append(_by_topic(view, later, before, called))
    body = view.grid(parts) + f'<div class="after">{_overlay(view, later, before, called)}</div>'
    return Section("changes", "Changes", question, answer, body)


_HALVES = ("second half", "first half")
_IN = ("appended",)
_FAILED = ("dead", "released", "expired")
_COUNTS = (
    ("jobs in", _IN),
    ("done", ("acked",)),
    ("dead", ("dead",)),
    ("handed back or expired", ("released", "expired")),
)
_COUNTED = ("appended", "acked", "dead", "released", "expired")
Measure = tuple[str, Callable[[float], str], float, float]


def _rows(view: PageView, later: Period, before: Period) -> list[Measure]:
    figures = view.figures
    counted = dict.fromkeys(_COUNTED, SUMMED)
    flows = [figures.between("report_throughput", of, [], counted) for of in (later, before)]
    sums = [flow.get((), {}) for flow in flows]
    rows: list[Measure] = [
        (words, numbers.count, _added(sums[0], columns), _added(sums[1], columns))
        for words, columns in _COUNTS
    ]
    if not any(now or then for _, _, now, then in rows):
        return []
    usual = [
        figures.between("report_latency", of, ["metric"], {"p95": USUAL}) for of in (later, before)
    ]
    for metric in ("wait", "run"):
        now, then = (one.get((metric,), {}).get("p95") for one in usual)
        if now is not None and then is not None:
            rows.append((f"usual p95 {metric}", numbers.duration, now, then))
    return rows


def _added(row: dict[str, Any], columns: Sequence[str]) -> float:
    return sum(number(row, column) for column in columns)


def _change(now: float, then: float) -> str:
    if not then:
        return numbers.NOTHING if not now else "new"
    change = now / then - 1
    return f"{'+' if change > 0 else '−' if change < 0 else ''}{numbers.share(abs(change))}"


def _answer(rows: list[Measure], called: tuple[str, str]) -> str:
    notable = [
        (max(now, then) / max(min(now, then), 1e-9), words, show, now, then)
        for words, show, now, then in rows
        if (show is numbers.duration or max(now, then) >= FEWEST)
        and max(now, then) >= NOTABLE * min(now, then)
    ]
    if not notable:
        return flag(NEITHER, "Little") + f" {_start(called[0])} was about the same as {called[1]}."
    notable.sort(key=lambda item: -item[0])
    parts = [
        f"{words} {'rose' if now > then else 'fell'} from {show(then)} to <b>{show(now)}</b>"
        for _, words, show, now, then in notable[:3]
    ]
    return flag(NEITHER, "This") + f" From {called[1]} to {called[0]}: {'; '.join(parts)}."


def _start(words: str) -> str:
    return f"The {words}" if not words.startswith("the ") else words.capitalize()


def _by_topic(view: PageView, later: Period, before: Period, called: tuple[str, str]) -> str:
    counted = dict.fromkeys(_COUNTED, SUMMED)
    flows = [
        view.figures.between("report_throughput", of, ["topic"], counted) for of in (later, before)
    ]
    topics = sorted({key[0] for flow in flows for key in flow})

    def added(topic: str, columns: Sequence[str]) -> tuple[float, float]:
        now, then = (_added(flow.get((topic,), {}), columns) for flow in flows)
        return now, then

    rows = [(topic, *added(topic, _IN), *added(topic, _FAILED)) for topic in topics]
    rows.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
    made = table(
        ["topic", "#jobs in", "#before", "#change", "#failures", "#before"],
        (
            view.marked(
                [
                    foreign(topic, 60),
                    numbers.count(now),
                    numbers.count(then),
                    _change(now, then),
                    numbers.count(failed),
                    numbers.count(failed_then),
                ],
                topic=topic,
            )
            for topic, now, then, failed, failed_then in rows[:MOST_ROWS]
        ),
        caption=view.cut(len(rows), MOST_ROWS, "topics, those that changed most first"),
    )
    return panel("By topic", made, f"{called[0]} against {called[1]}")


def _overlay(view: PageView, later: Period, before: Period, called: tuple[str, str]) -> str:
    """Arrivals of both stretches on one axis, that of the later one."""
    length = max(later[1] - later[0], 1)
    whole = max(view.figures.end - view.figures.start, length)
    figures = view.figures.in_steps(max(2, MOST_STEPS * whole // length))
    steps = figures.steps
    arrived = figures.over_time("report_throughput", [], {"appended": SUMMED})
    values = arrived.get((), {}).get("appended", [])
    count = max(1, length // steps.width)
    first = [max(0, (of[0] - steps.start) // steps.width) for of in (later, before)]
    now, then = (values[n : n + count] for n in first)
    if not any(known([*now, *then])) or len(now) != len(then):
        return ""
    axis = Steps(steps.start + first[0] * steps.width, steps.width, steps.bucket, count)
    unit = f"per {numbers.span(steps.width)}, on the time axis of {called[0]}"
    return Chart(view.ids, axis, "Jobs in", unit).over_time(
        [Line(called[0], now, "a", "area"), Line(called[1], then, "b", "stairs")],
        COUNTS,
        is_wide=True,
    )
