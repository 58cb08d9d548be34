"""Shapes of leased jobs and of replies about jobs. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import field

from logqueue.shapes.records import Appended
from logqueue.shapes.values import (
    DeadLetterReason,
    EmptyReason,
    JobEnding,
    JobState,
    Performance,
    WhyCode,
)

# -- queues -------------------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A leased job.

    Attributes:
        lease_id: Proof of this lease; settling with it fails once the lease has another holder.
        deadline: When the lease ends.
        deliveries: How often the job was handed out, this time included.
        key: What makes it unique among the waiting jobs of its queue.
        last_error: What the last worker said when it gave the job back.
        updated_at: When a keyed write last replaced it.
        given_back: How many of the deliveries do not count towards `max_deliveries`, since a work
            stream ended before the job was worked on.
        priority: 0 to 9; a higher one goes first.
        group: Whose turn it was, in a queue that has groups.
        batch: The batch that it is in.
        then: The steps of its chain that follow it.
    """

    seq: int = field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = field(name="$ts")
    deliveries: int
    data: Any
    tag: str | None = field(name="$tag", default=None)
    meta: Any = None
    key: str | None = field(name="$key", default=None)
    last_error: str | None = None
    updated_at: int | None = field(name="$updated_at", default=None)
    given_back: int = 0
    priority: int = 0
    group: str | None = None
    batch: str | None = None
    then: list[JobStep] = []


class JobStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a chain.

    Attributes:
        topic: Where it is written to, once the job before it is acked.
        record: The record, with the members of a write; `data` and what else was given.
    """

    topic: str
    record: dict[str, Any]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a claim.

    Attributes:
        jobs: What was leased, in the order of the claim (`claimed` on the wire).
        ready: How many more could be claimed now.
        reason: Why there are none.
        retry_after_ms: When to ask again, if the server knows.
    """

    topic: str
    jobs: list[Job] = field(name="claimed")
    count: int
    ready: int
    reason: EmptyReason | None = None
    retry_after_ms: int | None = None
    performance: Performance = {}


