"""The only code that changes the state, live and at replay alike. It never refuses.

Owns: one function per event. Must not know: why, who asked, the clock (every event brings `at`).

Replay may begin in the middle of history: older segments are gone, their live records come later as
`RecordsMoved`, and the leases log may be ahead of or behind the jobs log. So an event about a
record or a topic that is not there is not an error; it has nothing left to change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logqueue.core import events as ev
from logqueue.core.batch import Batch
from logqueue.core.block import View
from logqueue.core.projection import Grant, Queue
from logqueue.core.state import State
from logqueue.core.topic import Remembered, Topic


def apply(state: State, event: ev.AnyEvent, segment: int = 0) -> None:
    """Change the state by one fact.

    Args:
        state: Changed in place.
        event: What happened.
        segment: The jobs-log segment that holds the event's frame; 0 when it is not logged.
    """
    _APPLY[type(event)](state, event, segment)


def elapse(topic: Topic, now: int) -> None:
    """Let time act on a queue's leases and delays. A fact of the clock, so it is never logged."""
    if topic.queue is not None:
        topic.queue.elapse(now)


def count_leases(state: State, event: ev.JobsClaimed) -> None:
    """Keep the numbers of leases that are not restored themselves from being given again."""
    given = sum(len(seqs) for _, _, _, seqs in event.grants)
    state.next_lease = max(state.next_lease, event.first_lease + given)


def finish_replay(state: State, clean: bool) -> None:
    """Settle what only the end of both logs can tell. Repeating it changes nothing.

    A leases log can hold entries of records that are gone, because their removal is in a segment
    that was dropped or because the record itself was lost. After an unclean end, seqs of a `disk`
    topic may have been seen by readers and lost with the unsynced tail: the head steps over all
    that were promised, so that none is ever handed out twice.

    Args:
        state: As both logs left it.
        clean: Whether the log ends in an orderly shutdown.
    """
    for topic in state.instances.values():
        queue = topic.queue
        if clean:
            # Whatever comes next must be promised anew: this end of the log stays a clean one if
            # all that is written from now on is lost.
            topic.seqs_reserved = min(topic.seqs_reserved, topic.head)
        elif topic.config.durability == "disk":
            topic.head = max(topic.head, topic.seqs_reserved)
        if queue is not None:
            _settle_leases(topic, queue)


def _settle_leases(topic: Topic, queue: Queue) -> None:
    """Bring the projection in line with the records there are."""
    if not topic.config.leases_durable:
        queue.restore(1, [])
        return
    cursor = min(queue.cursor, topic.head + 1)
    kept = [entry for entry in queue.kept() if topic.holds(entry.seq)]
    # Jobs below the cursor whose claim is in no log must not be passed over for ever.
    known = {entry.seq for entry in kept}
    kept.extend(
        ev.JobKept(seq, 0, 0, 0, 0, 0, "")
        for batch in topic.batches
        if batch.first_seq < cursor
        for seq in batch.live_seqs()
        if seq < cursor and seq not in known
    )
    queue.restore(cursor, kept)


def _topic_created(state: State, event: ev.TopicCreated, segment: int) -> None:
    topic = Topic(event.topic, event.name, event.config)
    state.topics[event.name] = topic
    state.instances[event.topic] = topic
    state.next_topic = max(state.next_topic, event.topic + 1)


