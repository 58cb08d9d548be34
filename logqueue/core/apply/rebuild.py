"""Restoring what only memory has into a state rebuilt from a log that has failed.

Owns: what of the present state is restored. The log has the records that are durable, and the held
jobs; leases, delivery counts, delays and errors come from memory, and so do topics that are never
logged. Must not know: why the log failed, files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logqueue.core.apply import ordering
from logqueue.core.apply.replay import has_own_place, rebuild_attributes
from logqueue.core.queue_topic import QueueTopic, as_log
from logqueue.core.state import State
from logqueue.events import JobSnapshot


def queues_to_restore(present: State, promised: State) -> frozenset[int]:
    """Numbers of the topics whose leases move to another state: see `restore_leases`."""
    return frozenset(topic.number for topic, _ in _settled(present, promised))


def restore_leases(present: State, promised: State) -> None:
    """Give the logged queues of a state the leases, counts, delays and errors the present knows.

    As long as there are jobs, so it is for a thread beside the event loop: the present state is
    only read, and those queues must not change meanwhile. What it leaves behind is put aside, to
    be freed bit by bit.

    Args:
        present: The state in memory.
        promised: The durable content of the log; changed in place, not visible to others.
    """
    for topic, known in _settled(present, promised):
        promised.discarded.extend(_settle(topic, known))


def _settled(present: State, promised: State) -> Iterator[tuple[QueueTopic, QueueTopic]]:
    for topic in promised.instances.values():
        known = present.instances.get(topic.number)
        if not isinstance(topic, QueueTopic) or not isinstance(known, QueueTopic):
            continue
        if topic.config.is_logged:
            yield topic, known


def restore_memory(present: State, promised: State, written: int, durable: int) -> None:
    """Bring a state up to what the present one knows beyond `restore_leases`, and release that.

    Args:
        present: The state in memory. Of no use afterwards.
        promised: The durable content of the log; changed in place.
        written, durable: How far the log has got; no reply may wait for more.
    """
    promised.next_lease = max(promised.next_lease, present.next_lease)
    promised.next_topic = max(promised.next_topic, present.next_topic)
    stayed = set()
    for topic in [*promised.instances.values()]:
        known = present.instances.pop(topic.number, None)
        if known is None:
            continue
        if not topic.config.is_logged:
            # Its config is what the log says: a change that was refused has not happened.
            known.config = topic.config
            if isinstance(known, QueueTopic):
                promised.discarded.extend(known.queue.keep_results(topic.config.results))
            known.is_on_disk = topic.is_on_disk
            if isinstance(known, QueueTopic) and not isinstance(topic, QueueTopic):
                promised.discarded.extend(known.queue.large_parts())
                known = as_log(known)
            known.mark_written = min(known.mark_written, written)
            known.mark_durable = min(known.mark_durable, durable)
            promised.topics[known.name] = promised.instances[known.number] = known
            stayed.add(known.number)
        else:
            topic.last_read_at = known.last_read_at
            topic.touched_at = known.touched_at
            promised.discarded.extend(known.release())
    for gone in present.instances.values():
        promised.discarded.extend(gone.release())
    promised.discarded.extend(present.discarded)
    promised.live_bytes = sum(topic.live_bytes for topic in promised.instances.values())
    promised.batches.settle(promised.instances.values())
    for router in promised.routers_by_number.values():
        before = present.routers_by_number.get(router.number)
        if router.dest in stayed and before is not None:
            # What it has copied is there.
            head = promised.instances[router.source].head
            router.cursor = min(max(router.cursor, before.cursor), head)
            router.forwarded = max(router.forwarded, before.forwarded)


def _settle(topic: QueueTopic, known: QueueTopic) -> list[list[Any] | dict[Any, Any]]:
    """Give the jobs of a queue the leases, counts, delays and errors that memory knows.

    A job that memory thinks done, but whose end the log does not have, keeps what the leases log
    says: its holder may be at work, or have just ended.

    Returns:
        What held what is no longer needed, to be freed bit by bit.
    """
    queue, before = topic.queue, known.queue
    cursor = min(max(before.cursor, queue.cursor), topic.head + 1)
    kept: dict[int, JobSnapshot] = {}
    for seq, job in queue.jobs.items():
        if job.live and seq not in queue.held and not known.holds(seq):
            kept[seq] = queue.snapshot(seq, job)
    given_up = []
    for seq, job in before.jobs.items():
        if not topic.holds(seq) or seq in queue.held:
            continue
        if seq in before.held:
            given_up.append(seq)
        kept[seq] = before.snapshot(seq, job)
    for seq, entry in [*kept.items()]:
        if seq >= cursor and not topic.is_timed(seq) and not has_own_place(entry):
            del kept[seq]
    for batch in topic.batches:
        if batch.first_seq >= cursor:
            break
        for seq in batch.live_seqs():
            is_known = seq >= cursor or seq in kept or seq in queue.held
            if not is_known and (batch.is_plain or not topic.is_timed(seq)):
                # It was never delivered, and the cursor must not pass over it.
                kept[seq] = JobSnapshot(seq, 0, 0, 0, 0, 0, "")
    left = queue.parts_of_leases()
    queue.restore(cursor, kept.values())
    queue.take_observations(before)
    if topic.attributes is not None:
        rebuild_attributes(topic, topic.attributes)
        ordering.rebuild(topic)
    for seq in given_up:
        if seq in kept:
            # Its hold was not reported yet, but no other worker should try it again.
            queue.hold(seq, kept[seq].deliveries, kept[seq].error, 0)
    return [*left, kept]