class Acked(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an ack. `skipped` lists the seqs the caller holds no lease for.

    Attributes:
        appended: Of an ack with `append`: the result of each write; empty when nothing was acked
            and nothing written, because a job was skipped. None of any other ack.
    """

    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    appended: list[Appended] | None = None
    performance: Performance = {}


class Nacked(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a nack. `skipped` lists the seqs the caller holds no lease for."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance = {}


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a reject. `skipped` lists the seqs the caller holds no lease for."""

    topic: str
    rejected: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance = {}


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to an extend: new deadlines by seq, and the seqs the caller holds no lease for."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[int, int]
    performance: Performance = {}


# -- reading and administering jobs -------------------------------------------------------------


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is looked at, without leasing it.

    Attributes:
        node: Who holds it, while in flight.
        given_back: How many of the deliveries do not count towards `max_deliveries`.
        progress, note: How far its worker is, from 0 to 1, and what it says of that.
        data: Left out when not asked for, as `meta` is.
        batch: The batch that it is in.
        then: The steps of its chain that follow it.
    """

    seq: int = field(name="$seq")
    ts: int = field(name="$ts")
    state: JobState
    deliveries: int
    age_ms: int
    node: str | None = None
    deadline: int | None = None
    max_deliveries: int | None = None
    not_before: int | None = None
    expires_at: int | None = None
    tag: str | None = field(name="$tag", default=None)
    key: str | None = field(name="$key", default=None)
    updated_at: int | None = field(name="$updated_at", default=None)
    last_error: str | None = None
    given_back: int = 0
    priority: int = 0
    group: str | None = None
    batch: str | None = None
    then: list[JobStep] = []
    progress: float | None = None
    note: str | None = None
    data: Any = None
    meta: Any = None


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step in the life of a job: appended, claimed, extended, given back, held, acked, ...

    Attributes:
        topic, seq: Where it came from, or where its copy is.
        reason: Why it was dead-lettered.
        producer: Who committed it in a transaction.
        progress, note: Of an extend: how far the worker said it was.
    """

    at: int
    event: str
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    not_before: int | None = None
    error: str | None = None
    reason: str | None = None
    topic: str | None = None
    seq: int | None = None
    producer: str | None = None
    progress: float | None = None
    note: str | None = None


class JobWhy(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not being worked on.

    Attributes:
        text: One sentence.
        until: When time alone changes that.
        ahead: How many jobs are claimed before a ready one; at least so many, where it is 2000.
    """

    code: WhyCode
    text: str
    until: int | None = None
    ahead: int | None = None


class JobCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Where the copy of a job is that has ended.

    Attributes:
        exists: Whether it is still there.
    """

    topic: str
    seq: int
    exists: bool = True


class ShownJob(JobView, frozen=True, kw_only=True):
    """A job, or what is known of one that has ended.

    Attributes:
        state: Where it is, or how it ended.
        ts, deliveries, age_ms: 0 of one that has ended, where the logs were not searched.
        outcome: How it ended, in the words of the events.
        ended_at: When it ended.
        reason: Why it was dead-lettered.
        result: What its worker made of it.
        error: Why it failed.
    """

    ts: int = field(name="$ts", default=0)
    state: JobState | JobEnding  # type: ignore[assignment]
    deliveries: int = 0
    age_ms: int = 0
    outcome: JobEnding | None = None
    ended_at: int | None = None
    reason: DeadLetterReason | None = None
    result: Any = None
    error: str | None = None


class JobStatus(ShownJob, frozen=True, kw_only=True):
    """What a job is or has become.

    Attributes:
        state: "unknown" when there has never been such a job.
    """

    state: JobState | JobEnding | Literal["unknown"]  # type: ignore[assignment]

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.state not in ("ready", "delayed", "in_flight", "held")


class JobStatuses(msgspec.Struct, frozen=True, kw_only=True):
    """What some jobs are or have become.

    Attributes:
        jobs: In the order in which they were asked for.
        rest: Seqs that found no room in the reply; ask for them again.
    """

    topic: str
    jobs: list[JobStatus]
    rest: list[int] = []
    performance: Performance = {}


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One job, and what the server still knows of its life, oldest first.

    Attributes:
        why: Why it waits.
        history: Of the timeline, what happened to its leases.
        history_complete: False when some of it is no longer known.
        timeline: Its whole life.
        timeline_complete: False when some of it is no longer known.
        copy: Its archived copy, or its dead letter.
    """

    topic: str
    job: ShownJob
    history: list[JobEvent] = []
    history_complete: bool = False
    why: JobWhy | None = None
    timeline: list[JobEvent] = []
    timeline_complete: bool = False
    copy: JobCopy | None = None
    performance: Performance = {}


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs; `next_after` only when there may be more."""

    topic: str
    jobs: list[JobView]
    scanned: int
    next_after: int | None = None
    performance: Performance = {}


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to cancelling a job by seq or by key; which one it was and what it was, if any."""

    topic: str
    cancelled: bool
    seq: int | None = field(name="$seq", default=None)
    state: JobState | None = None
    performance: Performance = {}


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a purge: how many jobs went, by state."""

    topic: str
    purged: dict[str, int]
    performance: Performance = {}


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to releasing held jobs. `skipped` lists the seqs that were not held."""

    topic: str
    released: int
    skipped: list[int]
    ready: int
    held: int
    performance: Performance = {}


class Redriven(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to moving dead letters back.

    Attributes:
        redriven: How many were moved, or would be in a dry run.
        skipped: Selected, but left: no known source, or no room there.
        remaining: How many selected ones are left, the skipped ones among them.
        targets: Where they went.
    """

    topic: str
    redriven: int
    skipped: int
    remaining: int
    targets: list[str]
    dry_run: bool
    performance: Performance = {}


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """What one node does with a queue, and did since the server started.

    Attributes:
        streams: Work streams it has open.
        waiting: Claims of its that wait for jobs.
    """

    node: str
    in_flight: int
    last_seen_ts: int | None
    streams: int
    waiting: int
    claimed: int
    acked: int
    nacked: int
    rejected: int
    expired: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group of a queue.

    Attributes:
        waiting: Its ready jobs; in mode "fifo" all that are not in flight.
        oldest_seq, oldest_ms: The first of them and its age; None when none waits.
        blocked: Whether it may not go now: by a limit, or by its rate.
    """

    group: str
    waiting: int
    in_flight: int
    oldest_seq: int | None = None
    oldest_ms: int | None = None
    blocked: bool = False


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a queue with the most waiting jobs, or with the oldest.

    Attributes:
        count: About how many groups there are.
        scanned: How many of them were examined.
    """

    topic: str
    groups: list[GroupView]
    count: int
    scanned: int
    performance: Performance = {}


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes at work on a queue, the last seen first.

    Attributes:
        count: How many there are; the list stops at 1000.
    """

    topic: str
    workers: list[WorkerView]
    count: int
    performance: Performance = {}
