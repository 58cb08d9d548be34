"""The rules of adding records to a topic: room, eviction, promised seqs.

Owns: what producers' writes and dead-letter copies have in common. Changes nothing.
"""

from __future__ import annotations

from logqueue.core import events as ev
from logqueue.core import limits
from logqueue.core.block import View
from logqueue.core.config import TopicConfig, require_topic_name
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import RecordTooLarge, Throttled, TopicFull


def new_topic(state: State, name: str, config: TopicConfig, now: int) -> ev.TopicCreated:
    """The event that creates a topic.

    Raises:
        InvalidRequest: The name or the dead-letter target is invalid.
        Throttled: The server has all the topics it may have.
    """
    require_topic_name(name)
    config.require_dead_letter(name)
    topics_max = state.quotas.topics_max
    if topics_max and len(state.topics) >= topics_max:
        raise Throttled(
            f"the server already has its maximum of {topics_max} topics; delete one first",
            {"limit": "max_topics", "max": topics_max},
        )
    return ev.TopicCreated(now, state.next_topic, name, config)


def append_event(
    state: State, topic: Topic, block: bytes, count: int, now: int, key: str | None = None
) -> ev.RecordsAppended:
    """The event that adds a batch to a topic, evictions included.

    Raises:
        RecordTooLarge: The batch can never fit a topic that rejects when full.
        TopicFull: No room now, and the topic rejects when full.
        Throttled: The server holds all the bytes it may hold.
    """
    view = View(block)
    size = view.size_total()
    config = topic.config
    if config.discard == "reject":
        _require_room(topic, count, size)
    total_bytes_max = state.quotas.total_bytes_max
    if total_bytes_max and state.live_bytes + size > total_bytes_max:
        raise Throttled(
            f"the server may hold {total_bytes_max} bytes of live records in all; ack or delete "
            "some first",
            {"limit": "max_total_bytes", "max": total_bytes_max},
        )
    first_seq = topic.head + 1
    last_seq = topic.head + count
    cap_floor = 0
    if config.discard == "old" and (config.cap_records or config.cap_bytes):
        cap_floor = _floor_with(topic, view, first_seq)
    reserved = 0
    if config.durability == "disk" and last_seq > topic.seqs_reserved:
        reserved = last_seq + limits.SEQS_RESERVED_AHEAD
    return ev.RecordsAppended(
        now, topic.number, first_seq, count, block, cap_floor, key, reserved, size
    )


def cap_floor(topic: Topic, config: TopicConfig) -> int:
    """The seq up to which the front must go to be within a config's caps; 0 when it is."""
    records_over = topic.live - config.cap_records if config.cap_records else 0
    bytes_over = topic.live_bytes - config.cap_bytes if config.cap_bytes else 0
    floor, _, _ = _evicting(topic, records_over, bytes_over)
    return floor


def _require_room(topic: Topic, count: int, size: int) -> None:
    config = topic.config
    over_records = config.cap_records and count > config.cap_records
    over_bytes = config.cap_bytes and size > config.cap_bytes
    if over_records or over_bytes:
        raise RecordTooLarge(
            f"a batch of {count} records and {size} bytes can never fit topic {topic.name!r} "
            f"(cap_records {config.cap_records}, cap_bytes {config.cap_bytes}); send smaller ones"
        )
    full_records = config.cap_records and topic.live + count > config.cap_records
    full_bytes = config.cap_bytes and topic.live_bytes + size > config.cap_bytes
    if full_records or full_bytes:
        raise TopicFull(
            f"topic {topic.name!r} is full and rejects writes; ack or delete records, or raise "
            "its caps",
            {
                "topic": topic.name,
                "cap_records": config.cap_records,
                "cap_bytes": config.cap_bytes,
                "head_seq": topic.head,
                "earliest_seq": topic.earliest_seq,
            },
        )


def _floor_with(topic: Topic, view: View, first_seq: int) -> int:
    """The cap floor once the viewed batch is added at `first_seq`."""
    config = topic.config
    count = view.count
    size = view.size_total()
    records_over = topic.live + count - config.cap_records if config.cap_records else 0
    bytes_over = topic.live_bytes + size - config.cap_bytes if config.cap_bytes else 0
    floor, records_over, bytes_over = _evicting(topic, records_over, bytes_over)
    index = 0
    # What the older records could not make room for comes out of the new batch's own front.
    while (records_over > 0 or bytes_over > 0) and index < count:
        records_over -= 1
        bytes_over -= view.size(index)
        floor = first_seq + index
        index += 1
    return floor


def _evicting(topic: Topic, records_over: int, bytes_over: int) -> tuple[int, int, int]:
    """Walk the front until both overruns are made good; returns the floor and what remains."""
    floor = 0
    if records_over <= 0 and bytes_over <= 0:
        return floor, records_over, bytes_over
    for batch in topic.batches:
        view = View(batch.block)
        if batch.is_whole and batch.live <= records_over and bytes_over <= 0:
            records_over -= batch.live
            floor = batch.last_seq
            continue
        for index in batch.live_indexes():
            if records_over <= 0 and bytes_over <= 0:
                return floor, records_over, bytes_over
            records_over -= 1
            bytes_over -= view.size(index)
            floor = batch.seq_at(index)
    return floor, records_over, bytes_over
