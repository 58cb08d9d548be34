"""The report page: true to its tables, whole without a network or a script, safe with any text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.lifecycle.simulation_tables import REPORT_WHAT_IF
from logqueue.pipeline.reports.markdown_report import markdown
from logqueue.pipeline.reports.page import assets, numbers
from logqueue.pipeline.reports.page.comparison import periods
from logqueue.pipeline.reports.page.numbers import DAY
from logqueue.pipeline.reports.page.steps import MOST_STEPS, steps_over
from logqueue.pipeline.reports.report_page import page
from tests.spark.sample_report import MONDAY, Tables, busy_week, tables

HOSTILE = (
    "<script>alert(1)</script>",
    "]]> --> \"double\" 'single' `tick`",
    "\u202eturned \u05d0\u05d1\u05d2",
    "x" * 5000,
    "\x00\x08control\x1b",
    "</title></style></script><img src=https://example.org/x onerror=alert(3)>",
)
CASES: dict[str, Callable[[], Tables]] = {
    "one topic": busy_week,
    "three topics": lambda: busy_week(("mail", "thumbnails", "billing.invoices"), buckets=48),
    "two hundred": lambda: busy_week([f"q{n:03}" for n in range(200)], buckets=4, workers=2),
    "nothing": tables,
    "no tables": dict,
    "one bucket, one worker": lambda: busy_week(buckets=1, workers=1),
    "minutes of days": lambda: busy_week(buckets=3000, minutes=1, workers=2),
    "hostile": lambda: busy_week(HOSTILE, buckets=3, reasons=HOSTILE, workers=2),
}
PAGE_CHARACTERS_MAX = 4_000_000
EMPTY_ELEMENTS = {"meta", "link", "br", "img", "input", "hr"}


class Reading(HTMLParser):
    """A page read strictly: every element is closed where it must be."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        where = self.open[-1] if self.open else ""
        if where == "script":
            self.scripts.append(data)
        elif where != "style":
            self.text.append(data)


@pytest.mark.parametrize("case", CASES)
def test_a_page_is_sound_and_alone(case: str) -> None:
    html = page(CASES[case](), title=f"Queues: {case}")
    read = Reading(html)
    data, *scripts = read.scripts
    assert scripts == [assets.library(), assets.script()], "no text is ever part of a script"
    assert "<" not in data and "&" not in data and json.loads(data)["charts"]
    names = {name for _, attrs in read.tags for name in attrs}
    assert not {"src", "onerror", "onload", "onclick", "xlink:href", "background"} & names
    assert {attrs["href"] or "" for tag, attrs in read.tags if "href" in attrs} <= {
        f"#{attrs.get('id')}" for _, attrs in read.tags
    }, "links lead to places of the page only"
    assert not {"link", "iframe", "img", "object", "base", "form"} & {tag for tag, _ in read.tags}
    assert "url(" not in assets.style() and "@import" not in assets.style()
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.get("role") == "img"
        labels = (root.get("aria-labelledby") or "").split()
        assert root.get("aria-label") or {e.get("id") for e in root} >= set(labels) > set()
        for path in root.iter("path"):
            assert re.fullmatch(r"[MLHVhvz0-9. -]+", path.get("d") or ""), path.get("d")
    assert bool(drawings) is case.startswith(("one", "three", "two", "minutes", "hostile"))
    assert html.count("<details><summary>Numbers") == html.count('data-steps="')
    assert len(html) < PAGE_CHARACTERS_MAX


def test_hostile_texts_are_shown_not_obeyed() -> None:
    html = page(CASES["hostile"](), title=HOSTILE[0])
    shown = "".join(Reading(html).text)
    assert HOSTILE[0] in shown and HOSTILE[1] in shown and "onerror=alert(3)" in shown
    assert "\u202e" not in html and "\x00" not in html and "\x08" not in html
    assert "x" * 301 not in shown, "long texts are cut where they are read"
    assert "default-src 'none'; script-src 'sha256-" in html and "style-src-elem 'sha256-" in html


def cells(html: str, title: str) -> dict[str, list[str]]:
    """The columns of the numbers behind the first chart with this title."""
    figure = html.partition(f"<b>{title}</b>")[2].partition("</figure>")[0]
    root = ElementTree.fromstring(
        "<t>" + figure.partition("<table")[2].partition(">")[2][:-24] + "</t>"
    )
    heads = ["".join(cell.itertext()) for cell in root.iter("th")]
    rows = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")][1:]
    return {name: [row[n] for row in rows] for n, name in enumerate(heads)}


