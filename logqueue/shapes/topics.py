"""Shapes of topics, their config, and routers. See the package."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from logqueue.shapes.values import Durability, Guarantee, Performance, TopicType

# -- topics -------------------------------------------------------------------------------------


class RetryBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delay of jobs that come back, computed from how often they were delivered."""

    kind: Literal["constant", "linear", "exponential"]
    base_ms: int = 1000
    step_ms: int = 0
    factor: float = 2.0
    max_ms: int = 300_000
    jitter: float = 0.0


class ClaimRate(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a queue hands out per second, and how many at once after a quiet time.

    Attributes:
        burst: None for as many as in one second, at least one.
    """

    per_s: float
    burst: int | None = None


class SqsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue of SQS is set up to do beside the rest of its config; see docs/sqs.md."""

    delay_s: int = 0
    wait_s: int = 0
    message_bytes_max: int = 1 << 20
    redrive_permission: Literal["allowAll", "denyAll", "byQueue"] = "allowAll"
    redrive_sources: tuple[str, ...] = ()
    deduplicates_content: bool = False
    deduplication_scope: Literal["queue", "messageGroup"] = "queue"
    throughput_limit: Literal["perQueue", "perMessageGroupId"] = "perQueue"
    created_at: int = 0
    modified_at: int = 0
    tags: dict[str, str] = {}


class GroupsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs that have a group are handed out.

    Attributes:
        mode: "fair": groups take turns. "fifo": one job of a group at a time, in order.
        weights: Of "fair": how many jobs a group may give in one turn, where it is not 1.
        max_in_flight_per_group: 0 for no limit.
    """

    mode: Literal["fair", "fifo"]
    weights: dict[str, int] | None = None
    max_in_flight_per_group: int = 0
    rate_per_group: ClaimRate | None = None


class KeptResults(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and in how much memory, a queue keeps what became of its jobs."""

    keep_ms: int
    max_bytes: int


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic is set up to do; 0 and null mean "no such bound"."""

    type: TopicType
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: Literal["old", "reject"]
    durable: bool
    durability: Durability
    priority: int | None
    auto_priority: bool
    auto_create: bool
    idempotency_window_ms: int
    dedupe_node: bool
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    leases_durable: bool
    retry_backoff: RetryBackoff | None = None
    on_exhausted: Literal["dead_letter", "drop", "hold"] | None = None
    on_expire: Literal["drop", "dead_letter"] = "drop"
    claim_rate: ClaimRate | None = None
    max_in_flight: int = 0
    paused: bool = False
    archive: str | None = None
    sqs: SqsSettings | None = None
    priority_ageing_ms: int = 0
    groups: GroupsConfig | None = None
    results: KeptResults | None = None


class QueueCounters(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are in which state, and how many left it in which way."""

    ready: int
    in_flight: int
    dead_lettered: int
    delayed: int = 0
    held: int = 0
    acked: int = 0
    rejected: int = 0
    expired: int = 0
    dropped: int = 0
    superseded: int = 0
    cancelled: int = 0
    paused: bool = False
    oldest_ready_ms: int = 0


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a read of a topic's state.

    Attributes:
        earliest_seq: The lowest seq still there; one above the head when nothing is.
        count: Records that are there.
        bytes: Their size.
        queue: None for logs.
        log_id: Another one for a topic that is deleted and recreated, and for other data.
        config_version: Names this config; a change can be made to depend on it.
    """

    topic: str
    type: TopicType
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueCounters | None = None
    log_id: str = ""
    config_version: str = ""
    performance: Performance = {}


class TopicStats(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to asking for the counters of a topic; members as in `TopicState`."""

    topic: str
    type: TopicType
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    queue: QueueCounters | None = None
    performance: Performance = {}


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    type: TopicType | None = None
    queue: QueueCounters | None = None


class TopicPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of topics; `next_cursor` only when there is more."""

    topics: list[TopicEntry]
    next_cursor: str | None = None
    performance: Performance = {}


class TopicPut(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to creating a topic or changing its config.

    Attributes:
        config_version: Names the config that the topic has now.
    """

    topic: str
    config: TopicConfig
    created: bool = False
    config_version: str = ""
    performance: Performance = {}


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A config member whose present value is not the one that was sent."""

    have: Any
    want: Any


class TopicEnsured(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to ensuring a topic.

    Attributes:
        created: Whether this call created it.
        differs: Per config member that was sent and differs; empty when the topic is as wanted.
        config: The config that the topic has.
        config_version: Names that config.
    """

    topic: str
    config: TopicConfig
    created: bool = False
    differs: dict[str, Drift] = {}
    config_version: str = ""
    performance: Performance = {}


class TopicDropped(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to deleting a topic; `deleted` is false when there was none."""

    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance = {}


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to pausing or resuming a queue."""

    topic: str
    paused: bool
    performance: Performance = {}


# -- routers ------------------------------------------------------------------------------------


class Router(msgspec.Struct, frozen=True, kw_only=True):
    """A router that copies records from `source` to `dest`.

    Attributes:
        filter: Which tags are forwarded, as `["tag", "Eq" or "Glob", value]`; None for all.
        created: This call made it; only in the reply to a put.
        forwarded_total: Copies made so far; not in the reply to a put.
    """

    router: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    filter: list[str] | None
    allow_cycle: bool
    guarantee: Guarantee
    created: bool | None = None
    forwarded_total: int | None = None
    performance: Performance = {}


class RouterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A router in the list."""

    router: str
    source: str
    dest: str
    guarantee: Guarantee
    forwarded_total: int


class RouterPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list of routers; `next_cursor` only when there is more."""

    routers: list[RouterEntry]
    next_cursor: str | None = None
    performance: Performance = {}


class RouterDropped(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to deleting a router; `deleted` is false when there was none."""

    router: str
    deleted: bool
    performance: Performance = {}
