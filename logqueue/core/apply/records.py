"""Applying the events of records: appended, moved, replaced, gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import ending, replacing
from logqueue.core.apply.append_runs import AppendRun
from logqueue.core.batch import Batch
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Remembered, Topic
from logqueue.events.block import BlockView, size_total


def _records_appended(state: State, event: ev.RecordsAppended, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None or event.first_seq <= topic.head:
        return
    block = state.keeper.keep(event.block, segment)
    batch = Batch(block, event.first_seq, event.count, event.at, segment, event.hops)
    take_in(state, topic, event, batch, segment)
    if event.key is not None:
        write = Remembered(event.at, event.first_seq, event.count, topic.head, segment)
        topic.remember(event.key, write)


def _run_appended(state: State, run: AppendRun, segment: int) -> None:
    topic = state.instances.get(run.topic)
    if topic is None:
        return
    times = [run.at - age for age in run.ages]
    whole = Batch.timed(run.block, run.first_seq, times, segment)
    for batch in whole.behind(topic.head):
        event = ev.RecordsAppended(
            run.at,
            run.topic,
            batch.first_seq,
            batch.count,
            run.block,
            seqs_reserved=run.seqs_reserved,
            size=run.size if batch is whole else size_total(batch.block),
        )
        take_in(state, topic, event, batch, segment)


def take_in(
    state: State,
    topic: Topic,
    event: ev.RecordsAppended | ev.RecordsForwarded,
    batch: Batch | None,
    segment: int,
) -> None:
    """Add a batch at the head; without one, only its seqs are taken."""
    if isinstance(topic, QueueTopic) and topic.queue.cursor > event.first_seq:
        topic.queue.rewind(event.first_seq)
    if batch is not None:
        # Logs from before the event had its size are still read.
        topic.insert(batch, event.size or BlockView(batch.block).size_total())
        if topic.attributes is not None:
            state.batches.join(batch.block)
    topic.head = event.first_seq + event.count - 1
    topic.last_write_at = event.at
    topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)
    if event.cap_floor > topic.cap_floor:
        topic.cap_floor = event.cap_floor
        ending.evict(state, topic, event.cap_floor, "dropped", event, segment)
        topic.is_trimming = topic.is_over
        if isinstance(topic, QueueTopic):
            topic.queue.count("dropped", event.dropped)


def _records_replaced(state: State, event: ev.RecordsReplaced, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
    moved = [Batch.moved(state.keeper.keep(block, segment), segment) for block in event.blocks]
    # What the same write has evicted is not replaced.
    fresh = [part for batch in moved for part in batch.behind(topic.floor)]
    replacing.begin(state, topic, fresh, event.at)
    topic.head = max(topic.head, event.head)
    topic.is_on_disk = topic.is_on_disk or segment > 0
    topic.last_write_at = event.at
    for name, count in event.joined:
        state.batches.joined(name, count)
    if event.key is not None:
        seqs = [seq for seq, _ in event.results]
        write = Remembered(
            event.at, min(seqs), len(seqs), event.head, segment, tuple(event.results)
        )
        topic.remember(event.key, write)


def _records_moved(state: State, event: ev.RecordsMoved, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        first, last = event.span
        batch = Batch.moved(state.keeper.keep(event.block, segment), segment, event.hops)
        topic.replace(first, last, batch)
        topic.is_on_disk = True
        topic.head = max(topic.head, batch.last_seq)
        # At replay a floor may already be above what was live when the records were moved.
        state.discarded.extend(topic.evict(topic.floor))


def _records_trimmed(state: State, event: ev.RecordsTrimmed, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        topic.ttl_floor = max(topic.ttl_floor, event.ttl_floor)
        topic.cap_floor = max(topic.cap_floor, event.cap_floor)
        # At replay the floor may be above seqs that were only ever in memory; they were given.
        topic.head = max(topic.head, topic.floor)
        ending.evict(state, topic, topic.ttl_floor, "expired", event, segment)
        ending.evict(state, topic, topic.floor, "dropped", event, segment)
        if isinstance(topic, QueueTopic):
            topic.queue.count("expired", event.expired)
            topic.queue.count("dropped", event.dropped)


def _records_removed(state: State, event: ev.RecordsRemoved, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
    if isinstance(topic, QueueTopic) and topic.queue.end_listeners:
        ending.report(topic, event, segment)
    removed = topic.remove(event.seqs)
    if isinstance(topic, QueueTopic):
        if event.dead_lettered:
            topic.queue.finish(event.seqs)
            topic.queue.dead_lettered += event.dead_lettered
        else:
            topic.queue.forget(removed)
            if not event.redriven:
                topic.queue.count("cancelled", len(event.seqs))


def _records_finished(state: State, event: ev.RecordsFinished, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
    if not isinstance(topic, QueueTopic):
        topic.remove(sorted(event.seqs))
        return
    if topic.queue.end_listeners:
        ending.report(topic, event, segment)
    if event.outcome != "expired":
        topic.queue.finish(event.seqs)
    removed = topic.remove(sorted(event.seqs))
    topic.queue.forget(removed)
    topic.queue.count(event.outcome, len(event.seqs))


def _keys_remembered(state: State, event: ev.KeysRemembered, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        for key, at, first_seq, count, head in event.keys:
            known = topic.keys.get(key)
            if known is None or known.at <= at:
                results = tuple(event.results.get(key, ()))
                topic.remember(key, Remembered(at, first_seq, count, head, segment, results))


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.RecordsAppended: _records_appended,
    AppendRun: _run_appended,
    ev.RecordsMoved: _records_moved,
    ev.RecordsTrimmed: _records_trimmed,
    ev.RecordsRemoved: _records_removed,
    ev.RecordsFinished: _records_finished,
    ev.RecordsReplaced: _records_replaced,
    ev.KeysRemembered: _keys_remembered,
}
