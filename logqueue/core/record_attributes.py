"""What single records ask for that most records do not: their own time to live, a delay, a key.

Owns: the indexes over such records, and their upkeep as batches come and records go (called from
`Topic` only). A topic without such records has no `RecordAttributeIndex`. Must not know: commands,
events, the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sortedcontainers import SortedList

from logqueue.core import record_times
from logqueue.core.batch import Batch
from logqueue.core.keys import Lookup, WaitingKeys
from logqueue.core.queue_state import QueueState, large_parts
from logqueue.core.timed_runs import IsBare
from logqueue.events.block import DELAY, KEY, MAX_DELIVERIES, BlockView


class RecordAttributeIndex:
    """The indexes of one topic.

    Attributes:
        expiries: Moments of the records with a time to live of their own.
        has_bounds: Whether any record brought its own `max_deliveries`.
        bytes: About how much the log holds of these columns for live records.
    """

    __slots__ = ("_is_bare", "_lookup", "_queue", "bytes", "expiries", "has_bounds")

    def __init__(self, queue: QueueState | None, lookup: Lookup, is_bare: IsBare) -> None:
        self._is_bare = is_bare
        self._queue = queue
        self._lookup = lookup
        self.expiries: SortedList[int] = SortedList()
        self.has_bounds = False
        self.bytes = 0

    # -- queries ---------------------------------------------------------------------------------

    def is_due(self, now: int) -> bool:
        """Whether a record is past its own time to live, or a job is superseded."""
        queue = self._queue
        if queue is not None and queue.keys is not None and queue.keys.superseded:
            return True
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
        queue = self._queue
        self.has_bounds = self.has_bounds or bool(view.number_bits >> MAX_DELIVERIES & 1)
        for own in record_times.own_times(batch, view, indexes):
            if own.expires_at:
                self.expiries.add(record_times.moment(own.expires_at, own.seq))
            if own.key and queue is not None:
                if queue.keys is None:
                    queue.keys = WaitingKeys(self._lookup)
                if queue.is_waiting(own.seq):
                    queue.keys.begin(own.seq, own.key, own.written_at)
        if queue is not None:
            self.schedule(batch)

    def schedule(self, batch: Batch) -> None:
        """Schedule a batch's jobs by their own time, those without an entry in the queue state."""
        queue = self._queue
        assert queue is not None
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
            else:
                ready.append(own.seq)
        if timed:
            queue.schedule(delayed, ready)
        if timed == batch.count:
            queue.timed_runs.add(batch.first_seq, batch.last_seq, self._is_bare)

    def leave(self, batch: Batch, indexes: Sequence[int]) -> None:
        """Live records are about to go; the batch still has them."""
        self.weigh(batch, indexes, -1)
        queue = self._queue
        for own in record_times.own_times(batch, BlockView(batch.block), indexes):
            if own.expires_at:
                self.expiries.discard(record_times.moment(own.expires_at, own.seq))
            if queue is None:
                continue
            if queue.keys is not None:
                queue.keys.end(own.seq, own.key)
            if own.is_timed:
                queue.unschedule(own.seq, own.due_at)

    def forget_jobs(self) -> None:
        """The topic is no longer a queue."""
        self._queue = None

    def weigh(self, batch: Batch, indexes: Sequence[int], sign: int) -> None:
        """Count the bytes of some records' columns in (1) or out (-1)."""
        view = BlockView(batch.block)
        columns = 8 * (view.number_bits >> DELAY).bit_count()
        column = view.column(KEY) if len(indexes) == batch.count else None
        texts = column if column is not None else (view.text(KEY, i) for i in indexes)
        keys = sum(map(len, texts))
        self.bytes += sign * (columns * len(indexes) + keys)
