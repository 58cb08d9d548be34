"""Applying the events of topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import ending, job_batches, ordering, staging
from logqueue.core.queue_topic import QueueTopic, become_queue, topic_of
from logqueue.core.state import State
from logqueue.core.topic import Topic


def _topic_created(state: State, event: ev.TopicCreated, segment: int) -> None:
    topic = topic_of(event.topic, event.name, event.config)
    state.topics[event.name] = topic
    state.instances[event.topic] = topic
    state.next_topic = max(state.next_topic, event.topic + 1)


def _topic_configured(state: State, event: ev.TopicConfigured, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        if isinstance(topic, QueueTopic):
            queue, rate = topic.queue, event.config.claim_rate
            queue.rate_spent = queue.rate_spent.changed(topic.config.claim_rate, rate, event.at)
            if topic.queue.has_overdue and _lives_longer(topic, event):
                # Bit by bit, as time acts: see `elapse`.
                topic.queue.returning = 1
            unused = topic.queue.keep_results(event.config.results, event.at)
            state.discarded.extend(unused)
        before = topic.config.groups
        topic.config = event.config
        if isinstance(topic, QueueTopic) and before != event.config.groups:
            ordering.begin(state, topic)
        topic.head = max(topic.head, event.head)
        if event.cap_floor > topic.cap_floor:
            topic.cap_floor = event.cap_floor
            ending.evict(state, topic, topic.floor, "dropped", event, segment)
        topic.is_trimming = topic.is_over
        if event.config.is_queue and not isinstance(topic, QueueTopic):
            become_queue(topic)
        # Records once logged need their removal logged, whatever the class is later.
        topic.is_on_disk = topic.is_on_disk or event.config.is_logged
        # A window that is shortened and lengthened again must not bring keys back.
        topic.forget_keys(event.at)


def _lives_longer(topic: Topic, event: ev.TopicConfigured) -> bool:
    """Whether records that are past their TTL may be within it again."""
    ttl_ms = event.config.ttl_ms
    return topic.config.ttl_ms != ttl_ms and (not ttl_ms or ttl_ms > topic.config.ttl_ms)


def _topic_removed(state: State, event: ev.TopicRemoved, segment: int) -> None:
    topic = state.instances.pop(event.topic, None)
    if topic is not None and state.topics.get(topic.name) is topic:
        del state.topics[topic.name]
    if topic is not None:
        job_batches.forget_topic(state, topic)
        state.discarded.extend(topic.release())
        state.replacing.pop(topic.number, None)
    for router in state.routers_of(event.topic):
        state.remove_router(router)
    staging.forget_topic(state, event.topic)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.TopicCreated: _topic_created,
    ev.TopicConfigured: _topic_configured,
    ev.TopicRemoved: _topic_removed,
}
