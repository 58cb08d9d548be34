"""Why a job is not being worked on: one sentence, computed by the rules of a claim.

Owns: the reasons a job can wait for, and their words. Asks `claims.py`, so that it says what a
claim would do. Changes nothing. Must not know: who asks, what the log says of the job's past.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from logqueue.core.commands import NoneReason
from logqueue.core.decide.claims import allowed_now, is_ending, is_exhausted, ready_ahead
from logqueue.core.decide.dead_letters import exhaust
from logqueue.core.group_orders import GroupOrder
from logqueue.core.job_filter import state_of
from logqueue.core.job_views import JobSummary
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.errors import quoted
from logqueue.events.block import read_string

WhyCode = Literal[
    "ready",
    "behind",
    "ready_no_worker",
    "paused",
    "rate_limited",
    "max_in_flight",
    "group_busy",
    "delayed",
    "backoff",
    "exhausted",
    "expiring",
    "superseded",
    "in_flight",
    "lease_expired",
    "held",
    "standby",
]

IDLE_MS = 60_000
"""A worker that was last seen longer ago is not at work."""
EXPIRES_SOON_MS = 600_000
ERROR_SHOWN_MAX = 200


class WorkersSeen(NamedTuple):
    """Who works on a queue, as far as this run of the server has seen.

    Attributes:
        present: Workers that wait for jobs now, or have a work stream open.
        last_seen: When any was last seen, ms since the epoch; 0 when none was.
        since: Since when this server looks, ms since the epoch.
    """

    present: int
    last_seen: int
    since: int


class Why(NamedTuple):
    """Why a job is not being worked on, or that it is.

    Attributes:
        text: One sentence.
        until: When time alone changes that, ms since the epoch; None when it does not.
        ahead: Of a ready job: how many jobs go before it; None of any other.
    """

    code: WhyCode
    text: str
    until: int | None = None
    ahead: int | None = None


def explain(
    state: State,
    topic: QueueTopic,
    job: JobSummary,
    now: int,
    workers: WorkersSeen,
    *,
    claimed_at: int = 0,
    shown: Callable[[str | None], str] = str,
) -> Why:
    """Why a live job waits.

    Args:
        state, topic: Read only; time has been let act on the topic up to `now`.
        job: As `describe_job` shows it now.
        now: The clock.
        workers: Who works on the queue.
        claimed_at: When its lease began, ms since the epoch; 0 when that is not known.
        shown: How the names of other topics are shown.
    """
    if job.state == "in_flight":
        return _in_flight(job, now, claimed_at)
    if job.state == "held":
        had = f" after {_count(job.deliveries, 'delivery', 'deliveries')}" if job.deliveries else ""
        text = f"On hold{had}{_error_of(job)}: it waits until someone releases or cancels it."
        return Why("held", text)
    if is_ending(topic, job.seq, now):
        return _ending(topic, job, shown)
    if is_exhausted(topic, job.seq):
        return _exhausted(state, topic, job, now, shown)
    if job.state == "delayed":
        return _delayed(topic, job, now)
    return _ready(topic, job, now, workers)


def _in_flight(job: JobSummary, now: int, claimed_at: int) -> Why:
    if job.deadline < now:
        text = (
            f"The lease of {job.node} ended {lasting(now - job.deadline)} ago; the job returns to "
            "the queue in a moment."
        )
        return Why("lease_expired", text)
    had = f" for {lasting(now - claimed_at)}" if claimed_at and claimed_at <= now else ""
    text = (
        f"In flight: {job.node} has had it{had}; the lease ends in {lasting(job.deadline - now)} "
        "unless it is renewed."
    )
    return Why("in_flight", text, job.deadline)


def _ending(topic: QueueTopic, job: JobSummary, shown: Callable[[str | None], str]) -> Why:
    keys = topic.queue.keys
    if keys is not None and job.seq in keys.superseded:
        key = read_string(job.key)
        text = f"Another job has its key {quoted(key)}: this one ends in a moment."
        return Why("superseded", text)
    where = ""
    if topic.config.on_expire == "dead_letter" and topic.config.dead_letter is not None:
        where = f" and moves to {shown(topic.config.dead_letter)}"
    elif topic.config.archive is not None:
        where = f" and is copied to {shown(topic.config.archive)}"
    return Why("expiring", f"Past its time to live: it ends{where} as soon as that is possible.")


def _exhausted(
    state: State,
    topic: QueueTopic,
    job: JobSummary,
    now: int,
    shown: Callable[[str | None], str],
) -> Why:
    config = topic.config
    limit = topic.deliveries_max(job.seq)
    target = config.dead_letter if config.when_exhausted == "dead_letter" else config.archive
    had = f"Delivered {job.deliveries:,} of {limit:,} times{_error_of(job)}"
    if not _has_room(state, topic, job.seq, now):
        text = f"{had}: it waits for room in {shown(target)}{_besides(topic)}."
        return Why("exhausted", text, job.not_before or None)
    then = {
        "dead_letter": f"moves to {shown(target)}",
        "drop": "is dropped",
        "hold": "is held",
        None: "ends",
    }[config.when_exhausted]
    wait = f" after {lasting(job.not_before - now)} more" if job.not_before > now else ""
    return Why(
        "exhausted",
        f"{had}: the next claim{wait} finds it, and it {then}{_besides(topic)}.",
        job.not_before or None,
    )


def _has_room(state: State, topic: QueueTopic, seq: int, now: int) -> bool:
    """Whether a claim could take an exhausted job out of rotation."""
    changes = [
        change.kind
        for event in exhaust(state, topic, [seq], now)
        if event.topic == topic.number
        for change in event.job_changes()
    ]
    return bool(changes) and "released" not in changes


def _delayed(topic: QueueTopic, job: JobSummary, now: int) -> Why:
    wait = lasting(max(job.not_before - now, 0))
    rest = _besides(topic) + _expires(job, now, job.not_before)
    if job.deliveries or job.error is not None:
        text = f"Given back{_error_of(job)}: it is tried again in {wait}{rest}."
        return Why("backoff", text, job.not_before)
    return Why("delayed", f"Delayed: it becomes ready in {wait}{rest}.", job.not_before)


def _ready(topic: QueueTopic, job: JobSummary, now: int, workers: WorkersSeen) -> Why:
    allowed, limit = allowed_now(topic, now)
    ahead = ready_ahead(topic, job.seq, now)
    if ahead.is_kept_back and not topic.config.paused:
        return _group_busy(topic, job, now)
    if ahead.jobs >= allowed:
        return _limited(topic, job, now, limit, ahead.jobs)
    number = f"{ahead.jobs:,}" if ahead.is_exact else f"at least {ahead.jobs:,}"
    before = ""
    if ahead.jobs:
        before = f"{number} {'job is' if ahead.jobs == 1 else 'jobs are'} ahead of it"
    expires = _expires(job, now)
    if not workers.present and now - workers.last_seen > IDLE_MS:
        since = "no worker has asked for jobs"
        if workers.last_seen:
            since += f" for {lasting(now - workers.last_seen)}"
        else:
            since += f" since the server started {lasting(max(now - workers.since, 0))} ago"
        also = f"; {before}" if before else ""
        return Why("ready_no_worker", f"Ready, but {since}{also}{expires}.", None, ahead.jobs)
    if before:
        return Why("behind", f"Ready: {before}{expires}.", None, ahead.jobs)
    return Why("ready", f"Ready: the next claim gets it{expires}.", None, 0)


def _limited(
    topic: QueueTopic, job: JobSummary, now: int, limit: NoneReason | None, ahead: int
) -> Why:
    queue, config = topic.queue, topic.config
    expires = _expires(job, now)
    if limit == "rate_limited" and config.claim_rate is not None:
        until = now + queue.rate_spent.refills_in(config.claim_rate, now)
        text = (
            f"Ready, but the queue hands out {config.claim_rate.per_s:g} jobs a second at most: "
            f"the next goes in {lasting(until - now)}{_ahead(ahead)}{expires}."
        )
        return Why("rate_limited", text, until, ahead)
    if limit == "max_in_flight":
        text = (
            f"Ready, but the limit of {config.max_in_flight:,} in flight is reached: it waits "
            f"until a lease ends{_ahead(ahead)}{expires}."
        )
        return Why("max_in_flight", text, queue.next_lapse(), ahead)
    return Why(
        "paused", f"Ready, but the queue is paused: resume it{_ahead(ahead)}{expires}.", None, ahead
    )


def _group_busy(topic: QueueTopic, job: JobSummary, now: int) -> Why:
    order = topic.queue.order
    assert isinstance(order, GroupOrder), "only a group keeps a job back"
    group = f"its group {quoted(read_string(job.group))}"
    expires = _expires(job, now)
    first = order.first_of(job.group)
    if first and first != job.seq:
        state = state_of(topic, first).replace("_", " ")
        text = f"Ready, but job {first:,} of {group} goes first, and it is {state}{expires}."
        return Why("group_busy", text)
    until = order.waits_until(job.group)
    if until > now:
        wait = lasting(until - now)
        text = f"Ready, but {group} has used up its rate: its next job goes in {wait}{expires}."
        return Why("group_busy", text, until)
    flying = order.in_flight.get(job.group, 0)
    has = f" has {_count(flying, 'job', 'jobs')} in flight" if flying else " may not go now"
    return Why("group_busy", f"Ready, but {group}{has}: it waits for its group{expires}.")


# -- words -----------------------------------------------------------------------------------------


def _ahead(jobs: int) -> str:
    return f", {jobs:,} {'job is' if jobs == 1 else 'jobs are'} ahead" if jobs else ""


def _besides(topic: QueueTopic) -> str:
    return ", and the queue is paused" if topic.config.paused else ""


def _expires(job: JobSummary, now: int, due: int = 0) -> str:
    """A warning, where its time to live ends soon, or before it is due."""
    end = job.expires_at
    if end and end < due:
        return ", but it expires before that"
    if not end or end - now > EXPIRES_SOON_MS:
        return ""
    return f"; it expires in {lasting(end - now)}"


def _error_of(job: JobSummary) -> str:
    if not job.error:
        return ""
    return f" ({first_line(job.error)})"


def first_line(error: str) -> str:
    """The beginning of an error, in one line."""
    text = " ".join(error[: ERROR_SHOWN_MAX + 1].split())
    return text if len(error) <= ERROR_SHOWN_MAX else f"{text[:ERROR_SHOWN_MAX]}…"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def lasting(ms: int) -> str:
    """A duration as people say it: `340 ms`, `12 s`, `4 min`, `3 h`, `2 days`."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    for unit, size, limit in (
        ("s", 1000, 120),
        ("min", 60_000, 120),
        ("h", 3_600_000, 48),
    ):
        if ms < size * limit:
            return f"{ms // size} {unit}"
    return f"{ms // 86_400_000} days"
