"""Applying checkpoints: what no live record says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import job_batches, schedules, staging
from logqueue.core.queue_topic import QueueTopic, topic_of
from logqueue.core.routers import RouterState
from logqueue.core.state import State


def introduce(state: State, event: ev.Checkpointed) -> None:
    """Make the topics of a checkpoint known, empty when they were not."""
    for kept in event.topics:
        if kept.topic not in state.instances:
            topic = topic_of(kept.topic, kept.name, kept.config)
            state.topics[kept.name] = state.instances[kept.topic] = topic


def _checkpointed(state: State, event: ev.Checkpointed, segment: int) -> None:
    """Restate what no record says. In the middle of a replay most of it is known already."""
    introduce(state, event)
    for kept in event.topics:
        topic = state.instances[kept.topic]
        topic.head = max(topic.head, kept.head)
        topic.seqs_reserved = max(topic.seqs_reserved, kept.seqs_reserved)
        topic.cap_floor = max(topic.cap_floor, kept.cap_floor)
        topic.ttl_floor = max(topic.ttl_floor, kept.ttl_floor)
        # What has raised a floor is not in the log when it was of class `ephemeral`.
        before = topic.live_bytes
        state.discarded.extend(topic.evict(topic.floor))
        state.live_bytes += topic.live_bytes - before
        topic.last_write_at = max(topic.last_write_at, kept.last_write_at)
        topic.holes = list(kept.holes)
        if isinstance(topic, QueueTopic):
            queue = topic.queue
            queue.dead_lettered = max(queue.dead_lettered, kept.dead_lettered)
            for outcome, jobs in kept.finished.items():
                queue.count(outcome, jobs - queue.finished.get(outcome, 0))
    for edge in event.routers:
        router = state.routers_by_number.get(edge.router)
        if router is None:
            router = RouterState(edge.router, edge.name, edge.source, edge.dest, edge.options)
            state.add_router(router)
        router.cursor = max(router.cursor, edge.cursor)
        router.forwarded = max(router.forwarded, edge.forwarded)
    staging.keep_producers(state, event.producers)
    schedules.restate(state, event.schedules)
    job_batches.restate(state, event.batches)
    if event.clean:
        # As the start did that followed: older segments, which said more, may be gone by now.
        for topic in state.instances.values():
            topic.drop_reserved()
    state.next_topic = max(state.next_topic, event.next_topic)
    state.next_lease = max(state.next_lease, event.next_lease)


def _segments_dropped(state: State, event: ev.SegmentsDropped, segment: int) -> None:
    """Of interest to the journal only."""


def _leases_checkpointed(state: State, event: ev.LeasesCheckpointed, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        topic.queue.adopt(event.cursor, event.jobs)
        highest = max((entry.lease for entry in event.jobs), default=0)
        state.next_lease = max(state.next_lease, highest + 1)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.Checkpointed: _checkpointed,
    ev.LeasesCheckpointed: _leases_checkpointed,
    ev.SegmentsDropped: _segments_dropped,
}
