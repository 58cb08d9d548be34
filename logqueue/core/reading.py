"""Reading a topic behind a cursor: which records come next, and which loss to report.

Owns: cursor rules, budgets, the reader's node filter, tombstones. Changes nothing. A page names
records by their places in batches and copies none of them, so that readers can share one encoding.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from logqueue.core.batch import Batch, Run
from logqueue.core.record_times import expires_at
from logqueue.core.topic import Topic
from logqueue.errors import StorageUnreadable
from logqueue.events.block import NODE, BlockView, size_before, size_between

SKIPPED_MAX = 50_000
"""Records that one read skips at most: a filter that matches nothing must not keep all
others waiting. The page then ends early, with its cursor behind the last one."""


class RemovedRange(NamedTuple):
    """Loss the reader could not prevent; a delete or an ack never makes one.

    Attributes:
        gap_from, gap_to: The missing seqs, inclusive.
        reason: "cap", "ttl", "mixed", "recreated" or "source_trim".
        missed_estimate: Upper bound of the records missed.
        earliest_seq, head_seq: Where reading continues, and the head.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class ReadPage(NamedTuple):
    """What one read yields.

    Attributes:
        runs: The records delivered, by their places; ascending.
        next_from_seq: Last seq examined; the cursor of the next read.
        scanned: Records looked at, delivered or not.
    """

    runs: list[Run]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: RemovedRange | None
    scanned: int

    @property
    def says_nothing(self) -> bool:
        """No record, no loss, and the reader is at the head: a long poll keeps waiting."""
        at_head = self.next_from_seq == self.head_seq
        return not self.runs and self.tombstone is None and at_head


def read(
    topic: Topic,
    from_seq: int,
    now: int,
    *,
    records_max: int,
    bytes_max: int,
    nodes: Collection[bytes] = (),
) -> ReadPage:
    """Read the records behind a cursor.

    Args:
        topic: Read only.
        from_seq: Last seq already processed; 0 for the start.
        now: The clock; records past their TTL are never returned.
        records_max: Delivered records at most.
        bytes_max: Stop before the record that would exceed this; one is always delivered.
        nodes: JSON strings; records written by these nodes are passed over.

    Returns:
        The page. No data was read for it: see `readable` for what to do when that fails.
    """
    tombstone = _tombstone(topic, from_seq)
    start = from_seq + 1
    if tombstone is not None:
        start = 1 if tombstone.reason == "recreated" else tombstone.gap_to + 1
    scan = _Scan(topic, now, records_max, bytes_max, nodes)
    if not topic.holes:
        examined = scan.over(start, topic.head)
    else:
        hole, stop = _hole_behind(topic, start)
        examined = scan.over(start, stop)
        if hole is not None and tombstone is None and not scan.runs and examined >= stop:
            first, last = start, hole[1]
            tombstone = RemovedRange(
                first, last, "source_trim", last - first + 1, last + 1, topic.head
            )
            examined = scan.over(last + 1, _hole_behind(topic, last + 1)[1])
    scanned = scan.count + scan.skipped
    return ReadPage(scan.runs, examined, topic.head, topic.earliest_seq, tombstone, scanned)


def readable(topic: Topic, page: ReadPage) -> ReadPage:
    """A page that ends before the first record whose data cannot be read.

    Only for a page whose encoding failed: looking at the data of each page first would cost readers
    of data in memory more than the rest of the read.

    Raises:
        StorageUnreadable: The first record cannot be read.
    """
    for place, (batch, start, end) in enumerate(page.runs):
        if isinstance(batch.block, bytes):
            continue
        view = BlockView(batch.block)
        try:
            view.read_data(start, end)
            continue
        except StorageUnreadable as error:
            problem = error
        readable = start
        with suppress(StorageUnreadable):
            while readable < end:
                view.read_data(readable, readable + 1)
                readable += 1
        runs = page.runs[:place]
        if readable > start:
            runs.append((batch, start, readable))
        seq = batch.seq_at(readable)
        if runs or page.tombstone is not None:
            return page._replace(runs=runs, next_from_seq=seq - 1)
        raise problem.of_record(topic.name, seq)
    return page


def _hole_behind(topic: Topic, start: int) -> tuple[tuple[int, int] | None, int]:
    """The first hole that ends at `start` or later, and the last seq in front of it."""
    at = bisect_left(topic.holes, start, key=itemgetter(1))
    if at == len(topic.holes):
        return None, topic.head
    hole = topic.holes[at]
    return hole, hole[0] - 1


