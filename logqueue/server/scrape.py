"""What a scrape answers: the families of metrics as text, made in steps.

Owns: the text formats, which topics and routers have series of their own, and how much of an answer
is made in one step of the event loop. Must not know: what the counters count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as _generate_openmetrics

from logqueue.api.paging import names_from
from logqueue.core.decide.claims import oldest_ready_ms
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.server.auth import Key
from logqueue.server.engine.engine import Engine
from logqueue.server.metrics import FAILURES, PREFIX, Metrics, QueueCounts, Totals

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SUMMED_PER_STEP = 1000
LABELLED_PER_STEP = 50
"""Topics of one step: those that are only added up, and those that are shown."""
_END = b"# EOF\n"

# Untyped in its package.
_openmetrics: Callable[[_One], bytes] = _generate_openmetrics


class _One:
    """What the exposition asks of a registry, for one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """See CollectorRegistry."""
        yield self._family


class _Series(NamedTuple):
    """A family with one series for each topic or router.

    Attributes:
        name: Without the `_total` of counters.
        samples: Labels as they are written, and values.
    """

    name: str
    kind: str
    text: str
    samples: list[tuple[str, float]]


async def total_up(engine: Engine | None) -> Totals:
    """Sums over all topics."""
    totals = Totals()
    topics = [*engine.state.instances.values()] if engine is not None else []
    for start in range(0, len(topics), SUMMED_PER_STEP):
        totals.add(topics[start : start + SUMMED_PER_STEP])
        await asyncio.sleep(0)
    return totals


async def scrape(
    metrics: Metrics, engine: Engine | None, key: Key | None, topics_max: int, *, openmetrics: bool
) -> bytes:
    """All metrics as text.

    Args:
        metrics: What was counted.
        engine: None before it has recovered.
        key: Who asks: only names within its prefixes are labels.
        topics_max: How many topics, and routers, have series of their own.
        openmetrics: In the OpenMetrics format instead of the older text format.
    """
    parts = []
    for family in metrics.families(await total_up(engine)):
        if openmetrics:
            parts.append(_openmetrics(_One(family)).removesuffix(_END))
        else:
            parts.append(generate_latest(_One(family)))
        await asyncio.sleep(0)
    if engine is not None:
        for series in [
            *await _topic_series(engine, key, topics_max),
            *_queue_series(metrics, key),
            _router_series(engine, key, topics_max),
        ]:
            parts.append(_encode(series, openmetrics))
            await asyncio.sleep(0)
    return b"".join([*parts, _END]) if openmetrics else b"".join(parts)


def _encode(series: _Series, openmetrics: bool) -> bytes:
    name = PREFIX + series.name
    sample = name + "_total" if series.kind == "counter" else name
    family = name if openmetrics else sample
    lines = [f"# HELP {family} {series.text}\n# TYPE {family} {series.kind}\n"]
    for labels, value in series.samples:
        shown = f"{{{labels}}}" if labels else ""
        lines.append(f"{sample}{shown} {value}\n")
    return "".join(lines).encode()


async def _topic_series(engine: Engine, key: Key | None, topics_max: int) -> list[_Series]:
    known = engine.state.topics
    names = [*islice(names_from(known, "", "", key), topics_max + 1)]
    found = {
        name: _Series(f"topic_{name}", "gauge", text, []) for name, text in _TOPIC_GAUGES.items()
    }
    for start in range(0, len(names[:topics_max]), LABELLED_PER_STEP):
        now = engine.clock.now_ms()
        for name in names[start : min(start + LABELLED_PER_STEP, topics_max)]:
            if name in known:
                label = f'topic="{name}"'
                for gauge, value in _gauges_of(engine.topic_now(name, now), now):
                    found[gauge].samples.append((label, value))
        await asyncio.sleep(0)
    truncated = int(len(names) > topics_max)
    text = f"1 when only the first {topics_max} topics have gauges of their own."
    return [*found.values(), _Series("topic_labels_truncated", "gauge", text, [("", truncated)])]


def _gauges_of(topic: Topic, now: int) -> Iterator[tuple[str, float]]:
    yield "head_seq", topic.head
    yield "earliest_seq", topic.earliest_seq
    yield "records_live", topic.live
    yield "bytes_live", topic.live_bytes
    if isinstance(topic, QueueTopic):
        queue = topic.queue
        yield "queue_ready", topic.ready
        yield "queue_in_flight", queue.leased
        yield "queue_delayed", len(queue.delayed)
        yield "queue_held", len(queue.held)
        yield "queue_paused", int(topic.config.paused)
        yield "queue_oldest_ready_seconds", oldest_ready_ms(topic, now) / 1000


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
    "queue_oldest_ready_seconds": "Age of the oldest claimable job, 0 when there is none.",
}


def _queue_series(metrics: Metrics, key: Key | None) -> Iterator[_Series]:
    """Counters of queues; the rest of them are added up for those who may see all."""
    shown = [c for c in metrics.counts_of.values() if key is None or key.allows(c.topic)]
    if key is None or not key.prefixes:
        shown.append(metrics.other)
    for name, text, count in _QUEUE_COUNTERS:
        samples = [(f'topic="{one.topic}"', count(one)) for one in shown]
        yield _Series(f"topic_{name}", "counter", text, samples)
    failed = [
        (f'topic="{one.topic}",reason="{reason}"', one.failed[reason])
        for one in shown
        for reason in FAILURES
    ]
    text = "Jobs of a queue that failed permanently: dead-lettered, held or dropped."
    yield _Series("topic_jobs_failed", "counter", text, [*failed])


_QUEUE_COUNTERS: tuple[tuple[str, str, Callable[[QueueCounts], float]], ...] = (
    ("jobs_claimed", "Deliveries of a queue's jobs.", lambda one: one.claimed),
    ("jobs_redelivered", "Deliveries after the first.", lambda one: one.redelivered),
    (
        "jobs_released",
        "Leases that ended without an ack, before their time.",
        lambda one: one.released,
    ),
    ("leases_expired", "Leases of a queue's jobs that expired.", lambda one: one.expired),
    ("jobs_acked", "Jobs completed.", lambda one: one.acked),
    ("jobs_dead_lettered", "Jobs moved to dead letters.", lambda one: one.dead_lettered),
)


def _router_series(engine: Engine, key: Key | None, routers_max: int) -> _Series:
    state = engine.state
    names: Iterable[str] = islice(names_from(state.routers, "", "", key), routers_max)
    routers = (state.routers[name] for name in names)
    samples = [
        (f'router="{router.name}"', float(state.instances[router.source].head - router.cursor))
        for router in routers
    ]
    return _Series("router_lag", "gauge", "Source records not examined yet.", samples)


def content_type(openmetrics: bool) -> tuple[bytes, bytes]:
    """The header of a scrape."""
    return b"content-type", (OPENMETRICS_TYPE if openmetrics else TEXT_TYPE).encode()
