"""Applying the events of transactional appends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import ending
from logqueue.core.batch import Batch
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.staging import ChunkId, Epoch, ProducerState, StagedChunk, digest_of
from logqueue.core.state import State


def _chunk_staged(state: State, event: ev.ChunkStaged, segment: int) -> None:
    """Keep a chunk for its epoch."""
    producer = _touch(state, event.producer, event.at)
    committed = producer.committed
    if event.topic not in state.instances:
        return
    if committed is not None and event.epoch <= committed.number:
        return
    chunk_id = ChunkId(event.partition, event.attempt, event.number)
    block = state.keeper.keep(event.block, segment)
    chunk = StagedChunk(
        event.topic, block, event.count, event.size, digest_of(event.block), segment
    )
    with _counted(state, producer):
        producer.stage(event.epoch, chunk_id, chunk)


def _chunks_committed(state: State, event: ev.ChunksCommitted, segment: int) -> None:
    """Append an epoch's chunks to one topic."""
    topic = state.instances.get(event.topic)
    last_seq = event.first_seq + sum(event.counts) - 1
    if topic is None or event.first_seq <= topic.head:
        return
    if isinstance(topic, QueueTopic) and topic.queue.cursor > event.first_seq:
        topic.queue.rewind(event.first_seq)
    producer = _touch(state, event.producer, event.at)
    staged = producer.chunks(event.epoch)
    seq = event.first_seq
    for chunk_id, count in zip(event.chunks, event.counts, strict=True):
        chunk = staged.get(ChunkId(*chunk_id))
        if chunk is not None:
            # The payload is where it was staged; without a frame of its own the batch has none.
            place = chunk.segment if segment else 0
            topic.insert(Batch(chunk.block, seq, count, event.at, place), chunk.size)
        seq += count
    topic.head = last_seq
    topic.last_write_at = event.at
    topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)
    if event.cap_floor > topic.cap_floor:
        if isinstance(topic, QueueTopic):
            topic.queue.count("dropped", event.dropped)
        topic.cap_floor = event.cap_floor
        ending.evict(state, topic, event.cap_floor, "dropped", event, segment)


def _epoch_committed(state: State, event: ev.EpochCommitted, segment: int) -> None:
    """An epoch is done, and what was staged for it is no longer needed."""
    producer = _touch(state, event.producer, event.at)
    if producer.committed is None or producer.committed.number < event.epoch:
        ranges = tuple((name, first, last) for name, first, last in event.ranges)
        producer.committed = Epoch(event.epoch, event.digest, ranges)
        with _counted(state, producer):
            producer.unstage(event.epoch)


def _staged_dropped(state: State, event: ev.StagedDropped, segment: int) -> None:
    """The staged chunks are discarded."""
    producer = state.producers.get(event.producer)
    if producer is not None:
        with _counted(state, producer):
            last = max(producer.staged, default=0) if event.last is None else event.last
            producer.unstage(last)
        if event.forget:
            del state.producers[event.producer]


def keep_producers(state: State, kept: list[ev.ProducerSnapshot]) -> None:
    """Restate what a checkpoint says of producers."""
    for entry in kept:
        producer = _touch(state, entry.name, entry.touched_at)
        known = producer.committed.number if producer.committed is not None else -1
        if entry.epoch > known:
            ranges = tuple((name, first, last) for name, first, last in entry.ranges)
            producer.committed = Epoch(entry.epoch, entry.digest, ranges)


def forget_topic(state: State, topic: int) -> None:
    """A topic is gone, and with it what was staged for it."""
    if state.staged_chunks:
        for producer in state.producers.values():
            with _counted(state, producer):
                producer.forget_topic(topic)


@contextmanager
def _counted(state: State, producer: ProducerState) -> Iterator[None]:
    """Carry what changes for one producer over to the sums of all."""
    size, chunks = producer.staged_bytes, producer.staged_chunks
    yield
    state.staged_bytes += producer.staged_bytes - size
    state.staged_chunks += producer.staged_chunks - chunks


def _touch(state: State, name: str, at: int) -> ProducerState:
    producer = state.producers.get(name)
    if producer is None:
        producer = state.producers[name] = ProducerState(name)
    producer.touched_at = max(producer.touched_at, at)
    return producer


APPLY: dict[type[ev.Event], Callable[[State, Any, int], None]] = {
    ev.ChunkStaged: _chunk_staged,
    ev.ChunksCommitted: _chunks_committed,
    ev.EpochCommitted: _epoch_committed,
    ev.StagedDropped: _staged_dropped,
}
