"""Applying the events of batches, and the counts of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from logqueue import events as ev
from logqueue.core.job_batches import JobBatch
from logqueue.core.state import State
from logqueue.core.topic import Topic


def count_moved(state: State, topic: Topic) -> None:
    """Take over what has changed of the jobs that a topic has of batches."""
    attributes = topic.attributes
    if attributes is not None and attributes.moved:
        moved = dict(attributes.moved)
        attributes.moved.clear()
        state.batches.move(topic.number, moved)


def forget_topic(state: State, topic: Topic) -> None:
    """A topic is about to go, and with it its jobs."""
    attributes = topic.attributes
    if attributes is not None and attributes.members:
        count_moved(state, topic)
        gone = {name: -count for name, count in attributes.members.items()}
        attributes.members.clear()
        state.batches.move(topic.number, gone)


def _batch_opened(state: State, event: ev.JobBatchOpened, segment: int) -> None:
    state.batches.add(JobBatch(event.name, event.at, event.on_done, event.on_problem))


def _batch_closed(state: State, event: ev.JobBatchClosed, segment: int) -> None:
    batch = state.batches.find(event.name)
    if batch is not None:
        batch.closed_at = event.at
        state.batches.look(event.name)


def _batch_ended(state: State, event: ev.JobBatchEnded, segment: int) -> None:
    batch = state.batches.find(event.name)
    if batch is not None:
        batch.joined, batch.done = event.joined, event.done
        state.batches.ended += not batch.ended_at
        batch.ended_at = event.at
        batch.error = None
        state.batches.due.pop(event.name, None)


def _batch_removed(state: State, event: ev.JobBatchRemoved, segment: int) -> None:
    state.batches.remove(event.name)


def restate(state: State, kept: Iterable[ev.BatchSnapshot]) -> None:
    """Take in batches as a checkpoint has them."""
    for one in kept:
        batch = JobBatch(one.name, one.created_at, one.on_done, one.on_problem)
        batch.closed_at, batch.ended_at = one.closed_at, one.ended_at
        batch.joined, batch.done = one.joined, one.done
        state.batches.add(batch)
        state.batches.look(one.name)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.JobBatchOpened: _batch_opened,
    ev.JobBatchClosed: _batch_closed,
    ev.JobBatchEnded: _batch_ended,
    ev.JobBatchRemoved: _batch_removed,
}
