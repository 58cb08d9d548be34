"""Sentences about what needs attention."""

from __future__ import annotations

from logqueue.server.stats.attention import (
    ATTENTION_MAX,
    AttentionItem,
    TopicSigns,
    health_of,
    in_order,
    of_dead_letters,
    of_server,
    of_topic,
)
from logqueue.shapes import HealthFinding

NOW = 1_700_000_000_000
MINUTE = 60_000
START = NOW - 1000 * MINUTE


def said(signs: TopicSigns, started_at: int = START) -> list[tuple[str, str, str]]:
    found = [*of_topic(signs, started_at, NOW)]
    assert all(item.topic == signs.topic for item in found)
    return [(item.severity, item.code, item.text) for item in found]


def test_a_queue_that_is_well() -> None:
    assert said(TopicSigns("payments")) == []
    busy = TopicSigns("payments", ready=500, oldest_ready_at=NOW - 4 * MINUTE, workers=3)
    assert said(busy) == []
    fresh = TopicSigns("payments", ready=1, oldest_ready_at=NOW - 59_000)
    assert said(fresh) == []


def test_no_worker() -> None:
    signs = TopicSigns(
        "payments", 7, oldest_ready_at=NOW - 14 * MINUTE, worker_seen_at=NOW - 12 * MINUTE
    )
    (item,) = of_topic(signs, START, NOW)
    assert item == AttentionItem(
        "bad",
        "payments",
        "no_worker",
        "payments: oldest job waits 14 min, no worker for 12 min",
        NOW - 12 * MINUTE,
    )
    soon = signs._replace(worker_seen_at=NOW - 2 * MINUTE)
    assert [item.severity for item in of_topic(soon, START, NOW)] == ["warn"]
    never = signs._replace(worker_seen_at=0)
    assert said(never, NOW - 3 * MINUTE) == [
        (
            "warn",
            "no_worker",
            "payments: oldest job waits 14 min, no worker since the server started 3 min ago",
        )
    ]
    assert [code for _, code, _ in said(never, NOW - 30_000)] == ["old_job"]


def test_an_old_job_with_workers() -> None:
    signs = TopicSigns("payments", 1204, oldest_ready_at=NOW - 6 * MINUTE, workers=1)
    assert said(signs) == [
        ("warn", "old_job", "payments: oldest job waits 6 min, 1,204 jobs ready, 1 worker")
    ]
    held_back = signs._replace(held_back="rate_limited", workers=2)
    assert said(held_back)[0][2].endswith("2 workers, held back by claim_rate")


def test_a_paused_queue_says_so_and_nothing_else_of_its_jobs() -> None:
    signs = TopicSigns("payments", 1, oldest_ready_at=NOW - 9 * MINUTE, paused=True)
    assert said(signs) == [
        ("warn", "paused_with_jobs", "payments: paused, 1 job waits, the oldest for 9 min")
    ]
    assert said(TopicSigns("payments", paused=True)) == []


def test_holds_and_expiries() -> None:
    assert said(TopicSigns("payments", held=1, expired=2)) == [
        ("warn", "held", "payments: 1 job on hold until released")
    ]
    assert [code for _, code, _ in said(TopicSigns("p", expired=3))] == ["expiring"]


def test_caps() -> None:
    signs = TopicSigns("in", live=89, cap_records=100)
    assert said(signs) == []
    assert said(signs._replace(live=90)) == [
        ("warn", "topic_full", "in: nearly full with 90 of 100 records")
    ]
    assert said(signs._replace(size=2000, cap_bytes=2000)) == [
        ("bad", "rejecting", "in: full with 2,000 of 2,000 bytes: writes are refused")
    ]


def test_dead_letters() -> None:
    one = of_dead_letters("payments.dead", 1, ["payments"])
    assert (one.topic, one.text) == ("payments", "payments: 1 dead letter")
    several = of_dead_letters("dead", 1500, ["a", "b"])
    assert (several.topic, several.text) == ("dead", "dead: 1,500 dead letters of 2 queues")


def test_the_server() -> None:
    findings = [
        HealthFinding(severity="bad", code="disk_full", text="It is full.", advice="Free it."),
        HealthFinding(severity="warn", code="archive_failing", text="Away.", advice="Check it."),
    ]
    found = [*of_server(findings, shows_all=True)]
    assert [(i.topic, i.severity, i.text) for i in found] == [
        (None, "bad", "It is full. Free it."), (None, "warn", "Away. Check it."),
    ]  # fmt: skip
    assert [i.text for i in of_server(findings, shows_all=False)] == ["It is full."]


def test_order_and_health() -> None:
    assert health_of([]) == ("ok", "all is well")
    items = [
        AttentionItem("warn", "b", "held", "b: held", 5),
        AttentionItem("warn", "a", "held", "a: held", 5),
        AttentionItem("bad", None, "disk", "full", 9),
        AttentionItem("warn", "c", "held", "c: held", 4),
    ]
    found = in_order(items)
    assert [item.topic for item in found] == [None, "c", "a", "b"]
    assert health_of(found) == ("bad", "4 things need attention; full")
    assert health_of(found[1:2]) == ("attention", "c: held")
    assert len(in_order(items * 50)) == ATTENTION_MAX
