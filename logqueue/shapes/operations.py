"""Shapes of health, readiness and the replica. See the package."""

from __future__ import annotations

from typing import Literal

import msgspec

from logqueue.shapes.values import Performance

ReplicaStateName = Literal["current", "behind", "stalled", "fenced", "ended"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process is up."""

    status: str
    version: str
    uptime_ms: int


class ReplicaSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What readiness says of the replica.

    Attributes:
        state: `current`; `behind` while the store fails; `stalled` once replies have waited too
            long for it.
        lag_ms: For how long the oldest frame that is not in the replica has been written.
    """

    state: ReplicaStateName
    lag_ms: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The log is replayed and takes writes.

    Attributes:
        replica: Only of a server with a replica.
    """

    status: str
    wal_replay_complete: bool
    topics: int
    replica: ReplicaSummary | None = None


class ReplicaWriterAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Which server writes the log.

    Attributes:
        id: Of one run of one server.
        address: Base URL at which clients reach it; "" when it is not known.
    """

    id: str
    address: str


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a server in the replica of its log.

    Attributes:
        role: `none` of a server without a replica; all else is left out then.
        mode: `sync` when replies wait for the replica.
        state: See `ReplicaSummary`.
        url: Where the replica is, without credentials.
        log_id: Identity of the log.
        epoch: Of the writer: one more with each that takes over.
        writer: The server that writes, as far as this one knows.
        lag_ms: For how long the oldest frame that is not in the replica has been written; of a
            standby, how far it is behind the replica.
        lag_bytes: About how many bytes are written and not in the replica.
        lag_frames: The same in frames of the jobs log.
        last_chunk: Number of the last chunk that is committed, or was read.
        chunks_behind: Chunks that a restore reads behind the segments.
        failures: Calls of the store that have failed since the start.
        last_error: The last failure, while it lasts.
        last_error_at: When that was, ms since the epoch.
    """

    role: Literal["none", "writer", "standby"]
    mode: Literal["async", "sync"] | None = None
    state: ReplicaStateName | None = None
    url: str | None = None
    log_id: str | None = None
    epoch: int | None = None
    writer: ReplicaWriterAddress | None = None
    lag_ms: int | None = None
    lag_bytes: int | None = None
    lag_frames: int | None = None
    last_chunk: int | None = None
    chunks_behind: int | None = None
    failures: int | None = None
    last_error: str | None = None
    last_error_at: int | None = None


class ReplicaTakeover(msgspec.Struct, frozen=True, kw_only=True):
    """This server is the writer.

    Attributes:
        epoch: Of this writer.
    """

    role: Literal["writer"]
    epoch: int
    performance: Performance = {}


class ReplicaHandOver(msgspec.Struct, frozen=True, kw_only=True):
    """This server was the writer, and has committed all it had.

    Attributes:
        epoch: Of the writer that has ended.
    """

    handed_over: bool
    epoch: int
    performance: Performance = {}
