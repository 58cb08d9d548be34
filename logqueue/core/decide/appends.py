"""The rules of adding records to a topic: room, eviction, promised seqs.

Owns: what producers' writes and dead-letter copies have in common. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logqueue import events as ev
from logqueue.core.batch import Record
from logqueue.core.edges import require_no_loop_by_config
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import (
    RecordTooLarge,
    Throttled,
    TopicFull,
    quoted,
)
from logqueue.events.block import BlockView, size_total
from logqueue.events.split_block import Block
from logqueue.model import limits
from logqueue.model.config import TopicOptions, require_topic_name

NOTHING_FREED = (0, 0)


def new_topic(
    state: State, name: str, config: TopicOptions, now: int, *, ahead: int = 0
) -> ev.TopicCreated:
    """The event that creates a topic.

    Args:
        state: Read only.
        name: Must be valid.
        config: Resolved.
        now: The clock.
        ahead: How many topics the same decision creates before this one.

    Raises:
        InvalidRequest: The name or the dead-letter target is invalid.
        RouterCycle: Routers lead from its archive or dead-letter topic back to it.
        Throttled: The server has all the topics it may have.
    """
    require_topic_name(name)
    config.require_targets(name)
    require_no_loop_by_config(state, name, config)
    require_topics(state, ahead)
    return ev.TopicCreated(now, state.next_topic + ahead, name, config)


def require_topics(state: State, ahead: int) -> None:
    """Refuse one topic more than there may be, behind so many others of the same decision.

    Raises:
        Throttled: The server has all the topics it may have.
    """
    topics_max = state.quotas.topics_max
    if topics_max and len(state.topics) + ahead >= topics_max:
        raise Throttled(
            f"the server already has its maximum of {topics_max} topics; delete one first",
            {"limit": "max_topics", "max": topics_max},
        )


def append_event(
    state: State,
    topic: Topic,
    block: bytes,
    count: int,
    now: int,
    key: str | None = None,
    hops: int = 0,
    freed: tuple[int, int] = NOTHING_FREED,
) -> ev.RecordsAppended:
    """The event that adds a batch to a topic, evictions included.

    Args:
        freed: Records and bytes that the same decision removes; a topic that rejects when full, and
            the server, have room for as much more.

    Raises:
        RecordTooLarge: The batch can never fit a topic that rejects when full.
        TopicFull: No room now, and the topic rejects when full.
        Throttled: The server holds all the bytes it may hold.
    """
    size = size_total(block)
    config = topic.config
    if config.discard == "reject" or state.quotas.total_bytes_max:
        require_room(state, topic, count, size, (-freed[0], -freed[1]))
    first_seq = topic.head + 1
    last_seq = topic.head + count
    cap_floor = dropped = 0
    if config.discard == "old" and (config.cap_records or config.cap_bytes):
        cap_floor, dropped = _floor_with(topic, [BlockView(block)], first_seq)
    reserved = seqs_reserved(topic, last_seq) if last_seq > topic.seqs_reserved else 0
    return ev.RecordsAppended(
        now,
        topic.number,
        first_seq,
        count,
        block,
        cap_floor,
        key,
        reserved,
        size,
        hops,
        dropped,
    )


def require_room(
    state: State, topic: Topic, count: int, size: int, ahead: tuple[int, int] = (0, 0)
) -> None:
    """Refuse a write that a topic, or the server, has no room for.

    Args:
        state, topic: Read only.
        count, size: Records of the write, and their bytes.
        ahead: Records and bytes that the same decision adds before.

    Raises:
        RecordTooLarge, TopicFull, Throttled: See `append_event`.
    """
    if topic.config.discard == "reject":
        _require_room_in(topic, count, size, ahead)
    require_bytes(state, ahead[1] + size)


def require_bytes(state: State, size: int) -> None:
    """Refuse more bytes of records than the server may hold.

    Raises:
        Throttled: It may not hold so many more.
    """
    total_bytes_max = state.quotas.total_bytes_max
    if total_bytes_max and state.live_bytes + size > total_bytes_max:
        raise Throttled(
            f"the server may hold {total_bytes_max} bytes of live records in all; ack or delete "
            "some first",
            {"limit": "max_total_bytes", "max": total_bytes_max},
        )


def seqs_reserved(topic: Topic, last_seq: int) -> int:
    """Up to which seq a write that ends at `last_seq` must promise seqs; 0 when it need not."""
    if topic.config.durability == "disk" and last_seq > topic.seqs_reserved:
        return last_seq + seqs_ahead(last_seq - topic.head)
    return 0


def seqs_ahead(count: int) -> int:
    """How many seqs to promise beyond a write of `count`: each promise costs a sync, and a crash
    leaves what was promised as a hole."""
    return min(max(4 * count, limits.SEQS_RESERVED_MIN), limits.SEQS_RESERVED_MAX)


def batches_floor(topic: Topic, blocks: Sequence[Block]) -> tuple[int, int]:
    """The cap floor once some batches are added together, and how many records go.

    Raises:
        RecordTooLarge: They can never fit a topic that rejects when full.
        TopicFull: No room now, and the topic rejects when full.
    """
    views = [BlockView(block) for block in blocks]
    config = topic.config
    if config.discard == "reject":
        count = sum(view.count for view in views)
        _require_room_in(topic, count, sum(view.size_total() for view in views))
    elif config.cap_records or config.cap_bytes:
        return _floor_with(topic, views, topic.head + 1)
    return 0, 0


def cap_floor(topic: Topic, config: TopicOptions) -> tuple[int, int]:
    """The seq up to which the front must go to be within a config's caps, or may go at once; 0 when
    it is within them; and how many records go."""
    records_over = topic.live - config.cap_records if config.cap_records else 0
    bytes_over = topic.live_bytes - config.cap_bytes if config.cap_bytes else 0
    return _front_over(topic, config, records_over, bytes_over)[:2]


def _front_over(
    topic: Topic, config: TopicOptions, records_over: int, bytes_over: int
) -> tuple[int, int, int, int]:
    """The floor that makes good an overrun, or as much of it as may go at once; how many records
    that takes; and what is left of the overrun of records and bytes."""
    is_copied = config.archive is not None and isinstance(topic, QueueTopic)
    limit = limits.COPIED_PER_PASS_MAX if is_copied else topic.evicted_max
    floor, records_left, bytes_left = topic.batches.front_over(records_over, bytes_over, limit)
    gone = records_over - records_left
    if is_copied and gone > 1:
        seqs = topic.batches.live_seqs(1, gone)
        fitting = topic.fitting(seqs, limits.COPIED_BYTES_MAX)
        if fitting < gone:
            records_left = records_over - fitting
            bytes_left += sum(topic.size_of(seq) for seq in seqs[fitting:])
            floor, gone = seqs[fitting - 1], fitting
    return floor, gone, records_left, bytes_left


def evicted_below(topic: Topic, floor: int) -> Iterator[Record]:
    """Live records up to and with a floor."""
    for batch in topic.batches:
        if batch.first_seq > floor:
            return
        for record in batch.records():
            if record[0] <= floor:
                yield record


def evicted_with(topic: Topic, floor: int, blocks: Sequence[Block], now: int) -> Iterator[Record]:
    """Records up to and with a floor once some batches are added: live ones, then the new ones'
    own front."""
    yield from evicted_below(topic, floor)
    seq = topic.head
    for block in blocks:
        view = BlockView(block)
        for index in range(view.count):
            seq += 1
            if seq > floor:
                return
            yield seq, now, view.texts(index)


def _require_room_in(topic: Topic, count: int, size: int, ahead: tuple[int, int] = (0, 0)) -> None:
    config = topic.config
    over_records = config.cap_records and count > config.cap_records
    over_bytes = config.cap_bytes and size > config.cap_bytes
    if over_records or over_bytes:
        raise RecordTooLarge(
            f"a batch of {count} records and {size} bytes can never fit topic {quoted(topic.name)} "
            f"(cap_records {config.cap_records}, cap_bytes {config.cap_bytes}); send smaller ones",
            names=(topic.name,),
        )
    records, held = ahead
    full_records = config.cap_records and topic.live + records + count > config.cap_records
    full_bytes = config.cap_bytes and topic.live_bytes + held + size > config.cap_bytes
    if full_records or full_bytes:
        raise TopicFull(
            f"topic '{topic.name}' is full and rejects writes; ack or delete records, or raise "
            "its caps",
            {
                "topic": topic.name,
                "cap_records": config.cap_records,
                "cap_bytes": config.cap_bytes,
                "head_seq": topic.head + records,
                "earliest_seq": topic.earliest_seq,
            },
            names=(topic.name,),
        )


def _floor_with(topic: Topic, views: Sequence[BlockView], first_seq: int) -> tuple[int, int]:
    """The cap floor once the viewed batches are added from `first_seq` on, and how many records
    go."""
    config = topic.config
    count = sum(view.count for view in views)
    size = sum(view.size_total() for view in views)
    records_over = topic.live + count - config.cap_records if config.cap_records else 0
    bytes_over = topic.live_bytes + size - config.cap_bytes if config.cap_bytes else 0
    over = records_over
    floor, gone, records_over, bytes_over = _front_over(topic, config, records_over, bytes_over)
    if gone < topic.live:
        # Either there is room now, or the rest is removed right behind this write, a portion at a
        # time.
        return floor, gone
    # What the older records could not make room for comes out of the new ones' own front.
    sizes = (view.size(index) for view in views for index in range(view.count))
    for seq, record_size in enumerate(sizes, first_seq):
        if records_over <= 0 and bytes_over <= 0:
            break
        records_over -= 1
        bytes_over -= record_size
        floor = seq
    return floor, over - records_over
