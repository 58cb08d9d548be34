"""Deciding about topics and their records. Nothing here changes the state."""

from __future__ import annotations

from itertools import islice

from logqueue.core import block as blocks
from logqueue.core import commands as cmd
from logqueue.core import events as ev
from logqueue.core.appending import append_event, cap_floor, new_topic
from logqueue.core.config import TopicConfig, require_topic_name
from logqueue.core.decision import Decision
from logqueue.core.predicate import Predicate
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import TopicExistsIncompatible, TopicNotEmpty, TopicNotFound

DEFAULT_CONFIG = TopicConfig().resolved()


def put_topic(state: State, command: cmd.PutTopic, now: int) -> Decision:
    """Create a topic or replace its config; caps and TTL act at once."""
    require_topic_name(command.topic)
    command.config.require_dead_letter(command.topic)
    topic: Topic | None = state.topics.get(command.topic)
    config = command.config
    if topic is None:
        created = new_topic(state, command.topic, config, now)
        return Decision([created], lambda: cmd.Put(True, config))
    if topic.config.type != config.type:
        raise TopicExistsIncompatible(
            f"topic {topic.name!r} is a {topic.config.type} and can not become a {config.type} "
            "(PUT replaces the whole config, so name the type); delete it first or use "
            "another name",
            {
                "topic": topic.name,
                "existing_type": topic.config.type,
                "requested_type": config.type,
            },
        )
    events: list[ev.AnyEvent] = [ev.TopicConfigured(now, topic.number, config)]
    # Tightened bounds act at once, also on a topic that otherwise rejects rather than evicts.
    caps = cap_floor(topic, config)
    ttl = topic.expired_floor(max(now - config.ttl_ms, 0)) if config.ttl_ms else 0
    if caps > topic.cap_floor or ttl > topic.ttl_floor:
        events.append(ev.RecordsTrimmed(now, topic.number, ttl, caps))
    return Decision(events, lambda: cmd.Put(False, config))


def drop_topic(state: State, command: cmd.DropTopic, now: int) -> Decision:
    """Delete a topic with all it holds. Deleting what is not there is fine."""
    topic: Topic | None = state.topics.get(command.topic)
    if topic is None:
        return Decision([], lambda: cmd.Dropped(False))
    if command.if_empty and topic.live:
        raise TopicNotEmpty(
            f"topic {topic.name!r} still holds {topic.live} records",
            {"topic": topic.name, "count": topic.live},
        )
    return Decision([ev.TopicDropped(now, topic.number)], lambda: cmd.Dropped(True))


def append(state: State, command: cmd.Append, now: int) -> Decision:
    """Write a batch, creating the topic first when asked to."""
    topic: Topic | None = state.topics.get(command.topic)
    events: list[ev.AnyEvent] = []
    created = topic is None
    if topic is None:
        created_event = _lazy_topic(state, command, now)
        events.append(created_event)
        # A stand-in with the new topic's config, so that one set of rules decides both cases.
        topic = Topic(created_event.topic, created_event.name, created_event.config)
    elif command.key is not None:
        earlier = topic.remembered(command.key, now)
        if earlier is not None:
            reply = cmd.Appended(earlier.first_seq, earlier.records, earlier.head, False, True)
            return Decision([], lambda: reply)
    appended = append_event(state, topic, command.block, command.count, now, command.key)
    events.append(appended)
    head = appended.first_seq + command.count - 1
    reply = cmd.Appended(appended.first_seq, command.count, head, created, False)
    return Decision(events, lambda: reply)


def _lazy_topic(state: State, command: cmd.Append, now: int) -> ev.TopicCreated:
    config = command.config or DEFAULT_CONFIG
    wanted = config.auto_create if command.create is None else command.create
    if not wanted:
        raise TopicNotFound.named(command.topic)
    return new_topic(state, command.topic, config, now)


def delete_records(state: State, command: cmd.DeleteRecords, now: int) -> Decision:
    """Delete what is there now and matches; permanent and silent."""
    topic = state.topic(command.topic)
    before = topic.head + 1 if command.before_seq is None else command.before_seq
    seqs: list[int] = []
    for batch in topic.batches:
        if batch.first_seq >= before:
            break
        if command.match is None:
            seqs.extend(seq for seq in batch.live_seqs() if seq < before)
            continue
        tags = blocks.View(batch.block).column(blocks.TAG)
        if tags is not None:
            hits = _tagged(tags, command.match)
            seqs.extend(
                batch.seq_at(i)
                for i in batch.live_indexes()
                if i in hits and batch.seq_at(i) < before
            )
    events: list[ev.AnyEvent] = [ev.RecordsDeleted(now, topic.number, seqs)] if seqs else []
    return Decision(
        events,
        lambda: cmd.Removed(
            len(seqs), topic.earliest_seq, topic.head, topic.live, topic.live_bytes
        ),
    )


def _tagged(tags: list[bytes], match: Predicate) -> set[int]:
    return {
        index for index, tag in enumerate(tags) if tag and match.matches(blocks.read_string(tag))
    }


def expire(state: State, command: cmd.Expire, now: int) -> Decision:
    """Evict what is past its TTL from the front."""
    topic = state.topic(command.topic)
    ttl_floor = topic.expired_floor(topic.expired_before(now))
    if ttl_floor <= topic.ttl_floor:
        return Decision([], cmd.Done)
    return Decision([ev.RecordsTrimmed(now, topic.number, ttl_floor, 0)], cmd.Done)


def compact(state: State, command: cmd.Compact, now: int) -> Decision:
    """Write the live records of neighbouring batches as one new batch."""
    topic = state.topic(command.topic)
    batches = [*islice(topic.batches_from(command.first_seqs[0]), len(command.first_seqs))]
    assert [batch.first_seq for batch in batches] == list(command.first_seqs)
    records = [record for batch in batches for record in batch.records()]
    assert records, "a batch without live records is not in its topic"
    columns: list[list[bytes] | None] = []
    for column in range(len(blocks.TEXT_COLUMNS)):
        texts = [fragments[column] for _, _, fragments in records]
        columns.append(texts if any(texts) else None)
    block = blocks.pack(
        columns, seqs=[seq for seq, _, _ in records], ts=[ts for _, ts, _ in records]
    )
    span = (batches[0].first_seq, batches[-1].last_seq)
    moved = ev.RecordsMoved(now, topic.number, block, span)
    return Decision([moved], lambda: cmd.Done(len(records)))
