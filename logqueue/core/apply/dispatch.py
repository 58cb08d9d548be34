"""The only code that changes the state, live and at replay alike. It never refuses.

Owns: one function per event. Must not know: why, who asked, the clock (every event brings `at`).

Replay may begin in the middle of history: older segments are gone, their live records come later as
`RecordsMoved`, and the leases log may be ahead of or behind the jobs log. So an event about a
record or a topic that is not there is not an error; it has nothing left to change.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from logqueue import events as ev
from logqueue.core.apply import replacing, staging
from logqueue.core.batch import Batch
from logqueue.core.leases import Grant
from logqueue.core.queue_topic import QueueTopic, become_queue, topic_of
from logqueue.core.record_attributes import RecordAttributeIndex
from logqueue.core.routers import RouterState, copies, origin
from logqueue.core.state import State
from logqueue.core.topic import Remembered, Topic
from logqueue.events.block import BlockView
from logqueue.model import limits


def apply(state: State, event: ev.AnyEvent, segment: int = 0, *, at_once: bool = True) -> None:
    """Change the state by one fact.

    Args:
        state: Changed in place.
        event: What happened.
        segment: The jobs-log segment that holds the event's frame; 0 when it is not logged.
        at_once: Leave nothing of it for later; see `apply_replacing`.
    """
    topic = state.instances.get(event.topic)
    if topic is not None and topic.replacing and type(event) not in replacing.LEAVES_UNFINISHED:
        replacing.finish(state, topic)
    before = topic.batches.size if topic is not None else 0
    _APPLY[type(event)](state, event, segment)
    if topic is not None:
        # No event but a checkpoint changes records of topics other than its own; a topic that is
        # dropped has none left.
        state.live_bytes += topic.batches.size - before
        if at_once and topic.replacing:
            replacing.finish(state, topic)


def elapse(topic: Topic, now: int, jobs_max: int | None = limits.LAPSED_PER_PASS_MAX) -> bool:
    """Let time act on some of a queue's leases and delays, and have some of the jobs come back that
    the cursor has passed. It is never logged, and no event rests on it: each says which jobs it is
    about, wherever they are.

    Returns:
        Whether there are more.
    """
    if not isinstance(topic, QueueTopic):
        return False
    queue = topic.queue
    if queue.returning:
        _put_some_back(topic, jobs_max)
    return queue.elapse(now, topic.config.retry_backoff, jobs_max) or queue.returning > 0


def count_leases(state: State, event: ev.AnyEvent) -> None:
    """Keep the numbers of leases that are not restored themselves from being given again."""
    for change in event.job_changes():
        if change.first_lease:
            state.next_lease = max(state.next_lease, change.first_lease + len(change.seqs))


def end_alone(topic: Topic, event: ev.AnyEvent) -> None:
    """Replay an end that only the leases log still tells of.

    The segment of the jobs log that said it was dropped. What was live then was written anew, so
    without this a finished job would merely take memory until the end of the replay, and a job that
    was held and released would come back under its old lease.
    """
    if not isinstance(topic, QueueTopic):
        return
    queue = topic.queue
    if isinstance(event, ev.JobsAcked):
        queue.finish(event.seqs)
    elif isinstance(event, ev.JobsHeld):
        # If it is still held, the jobs log says so again.
        seqs = [seq for seq, _, _ in event.jobs]
        queue.release(seqs, [0] * len(seqs))
    elif isinstance(event, ev.HoldsReleased):
        for seq in event.seqs:
            queue.let_go(seq, timed=False)


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
        if clean:
            topic.let_go_of_reserved()
        elif topic.config.durability == "disk":
            topic.head = max(topic.head, topic.seqs_reserved)
        if isinstance(topic, QueueTopic):
            _settle_leases(topic)
    for router in state.routers_by_number.values():
        # A source that is not logged has lost its head; what it gets from now on is to be copied.
        router.cursor = min(router.cursor, state.instances[router.source].head)


def _settle_leases(topic: QueueTopic) -> None:
    """Bring the projection in line with the records there are."""
    queue = topic.queue
    queue.drop_holds([seq for seq in queue.held if not topic.holds(seq)])
    cursor = min(queue.cursor, topic.head + 1)
    kept = [
        entry
        for entry in queue.kept()
        if topic.holds(entry.seq) and (entry.seq < cursor or topic.is_timed(entry.seq))
    ]
    queue.restore(cursor, kept)
    # A claim may be in no log.
    queue.returning = 1
    _put_some_back(topic, None)
    if topic.particulars is not None:
        settle_particulars(topic, topic.particulars)


def _put_some_back(topic: QueueTopic, jobs_max: int | None) -> None:
    """Have some of the jobs come back that are below the cursor, that nobody was given and that do
    not come by their own time."""
    queue = topic.queue
    found: list[int] = []
    scanned_max = limits.SCANNED_PER_PASS_MAX if jobs_max is not None else limits.U64_MAX
    goes_on_at = _find_passed(topic, found, scanned_max)
    queue.put_back(found, goes_on_at)


def _find_passed(topic: QueueTopic, found: list[int], scanned_max: int) -> int:
    """The jobs of `_put_some_back`; returns where to go on, 0 when that is nowhere."""
    queue = topic.queue
    start = queue.returning
    left = scanned_max
    for batch in topic.batches_from(start):
        if batch.first_seq >= queue.cursor:
            return 0
        if left <= 0:
            return batch.first_seq
        if not batch.is_plain and queue.passed.behind(batch.first_seq) > batch.last_seq:
            left -= 1
            continue
        for seq in batch.live_seqs(start):
            if seq >= queue.cursor:
                return 0
            if left <= 0:
                return seq
            left -= 1
            if seq not in queue.jobs and (batch.is_plain or not topic.is_timed(seq)):
                found.append(seq)
                left -= 1
    return 0


def introduce(state: State, event: ev.Checkpointed) -> None:
    """Make the topics of a checkpoint known, empty when they were not."""
    for kept in event.topics:
        if kept.topic not in state.instances:
            topic = topic_of(kept.topic, kept.name, kept.config)
            state.topics[kept.name] = state.instances[kept.topic] = topic


def settle_particulars(topic: QueueTopic, particulars: RecordAttributeIndex) -> None:
    """Schedule what the leases do not know, and find out anew which waiting job has which key."""
    queue = topic.queue
    if queue.keys is not None:
        queue.keys.clear()
    for batch in topic.batches:
        if not batch.is_plain:
            particulars.schedule(batch)
            if queue.keys is not None:
                for seq in batch.live_seqs():
                    if queue.is_waiting(seq):
                        queue.keys.begin_waiting(seq)


def _topic_created(state: State, event: ev.TopicCreated, segment: int) -> None:
    topic = topic_of(event.topic, event.name, event.config)
    state.topics[event.name] = topic
    state.instances[event.topic] = topic
    state.next_topic = max(state.next_topic, event.topic + 1)


def _topic_configured(state: State, event: ev.TopicConfigured, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None:
        if isinstance(topic, QueueTopic):
            topic.queue.change_rate(topic.config.claim_rate, event.config.claim_rate, event.at)
            if topic.queue.has_overdue and _lives_longer(topic, event):
                # Bit by bit, as time acts: see `elapse`.
                topic.queue.returning = 1
        topic.config = event.config
        topic.head = max(topic.head, event.head)
        if event.cap_floor > topic.cap_floor:
            topic.cap_floor = event.cap_floor
            state.discarded.extend(topic.evict(topic.floor))
        topic.is_trimming = topic.is_over
        if event.config.is_queue and not isinstance(topic, QueueTopic):
            become_queue(topic)
        # Records once logged need their removal logged, whatever the class is later.
        topic.is_on_disk = topic.is_on_disk or event.config.is_logged
        # A window that is shortened and lengthened again must not bring keys back.
        topic.forget_keys(event.at)


def _lives_longer(topic: Topic, event: ev.TopicConfigured) -> bool:
    """Whether records that are past their TTL may be within it again."""
    ttl_ms = event.config.ttl_ms
    return topic.config.ttl_ms != ttl_ms and (not ttl_ms or ttl_ms > topic.config.ttl_ms)


def _topic_dropped(state: State, event: ev.TopicRemoved, segment: int) -> None:
    topic = state.instances.pop(event.topic, None)
    if topic is not None and state.topics.get(topic.name) is topic:
        del state.topics[topic.name]
    if topic is not None:
        state.discarded.extend(topic.release())
        state.replacing.pop(topic.number, None)
    for router in state.routers_of(event.topic):
        state.remove_router(router)
    staging.forget_topic(state, event.topic)


def _records_appended(state: State, event: ev.RecordsAppended, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None or event.first_seq <= topic.head:
        return
    batch = Batch(event.block, event.first_seq, event.count, event.at, segment, event.hops)
    _take_in(state, topic, event, batch)
    if event.key is not None:
        write = Remembered(event.at, event.first_seq, event.count, topic.head, segment)
        topic.remember(event.key, write)


def _take_in(
    state: State, topic: Topic, event: ev.RecordsAppended | ev.RecordsForwarded, batch: Batch | None
) -> None:
    """Add a batch at the head; without one, only its seqs are taken."""
    if isinstance(topic, QueueTopic) and topic.queue.cursor > event.first_seq:
        topic.queue.rewind(event.first_seq)
    if batch is not None:
        # Logs from before the event had its size are still read.
        topic.insert(batch, event.size or BlockView(batch.block).size_total())
    topic.head = event.first_seq + event.count - 1
    topic.last_write_at = event.at
    topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)
    if event.cap_floor > topic.cap_floor:
        topic.cap_floor = event.cap_floor
        state.discarded.extend(topic.evict(event.cap_floor))
        topic.is_trimming = topic.is_over
        if isinstance(topic, QueueTopic):
            topic.queue.count("dropped", event.dropped)


def _records_replaced(state: State, event: ev.RecordsReplaced, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
    moved = [Batch.moved(block, segment) for block in event.blocks]
    # What the same write has evicted is not replaced.
    fresh = [part for batch in moved for part in batch.behind(topic.floor)]
    replacing.begin(state, topic, fresh, event.at)
    topic.head = max(topic.head, event.head)
    topic.is_on_disk = topic.is_on_disk or segment > 0
    topic.last_write_at = event.at
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
        batch = Batch.moved(event.block, segment, event.hops)
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
        state.discarded.extend(topic.evict(topic.floor))
        if isinstance(topic, QueueTopic):
            topic.queue.count("expired", event.expired)
            topic.queue.count("dropped", event.dropped)


def _records_deleted(state: State, event: ev.RecordsRemoved, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is None:
        return
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


def _router_created(state: State, event: ev.RouterCreated, segment: int) -> None:
    state.next_topic = max(state.next_topic, event.router + 1)
    if event.topic in state.instances and event.dest in state.instances:
        router = RouterState(event.router, event.name, event.topic, event.dest, event.options)
        router.cursor = event.cursor
        state.add_router(router)


def _router_configured(state: State, event: ev.RouterConfigured, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        router.options = event.options


def _router_dropped(state: State, event: ev.RouterRemoved, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        state.remove_router(router)


def _records_forwarded(state: State, event: ev.RecordsForwarded, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    topic = state.instances.get(event.topic)
    if router is None or topic is None:
        return
    _advance(router, event.cursor, event.count)
    if event.first_seq <= topic.head:
        return
    # Checkpoints of earlier versions may have left out a source that was dropped soon after.
    source = state.instances.get(router.source)
    if source is not None:
        replacing.finish(state, source)
    seqs = event.source_seqs
    block = copies(router, source, seqs) if source is not None else None
    batch = None
    if block is not None and source is not None:
        hops, oldest = origin(source, seqs)
        # The payload is where the originals are; without a frame of its own the copy has none.
        place = oldest if segment else 0
        batch = Batch(block, event.first_seq, event.count, event.at, place, hops + 1)
    _take_in(state, topic, event, batch)


def _router_advanced(state: State, event: ev.RouterAdvanced, segment: int) -> None:
    router = state.routers_by_number.get(event.router)
    if router is not None:
        _advance(router, event.cursor, event.forwarded)


def _advance(router: RouterState, cursor: int, forwarded: int) -> None:
    if cursor > router.cursor:
        router.cursor = cursor
        router.forwarded += forwarded


def _seqs_skipped(state: State, event: ev.SeqsSkipped, segment: int) -> None:
    topic = state.instances.get(event.topic)
    if topic is not None and event.first_seq > topic.head:
        first = event.first_seq
        topic.head = first + event.count - 1
        if topic.holes and topic.holes[-1][1] == first - 1:
            # A source trimmed little by little leaves one hole, which readers are told of once.
            first, _ = topic.holes.pop()
        topic.holes.append((first, topic.head))
        topic.seqs_reserved = max(topic.seqs_reserved, event.seqs_reserved)


def _jobs_claimed(state: State, event: ev.JobsClaimed, segment: int) -> None:
    lease = event.first_lease
    topic = state.queue_instance(event.topic)
    if topic is not None:
        queue = topic.queue
        queue.cursor = max(queue.cursor, event.cursor)
        queue.has_overdue = queue.has_overdue or event.overdue
        for node, deadline, stream, seqs in event.grants:
            queue.claim(Grant(node, deadline, stream, seqs), lease)
            lease += len(seqs)
        if topic.config.claim_rate is not None:
            queue.spend_rate(topic.config.claim_rate, lease - event.first_lease, event.at)
    state.next_lease = max(state.next_lease, lease)


def _jobs_acked(state: State, event: ev.JobsAcked, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        topic.queue.finish(event.seqs)
        topic.remove(sorted(event.seqs))
        topic.queue.count("acked", len(event.seqs) - event.orphans)


def _jobs_held(state: State, event: ev.JobsHeld, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        for seq, deliveries, error in event.jobs:
            topic.queue.hold(seq, deliveries, error, segment)


def _holds_released(state: State, event: ev.HoldsReleased, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        for seq in event.seqs:
            topic.queue.let_go(seq, timed=topic.is_timed(seq))


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


def _jobs_extended(state: State, event: ev.JobsExtended, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        topic.queue.extend(event.node, event.deadline, event.seqs)


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


def _checkpointed(state: State, event: ev.Checkpointed, segment: int) -> None:
    """Restate what no record says. In the middle of a replay most of it is known already."""
    introduce(state, event)
    for kept in event.topics:
        topic = state.instances[kept.topic]
        topic.head = max(topic.head, kept.head)
        topic.seqs_reserved = max(topic.seqs_reserved, kept.seqs_reserved)
        topic.cap_floor = max(topic.cap_floor, kept.cap_floor)
        topic.ttl_floor = max(topic.ttl_floor, kept.ttl_floor)
        # What has raised a floor is not in the log when it was of class `ephemeral`.
        before = topic.live_bytes
        state.discarded.extend(topic.evict(topic.floor))
        state.live_bytes += topic.live_bytes - before
        topic.last_write_at = max(topic.last_write_at, kept.last_write_at)
        topic.holes = list(kept.holes)
        if isinstance(topic, QueueTopic):
            queue = topic.queue
            queue.dead_lettered = max(queue.dead_lettered, kept.dead_lettered)
            for outcome, jobs in kept.finished.items():
                queue.count(outcome, jobs - queue.finished.get(outcome, 0))
    for edge in event.routers:
        router = state.routers_by_number.get(edge.router)
        if router is None:
            router = RouterState(edge.router, edge.name, edge.source, edge.dest, edge.options)
            state.add_router(router)
        router.cursor = max(router.cursor, edge.cursor)
        router.forwarded = max(router.forwarded, edge.forwarded)
    staging.keep_producers(state, event.producers)
    if event.clean:
        # As the start did that followed: older segments, which said more, may be gone by now.
        for topic in state.instances.values():
            topic.let_go_of_reserved()
    state.next_topic = max(state.next_topic, event.next_topic)
    state.next_lease = max(state.next_lease, event.next_lease)


def _segments_dropped(state: State, event: ev.SegmentsDropped, segment: int) -> None:
    """Of interest to the journal only."""


def _leases_checkpointed(state: State, event: ev.LeasesCheckpointed, segment: int) -> None:
    topic = state.queue_instance(event.topic)
    if topic is not None:
        topic.queue.adopt(event.cursor, event.jobs)
        highest = max((entry.lease for entry in event.jobs), default=0)
        state.next_lease = max(state.next_lease, highest + 1)


_APPLY: dict[type[Any], Callable[[State, Any, int], None]] = {
    ev.TopicCreated: _topic_created,
    ev.TopicConfigured: _topic_configured,
    ev.TopicRemoved: _topic_dropped,
    ev.RecordsAppended: _records_appended,
    ev.RecordsMoved: _records_moved,
    ev.RecordsTrimmed: _records_trimmed,
    ev.RecordsRemoved: _records_deleted,
    ev.RecordsFinished: _records_finished,
    ev.RecordsReplaced: _records_replaced,
    ev.KeysRemembered: _keys_remembered,
    ev.RouterCreated: _router_created,
    ev.RouterConfigured: _router_configured,
    ev.RouterRemoved: _router_dropped,
    ev.RecordsForwarded: _records_forwarded,
    ev.RouterAdvanced: _router_advanced,
    ev.SeqsSkipped: _seqs_skipped,
    ev.ChunkStaged: staging.chunk_staged,
    ev.ChunksCommitted: staging.chunks_committed,
    ev.EpochCommitted: staging.epoch_committed,
    ev.StagedDropped: staging.staged_dropped,
    ev.JobsClaimed: _jobs_claimed,
    ev.JobsAcked: _jobs_acked,
    ev.JobsReleased: _jobs_released,
    ev.JobsExtended: _jobs_extended,
    ev.JobsHeld: _jobs_held,
    ev.HoldsReleased: _holds_released,
    ev.BackoffChanged: _backoff_changed,
    ev.JobsRescheduled: _jobs_rescheduled,
    ev.Checkpointed: _checkpointed,
    ev.LeasesCheckpointed: _leases_checkpointed,
    ev.SegmentsDropped: _segments_dropped,
}
