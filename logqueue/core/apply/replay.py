"""What replay needs beyond `apply`: ends that one log alone tells of, and what the end settles."""

from __future__ import annotations

from logqueue import events as ev
from logqueue.core.apply import ordering
from logqueue.core.apply.elapse import put_some_back
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_attributes import JobAttributeIndex
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.events import JobSnapshot


def count_leases(state: State, event: ev.Event) -> None:
    """Keep the numbers of leases that are not restored themselves from being given again."""
    for change in event.job_changes():
        if change.first_lease:
            state.next_lease = max(state.next_lease, change.first_lease + len(change.seqs))


def end_alone(topic: Topic, event: ev.Event) -> None:
    """Replay an end that only the leases log still tells of.

    The segment of the jobs log that said it was dropped. What was live then was rewritten, so
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
            queue.release_hold(seq, timed=False)


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
            topic.drop_reserved()
        elif topic.config.durability == "disk":
            topic.head = max(topic.head, topic.seqs_reserved)
    settle_replay(state)


def settle_replay(state: State) -> None:
    """Settle what is there: leases of records that are gone, jobs that were never handed out.

    It may be done in the middle, where both logs have said the same, and the replay may go on after
    it: a writer does the same whenever it starts, and continues.
    """
    for topic in state.instances.values():
        if isinstance(topic, QueueTopic):
            _settle_leases(topic)
    state.batches.settle(state.instances.values())
    for router in state.routers_by_number.values():
        # A source that is not logged has lost its head; what it gets from now on is to be copied.
        router.cursor = min(router.cursor, state.instances[router.source].head)


def _settle_leases(topic: QueueTopic) -> None:
    """Bring the lease state in line with the existing records."""
    queue = topic.queue
    if queue.ended is not None:
        # Earlier lives have counted these.
        queue.ended.take_evicted()
    queue.drop_holds([seq for seq in queue.held if not topic.holds(seq)])
    cursor = min(queue.cursor, topic.head + 1)
    kept = [
        entry
        for entry in queue.kept()
        if topic.holds(entry.seq)
        and (entry.seq < cursor or topic.is_timed(entry.seq) or has_own_place(entry))
    ]
    queue.restore(cursor, kept)
    # A claim may be in no log.
    queue.returning = 1
    put_some_back(topic, None)
    if topic.attributes is not None:
        rebuild_attributes(topic, topic.attributes)
        ordering.rebuild(topic)


def has_own_place(entry: JobSnapshot) -> bool:
    """Whether a job that the cursor has not come to is not like a fresh one: an operator gave it
    another time, and it may have been handed out since."""
    return entry.ready_at > 0 or entry.deliveries > 0


def rebuild_attributes(topic: QueueTopic, attributes: JobAttributeIndex) -> None:
    """Schedule what the leases do not know, and rebuild which waiting job has which key."""
    queue = topic.queue
    if queue.keys is not None:
        queue.keys.clear()
    for batch in topic.batches:
        if not batch.is_plain:
            attributes.schedule(batch)
            if queue.keys is not None:
                for seq in batch.live_seqs():
                    if not queue.is_waiting(seq):
                        queue.keys.end_waiting(seq)
    if queue.keys is None:
        return
    # Who waits may have the key of one that is busy.
    for batch in topic.batches:
        if not batch.is_plain:
            for seq in batch.live_seqs():
                if queue.is_waiting(seq):
                    queue.keys.begin_waiting(seq)
