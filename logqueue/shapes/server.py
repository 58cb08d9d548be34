"""Shapes of the state of the server itself. See the package."""

from __future__ import annotations

from typing import Literal

import msgspec

from logqueue.shapes.operations import ReplicaStatus
from logqueue.shapes.values import Durability, Performance

ServerPhase = Literal["recovering", "standby", "ready", "draining", "fenced", "failed"]
ServerHealth = Literal["ok", "attention", "bad"]
LogLevelName = Literal["debug", "info", "warning", "error"]


class HealthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing about the server that an operator should act on.

    Attributes:
        severity: `bad` when clients are affected, else `warn`.
        code: What it is, for programs.
        text: What it is, in a sentence.
        advice: What to do about it.
    """

    severity: Literal["warn", "bad"]
    code: str
    text: str
    advice: str


class ServerHealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server itself is all right. What is wrong in single queues is not here.

    Attributes:
        state: The worst of the findings: `ok` without any.
        text: The same in one sentence.
        findings: The worst first.
    """

    state: ServerHealth
    text: str
    findings: list[HealthFinding]


class DurabilityPromise(msgspec.Struct, frozen=True, kw_only=True):
    """What a durability class promises on this server, as it is now.

    Attributes:
        topics: Topics of this class.
        reply_waits_for: What a reply to a write waits for.
        survives: What an acknowledged write survives.
    """

    durability: Durability
    topics: int
    reply_waits_for: str
    survives: str


class SyncTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long syncs of the jobs log take.

    Attributes:
        count: Syncs since the server started.
        recent: How many of them, the last ones, the following figures are of; 1024 at most.
        p50_ms, p99_ms, max_ms: Median, 99th percentile and longest of those; None without any.
    """

    count: int
    recent: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class LogUse(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two logs.

    Attributes:
        bytes: Of all its segments, as far as they are in use.
        segments: How many there are.
        oldest, newest: Their numbers.
        active_bytes: Of the newest.
        segment_max_bytes: At this size the next one begins.
        recent: Sizes of the newest segments in bytes, oldest first; 64 at most.
        waiting_frames: Frames that are not written yet.
        failure: Why it takes no writes; None while it does.
    """

    log: Literal["jobs", "leases"]
    bytes: int
    segments: int
    oldest: int
    newest: int
    active_bytes: int
    segment_max_bytes: int
    recent: list[int]
    waiting_frames: int
    failure: str | None = None


class ArchiveUse(msgspec.Struct, frozen=True, kw_only=True):
    """The log archive.

    Attributes:
        failing: The last attempt to archive failed; the logs drop nothing meanwhile.
        max_bytes: At this size the oldest are deleted; None without a bound.
    """

    segments: int
    bytes: int
    failing: bool
    max_bytes: int | None = None


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """The disk of the data directory.

    Attributes:
        total_bytes, free_bytes: Of the file system.
        logs_bytes: What both logs use.
        heads_bytes: What the files beside the segments use, which make a start fast.
        reserve_bytes: Kept back for moving live records on a full disk.
        refused: Writes refused for lack of space since the start.
        read_only: Whether a write or sync has failed: the server takes no changes until a restart.
    """

    total_bytes: int
    free_bytes: int
    logs_bytes: int
    heads_bytes: int
    reserve_bytes: int
    refused: int
    read_only: bool


class MemoryPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a part of the memory is used for.

    Attributes:
        bytes: About how much.
        text: What it is.
    """

    part: str
    bytes: int
    text: str


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of the process.

    Attributes:
        resident_bytes: As the operating system counts it; None where it does not say.
        parts: The largest first. Without `resident_bytes` the rest is not among them.
    """

    resident_bytes: int | None
    parts: list[MemoryPart]


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """From where the jobs log can be replayed.

    Attributes:
        last_at: When the last one was complete, ms since the epoch; None when there was none since
            the start.
        last_segment: The segment that it begins; None as above.
        in_progress: Whether one is being written.
        next_in_bytes: Each segment begins with one: so many bytes until the next.
        live_bytes: About how large the jobs log would be with live data only, at the last look.
        compacts_above_bytes: Above this size the oldest segments are rewritten and dropped.
    """

    last_at: int | None
    last_segment: int | None
    in_progress: bool
    next_in_bytes: int
    live_bytes: int
    compacts_above_bytes: int


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how much of it is in use.

    Attributes:
        name: Of the setting.
        used: Of a limit per key: by the key that uses most.
        max: None for unlimited.
    """

    name: str
    text: str
    used: int
    max: int | None = None


class ConnectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Who is connected now.

    Attributes:
        open: Connections.
        streams: Push streams and sockets on them.
        claims_waiting: Claims that wait for jobs.
        replies_waiting: Replies that wait for the log.
        not_reading: Connections that do not read what is written to them.
        dropped: Those that were closed for it since the start, when memory was short.
    """

    open: int
    streams: int
    claims_waiting: int
    replies_waiting: int
    not_reading: int
    dropped: int


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that took long. Time that a client asked the server to wait does not count.

    Attributes:
        at: When it was answered, ms since the epoch.
        route: Pattern of its path.
        name: The topic, router or producer of its path; "" where the path has none.
        took_ms: From its head to its reply.
    """

    at: int
    method: str
    route: str
    name: str
    status: int
    took_ms: float


class LogLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How much the server writes to its log.

    Attributes:
        until: When the level returns to `configured`, ms since the epoch; None when it stays.
        configured: The level the server started with.
    """

    level: LogLevelName
    configured: LogLevelName
    until: int | None = None


class LogLevelChanged(LogLevel, frozen=True, kw_only=True):
    """The level as of now."""

    performance: Performance = {}


class ChangedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not at its default.

    Attributes:
        name: Its environment variable.
        value: As text; `set` for those that may hold secrets.
        default: The same of the default; None when it is unset by default.
    """

    name: str
    value: str
    default: str | None


class BackupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that a client is downloading now."""

    started_at: int
    total_bytes: int
    sent_bytes: int


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The server as its operator sees it.

    Attributes:
        started_at: ms since the epoch.
        slow_requests: The slowest of the last hour, the slowest first.
        slow_from_ms: Faster requests are never among them.
        archive, replica: None of a server that has none.
        backup: None while none is sent.
    """

    version: str
    python: str
    phase: ServerPhase
    role: Literal["none", "writer", "standby"]
    started_at: int
    uptime_ms: int
    health: ServerHealthReport
    topics: int
    routers: int
    records: int
    record_bytes: int
    durability: list[DurabilityPromise]
    sync: SyncTimes
    logs: list[LogUse]
    disk: DiskUse | None
    memory: MemoryUse
    checkpoints: Checkpoints | None
    archive: ArchiveUse | None
    replica: ReplicaStatus | None
    connections: ConnectionCounts
    limits: list[LimitUse]
    slow_requests: list[SlowRequest]
    slow_from_ms: float
    log_level: LogLevel
    settings: list[ChangedSetting]
    backup: BackupProgress | None = None
    performance: Performance = {}
