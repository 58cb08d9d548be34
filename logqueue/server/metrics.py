"""What operators watch: counters kept while serving, gauges read when scraped.

Owns: every metric's name, help text and labels (the catalogue in docs/operations.md), in
Prometheus text and as JSON. Counting on hot paths is one dictionary or list update; everything
else happens when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from shutil import disk_usage
from typing import Any, get_args

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from logqueue.core import events as ev
from logqueue.core.block import View
from logqueue.core.claiming import oldest_ready_ms
from logqueue.core.config import DURABILITIES
from logqueue.core.finishing import Outcome
from logqueue.core.topic import Topic
from logqueue.server.service import Phase, Service

PREFIX = "logqueue_"
TOPICS_LABELLED_MAX = 1000
OUTCOMES: tuple[str, ...] = get_args(Outcome)
FSYNC_BUCKETS_US = (50, 100, 250, 500, 1000, 5000, 10_000, 50_000, 100_000)
REQUEST_BUCKETS_MS = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 5000, 30_000)

CONTENT_TYPE = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


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

    @property
    def total(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        labels = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(labels, map(float, accumulate(self.counts)), strict=True))


class _Scrape:
    """What the exposition asks of a registry, for one caller."""

    def __init__(self, metrics: Metrics, allows: Callable[[str], bool]) -> None:
        self._metrics = metrics
        self._allows = allows

    def collect(self) -> Iterator[Metric]:
        """All families."""
        return self._metrics.collect(self._allows)


class Metrics:
    """Counters of one server, and the collector that exposes them."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._latency: dict[tuple[str, str], Histogram] = {}
        self.fsync_us = Histogram(FSYNC_BUCKETS_US)
        self.records_appended = 0
        self.records_forwarded = 0
        self.jobs_claimed = 0
        self.jobs_redelivered = 0
        self.jobs_finished: Counter[str] = Counter()
        self.jobs_replaced = 0
        self.jobs_redriven = 0
        self.jobs_released: Counter[str] = Counter()
        self.leases_extended = 0
        self.jobs_dead_lettered = 0
        self.segment_bytes_served = 0

    # -- counting --------------------------------------------------------------------------------

    def request(self, method: str, route: str, status: int, took_ms: float) -> None:
        """Count one answered request; `route` is a pattern, so its values are bounded."""
        if method not in _METHODS:
            method = "OTHER"
        self._requests[method, route, status] += 1
        latency = self._latency.get((method, route))
        if latency is None:
            latency = self._latency[method, route] = Histogram(REQUEST_BUCKETS_MS)
        latency.observe(took_ms)

    def fsync(self, seconds: float) -> None:
        """Count one sync of the jobs log. Called from the committer's thread."""
        self.fsync_us.observe(seconds * 1e6)

    def event(self, topic: Topic | None, event: ev.AnyEvent) -> None:
        """Count what one applied event stands for."""
        is_queue = topic is not None and topic.queue is not None
        if isinstance(event, ev.RecordsAppended):
            self.records_appended += event.count
            if is_queue:
                self.jobs_finished["dropped"] += event.dropped
        elif isinstance(event, ev.RecordsForwarded):
            self.records_appended += event.count
            self.records_forwarded += event.count
            if is_queue:
                self.jobs_finished["dropped"] += event.dropped
        elif isinstance(event, ev.ChunksCommitted):
            self.records_appended += sum(event.counts)
            if is_queue:
                self.jobs_finished["dropped"] += event.dropped
        elif isinstance(event, ev.RouterAdvanced):
            self.records_forwarded += event.forwarded
        elif isinstance(event, ev.JobsClaimed):
            for _, _, _, seqs in event.grants:
                self.jobs_claimed += len(seqs)
                if topic is not None and topic.queue is not None:
                    jobs = topic.queue.jobs
                    self.jobs_redelivered += sum(jobs[seq].deliveries > 1 for seq in seqs)
        elif isinstance(event, ev.JobsAcked):
            self.jobs_finished["acked"] += len(event.seqs)
        elif isinstance(event, ev.JobsReleased):
            reason = "handed_back" if event.uncounted else event.reason
            self.jobs_released[reason] += len(event.seqs)
        elif isinstance(event, ev.JobsExtended):
            self.leases_extended += len(event.seqs)
        else:
            self._job_event(event, is_queue)

    def _job_event(self, event: ev.AnyEvent, is_queue: bool) -> None:
        """Count what happens less often than claims and acks."""
        if isinstance(event, ev.RecordsFinished) and is_queue:
            self.jobs_finished[event.outcome] += len(event.seqs)
        elif isinstance(event, ev.RecordsTrimmed) and is_queue:
            self.jobs_finished["expired"] += event.expired
            self.jobs_finished["dropped"] += event.dropped
        elif isinstance(event, ev.RecordsDeleted):
            self.jobs_dead_lettered += event.dead_lettered
            self.jobs_redriven += len(event.seqs) if event.redriven else 0
        elif isinstance(event, ev.RecordsReplaced):
            self.jobs_replaced += sum(View(block).count for block in event.blocks)

    # -- exposing --------------------------------------------------------------------------------

    def text(self, allows: Callable[[str], bool]) -> bytes:
        """The Prometheus text format, version 0.0.4, for a caller who may read some names only."""
        return generate_latest(_Scrape(self, allows))

    def collect(self, allows: Callable[[str], bool]) -> Iterator[Metric]:
        """Everything that may be shown to a caller who may read some names only."""
        yield from self._gauges()
        yield from self._topic_gauges(allows)
        yield from self._router_metrics(allows)
        yield from self._wal_counters()
        yield from self._job_counters()
        yield from self._request_metrics()

    def json(self) -> dict[str, Any]:
        """The JSON form of the main figures."""
        figures = self._figures()
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

    def _figures(self) -> list[tuple[str, float, str]]:
        service = self._service
        engine = service.engine
        topics = list(engine.state.instances.values()) if engine is not None else []
        by_class = Counter(topic.config.durability for topic in topics)
        queues = [topic.queue for topic in topics if topic.queue is not None]
        producers = [*engine.state.producers.values()] if engine is not None else []
        read_only = engine is not None and engine.journal.jobs.failure is not None
        ready = service.phase is Phase.READY and not read_only
        return [
            ("topics", len(topics), "Topics."),
            *(
                (f"topics_{name}", by_class[name], f"Topics of durability class {name}.")
                for name in DURABILITIES
            ),
            ("routers", len(engine.state.routers) if engine is not None else 0, "Routers."),
            ("producers", len(producers), "Producers of transactional appends."),
            (
                "staged_bytes",
                sum(producer.staged_bytes for producer in producers),
                "Bytes that wait for the commit of their epoch.",
            ),
            ("records_live", sum(t.live for t in topics), "Records not removed."),
            ("bytes_live", sum(t.live_bytes for t in topics), "Bytes of records not removed."),
            ("queue_topics", len(queues), "Topics of type queue."),
            ("queue_leases_in_flight", sum(q.leased for q in queues), "Jobs under a lease."),
            ("queue_jobs_delayed", sum(len(q.delayed) for q in queues), "Jobs before their time."),
            (
                "queue_jobs_held",
                sum(len(q.held) for q in queues),
                "Jobs that wait for an operator.",
            ),
            ("claims_waiting", service.claims_waiting, "Claims that wait for jobs."),
            ("sse_connections", service.streams, "Open push streams."),
            ("watch_sessions", len(service.watch_sessions), "Watch sessions."),
            ("client_bytes", service.memory.used, "Bytes held for clients."),
            ("client_bytes_peak", service.memory.peak, "Most bytes ever held for clients."),
            ("ready", int(ready), "1 when the server takes reads and writes."),
            ("replay_progress", service.replay_progress, "Share of the log replayed, 0 to 1."),
            ("uptime_ms", service.uptime_ms, "Milliseconds since the process began to serve."),
        ]

    def _gauges(self) -> Iterator[Metric]:
        by_class = GaugeMetricFamily(
            PREFIX + "topics_by_class", "Topics by durability class.", labels=["durability"]
        )
        for name, value, text in self._figures():
            if name.startswith("topics_"):
                by_class.add_metric([name.removeprefix("topics_")], value)
            else:
                yield GaugeMetricFamily(PREFIX + name, text, value)
        yield by_class

    def _topic_gauges(self, allows: Callable[[str], bool]) -> Iterator[Metric]:
        engine = self._service.engine
        topics = engine.state.topics.values() if engine is not None else ()
        topics = [topic for topic in topics if allows(topic.name)]
        now = engine.clock.now_ms() if engine is not None else 0
        gauges = {
            name: GaugeMetricFamily(PREFIX + "topic_" + name, text, labels=["topic"])
            for name, text in _TOPIC_GAUGES.items()
        }
        for topic in islice(topics, TOPICS_LABELLED_MAX):
            label = [topic.name]
            gauges["head_seq"].add_metric(label, topic.head)
            gauges["earliest_seq"].add_metric(label, topic.earliest_seq)
            gauges["records_live"].add_metric(label, topic.live)
            gauges["bytes_live"].add_metric(label, topic.live_bytes)
            if topic.queue is not None:
                gauges["queue_ready"].add_metric(label, topic.ready)
                gauges["queue_in_flight"].add_metric(label, topic.queue.leased)
                gauges["queue_delayed"].add_metric(label, len(topic.queue.delayed))
                gauges["queue_held"].add_metric(label, len(topic.queue.held))
                gauges["queue_paused"].add_metric(label, int(topic.config.paused))
                gauges["queue_oldest_ready_ms"].add_metric(label, oldest_ready_ms(topic, now))
        yield from gauges.values()
        yield GaugeMetricFamily(
            PREFIX + "topic_labels_truncated",
            f"1 when only the first {TOPICS_LABELLED_MAX} topics have gauges of their own.",
            int(len(topics) > TOPICS_LABELLED_MAX),
        )

    def _router_metrics(self, allows: Callable[[str], bool]) -> Iterator[Metric]:
        engine = self._service.engine
        routers = list(engine.state.routers.values()) if engine is not None else []
        routers = [router for router in routers if allows(router.name)]
        lag = GaugeMetricFamily(
            PREFIX + "router_lag", "Source records not examined yet.", labels=["router"]
        )
        for router in islice(routers, TOPICS_LABELLED_MAX):
            assert engine is not None
            lag.add_metric(
                [router.name], engine.state.instances[router.source].head - router.cursor
            )
        yield lag
        yield CounterMetricFamily(
            PREFIX + "records_forwarded", "Records copied by routers.", self.records_forwarded
        )

    def _wal_counters(self) -> Iterator[Metric]:
        engine = self._service.engine
        if engine is None:
            return
        log = engine.journal.jobs
        stats = log.stats
        archive = engine.journal.archive
        for name, value, text in (
            ("wal_frames", stats.frames, "Frames appended to the jobs log."),
            ("wal_batches", stats.rounds, "Group commits."),
            ("wal_fsyncs", stats.syncs, "Syncs."),
            ("wal_written_bytes", stats.bytes_written, "Bytes written."),
            ("wal_rotations", stats.rotations, "Segments begun."),
            ("wal_refused", stats.refused, "Appends refused for lack of disk space."),
            ("leases_lost", engine.journal.leases_lost, "Lease events that were not logged."),
            ("segment_served_bytes", self.segment_bytes_served, "Bytes of segments sent."),
            (
                "archived_segments",
                archive.archived if archive else 0,
                "Segments that came into the archive.",
            ),
            (
                "archive_failures",
                archive.failures if archive else 0,
                "Failed tries to archive; nothing is dropped meanwhile.",
            ),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)
        free_bytes = disk_usage(self._service.settings.data_dir).free
        for name, gauge, text in (
            ("disk_free_bytes", free_bytes, "Free bytes on the data directory's disk."),
            ("wal_queue_depth", log.appended - log.written, "Frames waiting to be written."),
            ("wal_queue_depth_peak", stats.pending_peak, "Most frames that ever waited."),
            ("wal_read_only", int(log.failure is not None), "1 after a failed write or sync."),
            ("wal_bytes", log.bytes_total, "Bytes of all jobs-log segments."),
            ("leases_wal_bytes", engine.journal.leases.bytes_total, "Bytes of the leases log."),
            ("archive_segments", archive.count if archive else 0, "Segments in the archive."),
            ("archive_bytes", archive.bytes_total if archive else 0, "Bytes of archived segments."),
        ):
            yield GaugeMetricFamily(PREFIX + name, text, gauge)
        yield HistogramMetricFamily(
            PREFIX + "fsync_latency_us",
            "Microseconds per sync of the jobs log.",
            buckets=self.fsync_us.buckets(),
            sum_value=self.fsync_us.sum,
        )

    def _job_counters(self) -> Iterator[Metric]:
        for name, value, text in (
            ("records_appended", self.records_appended, "Records written, copies included."),
            ("jobs_claimed", self.jobs_claimed, "Deliveries of jobs."),
            ("jobs_redelivered", self.jobs_redelivered, "Deliveries after the first."),
            ("jobs_acked", self.jobs_finished["acked"], "Jobs completed."),
            ("leases_extended", self.leases_extended, "Deadlines moved."),
            ("jobs_dead_lettered", self.jobs_dead_lettered, "Jobs moved to dead letters."),
            ("jobs_redriven", self.jobs_redriven, "Dead letters moved back."),
            ("jobs_replaced", self.jobs_replaced, "Waiting jobs that a keyed write replaced."),
        ):
            yield CounterMetricFamily(PREFIX + name, text, value)
        finished = CounterMetricFamily(
            PREFIX + "jobs_finished", "Jobs that came to an end.", labels=["outcome"]
        )
        for outcome in OUTCOMES:
            finished.add_metric([outcome], self.jobs_finished[outcome])
        yield finished
        released = CounterMetricFamily(
            PREFIX + "jobs_released", "Leases ended without an ack.", labels=["reason"]
        )
        for reason in ("nack", "handed_back", "disconnect", "postponed"):
            released.add_metric([reason], self.jobs_released[reason])
        yield released

    def _request_metrics(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            PREFIX + "http_requests",
            "Requests answered.",
            labels=["method", "route", "status"],
        )
        for (method, route, status), count in sorted(self._requests.items()):
            requests.add_metric([method, route, str(status)], count)
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
            PREFIX + "http_request_ms",
            "Milliseconds from the first byte read to the reply.",
            labels=["method", "route"],
        )
        for labels, histogram in sorted(self._latency.items()):
            latency.add_metric(list(labels), histogram.buckets(), histogram.sum)
        yield latency


_METHODS = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"))

_TOPIC_GAUGES = {
    "head_seq": "Highest seq ever assigned.",
    "earliest_seq": "Lowest seq not removed from the front.",
    "records_live": "Records not removed.",
    "bytes_live": "Bytes of records not removed.",
    "queue_ready": "Jobs claimable now.",
    "queue_in_flight": "Jobs under a lease.",
    "queue_delayed": "Jobs before their time.",
    "queue_held": "Jobs that wait for an operator.",
    "queue_paused": "1 while the queue hands out nothing.",
    "queue_oldest_ready_ms": "Age of the oldest claimable job in ms, 0 when there is none.",
}
