"""What single records ask for that most records do not: their own time to live, a delay, a key, a
priority, a group.

Owns: the indexes over such records, and their upkeep as batches come and records go (called from
`Topic` only). A topic without such records has no index. Must not know: commands,
events, the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sortedcontainers import SortedList

from logqueue.core import record_times
from logqueue.core.batch import Batch
from logqueue.core.claim_order import ClaimOrder, OrderOf
from logqueue.core.keys import Lookup, WaitingKeys
from logqueue.core.queue_state import QueueState, large_parts
from logqueue.core.record_times import Own
from logqueue.core.timed_runs import IsBare
from logqueue.events.block import DELAY, FOLLOW, KEY, MAX_DELIVERIES, TEXTS, UPDATED_AT, BlockView
from logqueue.events.follow import may_have_steps, members_in

NewOrder = Callable[[OrderOf], ClaimOrder | None]
"""Makes the order of a queue when its first job with a priority or a group comes; None when that
does not count there."""


class RecordAttributeIndex:
    """The indexes of one topic.

    Attributes:
        expiries: Moments of the records with a time to live of their own.
        has_bounds: Whether any record brought its own `max_deliveries`.
        has_fates: Whether any record had a key, was replaced, or said what follows it.
        has_steps: Whether any record may have been followed by the steps of a chain.
        members: How many live records are in which batch.
        moved: What has changed of that and was not taken over yet, by batch.
        bytes: About how much the log holds of these columns for live records.
    """

    __slots__ = ("bytes", "expiries", "has_bounds", "has_fates", "has_steps", "members", "moved")

    def __init__(self) -> None:
        self.expiries: SortedList[int] = SortedList()
        self.has_bounds = False
        self.has_fates = False
        self.has_steps = False
        self.members: dict[str, int] = {}
        self.moved: dict[str, int] = {}
        self.bytes = 0

    # -- queries ---------------------------------------------------------------------------------

    def is_due(self, now: int) -> bool:
        """Whether a record is past its own time to live, or a job is superseded."""
        return self.has_expired(now)

    def has_expired(self, now: int) -> bool:
        """Whether a record is past its own time to live."""
        return bool(self.expiries and record_times.time_of(self.expiries[0]) < now)

    def expired(self, now: int, limit: int | None = None) -> list[int]:
        """Seqs of live records past their own time to live, soonest first."""
        found: list[int] = []
        for packed in self.expiries:
            if record_times.time_of(packed) >= now or len(found) == limit:
                break
            found.append(record_times.seq_of(packed))
        return found

    def release(self) -> list[list[Any] | dict[Any, Any]]:
        """Everything that is large, to be freed bit by bit; it must no longer be used."""
        return [*large_parts(self.expiries)]

    # -- changes (by Topic only) -----------------------------------------------------------------

    def enter(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Records have come."""
        self.weigh(batch, indexes, 1)
        view = BlockView(batch.block)
        self.has_bounds = self.has_bounds or bool(view.number_bits >> MAX_DELIVERIES & 1)
        if view.head[1] >> FOLLOW & 1:
            self.has_steps = self.has_steps or may_have_steps(view)
            self._count_members(view, indexes, 1)
        has_texts = view.head[1] & (1 << KEY | 1 << FOLLOW)
        has_fates = bool(has_texts or view.number_bits >> UPDATED_AT & 1)
        self.has_fates = self.has_fates or has_fates
        for own in record_times.own_times(batch, view, indexes):
            self._enter(own)

    def _enter(self, own: Own) -> None:
        if own.expires_at:
            self.expiries.add(record_times.moment(own.expires_at, own.seq))

    def leave(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Live records are about to go; the batch still has them."""
        self.weigh(batch, indexes, -1)
        view = BlockView(batch.block)
        if view.head[1] >> FOLLOW & 1:
            self._count_members(view, indexes, -1)
        for own in record_times.own_times(batch, view, indexes):
            self._leave(own)

    def _count_members(self, view: BlockView, indexes: Sequence[int], sign: int) -> None:
        for name, count in members_in(view, indexes).items():
            members = self.members.get(name, 0) + sign * count
            if members:
                self.members[name] = members
            else:
                self.members.pop(name, None)
            self.moved[name] = self.moved.get(name, 0) + sign * count

    def _leave(self, own: Own) -> None:
        if own.expires_at:
            self.expiries.discard(record_times.moment(own.expires_at, own.seq))

    def weigh(self, batch: Batch, indexes: Sequence[int], sign: int) -> None:
        """Count the bytes of some records' columns in (1) or out (-1)."""
        view = BlockView(batch.block)
        columns = 8 * (view.number_bits >> DELAY).bit_count()
        size = 0
        for text in TEXTS[KEY:]:
            if view.head[1] >> text & 1:
                column = view.column(text) if len(indexes) == batch.count else None
                texts = column if column is not None else (view.text(text, i) for i in indexes)
                size += sum(map(len, texts))
        self.bytes += sign * (columns * len(indexes) + size)


class JobAttributeIndex(RecordAttributeIndex):
    """The indexes of one queue: those of its records, its waiting keys, its timed jobs, and those
    with a priority or a group.

    Attributes:
        has_ordered: Whether any job ever had a priority or a group.
    """

    __slots__ = ("_is_bare", "_lookup", "_new_order", "_queue", "has_ordered")

    def __init__(
        self, queue: QueueState, lookup: Lookup, is_bare: IsBare, new_order: NewOrder
    ) -> None:
        super().__init__()
        self._new_order = new_order
        self.has_ordered = False
        self._is_bare = is_bare
        self._queue = queue
        self._lookup = lookup

    def is_due(self, now: int) -> bool:
        """Whether a record is past its own time to live, or a job is superseded."""
        keys = self._queue.keys
        return bool(keys is not None and keys.superseded) or self.has_expired(now)

    def enter(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Records have come."""
        super().enter(batch, indexes)
        self.schedule(batch)

    def _enter(self, own: Own) -> None:
        super()._enter(own)
        queue = self._queue
        if own.key:
            if queue.keys is None:
                queue.keys = WaitingKeys(self._lookup)
            if queue.is_waiting(own.seq):
                queue.keys.begin(own.seq, own.key, own.written_at)
            else:
                queue.keys.keep_busy(own.seq, own.key, own.unique)
        if own.priority or own.group:
            self._join(OrderOf(own.seq, own.priority, own.group))

    def _join(self, job: OrderOf) -> None:
        """A job has come that has a priority or a group."""
        self.has_ordered = True
        queue = self._queue
        order = queue.order
        if order is None:
            order = queue.order = self._new_order(job)
        if order is not None and order.owns(job) and order.knows(job):
            order.join(job)

    def schedule(self, batch: Batch) -> None:
        """Schedule a batch's jobs by their own time, those without an entry in the queue state."""
        queue, order = self._queue, self._queue.order
        delayed: list[int] = []
        ready: list[int] = []
        timed = 0
        indexes = [*batch.live_indexes()]
        for own in record_times.own_times(batch, BlockView(batch.block), indexes):
            if not own.is_timed:
                continue
            timed += 1
            if own.seq in queue.jobs:
                continue
            if own.due_at > own.written_at:
                delayed.append(record_times.moment(own.due_at, own.seq))
                continue
            job = _ordered(own, order) if order is not None else None
            if order is None or job is None:
                ready.append(own.seq)
            elif order.knows(job):
                order.admit(job)
        if timed:
            queue.schedule(delayed, ready)
        if timed == batch.count:
            queue.timed_runs.add(batch.first_seq, batch.last_seq, self._is_bare)

    def _leave(self, own: Own) -> None:
        super()._leave(own)
        queue = self._queue
        if queue.keys is not None:
            queue.keys.end(own.seq, own.key)
        if not own.is_timed:
            return
        order = queue.order
        job = _ordered(own, order) if order is not None else None
        if order is not None and job is not None and order.knows(job):
            order.part(job)
            queue.undelay(own.seq, own.due_at)
        else:
            queue.unschedule(own.seq, own.due_at)

    def without_jobs(self) -> RecordAttributeIndex:
        """The indexes of the same records in a log; these must no longer be used."""
        index = RecordAttributeIndex()
        index.expiries, index.has_bounds, index.bytes = self.expiries, self.has_bounds, self.bytes
        index.has_fates = self.has_fates
        index.has_steps = self.has_steps
        index.members, index.moved = self.members, self.moved
        return index


def _ordered(own: Own, order: ClaimOrder) -> OrderOf | None:
    """What an order knows a job by; None for a job that it does not own."""
    if not (own.priority or own.group):
        return None
    job = OrderOf(own.seq, own.priority, own.group)
    return job if order.owns(job) else None
