"""The server as its operator sees it, put together from what its parts know.

Owns: which number comes from where, and what each durability class promises here. Counts nothing
by itself: what metrics show too comes from the same place. Must not know: HTTP, how long it is
kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from platform import python_version
from typing import Any

import msgspec

from logqueue.model.config import DURABILITIES
from logqueue.segments.index import LogName
from logqueue.server.engine.engine import Engine
from logqueue.server.health import health_of
from logqueue.server.limits_in_use import limits_in_use
from logqueue.server.metrics import Metrics, Totals
from logqueue.server.process_memory import resident_bytes
from logqueue.server.recent import SLOW_FROM_S, quantile
from logqueue.server.service import Service
from logqueue.server.settings import OPTIONS, Settings
from logqueue.server.storage.compaction import SLACK_BYTES
from logqueue.server.storage.replication import Replication
from logqueue.shapes import (
    ArchiveUse,
    BackupProgress,
    ChangedSetting,
    Checkpoints,
    ConnectionCounts,
    DiskUse,
    DurabilityPromise,
    LimitUse,
    LogLevel,
    LogUse,
    MemoryPart,
    MemoryUse,
    ReplicaStatus,
    ServerState,
    SlowRequest,
    SyncTimes,
)
from logqueue.version import __version__

SEGMENTS_SHOWN = 64
JOB_BYTES = 300
KEY_BYTES = 250
"""About what is kept of a job that was delivered, delayed or held, and of an idempotency key."""

_SURVIVES = {
    "ephemeral": "nothing: the records are lost at every stop",
    "memory": "kill -9; a power loss may lose the last writes, and seqs may be used again",
    "disk": "kill -9; a power loss may lose the last writes, seqs are never used again",
    "fsync": "kill -9 and power loss",
}


def server_state(service: Service, metrics: Metrics, totals: Totals) -> ServerState:
    """Everything.

    Args:
        service: The server.
        metrics: What is counted.
        totals: Sums over its topics.
    """
    engine = service.engine
    state = engine.state if engine is not None else None
    role = replica_status(service)
    return ServerState(
        version=__version__,
        python=python_version(),
        phase=service.phase.value,
        role=role.role,
        started_at=service.started_at,
        uptime_ms=service.uptime_ms,
        health=health_of(service, metrics),
        topics=len(state.topics) if state is not None else 0,
        routers=len(state.routers) if state is not None else 0,
        records=totals.records,
        record_bytes=state.live_bytes if state is not None else 0,
        durability=[*_promises(service, totals)],
        sync=sync_times(metrics),
        logs=[_log(engine, name) for name in ("jobs", "leases")] if engine is not None else [],
        disk=_disk(engine, metrics) if engine is not None else None,
        memory=_memory(service, totals),
        checkpoints=_checkpoints(engine, service.settings) if engine is not None else None,
        archive=_archive(engine, service.settings) if engine is not None else None,
        replica=None if role.role == "none" else role,
        connections=_connections(service),
        limits=[
            LimitUse(name=limit.name, text=limit.text, used=limit.used, max=limit.max or None)
            for limit in limits_in_use(service)
        ],
        slow_requests=_slow_requests(metrics),
        slow_from_ms=SLOW_FROM_S * 1000,
        log_level=log_level(service),
        settings=[*_changed(service.settings, role.url)],
        backup=_backup(service),
    )


def sync_times(metrics: Metrics) -> SyncTimes:
    """Of the last syncs of the jobs log."""
    recent = metrics.recent_syncs
    syncs = recent.in_order()

    def at(share: float) -> float | None:
        return round(quantile(syncs, share) * 1000, 3) if syncs else None

    return SyncTimes(
        count=recent.count, recent=len(syncs), p50_ms=at(0.5), p99_ms=at(0.99), max_ms=at(1.0)
    )


def log_level(service: Service) -> LogLevel:
    """As of now."""
    verbosity = service.verbosity
    return msgspec.convert(
        {
            "level": verbosity.level,
            "configured": verbosity.configured,
            "until": verbosity.until,
        },
        LogLevel,
    )


# -- the replica ---------------------------------------------------------------------------------


def replica_status(service: Service) -> ReplicaStatus:
    """The part of the server in the replica of its log."""
    replication = service.replication
    following = service.lifecycle.following
    status: dict[str, Any] = {"role": "none"}
    if service.settings.standby and replication is None:
        # It is about to follow, or to take over.
        status = {"role": "standby"}
    if following is not None:
        status = {"role": "standby", **following.status()}
    elif replication is not None:
        status = _status_of_writer(replication)
    return msgspec.convert(status, ReplicaStatus)


def _status_of_writer(replication: Replication) -> dict[str, Any]:
    writer, stats = replication.writer, replication.stats
    known = {"id": writer.writer.id, "address": writer.writer.address}
    if replication.fenced_by is not None:
        known = {"id": "", "address": replication.fenced_by}
    status: dict[str, Any] = {
        "role": "writer",
        "mode": replication.mode,
        "state": replication.state(),
        "url": replication.store_url,
        "log_id": replication.log_id,
        "epoch": writer.epoch,
        "writer": known,
        "lag_ms": writer.lag_ms,
        "lag_bytes": writer.waiting_bytes,
        "lag_frames": replication.frames_behind,
        "last_chunk": writer.end.number,
        "chunks_behind": writer.chunks_behind,
        "failures": stats.put_failures,
    }
    if stats.last_error:
        status |= {"last_error": stats.last_error, "last_error_at": stats.last_error_at}
    return status


# -- storage -------------------------------------------------------------------------------------


def _promises(service: Service, totals: Totals) -> Iterable[DurabilityPromise]:
    replication = service.replication
    both = replication is not None and replication.is_sync
    waits = {
        "ephemeral": "nothing",
        "memory": "the write to the operating system",
        "disk": "the write to the operating system",
        "fsync": "the sync to the disk, and the replica" if both else "the sync to the disk",
    }
    for name in DURABILITIES:
        survives = _SURVIVES[name]
        if name == "fsync" and both:
            survives = "kill -9, power loss, and the loss of this machine"
        yield msgspec.convert(
            {
                "durability": name,
                "topics": totals.by_class[name],
                "reply_waits_for": waits[name],
                "survives": survives,
            },
            DurabilityPromise,
        )


def _log(engine: Engine, name: LogName) -> LogUse:
    log = engine.journal.logs[name]
    segments = log.segments(SEGMENTS_SHOWN)
    oldest, newest = log.oldest_segment, segments[-1]
    return LogUse(
        log=name,
        bytes=log.bytes_total,
        segments=newest.id - oldest + 1,
        oldest=oldest,
        newest=newest.id,
        active_bytes=newest.bytes,
        segment_max_bytes=log.segment_bytes_max,
        recent=[segment.bytes for segment in segments],
        waiting_frames=log.appended - log.written,
        failure=None if log.failure is None else str(log.failure),
    )


def _disk(engine: Engine, metrics: Metrics) -> DiskUse | None:
    found = metrics.disk()
    if found is None:
        return None
    journal = engine.journal
    return DiskUse(
        total_bytes=found.total,
        free_bytes=found.free,
        logs_bytes=journal.jobs.bytes_total + journal.leases.bytes_total,
        heads_bytes=sum([*journal.heads.sizes.values()]),
        reserve_bytes=journal.reserve.bytes,
        refused=journal.jobs.stats.refused,
        read_only=journal.jobs.failure is not None,
    )


def _checkpoints(engine: Engine, settings: Settings) -> Checkpoints:
    journal = engine.journal
    last = journal.checkpointed_at
    (active,) = journal.jobs.segments(1)
    return Checkpoints(
        last_at=last[0] if last is not None else None,
        last_segment=last[1] if last is not None else None,
        in_progress=journal.is_checkpointing,
        next_in_bytes=max(settings.segment_max_bytes - active.bytes, 0),
        live_bytes=journal.live_bytes,
        compacts_above_bytes=2 * journal.live_bytes + SLACK_BYTES,
    )


def _archive(engine: Engine, settings: Settings) -> ArchiveUse | None:
    history = engine.segments.history()
    if history is None:
        return None
    return ArchiveUse(
        segments=history.segments,
        bytes=history.bytes,
        failing=history.is_failing,
        max_bytes=settings.archive_max_bytes or None,
    )


# -- the process ---------------------------------------------------------------------------------


def _memory(service: Service, totals: Totals) -> MemoryUse:
    resident = resident_bytes()
    dispatcher, engine = service.lifecycle.dispatcher, service.engine
    sizes: list[tuple[str, int, str]] = [
        ("clients", service.memory.used, "unfinished requests, unread replies, subscriptions"),
        ("jobs", totals.tracked * JOB_BYTES, "jobs that were delivered, delayed or held"),
        ("keys", totals.keys * KEY_BYTES, "idempotency keys"),
    ]
    if service.memory_at_start is not None:
        sizes.append(("program", service.memory_at_start, "the program itself"))
    if engine is not None and dispatcher is not None:
        payloads = engine.journal.payloads
        sizes += [
            ("unsealed", payloads.waiting_bytes, "record data of segments that are not sealed yet"),
            ("data_cache", payloads.cached_bytes, "record data read from segments"),
            ("pages", dispatcher.record_texts.bytes_kept, "encoded records, for many readers"),
            ("staged", engine.state.staged_bytes, "chunks that wait for their commit"),
        ]
    if resident is not None:
        rest = max(resident - sum(size for _, size, _ in sizes), 0)
        sizes.append(("records", rest, "records with their indexes, and all else"))
    parts = [MemoryPart(part=part, bytes=size, text=text) for part, size, text in sizes]
    parts.sort(key=lambda part: -part.bytes)
    return MemoryUse(resident_bytes=resident, parts=parts)


def _connections(service: Service) -> ConnectionCounts:
    barrier = service.barrier
    return ConnectionCounts(
        open=len(service.connections),
        streams=service.streams,
        claims_waiting=service.claims_waiting,
        replies_waiting=barrier.waiting if barrier is not None else 0,
        not_reading=len(service.memory.stalled),
        dropped=service.memory.dropped,
    )


def _backup(service: Service) -> BackupProgress | None:
    backup = service.backup
    if backup is None:
        return None
    return BackupProgress(
        started_at=backup.started_at, total_bytes=backup.total_bytes, sent_bytes=backup.sent_bytes
    )


def _slow_requests(metrics: Metrics) -> list[SlowRequest]:
    return [
        SlowRequest(
            at=int(noted.at * 1000),
            method=noted.method,
            route=noted.route,
            name=noted.name,
            status=noted.status,
            took_ms=round(noted.took_s * 1000, 1),
        )
        for noted in metrics.slow_requests.slowest()
    ]


# -- settings ------------------------------------------------------------------------------------


def _changed(settings: Settings, replica_url: str | None) -> Iterable[ChangedSetting]:
    """The settings that are not at their default, without secrets."""
    defaults = Settings()
    for option in OPTIONS:
        value, default = getattr(settings, option.name), getattr(defaults, option.name)
        if value == default:
            continue
        if option.name == "api_keys":
            if settings.keys_file is not None:
                continue
            value, default = f"set ({len(settings.api_keys.keys)})", None
        elif option.name == "replica" or (
            option.name == "archive_dir" and settings.archives_in_replica
        ):
            value = replica_url or "set"
        yield ChangedSetting(
            name=option.variable, value=_shown(value), default=_shown(default) or None
        )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
