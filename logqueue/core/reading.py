"""Reading a topic behind a cursor: which records come next, and which loss to report.

Owns: cursor rules, budgets, the reader's node filter, tombstones. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from logqueue.core.batch import Record
from logqueue.core.block import DATA, META, NODE
from logqueue.core.topic import Topic


class Tombstone(NamedTuple):
    """Loss the reader could not prevent; a delete or an ack never makes one.

    Attributes:
        gap_from, gap_to: The missing seqs, inclusive.
        reason: "cap", "ttl", "mixed" or "recreated".
        missed_estimate: Upper bound of the records missed.
        earliest_seq, head_seq: Where reading goes on, and the head.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class Page(NamedTuple):
    """What one read yields.

    Attributes:
        next_from_seq: Last seq examined; the cursor of the next read.
        scanned: Records looked at, delivered or not.
    """

    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int

    @property
    def says_nothing(self) -> bool:
        """No record, no loss, and the reader is at the head: a long poll goes on waiting."""
        at_head = self.next_from_seq == self.head_seq
        return not self.records and self.tombstone is None and at_head


def read(
    topic: Topic,
    from_seq: int,
    now: int,
    *,
    records_max: int,
    bytes_max: int,
    nodes: Collection[bytes] = (),
) -> Page:
    """Read the records behind a cursor.

    Args:
        topic: Read only.
        from_seq: Last seq already processed; 0 for the start.
        now: The clock; records past their TTL are never returned.
        records_max: Delivered records at most.
        bytes_max: Stop before the record that would exceed this; one is always delivered.
        nodes: JSON strings; records written by these nodes are passed over.
    """
    tombstone = _tombstone(topic, from_seq)
    start = from_seq + 1
    if tombstone is not None:
        start = max(
            tombstone.gap_to + 1 if tombstone.reason != "recreated" else 1, topic.earliest_seq
        )
    before = topic.expired_before(now)
    own = nodes if topic.config.dedupe_node else ()
    taken: list[Record] = []
    examined = start - 1
    size = scanned = 0
    for batch in topic.batches_from(start):
        for record in batch.records(start):
            seq, ts, texts = record
            if ts < before or (own and texts[NODE] in own):
                examined = seq
                scanned += 1
                continue
            size += len(texts[DATA]) + len(texts[META])
            if taken and size > bytes_max:
                return _page(topic, taken, examined, tombstone, scanned)
            taken.append(record)
            examined = seq
            scanned += 1
            if len(taken) == records_max:
                # What is skipped behind the last record delivered is left for the next call.
                return _page(topic, taken, examined, tombstone, scanned)
    return _page(topic, taken, topic.head, tombstone, scanned)


def _page(
    topic: Topic, taken: list[Record], examined: int, tombstone: Tombstone | None, scanned: int
) -> Page:
    return Page(taken, examined, topic.head, topic.earliest_seq, tombstone, scanned)


def _tombstone(topic: Topic, from_seq: int) -> Tombstone | None:
    head = topic.head
    if from_seq > head:
        return Tombstone(1, head, "recreated", head, topic.earliest_seq, head)
    floor = topic.floor
    if from_seq >= floor:
        return None
    gap_from = from_seq + 1
    caps, ttl = topic.cap_floor >= gap_from, topic.ttl_floor >= gap_from
    reason = "mixed" if caps and ttl else "ttl" if ttl else "cap"
    return Tombstone(gap_from, floor, reason, floor - from_seq, floor + 1, head)
