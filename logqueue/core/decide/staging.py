"""Deciding about transactional appends: what may be staged, and what a commit makes visible.

A producer numbers its epochs without gaps. Chunks of an epoch may come in any order, from several
tries of several partitions; the commit names the tries that won. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.decide.appends import batches_floor, evicted_with, new_topic, seqs_reserved
from logqueue.core.decide.decision import Decision
from logqueue.core.decide.endings import archive
from logqueue.core.decide.multi_part import MultiPartDecision
from logqueue.core.decide.topics import require_queue_for
from logqueue.core.queue_topic import topic_of
from logqueue.core.staging import ChunkId, ProducerState, StagedChunk, digest_of, digest_of_all
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    EpochConflict,
    InvalidRequest,
    Throttled,
    TopicNotFound,
)
from logqueue.events.block import BlockView, is_plain
from logqueue.events.follow import members_in
from logqueue.events.split_block import joined
from logqueue.model import limits
from logqueue.model.config import TopicOptions

_DEFAULT_CONFIG = TopicOptions().resolved()


def stage(state: State, command: cmd.StageChunk, now: int) -> Decision[cmd.StageResult]:
    """Keep a chunk for its epoch. The very same chunk again is fine; another under its name not."""
    producer = state.producers.get(command.producer) or ProducerState(command.producer)
    staged_bytes = producer.staged_bytes
    if _is_committed(producer, command.epoch):
        return Decision([], cmd.StageResult(False, staged_bytes))
    chunk_id = ChunkId(command.partition, command.attempt, command.number)
    known = producer.chunks(command.epoch).get(chunk_id)
    topic: Topic | None = state.topics.get(command.topic)
    if known is not None:
        if topic is None or (known.topic, known.digest) != (topic.number, digest_of(command.block)):
            raise EpochConflict(
                f"chunk {command.number} of partition {command.partition} was staged with other "
                "content under the same attempt; a new try needs an attempt name of its own",
                {"producer": command.producer, "epoch": command.epoch, "reason": "content"},
            )
        return Decision([], cmd.StageResult(False, staged_bytes))
    _require_known(state, command.producer)
    _require_staging_room(state, len(command.block))
    events: list[ev.Event] = []
    if topic is None:
        if not state.quotas.auto_create:
            raise TopicNotFound.named(command.topic, by_writing=False)
        created = new_topic(state, command.topic, _DEFAULT_CONFIG, now)
        events.append(created)
        # A placeholder with the new topic's config, so that one set of rules decides both cases.
        topic = topic_of(created.topic, created.name, created.config)
    if not is_plain(command.block):
        require_queue_for(topic, command.block)
        if members_in(BlockView(command.block)):
            raise InvalidRequest("jobs of a batch cannot be staged; write them without an epoch")
    events.append(
        ev.ChunkStaged(
            now,
            topic.number,
            command.producer,
            command.epoch,
            *chunk_id,
            command.block,
            command.count,
            BlockView(command.block).size_total(),
        )
    )
    staged_bytes += len(command.block)
    return Decision(events, cmd.StageResult(True, staged_bytes))


def _is_committed(producer: ProducerState, epoch: int) -> bool:
    """Whether an epoch is done.

    Raises:
        EpochConflict: Another epoch is due before this one.
    """
    committed = producer.committed
    if committed is None or epoch == committed.number + 1:
        return False
    if epoch <= committed.number:
        return True
    raise EpochConflict(
        f"epoch {epoch} of producer '{producer.name}' leaves a gap: the last one committed is "
        f"{committed.number}",
        {
            "producer": producer.name,
            "epoch": epoch,
            "reason": "gap",
            "last_epoch": committed.number,
        },
    )


def _require_known(state: State, producer: str) -> None:
    """Refuse one producer more than there may be.

    Raises:
        Throttled: It is a new one, and there are all there may be.
    """
    most = state.quotas.producers_max
    if most and producer not in state.producers and len(state.producers) >= most:
        raise Throttled(
            f"the server already has its maximum of {most} producers; use the names of those that "
            "exist, or wait until idle ones are forgotten after 30 days",
            {"limit": "max_producers", "max": most},
        )


def _require_staging_room(state: State, size: int) -> None:
    staged = state.staged_bytes
    if state.staged_chunks >= limits.STAGED_CHUNKS_MAX:
        raise Throttled(
            f"producers have staged {limits.STAGED_CHUNKS_MAX} chunks already, the maximum; "
            "commit epochs, or stage larger chunks",
            {"limit": "staged_chunks", "max": limits.STAGED_CHUNKS_MAX},
        )
    if staged + size > limits.STAGED_BYTES_MAX:
        raise Throttled(
            f"producers have staged {staged} bytes already, of {limits.STAGED_BYTES_MAX} in all; "
            "commit epochs, or make them smaller",
            {"limit": "staged_bytes", "max": limits.STAGED_BYTES_MAX},
        )
    total_max = state.quotas.total_bytes_max
    if total_max and state.live_bytes + staged + size > total_max:
        raise Throttled(
            f"the server may hold {total_max} bytes in all; ack or delete some records first",
            {"limit": "max_total_bytes", "max": total_max},
        )


def commit(state: State, command: cmd.CommitEpoch, now: int) -> Decision[cmd.CommitResult]:
    """Append all chunks of an epoch in one go; a repeat is answered as the first time."""
    producer = state.producers.get(command.producer) or ProducerState(command.producer)
    if _is_committed(producer, command.epoch):
        return _repeated(producer, command)
    _require_known(state, command.producer)
    chunks = [*_named(producer, command)]
    by_topic: dict[int, list[tuple[ChunkId, StagedChunk]]] = {}
    for chunk_id, chunk in chunks:
        by_topic.setdefault(chunk.topic, []).append((chunk_id, chunk))
    decided = MultiPartDecision(state)
    copies = []
    ranges = []
    for number, parts in by_topic.items():
        topic = state.instances[number]
        count = sum(chunk.records for _, chunk in parts)
        blocks = [chunk.block for _, chunk in parts]
        floor, dropped = batches_floor(topic, blocks)
        if dropped:
            evicted = evicted_with(topic, floor, blocks, now)
            copies.append(archive(state, topic, evicted, "dropped", now))
        decided.add([*restaged(state, producer, command.epoch, parts, now)])
        first_seq, last_seq = topic.head + 1, topic.head + count
        committed = ev.ChunksCommitted(
            now,
            number,
            command.producer,
            command.epoch,
            [(*chunk_id,) for chunk_id, _ in parts],
            [chunk.records for _, chunk in parts],
            first_seq,
            floor,
            seqs_reserved(topic, last_seq),
            dropped,
        )
        decided.add([committed])
        decided.note(number, blocks, dropped)
        ranges.append((topic.name, first_seq, last_seq))
    # The topics of the epoch come first: an archive may be one of them.
    for part in copies:
        decided.add(decided.rebase(part))
    digest = digest_of(command.content.encode())
    if not command.content:
        digest = digest_of_all([chunk.digest for _, chunk in chunks])
    decided.add([ev.EpochCommitted(now, 0, command.producer, command.epoch, digest, ranges)])
    return Decision(decided.events, cmd.CommitResult(True, tuple(ranges)))


def restaged(
    state: State,
    producer: ProducerState,
    epoch: int,
    chunks: Iterable[tuple[ChunkId, StagedChunk]],
    now: int,
) -> Iterator[ev.ChunkStaged]:
    """Those chunks once more whose log segment is about to be dropped, or that were staged before
    their topic was logged."""
    for chunk_id, chunk in chunks:
        is_late = not chunk.segment and state.instances[chunk.topic].config.is_logged
        if is_late or 0 < chunk.segment < state.kept_from:
            yield ev.ChunkStaged(
                now,
                chunk.topic,
                producer.name,
                epoch,
                *chunk_id,
                joined(chunk.block),
                chunk.records,
                chunk.size,
            )


def restaged_ahead(state: State, command: cmd.CommitEpoch) -> Iterator[list[ev.Event]]:
    """What a commit logs again of its chunks, when that is too much for one transaction: parts to
    be logged before it. Repeating them changes nothing, and the commit finds its chunks in
    place."""
    producer = state.producers.get(command.producer)
    if producer is None:
        return
    attempts = {(part.partition, part.attempt) for part in command.parts}
    named = [
        (chunk_id, chunk)
        for chunk_id, chunk in producer.chunks(command.epoch).items()
        if (chunk_id.partition, chunk_id.attempt) in attempts
    ]
    if sum(len(chunk.block) for _, chunk in named) <= limits.RESTAGED_BYTES_MAX:
        return
    part: list[ev.Event] = []
    size = 0
    # As long ago as before that the producer was heard of: a commit may still be refused.
    for event in [*restaged(state, producer, command.epoch, named, producer.touched_at)]:
        if part and size + len(event.block) > limits.RESTAGED_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(event)
        size += len(event.block)
    if part:
        yield part


def _named(
    producer: ProducerState, command: cmd.CommitEpoch
) -> Iterator[tuple[ChunkId, StagedChunk]]:
    """The chunks that a commit names, in order.

    Raises:
        EpochConflict: One is not staged, or they hold another number of records.
    """
    staged = producer.chunks(command.epoch)
    where = {"producer": command.producer, "epoch": command.epoch}
    for part in sorted(command.parts):
        rows = 0
        for number in range(part.chunks):
            chunk_id = ChunkId(part.partition, part.attempt, number)
            chunk = staged.get(chunk_id)
            if chunk is None:
                raise EpochConflict(
                    f"chunk {number} of partition {part.partition}, attempt '{part.attempt}', is "
                    "not staged: it never came, or waited too long, or its topic was deleted; "
                    "stage the epoch again",
                    {**where, "reason": "missing", "partition": part.partition},
                )
            rows += chunk.records
            yield chunk_id, chunk
        if rows != part.rows:
            raise EpochConflict(
                f"partition {part.partition} has {rows} records staged, not {part.rows}",
                {**where, "reason": "rows", "partition": part.partition},
            )


def _repeated(producer: ProducerState, command: cmd.CommitEpoch) -> Decision[cmd.CommitResult]:
    committed = producer.committed
    assert committed is not None
    ranges = committed.ranges if command.epoch == committed.number else ()
    rows = sum(part.rows for part in command.parts)
    known = sum(last - first + 1 for _, first, last in committed.ranges)
    where = {"producer": command.producer, "epoch": command.epoch, "reason": "content"}
    if command.epoch == committed.number and rows != known:
        raise EpochConflict(
            f"epoch {command.epoch} was committed with {known} records; this commit names {rows}",
            where,
        )
    is_other = committed.digest != digest_of(command.content.encode())
    if command.epoch == committed.number and command.content and is_other:
        raise EpochConflict(f"epoch {command.epoch} was committed with other content", where)
    return Decision([], cmd.CommitResult(False, ranges))


def abort(state: State, command: cmd.AbortEpoch, now: int) -> Decision[cmd.AbortResult]:
    """Discard an epoch that was not committed, so that its room is free at once."""
    producer = state.producers.get(command.producer)
    if producer is None:
        return Decision([], cmd.AbortResult(False, 0))
    if _is_committed(producer, command.epoch):
        return Decision([], cmd.AbortResult(True, producer.staged_bytes))
    gone = [
        chunk
        for epoch, chunks in producer.staged.items()
        for chunk in chunks.values()
        if epoch <= command.epoch
    ]
    if not gone:
        return Decision([], cmd.AbortResult(False, producer.staged_bytes))
    rest = producer.staged_bytes - sum(len(chunk.block) for chunk in gone)
    dropped = ev.StagedDropped(now, 0, producer.name, last=command.epoch)
    return Decision([dropped], cmd.AbortResult(False, rest))


def expire(state: State, command: cmd.ExpireStaged, now: int) -> Decision[cmd.Done]:
    """Discard chunks that were never committed, and producers that were silent for long."""
    events: list[ev.Event] = []
    for producer in state.producers.values():
        idle_ms = now - producer.touched_at
        if idle_ms > limits.PRODUCER_IDLE_MS_MAX:
            events.append(ev.StagedDropped(now, 0, producer.name, True))
        elif producer.staged and idle_ms > limits.STAGED_MS_MAX:
            events.append(ev.StagedDropped(now, 0, producer.name))
    return Decision(events, cmd.Done(len(events)))
