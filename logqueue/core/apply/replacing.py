"""How waiting jobs get new content: at once at replay, live bit by bit.

Owns: what a write has replaced and is not in its place yet. Must not know: why, who asked, the log.

Each replaced job is a cut in its batch, so ten thousand scattered ones take a second. The event
says all of them; live, what is left is kept with the topic, and the engine continues with it before
anything else is decided or read there. So no reader sees a part, and no crash leaves one.
"""

from __future__ import annotations

from operator import attrgetter

from logqueue import events as ev
from logqueue.core.apply.job_batches import count_moved
from logqueue.core.batch import Batch
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import due_at, written_at
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events.block import BlockView

LEAVES_UNFINISHED = frozenset((ev.JobsRescheduled, ev.TopicRemoved))
"""Events that mean the same before and after what is left of an earlier one."""

RUNS_PER_STEP_MAX = 50
"""Cuts in batches in one step, a few milliseconds."""
RECORDS_PER_STEP_MAX = 1000


def begin(state: State, topic: Topic, fresh: list[Batch], at: int) -> None:
    """New content for jobs, none of it in its place yet."""
    fresh.sort(key=attrgetter("first_seq"), reverse=True)
    topic.replacing = [(batch, 0) for batch in fresh]
    topic.replaced_at = at
    if topic.replacing:
        state.replacing[topic.number] = topic


def finish(state: State, topic: Topic) -> None:
    """Put all that is left into its place."""
    if topic.replacing:
        go_on(state, topic, None, None)


def go_on(
    state: State,
    topic: Topic,
    runs_max: int | None = RUNS_PER_STEP_MAX,
    records_max: int | None = RECORDS_PER_STEP_MAX,
) -> None:
    """Put some new content into its place; None for no bound."""
    before = topic.batches.size
    fresh = _take(topic.replacing, runs_max, records_max)
    topic.supersede(fresh)
    if isinstance(topic, QueueTopic):
        for batch in fresh:
            _reschedule(topic, batch, topic.replaced_at)
    state.live_bytes += topic.batches.size - before
    count_moved(state, topic)
    if not topic.replacing:
        state.replacing.pop(topic.number, None)


def _take(
    left: list[tuple[Batch, int]], runs_max: int | None, records_max: int | None
) -> list[Batch]:
    """Runs of neighbouring seqs, lowest first, out of batches of which the lowest is the last."""
    fresh: list[Batch] = []
    records = 0
    while left:
        batch, start = left.pop()
        while start < batch.count:
            room = batch.count if records_max is None else records_max - records
            if room <= 0 or len(fresh) == runs_max:
                left.append((batch, start))
                return fresh
            end = batch.run_from(start, start + room)
            part = batch if end - start == batch.count else batch.part(start, end)
            assert part is not None, "nothing of it was removed"
            fresh.append(part)
            records += end - start
            start = end
    return fresh


def _reschedule(topic: QueueTopic, batch: Batch, at: int) -> None:
    """Waiting jobs got new content, and with it their own time."""
    queue, view = topic.queue, BlockView(batch.block)
    for index, seq in enumerate(batch.live_seqs()):
        if seq in queue.jobs:
            ts = batch.ts_at(index)
            due = due_at(view, index, ts)
            # A job whose lease had run out was waiting when it was replaced.
            queue.elapse_job(seq, at, topic.config.retry_backoff)
            queue.reschedule(seq, due if due > written_at(view, index, ts) else 0)
