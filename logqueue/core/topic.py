"""One topic: its live batches, its floors, its idempotency keys.

Owns: the structures and the few ways they change (called from `apply` only) or are looked at.
Must not know: commands, leases beyond telling the queue which records are gone, the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from logqueue.core import limits
from logqueue.core.batch import Batch, Record
from logqueue.core.block import View
from logqueue.core.config import TopicConfig
from logqueue.core.projection import Queue


class Remembered(NamedTuple):
    """What a repeated write with the same idempotency key is answered with."""

    at: int
    first_seq: int
    records: int
    head: int
    segment: int


class Topic:
    """The state of one topic instance.

    Attributes:
        number: Identity of the instance; a recreated topic gets another one.
        head: Highest seq ever assigned, 0 when none.
        live: Records not removed; `live_bytes` their size as the limits count it.
        cap_floor, ttl_floor: Highest seq that caps, or TTL, have evicted from the front.
        seqs_reserved: Seqs up to here were promised durably (class `disk` only).
        queue: The lease projection, for queues.
        last_read_at: When somebody last read; an observation, not part of the replayed state.
        touched_at: The same for what the advisory priority goes by, which a list may refresh too.
        is_on_disk: Whether the log holds, or may hold, records of this topic.
        mark_written, mark_durable: Jobs-log positions that must be written, or synced, before a
            reply computed from this topic may leave; kept by the engine, not replayed.
    """

    __slots__ = (
        "batches", "cap_floor", "config", "head", "is_on_disk", "keys", "last_read_at",
        "last_write_at", "live", "live_bytes", "mark_durable", "mark_written", "name", "number",
        "queue", "seqs_reserved", "touched_at", "ttl_floor",
    )  # fmt: skip

    def __init__(self, number: int, name: str, config: TopicConfig) -> None:
        self.number = number
        self.name = name
        self.config = config
        self.head = 0
        self.live = 0
        self.live_bytes = 0
        self.cap_floor = 0
        self.ttl_floor = 0
        self.seqs_reserved = 0
        self.last_write_at = 0
        self.last_read_at = 0
        self.touched_at = 0
        self.is_on_disk = config.is_logged
        self.mark_written = 0
        self.mark_durable = 0
        self.batches: SortedKeyList[Batch] = SortedKeyList(key=attrgetter("first_seq"))
        self.keys: dict[str, Remembered] = {}
        self.queue: Queue | None = Queue() if config.is_queue else None

    # -- looking ---------------------------------------------------------------------------------

    @property
    def floor(self) -> int:
        """Highest seq involuntarily removed from the front."""
        return max(self.cap_floor, self.ttl_floor)

    @property
    def earliest_seq(self) -> int:
        """Lowest seq not yet removed from the front; head + 1 when the topic is empty."""
        if not self.live:
            return self.head + 1
        first: Batch = self.batches[0]
        return first.first_live_seq()

    @property
    def ready(self) -> int:
        """Jobs claimable now. Only for queues, and only as of the last `elapse`."""
        queue = self.queue
        assert queue is not None
        ready = self.live - queue.leased - len(queue.delayed)
        assert ready >= 0, "more jobs leased or delayed than there are"
        return ready

    def effective_priority(self, now: int) -> int:
        """Advisory priority, -1000 to 1000: as configured, else decaying since the last read."""
        config = self.config
        if config.priority is not None:
            return min(max(config.priority, -limits.PRIORITY_MAX), limits.PRIORITY_MAX)
        idle_ms = now - self.touched_at
        if not config.auto_priority or not self.touched_at or idle_ms > 300_000:
            return 0
        return round(500 * math.pow(2.0, -max(idle_ms, 0) / 30_000))

    def batch_of(self, seq: int) -> Batch | None:
        """The batch whose range holds this seq, if any."""
        index = self.batches.bisect_key_right(seq) - 1
        if index < 0:
            return None
        batch: Batch = self.batches[index]
        return batch if seq <= batch.last_seq else None

    def batches_from(self, seq: int) -> Iterator[Batch]:
        """Batches that may hold live records with this seq or a higher one, ascending."""
        index = max(self.batches.bisect_key_right(seq) - 1, 0)
        return islice(self.batches, index, None)

    def holds(self, seq: int) -> bool:
        """Whether a record lives."""
        batch = self.batch_of(seq)
        return batch is not None and batch.index_of(seq) >= 0

    def records(self, seqs: Sequence[int]) -> Iterator[Record]:
        """Live records among ascending seqs; the rest is passed over."""
        at = 0
        while at < len(seqs):
            batch = self.batch_of(seqs[at])
            if batch is None:
                at += 1
                continue
            indexes = []
            while at < len(seqs) and seqs[at] <= batch.last_seq:
                index = batch.index_of(seqs[at])
                if index >= 0:
                    indexes.append(index)
                at += 1
            yield from batch.at(indexes)

    def live_seqs(self, start: int, count: int, expired_before: int = 0) -> list[int]:
        """Up to `count` live seqs from `start` on, leaving out records older than a time."""
        taken: list[int] = []
        for batch in self.batches_from(start):
            seqs = batch.live_seqs(start)
            if expired_before:
                seqs = [s for s in seqs if batch.ts_at(batch.index_of(s)) >= expired_before]
            taken.extend(seqs[: count - len(taken)])
            if len(taken) == count:
                break
        return taken

    def is_due(self, now: int) -> bool:
        """Whether the front holds records past their TTL."""
        return bool(
            self.config.ttl_ms and self.live and self.batches[0].ts < self.expired_before(now)
        )

    def expired_before(self, now: int) -> int:
        """Records accepted before this time are past their TTL at `now`; 0 when none can be.

        A record is expired when now - ts > ttl_ms, strictly.
        """
        ttl_ms = self.config.ttl_ms
        return max(now - ttl_ms, 0) if ttl_ms else 0

    def expired_floor(self, before: int) -> int:
        """Last seq of the front's unbroken run of records older than a time; 0 when none is."""
        floor = 0
        if before:
            for batch in self.batches:
                for index in batch.live_indexes():
                    if batch.ts_at(index) >= before:
                        return floor
                    floor = batch.seq_at(index)
                floor = max(floor, batch.last_seq)
        return floor

    def remembered(self, key: str, now: int) -> Remembered | None:
        """The earlier write under an idempotency key, while its window lasts."""
        found = self.keys.get(key)
        if found is None or now - found.at > self.config.idempotency_window_ms:
            return None
        return found

    # -- changing (from apply only) --------------------------------------------------------------

    def insert(self, batch: Batch, size: int) -> None:
        """Add a batch with all its records live; `size` as the limits count it."""
        assert batch.live == batch.count
        assert size > 0
        self.batches.add(batch)
        self.live += batch.live
        self.live_bytes += size

    def remove(self, seqs: Sequence[int]) -> list[int]:
        """Remove records; seqs that are not live are passed over.

        Args:
            seqs: Ascending, without repeats.

        Returns:
            The seqs that were live.
        """
        removed: list[int] = []
        at = 0
        while at < len(seqs):
            seq = seqs[at]
            batch = self.batch_of(seq)
            if batch is None:
                at += 1
                continue
            end = at + batch.count
            whole = batch.is_whole and seq == batch.first_seq and end <= len(seqs)
            if whole and seqs[end - 1] == batch.last_seq:
                # As many as there are, ascending without repeats: this slice is the whole batch.
                removed.extend(seqs[at:end])
                self._drop(batch)
                at = end
                continue
            at = self._remove_within(batch, seqs, at, removed)
        return removed

    def _remove_within(self, batch: Batch, seqs: Sequence[int], at: int, removed: list[int]) -> int:
        view = View(batch.block)
        while at < len(seqs) and seqs[at] <= batch.last_seq:
            index = batch.index_of(seqs[at])
            if index >= 0:
                removed.append(seqs[at])
                self.live -= 1
                self.live_bytes -= view.size(index)
                batch.remove(index)
            at += 1
        if not batch.live:
            self.batches.remove(batch)
        return at

    def _drop(self, batch: Batch) -> None:
        """Remove a batch of which every record is live."""
        self.batches.remove(batch)
        self.live -= batch.live
        self.live_bytes -= View(batch.block).size_total()

    def evict(self, floor: int) -> None:
        """Remove every record up to and with `floor`."""
        gone: list[int] = []
        for batch in self.batches:
            if batch.first_seq > floor:
                break
            gone.extend(s for s in batch.live_seqs() if s <= floor)
        if gone:
            self.remove(gone)
            if self.queue is not None:
                self.queue.forget(gone)

    def replace(self, first: int, last: int, batch: Batch) -> None:
        """Put a moved batch in the place of every batch in its range of seqs."""
        for old in list(self.batches_from(first)):
            if old.first_seq > last:
                break
            if old.last_seq >= first:
                self.batches.remove(old)
                self.live -= old.live
                view = View(old.block)
                self.live_bytes -= sum(view.size(i) for i in old.live_indexes())
        self.insert(batch, View(batch.block).size_total())

    def remember(self, key: str, write: Remembered) -> None:
        """Keep an idempotency key; those past their window go, oldest first, so this is cheap."""
        self.keys.pop(key, None)
        self.keys[key] = write
        self.forget_keys(write.at)

    def forget_keys(self, now: int) -> None:
        """Let go of keys past their window."""
        before = now - self.config.idempotency_window_ms
        stale = []
        for other, earlier in self.keys.items():
            if earlier.at >= before:
                break
            stale.append(other)
        for other in stale:
            del self.keys[other]