def whole(texts: list[str]) -> list[int]:
    """Numbers as they were before they were written for people."""
    return [int(text.replace(",", "")) for text in texts]


def test_gathering_loses_no_job_and_no_peak() -> None:
    made = busy_week(("a", "b"), buckets=2 * 24 * 60, minutes=1, workers=2)
    html = page(made, title="Two days of minutes")
    flow = made["report_throughput"]
    assert len(cells(html, "In and out")["in: appended"]) <= MOST_STEPS
    assert sum(whole(cells(html, "In and out")["in: appended"])) == pc.sum(flow["appended"]).as_py()
    ended = sum(pc.sum(flow[name]).as_py() for name in ("acked", "dead", "dropped"))
    assert sum(whole(cells(html, "In and out")["out: ended"])) == ended
    ready = made["report_backlog"].group_by("bucket").aggregate([("ready", "sum")])["ready_sum"]
    assert max(whole(cells(html, "Backlog")["ready"])) == pc.max(ready).as_py()
    assert "holds the sum of its buckets of 1 min" in html
    assert "shows the highest of its buckets of 1 min" in html


def test_the_summary_says_what_the_tables_say() -> None:
    html = page(busy_week(), title="One")
    text = "|".join(Reading(html).text)
    for said in ("Jobs|143,459", "Done|141,220", "Dead|612", "Open at the end|1,317"):
        assert said in text


def test_the_same_tables_give_the_same_page() -> None:
    first = page(busy_week(("a", "b")), title="Twice")
    assert page(busy_week(("a", "b")), title="Twice") == first


def test_questions_are_answered() -> None:
    growing = [
        {"topic": "t", "bucket": MONDAY + timedelta(minutes=n), "ready": n * 10, "in_flight": 1}
        | {"delayed": 0, "held": 0, "oldest_age_ms": n * 1000}
        for n in range(10)
    ]
    waits = [
        {"topic": "t", "bucket": MONDAY + timedelta(minutes=n), "metric": metric, "n": 5}
        | dict.fromkeys(
            ("p50", "p90", "p95", "p99", "max"), 100 if n < 5 or metric == "wait" else 900
        )
        for n in range(10)
        for metric in ("wait", "run")
    ]
    hands = [
        {"topic": "t", "worker": f"w{n}", "bucket": None, "claims": 9, "acks": 9, "failures": 0}
        | {"busy_ms": 1, "utilisation": 0.1, "p95_run": 4000 if n == 3 else 1000}
        for n in range(4)
    ]
    needed = [
        {"topic": "t", "bucket": MONDAY + timedelta(minutes=n), "needed_workers": need}
        | {"seen_workers": 2, "arrivals": 1}
        for n, need in enumerate((1.0, 1.2, 6.5))
    ]
    html = page(
        tables(
            report_backlog=growing,
            report_latency=waits,
            report_workers=hands,
            report_capacity=needed,
        ),
        title="Answers",
    )
    text = " ".join("".join(Reading(html).text).split())
    assert "Yes 90 jobs waited at the end, the oldest for 9 s." in text
    assert "p95 of running went from 100 ms to 900 ms" in text and "The work itself" in text
    assert "w3 needs 4.0 times as long in t as is usual there: a p95 of 4 s." in text
    assert "7 workers to keep up in the busiest bucket, 2 in a usual one, if Monday" in text
    assert "This report was made without limits." in text


