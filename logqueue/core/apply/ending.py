"""Reporting the ends of jobs to the listeners of their queue.

Owns: which live jobs an event ends, and in which parts they are reported. Called before the records
go, and only for queues with listeners. Must not know: what listeners do.
"""

from __future__ import annotations

from typing import cast, get_args

from logqueue import events as ev
from logqueue.core.job_ends import JobEnds
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.event import JobEndKind

_ENDS = frozenset(get_args(JobEndKind))


def report(topic: QueueTopic, event: ev.Event, segment: int) -> None:
    """The jobs that an event names are about to end."""
    for change in event.job_changes():
        if change.kind in _ENDS:
            outcome = cast("JobEndKind", change.kind)
            ends = JobEnds(change.seqs, outcome, event.at, change.node, change.reason, segment)
            _report(topic, ends)


def evict(
    state: State, topic: Topic, floor: int, outcome: JobEndKind, event: ev.Event, segment: int
) -> None:
    """Remove every record up to and with a floor; jobs end that way."""
    if isinstance(topic, QueueTopic) and topic.queue.end_listeners:
        for batch in topic.batches:
            if batch.first_seq > floor:
                break
            # The event names a floor only: without the record, replay does not learn of the job.
            known_from = min(batch.segment, segment)
            seqs = batch.live_seqs(last=floor)
            _report(topic, JobEnds(seqs, outcome, event.at, segment=known_from))
    state.discarded.extend(topic.evict(floor))


def _report(topic: QueueTopic, ends: JobEnds) -> None:
    """Jobs whose records went before, while they were leased, have ended then."""
    jobs = topic.queue.jobs
    seqs = ends.seqs
    if topic.queue.orphans:
        seqs = [seq for seq in seqs if (job := jobs.get(seq)) is None or job.live]
    if seqs:
        ends = ends._replace(seqs=seqs)
        for listener in topic.queue.end_listeners:
            listener.jobs_ended(topic, ends)
