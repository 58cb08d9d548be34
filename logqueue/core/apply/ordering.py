"""Making the order of claims of a queue for the jobs that are there, and moving it by claims.

Owns: how an order comes to know jobs that came before it. Must not know: the rules of any order,
why the config changed.

After a change of `groups` it is done bit by bit, as time acts on the queue; claims wait meanwhile.
No event depends on how far that is: each names its jobs.
"""

from __future__ import annotations

from itertools import chain

from logqueue import events as ev
from logqueue.core.claim_order import ClaimOrder, OrderOf
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import own_times
from logqueue.core.state import State
from logqueue.events.block import BlockView

ORDERED_PER_PASS_MAX = 500
"""Jobs that one step takes into an order."""


def begin(state: State, topic: QueueTopic) -> None:
    """Make another order: other groups are configured."""
    queue = topic.queue
    if queue.order is not None:
        state.discarded.extend(queue.order.release())
    queue.order = None
    if not topic.has_ordered:
        return
    queue.order = topic.new_order()
    queue.order.built_to = 1
    # `elapse` has something to do until it is made.
    queue.rests_to = 0


def go_on(topic: QueueTopic, order: ClaimOrder, jobs_max: int | None) -> bool:
    """Take some of the jobs into an order that is being made; whether there are more."""
    assert order.built_to is not None
    left = jobs_max
    for batch in topic.batches_from(order.built_to):
        if not batch.is_plain:
            indexes = [i for i in batch.live_indexes() if batch.seq_at(i) >= order.built_to]
            for own in own_times(batch, BlockView(batch.block), indexes):
                order.built_to = own.seq + 1
                if own.priority or own.group:
                    _take_in(topic, order, OrderOf(own.seq, own.priority, own.group))
                if left is not None:
                    left -= 1
                    if left <= 0:
                        return True
        elif left is not None:
            left -= 1
            if left <= 0:
                order.built_to = batch.last_seq + 1
                return True
    order.built_to = None
    return False


def _take_in(topic: QueueTopic, order: ClaimOrder, job: OrderOf) -> None:
    queue = topic.queue
    if not order.owns(job):
        if topic.is_claimable(job.seq):
            topic.claimable_again(job.seq)
        return
    order.join(job)
    entry = queue.jobs.get(job.seq)
    if entry is not None and entry.grant is not None:
        order.leased(job)
    elif topic.is_claimable(job.seq):
        queue.reclaim.discard(job.seq)
        order.admit(job)


def rebuild(topic: QueueTopic) -> None:
    """Make the order of a queue again, for all the jobs there are, at once. It is not needed where
    no job belongs to it."""
    queue = topic.queue
    queue.order = None
    if not topic.has_ordered:
        return
    queue.order = order = topic.new_order()
    order.built_to = 1
    go_on(topic, order, None)
    if order.is_bare:
        queue.order = None


def claimed(topic: QueueTopic, order: ClaimOrder, event: ev.JobsClaimed) -> None:
    """Jobs were handed out."""
    seqs = sorted(chain.from_iterable(seqs for _, _, _, seqs in event.grants))
    order.claimed(topic.orders_of(seqs), event.at)
    due = order.next_due()
    if due is not None:
        # A group may have spent its rate, and comes back before any lease runs out.
        topic.queue.rests_to = min(topic.queue.rests_to, due - 1)