def test_ways_to_fail_are_shown_over_time() -> None:
    reasons = [f"Error {n}" for n in range(7)]
    html = page(busy_week(("mail", "orders"), buckets=24, reasons=reasons), title="Why")
    columns = cells(html, "Ways to fail over time")
    *named, others = list(columns)[1:]
    assert named == [f"released: Error {n}" for n in range(5)] and others == "all others"
    flow = busy_week(("mail", "orders"), buckets=24)["report_throughput"]
    released = flow["released"].to_pylist()
    assert sum(whole(columns[named[0]])) == sum(released)
    assert sum(whole(columns[others])) == sum(n // 6 + n // 7 + n // 8 for n in released)


def test_what_went_wrong_is_said_first() -> None:
    html = page(busy_week(("mail", HOSTILE[0])), title="Why")
    text = " ".join("".join(Reading(html).text).split())
    first = text.index("What went wrong, and why")
    assert first < text.index("Is it backing up?")
    assert "mail: 86 leases failed within 1 h, usually 5. Tag “invoice” accounts for 98%" in text
    document = markdown(busy_week(("mail",)), {})
    assert "## What went wrong, and why\n\n- mail: 86 leases failed" in document
    assert "What went wrong" not in page(tables(), title="None")


def test_a_simulation_is_a_section_of_its_own() -> None:
    rows = [{"topic": "mail", "scenario": "workers=8", "metric": "wait_p95", "mid": 400.0}]
    made = {"report_what_if": pa.Table.from_pylist(rows, schema=REPORT_WHAT_IF.arrow())}
    assert "workers=8" in page({**busy_week(), **made}, title="What if")
    assert 'id="what-if"' not in page(busy_week(), title="None")


def test_jobs_link_to_the_dashboard() -> None:
    html = page(busy_week(("a/b",)), title="Linked", dashboard="https://user:key@example.org/q/ui/")
    assert 'href="https://example.org/q/ui/queues/a%2Fb/jobs/4711" rel="noreferrer"' in html
    assert "key@" not in html
    for url in ("ftp://x", "javascript:alert(1)", "http://", "127.0.0.1:4000"):
        with pytest.raises(PipelineError, match="invalid address of a dashboard"):
            page(tables(), title="Wrong", dashboard=url)


def test_a_time_zone_must_exist() -> None:
    assert '"zone":"Europe/Berlin"' in page(tables(), title="Zone", zone="Europe/Berlin")
    for zone in ("Mars/Olympus", "../etc/passwd", ""):
        with pytest.raises(PipelineError, match="unknown time zone"):
            page(tables(), title="Zone", zone=zone)


def test_two_weeks_are_compared_as_weeks_and_less_as_halves() -> None:
    weeks = page(busy_week(buckets=15 * 24), title="Weeks")
    assert "the last 7 days" in weeks and "its halves are compared" not in weeks
    assert "its halves are compared" in page(busy_week(buckets=48), title="Halves")
    assert periods(0, 14 * DAY) == ((7 * DAY, 14 * DAY), (0, 7 * DAY), "week")
    assert periods(10, 110) == ((60, 110), (10, 60), "half")


def test_what_is_left_out_of_a_big_page_is_counted() -> None:
    topics = [f"q{n:03}" for n in range(60)]
    html = page(busy_week(topics, buckets=200, workers=6), title="Many")
    (data, *_) = Reading(html).scripts
    left = json.loads(data)["left_out"]
    assert left["topics"] == 10 and "topic_names" not in left
    assert left["workers"] > 0 and left["heat"] > 0
    assert len(html) < PAGE_CHARACTERS_MAX


def test_what_is_missing_says_why() -> None:
    html = page(tables(), title="Empty", range=(MONDAY, MONDAY + timedelta(days=1)))
    text = "".join(Reading(html).text)
    assert "2026-03-02 00:00 to 2026-03-03 00:00 UTC" in text
    for why in ("No job came in", "No job was claimed", "--sla wait=30s", "No lease looks stuck"):
        assert why in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.25, "0.2 ms"),
        (999, "999 ms"),
        (1250, "1.25 s"),
        (59_999, "1 min"),
        (125_000, "2 min 5 s"),
        (3_600_000, "1 h"),
        (100 * numbers.HOUR, "4 d 4 h"),
        (400 * numbers.DAY, "400 d"),
        (-1500, "-1.5 s"),
    ],
)
def test_durations_in_words(value: float | None, said: str) -> None:
    assert numbers.duration(value) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0.0%"), (0.00001, "<0.1%"), (0.99999, ">99.9%"), (0.5, "50%"), (1.0, "100%")],
)
def test_shares_are_not_rounded_to_nothing_or_all(value: float, said: str) -> None:
    assert numbers.share(value) == said


@pytest.mark.parametrize("length", [1, 1000, 61_000, 86_400_000, 31 * 86_400_000, 9e11])
def test_axes_of_any_length_have_some_ticks(length: float) -> None:
    start = 1_772_409_600_000
    ticks = numbers.time_ticks(start, start + int(length))
    assert 1 <= len(ticks) <= 9
    assert all(start <= tick.at <= start + length for tick in ticks)
    upright = numbers.duration_ticks(length)
    assert 2 <= len(upright) <= 6 and upright[-1].at >= length
    counted = numbers.linear_ticks(length)
    assert 2 <= len(counted) <= 6 and counted[-1].at >= length * 0.999


def test_steps_hold_whole_buckets() -> None:
    steps = steps_over([0, 60_000, 600_000_000], bucket=60_000)
    assert steps.count <= MOST_STEPS and steps.width % 60_000 == 0 and steps.end > 600_000_000
    assert steps_over([]).count == 1
    assert steps_over([5], start=0, end=10, bucket=5).count == 2
