"""Sections about what becomes of jobs: why do they die, what paths do they take.

Owns: these two questions. Must not know: how anything is drawn or gathered.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from logqueue.pipeline.reports import charts
from logqueue.pipeline.reports.page import numbers
from logqueue.pipeline.reports.page.figures import HIGHEST, SUMMED
from logqueue.pipeline.reports.page.markup import foreign, table, text, when
from logqueue.pipeline.reports.page.series import ALL, FAILURES, REASONS
from logqueue.pipeline.reports.page.view import (
    BAD,
    GOOD,
    NEITHER,
    PageView,
    Section,
    flag,
    many,
    number,
    panel,
)

DEAD = ("dead_lettered", "rejected")
OPEN = ("ready", "delayed", "in_flight", "held")
MOST_ROWS = 25
TOPICS_LISTED = 500
_GROUPS = (
    ("done", "c", ("acked",)),
    ("open", "a", ("ready", "delayed", "in_flight")),
    ("held", "d", ("held",)),
    ("dead", "b", DEAD),
)
"""Shares of the outcome bar; whatever else ends a job is "ended otherwise"."""

Counts = dict[str, float]


def states(view: PageView) -> dict[str, Counts]:
    """Per topic, how many jobs are in which state; the sum of all topics under ""."""
    found: dict[str, Counts] = defaultdict(lambda: defaultdict(float))
    for (topic, state), of in view.figures.totals(
        "report_outcomes", ["topic", "state"], {"jobs": SUMMED}
    ).items():
        for place in (topic, ""):
            found[place][state] += number(of, "jobs")
    return found


def total(counts: Counts, names: tuple[str, ...]) -> float:
    """How many jobs are in any of these states."""
    return sum(counts.get(name, 0.0) for name in names)


def dying(view: PageView) -> Section:
    """What became of jobs, and the ways in which they fail."""
    found = states(view)
    answer = _dying_answer(view, found.get("", {}))
    if not found:
        return Section(
            "fates",
            "Failures",
            _WHY,
            answer,
            view.empty("There are no jobs of queues in this range."),
        )
    shared = charts.shares(_parts(found[""]))
    body = panel(f"What became of {_all(view)}", shared + _by_topic(view, found))
    panels = [made for made in (_retries(view), _waste(view)) if made]
    return Section(
        "fates",
        "Failures",
        _WHY,
        answer,
        body + _over_time(view) + _failures(view) + view.grid(panels) + _poison(view),
    )


_WHY = "Why do jobs fail?"


def _all(view: PageView) -> str:
    return f"the jobs of {foreign(view.topics[0], 60)}" if view.is_one else "all jobs"


def _parts(counts: Counts) -> list[tuple[str, str, float]]:
    parts = [(name, look, total(counts, names)) for name, look, names in _GROUPS]
    named = {state for _, _, names in _GROUPS for state in names}
    others = sum(size for state, size in counts.items() if state not in named)
    return [*parts, ("ended otherwise", "f", others)]


def _dying_answer(view: PageView, counts: Counts) -> str:
    jobs = sum(counts.values())
    if not jobs:
        return flag(NEITHER, "No jobs") + " Nothing could fail."
    dead, held = total(counts, DEAD), counts.get("held", 0.0)
    failures = view.figures.rows(
        "report_failures", order=[("n", "descending"), ("topic", "ascending")], most=1
    )
    most = ""
    if failures:
        row = failures[0]
        of = "" if view.is_one else f" in {foreign(row['topic'], 60)}"
        reason = foreign(row["reason"] or row["outcome"], 90)
        most = f" The most frequent failure is <b>{reason}</b>{of}, {many(row['n'], 'time')}."
    if not dead and not held:
        return flag(GOOD, "None died") + f" Of {many(jobs, 'job')}, none is dead.{most}"
    parked = f" {numbers.count(held)} are held." if held else ""
    return (
        flag(BAD, "Some died" if dead else "Some are held")
        + f" <b>{numbers.count(dead)}</b> of {many(jobs, 'job')} died "
        + f"({numbers.share(dead / jobs)})."
        + parked
        + most
    )


def _by_topic(view: PageView, found: dict[str, Counts]) -> str:
    if view.is_one:
        return ""
    rows = sorted(
        ((topic, counts) for topic, counts in found.items() if topic),
        key=lambda item: (-total(item[1], DEAD), -sum(item[1].values()), item[0]),
    )
    top = max(total(counts, DEAD) for _, counts in rows)
    return table(
        ["topic", "#jobs", "#done", "#open", "dead", "#ended otherwise"],
        (
            view.marked(
                [
                    foreign(topic, 60),
                    numbers.count(sum(counts.values())),
                    numbers.count(counts.get("acked", 0)),
                    numbers.count(total(counts, OPEN)),
                    charts.bar(total(counts, DEAD), top, numbers.count(total(counts, DEAD)), "b"),
                    numbers.count(_parts(counts)[-1][2]),
                ],
                topic=topic,
            )
            for topic, counts in rows[:TOPICS_LISTED]
        ),
        "by-topic",
        view.cut(len(rows), TOPICS_LISTED, "topics, those with the most dead jobs first"),
    )


def _over_time(view: PageView) -> str:
    kinds = [FAILURES]
    if view.figures.has("report_failures_over_time"):
        kinds.append(REASONS)

    def charts_of(topic: str) -> str:
        return view.grid([view.draw(kind, topic) for kind in kinds])

    made = view.for_all_then_each(charts_of(ALL), charts_of, lambda topic: "")
    return f'<div class="over-time">{made}</div>'


def _failures(view: PageView) -> str:
    rows = view.figures.rows(
        "report_failures",
        order=[("n", "descending"), ("topic", "ascending"), ("reason", "ascending")],
        most=MOST_ROWS,
    )
    if not rows:
        return view.empty("No lease ended other than in an ack, and no job ended badly.")
    top = number(rows[0], "n")
    made = table(
        [
            "topic",
            "ended as",
            "what was said",
            "how often",
            "#jobs",
            "#last (UTC)",
            "#for example job",
        ],
        (
            view.marked(
                [
                    foreign(row["topic"], 60),
                    _outcome(row["outcome"]),
                    foreign(row["reason"]),
                    charts.bar(number(row, "n"), top, numbers.count(row["n"]), "b"),
                    numbers.count(row["jobs"]),
                    when(row["last_at"]),
                    view.job(row["topic"], row["sample_seq"]),
                ],
                topic=row["topic"],
            )
            for row in rows
        ),
        caption=view.cut(
            view.figures.count("report_failures"), MOST_ROWS, "ways, the most frequent first"
        ),
    )
    return panel("Ways to fail", made, "leases that ended without an ack")


def _outcome(name: object) -> str:
    return text(str(name).replace("_", " "))


def _retries(view: PageView) -> str:
    found = view.figures.totals("report_retries", ["attempts"], {"jobs": SUMMED, "acked": SUMMED})
    if not found:
        return ""
    rows = sorted(((int(key[0]), of) for key, of in found.items()), key=lambda item: item[0])
    top = max(number(of, "jobs") for _, of in rows)
    made = table(
        ["claimed", "jobs", "#of them done"],
        (
            [
                f"{times} times" + (" or more" if times >= _MOST_ATTEMPTS else ""),
                charts.bar(number(of, "jobs"), top, numbers.count(of["jobs"])),
                numbers.share(number(of, "acked") / max(number(of, "jobs"), 1)),
            ]
            for times, of in rows
        ),
    )
    return panel("How often jobs were claimed", made)


_MOST_ATTEMPTS = 20


def _waste(view: PageView) -> str:
    found = view.figures.totals("report_waste", ["outcome"], {"attempts": SUMMED, "run_ms": SUMMED})
    whole = sum(number(of, "run_ms") for of in found.values())
    if not found:
        return ""
    rows = sorted(found.items(), key=lambda item: -number(item[1], "run_ms"))
    made = table(
        ["lease ended as", "#leases", "time under them", "#share"],
        (
            [
                _outcome(outcome),
                numbers.count(of["attempts"]),
                charts.bar(
                    number(of, "run_ms"),
                    number(rows[0][1], "run_ms"),
                    numbers.duration(of["run_ms"]),
                    "c" if outcome == "acked" else "b",
                ),
                numbers.share(number(of, "run_ms") / whole if whole else 0.0),
            ]
            for (outcome,), of in rows
        ),
        caption="Time under leases that did not end in an ack was for nothing.",
    )
    return panel("Where the work went", made)


def _poison(view: PageView) -> str:
    rows = view.figures.rows(
        "report_poison", order=[("failures", "descending"), ("topic", "ascending")], most=MOST_ROWS
    )
    if not rows:
        return ""
    top = number(rows[0], "failures")
    made = table(
        ["topic", "key or tag", "failures", "#jobs", "#acks", "for example"],
        (
            view.marked(
                [
                    foreign(row["topic"], 60),
                    f'<span class="soft">{text(row["kind"])}</span> {foreign(row["value"], 80)}',
                    charts.bar(number(row, "failures"), top, numbers.count(row["failures"]), "b"),
                    numbers.count(row["jobs"]),
                    numbers.count(row["acks"]),
                    foreign(row["sample_error"], 160),
                ],
                topic=row["topic"],
                **({"tag": row["value"]} if row["kind"] == "tag" else {}),
            )
            for row in rows
        ),
        caption=view.cut(
            view.figures.count("report_poison"), MOST_ROWS, "keys and tags, the worst first"
        ),
    )
    made = panel("Keys and tags that fail again and again", made)
    return f'<div class="after">{made}</div>'


_LOOKS = {
    "acked": "c",
    "claimed": "a",
    "expired": "b",
    "released": "e",
    "dead_lettered": "b",
    "rejected": "b",
    "held": "d",
}


def paths(view: PageView) -> Section:
    """The ways jobs take through a queue, and what follows what."""
    question = "What paths do jobs take?"
    variants = view.figures.totals(
        "report_variants", ["variant"], {"n": SUMMED, "median_e2e_ms": HIGHEST}
    )
    if not variants:
        return Section(
            "paths",
            "Paths",
            question,
            flag(NEITHER, "No jobs") + " No job of a queue is in this range.",
            view.empty("Nothing happened to any job in this range."),
        )
    rows = sorted(variants.items(), key=lambda item: (-number(item[1], "n"), item[0]))
    jobs = sum(number(of, "n") for _, of in rows)
    (usual,), of = rows[0]
    answer = (
        flag(NEITHER, many(len(rows), "path"))
        + f" {numbers.share(number(of, 'n') / jobs)} of jobs took the same one: {_way(usual)}"
    )
    slowest = "the slowest topic's median" if not view.is_one else "median"
    made = table(
        ["path", "jobs", "#share", f"#{slowest}, ready to finished"],
        (
            [
                _path(variant),
                charts.bar(number(of, "n"), number(rows[0][1], "n"), numbers.count(of["n"])),
                numbers.share(number(of, "n") / jobs),
                numbers.duration(of["median_e2e_ms"]),
            ]
            for (variant,), of in rows[:MOST_ROWS]
        ),
        caption=view.cut(len(rows), MOST_ROWS, "paths, the most frequent first"),
    )
    body = panel("Paths", made) + _follows(view)
    return Section("paths", "Paths", question, answer, body)


def _steps(variant: str) -> list[str]:
    steps = variant.split(">")
    shown = steps if len(steps) <= _LONGEST_PATH else [*steps[: _LONGEST_PATH - 1], "…", steps[-1]]
    return [
        f'<span class="{_LOOKS.get(step, "f")}"><bdi>{_outcome(step[:40])}</bdi></span>'
        for step in shown
    ]


def _path(variant: str) -> str:
    """The steps as a list, for a cell."""
    return f'<ol class="path">{"".join(f"<li>{step}</li>" for step in _steps(variant))}</ol>'


def _way(variant: str) -> str:
    """The steps inside a sentence."""
    return f'<span class="path">{" › ".join(_steps(variant))}</span>'


_LONGEST_PATH = 12


def _follows(view: PageView) -> str:
    found = view.figures.totals(
        "report_dfg", ["from_step", "to_step"], {"n": SUMMED, "median_gap_ms": HIGHEST}
    )
    if not found:
        return ""
    rows: list[tuple[tuple[str, ...], dict[str, Any]]] = sorted(
        found.items(), key=lambda item: (-number(item[1], "n"), item[0])
    )
    made = table(
        [
            "from",
            "to",
            "how often",
            "#median time between" + ("" if view.is_one else ", slowest topic"),
        ],
        (
            [
                _path(before),
                _path(after),
                charts.bar(number(of, "n"), number(rows[0][1], "n"), numbers.count(of["n"])),
                numbers.duration(of["median_gap_ms"]),
            ]
            for (before, after), of in rows[:MOST_ROWS]
        ),
        caption=view.cut(len(rows), MOST_ROWS, "pairs, the most frequent first"),
    )
    return panel("What follows what", made)
