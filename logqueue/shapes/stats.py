"""Shapes of the live feed and of history. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.values import Durability, Performance, TopicType


class StatsRates(msgspec.Struct, frozen=True, kw_only=True):
    """What happens per second, the mean of the last 10 seconds; of a log `appended` alone.

    Attributes:
        appended: Records written, copies included.
        claimed: Deliveries of jobs.
        expired: Leases that expired.
        dead: Jobs moved to dead letters.
    """

    appended: float
    claimed: float = 0.0
    acked: float = 0.0
    nacked: float = 0.0
    expired: float = 0.0
    dead: float = 0.0


class StatsRecent(msgspec.Struct, frozen=True, kw_only=True):
    """Each of the last 60 seconds, the latest last; empty when nothing happened in them.

    Attributes:
        into: Records written (`in` on the wire).
        out: Jobs acked; empty of a log.
    """

    into: list[int] = msgspec.field(name="in", default_factory=list)
    out: list[int] = []


class StatsTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the live feed. What is behind `rates` is of queues only.

    Attributes:
        oldest_ready_at: Since when the oldest claimable job has been claimable; None for none.
        dead: Records in the queue's dead-letter topic, of whatever queue; None without one, or
            where the key does not allow its name.
        workers: Nodes that were seen in the last minute, hold leases, or have a stream or a claim
            that waits.
        rate_limited: Whether `claim_rate` is used up now.
        held_back: Why claims get nothing now, however many jobs are ready: `paused`,
            `rate_limited` or `max_in_flight`.
        recent: In a full frame only.
    """

    type: TopicType
    durability: Durability
    head_seq: int
    count: int
    bytes: int
    paused: bool
    rates: StatsRates
    ready: int = 0
    in_flight: int = 0
    delayed: int = 0
    held: int = 0
    oldest_ready_at: int | None = None
    dead: int | None = None
    dead_letter: str | None = None
    archive: str | None = None
    workers: int = 0
    rate_limited: bool = False
    held_back: Literal["paused", "rate_limited", "max_in_flight"] | None = None
    recent: StatsRecent | None = None


class StatsReplica(msgspec.Struct, frozen=True, kw_only=True):
    """What the live feed says of the replica; members as in `ReplicaStatus`."""

    state: str | None
    lag_ms: int


class StatsServer(msgspec.Struct, frozen=True, kw_only=True):
    """The server in the live feed.

    Attributes:
        started_at: When the process began to serve.
        phase: `ready`, `standby`, or another one in which the server answers nothing else.
        role: As of `GET /v0/replica`.
        health: `ok`; `attention` when something needs it; `bad` when it cannot wait.
        health_text: The same in words.
        connections: Open connections.
        topics: How many there are, also those that the key may not see.
        records: Live records of all topics.
        memory_bytes: Resident memory of the process; None where the system does not say.
        disk_free_bytes: On the disk of the data directory.
        sync_p99_ms: What 99 % of the last syncs did not exceed; None without any.
        replica: None without a replica.
    """

    version: str
    started_at: int
    phase: str
    role: Literal["none", "writer", "standby"]
    health: Literal["ok", "attention", "bad"]
    health_text: str
    connections: int
    topics: int
    records: int
    bytes: int
    memory_bytes: int | None
    disk_free_bytes: int | None
    append_per_s: float
    claim_per_s: float
    ack_per_s: float
    sync_p99_ms: float | None
    replica: StatsReplica | None


class StatsAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs attention.

    Attributes:
        severity: `bad` when it cannot wait.
        topic: None for the server.
        code: What it is, for programs.
        text: The same in a sentence.
        since: Since when; null where that was before the first viewer of the feed came.
    """

    severity: Literal["bad", "warn"]
    topic: str | None
    code: str
    text: str
    since: int | None


class StatsKey(msgspec.Struct, frozen=True, kw_only=True):
    """The key of the viewer: what it may do, and with which names; no prefixes mean all names."""

    scopes: list[str]
    prefixes: list[str]


class StatsFull(msgspec.Struct, frozen=True, kw_only=True):
    """The event `full`: all there is.

    Attributes:
        at: When it was made.
        key: None on a server without keys.
        truncated: Whether there are more topics than the 10 000 that a feed shows.
        attention: The worst first; 100 at most.
    """

    at: int
    key: StatsKey | None
    server: StatsServer
    topics: dict[str, StatsTopic]
    attention: list[StatsAttention]
    truncated: bool = False


class StatsChange(msgspec.Struct, frozen=True, kw_only=True):
    """The event `change`: members that have changed since the event before.

    Attributes:
        server: Members of `StatsServer`.
        topics: Members of `StatsTopic`, by topic; of a new topic all but `recent`.
        gone: Topics that were deleted, before `topics` is taken in: a name may be in both.
        attention: All of it, when it has changed.
    """

    at: int
    server: dict[str, Any]
    topics: dict[str, dict[str, Any]]
    gone: list[str]
    attention: list[StatsAttention] | None = None


class TopicHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a topic while this server has run.

    Attributes:
        step_ms: Length of a slot: a second or a minute.
        start: When the first slot began (`from` on the wire).
        series: One number for each slot, by name; None where it is not known. `appended`,
            `claimed`, `acked`, `nacked`, `expired` and `dead` are counts of that slot; `ready`,
            `in_flight` and `oldest_ready_ms` are as of its end. Of a log `appended` alone.
    """

    topic: str
    step_ms: int
    start: int = msgspec.field(name="from")
    series: dict[str, list[int | None]]
    performance: Performance = {}


class WorkerQueue(msgspec.Struct, frozen=True, kw_only=True):
    """What one node does with one queue, and did since the server started; members as of
    `WorkerView`.

    Attributes:
        acked_per_s: The mean of the last 10 to 20 seconds.
    """

    topic: str
    in_flight: int
    last_seen_ts: int | None
    streams: int
    waiting: int
    claimed: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    acked_per_s: float


class JobInHand(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a node has a lease for.

    Attributes:
        age_ms: Since it was written.
    """

    topic: str
    seq: int = msgspec.field(name="$seq")
    age_ms: int
    deadline: int
    lease_left_ms: int
    deliveries: int
    progress: float | None = None
    note: str | None = None


class ServerWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One node, over all queues that the key may see; counts are sums over `queues`.

    Attributes:
        state: `working` or `idle` when it was seen in the last minute, or has a work stream or a
            claim that waits; else `silent` while it holds leases, and `gone`.
        jobs: Those in hand whose leases end soonest.
    """

    node: str
    state: Literal["working", "idle", "silent", "gone"]
    last_seen_ts: int | None
    in_flight: int
    streams: int
    waiting: int
    claimed: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    acked_per_s: float
    queues: list[WorkerQueue]
    jobs: list[JobInHand]


class ServerWorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes at work on any queue, the last seen first.

    Attributes:
        count: How many there are; the list stops at 1000.
    """

    workers: list[ServerWorker]
    count: int
    performance: Performance = {}