def _topic_configured(state: State, event: ev.TopicConfigured, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        elapse(topic, event.at)
        topic.config = event.config
        # Records once logged need their removal logged, whatever the class is later.
        topic.is_on_disk = topic.is_on_disk or event.config.is_logged
        # A window that is shortened and lengthened again must not bring keys back.
        topic.forget_keys(event.at)


def _topic_dropped(state: State, event: ev.TopicDropped, segment: int) -> None:
    topic = state.instances.pop(event.topic, None)
    if topic is not None and state.topics.get(topic.name) is topic:
        del state.topics[topic.name]


def _records_appended(state: State, event: ev.RecordsAppended, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None or event.first_seq <= topic.head:
        return
    if topic.queue is not None and topic.queue.cursor > event.first_seq:
        topic.queue.rewind(event.first_seq)
    batch = Batch(event.block, event.first_seq, event.count, event.at, segment)
    # Logs from before the event had its size are still read.
    topic.insert(batch, event.size or View(event.block).size_total())
    topic.head = event.first_seq + event.count - 1
    topic.last_write_at = event.at
    topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)
    if event.key is not None:
        write = Remembered(event.at, event.first_seq, event.count, topic.head, segment)
        topic.remember(event.key, write)
    if event.cap_floor > topic.cap_floor:
        topic.cap_floor = event.cap_floor
        topic.evict(event.cap_floor)


def _records_moved(state: State, event: ev.RecordsMoved, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        first, last = event.span
        batch = Batch.moved(event.block, segment)
        topic.replace(first, last, batch)
        topic.is_on_disk = True
        topic.head = max(topic.head, batch.last_seq)
        # At replay a floor may already be above what was live when the records were moved.
        topic.evict(topic.floor)


def _records_trimmed(state: State, event: ev.RecordsTrimmed, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        topic.ttl_floor = max(topic.ttl_floor, event.ttl_floor)
        topic.cap_floor = max(topic.cap_floor, event.cap_floor)
        # At replay the floor may be above seqs that were only ever in memory; they were given.
        topic.head = max(topic.head, topic.floor)
        topic.evict(topic.floor)


def _records_deleted(state: State, event: ev.RecordsDeleted, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
    removed = topic.remove(event.seqs)
    if topic.queue is not None:
        if event.dead_lettered:
            topic.queue.finish(event.seqs)
            topic.queue.dead_lettered += event.dead_lettered
        else:
            topic.queue.forget(removed)


def _keys_remembered(state: State, event: ev.KeysRemembered, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        for key, at, first_seq, count, head in event.keys:
            known = topic.keys.get(key)
            if known is None or known.at <= at:
                topic.remember(key, Remembered(at, first_seq, count, head, segment))


def _jobs_claimed(state: State, event: ev.JobsClaimed, segment: int) -> None:
    lease = event.first_lease
    topic = state.instances.get(event.topic)
    if topic is not None and topic.queue is not None:
        queue = topic.queue
        queue.elapse(event.at)
        queue.cursor = max(queue.cursor, event.cursor)
        for node, deadline, stream, seqs in event.grants:
            queue.claim(Grant(node, deadline, stream, seqs), lease)
            lease += len(seqs)
    state.next_lease = max(state.next_lease, lease)


def _jobs_acked(state: State, event: ev.JobsAcked, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and topic.queue is not None:
        topic.queue.elapse(event.at)
        topic.queue.finish(event.seqs)
        topic.remove(sorted(event.seqs))


def _jobs_released(state: State, event: ev.JobsReleased, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and topic.queue is not None:
        topic.queue.elapse(event.at)
        ready_at = event.ready_at if event.ready_at > event.at else 0
        topic.queue.release(event.seqs, ready_at)


def _jobs_extended(state: State, event: ev.JobsExtended, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and topic.queue is not None:
        topic.queue.elapse(event.at)
        topic.queue.extend(event.node, event.deadline, event.seqs)


def _checkpointed(state: State, event: ev.Checkpointed, segment: int) -> None:
    """Restate what no record says. In the middle of a replay most of it is known already."""
    for kept in event.topics:
        topic = state.instances.get(kept.topic)
        if topic is None:
            topic = Topic(kept.topic, kept.name, kept.config)
            state.topics[kept.name] = topic
            state.instances[kept.topic] = topic
        topic.head = max(topic.head, kept.head)
        topic.seqs_reserved = max(topic.seqs_reserved, kept.seqs_reserved)
        topic.cap_floor = max(topic.cap_floor, kept.cap_floor)
        topic.ttl_floor = max(topic.ttl_floor, kept.ttl_floor)
        topic.last_write_at = max(topic.last_write_at, kept.last_write_at)
        if topic.queue is not None:
            topic.queue.dead_lettered = max(topic.queue.dead_lettered, kept.dead_lettered)
    state.next_topic = max(state.next_topic, event.next_topic)
    state.next_lease = max(state.next_lease, event.next_lease)


def _segments_dropped(state: State, event: ev.SegmentsDropped, segment: int) -> None:
    """Of interest to the journal only."""


def _leases_checkpointed(state: State, event: ev.LeasesCheckpointed, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and topic.queue is not None:
        topic.queue.restore(event.cursor, event.jobs)
        highest = max((entry.lease for entry in event.jobs), default=0)
        state.next_lease = max(state.next_lease, highest + 1)


_APPLY: dict[type[Any], Callable[[State, Any, int], None]] = {
    ev.TopicCreated: _topic_created,
    ev.TopicConfigured: _topic_configured,
    ev.TopicDropped: _topic_dropped,
    ev.RecordsAppended: _records_appended,
    ev.RecordsMoved: _records_moved,
    ev.RecordsTrimmed: _records_trimmed,
    ev.RecordsDeleted: _records_deleted,
    ev.KeysRemembered: _keys_remembered,
    ev.JobsClaimed: _jobs_claimed,
    ev.JobsAcked: _jobs_acked,
    ev.JobsReleased: _jobs_released,
    ev.JobsExtended: _jobs_extended,
    ev.Checkpointed: _checkpointed,
    ev.LeasesCheckpointed: _leases_checkpointed,
    ev.SegmentsDropped: _segments_dropped,
}
