"""A topic of type queue: the records of a topic and the state of its jobs, always together.

Owns: what a queue does beyond a topic when records come and go, and how a topic gets its type.
Must not know: commands, events, the log.

Code about jobs takes a `QueueTopic`; code about both types narrows a `Topic` with `isinstance`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from logqueue.core.batch import Batch
from logqueue.core.claim_order import ClaimOrder, OrderOf
from logqueue.core.group_orders import order_for
from logqueue.core.places import Ageing
from logqueue.core.queue_state import QueueState
from logqueue.core.record_attributes import JobAttributeIndex
from logqueue.core.topic import Topic
from logqueue.events.block import GROUP, PRIORITY, BlockView
from logqueue.model import limits
from logqueue.model.config import TopicOptions


class QueueTopic(Topic):
    """The state of one queue instance.

    Attributes:
        queue: Its jobs: leases, delays, holds, the cursor.
        attributes: As of a topic, with its keys and timed jobs.
    """

    # No slots of its own: see `become_queue`.
    __slots__ = ()

    queue: QueueState
    attributes: JobAttributeIndex | None

    def __init__(self, number: int, name: str, config: TopicOptions) -> None:
        super().__init__(number, name, config)
        self.queue = QueueState()
        self.queue.keep_results(config.results)

    @property
    def ready(self) -> int:
        """Jobs claimable now, as of the last `elapse`."""
        queue = self.queue
        ready = self.batches.live - queue.leased - len(queue.delayed) - len(queue.held)
        assert ready >= 0, "more jobs leased, delayed or held than there are"
        return ready

    @property
    def removed_max(self) -> int:
        """As for a log; fewer if what became of the jobs is kept."""
        at_most = super().removed_max
        return at_most if self.queue.ended is None else min(at_most, limits.ENDED_PER_PASS_MAX)

    @property
    def evicted_max(self) -> int | None:
        """As for a log, unless there are jobs with a state of their own, or ends to report."""
        queue = self.queue
        is_plain = not queue.jobs and not queue.end_listeners
        return super().evicted_max if is_plain else self.removed_max

    @property
    def has_ordered(self) -> bool:
        """Whether any job ever had a priority or a group."""
        return self.attributes is not None and self.attributes.has_ordered

    def new_order(self) -> ClaimOrder:
        """An order of claims for this queue, without jobs."""
        return order_for(self, self.config.groups)

    def _order_with(self, job: OrderOf) -> ClaimOrder | None:
        return self.new_order() if job.priority or self.config.groups is not None else None

    def orders_of(self, seqs: Sequence[int]) -> list[OrderOf]:
        """What the order of claims depends on, of the live jobs among ascending seqs."""
        found: list[OrderOf] = []
        for batch, places in self.batches.places(seqs):
            there = map(batch.seq_at, places)
            if batch.is_plain:
                found += map(OrderOf, there, repeat(0), repeat(b""))
                continue
            view = BlockView(batch.block)
            priorities: Iterable[int] = view.numbers_at(PRIORITY, places) or repeat(0)
            groups: Iterable[bytes] = view.texts_at(GROUP, places) or repeat(b"")
            found += map(OrderOf, there, priorities, groups)
        return found

    def is_claimable(self, seq: int) -> bool:
        """Whether a live job that comes by itself is neither leased nor held nor delayed."""
        queue = self.queue
        job = queue.jobs.get(seq)
        if job is None:
            return not queue.is_delayed(seq, self.due_of(seq))
        return job.grant is None and not job.ready_at and seq not in queue.held

    def claimable_again(self, seq: int) -> None:
        """A job that the order of claims has kept back is claimable by its seq."""
        if seq not in self.queue.reclaim:
            self.queue.reclaim.add(seq)

    def keep_back(self, seq: int) -> None:
        """Such a job is not claimable, or no longer."""
        self.queue.reclaim.discard(seq)

    def ageing(self, now: int) -> Ageing | None:
        """How waiting raises jobs; None when it does not."""
        step_ms = self.config.priority_ageing_ms
        return Ageing(now, step_ms, self.batch_of) if step_ms else None

    def _new_attributes(self) -> JobAttributeIndex:
        return JobAttributeIndex(self.queue, self.key_of, self.is_bare, self._order_with)

    def _evicted(
        self, floor: int, count: int, cut: Sequence[Sequence[Batch]], seqs: Sequence[int]
    ) -> None:
        jobs = self.queue.jobs
        if len(jobs) < count:
            self.queue.forget([seq for seq in jobs if seq <= floor])
        else:
            batches = chain.from_iterable(cut)
            self.queue.forget([*chain.from_iterable(b.live_seqs() for b in batches), *seqs])

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """As for a log; the state of the jobs is released, too."""
        parts = [*super().release(), *self.queue.large_parts()]
        self.queue = QueueState()
        return parts


def topic_of(number: int, name: str, config: TopicOptions) -> Topic:
    """A new topic, of the type that its config says."""
    return (QueueTopic if config.is_queue else Topic)(number, name, config)


def become_queue(topic: Topic) -> None:
    """Turn a log that was never written to into a queue, in place.

    Subscriptions and followers keep the topic itself, so it must stay the same object.
    """
    assert topic.attributes is None, "a log with records cannot become a queue"
    topic.__class__ = QueueTopic
    assert isinstance(topic, QueueTopic)
    topic.queue = QueueState()
    topic.queue.keep_results(topic.config.results)


def as_log(topic: QueueTopic) -> Topic:
    """A log with the records of a queue, when the server's log does not have its `become_queue`.

    The queue is left without jobs, for those that still refer to it.
    """
    log = Topic(topic.number, topic.name, topic.config)
    for slot in Topic.__slots__:
        if slot != "queue":
            setattr(log, slot, getattr(topic, slot))
    topic.queue = QueueState()
    if topic.attributes is not None:
        log.attributes = topic.attributes.without_jobs()
    return log
