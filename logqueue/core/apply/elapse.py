"""Time acts on a queue: leases and delays that ran out, and jobs that come back.

Owns: what follows from the clock alone; it is never logged, and no event rests on it. Must not
know: events.
"""

from __future__ import annotations

from logqueue.core.apply import ordering
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.topic import Topic
from logqueue.model import limits


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
        put_some_back(topic, jobs_max)
    has_more = queue.elapse(now, topic.config.retry_backoff, jobs_max) or queue.returning > 0
    order = queue.order
    if order is not None and order.built_to is not None:
        some = None if jobs_max is None else ordering.ORDERED_PER_PASS_MAX
        if ordering.go_on(topic, order, some):
            queue.rests_to = 0
            return True
    return has_more


def put_some_back(topic: QueueTopic, jobs_max: int | None) -> None:
    """Return some jobs below the cursor to the queue: those that were never handed out and are not
    delayed."""
    queue = topic.queue
    found: list[int] = []
    scanned_max = limits.SCANNED_PER_PASS_MAX if jobs_max is not None else limits.U64_MAX
    next_at = _find_passed(topic, found, scanned_max)
    queue.put_back(found, next_at)


def _find_passed(topic: QueueTopic, found: list[int], scanned_max: int) -> int:
    """The jobs of `put_some_back`; returns where to go on, 0 when that is nowhere."""
    queue = topic.queue
    start = queue.returning
    left = scanned_max
    for batch in topic.batches_from(start):
        if batch.first_seq >= queue.cursor:
            return 0
        if left <= 0:
            return batch.first_seq
        if not batch.is_plain and queue.timed_runs.behind(batch.first_seq) > batch.last_seq:
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
