"""What needs attention, in sentences.

Owns: when something does, how bad it is, and the words. Pure: numbers and a time come in, sentences
go out. Must not know: where the numbers come from, who may see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from logqueue.core.decide.why import lasting
from logqueue.shapes import HealthFinding

Severity = Literal["bad", "warn"]

NO_WORKER_MS = 60_000
"""Jobs that have waited for so long with no worker about need one."""
NO_WORKER_BAD_MS = 300_000
OLD_JOB_MS = 300_000
"""Jobs that have waited for so long although there are workers need more of them."""
EXPIRED_PER_MINUTE = 3
"""So many leases that expire within a minute are not an accident."""
FULL_SHARE = 0.9
SHOWN_TO_ALL = ("recovering", "draining", "fenced", "disk_full", "disk_low", "limit_reached")
"""Findings about the server that name nothing but the server."""
ATTENTION_MAX = 100
"""Sentences of one frame, the worst first."""


class AttentionItem(NamedTuple):
    """One thing that needs attention.

    Attributes:
        topic: The topic it is about; None for the server.
        code: What it is, for programs.
        since: Since when, ms since the epoch; 0 where only the caller can know, None where it is
            unknown.
    """

    severity: Severity
    topic: str | None
    code: str
    text: str
    since: int | None


class TopicSigns(NamedTuple):
    """What is known of one topic.

    Attributes:
        oldest_ready_at: Since when the oldest claimable job has been claimable; None for none.
        worker_seen_at: When a worker was last seen; 0 for not since the server started.
        expired: Leases that expired within the last minute.
        live, size: Live records and their bytes.
        cap_records, cap_bytes: The caps of a topic that refuses writes when it is full; else 0.
    """

    topic: str
    ready: int = 0
    held: int = 0
    oldest_ready_at: int | None = None
    workers: int = 0
    worker_seen_at: int = 0
    paused: bool = False
    held_back: str | None = None
    expired: int = 0
    live: int = 0
    size: int = 0
    cap_records: int = 0
    cap_bytes: int = 0


def counted(count: int, noun: str) -> str:
    """A number of things: `1 job`, `1,204 jobs`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def of_topic(signs: TopicSigns, started_at: int, now: int) -> Iterator[AttentionItem]:
    """What needs attention on one topic.

    Args:
        signs: What is known of it.
        started_at: When the server started; ms since the epoch.
        now: ms since the epoch.
    """
    yield from _of_waiting_jobs(signs, started_at, now)
    topic = signs.topic
    if signs.expired >= EXPIRED_PER_MINUTE:
        text = (
            f"{topic}: {counted(signs.expired, 'lease')} expired in the last minute: workers "
            "crash, or jobs take longer than their lease"
        )
        yield AttentionItem("warn", topic, "expiring", text, 0)
    if signs.held:
        text = f"{topic}: {counted(signs.held, 'job')} on hold until released"
        yield AttentionItem("warn", topic, "held", text, 0)
    yield from _of_caps(signs)


def _of_waiting_jobs(signs: TopicSigns, started_at: int, now: int) -> Iterator[AttentionItem]:
    oldest = signs.oldest_ready_at
    if oldest is None or not signs.ready:
        return
    topic, age = signs.topic, now - oldest
    jobs = counted(signs.ready, "job")
    if signs.paused:
        wait = "waits" if signs.ready == 1 else "wait"
        text = f"{topic}: paused, {jobs} {wait}, the oldest for {lasting(age)}"
        yield AttentionItem("warn", topic, "paused_with_jobs", text, oldest)
        return
    alone = now - max(signs.worker_seen_at, started_at)
    if not signs.workers and age >= NO_WORKER_MS and alone >= NO_WORKER_MS:
        severity: Severity = "bad" if min(age, alone) >= NO_WORKER_BAD_MS else "warn"
        known = f"no worker for {lasting(alone)}"
        if not signs.worker_seen_at:
            known = f"no worker since the server started {lasting(alone)} ago"
        text = f"{topic}: oldest job waits {lasting(age)}, {known}"
        yield AttentionItem(severity, topic, "no_worker", text, max(oldest, now - alone))
        return
    if age >= OLD_JOB_MS:
        why = counted(signs.workers, "worker")
        if signs.held_back == "rate_limited":
            why += ", held back by claim_rate"
        elif signs.held_back == "max_in_flight":
            why += ", held back by max_in_flight"
        text = f"{topic}: oldest job waits {lasting(age)}, {jobs} ready, {why}"
        yield AttentionItem("warn", topic, "old_job", text, oldest)


def _of_caps(signs: TopicSigns) -> Iterator[AttentionItem]:
    for used, cap, unit in (
        (signs.live, signs.cap_records, "records"),
        (signs.size, signs.cap_bytes, "bytes"),
    ):
        if not cap or used < FULL_SHARE * cap:
            continue
        share = f"{used:,} of {cap:,} {unit}"
        if used >= cap:
            text = f"{signs.topic}: full with {share}: writes are refused"
            yield AttentionItem("bad", signs.topic, "rejecting", text, 0)
        else:
            text = f"{signs.topic}: nearly full with {share}"
            yield AttentionItem("warn", signs.topic, "topic_full", text, 0)
        return


def of_dead_letters(letters: str, count: int, queues: list[str]) -> AttentionItem:
    """Dead letters in one topic.

    Args:
        letters: The topic they are in.
        count: How many there are.
        queues: The queues they may be of.
    """
    text = counted(count, "dead letter")
    if len(queues) == 1:
        return AttentionItem("warn", queues[0], "dead_letters", f"{queues[0]}: {text}", 0)
    text = f"{letters}: {text} of {len(queues)} queues"
    return AttentionItem("warn", letters, "dead_letters", text, 0)


def of_server(findings: Iterable[HealthFinding], *, shows_all: bool) -> Iterator[AttentionItem]:
    """What needs attention on the server itself.

    Args:
        findings: What its health report says.
        shows_all: False for those who may not see all of the server: they see what keeps their own
            calls from working.
    """
    for finding in findings:
        if shows_all or finding.code in SHOWN_TO_ALL:
            text = f"{finding.text} {finding.advice}" if shows_all else finding.text
            yield AttentionItem(finding.severity, None, finding.code, text, 0)


def in_order(items: Iterable[AttentionItem]) -> list[AttentionItem]:
    """The worst first, then what has lasted longest; so many at most."""
    order = sorted(items, key=lambda i: (i.severity != "bad", i.since or 2**63, i.topic or ""))
    return order[:ATTENTION_MAX]


def health_of(items: list[AttentionItem]) -> tuple[str, str]:
    """The health of all, for programs and in words.

    Args:
        items: In order.
    """
    if not items:
        return "ok", "all is well"
    health = "bad" if items[0].severity == "bad" else "attention"
    if len(items) == 1:
        return health, items[0].text
    return health, f"{counted(len(items), 'thing')} need attention; {items[0].text}"
