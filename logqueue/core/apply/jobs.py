"""Applying the events of jobs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import ending, ordering
from logqueue.core.leases import Grant
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State


def _jobs_claimed(state: State, event: ev.JobsClaimed, segment: int) -> None:
    lease = event.first_lease
    topic = state.instances.get(event.topic)
    if isinstance(topic, QueueTopic):
        queue = topic.queue
        queue.cursor = max(queue.cursor, event.cursor)
        queue.has_overdue = queue.has_overdue or event.overdue
        if queue.order is not None:
            ordering.claimed(topic, queue.order, event)
        for node, deadline, stream, seqs in event.grants:
            queue.claim(Grant(node, deadline, stream, seqs, len(seqs)), lease)
            lease += len(seqs)
        rate = topic.config.claim_rate
        if rate is not None:
            jobs = lease - event.first_lease
            queue.rate_spent = queue.rate_spent.spend(rate, jobs, event.at)
    state.next_lease = max(state.next_lease, lease)


def _jobs_acked(state: State, event: ev.JobsAcked, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        if topic.queue.end_listeners and event.orphans < len(event.seqs):
            ending.report(topic, event, segment)
        topic.queue.finish(event.seqs)
        topic.remove(sorted(event.seqs))
        topic.queue.count("acked", len(event.seqs) - event.orphans)
    if event.done:
        state.batches.acked(event.done)


def _jobs_held(state: State, event: ev.JobsHeld, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        queue = topic.queue
        for seq, deliveries, error in event.jobs:
            due = topic.due_of(seq) if queue.has_timed and seq not in queue.jobs else 0
            queue.hold(seq, deliveries, error, segment, due=due)


def _holds_released(state: State, event: ev.HoldsReleased, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        for seq in event.seqs:
            topic.queue.release_hold(seq, timed=topic.is_timed(seq))


def _jobs_released(state: State, event: ev.JobsReleased, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        dues = event.dues or repeat(event.ready_at, len(event.seqs))
        topic.queue.release(
            event.seqs,
            [due if due > event.at else 0 for due in dues],
            event.error,
            uncounted=event.uncounted,
            given_back=event.given_back,
        )


def _jobs_retimed(state: State, event: ev.JobsRetimed, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        queue = topic.queue
        for seq in event.seqs:
            if seq not in queue.jobs:
                queue.enter(seq, topic.due_of(seq) if queue.has_timed else 0)
        due = event.ready_at if event.ready_at > event.at else 0
        queue.release(event.seqs, [due] * len(event.seqs))


def _jobs_extended(state: State, event: ev.JobsExtended, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        queue = topic.queue
        queue.extend(event.node, event.deadline, event.seqs)
        if event.progress is not None or event.note is not None:
            queue.note_progress(event.seqs, event.progress, event.note)


def _job_texts(state: State, event: ev.JobTexts, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None and topic.queue.ended is not None:
        topic.queue.ended.note_texts(event.results, event.errors, event.keys, event.at)


def _ends_kept(state: State, event: ev.EndsKept, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None and topic.queue.ended is not None:
        topic.queue.ended.state_again(event.ends, event.keys, segment, event.at)


def _backoff_changed(state: State, event: ev.BackoffChanged, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        topic.queue.change_backoff(event.before, event.at)


def _jobs_rescheduled(state: State, event: ev.JobsRescheduled, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None and not topic.replacing:
        # Live, it follows from the new content, bit by bit; the event is for the leases log.
        # At replay the lease before may not have been seen to run out.
        topic.queue.release(event.seqs, event.dues)


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.JobsClaimed: _jobs_claimed,
    ev.JobsAcked: _jobs_acked,
    ev.JobsReleased: _jobs_released,
    ev.JobsRetimed: _jobs_retimed,
    ev.JobsExtended: _jobs_extended,
    ev.JobsHeld: _jobs_held,
    ev.HoldsReleased: _holds_released,
    ev.JobTexts: _job_texts,
    ev.EndsKept: _ends_kept,
    ev.BackoffChanged: _backoff_changed,
    ev.JobsRescheduled: _jobs_rescheduled,
}
