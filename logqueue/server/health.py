"""Whether the server itself is all right, in words, with what to do.

Owns: what counts as a finding, and its sentences. Each look costs microseconds, whatever the number
of topics. Must not know: single queues, HTTP, who asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from logqueue.server.limits_in_use import LimitInUse, limits_in_use
from logqueue.server.metrics import Metrics
from logqueue.server.recent import quantile
from logqueue.server.service import Phase, Service
from logqueue.shapes import HealthFinding, ServerHealthReport

SLOW_SYNC_S = 0.1
"""A 99th percentile from here on is worth looking at."""
SYNCS_MIN = 20
"""With fewer syncs a percentile says nothing."""
NEARLY_FULL = 0.8
FREE_BYTES_LOW_MAX = 10 << 30
FREE_SHARE_LOW = 0.05
SEGMENTS_FREE_LOW = 4
FREE_BYTES_BAD = 64 << 20
BEHIND_MS = 10_000


def health_of(service: Service, metrics: Metrics) -> ServerHealthReport:
    """All findings, the worst first."""
    findings = sorted(
        [*_phase(service), *_storage(service, metrics), *_replica(service), *_use(service)],
        key=lambda finding: finding.severity,
    )
    if not findings:
        return ServerHealthReport(state="ok", text="The server is healthy.", findings=[])
    more = f" ({len(findings) - 1} more)" if len(findings) > 1 else ""
    worst = findings[0]
    return ServerHealthReport(
        state="bad" if worst.severity == "bad" else "attention",
        text=worst.text + more,
        findings=findings,
    )


def _bad(code: str, text: str, advice: str) -> HealthFinding:
    return HealthFinding(severity="bad", code=code, text=text, advice=advice)


def _warn(code: str, text: str, advice: str) -> HealthFinding:
    return HealthFinding(severity="warn", code=code, text=text, advice=advice)


def _phase(service: Service) -> Iterator[HealthFinding]:
    phase = service.phase
    if phase is Phase.RECOVERING:
        yield _bad(
            "recovering",
            f"The server replays its log: {service.replay_progress:.0%} done.",
            "Wait: requests are answered once it is done.",
        )
    elif phase is Phase.FAILED:
        yield _bad(
            "recovery_failed",
            f"The log was refused: {service.lifecycle.failure}.",
            "See the log of the process, and docs/operations.md, Damaged log.",
        )
    elif phase is Phase.DRAINING:
        yield _bad("draining", "The server is shutting down.", "Start it again when it has ended.")
    elif phase is Phase.FENCED:
        yield _bad(
            "fenced",
            "Another server has taken over the log.",
            "Send clients to the new writer; restart this one as a standby.",
        )


def _storage(service: Service, metrics: Metrics) -> Iterator[HealthFinding]:
    engine = service.engine
    if engine is None:
        return
    journal = engine.journal
    if journal.jobs.failure is not None:
        yield _bad(
            "read_only",
            f"Storage is read-only: a write or sync failed ({journal.jobs.failure}).",
            "Check the disk, then restart the server. Reads continue from the last good sync.",
        )
    if journal.leases.failure is not None:
        yield _warn(
            "leases_not_logged",
            f"The leases log has failed ({journal.leases.failure}): leases are no longer logged.",
            "Check the disk, then restart: jobs in flight are delivered again.",
        )
    yield from _space(service, metrics)
    losses = [*journal.jobs.losses, *journal.leases.losses]
    if losses:
        yield _warn(
            "damage_set_aside",
            f"Damage was set aside at the start: {losses[0]}.",
            "Compare with a backup; see docs/operations.md, Damaged log.",
        )
    history = engine.segments.history()
    if history is not None and history.is_failing:
        yield _warn(
            "archive_failing",
            "Segments cannot be archived, so the logs keep them and grow.",
            "Check the space and the permissions of the archive directory.",
        )
    syncs = metrics.recent_syncs.in_order()
    if len(syncs) >= SYNCS_MIN and (p99 := quantile(syncs, 0.99)) >= SLOW_SYNC_S:
        yield _warn(
            "slow_syncs",
            f"The disk is slow: 1 of 100 syncs takes {p99 * 1000:.0f} ms or longer.",
            "Look for other programs that write to this disk, or use a faster one.",
        )


def _space(service: Service, metrics: Metrics) -> Iterator[HealthFinding]:
    disk = metrics.disk()
    if disk is None:
        return
    segment = service.settings.segment_max_bytes
    share = min(disk.total * FREE_SHARE_LOW, FREE_BYTES_LOW_MAX)
    free = f"{disk.free / (1 << 20):,.0f} MiB free"
    advice = "Free space on the disk of the data directory, or make it larger."
    if disk.free < FREE_BYTES_BAD:
        yield _bad("disk_full", f"The disk is full: {free}; writes are refused.", advice)
    elif disk.free < max(min(SEGMENTS_FREE_LOW * segment, disk.total / 10), share):
        yield _warn("disk_low", f"Little disk space is left: {free}.", advice)


def _replica(service: Service) -> Iterator[HealthFinding]:
    following = service.lifecycle.following
    if following is not None and following.behind_ms > BEHIND_MS:
        yield _warn(
            "standby_behind",
            f"This standby is {following.behind_ms / 1000:.0f} s behind the replica.",
            "Check that it reaches the object store.",
        )
    replication = service.replication
    if replication is None:
        return
    state, lag_s = replication.state(), replication.writer.lag_ms / 1000
    why = replication.stats.last_error or "it is slower than what is written"
    if state == "stalled":
        yield _bad(
            "replica_stalled",
            f"The replica is {lag_s:.0f} s behind, so changes of class fsync are refused: {why}.",
            "Check the object store and the credentials; the server retries by itself.",
        )
    elif state == "behind":
        yield _warn(
            "replica_behind",
            f"The replica is {lag_s:.0f} s behind: {why}.",
            "Check the object store and the credentials; the server retries by itself.",
        )


def _use(service: Service) -> Iterator[HealthFinding]:
    for limit in limits_in_use(service):
        if limit.max and limit.used >= limit.max * NEARLY_FULL:
            yield _nearly(limit, limit.used / limit.max)
    if service.settings.is_insecure:
        yield _warn(
            "no_keys",
            f"Every client that can reach {service.settings.host} may do everything.",
            "Set LOGQUEUE_API_KEYS or LOGQUEUE_KEYS_FILE.",
        )


def _nearly(limit: LimitInUse, share: float) -> HealthFinding:
    text = f"{share:.0%} of the maximum {limit.text} is in use ({limit.used:,} of {limit.max:,})."
    advice = f"Use less, or raise {limit.variable} and restart."
    make = _bad if share >= 1 else _warn
    return make("limit_reached" if share >= 1 else "limit_near", text, advice)