class _Scan:
    """One walk over live records: what is taken, and what is left of the budgets."""

    __slots__ = (
        "_before", "_bytes_max", "_is_exact", "_now", "_own", "_records_max", "_size",
        "_topic", "count", "runs", "skipped",
    )  # fmt: skip

    def __init__(
        self, topic: Topic, now: int, records_max: int, bytes_max: int, nodes: Collection[bytes]
    ) -> None:
        self._topic = topic
        self._before = topic.expired_before(now)
        self._own = nodes if topic.config.dedupe_node else ()
        # Whether records are past a time to live of their own, and time has not got to them.
        attributes = topic.attributes
        self._now = now if attributes is not None and attributes.has_expired(now) else 0
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._size = 0
        # Blocks are larger than the records in them. While whole blocks fit the budget, there is
        # no need to look up how large the records are.
        self._is_exact = False
        self.runs: list[Run] = []
        self.count = 0
        self.skipped = 0

    def over(self, start: int, stop: int) -> int:
        """Take what can be taken from `start` up to and with `stop`.

        Returns:
            The last seq examined: `stop` unless a budget was used up before.
        """
        if start > stop:
            return start - 1
        before, own = self._before, self._own
        for batch in self._topic.batches_from(start):
            if batch.first_seq > stop:
                break
            is_simple = not own and batch.live == batch.count and batch.ts >= before
            if self._now and is_simple:
                is_simple = batch.is_plain
            if is_simple and batch.first_seq >= start and batch.last_seq <= stop:
                # By far the most frequent case: all of a batch, and room for more behind it.
                count, size = self.count + batch.count, self._size + len(batch.block)
                if count < self._records_max and size <= self._bytes_max and not self._is_exact:
                    self.runs.append((batch, 0, batch.count))
                    self.count = count
                    self._size = size
                    continue
            first = batch.place_from(start) if start > batch.first_seq else 0
            end = batch.count if stop >= batch.last_seq else batch.place_from(stop + 1)
            examined = (self._take if is_simple else self._pick)(batch, first, end)
            if examined >= 0:
                return examined
        return stop

    def _pick(self, batch: Batch, start: int, end: int) -> int:
        """Take the live places that are not passed over; as `_take`."""
        own, before = self._own, self._before
        nodes = BlockView(batch.block).column(NODE, start, end) if own else None
        now = 0 if batch.is_plain else self._now
        view = BlockView(batch.block)
        for first, stop in batch.stretches(start, end):
            if nodes is None and not now and (not before or batch.is_younger_than(before)):
                examined = self._take(batch, first, stop)
                if examined >= 0:
                    return examined
                continue
            times = batch.times_at(first, stop)
            is_passed_over = [
                ts < before
                or (nodes is not None and nodes[place - start] in own)
                or (bool(now) and 0 < expires_at(view, place, ts) < now)
                for place, ts in enumerate(times, first)
            ]
            at = first
            for is_passed, group in groupby(is_passed_over):
                ahead = at + sum(1 for _ in group)
                if is_passed:
                    self.skipped += ahead - at
                    if self.skipped >= SKIPPED_MAX:
                        return batch.seq_at(ahead - 1)
                else:
                    examined = self._take(batch, at, ahead)
                    if examined >= 0:
                        return examined
                at = ahead
        return -1

    def _take(self, batch: Batch, start: int, end: int) -> int:
        """Deliver neighbouring places.

        Returns:
            -1 to go on; the last seq examined when a budget is used up.
        """
        wanted = min(end - start, self._records_max - self.count)
        size = self._size + len(batch.block)
        if self._is_exact or size > self._bytes_max:
            fitting = self._fitting(batch, start, start + wanted)
        else:
            self._size = size
            fitting = wanted
        if fitting:
            self.runs.append((batch, start, start + fitting))
            self.count += fitting
        if fitting < wanted:
            return batch.seq_at(start + fitting) - 1
        if self.count == self._records_max:
            # What is skipped behind the last record delivered is left for the next call.
            return batch.seq_at(start + fitting - 1)
        return -1

    def _fitting(self, batch: Batch, start: int, end: int) -> int:
        """How many of neighbouring places fit the byte budget; exact, unlike its estimate."""
        if not self._is_exact:
            self._is_exact = True
            self._size = 0
            for taken, first, stop in self.runs:
                self._size += size_between(taken.block, first, stop)
        block = batch.block
        before = size_before(block, start)
        room = self._bytes_max - self._size + before
        if size_before(block, end) <= room:
            fitting = end - start
        else:
            places = range(start, end)
            fitting = bisect_right(places, room, key=lambda place: size_before(block, place)) - 1
            fitting = max(fitting, 0 if self.count else 1)
        self._size += size_before(block, start + fitting) - before
        return fitting


def _tombstone(topic: Topic, from_seq: int) -> RemovedRange | None:
    head = topic.head
    if from_seq > head:
        return RemovedRange(1, head, "recreated", head, topic.earliest_seq, head)
    floor = topic.floor
    if from_seq >= floor:
        return None
    gap_from = from_seq + 1
    caps, ttl = topic.cap_floor >= gap_from, topic.ttl_floor >= gap_from
    reason = "mixed" if caps and ttl else "ttl" if ttl else "cap"
    return RemovedRange(gap_from, floor, reason, floor - from_seq, floor + 1, head)
