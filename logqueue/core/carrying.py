"""What memory knows beyond a log that has failed.

Owns: what of the present state goes over into the state that the log still stands for. The log
says which records there are, and which jobs are held; leases, delivery counts, delays and errors
are memory's, and so are topics that are never logged. Must not know: why the log failed, files.
"""

from __future__ import annotations

from logqueue.core.apply import elapse, settle_particulars
from logqueue.core.events import JobKept
from logqueue.core.leases import Job
from logqueue.core.projection import Queue
from logqueue.core.state import State
from logqueue.core.topic import Topic


def carry_over(present: State, promised: State, written: int, durable: int, now: int) -> None:
    """Bring a state up to what the present one knows, and let go of that.

    Args:
        present: The state in memory. Of no use afterwards.
        promised: What the log still stands for; changed in place.
        written, durable: How far the log has got; no reply may wait for more.
        now: The clock.
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
            known.is_on_disk = topic.is_on_disk
            if topic.queue is None:
                known.queue = None
            known.mark_written = min(known.mark_written, written)
            known.mark_durable = min(known.mark_durable, durable)
            promised.topics[known.name] = promised.instances[known.number] = known
            stayed.add(known.number)
        else:
            topic.last_read_at = known.last_read_at
            topic.touched_at = known.touched_at
            if topic.queue is not None and known.queue is not None:
                elapse(known, now)
                _carry_leases(topic, topic.queue, known, known.queue)
            promised.discarded.extend(known.release())
    for gone in present.instances.values():
        promised.discarded.extend(gone.release())
    promised.discarded.extend(present.discarded)
    promised.live_bytes = sum(topic.live_bytes for topic in promised.instances.values())
    for router in promised.routers_by_number.values():
        before = present.routers_by_number.get(router.number)
        if router.dest in stayed and before is not None:
            # What it has copied is there.
            head = promised.instances[router.source].head
            router.cursor = min(max(router.cursor, before.cursor), head)
            router.forwarded = max(router.forwarded, before.forwarded)


def _carry_leases(topic: Topic, queue: Queue, known: Topic, before: Queue) -> None:
    """Give the jobs of a queue the leases, counts, delays and errors that memory knows.

    A job that memory thinks done, but whose end the log does not have, keeps what the leases log
    says: its holder may be at work, or have just ended.
    """
    kept: dict[int, JobKept] = {}
    for entry in queue.kept():
        if not known.holds(entry.seq):
            kept[entry.seq] = entry
    given_up = []
    for seq, job in before.jobs.items():
        if not topic.holds(seq) or seq in queue.held:
            continue
        if seq in before.held:
            given_up.append(seq)
        kept[seq] = _entry(seq, job)
    cursor = min(max(before.cursor, queue.cursor), topic.head + 1)
    kept = {s: e for s, e in kept.items() if s < cursor or topic.is_timed(s)}
    known_seqs = kept.keys() | queue.held.keys()
    for batch in topic.batches:
        if batch.first_seq >= cursor:
            break
        for seq in batch.live_seqs():
            is_known = seq >= cursor or seq in known_seqs
            if not is_known and (batch.is_plain or not topic.is_timed(seq)):
                # Nobody ever had it, and the cursor must not pass over it.
                kept[seq] = JobKept(seq, 0, 0, 0, 0, 0, "")
    queue.restore(cursor, kept.values())
    queue.take_observations(before)
    if topic.particulars is not None:
        settle_particulars(topic, topic.particulars, queue)
    for seq in given_up:
        if seq in kept:
            # Nobody was told that it is held, but it is not for anybody else to try again.
            queue.hold(seq, kept[seq].deliveries, kept[seq].error, 0)


def _entry(seq: int, job: Job) -> JobKept:
    grant = job.grant
    if grant is None:
        return JobKept(seq, job.deliveries, 0, 0, 0, job.ready_at, "", job.error, job.given_back)
    return JobKept(
        seq,
        job.deliveries,
        job.lease,
        grant.deadline,
        grant.stream,
        0,
        grant.node,
        job.error,
        job.given_back,
    )
