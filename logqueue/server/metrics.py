"""What operators watch: counters kept while serving, gauges read when scraped.

Owns: every metric's name, help text and labels (the catalogue in docs/operations.md), in
Prometheus text and as JSON. Counting on hot paths is one dictionary or list update; everything
else happens at a scrape.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from platform import python_version
from shutil import disk_usage
from typing import Any, NamedTuple, get_args

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from logqueue import events as ev
from logqueue.core.commands import DeadLetterReason
from logqueue.core.decide.endings import Outcome
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.model.config import DURABILITIES
from logqueue.server.activity import Activity, ActivityCounts
from logqueue.server.recent import SLOW_FROM_S, Durations, SlowRequests
from logqueue.server.service import Phase, Service
from logqueue.version import __version__

logger = logging.getLogger("logqueue.requests")

PREFIX = "logqueue_"
API = "/v0/"
"""How the routes of the API begin; all others are pages for people, and probes."""
REPLICA_STATES = ("current", "behind", "stalled", "fenced", "ended")
OUTCOMES: tuple[str, ...] = get_args(Outcome)
FSYNC_BUCKETS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)
REQUEST_BUCKETS_S = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
)  # fmt: skip
FAILURES: tuple[str, ...] = get_args(DeadLetterReason)
"""Why jobs fail permanently."""
OTHER = "<other>"
"""The label of all queues that have none of their own; no topic can be called so."""


class Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: Histogram) -> None:
        """Count what another one with the same bounds has counted."""
        self.counts = [*map(add, self.counts, other.counts)]
        self.sum += other.sum

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        labels = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(labels, map(float, accumulate(self.counts)), strict=True))


class DiskSpace(NamedTuple):
    """Of a file system, in bytes; `free` is what the server may use."""

    total: int
    free: int


class QueueCounts:
    """What has happened to the jobs of one queue since the server began, or of several.

    Attributes:
        topic: Its name; `OTHER` for all queues that have no counts of their own.
        expired: Leases that expired.
    """

    __slots__ = (
        "acked", "claimed", "dead_lettered", "expired", "failed", "redelivered", "released",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.claimed = 0
        self.redelivered = 0
        self.released = 0
        self.expired = 0
        self.acked = 0
        self.dead_lettered = 0
        self.failed = dict.fromkeys(FAILURES, 0)


class Totals:
    """Sums over all topics, made a few at a time.

    Attributes:
        by_class: Topics by durability class.
        tracked: Jobs of which more is known than their record: delivered, delayed or held ones.
        keys: Idempotency keys that are remembered.
        ended, ended_bytes: Ended jobs of which queues keep what became of them, and their bytes.
    """

    def __init__(self) -> None:
        self.by_class: Counter[str | None] = Counter()
        self.records = 0
        self.queues = 0
        self.leased = 0
        self.delayed = 0
        self.held = 0
        self.tracked = 0
        self.keys = 0
        self.ended = 0
        self.ended_bytes = 0

    def add(self, topics: Iterable[Topic]) -> None:
        """Add some topics."""
        for topic in topics:
            self.by_class[topic.config.durability] += 1
            self.records += topic.live
            self.keys += len(topic.keys)
            if isinstance(topic, QueueTopic):
                queue = topic.queue
                self.queues += 1
                self.leased += queue.leased
                self.delayed += len(queue.delayed)
                self.held += len(queue.held)
                self.tracked += len(queue.jobs)
                if queue.ended is not None:
                    self.ended += len(queue.ended)
                    self.ended_bytes += queue.ended.bytes


_process = ProcessCollector(registry=None)


class Metrics(ev.RecordVisitor):
    """Counters of one server, and the collector that exposes them.

    Attributes:
        recent_syncs: How long the last syncs of the jobs log took.
        slow_requests: The slowest requests of the last hour.
        notes_from_s: Requests that take at least as long are passed to `note_request`.
    """

    def __init__(self, service: Service, activity: Activity | None = None) -> None:
        """Counters at 0.

        Args:
            service: Of the server.
            activity: Where to count what happens on single topics until it is looked at.
        """
        self._service = service
        self.activity = Activity() if activity is None else activity
        self._current = ActivityCounts()
        self._requests: dict[tuple[str, str, int], Histogram] = {}
        self.fsync_us = Histogram(FSYNC_BUCKETS_US)
        self.sync_s = Histogram(tuple(bound / 1e6 for bound in FSYNC_BUCKETS_US))
        self.recent_syncs = Durations()
        self.slow_requests = SlowRequests()
        self.notes_from_s = SLOW_FROM_S
        self.records_appended = 0
        self.records_forwarded = 0
        self.jobs_claimed = 0
        self.jobs_redelivered = 0
        self.jobs_finished: Counter[str] = Counter()
        self.jobs_replaced = 0
        self.results_evicted = 0
        self.jobs_redriven = 0
        self.jobs_released: Counter[str] = Counter()
        self.leases_extended = 0
        self.expired = 0
        self.jobs_dead_lettered = 0
        self.jobs_failed = dict.fromkeys(FAILURES, 0)
        self.counts_of: dict[int, QueueCounts] = {}
        self.other = QueueCounts(OTHER)
        self.segment_bytes_served = 0

    # -- counting --------------------------------------------------------------------------------

    def request(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one answered request; `route` is a pattern, so its values are bounded."""
        latency = self._requests.get((method, route, status))
        if latency is None:
            if method not in _METHODS:
                method = "OTHER"
            latency = self._requests.setdefault(
                (method, route, status), Histogram(REQUEST_BUCKETS_S)
            )
        latency.counts[bisect_left(REQUEST_BUCKETS_S, took_s)] += 1
        latency.sum += took_s

    def note_request(
        self, method: str, route: str, name: str, status: int, took_s: float, *, is_slow: bool
    ) -> None:
        """Note a request that took `notes_from_s` or longer.

        Args:
            name: The name in its path.
            is_slow: Whether the time was the server's, not what its client asked it to wait.
        """
        if method not in _METHODS:
            method = "OTHER"
        if is_slow and took_s >= SLOW_FROM_S and route.startswith(API):
            self.slow_requests.note(method, route, name, status, took_s)
        logger.debug("%s %s %d %.1f ms", method, route, status, took_s * 1000)

    def watch_requests(self) -> None:
        """Pass every request to `note_request` while the log shows them."""
        self.notes_from_s = 0.0 if logger.isEnabledFor(logging.DEBUG) else SLOW_FROM_S

    def fsync(self, seconds: float) -> None:
        """Count one sync of the jobs log. Called from the committer's thread."""
        self.fsync_us.observe(seconds * 1e6)
        self.sync_s.observe(seconds)
        self.recent_syncs.add(seconds)

    def event(self, topic: Topic | None, event: ev.Event, changes: Sequence[ev.JobChange]) -> None:
        """Count what one applied event says of records and jobs."""
        self._current = self.activity[event.topic]
        if type(event).visit_records is not ev.Event.visit_records:
            event.visit_records(self)
        for change in changes:
            count = _COUNT_JOBS.get(change.kind)
            if count is not None:
                count(self, topic, change)
        if isinstance(topic, QueueTopic) and topic.queue.ended is not None:
            self.results_evicted += topic.queue.ended.take_evicted()
        if event.ends_topic:
            self.counts_of.pop(event.topic, None)

    def appended(
        self, event: ev.Event, first_seq: int, count: int, block: bytes, size: int
    ) -> None:
        """See `RecordVisitor`."""
        self.records_appended += count
        self._current.appended += count

    def copied(
        self, event: ev.Event, router: int, cursor: int, first_seq: int, seqs: Sequence[int],
        size: int,
    ) -> None:  # fmt: skip
        """See `RecordVisitor`."""
        self.records_appended += len(seqs)
        self._current.appended += len(seqs)
        self.records_forwarded += len(seqs)

    def committed(self, event: ev.Event, chunk: ev.ChunkKey, first_seq: int, count: int) -> None:
        """See `RecordVisitor`."""
        self.records_appended += count
        self._current.appended += count

    def routed(self, event: ev.Event, router: int, cursor: int, forwarded: int) -> None:
        """See `RecordVisitor`."""
        self.records_forwarded += forwarded

    def leases_expired(self, topic: Topic, leases: int) -> None:
        """Count leases of a queue that were found to have expired."""
        self.expired += leases
        self.activity[topic.number].expired += leases
        self._counts(topic).expired += leases

    def _claimed(self, topic: Topic | None, change: ev.JobChange) -> None:
        counts = self._counts(topic)
        self.jobs_claimed += change.count
        self._current.claimed += change.count
        counts.claimed += change.count
        if isinstance(topic, QueueTopic):
            jobs = topic.queue.jobs
            again = 0
            for seq in change.seqs:
                # On a standby, the job may have ended by the time its claim is shown.
                job = jobs.get(seq)
                again += job is not None and job.deliveries > 1
            self.jobs_redelivered += again
            counts.redelivered += again

    def _extended(self, topic: Topic | None, change: ev.JobChange) -> None:
        self.leases_extended += change.count

    def _released(self, topic: Topic | None, change: ev.JobChange) -> None:
        if change.was_waiting and change.reason != "postponed":
            return
        self.jobs_released["handed_back" if change.uncounted else change.reason] += change.count
        if change.reason == "nack" and not change.uncounted:
            self._current.nacked += change.count
        self._counts(topic).released += change.count

    def _acked(self, topic: Topic | None, change: ev.JobChange) -> None:
        self.jobs_finished["acked"] += change.count
        self._current.acked += change.count
        self._counts(topic).acked += change.count

    def _finished(self, topic: Topic | None, change: ev.JobChange) -> None:
        if isinstance(topic, QueueTopic):
            self.jobs_finished[change.kind] += change.count
            # Of those that are finished one by one, only the exhausted ones are dropped.
            reason = "max_deliveries" if change.kind == "dropped" else change.kind
            self._failed(topic, reason, change.count)

    def _trimmed(self, topic: Topic | None, change: ev.JobChange) -> None:
        if isinstance(topic, QueueTopic):
            is_expiry = change.reason == "ttl"
            self.jobs_finished["expired" if is_expiry else "dropped"] += change.count
            if is_expiry:
                self._failed(topic, "expired", change.count)

    def _deleted(self, topic: Topic | None, change: ev.JobChange) -> None:
        if isinstance(topic, QueueTopic):
            self.jobs_finished["cancelled"] += change.count

    def _redriven(self, topic: Topic | None, change: ev.JobChange) -> None:
        self.jobs_redriven += change.count

    def _dead_lettered(self, topic: Topic | None, change: ev.JobChange) -> None:
        self.jobs_dead_lettered += change.count
        self._current.dead += change.count
        self._counts(topic).dead_lettered += change.count
        self._failed(topic, change.reason, change.count)

    def _held(self, topic: Topic | None, change: ev.JobChange) -> None:
        self._failed(topic, change.reason, change.count)

    def _replaced(self, topic: Topic | None, change: ev.JobChange) -> None:
        self.jobs_replaced += change.count

    def _failed(self, topic: Topic | None, reason: str, jobs: int) -> None:
        """Jobs failed permanently: dead-lettered, held or dropped."""
        if reason in self.jobs_failed:
            self.jobs_failed[reason] += jobs
            self._counts(topic).failed[reason] += jobs

    def _counts(self, topic: Topic | None) -> QueueCounts:
        """The counts of a queue. The first queues at work get counts of their own, and keep them
        as long as they exist, so that no counter ever decreases."""
        if topic is None:
            return self.other
        counts = self.counts_of.get(topic.number)
        if counts is None:
            if len(self.counts_of) >= self._service.settings.metrics_topics_max:
                return self.other
            counts = self.counts_of[topic.number] = QueueCounts(topic.name)
        return counts

    # -- exposing --------------------------------------------------------------------------------

    def families(self, totals: Totals) -> Iterator[Metric]:
        """All families without a label for topics or routers."""
        yield from self._gauges(totals)
        yield from self._wal_counters()
        yield from self._replica_metrics()
        yield from self._job_counters()
        yield from self._firing_counters()
        yield from self._batch_counters()
        yield from self._request_metrics()
        yield from _process.collect()

    def json(self, totals: Totals) -> dict[str, Any]:
        """The JSON form of the main figures."""
        figures = self._figures(totals)
        engine = self._service.engine
        wal: dict[str, Any] = {}
        if engine is not None:
            log = engine.journal.jobs
            stats = log.stats
            wal = {
                "fsyncs": stats.syncs,
                "frames": stats.frames,
                "batches": stats.rounds,
                "bytes_written": stats.bytes_written,
                "rotations": stats.rotations,
                "queue_depth": log.appended - log.written,
                "queue_depth_peak": stats.pending_peak,
                "submit_full_total": stats.refused,
                "read_only": int(log.failure is not None),
                "fsync_count": self.fsync_us.total,
                "fsync_micros_total": round(self.fsync_us.sum),
            }
        return {**{name: value for name, value, _ in figures}, "wal": wal}

    def disk(self) -> DiskSpace | None:
        """Space on the disk of the data directory; None when that cannot be read."""
        try:
            total, _, free = disk_usage(self._service.settings.data_dir)
        except OSError:
            return None
        return DiskSpace(total, free)

    def _figures(self, totals: Totals) -> list[tuple[str, float, str]]:
        service = self._service
        engine = service.engine
        state = engine.state if engine is not None else State()
        payloads = engine.journal.payloads if engine is not None else None
        read_only = engine is not None and engine.journal.jobs.failure is not None
        ready = service.phase is Phase.READY and not read_only
        return [
            ("topics", len(state.instances), "Topics."),
            *(
                (f"topics_{name}", totals.by_class[name], f"Topics of durability class {name}.")
                for name in DURABILITIES
            ),
            ("routers", len(state.routers), "Routers."),
            ("schedules", len(state.schedules), "Schedules."),
            (
                "schedules_refused",
                state.schedules.refused,
                "Schedules whose firing was refused, and is tried again.",
            ),
            ("batches", len(state.batches), "Batches of jobs, with those that have ended."),
            (
                "batches_open",
                state.batches.running,
                "Batches of jobs that have not ended.",
            ),
            ("producers", len(state.producers), "Producers of transactional appends."),
            ("staged_bytes", state.staged_bytes, "Bytes that wait for the commit of their epoch."),
            ("records_live", totals.records, "Records not removed."),
            ("bytes_live", state.live_bytes, "Bytes of records not removed."),
            (
                "payload_memory_bytes",
                payloads.waiting_bytes + payloads.cached_bytes if payloads else 0,
                "Record data in memory until its segment is sealed, and in the cache.",
            ),
            (
                "heads_bytes",
                sum([*engine.journal.heads.sizes.values()]) if engine is not None else 0,
                "Size of all heads files.",
            ),
            ("queue_topics", totals.queues, "Topics of type queue."),
            ("queue_leases_in_flight", totals.leased, "Jobs under a lease."),
            ("queue_jobs_delayed", totals.delayed, "Jobs before their time."),
            ("queue_jobs_held", totals.held, "Jobs that wait for an operator."),
            ("results_kept", totals.ended, "Ended jobs of which queues keep what became of them."),
            ("results_bytes", totals.ended_bytes, "Bytes that these count."),
            ("claims_waiting", service.claims_waiting, "Claims that wait for jobs."),
            ("sse_connections", service.streams, "Open push streams."),
            ("watch_sessions", len(service.watch_sessions), "Watch sessions."),
            ("client_bytes", service.memory.used, "Bytes held for clients."),
            ("client_bytes_peak", service.memory.peak, "Most bytes ever held for clients."),
            ("ready", int(ready), "1 when the server takes reads and writes."),
            ("replay_progress", service.replay_progress, "Share of the log replayed, 0 to 1."),
            ("uptime_ms", service.uptime_ms, "Milliseconds since the process began to serve."),
        ]

    def _gauges(self, totals: Totals) -> Iterator[Metric]:
        yield InfoMetricFamily(
            PREFIX + "build",
            "Version of the server and of Python.",
            {"version": __version__, "python": python_version()},
        )
        yield GaugeMetricFamily(
            PREFIX + "uptime_seconds",
            "Seconds since the process began to serve.",
            self._service.uptime_ms / 1000,
        )
        yield CounterMetricFamily(
            PREFIX + "keys_reloads", "How often the keys file was read.", self._service.key_reloads
        )
        yield CounterMetricFamily(
            PREFIX + "keys_reload_failures",
            "How often the keys file could not be used.",
            self._service.key_reload_failures,
        )
        by_class = GaugeMetricFamily(
            PREFIX + "topics_by_class", "Topics by durability class.", labels=["durability"]
        )
        for name, value, text in self._figures(totals):
            if name.startswith("topics_"):
                by_class.add_metric([name.removeprefix("topics_")], value)
            else:
                yield GaugeMetricFamily(PREFIX + name, text, value)
        yield by_class

    def _wal_counters(self) -> Iterator[Metric]:
        engine = self._service.engine
        if engine is None:
            return
        log = engine.journal.jobs
        stats = log.stats
        history = engine.segments.history()
        payloads = engine.journal.payloads
        for name, value, text in (
            ("wal_frames", stats.frames, "Frames appended to the jobs log."),
            ("wal_batches", stats.rounds, "Group commits."),
            ("wal_fsyncs", stats.syncs, "Syncs."),
            ("wal_written_bytes", stats.bytes_written, "Bytes written."),
            ("wal_rotations", stats.rotations, "Segments started."),
            ("wal_refused", stats.refused, "Appends refused for lack of disk space."),
            ("leases_lost", engine.journal.leases_lost, "Lease events that were not logged."),
            ("payload_reads", payloads.reads, "Reads of record data from segment files."),
            ("payload_read_bytes", payloads.read_bytes, "Bytes of record data read from them."),
            ("payload_read_failures", payloads.failures, "Pages of it that could not be read."),
            ("segment_served_bytes", self.segment_bytes_served, "Bytes of segments sent."),
            (
                "archived_segments",
                history.arrived if history else 0,
                "Segments that came into the archive.",
            ),
            (
                "archive_failures",
                history.failures if history else 0,
                "Failed tries to archive; nothing is dropped meanwhile.",
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)
        disk = self.disk()
        free_bytes = disk.free if disk is not None else 0
        for name, gauge, text in (
            ("disk_free_bytes", free_bytes, "Free bytes on the data directory's disk."),
            ("wal_queue_depth", log.appended - log.written, "Frames waiting to be written."),
            ("wal_queue_depth_peak", stats.pending_peak, "Most frames that ever waited."),
            ("wal_read_only", int(log.failure is not None), "1 after a failed write or sync."),
            ("wal_bytes", log.bytes_total, "Bytes of all jobs-log segments."),
            ("leases_wal_bytes", engine.journal.leases.bytes_total, "Bytes of the leases log."),
            ("archive_segments", history.segments if history else 0, "Segments in the archive."),
            ("archive_bytes", history.bytes if history else 0, "Bytes of archived segments."),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, gauge)
        yield HistogramMetricFamily(
            PREFIX + "wal_sync_duration_seconds",
            "Seconds per sync of the jobs log.",
            buckets=self.sync_s.buckets(),
            sum_value=self.sync_s.sum,
        )
        yield HistogramMetricFamily(
            PREFIX + "fsync_latency_us",
            "Microseconds per sync of the jobs log.",
            buckets=self.fsync_us.buckets(),
            sum_value=self.fsync_us.sum,
        )

    def _replica_metrics(self) -> Iterator[Metric]:
        following = self._service.lifecycle.following
        if following is not None:
            yield GaugeMetricFamily(
                PREFIX + "standby_behind_seconds",
                "For how long, at most, the replica may have had more than this standby shows.",
                value=following.behind_ms / 1000,
            )
        replication = self._service.replication
        if replication is None:
            return
        writer, stats = replication.writer, replication.stats
        for name, gauge, text in (
            (
                "replica_lag_seconds",
                writer.lag_ms / 1000,
                "For how long the oldest frame that is not in the replica has been written.",
            ),
            (
                "replica_lag_bytes",
                writer.waiting_bytes,
                "About how many bytes are written and not in the replica.",
            ),
            (
                "replica_lag_frames",
                replication.frames_behind,
                "Frames of the jobs log that are not in the replica.",
            ),
            ("replica_epoch", writer.epoch, "Epoch of this writer."),
            ("replica_chunks", writer.chunks_behind, "Chunks that a restore reads."),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, gauge)
        state = GaugeMetricFamily(
            PREFIX + "replica_state", "1 for the state the replica is in.", labels=["state"]
        )
        current = replication.state()
        for name in REPLICA_STATES:
            state.add_metric([name], int(name == current))
        yield state
        for name, value, text in (
            ("replica_puts", stats.puts, "Chunks committed."),
            ("replica_put_seconds", stats.put_s, "Seconds that they took together."),
            ("replica_put_bytes", writer.stats.chunk_bytes, "Bytes of them."),
            ("replica_segments", writer.upkeep_stats.segments, "Sealed segments uploaded."),
            ("replica_failures", stats.put_failures, "Calls of the store that failed."),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)

    def _job_counters(self) -> Iterator[Metric]:
        for name, value, text in (
            ("records_appended", self.records_appended, "Records written, copies included."),
            ("records_forwarded", self.records_forwarded, "Records copied by routers."),
            ("jobs_claimed", self.jobs_claimed, "Deliveries of jobs."),
            ("jobs_redelivered", self.jobs_redelivered, "Deliveries after the first."),
            ("jobs_acked", self.jobs_finished["acked"], "Jobs completed."),
            ("leases_extended", self.leases_extended, "Deadlines moved."),
            ("leases_expired", self.expired, "Leases that expired."),
            ("jobs_dead_lettered", self.jobs_dead_lettered, "Jobs moved to dead letters."),
            ("jobs_redriven", self.jobs_redriven, "Dead letters moved back."),
            ("jobs_replaced", self.jobs_replaced, "Waiting jobs that a keyed write replaced."),
            (
                "results_evicted",
                self.results_evicted,
                "Results forgotten before their time, for lack of room.",
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)
        finished = CounterMetricFamily(
            PREFIX + "jobs_finished", "Jobs that came to an end.", labels=["outcome"]
        )
        for outcome in OUTCOMES:
            finished.add_metric([outcome], self.jobs_finished[outcome])
        yield finished
        failed = CounterMetricFamily(
            PREFIX + "jobs_failed",
            "Jobs that failed permanently: dead-lettered, held or dropped.",
            labels=["reason"],
        )
        for reason in FAILURES:
            failed.add_metric([reason], self.jobs_failed[reason])
        yield failed
        released = CounterMetricFamily(
            PREFIX + "jobs_released", "Leases ended without an ack.", labels=["reason"]
        )
        for reason in ("nack", "handed_back", "disconnect", "postponed"):
            released.add_metric([reason], self.jobs_released[reason])
        yield released

    def _batch_counters(self) -> Iterator[Metric]:
        dispatcher = self._service.lifecycle.dispatcher
        ends = dispatcher.batch_ends if dispatcher is not None else None
        for name, value, text in (
            ("batches_ended", ends.ended if ends else 0, "Batches of jobs that have ended."),
            (
                "batch_callbacks_refused",
                ends.refused if ends else 0,
                "Tries of callbacks of batches that were refused.",
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)

    def _firing_counters(self) -> Iterator[Metric]:
        dispatcher = self._service.lifecycle.dispatcher
        firing = dispatcher.firing if dispatcher is not None else None
        for name, value, text in (
            ("schedule_firings", firing.fired if firing else 0, "Firings of schedules."),
            (
                "schedule_firings_late",
                firing.late if firing else 0,
                "Firings that came over a second after their time.",
            ),
            (
                "schedule_firings_missed",
                firing.missed if firing else 0,
                "Firings that were passed over.",
            ),
            (
                "schedule_failures",
                firing.failed if firing else 0,
                "Tries of firings that were refused.",
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)

    def _request_metrics(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            PREFIX + "http_requests",
            "Requests answered.",
            labels=["method", "route", "status"],
        )
        latencies: dict[tuple[str, str], Histogram] = {}
        for (method, route, status), observed in sorted(self._requests.items()):
            requests.add_metric([method, route, str(status)], observed.total)
            latencies.setdefault((method, route), Histogram(REQUEST_BUCKETS_S)).add(observed)
        yield requests
        memory = self._service.memory
        refused = CounterMetricFamily(
            PREFIX + "client_memory_refused",
            "Requests and messages refused for lack of client memory.",
            labels=["limit"],
        )
        for limit in ("max_client_bytes", "max_client_bytes_per_key"):
            refused.add_metric([limit], memory.refused[limit])
        yield refused
        yield CounterMetricFamily(
            PREFIX + "client_connections_dropped",
            "Connections closed because they did not read and memory was short.",
            memory.dropped,
        )
        latency = HistogramMetricFamily(
            PREFIX + "http_request_duration_seconds",
            "Seconds from the head of a request to its reply.",
            labels=["method", "route"],
        )
        for labels, histogram in latencies.items():
            latency.add_metric(list(labels), histogram.buckets(), histogram.sum)
        yield latency


_METHODS = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"))


_COUNT_JOBS: dict[ev.JobChangeKind, Callable[[Metrics, Topic | None, ev.JobChange], None]] = {
    "claimed": Metrics._claimed,
    "extended": Metrics._extended,
    "released": Metrics._released,
    "acked": Metrics._acked,
    "rejected": Metrics._finished,
    "dropped": Metrics._finished,
    "expired": Metrics._finished,
    "superseded": Metrics._finished,
    "cancelled": Metrics._finished,
    "trimmed": Metrics._trimmed,
    "deleted": Metrics._deleted,
    "redriven": Metrics._redriven,
    "dead_lettered": Metrics._dead_lettered,
    "held": Metrics._held,
    "replaced": Metrics._replaced,
}
